"""The result of a filtration: a funnel, and a list that people review."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftbench.classifiers.base import Classifier
from shiftbench.datasets.base import Dataset
from shiftbench.datasets.subset import Subset
from shiftbench.errors import ShiftbenchError
from shiftbench.jobs.blocks import PerImage
from shiftbench.labels.space import LabelSpace
from shiftbench.reports.table import Column, Table
from shiftbench.testsets.filtration.funnel import Funnel

#: What a terminal shows of a list.
_SHOWN = 30


@dataclass(frozen=True)
class Shortlisted:
    """A candidate that people should look at."""

    image: str
    index: int
    #: The class it is said to be, and the one that the first classifier takes it for.
    label: str
    taken_for: str
    #: Mean over the views, of the first classifier.
    confidence: float
    #: The greatest confidence of any view of any classifier in the true class.
    true_confidence: float


@dataclass(frozen=True)
class Filtration:
    """What is left of the candidates, in the order in which it was chosen."""

    #: The candidates that were looked at; ``index`` of the shortlist counts in it.
    pool: Dataset
    funnel: Funnel
    shortlist: tuple[Shortlisted, ...]
    #: (image, why) of pictures that could not be read.
    unreadable: tuple[tuple[str, str], ...] = ()

    def subset(self, name: str | None = None) -> Subset:
        """The shortlist as a data set, in the order of the candidates."""
        chosen = sorted(one.index for one in self.shortlist)
        return Subset(self.pool, chosen, name=name or f"{self.pool.name} filtered")

    def review_list(self) -> Table:
        """For people: which images to look at, and what they were taken for."""
        rows: list[dict[str, Any]] = [{"rank": i, **asdict(one)} for i, one in enumerate(self.shortlist, start=1)]
        more = (
            [f"the first {_SHOWN} of {len(rows):,}; write a .csv or .json file for all"] if len(rows) > _SHOWN else []
        )
        return Table(
            [
                Column("rank", "", "count"),
                Column("image", "image"),
                Column("label", "label"),
                Column("taken_for", "taken for"),
                Column("confidence", "confidence %", "number", times=100, places=1),
                Column("true_confidence", "in the label %", "number", times=100, places=1, optional=True),
            ],
            rows,
            shown=rows[:_SHOWN],
            title="To review",
            lead=[self.funnel.line],
            notes=more,
        )


def listed(
    pool: Dataset, chosen: Sequence[int], labels: Sequence[str], views: Sequence[NDArray[Any]], space: LabelSpace
) -> tuple[Shortlisted, ...]:
    """The chosen images with their classes' names and what the classifiers made of them."""
    truth, first = np.max([rows["most"] for rows in views], axis=0), views[0]
    return tuple(
        Shortlisted(
            image=pool.ids[i],
            index=i,
            label=label,
            taken_for=space.names[first["taken_for"][i]],
            confidence=float(first["confidence"][i]),
            true_confidence=float(truth[i]),
        )
        for i, label in zip(chosen, labels, strict=True)
    )


def capped(ranked: Sequence[int], kinds: Sequence[Hashable], limit: int | None) -> list[int]:
    """Of each kind the first ``limit``.

    >>> capped([4, 2, 7, 1], ["a", "a", "b", "a"], 2)
    [4, 2, 7]
    """
    seen: Counter[Hashable] = Counter()
    chosen = []
    for i, kind in zip(ranked, kinds, strict=True):
        seen[kind] += 1
        if limit is None or seen[kind] <= limit:
            chosen.append(i)
    return chosen


def unreadable_of(pool: Dataset, views: PerImage) -> tuple[tuple[str, str], ...]:
    return tuple((pool.ids[i], why) for i, why in sorted(views.problems.items()))


def described(classifiers: Sequence[Classifier], space: LabelSpace) -> str:
    return f"classifiers: {', '.join(one.name for one in classifiers)}; confidence over the classes of {space.name}"


def check_classifiers(classifiers: Sequence[Classifier]) -> None:
    if not classifiers:
        raise ShiftbenchError("nothing to filter with", expected="at least one classifier")


def check_share(what: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ShiftbenchError(f"bad {what}", found=value, expected="a fraction from 0 to 1", hint="15 % is 0.15")
