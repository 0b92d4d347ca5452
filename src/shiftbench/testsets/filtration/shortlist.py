"""The result of a filtration: a funnel of counts, and a shortlist for human review."""

from __future__ import annotations

import itertools
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
from shiftbench.reports.formatting import count
from shiftbench.reports.table import Column, Table


@dataclass(frozen=True)
class FunnelStep:
    """A step of the filtration, and how many candidates are left after it."""

    name: str
    left: int


class Funnel(Table):
    """How many candidates each step leaves: 81,413 -> 8,925 -> 1,452 -> 80 for the dragonflies of ImageNet-A.

    >>> steps = [FunnelStep("found", 81_413), FunnelStep("basic filter", 8_925), FunnelStep("shortlist", 1_452)]
    >>> print(Funnel(steps).then("chosen by people", 80).line)
    81,413 -> 8,925 -> 1,452 -> 80
    """

    def __init__(self, steps: Sequence[FunnelStep], *, title: str = "Funnel", notes: Sequence[str] = ()) -> None:
        for before, after in itertools.pairwise(steps):
            if not 0 <= after.left <= before.left:
                raise ShiftbenchError(
                    f"invalid count after the step {after.name!r}",
                    found=after.left,
                    expected=f"0 to {before.left}, the count after {before.name!r}",
                )
        self.steps = list(steps)
        previous = [self.steps[max(i - 1, 0)].left for i in range(len(self.steps))]
        rows = [
            {
                "step": step.name,
                "left": step.left,
                "removed": before - step.left,
                "of_previous": step.left / before if before else None,
                "of_all": step.left / previous[0] if previous[0] else None,
            }
            for step, before in zip(self.steps, previous, strict=True)
        ]
        super().__init__(
            [
                Column("step", "step"),
                Column("left", "left", "count"),
                Column("removed", "removed", "count"),
                Column("of_previous", "of the last step %", "number", times=100),
                Column("of_all", "of all %", "number", times=100),
            ],
            rows,
            title=title,
            lead=[self.line],
            notes=notes,
        )

    @property
    def line(self) -> str:
        return " -> ".join(count(step.left) for step in self.steps)

    def then(self, name: str, left: int) -> Funnel:
        """A copy with one more step, such as the images chosen by people."""
        return Funnel([*self.steps, FunnelStep(name, left)], title=self.title, notes=self.notes)


#: Rows shown in a terminal.
_SHOWN = 30


@dataclass(frozen=True)
class Shortlisted:
    """A candidate for human review."""

    image: str
    index: int
    #: Its labelled class, and the class that the first model predicts.
    label: str
    taken_for: str
    #: Confidence of the first model in that prediction, averaged over views.
    confidence: float
    #: The highest confidence in the true class over all views and models.
    true_confidence: float


@dataclass(frozen=True)
class Filtration:
    """The remaining candidates in the order in which they were chosen."""

    #: All candidates; ``index`` of the shortlist refers to it.
    pool: Dataset
    funnel: Funnel
    shortlist: tuple[Shortlisted, ...]
    #: (image, reason) of unreadable images.
    unreadable: tuple[tuple[str, str], ...] = ()

    def subset(self, name: str | None = None) -> Subset:
        """The shortlist as a dataset, in the order of the candidates."""
        chosen = sorted(one.index for one in self.shortlist)
        return Subset(self.pool, chosen, name=name or f"{self.pool.name} filtered")

    def review_list(self) -> Table:
        """The shortlist as a table, with the predictions."""
        rows: list[dict[str, object]] = [{"rank": i, **asdict(one)} for i, one in enumerate(self.shortlist, start=1)]
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
            most=_SHOWN,
            title="To review",
            lead=[self.funnel.line],
        )


def listed(
    pool: Dataset, chosen: Sequence[int], labels: Sequence[str], views: Sequence[NDArray[Any]], space: LabelSpace
) -> tuple[Shortlisted, ...]:
    """The chosen images with class names and predictions."""
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
    """The first ``limit`` of each kind.

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
    return f"models: {', '.join(one.name for one in classifiers)}; confidence over the classes of {space.name}"


def check_classifiers(classifiers: Sequence[Classifier]) -> None:
    if not classifiers:
        raise ShiftbenchError("no models to filter against", expected="at least one")


def check_share(what: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ShiftbenchError(f"invalid {what}", found=value, expected="a fraction from 0 to 1", hint="15 % is 0.15")
