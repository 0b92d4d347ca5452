"""The dataset card of a frozen set: Markdown with a Hugging Face header."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image as Pillow
from sqlalchemy import func, select

from shiftbench import __version__
from shiftbench.extend.errors import shell_command
from shiftbench.extend.studies import FREQUENCY_EDGES
from shiftbench.extend.tables import markdown, markdown_table
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

#: The file in the project's folder with the result of a standard test of annotators.
ANNOTATOR_TEST = "annotator-test.json"
#: Sources, licences and authors that are named; the others are counted.
_MOST_LISTED = 30
#: The EXIF tag of GPS data.
_GPS_TAG = 0x8825
#: Characters of the longest bar in the histogram of selection frequencies.
_BAR_WIDTH = 30


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
    name = f"{project.configuration.name} ({status.revision.set_name})"
    sections = [
        _header(name, len(sampled), licences),
        _facts(status, values),
        _making(project),
        _frequencies(sampled, references),
        _sampling(status),
        _review(project, status, values["searches"], values["unsearched"]),
        _origins(entries, licences, folder),
        _use(values),
    ]
    citation = project.configuration.instructions.citation
    if citation:
        sections.append(f"## Citation\n\n{markdown(citation)}\n")
    (folder / "README.md").write_text("\n".join(sections), encoding="utf-8", newline="\n")


def _header(name: str, size: int, licences: Collection[str]) -> str:
    """The metadata that Hugging Face reads, and the title."""
    if size < 1000:
        size_category = "n<1K"
    elif size < 10_000:
        size_category = "1K<n<10K"
    else:
        size_category = "10K<n<100K"
    licence = next(iter(licences)) if len(licences) == 1 else "various, see below"
    # JSON strings are valid YAML, so no name can end the header.
    return (
        f"---\npretty_name: {json.dumps(name)}\ntask_categories: [image-classification]\n"
        f"size_categories: [{size_category}]\nlicense: other\nlicense_name: {json.dumps(licence)}\n---\n\n"
        f"# {markdown(name)}\n"
    )


def _facts(status: SetStatus, values: Mapping[str, Any]) -> str:
    """Sizes, revision and fingerprints as a list."""
    text = (
        f"- {values['images']:,} images of {len(values['classes'])} classes ({markdown(values['labels'])}), "
        f"and {values['references']:,} annotated reference images\n"
        f"- revision {values['revision']}, frozen {values['frozen_at'][:10]}; made with shiftbench {__version__}\n"
        f"- fingerprint `{values['fingerprint']}`; of the references `{values['reference_fingerprint'] or 'none'}`\n"
    )
    if status.short:
        text += f"- classes with too few images: {_listed(status.short)}\n"
    return text


def _use(values: Mapping[str, Any]) -> str:
    """The commands that evaluate a model and compare it with the references."""
    reference = f"{values['project']}-reference"
    new = f"{values['project']}-{values['set']}"
    study = shell_command("study", "reproducibility", "-w", "WORKSPACE", "--x", reference, "--y", new)
    return f"## Use\n\n```\nshiftbench eval MODEL --suite testset:FOLDER -w WORKSPACE\n{study}\n```\n"


def _making(project: Project) -> str:
    """How many people annotated how much, under which rules, and how well."""
    rules = project.configuration.annotation
    texts = project.configuration.instructions
    count = select(func.count())
    submitted = select(func.count(), func.count(func.distinct(Assignment.account_id)))
    submitted = submitted.where(Assignment.state == SUBMITTED).join(Account, Account.id == Assignment.account_id)
    # Cancelled grids are not part of the collection, and their answers do not count.
    submitted = submitted.join(Task, Task.id == Assignment.task_id).where(Task.cancelled_at.is_(None))
    with project.reading() as session:
        candidates = session.scalars(count.select_from(PoolEntry).where(PoolEntry.role == CANDIDATE)).one()
        tasks = session.scalars(count.select_from(Task).where(Task.cancelled_at.is_(None))).one()
        wished = session.execute(
            select(func.min(Task.wished), func.max(Task.wished)).where(Task.cancelled_at.is_(None))
        ).one()
        answers, annotators = session.execute(submitted.where(Account.excluded_at.is_(None))).one()
        _, excluded = session.execute(submitted.where(Account.excluded_at.is_not(None))).one()
    lines = [
        "## How it was made\n",
        f"{candidates:,} candidates were collected. {annotators} annotators submitted {answers:,} "
        f"answers to {tasks:,} grids of at most {rules.grid} images, each for one class with its definition; "
        f"{_per_image(*wished)} annotators per image. Instructions shown: “{markdown(texts.text)}”",
        f"Every grid contained at least {rules.positive_controls} reference "
        f"images of the class and {rules.negative_controls} of near classes, indistinguishable from the candidates.",
    ]
    # Excluded annotators are only counted, because their answers do not count.
    people = [person for person in annotator_quality(project) if not person.excluded]
    controls = sum(person.controls for person in people)
    right = sum(person.right for person in people)
    if controls:
        lines.append(f"On these controls, {right:,} of {controls:,} answers were correct.")
    if excluded:
        lines.append(f"Annotators whose answers were excluded: {excluded}.")
    test_file = project.folder / ANNOTATOR_TEST
    if test_file.is_file():
        lines.append(_annotator_test(json.loads(test_file.read_text(encoding="utf-8"))))
    # The last summary is that of all classes together.
    summaries = class_summaries(project)
    if summaries and summaries[-1].agreement.images:
        overall = summaries[-1].agreement
        interval = f"[{overall.low:.3f}, {overall.high:.3f}]"
        lines.append(f"Krippendorff's alpha over {overall.images:,} images is {overall.alpha:.3f} {interval}.")
    for title, text in (("Recruiting", texts.recruiting), ("Pay", texts.pay), ("Contact", texts.contact)):
        if text:
            lines.append(f"{title}: {markdown(text)}.")
    lines.append("No model predictions were available to annotators or reviewers before the set was frozen.")
    return "\n".join(lines) + "\n"


def _annotator_test(test: Mapping[str, Any]) -> str:
    """The result of the standard test, in which all participants classified the same images."""
    which = f"{test['images']:,} images of {markdown(test['dataset'])} (test `{test['fingerprint'][:12]}`)"
    mean, lowest, highest = (100 * test[name] for name in ("mean_accuracy", "lowest", "highest"))
    return (
        f"In a standard test, {test['participants']} annotators classified the same {which}: {mean:.1f} % were right "
        f"on average, {lowest:.1f} to {highest:.1f} % by annotator."
    )


def _per_image(fewest: int | None, most: int | None) -> str:
    """How many annotators grids were made for, which a top-up changes for some of them."""
    if fewest is None or fewest == most:
        return str(most or 0)
    return f"{fewest} to {most}"


def _frequencies(sampled: Sequence[ImageFrequency], references: Sequence[ImageFrequency]) -> str:
    """The histogram of selection frequencies, beside that of the references."""
    new_counts = _histogram(sampled)
    old_counts = _histogram(references)
    new_total = sum(new_counts)
    old_total = sum(old_counts)
    if not new_total:
        return "## Selection frequency\n\nThis set was sampled without annotations.\n"
    lines = []
    for (low, high), new, old in zip(itertools.pairwise(FREQUENCY_EDGES), new_counts, old_counts, strict=True):
        new_percent = f"{100 * new / new_total:.1f}"
        old_percent = f"{100 * old / old_total:.1f}" if old_total else "–"
        bar = "█" * round(_BAR_WIDTH * new / new_total)
        lines.append([f"{low:g} to {high:g}", f"{new:,}", new_percent, f"{old:,}", old_percent, bar])
    lines.append(["mean", _mean_text(sampled), "", _mean_text(references), "", ""])
    header = ["selection frequency", "images", "%", "references", "%", ""]
    return (
        "## Selection frequency\n\nThe share of an image's annotators who selected it for its class; bins "
        "include their lower end, the last one also its upper end.\n\n" + markdown_table(header, lines)
    )


def _histogram(rows: Sequence[ImageFrequency]) -> list[int]:
    """The number of annotated images in each bin of selection frequency."""
    bins = len(FREQUENCY_EDGES) - 1
    counts = [0] * bins
    for row in rows:
        if row.annotations:
            # Computed in integers, because 6 of 10 lies exactly on the edge of a bin.
            counts[min(bins - 1, bins * row.selected // row.annotations)] += 1
    return counts


def _mean_text(rows: Sequence[ImageFrequency]) -> str:
    mean = mean_frequency(rows)
    return "–" if mean is None else f"{mean:.3f}"


def _sampling(status: SetStatus) -> str:
    """The strategy with its options, and which candidates it left out."""
    plan = status.revision.sampling
    report = status.revision.report
    stated_options = {name: value for name, value in plan["options"].items() if value not in ({}, None)}
    options = ", ".join(f"{name} {value}" for name, value in stated_options.items())
    excluded = _listed(report["excluded"]) or "none"
    return (
        f"## Sampling\n\nStrategy **{plan['strategy']}** ({markdown(options)}), {plan['per_class']} images per class, "
        f"seed {plan['seed']}. {report['fallbacks']} of {report['images']:,} images replace images of a bin or keyword "
        f"that ran out. Candidates excluded when it was sampled: {markdown(excluded)}.\n"
    )


def _review(project: Project, status: SetStatus, searches: Sequence[dict[str, Any]], gap: str | None) -> str:
    """The revisions, the marks of reviewers, and the search for near-duplicates, with what it left out (``gap``)."""
    all_revisions = revisions(project, status.revision.set_name)
    rows = []
    previous = None
    for revision in all_revisions:
        removed = ""
        added = ""
        if previous is not None:
            change = difference(project, revision.set_name, previous.number, revision.number)
            removed = str(len(change.removed))
            added = str(len(change.added))
        day = f"{revision.made_at:%Y-%m-%d}"
        rows.append([str(revision.number), day, f"{revision.images:,}", removed, added, markdown(revision.note)])
        previous = revision
    with project.reading() as session:
        active = select(Mark.kind, func.count()).where(Mark.withdrawn_at.is_(None)).group_by(Mark.kind)
        marks = dict(session.execute(active).all())
        pairs = dict(session.execute(select(NearPair.state, func.count()).group_by(NearPair.state)).all())
    search = ""
    if gap:
        search += f"**NOT SEARCHED for near-duplicates: {markdown(gap)}.** "
    if searches:
        search += _searches(searches)
    text = (
        f"## Review\n\nRevisions: {len(all_revisions)}; {len(status.reviewed_classes)} of {len(project.space)} classes "
        f"of the last one were reviewed. Marks on candidates: {_listed(marks) or 'none'}.\n\n"
        f"{search}Suspected pairs: {_listed(pairs) or 'none'}.\n\n"
    )
    return text + markdown_table(["revision", "made", "images", "removed", "added", "note"], rows)


def _searches(searches: Sequence[dict[str, Any]]) -> str:
    """What the candidates were compared with, and how."""
    targets = []
    for search in searches:
        if search["source"]:
            fingerprint = search["fingerprint"][:12]
            targets.append(f"{markdown(search['name'])} ({search['images']:,} images, fingerprint `{fingerprint}`)")
        else:
            targets.append("each other and the references")
    options = searches[0]["options"]
    return (
        f"Candidates were searched for near-duplicates of {', '.join(targets)}: {options['k']} nearest neighbours by "
        f"{markdown(', '.join(options['by']))}, mirror images {'too' if options['flips'] else 'not searched'}. "
        "Copies with a frame, and crops to less than three quarters of the side, are mostly not found by pixels. "
        f"Suspected were pairs with {markdown(threshold_text(options['thresholds']))}. "
    )


def _origins(entries: Sequence[PoolEntry], licences: Mapping[str, int], folder: Path) -> str:
    """Where the images come from, whose they are, and whether files contain places."""
    paragraphs = ["## Sources, licences, authors\n"]
    dates = sorted(entry.date for entry in entries if entry.date)
    if dates:
        paragraphs.append(f"Dates from {markdown(dates[0])} to {markdown(dates[-1])}.\n")
    sources = Counter(entry.source for entry in entries)
    authors = Counter(entry.author or "not stated" for entry in entries)
    paragraphs.append(_count_table("source", sources))
    paragraphs.append(_count_table("licence", licences))
    paragraphs.append(_count_table("author", authors))
    paragraphs.append("`images.jsonl` lists them per image.\n")
    files = [path for path in sorted((folder / "images").rglob("*")) if path.is_file()]
    located = sum(_has_location(path) for path in files)
    if located:
        paragraphs.append(
            f"**{located:,} files contain GPS coordinates in their EXIF metadata**; consider this before sharing.\n"
        )
    return "\n".join(paragraphs)


def _count_table(title: str, counts: Mapping[str, int]) -> str:
    """The most frequent values with their numbers of images, and how many others there are."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    rows = [[markdown(name), f"{count:,}"] for name, count in ordered[:_MOST_LISTED]]
    unlisted = [count for _, count in ordered[_MOST_LISTED:]]
    if unlisted:
        rows.append([f"{len(unlisted):,} more", f"{sum(unlisted):,}"])
    return markdown_table([title, "images"], rows)


def _has_location(path: Path) -> bool:
    try:
        with Pillow.open(path) as image:
            return bool(image.getexif().get_ifd(_GPS_TAG))
    except Exception:  # An image that can be decoded may have invalid metadata, which fails in many ways.
        return False


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())
