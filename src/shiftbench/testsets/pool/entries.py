"""Entries of the pool: read by id, counted, and opened as datasets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import exists, func, select
from sqlalchemy.orm import Session

from shiftbench.datasets.stored import FileDataset
from shiftbench.testsets.database.tables import CANDIDATE, REFERENCE, Image, Mark, PoolEntry
from shiftbench.testsets.pool.images import MAX_PIXELS, StoredImage
from shiftbench.testsets.project import Project

#: Databases limit the number of parameters of a query.
_AT_ONCE = 500


def read_entries(session: Session, numbers: Sequence[int]) -> list[PoolEntry]:
    """The entries with these ids, in the same order."""
    found: dict[int, PoolEntry] = {}
    for start in range(0, len(numbers), _AT_ONCE):
        block = numbers[start : start + _AT_ONCE]
        found.update({entry.id: entry for entry in session.scalars(select(PoolEntry).where(PoolEntry.id.in_(block)))})
    return [found[number] for number in numbers]


def image_row(session: Session, stored: StoredImage) -> int:
    """The id of an image's row, which is added if it is new."""
    found = session.scalars(select(Image.id).where(Image.digest == stored.digest)).first()
    if found is not None:
        return found
    row = Image(
        digest=stored.digest, suffix=stored.suffix, width=stored.width, height=stored.height, size=stored.size
    )  # fmt: skip
    session.add(row)
    session.flush()
    return row.id


def pool_dataset(project: Project, role: str) -> FileDataset:
    """All candidates or all references; ``metadata["entry"]`` is the entry id of each image.

    For comparing images with each other. Models must not be evaluated on candidates before the set is frozen.
    """
    with project.reading() as session:
        entries = session.scalars(select(PoolEntry).where(PoolEntry.role == role).order_by(PoolEntry.id)).all()
    return entries_dataset(project, f"{project.configuration.name}-{role}s", entries)


def entries_dataset(project: Project, name: str, entries: Sequence[PoolEntry]) -> FileDataset:
    """Sorted by class and digest, with the image ids of the frozen set."""
    space = project.space
    ordered = sorted(entries, key=lambda entry: (space.index(entry.class_key), entry.image.digest))
    paths = [project.images.original(entry.image.digest, entry.image.suffix) for entry in ordered]
    return FileDataset(
        name,
        space,
        project.images.originals,
        [str(path.relative_to(project.images.originals)) for path in paths],
        [space.index(entry.class_key) for entry in ordered],
        ids=[f"{entry.class_key}/{entry.image.digest}{entry.image.suffix}" for entry in ordered],
        metadata={"entry": [entry.id for entry in ordered], "keyword": [entry.keyword for entry in ordered]},
        max_pixels=MAX_PIXELS,
    )


@dataclass(frozen=True)
class PoolCount:
    class_key: str
    candidates: int
    references: int
    marked: int


def pool_counts(project: Project) -> list[PoolCount]:
    """The counts of each class, in class order."""
    marked = exists().where(Mark.entry_id == PoolEntry.id, Mark.withdrawn_at.is_(None))
    with project.reading() as session:
        counted = session.execute(
            select(PoolEntry.class_key, PoolEntry.role, func.count()).group_by(PoolEntry.class_key, PoolEntry.role)
        )
        counts = {(key, role): count for key, role, count in counted}
        out = session.execute(select(PoolEntry.class_key, func.count()).where(marked).group_by(PoolEntry.class_key))
        gone = dict(out.all())
    return [
        PoolCount(key, counts.get((key, CANDIDATE), 0), counts.get((key, REFERENCE), 0), gone.get(key, 0))
        for key in project.space.keys
    ]
