"""Which candidates may be sampled, and why the others may not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session, aliased

from shiftbench.testsets.database.tables import CANDIDATE, REFERENCE, Entry, Mark, NearPair
from shiftbench.testsets.frequencies import ImageFrequency

SUSPECTED = "suspected near-duplicate, not yet reviewed"
COPY = "the same bytes as a reference image"
AMBIGUOUS = "a candidate of several classes, and of another as good or better"


def exclusions(session: Session, rows: Sequence[ImageFrequency]) -> dict[int, str]:
    """The reason for each candidate that must not be in a set, by its entry."""
    reasons: dict[int, str] = dict.fromkeys(_ambiguous(rows), AMBIGUOUS)
    twin = aliased(Entry)
    copies = select(Entry.id).join(twin, twin.image_id == Entry.image_id)
    copies = copies.where(Entry.role == CANDIDATE, twin.role == REFERENCE)
    reasons.update(dict.fromkeys(session.scalars(copies), COPY))
    open_pairs = select(NearPair.entry_id).where(NearPair.state == "open")
    reasons.update(dict.fromkeys(session.scalars(open_pairs), SUSPECTED))
    marks = select(Mark.entry_id, Mark.kind).where(Mark.withdrawn_at.is_(None)).order_by(Mark.id.desc())
    reasons.update(session.execute(marks).all())
    return reasons


def _ambiguous(rows: Sequence[ImageFrequency]) -> list[int]:
    """A picture offered for several classes is of the one for which most selected it; of none, if that is a tie."""
    by_image: dict[str, list[ImageFrequency]] = defaultdict(list)
    for row in rows:
        if row.role == CANDIDATE:
            by_image[row.digest].append(row)
    losers = []
    for same in by_image.values():
        if len(same) > 1:
            best = max(row.frequency or 0.0 for row in same)
            winners = [row for row in same if (row.frequency or 0.0) == best]
            losers += [row.entry for row in same if len(winners) > 1 or row is not winners[0]]
    return losers
