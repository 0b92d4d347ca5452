"""Revisions of a set: sample, review, replace removed images, until nothing is removed.

A project can have several sets from one pool, each with its own revisions: ImageNetV2 has three, by three sampling
strategies. Revisions are numbered from 1 and never deleted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, Select, func, insert, select
from sqlalchemy.orm import Session

from shiftbench.testsets.accounts import LEADS, REVIEWERS, permit
from shiftbench.testsets.configuration import check_name
from shiftbench.testsets.database import (
    CANDIDATE,
    REFERENCE,
    ClassReview,
    Image,
    PoolEntry,
    Revision,
    RevisionImage,
    Search,
)
from shiftbench.testsets.errors import FrozenError, WorkshopError
from shiftbench.testsets.locks import alone
from shiftbench.testsets.project import Project, record
from shiftbench.testsets.redraw import (
    Changes,
    Redraw,
    SampledImage,
    exclusions,
    in_revision,
    present_changes,
    read_images,
    redraw,
)
from shiftbench.testsets.sampling import Choice, Sampling, make_sampling

#: Images per class, if the first revision does not say.
PER_CLASS = 10


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
    #: With the current reason, or the one for which a revision replaced it; "" if a reason was withdrawn.
    removed: tuple[tuple[SampledImage, str], ...]


@dataclass(frozen=True)
class SetStatus:
    """The state of a set: its latest revision and what is left to do."""

    revision: Revision
    #: The report of the revision by the present counts of answers; that of a frozen revision is final.
    report: Mapping[str, Any]
    #: Images of the latest revision that must be replaced, and why: they were removed, or they no longer fit.
    to_remove: dict[str, str] = field(default_factory=dict)
    #: Why the next revision cannot be sampled at present; None if it can.
    problem: WorkshopError | None = None
    reviewed_classes: tuple[str, ...] = ()
    #: The number of all classes.
    classes: int = 0
    #: Images of the latest revision by class, and those of them that must be replaced.
    images: Counter[str] = field(default_factory=Counter)
    removed: Counter[str] = field(default_factory=Counter)
    #: Images that stay, but for another bin or keyword than they were drawn for.
    moved: int = 0

    @property
    def unreviewed(self) -> int:
        """Number of classes that nobody has reviewed in the latest revision."""
        return self.classes - len(self.reviewed_classes)

    @property
    def current(self) -> bool:
        """The latest revision is what the present counts and marks ask for."""
        return not self.to_remove and not self.moved and self.problem is None

    @property
    def converged(self) -> bool:
        """Every class was reviewed, and the latest revision is current."""
        return self.current and not self.unreviewed

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

    The first revision needs a strategy. Later ones keep the images that are valid and still fit by their present
    counts, and fill the gaps with the same strategy; new options apply from then on. Only leads may choose strategy and
    options; reviewers may request the next revision.
    """
    check_name(set_name, "set")
    changes_plan = sampling is not None or per_class is not None or seed is not None
    with project.reading() as session:
        permit(session, by, LEADS if changes_plan else REVIEWERS)
    with alone(project, f"sample {set_name}", by=by):
        with project.reading() as session:
            before = session.scalars(_latest(set_name)).first()
            if before is not None and before.frozen_at is not None:
                raise FrozenError(f"the set {set_name!r} is frozen", hint="sample under another name")
            plan = _plan(project, set_name, before, sampling, per_class, seed)
            drawn = redraw(project, session, plan, before)
        return _store_revision(project, set_name, before, plan, drawn, note=note, by=by)


def _store_revision(
    project: Project,
    set_name: str,
    before: Revision | None,
    plan: dict[str, Any],
    drawn: Redraw,
    *,
    note: str,
    by: int | None,
) -> tuple[Revision, bool]:
    """Store a sample as the next revision, unless it is the same as the revision before; returns as :func:`sample`."""
    with project.writing() as session:
        latest = _unchanged(session, set_name, before)
        if latest is not None and plan == latest.sampling and not drawn.changed:
            # The images are the same, but their counts may have changed. Why this revision replaced images of the one
            # before stays.
            latest.report = {**drawn.report, "replaced": latest.report.get("replaced", {})}
            return latest, False
        revision = Revision(
            set_name=set_name,
            number=latest.number + 1 if latest else 1,
            made_at=project.now(),
            made_by=by,
            sampling=plan,
            report=drawn.report,
            note=note,
        )
        session.add(revision)
        session.flush()
        _add_images(session, revision, drawn.choices)
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


def _add_images(session: Session, revision: Revision, choices: Mapping[int, Choice]) -> None:
    """Store the images of a new revision, by pool entry."""
    values = [
        {
            "revision_id": revision.id,
            "entry_id": entry,
            "position": position,
            "drawn_for": choice.drawn_for,
            "fallback": choice.fallback,
        }
        for position, (entry, choice) in enumerate(choices.items())
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
    """What changed from one revision to another; removed images come with reasons and the reviewers' marks."""
    with project.reading() as session:
        before = {image.entry: image for image in read_images(session, find_row(session, set_name, old).id)}
        after = {image.entry: image for image in read_images(session, find_row(session, set_name, new).id)}
        removed_images = [image for entry, image in before.items() if entry not in after]
        is_removed = PoolEntry.id.in_([image.entry for image in removed_images])
        reasons = _stored_reasons(session, set_name, old, new)
        reasons.update(exclusions(session, is_removed))
        for entry in session.scalars(select(PoolEntry).where(is_removed, PoolEntry.marks.any())):
            marks = []
            for mark in entry.marks:
                marks.append(f"{mark.kind}: {mark.note}" if mark.note else mark.kind)
            reasons[entry.id] = "; ".join(marks)
    added = tuple(image for entry, image in after.items() if entry not in before)
    removed = tuple((image, reasons.get(image.entry, "")) for image in removed_images)
    return Difference(set_name, old, new, len(before) - len(removed), added, removed)


def _stored_reasons(session: Session, set_name: str, old: int, new: int) -> dict[int, str]:
    """Why images that no longer fitted were replaced after the revision ``old``, by pool entry."""
    query = select(Revision).where(Revision.set_name == set_name, Revision.number > old, Revision.number <= new)
    reasons: dict[int, str] = {}
    for revision in session.scalars(query.order_by(Revision.number)):
        # Revisions of earlier versions have no such reasons.
        for entry, reason in revision.report.get("replaced", {}).items():
            reasons[int(entry)] = reason
    return reasons


def set_status(project: Project, set_name: str) -> SetStatus:
    """The latest revision of a set, and what is left to do before it can be frozen."""
    with project.reading() as session:
        revision = find_row(session, set_name)
        query = select(PoolEntry.id, Image.digest, PoolEntry.class_key).join(Image).where(in_revision(revision.id))
        images = session.execute(query).all()
        reviews = select(ClassReview.class_key).where(ClassReview.revision_id == revision.id)
        reviewed = set(session.scalars(reviews))
        report: dict[str, Any] = dict(revision.report)
        changes = Changes()
        if revision.frozen_at is None:
            changes = present_changes(project, session, revision)
            report["mean_frequency"] = _mean_frequency(session, in_revision(revision.id))
            report["reference_mean_frequency"] = _mean_frequency(session, PoolEntry.role == REFERENCE)
    return SetStatus(
        revision=revision,
        report=report,
        to_remove={digest: changes.replaced[entry] for entry, digest, _ in images if entry in changes.replaced},
        problem=changes.problem,
        reviewed_classes=tuple(key for key in project.space.keys if key in reviewed),
        classes=len(project.space),
        images=Counter(class_key for _, _, class_key in images),
        removed=Counter(class_key for entry, _, class_key in images if entry in changes.replaced),
        moved=changes.moved,
    )


def _mean_frequency(session: Session, where: ColumnElement[bool]) -> float | None:
    """The present mean selection frequency of the entries with answers; None if there are none."""
    mean = func.avg(PoolEntry.selected * 1.0 / PoolEntry.annotations)
    value = session.scalars(select(mean).where(where, PoolEntry.annotations > 0)).one()
    return None if value is None else float(value)


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
