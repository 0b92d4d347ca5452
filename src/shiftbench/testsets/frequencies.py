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
from sqlalchemy import Select, and_, case, func, literal, select, update
from sqlalchemy.orm import Session, joinedload

from shiftbench.errors import ShiftbenchError
from shiftbench.io.atomic import write_atomically, write_json
from shiftbench.metrics.bootstrap import percentile_interval
from shiftbench.metrics.intervals import Interval, clopper_pearson
from shiftbench.reports.formatting import csv_text
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
)
from shiftbench.testsets.errors import WorkshopError
from shiftbench.testsets.project import Project

#: Limits of ``quality_flags``: seconds per image, difference of shares, accuracy on controls.
_FAST, _UNUSUAL, _LEAST_ACCURACY = 0.25, 0.2, 0.8
#: Of the t distribution, for a 99.9 % interval on both sides.
_CERTAIN = 0.9995
_ANSWERS_AT_ONCE = 50_000


@dataclass(frozen=True)
class ImageFrequency:
    entry: int
    digest: str
    role: str
    class_key: str
    keyword: str | None
    selected: int
    annotations: int
    suffix: str = ""

    @property
    def id(self) -> str:
        return f"{self.class_key}/{self.digest}{self.suffix}"

    @property
    def frequency(self) -> float | None:
        return self.selected / self.annotations if self.annotations else None

    def interval(self, level: float = 0.95) -> Interval:
        return clopper_pearson(self.selected, self.annotations, level)


@dataclass(frozen=True)
class ClassSummary:
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

    def interval(self, level: float = 0.95) -> Interval:
        return clopper_pearson(self.right, self.controls, level)


def selection_frequencies(project: Project) -> list[ImageFrequency]:
    """All pool entries by class and digest; 0 of 0 without answers."""
    with project.reading() as session:
        return read_frequencies(project, session)


def read_frequencies(project: Project, session: Session, where: Any = True) -> list[ImageFrequency]:
    query = select(
        PoolEntry.id,
        Image.digest,
        PoolEntry.role,
        PoolEntry.class_key,
        PoolEntry.keyword,
        PoolEntry.selected,
        PoolEntry.annotations,
        Image.suffix,
    ).join(Image, Image.id == PoolEntry.image_id)
    rows = [ImageFrequency(*row) for row in session.execute(query.where(where))]
    place = {key: i for i, key in enumerate(project.space.keys)}
    return sorted(rows, key=lambda row: (place[row.class_key], row.role, row.digest))


def count_answer(session: Session, assignment: Assignment, chosen: Mapping[int, bool]) -> None:
    """Add a new answer to the counts: the entries of the class, and whether they were selected.

    Reads no answers of others, as ``recount`` does: answers to grids that share an image wait for each other.
    """
    session.flush()
    before = answers(Slot.entry_id).where(PoolEntry.class_key == Task.class_key, Slot.entry_id.in_(chosen))
    mine = Assignment.account_id == assignment.account_id, Assignment.id != assignment.id
    new = chosen.keys() - set(session.scalars(before.where(*mine)))
    _lock(session, new)
    yes = case((PoolEntry.id.in_([entry for entry in new if chosen[entry]]), 1), else_=0)
    counts = {"annotations": PoolEntry.annotations + 1, "selected": PoolEntry.selected + yes}
    change = update(PoolEntry).where(PoolEntry.id.in_(new)).values(counts)
    session.execute(change.execution_options(synchronize_session=False))


def recount(session: Session, tasks: Collection[int]) -> None:
    """Count the answers on all images of these tasks anew, after answers were withdrawn or excluded."""

    def parts(numbers: Collection[int], size: int = 500) -> list[list[int]]:
        """Databases limit the number of parameters of a query."""
        ordered = sorted(numbers)
        return [ordered[start : start + size] for start in range(0, len(ordered), size)]

    session.flush()
    own = select(Slot.entry_id).join(Task).join(PoolEntry).where(PoolEntry.class_key == Task.class_key)
    found = {entry for part in parts(tasks) for entry in session.scalars(own.where(Slot.task_id.in_(part)))}
    given = answers(Slot.entry_id, Assignment.account_id, SelectedSlot.slot_id)
    given = given.where(PoolEntry.class_key == Task.class_key, Account.excluded_at.is_(None))
    for part in parts(found):
        _lock(session, part)
        first: dict[tuple[int, int], bool] = {}  # the first answer of an annotator on an entry counts
        in_time = given.where(Slot.entry_id.in_(part)).order_by(Assignment.submitted_at, Assignment.id)
        for entry, account, chosen in session.execute(in_time):
            first.setdefault((entry, account), chosen is not None)
        total, yes = Counter(entry for entry, _ in first), Counter(entry for (entry, _), was in first.items() if was)
        values = [{"id": entry, "selected": yes[entry], "annotations": total[entry]} for entry in part]
        session.execute(update(PoolEntry), values)


def _lock(session: Session, entries: Collection[int]) -> None:
    """Concurrent answers wait for each other; always in the order of the ids, to rule out deadlocks."""
    these = select(PoolEntry.id).where(PoolEntry.id.in_(entries)).order_by(PoolEntry.id)
    session.execute(these.with_for_update(key_share=True))


def answers(*columns: Any) -> Select[Any]:
    """One row per image of each submitted grid; its SelectedSlot is NULL if it was not selected."""
    query = select(*columns).select_from(Slot).join(Task, Task.id == Slot.task_id)
    query = query.join(PoolEntry, PoolEntry.id == Slot.entry_id)
    query = query.join(Assignment, Assignment.task_id == Task.id).join(Account, Account.id == Assignment.account_id)
    here = and_(SelectedSlot.assignment_id == Assignment.id, SelectedSlot.slot_id == Slot.id)
    return query.outerjoin(SelectedSlot, here).where(Assignment.state == SUBMITTED)


@dataclass(frozen=True)
class CountKind:
    """How many images of a class and role have the same counts of answers."""

    class_key: str
    role: str
    selected: int
    annotations: int
    images: int


def count_kinds(project: Project, classes: Collection[str] | None = None, *, together: bool = False) -> list[CountKind]:
    """The distribution of counts in each class, of images with answers: all that summaries and histograms need.

    ``together`` counts over all classes, under the key "all".
    """
    columns = (PoolEntry.role, PoolEntry.selected, PoolEntry.annotations)
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
    """Each class with answers, then all classes under the key "all"."""
    kinds = count_kinds(project) if kinds is None else kinds
    groups: dict[str, list[CountKind]] = {key: [] for key in project.space.keys}
    for kind in kinds:
        groups[kind.class_key].append(kind)
    seed = project.configuration.seed
    summaries = [summarise(key, found, level, seed) for key, found in groups.items() if found]
    return [*summaries, summarise("all", kinds, level, seed)] if kinds else []


def summarise(key: str, kinds: Sequence[CountKind], level: float = 0.95, seed: int = 0) -> ClassSummary:
    def mean(some: Sequence[CountKind]) -> float | None:
        total = sum(kind.images for kind in some)
        return sum(kind.images * kind.selected / kind.annotations for kind in some) / total if total else None

    candidates = [kind for kind in kinds if kind.role != REFERENCE]
    references = [kind for kind in kinds if kind.role == REFERENCE]
    agreement = krippendorff_alpha(
        [kind.selected for kind in kinds],
        [kind.annotations for kind in kinds],
        images=[kind.images for kind in kinds],
        level=level,
        seed=seed,
    )
    old, new = (sum(kind.images for kind in some) for some in (references, candidates))
    return ClassSummary(key, new, old, mean(candidates), mean(references), agreement)


def mean_frequency(rows: Sequence[ImageFrequency]) -> float | None:
    shares = [row.selected / row.annotations for row in rows if row.annotations]
    return sum(shares) / len(shares) if shares else None


def annotator_quality(project: Project) -> list[AnnotatorQuality]:
    """Everybody who answered a task, including excluded annotators, the least accurate first."""
    counts = ("positives", "positives_selected", "negatives", "negatives_left", "images", "selected", "seconds")
    share = 1.0 * Assignment.selected / func.nullif(Assignment.images, 0)
    sums = [func.coalesce(func.sum(one), 0) for one in (*(getattr(Assignment, name) for name in counts), share * share)]
    query = select(Account.id, Account.name, Account.excluded_at, func.count(), *sums)
    query = query.join(Assignment, Assignment.account_id == Account.id).where(Assignment.state == SUBMITTED)
    with project.reading() as session:
        found = [
            AnnotatorQuality(row[0], row[1], row[2] is not None, *map(int, row[3:-2]), *map(float, row[-2:]))
            for row in session.execute(query.group_by(Account.id, Account.name, Account.excluded_at))
        ]
    return sorted(found, key=lambda one: (1.0 if one.accuracy is None else one.accuracy, one.name))


def quality_flags(people: Sequence[AnnotatorQuality]) -> dict[int, tuple[str, ...]]:
    """Reasons to look at an annotator's answers, by account: speed, share of selected images, control images.

    An annotator is too fast below a quarter of a second per image; selects too many or too few if the share differs
    by more than 20 points from that of all others together, and by more than chance explains; and fails controls if
    even the upper end of the 95 % interval is below 80 %. Grids differ in how many images belong to the class, so
    chance is judged by how the grids of the others differ: the 99.9 % interval of the difference must exclude zero.
    """
    flags = {}
    for one in people:
        others = [other for other in people if other.account != one.account and not other.excluded]
        seen, chosen = sum(other.images for other in others), sum(other.selected for other in others)
        usual = chosen / seen if seen else one.selected / max(1, one.images)
        share, grids = one.selected / max(1, one.images), sum(other.tasks for other in others)
        unusual = max(_UNUSUAL, _margin(one.tasks, grids, usual, sum(other.squares for other in others), seen))
        checks = {
            f"too fast: {one.seconds / max(1, one.tasks):.1f} s per grid": one.seconds < _FAST * one.images,
            f"selects too many: {100 * share:.0f} %, others {100 * usual:.0f} %": share > usual + unusual,
            f"selects too few: {100 * share:.0f} %, others {100 * usual:.0f} %": share < usual - unusual,
            "fails controls": one.controls > 0 and one.interval()[1] < _LEAST_ACCURACY,
        }
        flags[one.account] = tuple(reason for reason, holds in checks.items() if holds)
    return flags


def _margin(tasks: int, grids: int, usual: float, squares: float, seen: int) -> float:
    """Half the interval of the difference between the shares selected in ``tasks`` grids and in ``grids`` of others."""
    if grids < 2:
        return math.inf
    variance = max((squares - grids * usual**2) / (grids - 1), usual * (1 - usual) * grids / max(1, seen))
    return float(stdtrit(grids - 1, _CERTAIN)) * math.sqrt(variance * (1 / tasks + 1 / grids))


def answers_of(project: Project, account: int) -> list[Assignment]:
    """The submitted answers of one annotator, the newest first."""
    query = select(Assignment).options(joinedload(Assignment.task)).order_by(Assignment.submitted_at.desc())
    with project.reading() as session:
        return list(session.scalars(query.where(Assignment.account_id == account, Assignment.state == SUBMITTED)))


def agreement_with_others(project: Project, account: int) -> float | None:
    """The mean share of other annotators who gave the same answer on the same image, over images with others."""
    chosen = case((SelectedSlot.slot_id.is_(None), 0), else_=1)
    same = case((chosen == 1, PoolEntry.selected - 1), else_=PoolEntry.annotations - PoolEntry.selected - 1)
    query = answers(func.avg(same * 1.0 / (PoolEntry.annotations - 1)))
    query = query.where(Assignment.account_id == account, PoolEntry.annotations > 1)
    query = query.where(PoolEntry.class_key == Task.class_key, Account.excluded_at.is_(None))
    with project.reading() as session:
        mean = session.scalars(query).one()
    return None if mean is None else float(mean)


def write_answers(project: Project, path: str | Path) -> Path:
    """Write every answer to every image, as .csv or .parquet: who, when, how long, which image, selected or not; the
    class that was chosen, where there was a choice."""
    query = answers(
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

    def parts() -> Iterator[list[tuple[object, ...]]]:
        with project.reading() as session:
            ordered = query.order_by(Assignment.submitted_at, Assignment.id, Slot.id)
            for part in session.execute(ordered.execution_options(yield_per=_ANSWERS_AT_ONCE)).partitions():
                rows = []
                for name, excluded, *values, chosen, slot, remarks in part:
                    said = remarks or {}
                    marks = slot in said.get("unsure", ()), slot in said.get("problem", ()), said.get("comment")
                    rows.append((name, excluded is not None, *values, chosen is not None, *marks))
                yield rows

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
    return _write_rows(Path(path), fields, parts())


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
    """A file of columns with these Arrow types, written part by part."""
    import pyarrow as pa
    from pyarrow import csv, parquet

    if path.suffix not in (".csv", ".parquet"):
        raise WorkshopError("unknown file format", found=path.name, expected=formats)
    moment = pa.timestamp("us", "UTC")
    kinds = [moment if kind == "timestamp" else pa.type_for_alias(kind) for kind in fields.values()]
    schema = pa.schema(list(zip(fields, kinds, strict=True)))

    def write(temporary: Path) -> None:
        with (csv.CSVWriter if path.suffix == ".csv" else parquet.ParquetWriter)(str(temporary), schema) as writer:
            for rows in filter(None, parts):
                if path.suffix == ".csv":  # names and comments of strangers
                    rows = [[csv_text(value) if isinstance(value, str) else value for value in row] for row in rows]
                columns = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), kinds, strict=True)]
                writer.write_table(pa.Table.from_arrays(columns, schema=schema))

    write_atomically(path, write)
    return path


def frequency_record(row: ImageFrequency, level: float) -> dict[str, Any]:
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


RESAMPLES = 1000


@dataclass(frozen=True)
class AnnotatorAgreement:
    """``alpha`` is 1 for full agreement, 0 for chance; NaN if all answers are equal or no image has two answers."""

    alpha: float
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
    yes, total = np.asarray(selected, dtype=np.float64), np.asarray(annotations, dtype=np.float64)
    if yes.shape != total.shape or np.any(yes < 0) or np.any(yes > total):
        raise ShiftbenchError("invalid answer counts", expected="0 <= selected <= annotations for each image")
    paired = total >= 2
    weights = np.ones(len(total), np.int64) if images is None else np.asarray(images, np.int64)
    # Images with equal counts are interchangeable, and there are few distinct counts: resample these.
    kinds, which = np.unique(np.stack([yes[paired], total[paired]], axis=-1), axis=0, return_inverse=True)
    sizes = np.zeros(len(kinds), np.int64)
    np.add.at(sizes, which.ravel(), weights[paired])
    count = int(sizes.sum())
    yes, total = kinds[:, 0], kinds[:, 1]
    terms = np.stack([2 * yes * (total - yes) / np.maximum(total - 1, 1), yes, total], axis=-1)

    def alpha_of(sums: NDArray[np.float64]) -> NDArray[np.float64]:
        disagreement, yes, total = sums[..., 0], sums[..., 1], sums[..., 2]
        with np.errstate(invalid="ignore", divide="ignore"):
            expected = 2 * yes * (total - yes) / (total - 1)
            return np.where(expected > 0, 1 - disagreement / expected, np.nan)

    alpha = float(alpha_of(sizes @ terms))
    low = high = math.nan
    if not math.isnan(alpha):
        draws = np.random.default_rng(seed).multinomial(count, sizes / count, resamples)
        ends = percentile_interval(alpha_of(draws @ terms)[:, None], level)
        low, high = float(ends[0][0]), float(ends[1][0])
    return AnnotatorAgreement(alpha, low, high, count, int(sizes @ total))
