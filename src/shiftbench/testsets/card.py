"""The dataset card of a frozen set: Markdown with a Hugging Face header."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image as Pillow
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from shiftbench._version import __version__
from shiftbench.reports.formatting import markdown
from shiftbench.reports.writers import markdown_table
from shiftbench.studies.reproducibility import FREQUENCY_EDGES
from shiftbench.testsets.database.tables import (
    CANDIDATE,
    SUBMITTED,
    Account,
    Assignment,
    Mark,
    NearPair,
    PoolEntry,
    Search,
    Task,
)
from shiftbench.testsets.frequencies import (
    AnnotatorQuality,
    ImageFrequency,
    annotator_quality,
    class_summaries,
    mean_frequency,
)
from shiftbench.testsets.pool.entries import read_entries
from shiftbench.testsets.project import Project
from shiftbench.testsets.revisions import SetStatus, difference, revisions, unsearched

_MOST_LISTED = 30
_GPS = 0x8825


@dataclass(frozen=True)
class _Facts:
    """Counts from the database."""

    candidates: int
    sources: dict[str, int]
    licences: dict[str, int]
    authors: dict[str, int]
    dates: tuple[str, str] | None
    tasks: int
    answers: int
    annotators: int
    excluded: int
    marks: dict[str, int]
    pairs: dict[str, int]
    searches: Sequence[Search]


def write_card(
    project: Project,
    status: SetStatus,
    folder: Path,
    values: dict[str, object],
    sampled: Sequence[ImageFrequency],
    references: Sequence[ImageFrequency],
) -> None:
    with project.reading() as session:
        facts = _facts(session, [row.entry for row in sampled])
    sections = [
        _header(project, status, facts, len(sampled)),
        _summary(values, status),
        _making(project, facts),
        _frequencies(sampled, references),
        _sampling(status),
        _review(project, status, facts),
        _origins(facts, folder),
        _use(values),
        *([f"## Citation\n\n{markdown(cited)}\n"] if (cited := project.configuration.instructions.citation) else []),
    ]
    (folder / "README.md").write_text("\n".join(sections), encoding="utf-8")


def frequency_histogram(rows: Iterable[ImageFrequency]) -> list[int]:
    """Number of images in each of the five bins of selection frequency."""
    counts = [0] * (len(FREQUENCY_EDGES) - 1)
    for row in rows:
        if row.annotations:
            counts[min(len(counts) - 1, len(counts) * row.selected // row.annotations)] += 1
    return counts


def _facts(session: Session, entries: Sequence[int]) -> _Facts:
    chosen = read_entries(session, entries)
    dates = sorted(entry.date for entry in chosen if entry.date)
    answers = select(func.count()).select_from(Assignment).where(Assignment.state == SUBMITTED)
    answers = answers.join(Account, Account.id == Assignment.account_id)
    people = select(func.count(func.distinct(Assignment.account_id))).where(Assignment.state == SUBMITTED)
    counted = people.join(Account, Account.id == Assignment.account_id)
    marks = select(Mark.kind, func.count()).where(Mark.withdrawn_at.is_(None)).group_by(Mark.kind)
    pairs = select(NearPair.state, func.count()).group_by(NearPair.state)
    return _Facts(
        candidates=session.scalars(
            select(func.count()).select_from(PoolEntry).where(PoolEntry.role == CANDIDATE)
        ).one(),
        sources=_counted(entry.source for entry in chosen),
        licences=_counted(entry.licence or "not stated" for entry in chosen),
        authors=_counted(entry.author or "not stated" for entry in chosen),
        dates=(dates[0], dates[-1]) if dates else None,
        tasks=session.scalars(select(func.count()).select_from(Task)).one(),
        answers=session.scalars(answers.where(Account.excluded_at.is_(None))).one(),
        annotators=session.scalars(counted.where(Account.excluded_at.is_(None))).one(),
        excluded=session.scalars(counted.where(Account.excluded_at.is_not(None))).one(),
        marks=dict(session.execute(marks).all()),
        pairs=dict(session.execute(pairs).all()),
        searches=session.scalars(select(Search).order_by(Search.id)).all(),
    )


def _counted(values: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(values).items(), key=lambda item: (-item[1], item[0])))


def _header(project: Project, status: SetStatus, facts: _Facts, images: int) -> str:
    size = "n<1K" if images < 1000 else "1K<n<10K" if images < 10_000 else "10K<n<100K"
    name = f"{project.configuration.name} ({status.revision.set_name})"
    licence = next(iter(facts.licences)) if len(facts.licences) == 1 else "various, see below"
    # JSON strings are valid YAML: no name can end the header
    return (
        f"---\npretty_name: {json.dumps(name)}\ntask_categories: [image-classification]\n"
        f"size_categories: [{size}]\nlicense: other\nlicense_name: {json.dumps(licence)}\n---\n\n# {markdown(name)}\n"
    )


def _summary(values: dict[str, Any], status: SetStatus) -> str:
    lines = [
        f"- {values['images']:,} images of {len(values['classes'])} classes ({markdown(values['labels'])}), "
        f"and {values['references']:,} annotated reference images",
        f"- revision {values['revision']}, frozen {values['frozen_at'][:10]}; made with shiftbench {__version__}",
        f"- fingerprint `{values['fingerprint']}`; of the references `{values['reference_fingerprint'] or 'none'}`",
    ]
    if status.short:
        lines.append(f"- classes with too few images: {_listed(status.short)}")
    return "\n".join(lines) + "\n"


def _making(project: Project, facts: _Facts) -> str:
    rules, texts = project.configuration.annotation, project.configuration.instructions
    summaries = class_summaries(project)
    overall = summaries[-1].agreement if summaries else None
    controls = _controls([one for one in annotator_quality(project) if not one.excluded])
    lines = [
        "## How it was made\n",
        f"{facts.candidates:,} candidates were collected. {facts.annotators} annotators submitted {facts.answers:,} "
        f"answers to {facts.tasks:,} grids of at most {rules.grid} images, each for one class with its definition; "
        f"{rules.annotators} annotators per image. Instructions shown: “{markdown(texts.text)}”",
        f"Every grid contained at least {rules.positive_controls} reference "
        f"images of the class and {rules.negative_controls} of near classes, indistinguishable from the candidates.",
    ]
    if controls is not None:
        lines.append(f"On these controls, {controls[0]:,} of {controls[1]:,} answers were correct.")
    if facts.excluded:
        lines.append(f"The answers of {facts.excluded} annotators were excluded.")
    if overall is not None and overall.images:
        lines.append(
            f"Krippendorff's alpha over {overall.images:,} images is {overall.alpha:.3f} "
            f"[{overall.low:.3f}, {overall.high:.3f}]."
        )
    about = {"Recruiting": texts.recruiting, "Pay": texts.pay, "Contact": texts.contact}
    lines += [f"{what}: {markdown(value)}." for what, value in about.items() if value]
    lines.append("No model predictions were available to annotators or reviewers before the set was frozen.")
    return "\n".join(lines) + "\n"


def _controls(people: Sequence[AnnotatorQuality]) -> tuple[int, int] | None:
    total = sum(one.controls for one in people)
    return (sum(one.right for one in people), total) if total else None


def _frequencies(sampled: Sequence[ImageFrequency], references: Sequence[ImageFrequency]) -> str:
    """The distribution of selection frequencies of the set and of its references."""
    new, old = frequency_histogram(sampled), frequency_histogram(references)
    if not sum(new):
        return "## Selection frequency\n\nThis set was sampled without annotations.\n"
    ends = list(itertools.pairwise(FREQUENCY_EDGES))
    rows = [
        [f"{low:g} to {high:g}", f"{a:,}", _percent(a, sum(new)), f"{b:,}", _percent(b, sum(old)), _bar(a, sum(new))]
        for (low, high), a, b in zip(ends, new, old, strict=True)
    ]
    means = ["–" if mean is None else f"{mean:.3f}" for mean in (mean_frequency(sampled), mean_frequency(references))]
    rows.append(["mean", means[0], "", means[1], "", ""])
    header = ["selection frequency", "images", "%", "references", "%", ""]
    return (
        "## Selection frequency\n\nThe share of an image's annotators who selected it for its class; bins "
        "include their lower end, the last one also its upper end.\n\n" + markdown_table(header, rows)
    )


def _percent(count: int, total: int) -> str:
    return f"{100 * count / total:.1f}" if total else "–"


def _bar(count: int, total: int) -> str:
    return "█" * round(30 * count / total) if total else ""


def _sampling(status: SetStatus) -> str:
    plan, report = status.revision.sampling, status.revision.report
    options = ", ".join(f"{name} {value}" for name, value in plan["options"].items() if value not in ({}, None))
    excluded = _listed(report["excluded"]) or "none"
    return (
        f"## Sampling\n\nStrategy **{plan['strategy']}** ({markdown(options)}), {plan['per_class']} images per class, "
        f"seed {plan['seed']}. {report['fallbacks']} of {report['images']:,} images replace images of a bin or keyword "
        f"that ran out. Excluded candidates: {markdown(excluded)}.\n"
    )


def _review(project: Project, status: SetStatus, facts: _Facts) -> str:
    lines = revisions(project, status.revision.set_name)
    rows = []
    for before, now in itertools.zip_longest([None, *lines[:-1]], lines):
        assert now is not None
        change = None if before is None else difference(project, now.set_name, before.number, now.number)
        counts = ["", ""] if change is None else [str(len(change.removed)), str(len(change.added))]
        rows.append([str(now.number), f"{now.made_at:%Y-%m-%d}", f"{now.images:,}", *counts, markdown(now.note)])
    reviewed = len(status.reviewed_classes)
    text = (
        f"## Review\n\n{len(lines)} revisions; {reviewed} of {len(project.space)} classes of the last one were "
        f"reviewed. Marks on candidates: {_listed(facts.marks) or 'none'}.\n\n{_search(project, facts)}\n\n"
    )
    return text + markdown_table(["revision", "made", "images", "removed", "added", "note"], rows)


def _search(project: Project, facts: _Facts) -> str:
    """What the candidates were compared with, and what they were not."""
    gap = unsearched(project)
    against = [
        f"{markdown(one.name)} ({one.images:,} images, fingerprint `{one.fingerprint[:12]}`)"
        if one.source
        else "each other and the references"
        for one in facts.searches
    ]
    text = f"**NOT SEARCHED for near-duplicates: {markdown(gap)}.** " if gap else ""
    if against:
        text += f"Candidates were searched for near-duplicates of {', '.join(against)}. "
    return text + f"Suspected pairs: {_listed(facts.pairs) or 'none'}."


def _origins(facts: _Facts, folder: Path) -> str:
    parts = ["## Sources, licences, authors\n"]
    if facts.dates:
        parts.append(f"Dates from {markdown(facts.dates[0])} to {markdown(facts.dates[1])}.\n")
    for title, counts in (("source", facts.sources), ("licence", facts.licences), ("author", facts.authors)):
        rows = [[markdown(name), f"{count:,}"] for name, count in list(counts.items())[:_MOST_LISTED]]
        if len(counts) > _MOST_LISTED:
            rest = list(counts.values())[_MOST_LISTED:]
            rows.append([f"{len(rest):,} more", f"{sum(rest):,}"])
        parts.append(markdown_table([title, "images"], rows))
    parts.append("`images.jsonl` lists them per image.\n")
    places = sum(_has_location(path) for path in sorted((folder / "images").rglob("*")) if path.is_file())
    if places:
        parts.append(
            f"**{places:,} files contain GPS coordinates in their EXIF metadata**; consider this before sharing.\n"
        )
    return "\n".join(parts)


def _has_location(path: Path) -> bool:
    try:
        with Pillow.open(path) as image:
            return bool(image.getexif().get_ifd(_GPS))
    except Exception:  # invalid metadata of an image that can be decoded
        return False


def _use(values: dict[str, object]) -> str:
    name = f"{values['project']}-{values['set']}"
    return (
        "## Use\n\n```\nshiftbench eval MODEL --suite testset:FOLDER -w WORKSPACE\n"
        f"shiftbench study reproducibility -w WORKSPACE --x {values['project']}-reference --y {name}\n```\n"
    )


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())
