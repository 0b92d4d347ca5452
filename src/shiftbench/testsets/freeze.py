"""Freeze a set: its latest revision becomes a folder of files with a fingerprint and cannot be changed again."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.orm import Session

from shiftbench.datasets.manifest import open_manifest
from shiftbench.errors import argument
from shiftbench.io.atomic import write_json
from shiftbench.outputs.record import fill_folder, place_file
from shiftbench.testsets.accounts import LEADS, permit
from shiftbench.testsets.audit import record
from shiftbench.testsets.card import write_card
from shiftbench.testsets.database.tables import REFERENCE, PoolEntry, Revision
from shiftbench.testsets.errors import FrozenError, WorkshopError
from shiftbench.testsets.frequencies import ImageFrequency, read_frequencies
from shiftbench.testsets.frozen import RECORD, FrozenSet, read_frozen
from shiftbench.testsets.pool.entries import read_entries
from shiftbench.testsets.project import Project
from shiftbench.testsets.revisions import (
    RevisionInfo,
    SetStatus,
    exclusions,
    find_row,
    in_revision,
    revision_images,
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
    _check(status, allow, unsearched(project))
    target = project.folder / "frozen" / set_name
    moment = project.now()
    if target.exists():  # left by a killed freeze, or by a database restored from a backup
        target.rename(target.with_name(f".{set_name}-until-{moment:%Y%m%dT%H%M%S}"))
    fill_folder(target, lambda folder: _fill(project, status, folder, moment.isoformat()))
    frozen = read_frozen(target)
    with project.writing() as session:
        row = session.scalars(select(Revision).where(Revision.id == status.revision.id).with_for_update()).one()
        _check_unchanged(session, project, row)
        row.frozen_at, row.fingerprint = moment, frozen.fingerprint
        record(project, session, "freeze", by=by, set=set_name, revision=row.number, fingerprint=frozen.fingerprint)
    return frozen


def verify(project: Project, set_name: str) -> FrozenSet:
    """The frozen set; FrozenError if the database and the files disagree."""
    status = set_status(project, set_name)
    if status.revision.frozen_at is None:
        raise WorkshopError(f"the set {set_name!r} is not frozen")
    frozen = read_frozen(project.folder / "frozen" / set_name)
    if frozen.fingerprint != status.revision.fingerprint:
        raise FrozenError(
            f"the frozen set {set_name!r} does not match the database",
            found=frozen.fingerprint,
            expected=status.revision.fingerprint,
        )
    listed = {(image.class_key, image.digest) for image in revision_images(project, set_name)}
    dataset = frozen.open()
    found = {(key, name.partition(".")[0]) for key, _, name in (image_id.partition("/") for image_id in dataset.ids)}
    if found != listed:
        raise FrozenError(f"the database and the files of {set_name!r} contain different images")
    if frozen.references:
        frozen.open("reference")
    return frozen


def _check(status: SetStatus, allow: Collection[str], gap: str | None) -> None:
    revision = status.revision
    if revision.frozen_at is not None:
        raise FrozenError(f"the set {revision.set_name!r} is already frozen", found=f"revision {revision.number}")
    if status.to_remove:
        raise WorkshopError(
            f"revision {revision.number} of {revision.set_name!r} has not converged",
            found=f"{len(status.to_remove)} images have been removed since it was sampled",
            hint=f"shiftbench testset sample DIR --set {revision.set_name}",
        )
    if status.unreviewed and "unreviewed" not in allow:
        raise WorkshopError(
            f"revision {revision.number} of {revision.set_name!r} has not been reviewed",
            found=f"{status.unreviewed} of {status.classes} classes not reviewed",
            hint=f"shiftbench testset review DIR, or {argument('allow', 'unreviewed')}",
        )
    if gap is not None and "unsearched" not in allow:
        raise WorkshopError(
            "the candidates have not been compared with all original data", found=gap,
            hint=f"shiftbench testset dedupe DIR --against ORIGINAL, or {argument('allow', 'unsearched')}",
        )  # fmt: skip
    if status.short and "short" not in allow:
        raise WorkshopError(
            f"{len(status.short)} classes have too few images",
            found=", ".join(f"{key}: {count} short" for key, count in list(status.short.items())[:5]),
            hint=f"import and annotate more candidates, or {argument('allow', 'short')}",
        )


def _check_unchanged(session: Session, project: Project, row: Revision) -> None:
    """Somebody may have marked, sampled or frozen since the status was read."""
    removed = exclusions(session, in_revision(row.id))
    if row.frozen_at is not None or removed or find_row(session, row.set_name).id != row.id:
        raise WorkshopError(f"the set {row.set_name!r} was changed in the meantime", hint="check it and freeze again")


def _fill(project: Project, status: SetStatus, folder: Path, frozen_at: str) -> None:
    revision = status.revision
    images = revision_images(project, revision.set_name, revision.number)
    with project.reading() as session:
        rows = {row.entry: row for row in read_frequencies(project, session, in_revision(revision.id))}
        references = _references(read_frequencies(project, session, PoolEntry.role == REFERENCE), revision)
    sampled = [rows[image.entry] for image in images]
    drawn = [
        {"position": position, "drawn_for": image.drawn_for, "fallback": image.fallback}
        for position, image in enumerate(images)
    ]
    _write_part(project, folder, "images", sampled, drawn)
    _write_part(project, folder, "reference", references, [{} for _ in references])
    values = {
        "project": project.configuration.name, "project_id": project.configuration.id, "set": revision.set_name,
        "revision": revision.number, "frozen_at": frozen_at, "labels": project.space.name,
        "classes": list(project.space.keys), "class_names": list(project.space.names), "images": len(sampled),
        "fingerprint": _fingerprint(project, folder, "images"), "references": len(references),
        "reference_fingerprint": _fingerprint(project, folder, "reference"), "sampling": revision.sampling,
        "report": revision.report, "unsearched": unsearched(project),
    }  # fmt: skip
    write_json(folder / RECORD, values)
    write_card(project, status, folder, values, sampled, references)


def _references(rows: Sequence[ImageFrequency], revision: RevisionInfo) -> list[ImageFrequency]:
    """The annotated reference images; all of them if the set was sampled without annotations."""
    least = max(1, int(revision.sampling["options"].get("min_annotations", 1)))
    return [row for row in rows if row.annotations >= least] or list(rows)


def _write_part(
    project: Project, folder: Path, part: str, rows: Sequence[ImageFrequency], more: Sequence[dict[str, object]]
) -> None:
    """Image files and manifest, in the order in which class folders are listed."""
    with project.reading() as session:
        entries = read_entries(session, [row.entry for row in rows])
    (folder / part).mkdir()
    lines = []
    found = zip(rows, entries, more, strict=True)
    for row, entry, details in sorted(found, key=lambda one: (project.space.index(one[0].class_key), one[0].digest)):
        name = f"{row.class_key}/{row.digest}{entry.image.suffix}"
        place_file(project.images.original(row.digest, entry.image.suffix), folder / part / name)
        described = {
            "path": name, "label": row.class_key, **details, "selection_frequency": row.frequency,
            "selected": row.selected, "annotations": row.annotations,
            **{column: getattr(entry, column) for column in _COLUMNS}, "extra": entry.extra,
        }  # fmt: skip
        lines.append(json.dumps(described, ensure_ascii=False) + "\n")
    (folder / f"{part}.jsonl").write_text("".join(lines), encoding="utf-8")


def _fingerprint(project: Project, folder: Path, part: str) -> str:
    if not (folder / f"{part}.jsonl").stat().st_size:
        return ""
    return open_manifest(folder / f"{part}.jsonl", space=project.space, root=folder / part, name=part).fingerprint
