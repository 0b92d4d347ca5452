"""Review: inspect the images of a class, mark images to remove, judge near-duplicates.

A mark removes a candidate from all sets of the project; the next revision replaces it. No function here gives access to
model predictions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sqlalchemy import func, select
from sqlalchemy.orm import Session, joinedload, selectinload

from shiftbench.extend.io import seeded_rank
from shiftbench.testsets.accounts import REVIEWERS, find_by_id, permit, require
from shiftbench.testsets.database import (
    CANDIDATE,
    REFERENCE,
    ClassReview,
    Image,
    Mark,
    NearPair,
    PoolEntry,
    RevisionImage,
    repeated_after_deadlock,
)
from shiftbench.testsets.errors import FrozenError, WorkshopError
from shiftbench.testsets.project import Project, record
from shiftbench.testsets.revisions import find_row

MarkKind = Literal["blacklist", "near-duplicate"]
KINDS: tuple[MarkKind, ...] = ("blacklist", "near-duplicate")
#: Characters of a note that are stored.
_LONGEST_NOTE = 2000


@dataclass(frozen=True)
class ReviewPage:
    """One class of a revision: the sampled images and as many reference images, both by date."""

    set_name: str
    #: The number of the revision.
    number: int
    class_key: str
    class_name: str
    definition: str
    sampled: tuple[PoolEntry, ...]
    references: tuple[PoolEntry, ...]
    #: Whether the class has been reviewed.
    finished: bool
    #: Similar images of a sampled image, by its entry: pairs that are confirmed or not judged yet.
    partners: Mapping[int, Sequence[NearPair]]


def review_page(project: Project, reviewer: int, set_name: str, class_key: str) -> ReviewPage:
    """What a reviewer sees of a class; images are sorted by date, so that those of the same event are adjacent."""
    definition = project.configuration.class_of(class_key)
    seed = project.configuration.seed
    with project.reading() as session:
        require(session, reviewer, REVIEWERS)
        revision = find_row(session, set_name)
        sampled = _sampled_entries(session, revision.id, class_key)
        of_class = select(PoolEntry).where(PoolEntry.role == REFERENCE, PoolEntry.class_key == class_key)
        # As many references as sampled images are shown: in every revision others, but always the same of one revision.
        references = sorted(
            session.scalars(of_class), key=lambda entry: seeded_rank(seed, "review", revision.id, entry.id)
        )
        return ReviewPage(
            set_name=set_name,
            number=revision.number,
            class_key=class_key,
            class_name=definition.title,
            definition=definition.definition,
            sampled=_by_date(sampled),
            references=_by_date(references[: len(sampled)]),
            finished=session.get(ClassReview, (revision.id, class_key)) is not None,
            partners=_similar_images(session, [entry.id for entry in sampled]),
        )


def _sampled_entries(session: Session, revision: int, class_key: str) -> Sequence[PoolEntry]:
    """The candidates of a class in a revision, with their marks."""
    query = select(PoolEntry).join(RevisionImage, RevisionImage.entry_id == PoolEntry.id)
    query = query.where(RevisionImage.revision_id == revision, PoolEntry.class_key == class_key)
    return session.scalars(query.options(selectinload(PoolEntry.marks))).all()


def _similar_images(session: Session, entries: Sequence[int]) -> dict[int, list[NearPair]]:
    """The pairs of each entry that are confirmed or not judged yet."""
    query = select(NearPair).where(NearPair.entry_id.in_(entries), NearPair.state != "dismissed")
    query = query.options(selectinload(NearPair.other)).order_by(NearPair.id)
    partners: dict[int, list[NearPair]] = {}
    for pair in session.scalars(query):
        partners.setdefault(pair.entry_id, []).append(pair)
    return partners


def _by_date(entries: Iterable[PoolEntry]) -> tuple[PoolEntry, ...]:
    """Sorted by date; entries without a date come last."""
    return tuple(sorted(entries, key=lambda entry: (entry.date is None, entry.date or "", entry.image.digest)))


def review_image(project: Project, reviewer: int, entry: int, *, original: bool = False) -> Path:
    """The original, or a small copy of the whole image: reviewers also judge its margins."""
    with project.reading() as session:
        require(session, reviewer, REVIEWERS)
        image = find_by_id(session, PoolEntry, entry, "pool entry").image
        if original:
            return project.images.original(image.digest, image.suffix)
        return project.images.copy(image.digest, image.suffix, fit="pad")


def pair_image(project: Project, reviewer: int, pair: int) -> Path:
    """A copy of the image outside the pool that a candidate resembles."""
    with project.reading() as session:
        require(session, reviewer, REVIEWERS)
        row = session.get(NearPair, pair)
        if row is None or row.other_image is None:
            raise WorkshopError(f"unknown image of pair {pair}")
        return project.images.copy(row.other_image.digest, row.other_image.suffix, fit="pad")


@repeated_after_deadlock
def mark(project: Project, entry: int, kind: MarkKind, note: str = "", *, by: int | None = None) -> int:
    """Remove a candidate from all sets; returns the id of the mark. The same mark a second time changes nothing."""
    if kind not in KINDS:
        raise WorkshopError(f"unknown mark {kind!r}", expected=" or ".join(KINDS))
    query = select(Mark.id).where(Mark.entry_id == entry, Mark.kind == kind, Mark.made_by == by)
    with project.writing() as session:
        permit(session, by, REVIEWERS)
        mark_id = session.scalars(query.where(Mark.withdrawn_at.is_(None))).first()
        if mark_id is None:
            mark_id = _add_mark(project, session, entry, kind, note, by).id
        return mark_id


@repeated_after_deadlock
def withdraw_mark(project: Project, mark_id: int, *, by: int | None = None) -> None:
    """Allow the candidate to be sampled again; the mark is kept in the database."""
    with project.writing() as session:
        permit(session, by, REVIEWERS)
        row = find_by_id(session, Mark, mark_id, "mark")
        row.withdrawn_at = row.withdrawn_at or project.now()
        record(project, session, "withdraw mark", by=by, mark=mark_id, entry=row.entry_id)


@repeated_after_deadlock
def finish_class(project: Project, reviewer: int, set_name: str, class_key: str, *, undo: bool = False) -> None:
    """Record that all images of the class in the latest revision have been reviewed; ``undo`` withdraws that."""
    project.space.index(class_key)  # raises for an unknown class
    with project.writing() as session:
        require(session, reviewer, REVIEWERS, lock=True)
        revision = find_row(session, set_name)
        if revision.frozen_at is not None:
            raise FrozenError(f"the set {set_name!r} is frozen")
        review = session.get(ClassReview, (revision.id, class_key))
        if undo:
            if review is None:
                return
            session.delete(review)
        else:
            if review is not None:
                return
            now = project.now()
            session.add(ClassReview(revision_id=revision.id, class_key=class_key, account_id=reviewer, at=now))
        action = "undo review" if undo else "review"
        record(project, session, action, by=reviewer, set=set_name, revision=revision.number, cls=class_key)


def find_candidate(project: Project, digest: str, class_key: str | None = None) -> int:
    """The entry of a candidate by a prefix of its image's digest; WorkshopError unless there is exactly one."""
    query = select(PoolEntry.id).join(Image).where(PoolEntry.role == CANDIDATE)
    query = query.where(Image.digest.startswith(digest, autoescape=True))
    if class_key is not None:
        query = query.where(PoolEntry.class_key == class_key)
    with project.reading() as session:
        entries = session.scalars(query.limit(2)).all()
    if not entries:
        raise WorkshopError(f"no candidate with a digest starting with {digest!r}")
    if len(entries) > 1:
        raise WorkshopError(
            f"more than one candidate with a digest starting with {digest!r}", hint="pass more digits or the class"
        )
    return entries[0]


def count_suspicions(project: Project, *states: str) -> int:
    """The number of pairs in these states; by default, of open ones."""
    query = select(func.count()).select_from(NearPair).where(NearPair.state.in_(states or ("open",)))
    with project.reading() as session:
        return session.scalars(query).one()


def suspicions(project: Project, *states: str, first: int = 0, limit: int = 1000) -> list[NearPair]:
    """Open pairs in the order in which they were added, the most similar first; judged ones by time, the last first."""
    order = NearPair.decided_at.desc() if states else NearPair.id
    query = select(NearPair).where(NearPair.state.in_(states or ("open",))).order_by(order, NearPair.id)
    # Entries are loaded by separate queries: SQLite would join all entries with their images first.
    query = query.options(selectinload(NearPair.entry), selectinload(NearPair.other)).offset(first).limit(limit)
    with project.reading() as session:
        return list(session.scalars(query))


@repeated_after_deadlock
def judge(project: Project, pair: int, *, duplicate: bool, by: int | None = None, note: str = "") -> None:
    """Dismiss a pair, or confirm it, which marks the candidate."""
    with project.writing() as session:
        permit(session, by, REVIEWERS)
        row = find_by_id(session, NearPair, pair, "pair", lock=True)
        if row.state != "open":
            if (row.state == "confirmed") != duplicate:
                raise WorkshopError(f"pair {pair} has already been judged", found=row.state)
            return
        row.state = "confirmed" if duplicate else "dismissed"
        row.decided_by = by
        row.decided_at = project.now()
        if duplicate:
            other_name = f"{row.other.role} {row.other.image.digest[:12]}" if row.other else row.other_name
            new_mark = _add_mark(project, session, row.entry_id, "near-duplicate", note or f"of {other_name}", by)
            row.decided_at = new_mark.made_at  # The same time, so that undoing finds the mark.
        record(project, session, "judge", by=by, pair=pair, verdict=row.state)


@repeated_after_deadlock
def undo_judgement(project: Project, pair: int, *, by: int | None = None) -> None:
    """Open a judged pair again; the mark of a confirmed one is withdrawn."""
    with project.writing() as session:
        permit(session, by, REVIEWERS)
        row = find_by_id(session, NearPair, pair, "pair", lock=True)
        if row.state == "confirmed":
            query = select(Mark).where(Mark.entry_id == row.entry_id, Mark.kind == "near-duplicate")
            query = query.where(Mark.made_at == row.decided_at, Mark.withdrawn_at.is_(None))
            active_mark = session.scalars(query).first()
            if active_mark is not None:
                active_mark.withdrawn_at = project.now()
        row.state = "open"
        row.decided_by = None
        row.decided_at = None
        record(project, session, "undo judgement", by=by, pair=pair)


def marked_images(project: Project, *, limit: int = 1000, entry: int | None = None) -> list[Mark]:
    """Active marks, of one candidate or of all, the newest first."""
    query = select(Mark).where(Mark.withdrawn_at.is_(None)).order_by(Mark.id.desc()).limit(limit)
    if entry is not None:
        query = query.where(Mark.entry_id == entry)
    with project.reading() as session:
        return list(session.scalars(query.options(selectinload(Mark.entry), joinedload(Mark.maker))))


def _add_mark(project: Project, session: Session, entry: int, kind: MarkKind, note: str, by: int | None) -> Mark:
    """Mark a candidate; raises WorkshopError for an entry that is none."""
    row = session.get(PoolEntry, entry)
    if row is None or row.role != CANDIDATE:
        raise WorkshopError("only candidates can be marked", found=f"entry {entry}")
    new_mark = Mark(entry_id=entry, kind=kind, note=note.strip()[:_LONGEST_NOTE], made_by=by, made_at=project.now())
    session.add(new_mark)
    session.flush()
    record(project, session, "mark", by=by, entry=entry, kind=kind, note=new_mark.note)
    return new_mark
