"""Selection frequencies, annotator agreement and annotator quality.

The selection frequency of an image is the share of its annotators who selected it for its class. An answer counts if it
was submitted and its annotator is not excluded; a reference that an annotator saw in two grids of its class counts
once, with the first answer. The counts are kept with the pool entries: ``count_answer`` adds an answer, ``recount``
follows every other change.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit
from sqlalchemy import ColumnElement, Select, and_, case, func, literal, select, update
from sqlalchemy.orm import Session, joinedload

from shiftbench import ShiftbenchError
from shiftbench.extend.io import write_atomically, write_json
from shiftbench.extend.metrics import percentile_interval
from shiftbench.extend.tables import csv_text
from shiftbench.metrics import clopper_pearson
from shiftbench.testsets.database import (
    REFERENCE,
    SUBMITTED,
    Account,
    Assignment,
    ControlCounts,
    Image,
    PoolEntry,
    SelectedSlot,
    Slot,
    Task,
    counts_digest,
)
from shiftbench.testsets.digests import check_answers, raise_damaged
from shiftbench.testsets.errors import WorkshopError
from shiftbench.testsets.project import Project

#: Annotators who take fewer seconds per image are too fast.
_MIN_SECONDS_PER_IMAGE = 0.25
#: A share of selected images may differ by this much from that of the others.
_USUAL_DIFFERENCE = 0.2
#: An annotator fails controls if the accuracy on them is certainly below this.
_MIN_CONTROL_ACCURACY = 0.8
#: The quantile of the t distribution for a 99.9 % interval on both sides.
_T_QUANTILE = 0.9995
#: Rows of answers that are in memory at once.
_ANSWERS_AT_ONCE = 50_000
#: Databases limit the parameters of a query.
_IDS_PER_QUERY = 500


@dataclass(frozen=True)
class ImageFrequency:
    """A pool entry, how many annotators saw it for its class, and how many of them selected it."""

    #: The id of the pool entry.
    entry: int
    digest: str
    #: Candidate or reference.
    role: str
    class_key: str
    keyword: str | None
    #: Annotators who selected it, of those who saw it for its class.
    selected: int
    annotations: int
    suffix: str = ""

    @property
    def id(self) -> str:
        return f"{self.class_key}/{self.file_name}"

    @property
    def file_name(self) -> str:
        return f"{self.digest}{self.suffix}"

    @property
    def frequency(self) -> float | None:
        return self.selected / self.annotations if self.annotations else None

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        return clopper_pearson(self.selected, self.annotations, level)


@dataclass(frozen=True)
class ClassSummary:
    """How many images of a class have answers, their mean selection frequencies, and how far annotators agree."""

    class_key: str
    candidates: int
    references: int
    #: Means over the images with answers; None if there are none.
    candidate_frequency: float | None
    reference_frequency: float | None
    agreement: AnnotatorAgreement


@dataclass(frozen=True)
class AnnotatorQuality(ControlCounts):
    """An annotator's accuracy on control images: positives selected, negatives not selected."""

    account: int
    name: str
    excluded: bool
    #: Submitted grids.
    tasks: int
    positives: int
    positives_selected: int
    negatives: int
    negatives_left: int
    #: Of all answers: images shown, images selected, and time.
    images: int = 0
    selected: int = 0
    seconds: float = 0.0
    #: The sum over grids of the squared share of images selected.
    squares: float = 0.0

    @property
    def accuracy(self) -> float | None:
        return self.right / self.controls if self.controls else None

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        return clopper_pearson(self.right, self.controls, level)


def selection_frequencies(project: Project) -> list[ImageFrequency]:
    """All pool entries by class and digest; 0 of 0 without answers."""
    with project.reading() as session:
        return read_frequencies(project, session)


def read_frequencies(project: Project, session: Session, where: Any = True) -> list[ImageFrequency]:
    """As :func:`selection_frequencies`, in a session; ``where`` restricts the entries."""
    query = select(
        PoolEntry.id,
        Image.digest,
        PoolEntry.role,
        PoolEntry.class_key,
        PoolEntry.keyword,
        PoolEntry.selected,
        PoolEntry.annotations,
        Image.suffix,
        PoolEntry.digest,
    ).join(Image, Image.id == PoolEntry.image_id)
    rows = []
    damaged = []
    for values in session.execute(query.where(where)):
        row = ImageFrequency(*values[:-1])
        digest = values[-1]
        if digest != counts_digest(row.role, row.class_key, row.file_name, row.selected, row.annotations):
            damaged.append(row.entry)
        rows.append(row)
    raise_damaged("pool entries", damaged)
    class_position = {key: i for i, key in enumerate(project.space.keys)}
    return sorted(rows, key=lambda row: (class_position[row.class_key], row.role, row.digest))


def count_answer(session: Session, assignment: Assignment, chosen: Mapping[int, bool]) -> None:
    """Add a new answer to the counts: the entries of the class, and whether they were selected.

    Reads no answers of others, as ``recount`` does: answers to grids that share an image wait for each other. Raises
    DamagedError if the counts so far are damaged.
    """
    session.flush()
    query = answers(Slot.entry_id).where(is_counted(), Slot.entry_id.in_(chosen))
    query = query.where(Assignment.account_id == assignment.account_id, Assignment.id != assignment.id)
    answered_before = set(session.scalars(query))
    new = chosen.keys() - answered_before
    rows = _locked_counts(session, new)
    values = [row.changed(row.selected + chosen[row.id], row.annotations + 1) for row in rows]
    if values:
        session.execute(update(PoolEntry), values)


@dataclass(frozen=True)
class _EntryCounts:
    """What the digest of a pool entry covers."""

    id: int
    role: str
    class_key: str
    #: The digest and extension of the file.
    image: str
    selected: int
    annotations: int
    digest: str

    def digest_with(self, selected: int, annotations: int) -> str:
        return counts_digest(self.role, self.class_key, self.image, selected, annotations)

    def changed(self, selected: int, annotations: int) -> dict[str, object]:
        """The row with other counts, as an update."""
        digest = self.digest_with(selected, annotations)
        return {"id": self.id, "selected": selected, "annotations": annotations, "digest": digest}


def recount(session: Session, tasks: Collection[int]) -> None:
    """Count the answers on all images of these tasks anew, after answers were withdrawn or excluded."""
    session.flush()
    check_answers(session, tasks)
    entries_of_tasks = select(Slot.entry_id).join(Task).join(PoolEntry).where(PoolEntry.class_key == Task.class_key)
    entries: set[int] = set()
    for task_ids in _in_parts(tasks):
        entries.update(session.scalars(entries_of_tasks.where(Slot.task_id.in_(task_ids))))
    valid_answers = answers(Slot.entry_id, Assignment.account_id, SelectedSlot.slot_id)
    valid_answers = valid_answers.where(is_counted(), Account.excluded_at.is_(None))
    for entry_ids in _in_parts(entries):
        rows = _locked_counts(session, entry_ids, check=False)
        query = valid_answers.where(Slot.entry_id.in_(entry_ids))
        # An annotator may have seen an entry in several grids: only the first answer counts.
        was_selected: dict[tuple[int, int], bool] = {}
        for entry, account, slot in session.execute(query.order_by(Assignment.submitted_at, Assignment.id)):
            was_selected.setdefault((entry, account), slot is not None)
        annotations = Counter(entry for entry, _ in was_selected)
        selected = Counter(entry for (entry, _), yes in was_selected.items() if yes)
        values = [row.changed(selected[row.id], annotations[row.id]) for row in rows]
        session.execute(update(PoolEntry), values)


def _in_parts(ids: Collection[int]) -> list[list[int]]:
    """The ids in order, in lists that are short enough for a query."""
    ordered = sorted(ids)
    return [ordered[start : start + _IDS_PER_QUERY] for start in range(0, len(ordered), _IDS_PER_QUERY)]


def _locked_counts(session: Session, entries: Collection[int], *, check: bool = True) -> list[_EntryCounts]:
    """The present counts, locked: concurrent answers wait for each other. Always in the order of the ids, to rule out
    deadlocks. Unless the counts are made anew, they are checked by their digests."""
    columns = (PoolEntry.id, PoolEntry.role, PoolEntry.class_key, Image.digest + Image.suffix)
    query = select(*columns, PoolEntry.selected, PoolEntry.annotations, PoolEntry.digest).join(PoolEntry.image)
    query = query.where(PoolEntry.id.in_(entries)).order_by(PoolEntry.id)
    locked = query.with_for_update(key_share=True, of=PoolEntry)
    rows = [_EntryCounts(*row) for row in session.execute(locked)]
    if check:
        damaged = [row.id for row in rows if row.digest != row.digest_with(row.selected, row.annotations)]
        raise_damaged("pool entries", damaged)
    return rows


def is_counted() -> ColumnElement[bool]:
    """Whether an image of a grid gets a selection frequency from it: it belongs to the class, and the grid is valid."""
    return and_(PoolEntry.class_key == Task.class_key, Task.cancelled_at.is_(None))


def answers(*columns: Any) -> Select[Any]:
    """One row per image of each submitted grid; its SelectedSlot is NULL if it was not selected."""
    query = select(*columns).select_from(Slot).join(Task, Task.id == Slot.task_id)
    query = query.join(PoolEntry, PoolEntry.id == Slot.entry_id)
    query = query.join(Assignment, Assignment.task_id == Task.id).join(Account, Account.id == Assignment.account_id)
    is_selected = and_(SelectedSlot.assignment_id == Assignment.id, SelectedSlot.slot_id == Slot.id)
    return query.outerjoin(SelectedSlot, is_selected).where(Assignment.state == SUBMITTED)


@dataclass(frozen=True)
class CountKind:
    """How many images of a class and role have the same counts of answers."""

    class_key: str
    role: str
    #: The counts of answers that the images have in common.
    selected: int
    annotations: int
    #: The number of images.
    images: int


def count_kinds(project: Project, classes: Collection[str] | None = None, *, together: bool = False) -> list[CountKind]:
    """The distribution of counts in each class, of images with answers: all that summaries and histograms need.

    ``together`` counts over all classes, under the key "all".
    """
    columns = (PoolEntry.role, PoolEntry.selected, PoolEntry.annotations)
    # Grouped in the database: a project has millions of images, but few distinct counts.
    groups = columns if together else (PoolEntry.class_key, *columns)
    query = select(literal("all") if together else PoolEntry.class_key, *columns, func.count())
    query = query.where(PoolEntry.annotations > 0).group_by(*groups)
    if classes is not None:
        query = query.where(PoolEntry.class_key.in_(classes))
    with project.reading() as session:
        return [CountKind(*row) for row in session.execute(query)]


def class_summaries(
    project: Project, kinds: Sequence[CountKind] | None = None, *, level: float = 0.95
) -> list[ClassSummary]:
    """Each class with answers, then all classes under the key "all"; empty without answers."""
    kinds = count_kinds(project) if kinds is None else kinds
    if not kinds:
        return []
    kinds_by_class: dict[str, list[CountKind]] = {key: [] for key in project.space.keys}
    for kind in kinds:
        kinds_by_class[kind.class_key].append(kind)
    seed = project.configuration.seed
    summaries = [summarise(key, class_kinds, level, seed) for key, class_kinds in kinds_by_class.items() if class_kinds]
    summaries.append(summarise("all", kinds, level, seed))
    return summaries


def summarise(key: str, kinds: Sequence[CountKind], level: float = 0.95, seed: int = 0) -> ClassSummary:
    """The summary of images with these counts, under ``key``."""
    candidates = [kind for kind in kinds if kind.role != REFERENCE]
    references = [kind for kind in kinds if kind.role == REFERENCE]
    agreement = krippendorff_alpha(
        [kind.selected for kind in kinds],
        [kind.annotations for kind in kinds],
        images=[kind.images for kind in kinds],
        level=level,
        seed=seed,
    )
    return ClassSummary(
        class_key=key,
        candidates=sum(kind.images for kind in candidates),
        references=sum(kind.images for kind in references),
        candidate_frequency=_mean_over_kinds(candidates),
        reference_frequency=_mean_over_kinds(references),
        agreement=agreement,
    )


def _mean_over_kinds(kinds: Sequence[CountKind]) -> float | None:
    """The mean selection frequency of the images with these counts; None if there are none."""
    images = sum(kind.images for kind in kinds)
    if not images:
        return None
    return sum(kind.images * kind.selected / kind.annotations for kind in kinds) / images


def mean_frequency(rows: Sequence[ImageFrequency]) -> float | None:
    """The mean over the images with answers; None if there are none."""
    shares = [row.selected / row.annotations for row in rows if row.annotations]
    return sum(shares) / len(shares) if shares else None


def annotator_quality(project: Project) -> list[AnnotatorQuality]:
    """Everybody who answered a task, including excluded annotators, the least accurate first.

    Answers to cancelled grids say nothing about an annotator, because the grids were wrong.
    """
    share = 1.0 * Assignment.selected / func.nullif(Assignment.images, 0)
    query = select(
        Account.id,
        Account.name,
        Account.excluded_at,
        func.count(),
        _total(Assignment.positives),
        _total(Assignment.positives_selected),
        _total(Assignment.negatives),
        _total(Assignment.negatives_left),
        _total(Assignment.images),
        _total(Assignment.selected),
        _total(Assignment.seconds),
        _total(share * share),
    )
    query = query.join(Assignment, Assignment.account_id == Account.id).join(Task, Task.id == Assignment.task_id)
    query = query.where(Assignment.state == SUBMITTED, Task.cancelled_at.is_(None))
    query = query.group_by(Account.id, Account.name, Account.excluded_at)
    annotators = []
    with project.reading() as session:
        for account, name, excluded_at, tasks, *counts, seconds, squares in session.execute(query):
            positives, positives_selected, negatives, negatives_left, images, selected = map(int, counts)
            annotators.append(
                AnnotatorQuality(
                    account=account,
                    name=name,
                    excluded=excluded_at is not None,
                    tasks=int(tasks),
                    positives=positives,
                    positives_selected=positives_selected,
                    negatives=negatives,
                    negatives_left=negatives_left,
                    images=images,
                    selected=selected,
                    seconds=float(seconds),
                    squares=float(squares),
                )
            )

    def rank(annotator: AnnotatorQuality) -> tuple[float, str]:
        return 1.0 if annotator.accuracy is None else annotator.accuracy, annotator.name

    return sorted(annotators, key=rank)


def _total(column: Any) -> Any:
    """The sum of a column; 0 instead of NULL if all values are NULL."""
    return func.coalesce(func.sum(column), 0)


def quality_flags(people: Sequence[AnnotatorQuality]) -> dict[int, tuple[str, ...]]:
    """Reasons to look at an annotator's answers, by account: speed, share of selected images, control images.

    An annotator is too fast below a quarter of a second per image; selects too many or too few if the share differs
    by more than 20 points from that of all others together, and by more than chance explains; and fails controls if
    even the upper end of the 95 % interval is below 80 %. Grids differ in how many images belong to the class, so
    chance is judged by how the grids of the others differ: the 99.9 % interval of the difference must exclude zero.
    """
    counted = [person for person in people if not person.excluded]
    everybody = _AnswerSums(
        tasks=sum(person.tasks for person in counted),
        images=sum(person.images for person in counted),
        selected=sum(person.selected for person in counted),
        squares=math.fsum(person.squares for person in counted),
    )
    flags = {}
    for person in people:
        peers = everybody if person.excluded else everybody.without(person)
        reasons = []
        if person.seconds < _MIN_SECONDS_PER_IMAGE * person.images:
            reasons.append(f"too fast: {person.seconds / max(1, person.tasks):.1f} s per grid")
        reasons += _share_flags(person, peers)
        if person.controls > 0 and person.interval()[1] < _MIN_CONTROL_ACCURACY:
            reasons.append("fails controls")
        flags[person.account] = tuple(reasons)
    return flags


@dataclass(frozen=True)
class _AnswerSums:
    """Sums over the answers of several annotators."""

    tasks: int
    images: int
    selected: int
    #: The sum over grids of the squared share of images selected.
    squares: float

    def without(self, person: AnnotatorQuality) -> _AnswerSums:
        return _AnswerSums(
            self.tasks - person.tasks,
            self.images - person.images,
            self.selected - person.selected,
            self.squares - person.squares,
        )


def _share_flags(person: AnnotatorQuality, peers: _AnswerSums) -> list[str]:
    """Whether somebody selects too many or too few images, compared with everybody else."""
    share = person.selected / max(1, person.images)
    usual = peers.selected / peers.images if peers.images else share
    difference = max(_USUAL_DIFFERENCE, _margin(person.tasks, peers, usual))
    if share > usual + difference:
        return [f"selects too many: {100 * share:.0f} %, others {100 * usual:.0f} %"]
    if share < usual - difference:
        return [f"selects too few: {100 * share:.0f} %, others {100 * usual:.0f} %"]
    return []


def _margin(tasks: int, peers: _AnswerSums, usual: float) -> float:
    """Half the interval of the difference between the shares selected in ``tasks`` grids and in those of peers.

    ``usual`` is the share of the peers. The variance between grids is at least that of chance within a grid.
    """
    if peers.tasks < 2:
        return math.inf
    between_grids = (peers.squares - peers.tasks * usual**2) / (peers.tasks - 1)
    by_chance = usual * (1 - usual) * peers.tasks / max(1, peers.images)
    variance = max(between_grids, by_chance)
    return float(stdtrit(peers.tasks - 1, _T_QUANTILE)) * math.sqrt(variance * (1 / tasks + 1 / peers.tasks))


def answers_of(project: Project, account: int) -> list[Assignment]:
    """The submitted answers of one annotator, the newest first."""
    query = select(Assignment).options(joinedload(Assignment.task)).order_by(Assignment.submitted_at.desc())
    with project.reading() as session:
        return list(session.scalars(query.where(Assignment.account_id == account, Assignment.state == SUBMITTED)))


def agreement_with_others(project: Project, account: int) -> float | None:
    """The mean share of other annotators who gave the same answer on the same image, over images with others."""
    # Of those who gave the same answer, the annotator is one; the counts of an image include that answer.
    not_selected = SelectedSlot.slot_id.is_(None)
    same_answer = case(
        (not_selected, PoolEntry.annotations - PoolEntry.selected - 1),
        else_=PoolEntry.selected - 1,
    )
    query = answers(func.avg(same_answer * 1.0 / (PoolEntry.annotations - 1)))
    query = query.where(Assignment.account_id == account, PoolEntry.annotations > 1)
    query = query.where(is_counted(), Account.excluded_at.is_(None))
    with project.reading() as session:
        mean = session.scalars(query).one()
    return None if mean is None else float(mean)


def pseudonym(project: Project, account: int) -> str:
    """The name of an annotator in files that may be published: always the same, and no one else can compute it."""
    return f"annotator-{project.sign(f'pseudonym/{account}').hex()[:12]}"


def write_answers(project: Project, path: str | Path, *, names: bool = False) -> Path:
    """Write every answer to every image, as .csv or .parquet: who, when, how long, which image, selected or not; the
    class that was chosen, where there was a choice.

    Annotators have pseudonyms, because their names may be worker ids; ``names`` writes the names of their accounts.
    """
    fields = {
        "annotator": "string",
        "excluded": "bool",
        "task": "int64",
        "class": "string",
        "leased_at": "timestamp",
        "submitted_at": "timestamp",
        "seconds": "double",
        "image": "string",
        "role": "string",
        "image_class": "string",
        "label": "string",
        "selected": "bool",
        "unsure": "bool",
        "problem": "bool",
        "comment": "string",
    }
    return _write_rows(Path(path), fields, _answer_rows(project, names=names))


def _answer_rows(project: Project, *, names: bool) -> Iterator[list[tuple[object, ...]]]:
    """The rows of :func:`write_answers` in parts, in the order in which the answers were submitted."""
    query = answers(
        Account.id,
        Account.name,
        Account.excluded_at,
        Task.id,
        Task.class_key,
        Assignment.leased_at,
        Assignment.submitted_at,
        Assignment.seconds,
        Image.digest,
        PoolEntry.role,
        PoolEntry.class_key,
        SelectedSlot.label,
        SelectedSlot.slot_id,
        Slot.id,
        Assignment.remarks,
    ).join(Image, Image.id == PoolEntry.image_id)
    query = query.order_by(Assignment.submitted_at, Assignment.id, Slot.id)
    query = query.execution_options(yield_per=_ANSWERS_AT_ONCE)
    with project.reading() as session:
        check_answers(session)
        for partition in session.execute(query).partitions():
            rows: list[tuple[object, ...]] = []
            for account, name, excluded_at, *values, selected_slot, slot, remarks in partition:
                shown_name = name if names else pseudonym(project, account)
                remarks = remarks or {}
                unsure = slot in remarks.get("unsure", ())
                problem = slot in remarks.get("problem", ())
                selected = selected_slot is not None
                comment = remarks.get("comment")
                rows.append((shown_name, excluded_at is not None, *values, selected, unsure, problem, comment))
            yield rows


def write_frequencies(project: Project, path: str | Path, *, level: float = 0.95) -> Path:
    """Write one row per image, as .csv, .json or .parquet."""
    path = Path(path)
    records = [frequency_record(row, level) for row in selection_frequencies(project)]
    if path.suffix == ".json":
        write_json(path, records)
        return path
    fields = {
        "id": "string",
        "image": "string",
        "role": "string",
        "class": "string",
        "keyword": "string",
        "selected": "int32",
        "annotations": "int32",
        "frequency": "double",
        "low": "double",
        "high": "double",
    }
    return _write_rows(path, fields, [[tuple(record.values()) for record in records]], ".csv, .json or .parquet")


def _write_rows(
    path: Path,
    fields: Mapping[str, str],
    parts: Iterable[Sequence[Sequence[object]]],
    formats: str = ".csv or .parquet",
) -> Path:
    """Write a file of columns with these Arrow types, part by part; ``formats`` are named if the suffix is unknown."""
    import pyarrow as pa
    from pyarrow import csv, parquet

    if path.suffix not in (".csv", ".parquet"):
        raise WorkshopError("unknown file format", found=path.name, expected=formats)
    as_csv = path.suffix == ".csv"
    moment = pa.timestamp("us", "UTC")
    types = [moment if kind == "timestamp" else pa.type_for_alias(kind) for kind in fields.values()]
    schema = pa.schema(list(zip(fields, types, strict=True)))
    writer_class = csv.CSVWriter if as_csv else parquet.ParquetWriter

    def write(temporary: Path) -> None:
        with writer_class(str(temporary), schema) as writer:
            for rows in parts:
                if not rows:
                    continue
                if as_csv:
                    rows = [_safe_in_csv(row) for row in rows]
                columns = zip(*rows, strict=True)
                arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
                writer.write_table(pa.Table.from_arrays(arrays, schema=schema))

    write_atomically(path, write)
    return path


def _safe_in_csv(row: Sequence[object]) -> list[object]:
    """Names and comments come from strangers: spreadsheets must not read them as formulas."""
    return [csv_text(value) if isinstance(value, str) else value for value in row]


def frequency_record(row: ImageFrequency, level: float) -> dict[str, Any]:
    """An image's counts, frequency and interval as columns of a table."""
    low, high = row.interval(level) if row.annotations else (None, None)
    return {
        "id": row.id,
        "image": row.digest,
        "role": row.role,
        "class": row.class_key,
        "keyword": row.keyword,
        "selected": row.selected,
        "annotations": row.annotations,
        "frequency": row.frequency,
        "low": low,
        "high": high,
    }


#: Bootstrap resamples of an interval.
RESAMPLES = 1000


@dataclass(frozen=True)
class AnnotatorAgreement:
    """``alpha`` is 1 for full agreement, 0 for chance; NaN if all answers are equal or no image has two answers."""

    alpha: float
    #: The ends of its bootstrap interval.
    low: float
    high: float
    #: Images with at least two answers, and the number of their answers.
    images: int
    answers: int


def krippendorff_alpha(
    selected: ArrayLike,
    annotations: ArrayLike,
    *,
    images: ArrayLike | None = None,
    level: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> AnnotatorAgreement:
    """Nominal alpha (Krippendorff 2011) from how many of each image's annotators selected it; ``images`` counts images
    with the same answers.

    With n_u answers of which k_u are yes, over images with n_u >= 2, N the sum of the n_u, and N1 and N0 the yes
    and no answers: observed disagreement D_o = sum_u 2 k_u (n_u - k_u) / (n_u - 1) / N, expected disagreement
    D_e = 2 N1 N0 / (N (N - 1)), alpha = 1 - D_o / D_e. The identity of annotators does not matter, and they may
    have seen different images. The interval is a percentile bootstrap over images.

    >>> round(krippendorff_alpha([3, 0, 2], [3, 3, 3]).alpha, 3)
    0.6
    """
    yes = np.asarray(selected, dtype=np.float64)
    total = np.asarray(annotations, dtype=np.float64)
    if yes.shape != total.shape or np.any(yes < 0) or np.any(yes > total):
        raise ShiftbenchError("invalid answer counts", expected="0 <= selected <= annotations for each image")
    weights = np.ones(len(total), np.int64) if images is None else np.asarray(images, np.int64)
    paired = total >= 2
    # Images with equal counts are interchangeable, and there are few distinct counts: these are resampled.
    kinds, kind_of_image = np.unique(np.stack([yes[paired], total[paired]], axis=-1), axis=0, return_inverse=True)
    sizes = np.zeros(len(kinds), np.int64)
    np.add.at(sizes, kind_of_image.ravel(), weights[paired])
    image_count = int(sizes.sum())
    yes = kinds[:, 0]
    total = kinds[:, 1]
    disagreement = 2 * yes * (total - yes) / np.maximum(total - 1, 1)
    terms = np.stack([disagreement, yes, total], axis=-1)
    alpha = float(_alpha_of(sizes @ terms))
    low = math.nan
    high = math.nan
    if not math.isnan(alpha):
        draws = np.random.default_rng(seed).multinomial(image_count, sizes / image_count, resamples)
        lows, highs = percentile_interval(_alpha_of(draws @ terms)[:, None], level)
        low = float(lows[0])
        high = float(highs[0])
    return AnnotatorAgreement(alpha, low, high, image_count, int(sizes @ total))


def _alpha_of(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Alpha from the sums over images of their disagreement, yes answers and all answers, in the last axis."""
    disagreement = sums[..., 0]
    yes = sums[..., 1]
    total = sums[..., 2]
    with np.errstate(invalid="ignore", divide="ignore"):
        expected = 2 * yes * (total - yes) / (total - 1)
        return np.where(expected > 0, 1 - disagreement / expected, np.nan)
