"""How many candidates each step leaves: 81,413 -> 8,925 -> 1,452 -> 80 for the dragonflies of ImageNet-A."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from shiftbench.errors import ShiftbenchError
from shiftbench.reports.formatting import count
from shiftbench.reports.table import Column, Table


@dataclass(frozen=True)
class Step:
    """What a step demands, and how many candidates meet it and all before it."""

    name: str
    left: int


class Funnel(Table):
    """Counts and shares of each step.

    >>> funnel = Funnel([Step("found", 81_413), Step("basic filter", 8_925), Step("shortlist", 1_452)])
    >>> print(funnel.then("chosen by people", 80).line)
    81,413 -> 8,925 -> 1,452 -> 80
    """

    def __init__(self, steps: Sequence[Step], *, title: str = "Funnel", notes: Sequence[str] = ()) -> None:
        for before, after in itertools.pairwise(steps):
            if not 0 <= after.left <= before.left:
                raise ShiftbenchError(
                    f"the step {after.name!r} leaves an impossible number",
                    found=after.left,
                    expected=f"0 to {before.left}, what {before.name!r} left",
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
        """With one more step, such as what people chose from the shortlist."""
        return Funnel([*self.steps, Step(name, left)], title=self.title, notes=self.notes)
