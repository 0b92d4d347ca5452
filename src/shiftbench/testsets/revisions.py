"""Revisions of a set: sample, review, replace removed images, until nothing is removed.

A project can have several sets from one pool, each with its own revisions: ImageNetV2 has three, by three sampling
strategies. Revisions are numbered from 1 and never deleted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, and_, func, insert, select
from sqlalchemy.orm import Session, aliased

from shiftbench.testsets.accounts import LEADS, REVIEWERS, permit
from shiftbench.testsets.configuration import check_name
from shiftbench.testsets.database import (
    CANDIDATE,
    REFERENCE,
    ClassReview,
    Image,
    Mark,
    NearPair,
    PoolEntry,
    Revision,
    RevisionImage,
    Search,
)
from shiftbench.testsets.errors import FrozenError, WorkshopError
from shiftbench.testsets.frequencies import ImageFrequency, mean_frequency, read_frequencies
from shiftbench.testsets.project import Project, record
from shiftbench.testsets.sampling import AnnotatedImage, Choice, Sample, Sampling, SamplingRequest, make_sampling

PER_CLASS = 10
#: Why candidates are not sampled.
SUSPECTED = "suspected near-duplicate, not yet reviewed"
UNSEARCHED = "imported after the last search for near-duplicates"
COPY = "the same bytes as a reference image"
AMBIGUOUS = "a candidate of several classes, and of another as good or better"


@dataclass(frozen=True)
class SampledImage:
    entry: int
    digest: str
    suffix: str
    class_key: str
    drawn_for: str
    fallback: bool


@dataclass(frozen=True)
class Difference:
    set_name: str
    old: int
    new: int
    kept: int
    added: tuple[SampledImage, ...]
    #: With the current reason; "" if a better image replaced it or the reason was withdrawn.
    removed: tuple[tuple[SampledImage, str], ...]


@dataclass(frozen=True)
class SetStatus:
    """The state of a set: its latest revision and what is left to do."""

    revision: Revision
    #: Images of the latest revision that must be replaced, and why.
    to_remove: dict[str, str] = field(default_factory=dict)
    reviewed_classes: tuple[str, ...] = ()
    classes: int = 0
    #: Images of the latest revision by class, and those of them that must be replaced.
    images: Counter[str] = field(default_factory=Counter)
    removed: Counter[str] = field(default_factory=Counter)

    @property
    def unreviewed(self) -> int:
        """Number of classes that nobody has reviewed in the latest revision."""
        return self.classes - len(self.reviewed_classes)

    @property
    def converged(self) -> bool:
        """Every class was reviewed, and nothing was removed from the latest revision."""
        return not self.to_remove and not self.unreviewed

    @property
    def short(self) -> dict[str, int]:
        return dict(self.revision.report["short"])


def sample(
    project: Project,
    set_name: str,
    sampling: Sampling | None = None,
    *,
    per_class: int | None = None,
    seed: int | None = None,
    note: str = "",
    by: int | None = None,
) -> tuple[Revision, bool]:
    """Sample the next revision of a set; returns it, and whether it differs from the previous one.

    The first revision needs a strategy. Later ones keep all valid images and fill the gaps with the same strategy; new
    options apply from then on. Only leads may choose strategy and options; reviewers may request the next revision.
    """
    check_name(set_name, "set")
    plain = sampling is None and per_class is None and seed is None
    newest = select(Revision).where(Revision.set_name == set_name).order_by(Revision.number.desc()).limit(1)
    with project.reading() as session:
        permit(session, by, REVIEWERS if plain else LEADS)
        before = session.scalars(newest).first()
        if before is not None and before.frozen_at is not None:
            raise FrozenError(f"the set {set_name!r} is frozen", hint="sample under another name")
        plan = _plan(project, set_name, before, sampling, per_class, seed)
        rows = read_frequencies(project, session)
        reasons = exclusions(session)
        previous = [] if before is None else read_images(session, before.id)
    chosen = _draw(project, plan, rows, reasons, previous)
    pairs = {(choice.class_key, choice.id) for choice in chosen.choices}
    sampled = {(row.class_key, row.digest): row for row in rows if row.role == CANDIDATE}
    report = {
        **chosen.as_data(),
        "excluded": dict(Counter(reasons.values()).most_common()),
        "mean_frequency": mean_frequency([row for pair, row in sampled.items() if pair in pairs]),
        "reference_mean_frequency": mean_frequency([row for row in rows if row.role == REFERENCE]),
    }
    with project.writing() as session:
        latest = session.scalars(newest.with_for_update()).first()
        if (latest and latest.id) != (before and before.id):
            raise WorkshopError(f"somebody else has just sampled {set_name!r}", hint="check the new revision first")
        same = pairs == {(image.class_key, image.digest) for image in previous}
        if latest is not None and plan == latest.sampling and same:
            return latest, False
        revision = Revision(
            set_name=set_name,
            number=latest.number + 1 if latest else 1,
            made_at=project.now(),
            made_by=by,
            sampling=plan,
            report=report,
            note=note,
        )
        session.add(revision)
        session.flush()
        values = [
            {
                "revision_id": revision.id,
                "entry_id": sampled[choice.class_key, choice.id].entry,
                "position": position,
                "drawn_for": choice.drawn_for,
                "fallback": choice.fallback,
            }
            for position, choice in enumerate(chosen.choices)
        ]
        session.execute(insert(RevisionImage), values)
        if latest is not None:  # classes whose images did not change need no second review
            old, new = ({(i.class_key, i.entry) for i in read_images(session, one.id)} for one in (latest, revision))
            changed = {key for key, _ in old ^ new}
            for row in session.scalars(select(ClassReview).where(ClassReview.revision_id == latest.id)):
                if row.class_key not in changed:
                    carried = {"class_key": row.class_key, "account_id": row.account_id, "at": row.at}
                    session.add(ClassReview(revision_id=revision.id, **carried))
        record(project, session, "sample", by=by, set=set_name, revision=revision.number, images=len(chosen.choices))
        return revision, True


def _plan(
    project: Project,
    set_name: str,
    before: Revision | None,
    sampling: Sampling | None,
    per_class: int | None,
    seed: int | None,
) -> dict[str, object]:
    """Strategy, options, size and seed as stored in the database."""
    if before is None:
        if sampling is None:
            raise WorkshopError(f"the first revision of {set_name!r} needs a sampling strategy")
        default_size, default_seed = PER_CLASS, project.configuration.seed
    else:
        strategy = before.sampling["strategy"]
        if sampling is not None and sampling.name != strategy:
            raise WorkshopError(
                f"the set {set_name!r} uses another strategy",
                found=sampling.name,
                expected=strategy,
                hint="choose another name for the new set",
            )
        sampling = sampling or make_sampling(strategy, **before.sampling["options"])
        default_size, default_seed = before.sampling["per_class"], before.sampling["seed"]
    return {
        "strategy": sampling.name,
        "options": sampling.options(),
        "per_class": default_size if per_class is None else per_class,
        "seed": default_seed if seed is None else seed,
    }


def _draw(
    project: Project,
    plan: dict[str, Any],
    rows: Sequence[ImageFrequency],
    reasons: dict[int, str],
    previous: Sequence[SampledImage],
) -> Sample:
    kept = [
        Choice(image.digest, image.class_key, image.drawn_for, image.fallback)
        for image in previous
        if image.entry not in reasons
    ]
    images: dict[str, list[AnnotatedImage]] = {CANDIDATE: [], REFERENCE: []}
    for row in rows:
        if row.role == REFERENCE or row.entry not in reasons:
            image = AnnotatedImage(row.digest, row.class_key, row.selected, row.annotations, row.keyword)
            images[row.role].append(image)
    request = SamplingRequest(
        images[CANDIDATE], images[REFERENCE], project.space.keys, plan["per_class"], plan["seed"], kept
    )
    chosen = make_sampling(plan["strategy"], **plan["options"]).sample(request)
    if not chosen.choices:
        least = plan["options"].get("min_annotations", 0)
        answered = max((row.annotations for row in rows if row.role == CANDIDATE), default=0)
        raise WorkshopError(
            "no candidate can be sampled",
            found=f"{len(request.candidates)} valid candidates with at most {answered} annotations each",
            expected=f"at least {least} annotations" if least > answered else None,
            hint="annotate first, or lower min_annotations" if least > answered else None,
        )
    return chosen


def revisions(project: Project, set_name: str | None = None) -> list[Revision]:
    query = select(Revision).order_by(Revision.set_name, Revision.number)
    with project.reading() as session:
        return list(session.scalars(query if set_name is None else query.where(Revision.set_name == set_name)))


def find_revision(project: Project, set_name: str, number: int | None = None) -> Revision:
    with project.reading() as session:
        return find_row(session, set_name, number)


def revision_images(project: Project, set_name: str, number: int | None = None) -> list[SampledImage]:
    with project.reading() as session:
        return read_images(session, find_row(session, set_name, number).id)


def difference(project: Project, set_name: str, old: int, new: int) -> Difference:
    with project.reading() as session:
        before = {image.entry: image for image in read_images(session, find_row(session, set_name, old).id)}
        after = {image.entry: image for image in read_images(session, find_row(session, set_name, new).id)}
        gone = [image for entry, image in before.items() if entry not in after]
        these = PoolEntry.id.in_([image.entry for image in gone])
        notes = exclusions(session, these)
        for entry in session.scalars(select(PoolEntry).where(these, PoolEntry.marks.any())):
            notes[entry.id] = "; ".join(f"{mark.kind}: {mark.note}" if mark.note else mark.kind for mark in entry.marks)
    added = tuple(image for entry, image in after.items() if entry not in before)
    removed = tuple((image, notes.get(image.entry, "")) for image in gone)
    return Difference(set_name, old, new, len(before) - len(gone), added, removed)


def set_status(project: Project, set_name: str) -> SetStatus:
    with project.reading() as session:
        row = find_row(session, set_name)
        reasons = exclusions(session, in_revision(row.id)) if row.frozen_at is None else {}
        query = select(PoolEntry.id, Image.digest, PoolEntry.class_key).join(Image).where(in_revision(row.id))
        images = session.execute(query).all()
        to_remove = {digest: reasons[entry] for entry, digest, _ in images if entry in reasons}
        per_class = Counter(key for _, _, key in images), Counter(key for entry, _, key in images if entry in reasons)
        reviewed = set(session.scalars(select(ClassReview.class_key).where(ClassReview.revision_id == row.id)))
        reviewed_here = tuple(key for key in project.space.keys if key in reviewed)
        return SetStatus(row, to_remove, reviewed_here, len(project.space), *per_class)


def set_names(project: Project) -> list[str]:
    with project.reading() as session:
        return list(session.scalars(select(Revision.set_name).distinct().order_by(Revision.set_name)))


def find_row(session: Session, set_name: str, number: int | None = None) -> Revision:
    query = select(Revision).where(Revision.set_name == set_name)
    if number is not None:
        query = query.where(Revision.number == number)
    row = session.scalars(query.order_by(Revision.number.desc()).limit(1)).first()
    if row is None:
        known = session.scalars(select(Revision.set_name).distinct().order_by(Revision.set_name)).all()
        raise WorkshopError(
            f"unknown set {set_name!r}" if number is None else f"unknown revision {number} of {set_name!r}",
            expected=f"one of {', '.join(known)}" if known else "a set that has been sampled",
            hint=None if known else "shiftbench testset sample DIR --strategy matched-frequency",
        )
    return row


def in_revision(revision_id: int) -> ColumnElement[bool]:
    return PoolEntry.id.in_(select(RevisionImage.entry_id).where(RevisionImage.revision_id == revision_id))


def read_images(session: Session, revision_id: int) -> list[SampledImage]:
    columns = (PoolEntry.id, Image.digest, Image.suffix, PoolEntry.class_key)
    query = select(*columns, RevisionImage.drawn_for, RevisionImage.fallback).select_from(RevisionImage)
    query = query.join(PoolEntry, PoolEntry.id == RevisionImage.entry_id).join(Image, Image.id == PoolEntry.image_id)
    query = query.where(RevisionImage.revision_id == revision_id).order_by(RevisionImage.position)
    return [SampledImage(*row) for row in session.execute(query)]


def exclusions(session: Session, where: ColumnElement[bool] | None = None) -> dict[int, str]:
    """Why candidates must not be sampled, by entry id; ``where`` restricts the entries."""
    of_these = PoolEntry.role == CANDIDATE if where is None else and_(PoolEntry.role == CANDIDATE, where)
    chosen = select(PoolEntry.id).where(of_these)
    reasons: dict[int, str] = {}
    searched = session.scalars(select(func.min(Search.last_entry))).one()
    if searched is not None:
        reasons.update(dict.fromkeys(session.scalars(chosen.where(PoolEntry.id > searched)), UNSEARCHED))
    # An image that is a candidate of several classes belongs to the one with the highest frequency; in a tie, to none.
    twin = aliased(PoolEntry)
    query = select(PoolEntry.id, PoolEntry.selected, PoolEntry.annotations, twin.selected, twin.annotations)
    query = query.join(twin, and_(twin.image_id == PoolEntry.image_id, twin.id != PoolEntry.id))
    for entry, yes, total, twin_yes, twin_total in session.execute(query.where(of_these, twin.role == CANDIDATE)):
        if twin_yes * max(1, total) >= yes * max(1, twin_total):
            reasons[entry] = AMBIGUOUS
    copies = chosen.join(twin, twin.image_id == PoolEntry.image_id).where(twin.role == REFERENCE)
    reasons.update(dict.fromkeys(session.scalars(copies), COPY))
    pairs = chosen.join(NearPair, NearPair.entry_id == PoolEntry.id).where(NearPair.state == "open")
    reasons.update(dict.fromkeys(session.scalars(pairs), SUSPECTED))
    marks = select(PoolEntry.id, Mark.kind).join(Mark, Mark.entry_id == PoolEntry.id)
    marks = marks.where(of_these, Mark.withdrawn_at.is_(None)).order_by(Mark.id.desc())
    reasons.update(session.execute(marks).all())
    return reasons


def unsearched(project: Project) -> str | None:
    """Why the pool has not been fully searched for near-duplicates of the original data; None if it has."""
    with project.reading() as session:
        searches = session.scalars(select(Search)).all()
        # Each reads the end of an index; grouped by role, the query would read the whole pool.
        last = select(func.max(PoolEntry.id))
        newest, candidate = (session.scalars(one).one() or 0 for one in (last, last.where(PoolEntry.role == CANDIDATE)))
    if not searches:
        return "the candidates were never searched for near-duplicates"
    if all(search.source is None for search in searches):
        return "the candidates were not compared with the original training and test sets"
    for search in searches:
        if search.last_entry < (candidate if search.source else newest):
            return f"images were imported after the search in {search.name}"
    return None
