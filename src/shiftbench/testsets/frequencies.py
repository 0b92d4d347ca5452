"""Selection frequencies, annotator agreement and annotator quality.

The selection frequency of an image is the share of its annotators who selected it for its class. An answer counts if it
was submitted and its annotator is not excluded; a reference that an annotator saw in two grids of its class counts
once, with the first answer.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sqlalchemy import Select, Subquery, and_, case, func, select
from sqlalchemy.orm import Session

from shiftbench.errors import ShiftbenchError
from shiftbench.io.atomic import write_atomically
from shiftbench.metrics.bootstrap import percentile_interval
from shiftbench.metrics.intervals import Interval, clopper_pearson
from shiftbench.testsets.database.tables import (
    REFERENCE,
    SUBMITTED,
    Account,
    Assignment,
    Image,
    PoolEntry,
    SelectedSlot,
    Slot,
    Task,
)
from shiftbench.testsets.errors import WorkshopError
from shiftbench.testsets.project import Project


@dataclass(frozen=True)
class ImageFrequency:
    """A pool entry and its answers."""

    entry: int
    digest: str
    role: str
    class_key: str
    keyword: str | None
    selected: int
    annotations: int

    @property
    def frequency(self) -> float | None:
        return self.selected / self.annotations if self.annotations else None

    def interval(self, level: float = 0.95) -> Interval:
        return clopper_pearson(self.selected, self.annotations, level)


@dataclass(frozen=True)
class ClassSummary:
    """Mean selection frequencies and agreement of one class, or of all."""

    class_key: str
    candidates: int
    references: int
    #: Means over the images with answers; None if there are none.
    candidate_frequency: float | None
    reference_frequency: float | None
    agreement: AnnotatorAgreement


@dataclass(frozen=True)
class AnnotatorQuality:
    """An annotator's accuracy on control images: positives selected, negatives not selected."""

    account: int
    name: str
    excluded: bool
    tasks: int
    positives: int
    positives_selected: int
    negatives: int
    negatives_left: int

    @property
    def controls(self) -> int:
        return self.positives + self.negatives

    @property
    def right(self) -> int:
        return self.positives_selected + self.negatives_left

    @property
    def accuracy(self) -> float | None:
        return self.right / self.controls if self.controls else None

    def interval(self, level: float = 0.95) -> Interval:
        return clopper_pearson(self.right, self.controls, level)


def selection_frequencies(project: Project) -> list[ImageFrequency]:
    """All pool entries by class and digest; 0 of 0 without answers."""
    with project.reading() as session:
        return read_frequencies(project, session)


def read_frequencies(project: Project, session: Session) -> list[ImageFrequency]:
    votes = _votes()
    counted = select(votes.c.entry_id, func.sum(votes.c.selected).label("selected"), func.count().label("annotations"))
    counts = counted.where(votes.c.turn == 1).group_by(votes.c.entry_id).subquery()
    query = select(
        PoolEntry.id,
        Image.digest,
        PoolEntry.role,
        PoolEntry.class_key,
        PoolEntry.keyword,
        counts.c.selected,
        counts.c.annotations,
    )
    query = query.join(Image, Image.id == PoolEntry.image_id).outerjoin(counts, counts.c.entry_id == PoolEntry.id)
    rows = [
        ImageFrequency(entry, digest, role, key, keyword, int(selected or 0), int(annotations or 0))
        for entry, digest, role, key, keyword, selected, annotations in session.execute(query)
    ]
    place = {key: i for i, key in enumerate(project.space.keys)}
    return sorted(rows, key=lambda row: (place[row.class_key], row.role, row.digest))


def _votes() -> Subquery:
    """Answers on entries in grids of their own class; ``turn`` numbers an annotator's answers on one entry."""
    turn = func.row_number().over(
        partition_by=(Slot.entry_id, Assignment.account_id), order_by=(Assignment.submitted_at, Assignment.id)
    )
    chosen = case((SelectedSlot.slot_id.is_(None), 0), else_=1)
    query = answers(Slot.entry_id, chosen.label("selected"), turn.label("turn"))
    return query.where(PoolEntry.class_key == Task.class_key, Account.excluded_at.is_(None)).subquery()


def answers(*columns: Any) -> Select[Any]:
    """One row per image of each submitted grid; its SelectedSlot is NULL if it was not selected."""
    query = (
        select(*columns)
        .select_from(Slot)
        .join(Task, Task.id == Slot.task_id)
        .join(PoolEntry, PoolEntry.id == Slot.entry_id)
    )
    query = query.join(Assignment, Assignment.task_id == Task.id).join(Account, Account.id == Assignment.account_id)
    here = and_(SelectedSlot.assignment_id == Assignment.id, SelectedSlot.slot_id == Slot.id)
    return query.outerjoin(SelectedSlot, here).where(Assignment.state == SUBMITTED)


def class_summaries(
    project: Project, rows: Sequence[ImageFrequency] | None = None, *, level: float = 0.95
) -> list[ClassSummary]:
    """Each class with answers, then all classes under the key "all"."""
    rows = selection_frequencies(project) if rows is None else rows
    answered = [row for row in rows if row.annotations]
    groups: dict[str, list[ImageFrequency]] = {key: [] for key in project.space.keys}
    for row in answered:
        groups[row.class_key].append(row)
    seed = project.configuration.seed
    summaries = [_summary(key, found, level, seed) for key, found in groups.items() if found]
    return [*summaries, _summary("all", answered, level, seed)] if answered else []


def _summary(key: str, rows: Sequence[ImageFrequency], level: float, seed: int) -> ClassSummary:
    candidates = [row for row in rows if row.role != REFERENCE]
    references = [row for row in rows if row.role == REFERENCE]
    agreement = krippendorff_alpha(
        [row.selected for row in rows], [row.annotations for row in rows], level=level, seed=seed
    )
    return ClassSummary(
        key, len(candidates), len(references), mean_frequency(candidates), mean_frequency(references), agreement
    )


def mean_frequency(rows: Sequence[ImageFrequency]) -> float | None:
    shares = [row.selected / row.annotations for row in rows if row.annotations]
    return sum(shares) / len(shares) if shares else None


def annotator_quality(project: Project) -> list[AnnotatorQuality]:
    """Everybody who answered a task, including excluded annotators, the least accurate first."""
    belongs = PoolEntry.class_key == Task.class_key
    chosen = SelectedSlot.slot_id.is_not(None)
    reference = PoolEntry.role == REFERENCE

    def count(*conditions: Any) -> object:
        return func.coalesce(func.sum(case((and_(*conditions), 1), else_=0)), 0)

    query = answers(
        Account.id, Account.name, Account.excluded_at, func.count(func.distinct(Assignment.id)),
        count(reference, belongs), count(reference, belongs, chosen),
        count(reference, ~belongs), count(reference, ~belongs, ~chosen),
    )  # fmt: skip
    query = query.group_by(Account.id, Account.name, Account.excluded_at)
    with project.reading() as session:
        found = [
            AnnotatorQuality(row[0], row[1], row[2] is not None, *(int(value) for value in row[3:]))
            for row in session.execute(query)
        ]
    return sorted(found, key=lambda one: (1.0 if one.accuracy is None else one.accuracy, one.name))


def write_frequencies(project: Project, path: str | Path, *, level: float = 0.95) -> Path:
    """Write one row per image, as .csv, .json or .parquet."""
    path = Path(path)
    rows = [frequency_record(row, level) for row in selection_frequencies(project)]
    if path.suffix == ".json":
        text = json.dumps(rows, indent=1, ensure_ascii=False) + "\n"
        write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))
    elif path.suffix in (".csv", ".parquet"):
        write_atomically(path, lambda temporary: _write_table(temporary, rows, path.suffix))
    else:
        raise WorkshopError("unknown file format", found=path.name, expected=".csv, .json or .parquet")
    return path


def frequency_record(row: ImageFrequency, level: float) -> dict[str, Any]:
    known = row.annotations > 0
    low, high = row.interval(level)
    return {
        "image": row.digest,
        "role": row.role,
        "class": row.class_key,
        "keyword": row.keyword,
        "selected": row.selected,
        "annotations": row.annotations,
        "frequency": row.frequency,
        "low": low if known else None,
        "high": high if known else None,
    }


def _write_table(path: Path, rows: Sequence[dict[str, object]], suffix: str) -> None:
    import pyarrow as pa
    from pyarrow import csv, parquet

    numbers = {"selected": pa.int32(), "annotations": pa.int32()}
    shares = dict.fromkeys(("frequency", "low", "high"), pa.float64())
    names = ("image", "role", "class", "keyword", "selected", "annotations", "frequency", "low", "high")
    schema = pa.schema([(name, {**numbers, **shares}.get(name, pa.string())) for name in names])
    table = pa.Table.from_pylist(list(rows), schema=schema)
    if suffix == ".csv":
        csv.write_csv(table, path)
    else:
        parquet.write_table(table, path)


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
    selected: ArrayLike, annotations: ArrayLike, *, level: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> AnnotatorAgreement:
    """Nominal alpha (Krippendorff 2011) from how many of each image's annotators selected it.

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
    images = int(paired.sum())
    # Images with equal counts are interchangeable, and there are few distinct counts: resample these.
    kinds, sizes = np.unique(np.stack([yes[paired], total[paired]], axis=-1), axis=0, return_counts=True)
    yes, total = kinds[:, 0], kinds[:, 1]
    terms = np.stack([2 * yes * (total - yes) / np.maximum(total - 1, 1), yes, total], axis=-1)
    alpha = float(_alpha(sizes @ terms))
    low = high = math.nan
    if not math.isnan(alpha):
        draws = np.random.default_rng(seed).multinomial(images, sizes / images, resamples)
        ends = percentile_interval(_alpha(draws @ terms)[:, None], level)
        low, high = float(ends[0][0]), float(ends[1][0])
    return AnnotatorAgreement(alpha, low, high, images, int(sizes @ total))


def _alpha(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    disagreement, yes, total = sums[..., 0], sums[..., 1], sums[..., 2]
    with np.errstate(invalid="ignore", divide="ignore"):
        expected = 2 * yes * (total - yes) / (total - 1)
        return np.where(expected > 0, 1 - disagreement / expected, np.nan)
