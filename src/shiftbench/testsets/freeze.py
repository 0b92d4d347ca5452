"""Freeze a set: its latest revision becomes a folder of files with a fingerprint and cannot be changed again.

Model predictions are refused before. A set whose makers see predictions becomes biased towards or against those models:
the pool accepts none, the review pages show none, and only the functions of this module combine models and images.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from pathlib import Path

from sqlalchemy import select

from shiftbench.datasets.manifest import open_manifest
from shiftbench.datasets.stored import FileDataset
from shiftbench.errors import argument, shell_command
from shiftbench.io.atomic import write_json
from shiftbench.io.paths import Location
from shiftbench.outputs.record import fill_folder, place_file
from shiftbench.runs.results import StoredResults
from shiftbench.store.predictions import Predictions
from shiftbench.testsets.accounts import LEADS, permit
from shiftbench.testsets.card import write_card
from shiftbench.testsets.database import REFERENCE, PoolEntry, Revision, Search
from shiftbench.testsets.errors import BlindnessError, FrozenError, WorkshopError
from shiftbench.testsets.frequencies import ImageFrequency, read_frequencies
from shiftbench.testsets.frozen import RECORD, FrozenSet, Part, read_frozen
from shiftbench.testsets.pool.entries import entries_dataset, read_entries
from shiftbench.testsets.project import Project, record
from shiftbench.testsets.revisions import (
    SetStatus,
    exclusions,
    find_revision,
    find_row,
    in_revision,
    revision_images,
    revisions,
    set_status,
    unsearched,
)

_COLUMNS = ("source", "source_id", "query", "keyword", "date", "licence", "author", "url")


#: Defects that a set may be frozen with, on request; its card names them.
DEFECTS = ("short", "unreviewed", "unsearched")


def freeze(project: Project, set_name: str, *, allow: Collection[str] = (), by: int | None = None) -> FrozenSet:
    """Make the latest revision final. It must have converged: every class was reviewed and nothing was removed.

    ``allow`` accepts defects: "short" classes with too few images, "unreviewed" classes, and candidates that were
    "unsearched" for near-duplicates of the original data. If the process is killed, call it again.
    """
    with project.reading() as session:
        permit(session, by, LEADS)
    status = set_status(project, set_name)
    revision, what = status.revision, f"revision {status.revision.number} of {set_name!r}"
    if revision.frozen_at is not None:
        raise FrozenError(f"the set {set_name!r} is already frozen", found=f"revision {revision.number}")
    if status.to_remove:
        raise WorkshopError(
            f"{what} has not converged",
            found=f"{len(status.to_remove)} images have been removed since it was sampled",
            hint=shell_command("testset", "sample", "DIR", "--set", set_name),
        )
    gap, short = unsearched(project), list(status.short.items())
    unreviewed = status.unreviewed and f"{status.unreviewed} of {status.classes} classes not reviewed"
    few = ", ".join(f"{key}: {count} short" for key, count in short[:5])
    for defect, found, message, hint in (
        ("unreviewed", unreviewed, f"{what} has not been reviewed", "shiftbench testset review DIR"),
        (
            "unsearched",
            gap,
            "the candidates have not been compared with all original data",
            "shiftbench testset dedupe DIR --against ORIGINAL",
        ),
        ("short", few, f"{len(short)} classes have too few images", "import and annotate more candidates"),
    ):
        if found and defect not in allow:
            raise WorkshopError(message, found=found, hint=f"{hint}, or {argument('allow', defect)}")
    target = project.folder / "frozen" / set_name
    moment = project.now()
    if target.exists():  # left by a killed freeze, or by a database restored from a backup
        target.rename(target.with_name(f".{set_name}-until-{moment:%Y%m%dT%H%M%S}"))
    fill_folder(target, lambda folder: _fill(project, status, folder, moment.isoformat()))
    frozen = read_frozen(target)
    with project.writing() as session:
        row = session.scalars(select(Revision).where(Revision.id == status.revision.id).with_for_update()).one()
        removed = exclusions(session, in_revision(row.id))
        if row.frozen_at is not None or removed or find_row(session, set_name).id != row.id:
            raise WorkshopError(f"the set {set_name!r} was changed in the meantime", hint="check it and freeze again")
        row.frozen_at, row.fingerprint = moment, frozen.fingerprint
        record(project, session, "freeze", by=by, set=set_name, revision=row.number, fingerprint=frozen.fingerprint)
    return frozen


def _fill(project: Project, status: SetStatus, folder: Path, frozen_at: str) -> None:
    revision = status.revision
    images = revision_images(project, revision.set_name, revision.number)
    with project.reading() as session:
        rows = {row.entry: row for row in read_frequencies(project, session, in_revision(revision.id))}
        originals = read_frequencies(project, session, PoolEntry.role == REFERENCE)
        searches = session.scalars(select(Search).order_by(Search.id)).all()
    least = max(1, int(revision.sampling["options"].get("min_annotations", 1)))
    # The annotated reference images; all of them if the set was sampled without annotations.
    references = [row for row in originals if row.annotations >= least] or originals
    sampled = [rows[image.entry] for image in images]
    drawn = [
        {"position": position, "drawn_for": image.drawn_for, "fallback": image.fallback}
        for position, image in enumerate(images)
    ]
    fingerprint = _write_part(project, folder, "images", sampled, drawn)
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
        "report": revision.report,
        "unsearched": unsearched(project),
        "citation": project.configuration.instructions.citation,
        "searches": [
            {name: getattr(one, name) for name in ("name", "source", "images", "fingerprint", "options")}
            for one in searches
        ],
    }
    write_json(folder / RECORD, values)
    write_card(project, status, folder, values, sampled, references)


def _write_part(
    project: Project, folder: Path, part: str, rows: Sequence[ImageFrequency], more: Sequence[dict[str, object]]
) -> str:
    """Image files and manifest, in the order in which class folders are listed; returns their fingerprint."""
    with project.reading() as session:
        entries = read_entries(session, [row.entry for row in rows])
    (folder / part).mkdir()
    lines = []
    found = zip(rows, entries, more, strict=True)
    for row, entry, details in sorted(found, key=lambda one: (project.space.index(one[0].class_key), one[0].digest)):
        name = f"{row.class_key}/{row.digest}{entry.image.suffix}"
        place_file(project.images.original(row.digest, entry.image.suffix), folder / part / name)
        described = {
            "path": name,
            "label": row.class_key,
            **details,
            "selection_frequency": row.frequency,
            "selected": row.selected,
            "annotations": row.annotations,
            **{column: getattr(entry, column) for column in _COLUMNS},
            "extra": entry.extra,
        }
        lines.append(json.dumps(described, ensure_ascii=False) + "\n")
    manifest = folder / f"{part}.jsonl"
    manifest.write_text("".join(lines), encoding="utf-8")
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
    listed = {f"{image.class_key}/{image.digest}{image.suffix}" for image in revision_images(project, set_name)}
    if set(frozen.open().ids) != listed:
        raise FrozenError(f"the database and the files of {set_name!r} contain different images")
    if frozen.references:
        frozen.open("reference")
    return frozen


def all_revisions_dataset(project: Project, set_name: str) -> tuple[FileDataset, dict[str, list[str]]]:
    """All images that were ever in the set, and the image ids of each revision; requires a frozen set."""
    require_frozen(project, set_name, "evaluating a revision")
    images = {str(one.number): revision_images(project, set_name, one.number) for one in revisions(project, set_name)}
    entries = {image.entry: None for found in images.values() for image in found}
    with project.reading() as session:
        rows = read_entries(session, list(entries))
    union = entries_dataset(project, f"{project.configuration.name}-{set_name}-revisions", rows)
    return union, {number: [f"{i.class_key}/{i.digest}{i.suffix}" for i in found] for number, found in images.items()}


def predictions_on(
    project: Project, set_name: str, workspace: str | Location, part: Part = "images", classifiers: Sequence[str] = ()
) -> list[Predictions]:
    """Stored predictions on a frozen set or its references, of the named models or of all."""
    frozen = require_frozen(project, set_name, "showing predictions")
    # Sets of one project that share their references also share the setting.
    names = [frozen.name] if part == "images" else [frozen.part_name(part), f"{frozen.project}-reference"]
    run = StoredResults.open(workspace, classifiers)
    results = [result for result in run.results if result.setting in names]
    evaluate = shell_command("eval", "MODEL", "--suite", f"testset:{project.folder}", "-w", workspace)
    if not results:
        raise WorkshopError(
            f"no predictions on {frozen.part_name(part)!r} in the workspace {workspace}",
            hint=evaluate,
        )
    expected = frozen.fingerprint if part == "images" else frozen.reference_fingerprint
    for result in results:
        if result.spec.dataset.fingerprint != expected:
            raise WorkshopError(
                f"the predictions of {result.title!r} are on other images or classes than those of {frozen.name!r}",
                hint=f"{evaluate}, without --labels",
            )
    return [run.workspace.read(result) for result in results]
