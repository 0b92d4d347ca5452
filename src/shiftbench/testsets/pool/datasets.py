"""The pool, and revisions of sets, as data sets: for the search of near-duplicates, and for models once it is time."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select

from shiftbench.datasets.files import FileDataset
from shiftbench.testsets.database.tables import Entry
from shiftbench.testsets.pool.images import MAX_PIXELS
from shiftbench.testsets.project import Project


def pool_dataset(project: Project, role: str) -> FileDataset:
    """All candidates or all references; ``metadata["entry"]`` is the entry of each image.

    It serves to compare pictures with pictures. What a model takes a candidate for is nobody's business before
    the set is frozen.
    """
    with project.reading() as session:
        entries = session.scalars(select(Entry).where(Entry.role == role).order_by(Entry.id)).all()
    return entries_dataset(project, f"{project.configuration.name}-{role}s", entries)


def entries_dataset(project: Project, name: str, entries: Sequence[Entry]) -> FileDataset:
    """In the order of class and digest; the ids are those of the frozen set."""
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
