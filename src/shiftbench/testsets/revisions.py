"""Revisions of a set: sample, review, replace removed images, until nothing is removed.

A project can have several sets from one pool, each with its own revisions: ImageNetV2 has three, by three sampling
strategies. Revisions are numbered from 1 and never deleted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, func, insert, select
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

#: Images per class, if the first revision does not say.
PER_CLASS = 10
#: The reasons for which candidates are not sampled.
SUSPECTED = "suspected near-duplicate, not yet reviewed"
UNSEARCHED = "imported after the last search for near-duplicates"
COPY = "the same bytes as a reference image"
AMBIGUOUS = "a candidate of several classes, and of another as good or better"


@dataclass(frozen=True)
class SampledImage:
    """An image of a revision, and the bin or keyword that it was drawn for."""

    #: The id of its pool entry.
    entry: int
    #: The digest of the file and its extension, which name the file.
    digest: str
    suffix: str
    class_key: str
    drawn_for: str
    #: Whether it replaces an image of a bin or keyword that ran out.
    fallback: bool


@dataclass(frozen=True)
class Difference:
    """What changed from one revision of a set to another."""

    set_name: str
    #: The numbers of the two revisions.
    old: int
    new: int
    #: How many images both have.
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
    #: The number of all classes.
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
    changes_plan = sampling is not None or per_class is not None or seed is not None
    with project.reading() as session:
        permit(session, by, LEADS if changes_plan else REVIEWERS)
        before = session.scalars(_latest(set_name)).first()
        if before is not None and before.frozen_at is not None:
            raise FrozenError(f"the set {set_name!r} is frozen", hint="sample under another name")
        plan = _plan(project, set_name, before, sampling, per_class, seed)
        rows = read_frequencies(project, session)
        reasons = exclusions(session)
        previous = [] if before is None else read_images(session, before.id)
    drawn = _draw(project, plan, rows, reasons, previous)
    # An image may be a candidate of several classes, so a choice is found by class and digest.
    candidates = {(row.class_key, row.digest): row for row in rows if row.role == CANDIDATE}
    drawn_keys = {(choice.class_key, choice.id) for choice in drawn.choices}
    report = _report(drawn, rows, reasons)
    with project.writing() as session:
        latest = _unchanged(session, set_name, before)
        same_images = drawn_keys == {(image.class_key, image.digest) for image in previous}
        if latest is not None and plan == latest.sampling and same_images:
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
        entries = [candidates[choice.class_key, choice.id].entry for choice in drawn.choices]
        _add_images(session, revision, drawn.choices, entries)
        if latest is not None:
            _carry_reviews(session, latest, revision)
        record(project, session, "sample", by=by, set=set_name, revision=revision.number, images=len(drawn.choices))
        return revision, True


def _latest(set_name: str) -> Select[Revision]:
    return select(Revision).where(Revision.set_name == set_name).order_by(Revision.number.desc()).limit(1)


def _unchanged(session: Session, set_name: str, before: Revision | None) -> Revision | None:
    """The latest revision, locked; raises WorkshopError if it is not ``before``, from which the sample was drawn."""
    latest = session.scalars(_latest(set_name).with_for_update()).first()
    if (latest and latest.id) != (before and before.id):
        raise WorkshopError(f"somebody else has just sampled {set_name!r}", hint="check the new revision first")
    return latest


def _report(drawn: Sample, rows: Sequence[ImageFrequency], reasons: dict[int, str]) -> dict[str, object]:
    """What is stored about a sample: its counts, its mean frequency, and how many candidates were excluded and why."""
    drawn_keys = {(choice.class_key, choice.id) for choice in drawn.choices}
    sampled = [row for row in rows if row.role == CANDIDATE and (row.class_key, row.digest) in drawn_keys]
    references = [row for row in rows if row.role == REFERENCE]
    return {
        **drawn.as_data(),
        "excluded": dict(Counter(reasons.values()).most_common()),
        "mean_frequency": mean_frequency(sampled),
        "reference_mean_frequency": mean_frequency(references),
    }


def _add_images(session: Session, revision: Revision, choices: Sequence[Choice], entries: Sequence[int]) -> None:
    """Store the images of a new revision; ``entries`` are the pool entries of the choices."""
    values = [
        {
            "revision_id": revision.id,
            "entry_id": entry,
            "position": position,
            "drawn_for": choice.drawn_for,
            "fallback": choice.fallback,
        }
        for position, (choice, entry) in enumerate(zip(choices, entries, strict=True))
    ]
    session.execute(insert(RevisionImage), values)


def _carry_reviews(session: Session, old: Revision, new: Revision) -> None:
    """Copy the reviews of classes whose images did not change: they need no second review."""
    old_images = {(image.class_key, image.entry) for image in read_images(session, old.id)}
    new_images = {(image.class_key, image.entry) for image in read_images(session, new.id)}
    changed_classes = {class_key for class_key, _ in old_images ^ new_images}
    for review in session.scalars(select(ClassReview).where(ClassReview.revision_id == old.id)):
        if review.class_key not in changed_classes:
            session.add(
                ClassReview(
                    revision_id=new.id,
                    class_key=review.class_key,
                    account_id=review.account_id,
                    at=review.at,
                )
            )


def _plan(
    project: Project,
    set_name: str,
    before: Revision | None,
    sampling: Sampling | None,
    per_class: int | None,
    seed: int | None,
) -> dict[str, object]:
    """Strategy, options, size and seed as stored in the database; by default, those of the revision ``before``."""
    if before is None:
        if sampling is None:
            raise WorkshopError(f"the first revision of {set_name!r} needs a sampling strategy")
        default_size = PER_CLASS
        default_seed = project.configuration.seed
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
        default_size = before.sampling["per_class"]
        default_seed = before.sampling["seed"]
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
    """Sample by the plan, keeping the previous images that have no reason to be excluded.

    Raises WorkshopError if no candidate can be sampled.
    """
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
    drawn = make_sampling(plan["strategy"], **plan["options"]).sample(request)
    if not drawn.choices:
        min_annotations = plan["options"].get("min_annotations", 0)
        most_annotations = max((row.annotations for row in rows if row.role == CANDIDATE), default=0)
        too_few = min_annotations > most_annotations
        raise WorkshopError(
            "no candidate can be sampled",
            found=f"{len(request.candidates)} valid candidates with at most {most_annotations} annotations each",
            expected=f"at least {min_annotations} annotations" if too_few else None,
            hint="annotate first, or lower min_annotations" if too_few else None,
        )
    return drawn


def revisions(project: Project, set_name: str | None = None) -> list[Revision]:
    """The revisions of a set, or of all sets, by set and number."""
    query = select(Revision).order_by(Revision.set_name, Revision.number)
    if set_name is not None:
        query = query.where(Revision.set_name == set_name)
    with project.reading() as session:
        return list(session.scalars(query))


def find_revision(project: Project, set_name: str, number: int | None = None) -> Revision:
    """A revision of a set, by default the latest; raises WorkshopError if there is none."""
    with project.reading() as session:
        return find_row(session, set_name, number)


def revision_images(project: Project, set_name: str, number: int | None = None) -> list[SampledImage]:
    """The images of a revision, by default of the latest, in the set's random order."""
    with project.reading() as session:
        return read_images(session, find_row(session, set_name, number).id)


def difference(project: Project, set_name: str, old: int, new: int) -> Difference:
    """What changed from one revision to another; removed images come with the reviewers' marks."""
    with project.reading() as session:
        before = {image.entry: image for image in read_images(session, find_row(session, set_name, old).id)}
        after = {image.entry: image for image in read_images(session, find_row(session, set_name, new).id)}
        removed_images = [image for entry, image in before.items() if entry not in after]
        is_removed = PoolEntry.id.in_([image.entry for image in removed_images])
        reasons = exclusions(session, is_removed)
        for entry in session.scalars(select(PoolEntry).where(is_removed, PoolEntry.marks.any())):
            marks = [f"{mark.kind}: {mark.note}" if mark.note else mark.kind for mark in entry.marks]
            reasons[entry.id] = "; ".join(marks)
    added = tuple(image for entry, image in after.items() if entry not in before)
    removed = tuple((image, reasons.get(image.entry, "")) for image in removed_images)
    return Difference(set_name, old, new, len(before) - len(removed), added, removed)


def set_status(project: Project, set_name: str) -> SetStatus:
    """The latest revision of a set, and what is left to do before it can be frozen."""
    with project.reading() as session:
        revision = find_row(session, set_name)
        reasons = {}
        if revision.frozen_at is None:
            reasons = exclusions(session, in_revision(revision.id))
        query = select(PoolEntry.id, Image.digest, PoolEntry.class_key).join(Image).where(in_revision(revision.id))
        images = session.execute(query).all()
        reviews = select(ClassReview.class_key).where(ClassReview.revision_id == revision.id)
        reviewed = set(session.scalars(reviews))
    return SetStatus(
        revision=revision,
        to_remove={digest: reasons[entry] for entry, digest, _ in images if entry in reasons},
        reviewed_classes=tuple(key for key in project.space.keys if key in reviewed),
        classes=len(project.space),
        images=Counter(class_key for _, _, class_key in images),
        removed=Counter(class_key for entry, _, class_key in images if entry in reasons),
    )


def set_names(project: Project) -> list[str]:
    with project.reading() as session:
        return list(session.scalars(select(Revision.set_name).distinct().order_by(Revision.set_name)))


def find_row(session: Session, set_name: str, number: int | None = None) -> Revision:
    """As :func:`find_revision`, in a session."""
    query = select(Revision).where(Revision.set_name == set_name)
    if number is not None:
        query = query.where(Revision.number == number)
    row = session.scalars(query.order_by(Revision.number.desc()).limit(1)).first()
    if row is None:
        names = session.scalars(select(Revision.set_name).distinct().order_by(Revision.set_name)).all()
        raise WorkshopError(
            f"unknown set {set_name!r}" if number is None else f"unknown revision {number} of {set_name!r}",
            expected=f"one of {', '.join(names)}" if names else "a set that has been sampled",
            hint=None if names else "shiftbench testset sample DIR --strategy matched-frequency",
        )
    return row


def in_revision(revision_id: int) -> ColumnElement[bool]:
    return PoolEntry.id.in_(select(RevisionImage.entry_id).where(RevisionImage.revision_id == revision_id))


def read_images(session: Session, revision_id: int) -> list[SampledImage]:
    # In the order of the fields of SampledImage.
    columns = (PoolEntry.id, Image.digest, Image.suffix, PoolEntry.class_key)
    query = select(*columns, RevisionImage.drawn_for, RevisionImage.fallback).select_from(RevisionImage)
    query = query.join(PoolEntry, PoolEntry.id == RevisionImage.entry_id).join(Image, Image.id == PoolEntry.image_id)
    query = query.where(RevisionImage.revision_id == revision_id).order_by(RevisionImage.position)
    return [SampledImage(*row) for row in session.execute(query)]


def exclusions(session: Session, where: ColumnElement[bool] | None = None) -> dict[int, str]:
    """Why candidates must not be sampled, by entry id; ``where`` restricts the entries.

    If there are several reasons, the one that is found last is given: a reviewer's mark before a suspicion, and so on.
    """
    is_candidate = PoolEntry.role == CANDIDATE if where is None else and_(PoolEntry.role == CANDIDATE, where)
    candidates = select(PoolEntry.id).where(is_candidate)
    reasons: dict[int, str] = {}
    last_searched = session.scalars(select(func.min(Search.last_entry))).one()
    if last_searched is not None:
        unsearched_entries = session.scalars(candidates.where(PoolEntry.id > last_searched))
        reasons.update(dict.fromkeys(unsearched_entries, UNSEARCHED))
    # An image that is a candidate of several classes belongs to the one with the highest frequency; in a tie, to none.
    twin = aliased(PoolEntry)
    query = select(PoolEntry.id, PoolEntry.selected, PoolEntry.annotations, twin.selected, twin.annotations)
    query = query.join(twin, and_(twin.image_id == PoolEntry.image_id, twin.id != PoolEntry.id))
    query = query.where(is_candidate, twin.role == CANDIDATE)
    for entry, selected, annotated, twin_selected, twin_annotated in session.execute(query):
        # Both sides multiplied by the numbers of annotations, so that integers are compared.
        if twin_selected * max(1, annotated) >= selected * max(1, twin_annotated):
            reasons[entry] = AMBIGUOUS
    copies = candidates.join(twin, twin.image_id == PoolEntry.image_id).where(twin.role == REFERENCE)
    reasons.update(dict.fromkeys(session.scalars(copies), COPY))
    suspects = candidates.join(NearPair, NearPair.entry_id == PoolEntry.id).where(NearPair.state == "open")
    reasons.update(dict.fromkeys(session.scalars(suspects), SUSPECTED))
    marks = select(PoolEntry.id, Mark.kind).join(Mark, Mark.entry_id == PoolEntry.id)
    # The newest mark comes first, so that the oldest one of an image is the last to be set.
    marks = marks.where(is_candidate, Mark.withdrawn_at.is_(None)).order_by(Mark.id.desc())
    reasons.update(session.execute(marks).all())
    return reasons


def unsearched(project: Project) -> str | None:
    """Why the pool has not been fully searched for near-duplicates of the original data; None if it has."""
    last_id = select(func.max(PoolEntry.id))
    with project.reading() as session:
        searches = session.scalars(select(Search)).all()
        # Each query reads the end of an index; one query, grouped by role, would read the whole pool.
        last_entry = session.scalars(last_id).one() or 0
        last_candidate = session.scalars(last_id.where(PoolEntry.role == CANDIDATE)).one() or 0
    if not searches:
        return "the candidates were never searched for near-duplicates"
    if all(search.source is None for search in searches):
        return "the candidates were not compared with the original training and test sets"
    for search in searches:
        # A search within the pool also has to cover the references.
        if search.last_entry < (last_candidate if search.source else last_entry):
            return f"images were imported after the search in {search.name}"
    return None
