"""How many pictures of which class and role the pool has."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import exists, func, select

from shiftbench.testsets.database.tables import CANDIDATE, REFERENCE, Entry, Mark
from shiftbench.testsets.project import Project


@dataclass(frozen=True)
class PoolCount:
    class_key: str
    candidates: int
    references: int
    marked: int


def pool_counts(project: Project) -> list[PoolCount]:
    """Each class, in order."""
    marked = exists().where(Mark.entry_id == Entry.id, Mark.withdrawn_at.is_(None))
    with project.reading() as session:
        counted = session.execute(
            select(Entry.class_key, Entry.role, func.count()).group_by(Entry.class_key, Entry.role)
        )
        counts = {(key, role): count for key, role, count in counted}
        out = session.execute(select(Entry.class_key, func.count()).where(marked).group_by(Entry.class_key))
        gone = dict(out.all())
    return [
        PoolCount(key, counts.get((key, CANDIDATE), 0), counts.get((key, REFERENCE), 0), gone.get(key, 0))
        for key in project.space.keys
    ]
