"""What sampling a set again would change, by the present counts of answers and the marks of reviewers.

``redraw`` samples the whole set. ``present_changes``, which pages ask for all the time, samples only the classes whose
counts or marks have changed since it was asked last.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from sqlalchemy import BigInteger, ColumnElement, and_, cast, func, select
from sqlalchemy.orm import Session, aliased

from shiftbench.testsets.database import (
    CANDIDATE,
    REFERENCE,
    AuditEntry,
    Image,
    Mark,
    NearPair,
    PoolEntry,
    Revision,
    RevisionImage,
    Search,
)
from shiftbench.testsets.errors import WorkshopError
from shiftbench.testsets.frequencies import ImageFrequency, mean_frequency, read_frequencies
from shiftbench.testsets.project import Project
from shiftbench.testsets.sampling import (
    AnnotatedImage,
    Choice,
    Sample,
    Sampling,
    SamplingRequest,
    listed_classes,
    make_sampling,
)

#: The reasons for which candidates are not sampled.
SUSPECTED = "suspected near-duplicate, not yet reviewed"
UNSEARCHED = "imported after the last search for near-duplicates"
COPY = "the same bytes as a reference image"
AMBIGUOUS = "a candidate of several classes, and of another as good or better"
#: The reason for which an image that still fits its bin is replaced.
OTHERS_PREFERRED = "the targets or the other candidates of its class have changed"
#: Entries of the audit log that change nothing of what is sampled.
_IRRELEVANT_ACTIONS = ("login", "refused", "join", "invite", "recruit", "review", "undo review", "sample", "password")
#: Databases limit the parameters of a query.
_IDS_PER_QUERY = 500


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

    @property
    def choice(self) -> Choice:
        return Choice(self.digest, self.class_key, self.drawn_for, self.fallback)


@dataclass(frozen=True)
class Changes:
    """What sampling again changes in the revision before."""

    #: Entries that are not sampled again, and why.
    replaced: Mapping[int, str] = field(default_factory=dict)
    #: How many images are sampled for another bin or keyword.
    moved: int = 0
    #: Why the set, or a part of it, cannot be sampled at present; None if it can.
    problem: WorkshopError | None = None


@dataclass(frozen=True)
class Redraw:
    """What sampling a set by the present counts and marks gives."""

    #: The sampled images, by pool entry, in the set's random order.
    choices: dict[int, Choice]
    report: dict[str, Any]
    changes: Changes
    #: Whether the choices differ from the revision before in their images, bins or keywords.
    changed: bool


def redraw(project: Project, session: Session, plan: dict[str, Any], before: Revision | None) -> Redraw:
    """Sample by a plan and compare with the revision before.

    Raises WorkshopError if there are too few answers for the plan.
    """
    rows = read_frequencies(project, session)
    reasons = exclusions(session)
    previous = [] if before is None else read_images(session, before.id)
    sampling = make_sampling(plan["strategy"], **plan["options"])
    new_sample = sampling.sample(_request(plan, project.space.keys, rows, reasons, previous))
    if not new_sample.choices:
        raise _nothing_to_sample(plan, rows, reasons)
    choices = _by_entry(new_sample, rows)
    changes = _changes(sampling, choices, rows, reasons, previous)
    report = _report(new_sample, rows, reasons, choices)
    # Marks and other exclusions are not stored here: they have records of their own and may be withdrawn.
    misfits = {str(entry): reason for entry, reason in changes.replaced.items() if entry not in reasons}
    report["replaced"] = misfits
    previous_choices = {image.entry: image.choice for image in previous}
    return Redraw(choices, report, changes, changed=choices != previous_choices)


def _by_entry(new_sample: Sample, rows: Iterable[ImageFrequency]) -> dict[int, Choice]:
    """The sampled images by pool entry, in the set's random order."""
    # An image may be a candidate of several classes, so a choice is found by class and digest.
    entries = {(row.class_key, row.digest): row.entry for row in rows if row.role == CANDIDATE}
    return {entries[choice.class_key, choice.id]: choice for choice in new_sample.choices}


def _changes(
    sampling: Sampling,
    choices: Mapping[int, Choice],
    rows: Iterable[ImageFrequency],
    reasons: Mapping[int, str],
    previous: Iterable[SampledImage],
) -> Changes:
    """How the sampled images differ from the previous ones."""
    rows_by_entry = {row.entry: row for row in rows}
    replaced = {}
    moved = 0
    for image in previous:
        choice = choices.get(image.entry)
        if choice is None:
            misfit = sampling.misfit(_annotated(rows_by_entry[image.entry]), image.choice)
            replaced[image.entry] = reasons.get(image.entry) or misfit or OTHERS_PREFERRED
        elif choice != image.choice:
            moved += 1
    return Changes(replaced, moved)


def _annotated(row: ImageFrequency) -> AnnotatedImage:
    return AnnotatedImage(row.digest, row.class_key, row.selected, row.annotations, row.keyword)


def _request(
    plan: Mapping[str, Any],
    classes: Sequence[str],
    rows: Iterable[ImageFrequency],
    reasons: Collection[int],
    previous: Iterable[SampledImage],
    only: Sequence[str] = (),
) -> SamplingRequest:
    """What a strategy samples from: candidates that are not excluded, and the images that are still valid."""
    images: dict[str, list[AnnotatedImage]] = {CANDIDATE: [], REFERENCE: []}
    for row in rows:
        if row.role == REFERENCE or row.entry not in reasons:
            images[row.role].append(_annotated(row))
    kept = [image.choice for image in previous if image.entry not in reasons]
    return SamplingRequest(images[CANDIDATE], images[REFERENCE], classes, plan["per_class"], plan["seed"], kept, only)


def _nothing_to_sample(
    plan: Mapping[str, Any], rows: Sequence[ImageFrequency], reasons: Collection[int]
) -> WorkshopError:
    candidates = [row for row in rows if row.role == CANDIDATE]
    valid = sum(row.entry not in reasons for row in candidates)
    min_annotations = plan["options"].get("min_annotations", 0)
    most_annotations = max((row.annotations for row in candidates), default=0)
    too_few = min_annotations > most_annotations
    return WorkshopError(
        "no candidate can be sampled",
        found=f"{valid} valid candidates with at most {most_annotations} annotations each",
        expected=f"at least {min_annotations} annotations" if too_few else None,
        hint="annotate first, or lower min_annotations" if too_few else None,
    )


def _report(
    new_sample: Sample, rows: Sequence[ImageFrequency], reasons: dict[int, str], entries: Collection[int]
) -> dict[str, Any]:
    """What is stored about a sample: its counts, its mean frequency, and how many candidates were excluded and why."""
    sampled = [row for row in rows if row.entry in entries]
    references = [row for row in rows if row.role == REFERENCE]
    return {
        **new_sample.as_data(),
        "excluded": dict(Counter(reasons.values()).most_common()),
        "mean_frequency": mean_frequency(sampled),
        "reference_mean_frequency": mean_frequency(references),
    }


@dataclass(frozen=True)
class _ClassChanges:
    """The changes in some classes, and how many images were sampled for them."""

    changes: Changes
    images: int


@dataclass(frozen=True)
class _CachedChanges:
    """The changes that were found last, and what they depend on."""

    #: The last entry of the audit log that may matter, and the counts of each class.
    last_action: int
    counts: Mapping[str, object]
    reasons: Mapping[int, str]
    #: By classes that are sampled together.
    parts: Mapping[tuple[str, ...], _ClassChanges]


#: The changes that were found last, for each project and revision.
_CACHE: WeakKeyDictionary[Project, dict[int, _CachedChanges]] = WeakKeyDictionary()


def present_changes(project: Project, session: Session, revision: Revision) -> Changes:
    """What sampling again as for this revision would change at present."""
    cached_changes = _CACHE.setdefault(project, {})
    cached = cached_changes.get(revision.id)
    last_action = session.scalars(_LAST_ACTION).one() or 0
    counts = class_counts(session)
    if cached is None or (cached.last_action, cached.counts) != (last_action, counts):
        cached = _updated(project, session, revision, cached, last_action, counts)
        cached_changes[revision.id] = cached
    return _together(cached.parts.values())


#: Marks, pairs, keywords and searches are in the audit log.
_LAST_ACTION = select(func.max(AuditEntry.id)).where(AuditEntry.action.not_in(_IRRELEVANT_ACTIONS))


def class_counts(session: Session) -> dict[str, object]:
    """For each class, numbers that differ when its counts of answers have changed."""
    # PostgreSQL refuses products that do not fit the type of the id.
    entry_id = cast(PoolEntry.id, BigInteger)
    weighted_counts = select(
        PoolEntry.class_key,
        func.count(),
        func.sum(entry_id * PoolEntry.annotations),
        func.sum(entry_id * PoolEntry.selected),
        func.sum(entry_id * PoolEntry.selected * PoolEntry.selected),
    ).group_by(PoolEntry.class_key)
    return {row[0]: tuple(row[1:]) for row in session.execute(weighted_counts)}


def _updated(
    project: Project,
    session: Session,
    revision: Revision,
    cached: _CachedChanges | None,
    last_action: int,
    counts: Mapping[str, object],
) -> _CachedChanges:
    """The changes by the present counts and marks: the cached ones, but for the classes that have changed."""
    sampling = make_sampling(revision.sampling["strategy"], **revision.sampling["options"])
    reasons = _reasons(project, session, last_action, counts)
    keys = project.space.keys
    parts: dict[tuple[str, ...], _ClassChanges] = {}
    if not sampling.by_class:
        groups = [tuple(keys)]
    elif cached is None:
        groups = [(key,) for key in keys]
    else:
        changed = {key for key in keys if counts.get(key) != cached.counts.get(key)}
        changed |= _classes_of(session, {entry for entry, _ in reasons.items() ^ cached.reasons.items()})
        groups = [(key,) for key in keys if key in changed]
        parts.update(cached.parts)
    parts.update(_sampled_groups(project, session, revision, sampling, groups, reasons))
    return _CachedChanges(last_action, counts, reasons, parts)


def _reasons(project: Project, session: Session, last_action: int, counts: Mapping[str, object]) -> Mapping[int, str]:
    """As :func:`exclusions`; sets of one project share them."""
    # Another thread may add to the cache meanwhile.
    for cached in list(_CACHE.get(project, {}).values()):
        if (cached.last_action, cached.counts) == (last_action, counts):
            return cached.reasons
    return exclusions(session)


def _classes_of(session: Session, entries: Collection[int]) -> set[str]:
    """The classes of pool entries."""
    ids = sorted(entries)
    classes: set[str] = set()
    for start in range(0, len(ids), _IDS_PER_QUERY):
        is_part = PoolEntry.id.in_(ids[start : start + _IDS_PER_QUERY])
        classes.update(session.scalars(select(PoolEntry.class_key).where(is_part).distinct()))
    return classes


def _sampled_groups(
    project: Project,
    session: Session,
    revision: Revision,
    sampling: Sampling,
    groups: Sequence[tuple[str, ...]],
    reasons: Mapping[int, str],
) -> dict[tuple[str, ...], _ClassChanges]:
    """The changes in groups of classes, each of which is sampled by itself."""
    parts: dict[tuple[str, ...], _ClassChanges] = {}
    if not groups:
        return parts
    keys = list(itertools.chain.from_iterable(groups))
    # More classes than a query may name are as well read with all others.
    of_classes = PoolEntry.class_key.in_(keys) if len(keys) <= _IDS_PER_QUERY else True
    rows: dict[str, list[ImageFrequency]] = defaultdict(list)
    for row in read_frequencies(project, session, of_classes):
        rows[row.class_key].append(row)
    previous: dict[str, list[SampledImage]] = defaultdict(list)
    for image in read_images(session, revision.id, of_classes):
        previous[image.class_key].append(image)
    for group in groups:
        group_rows = list(itertools.chain.from_iterable(rows[key] for key in group))
        group_previous = list(itertools.chain.from_iterable(previous[key] for key in group))
        only = group if sampling.by_class else ()
        request = _request(revision.sampling, project.space.keys, group_rows, reasons, group_previous, only)
        try:
            new_sample = sampling.sample(request)
        except WorkshopError as problem:
            parts[group] = _ClassChanges(_without_sample(group_previous, reasons, problem), 0)
        else:
            changes = _changes(sampling, _by_entry(new_sample, group_rows), group_rows, reasons, group_previous)
            parts[group] = _ClassChanges(changes, len(new_sample.choices))
    return parts


def _without_sample(previous: Iterable[SampledImage], reasons: Mapping[int, str], problem: WorkshopError) -> Changes:
    """The images that are excluded, in classes that cannot be sampled."""
    replaced = {image.entry: reasons[image.entry] for image in previous if image.entry in reasons}
    return Changes(replaced, problem=problem)


def _together(parts: Collection[_ClassChanges]) -> Changes:
    """The changes in all classes."""
    replaced: dict[int, str] = {}
    problems = []
    for part in parts:
        replaced.update(part.changes.replaced)
        if part.changes.problem is not None:
            problems.append(part.changes.problem)
    problem = None
    if problems:
        first = problems[0]
        found = dict.fromkeys(str(other.found) for other in problems)
        problem = WorkshopError(
            first.message, found=listed_classes(list(found)), expected=first.expected, hint=first.hint
        )
    elif not any(part.images for part in parts):
        problem = WorkshopError("no candidate can be sampled", hint="annotate first, or withdraw marks")
    return Changes(replaced, sum(part.changes.moved for part in parts), problem)


def in_revision(revision_id: int) -> ColumnElement[bool]:
    return PoolEntry.id.in_(select(RevisionImage.entry_id).where(RevisionImage.revision_id == revision_id))


def read_images(session: Session, revision_id: int, where: Any = True) -> list[SampledImage]:
    """The images of a revision in the set's random order; ``where`` restricts the entries."""
    # In the order of the fields of SampledImage.
    columns = (PoolEntry.id, Image.digest, Image.suffix, PoolEntry.class_key)
    query = select(*columns, RevisionImage.drawn_for, RevisionImage.fallback).select_from(RevisionImage)
    query = query.join(PoolEntry, PoolEntry.id == RevisionImage.entry_id).join(Image, Image.id == PoolEntry.image_id)
    query = query.where(RevisionImage.revision_id == revision_id, where).order_by(RevisionImage.position)
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
