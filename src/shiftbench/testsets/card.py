"""The dataset card of a frozen set: Markdown with a Hugging Face header."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image as Pillow
from sqlalchemy import func, select

from shiftbench._version import __version__
from shiftbench.errors import shell_command
from shiftbench.reports.formatting import markdown
from shiftbench.reports.writers import markdown_table
from shiftbench.studies.reproducibility import FREQUENCY_EDGES
from shiftbench.testsets.database import (
    CANDIDATE,
    SUBMITTED,
    Account,
    Assignment,
    Mark,
    NearPair,
    PoolEntry,
    Task,
)
from shiftbench.testsets.frequencies import ImageFrequency, annotator_quality, class_summaries, mean_frequency
from shiftbench.testsets.near_duplicates.find import threshold_text
from shiftbench.testsets.pool.entries import read_entries
from shiftbench.testsets.project import Project
from shiftbench.testsets.revisions import SetStatus, difference, revisions

_MOST_LISTED = 30
_GPS = 0x8825


def write_card(
    project: Project,
    status: SetStatus,
    folder: Path,
    values: dict[str, Any],
    sampled: Sequence[ImageFrequency],
    references: Sequence[ImageFrequency],
) -> None:
    """Write README.md into ``folder``; ``values`` are those of frozen.json."""
    with project.reading() as session:
        entries = read_entries(session, [row.entry for row in sampled])
    licences = Counter(entry.licence or "not stated" for entry in entries)
    size = "n<1K" if len(sampled) < 1000 else "1K<n<10K" if len(sampled) < 10_000 else "10K<n<100K"
    name = f"{project.configuration.name} ({status.revision.set_name})"
    licence = next(iter(licences)) if len(licences) == 1 else "various, see below"
    cited = project.configuration.instructions.citation
    sides = ("--x", f"{values['project']}-reference", "--y", f"{values['project']}-{values['set']}")
    # JSON strings are valid YAML: no name can end the header
    sections = [
        f"---\npretty_name: {json.dumps(name)}\ntask_categories: [image-classification]\n"
        f"size_categories: [{size}]\nlicense: other\nlicense_name: {json.dumps(licence)}\n---\n\n# {markdown(name)}\n",
        f"- {values['images']:,} images of {len(values['classes'])} classes ({markdown(values['labels'])}), "
        f"and {values['references']:,} annotated reference images\n"
        f"- revision {values['revision']}, frozen {values['frozen_at'][:10]}; made with shiftbench {__version__}\n"
        f"- fingerprint `{values['fingerprint']}`; of the references `{values['reference_fingerprint'] or 'none'}`\n"
        + (f"- classes with too few images: {_listed(status.short)}\n" if status.short else ""),
        _making(project),
        _frequencies(sampled, references),
        _sampling(status),
        _review(project, status, values["searches"], values["unsearched"]),
        _origins(entries, licences, folder),
        "## Use\n\n```\nshiftbench eval MODEL --suite testset:FOLDER -w WORKSPACE\n"
        f"{shell_command('study', 'reproducibility', '-w', 'WORKSPACE', *sides)}\n```\n",
        *([f"## Citation\n\n{markdown(cited)}\n"] if cited else []),
    ]
    (folder / "README.md").write_text("\n".join(sections), encoding="utf-8")


def _making(project: Project) -> str:
    rules, texts = project.configuration.annotation, project.configuration.instructions
    count = select(func.count())
    counted = select(func.count(), func.count(func.distinct(Assignment.account_id)))
    counted = counted.where(Assignment.state == SUBMITTED).join(Account, Account.id == Assignment.account_id)
    with project.reading() as session:
        candidates = session.scalars(count.select_from(PoolEntry).where(PoolEntry.role == CANDIDATE)).one()
        tasks = session.scalars(count.select_from(Task)).one()
        answers, annotators = session.execute(counted.where(Account.excluded_at.is_(None))).one()
        _, excluded = session.execute(counted.where(Account.excluded_at.is_not(None))).one()
    lines = [
        "## How it was made\n",
        f"{candidates:,} candidates were collected. {annotators} annotators submitted {answers:,} "
        f"answers to {tasks:,} grids of at most {rules.grid} images, each for one class with its definition; "
        f"{rules.annotators} annotators per image. Instructions shown: “{markdown(texts.text)}”",
        f"Every grid contained at least {rules.positive_controls} reference "
        f"images of the class and {rules.negative_controls} of near classes, indistinguishable from the candidates.",
    ]
    people = [one for one in annotator_quality(project) if not one.excluded]
    controls, right = sum(one.controls for one in people), sum(one.right for one in people)
    if controls:
        lines.append(f"On these controls, {right:,} of {controls:,} answers were correct.")
    if excluded:
        lines.append(f"Annotators whose answers were excluded: {excluded}.")
    summaries = class_summaries(project)
    if summaries and summaries[-1].agreement.images:
        overall = summaries[-1].agreement
        ends = f"[{overall.low:.3f}, {overall.high:.3f}]"
        lines.append(f"Krippendorff's alpha over {overall.images:,} images is {overall.alpha:.3f} {ends}.")
    about = {"Recruiting": texts.recruiting, "Pay": texts.pay, "Contact": texts.contact}
    lines += [f"{what}: {markdown(value)}." for what, value in about.items() if value]
    lines.append("No model predictions were available to annotators or reviewers before the set was frozen.")
    return "\n".join(lines) + "\n"


def _frequencies(sampled: Sequence[ImageFrequency], references: Sequence[ImageFrequency]) -> str:
    bins = len(FREQUENCY_EDGES) - 1
    counts = [[0] * bins, [0] * bins]
    for side, rows in zip(counts, (sampled, references), strict=True):
        for row in rows:
            if row.annotations:
                side[min(bins - 1, bins * row.selected // row.annotations)] += 1
    new, old = (sum(side) for side in counts)
    if not new:
        return "## Selection frequency\n\nThis set was sampled without annotations.\n"
    lines = []
    for (low, high), a, b in zip(itertools.pairwise(FREQUENCY_EDGES), *counts, strict=True):
        percent = f"{100 * b / old:.1f}" if old else "–"
        bar = "█" * round(30 * a / new)
        lines.append([f"{low:g} to {high:g}", f"{a:,}", f"{100 * a / new:.1f}", f"{b:,}", percent, bar])
    means = ["–" if mean is None else f"{mean:.3f}" for mean in (mean_frequency(sampled), mean_frequency(references))]
    lines.append(["mean", means[0], "", means[1], "", ""])
    header = ["selection frequency", "images", "%", "references", "%", ""]
    return (
        "## Selection frequency\n\nThe share of an image's annotators who selected it for its class; bins "
        "include their lower end, the last one also its upper end.\n\n" + markdown_table(header, lines)
    )


def _sampling(status: SetStatus) -> str:
    plan, report = status.revision.sampling, status.revision.report
    options = ", ".join(f"{name} {value}" for name, value in plan["options"].items() if value not in ({}, None))
    excluded = _listed(report["excluded"]) or "none"
    return (
        f"## Sampling\n\nStrategy **{plan['strategy']}** ({markdown(options)}), {plan['per_class']} images per class, "
        f"seed {plan['seed']}. {report['fallbacks']} of {report['images']:,} images replace images of a bin or keyword "
        f"that ran out. Candidates excluded when it was sampled: {markdown(excluded)}.\n"
    )


def _review(project: Project, status: SetStatus, searches: Sequence[dict[str, Any]], gap: str | None) -> str:
    lines = revisions(project, status.revision.set_name)
    rows = []
    for before, now in zip([None, *lines[:-1]], lines, strict=True):
        change = None if before is None else difference(project, now.set_name, before.number, now.number)
        counts = ["", ""] if change is None else [str(len(change.removed)), str(len(change.added))]
        rows.append([str(now.number), f"{now.made_at:%Y-%m-%d}", f"{now.images:,}", *counts, markdown(now.note)])
    with project.reading() as session:
        active = select(Mark.kind, func.count()).where(Mark.withdrawn_at.is_(None)).group_by(Mark.kind)
        marks = dict(session.execute(active).all())
        pairs = dict(session.execute(select(NearPair.state, func.count()).group_by(NearPair.state)).all())
    search = f"**NOT SEARCHED for near-duplicates: {markdown(gap)}.** " if gap else ""
    if searches:
        against = [
            f"{markdown(one['name'])} ({one['images']:,} images, fingerprint `{one['fingerprint'][:12]}`)"
            if one["source"]
            else "each other and the references"
            for one in searches
        ]
        how = searches[0]["options"]
        search += (
            f"Candidates were searched for near-duplicates of {', '.join(against)}: {how['k']} nearest neighbours by "
            f"{markdown(', '.join(how['by']))}, mirror images {'too' if how['flips'] else 'not searched'}. "
            f"Suspected were pairs with {markdown(threshold_text(how['thresholds']))}. "
        )
    text = (
        f"## Review\n\nRevisions: {len(lines)}; {len(status.reviewed_classes)} of {len(project.space)} classes of the "
        f"last one were reviewed. Marks on candidates: {_listed(marks) or 'none'}.\n\n"
        f"{search}Suspected pairs: {_listed(pairs) or 'none'}.\n\n"
    )
    return text + markdown_table(["revision", "made", "images", "removed", "added", "note"], rows)


def _origins(entries: Sequence[PoolEntry], licences: Mapping[str, int], folder: Path) -> str:
    parts = ["## Sources, licences, authors\n"]
    dates = sorted(entry.date for entry in entries if entry.date)
    if dates:
        parts.append(f"Dates from {markdown(dates[0])} to {markdown(dates[-1])}.\n")
    sources = Counter(entry.source for entry in entries)
    authors = Counter(entry.author or "not stated" for entry in entries)
    for title, counts in (("source", sources), ("licence", licences), ("author", authors)):
        ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        rows = [[markdown(name), f"{count:,}"] for name, count in ordered[:_MOST_LISTED]]
        rest = [count for _, count in ordered[_MOST_LISTED:]]
        if rest:
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


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())
