"""Freeze a set: its latest revision becomes a folder of files with a fingerprint and cannot be changed again.

Model predictions are refused before. A set whose makers see predictions becomes biased towards or against those models:
the pool accepts none, the review pages show none, and only the functions of this module combine models and images.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Sequence
from pathlib import Path

from sqlalchemy import select

from shiftbench import Predictions
from shiftbench.extend.datasets import FileDataset, open_manifest
from shiftbench.extend.errors import argument, shell_command
from shiftbench.extend.io import Location, inside, local, write_json
from shiftbench.extend.outputs import fill_folder, place_file
from shiftbench.extend.settings import StoredResults
from shiftbench.testsets.accounts import LEADS, permit
from shiftbench.testsets.card import write_card
from shiftbench.testsets.database import REFERENCE, PoolEntry, Revision, Search
from shiftbench.testsets.errors import BlindnessError, FrozenError, WorkshopError
from shiftbench.testsets.frequencies import ImageFrequency, read_frequencies
from shiftbench.testsets.frozen import RECORD, FrozenSet, Part, read_frozen
from shiftbench.testsets.locks import alone
from shiftbench.testsets.pool.entries import entries_dataset, read_entries
from shiftbench.testsets.project import Project, record
from shiftbench.testsets.redraw import SampledImage, class_counts, in_revision, redraw
from shiftbench.testsets.revisions import (
    SetStatus,
    find_revision,
    find_row,
    revision_images,
    revisions,
    set_status,
    unsearched,
)

#: Columns of a pool entry that the manifest repeats.
_COLUMNS = ("source", "source_id", "query", "keyword", "date", "licence", "author", "url")
#: Images that an error names.
_MOST_NAMED = 5
#: What the record says of every search for near-duplicates.
_SEARCH_COLUMNS = ("name", "source", "images", "fingerprint", "options")


#: Defects that a set may be frozen with, on request; its card names them.
DEFECTS = ("short", "unreviewed", "unsearched")


def freeze(project: Project, set_name: str, *, allow: Collection[str] = (), by: int | None = None) -> FrozenSet:
    """Make the latest revision final. It must have converged: every class was reviewed and nothing was removed.

    ``allow`` accepts defects: "short" classes with too few images, "unreviewed" classes, and candidates that were
    "unsearched" for near-duplicates of the original data. If the process is killed, call it again.
    """
    with project.reading() as session:
        permit(session, by, LEADS)
    with alone(project, f"freeze {set_name}", by=by):
        return _freeze(project, set_name, allow, by)


def _freeze(project: Project, set_name: str, allow: Collection[str], by: int | None) -> FrozenSet:
    """As :func:`freeze`, while nobody else samples or freezes."""
    with project.reading() as session:
        counts = class_counts(session)
    status = set_status(project, set_name)
    revision = status.revision
    if revision.frozen_at is not None:
        raise FrozenError(f"the set {set_name!r} is already frozen", found=f"revision {revision.number}")
    _check_current(status)
    _check_defects(project, status, allow)
    target = local(inside(project.folder / "frozen" / set_name, project.folder))
    moment = project.now()
    # A killed freeze leaves a folder without a row in the database, as does a database restored from a backup.
    if target.exists():
        target.rename(_unused(target.with_name(f".{set_name}-until-{moment:%Y%m%dT%H%M%S}")))
    # The folder appears under its name when it is complete, so that nobody opens half a set.
    fill_folder(target, lambda folder: _fill(project, status, folder, moment.isoformat()))
    frozen = read_frozen(target)
    with project.writing() as session:
        # Writing the files takes a while; what changed in the meantime is checked under a lock.
        row = session.scalars(select(Revision).where(Revision.id == revision.id).with_for_update()).one()
        changes = redraw(project, session, row.sampling, row).changes
        changed = changes.replaced or changes.moved
        if row.frozen_at is not None or changed or find_row(session, set_name).id != row.id:
            raise WorkshopError(f"the set {set_name!r} was changed in the meantime", hint="check it and freeze again")
        if class_counts(session) != counts:
            # The files and the card have other counts than the images have now.
            raise WorkshopError(
                f"answers were given while {set_name!r} was being frozen",
                hint=f"{shell_command('testset', 'close', 'DIR')}, and freeze again",
            )
        row.frozen_at = moment
        row.report = dict(status.report)
        row.fingerprint = frozen.fingerprint
        record(project, session, "freeze", by=by, set=set_name, revision=row.number, fingerprint=frozen.fingerprint)
    return frozen


def _unused(path: Path) -> Path:
    """The path itself, or the first with a number appended that does not exist."""
    candidates = itertools.chain([path], (path.with_name(f"{path.name}-{number}") for number in itertools.count(2)))
    return next(candidate for candidate in candidates if not candidate.exists())


def _check_current(status: SetStatus) -> None:
    """Raise WorkshopError if images were removed or no longer fit since the revision was sampled."""
    if status.problem is not None:
        raise status.problem
    if status.current:
        return
    revision = status.revision
    if status.to_remove:
        reasons = [f"{digest[:12]}: {reason}" for digest, reason in status.to_remove.items()]
        found = f"{len(status.to_remove)} images must be replaced ({'; '.join(reasons[:_MOST_NAMED])})"
    else:
        found = f"{status.moved} images are counted for another bin or keyword than they were drawn for"
    raise WorkshopError(
        f"revision {revision.number} of {revision.set_name!r} has not converged",
        found=found,
        hint=shell_command("testset", "sample", "DIR", "--set", revision.set_name),
    )


def _check_defects(project: Project, status: SetStatus, allow: Collection[str]) -> None:
    """Raise WorkshopError for the first defect of a set that is not allowed."""
    revision = status.revision
    if status.unreviewed and "unreviewed" not in allow:
        raise WorkshopError(
            f"revision {revision.number} of {revision.set_name!r} has not been reviewed",
            found=f"{status.unreviewed} of {status.classes} classes not reviewed",
            hint=f"shiftbench testset review DIR, or {argument('allow', 'unreviewed')}",
        )
    gap = unsearched(project)
    if gap and "unsearched" not in allow:
        raise WorkshopError(
            "the candidates have not been compared with all original data",
            found=gap,
            hint=f"shiftbench testset dedupe DIR --against ORIGINAL, or {argument('allow', 'unsearched')}",
        )
    if status.short and "short" not in allow:
        first_classes = list(status.short.items())[:5]
        raise WorkshopError(
            f"{len(status.short)} classes have too few images",
            found=", ".join(f"{key}: {count} short" for key, count in first_classes),
            hint=f"import and annotate more candidates, or {argument('allow', 'short')}",
        )


def _fill(project: Project, status: SetStatus, folder: Path, frozen_at: str) -> None:
    """Write all files of a frozen set into an empty folder."""
    revision = status.revision
    images = revision_images(project, revision.set_name, revision.number)
    with project.reading() as session:
        frequencies = {row.entry: row for row in read_frequencies(project, session, in_revision(revision.id))}
        all_references = read_frequencies(project, session, PoolEntry.role == REFERENCE)
        searches = session.scalars(select(Search).order_by(Search.id)).all()
    # The annotated reference images; all of them if the set was sampled without annotations.
    min_annotations = max(1, int(revision.sampling["options"].get("min_annotations", 1)))
    references = [row for row in all_references if row.annotations >= min_annotations] or all_references
    sampled = [frequencies[image.entry] for image in images]
    draws: list[dict[str, object]] = [
        {"position": position, "drawn_for": image.drawn_for, "fallback": image.fallback}
        for position, image in enumerate(images)
    ]
    fingerprint = _write_part(project, folder, "images", sampled, draws)
    reference_fingerprint = _write_part(project, folder, "reference", references, [{} for _ in references])
    values = {
        "project": project.configuration.name,
        "project_id": project.configuration.id,
        "set": revision.set_name,
        "revision": revision.number,
        "frozen_at": frozen_at,
        "labels": project.space.name,
        "classes": list(project.space.keys),
        "class_names": list(project.space.names),
        "images": len(sampled),
        "fingerprint": fingerprint,
        "references": len(references),
        "reference_fingerprint": reference_fingerprint,
        "sampling": revision.sampling,
        "report": status.report,
        "unsearched": unsearched(project),
        "citation": project.configuration.instructions.citation,
        "searches": [_search_record(search) for search in searches],
    }
    write_json(folder / RECORD, values)
    write_card(project, status, folder, values, sampled, references)


def _search_record(search: Search) -> dict[str, object]:
    return {column: getattr(search, column) for column in _SEARCH_COLUMNS}


def _write_part(
    project: Project, folder: Path, part: str, rows: Sequence[ImageFrequency], draws: Sequence[dict[str, object]]
) -> str:
    """Write image files and their manifest, in the order in which class folders are listed.

    ``draws`` says for each image how it was sampled. Returns the fingerprint of the images; "" if there are none.
    """
    with project.reading() as session:
        entries = read_entries(session, [row.entry for row in rows])
    (folder / part).mkdir()
    in_folder_order = sorted(range(len(rows)), key=lambda i: (project.space.index(rows[i].class_key), rows[i].digest))
    lines = []
    for i in in_folder_order:
        row = rows[i]
        entry = entries[i]
        name = f"{row.class_key}/{row.digest}{entry.image.suffix}"
        place_file(project.images.original(row.digest, entry.image.suffix), folder / part / name)
        values = {
            "path": name,
            "label": row.class_key,
            **draws[i],
            "selection_frequency": row.frequency,
            "selected": row.selected,
            "annotations": row.annotations,
            **{column: getattr(entry, column) for column in _COLUMNS},
            "extra": entry.extra,
        }
        lines.append(json.dumps(values, ensure_ascii=False) + "\n")
    manifest = folder / f"{part}.jsonl"
    manifest.write_text("".join(lines), encoding="utf-8", newline="\n")
    if not lines:
        return ""
    return open_manifest(manifest, space=project.space, root=folder / part, name=part).fingerprint


def require_frozen(project: Project, set_name: str, purpose: str = "this") -> FrozenSet:
    """The frozen set; BlindnessError if it is not frozen yet, FrozenError if the database and the files disagree."""
    latest = find_revision(project, set_name)
    if latest.frozen_at is None:
        raise BlindnessError(
            f"{purpose} requires a frozen set, and {set_name!r} is not frozen",
            found=f"revision {latest.number}, still under review",
            hint=shell_command("testset", "freeze", "DIR", "--set", set_name),
        )
    frozen = read_frozen(project.folder / "frozen" / set_name)
    if frozen.fingerprint != latest.fingerprint:
        raise FrozenError(
            f"the frozen set {set_name!r} does not match the database",
            found=frozen.fingerprint,
            expected=latest.fingerprint,
        )
    expected_ids = {_image_id(image) for image in revision_images(project, set_name)}
    if set(frozen.open().ids) != expected_ids:
        raise FrozenError(f"the database and the files of {set_name!r} contain different images")
    # Opening checks the fingerprint of the references, too.
    if frozen.references:
        frozen.open("reference")
    return frozen


def _image_id(image: SampledImage) -> str:
    return f"{image.class_key}/{image.digest}{image.suffix}"


def all_revisions_dataset(project: Project, set_name: str) -> tuple[FileDataset, dict[str, list[str]]]:
    """All images that were ever in the set, and the image ids of each revision; requires a frozen set."""
    require_frozen(project, set_name, "evaluating a revision")
    image_ids: dict[str, list[str]] = {}
    # The keys are the entries in the order of their first revision.
    entries: dict[int, None] = {}
    for revision in revisions(project, set_name):
        images = revision_images(project, set_name, revision.number)
        image_ids[str(revision.number)] = [_image_id(image) for image in images]
        entries |= dict.fromkeys(image.entry for image in images)
    with project.reading() as session:
        rows = read_entries(session, list(entries))
    union = entries_dataset(project, f"{project.configuration.name}-{set_name}-revisions", rows)
    return union, image_ids


def predictions_on(
    project: Project, set_name: str, workspace: str | Location, part: Part = "images", classifiers: Sequence[str] = ()
) -> list[Predictions]:
    """Stored predictions on a frozen set or its references, of the named models or of all.

    Raises WorkshopError if there are none, or if one is on other images than those of the frozen set.
    """
    frozen = require_frozen(project, set_name, "showing predictions")
    if part == "images":
        settings = [frozen.name]
        expected = frozen.fingerprint
    else:
        # Sets of one project that share their references also share the setting.
        settings = [frozen.part_name(part), f"{frozen.project}-reference"]
        expected = frozen.reference_fingerprint
    run = StoredResults.open(workspace, classifiers)
    results = [result for result in run.results if result.setting in settings]
    evaluate = shell_command("eval", "MODEL", "--suite", f"testset:{project.folder}", "-w", workspace)
    if not results:
        raise WorkshopError(
            f"no predictions on {frozen.part_name(part)!r} in the workspace {workspace}",
            hint=evaluate,
        )
    for result in results:
        if result.spec.dataset.fingerprint != expected:
            raise WorkshopError(
                f"the predictions of {result.title!r} are on other images or classes than those of {frozen.name!r}",
                hint=f"{evaluate}, without --labels",
            )
    return [run.workspace.read(result) for result in results]
