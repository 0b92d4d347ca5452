"""What a model answers in single cells of a grid: some images, each under its own shift, in the order of a draw."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from shiftbench.classifiers.base import Classifier
from shiftbench.errors import SettingError
from shiftbench.grouping import by_key
from shiftbench.metrics.base import Needs
from shiftbench.runs.compute import ImageMaker, ModelView, predict, stacked
from shiftbench.runs.plan import PlannedResult, RunContext


@dataclass(frozen=True)
class CellAnswer:
    """What a model answered in one cell; without a class for an image that could not be read."""

    top: int = -1
    confidence: float = 0.0


@dataclass(frozen=True, eq=False)
class CellRunner:
    """Runs one model in any cells of the settings of a plan."""

    context: RunContext
    classifier: Classifier

    def check(self, planned: Iterable[PlannedResult]) -> None:
        """Refuse a model or settings that single cells are not enough for."""
        if self.classifier.recorded is not None or self.classifier.stateful:
            raise SettingError(
                f"{self.classifier.name!r} can't be evaluated in single cells",
                found="predictions made elsewhere, or a stateful model",
                hint="leave out the limit of forward passes, so that all images are evaluated",
            )
        for entry in planned:
            if not entry.setting.shift.per_image:
                raise SettingError(
                    f"{entry.setting.name!r} can't be evaluated in single cells",
                    found="a shift that runs the model several times per image",
                    hint="leave out the limit of forward passes, or choose a suite of corruptions",
                )

    def answers(self, cells: Sequence[tuple[PlannedResult, int]]) -> list[CellAnswer]:
        """The answers in cells, each a setting and a row of its dataset, in their order."""
        answers = [CellAnswer()] * len(cells)
        # Cells that are cut from one dataset in one way are read together, each image once.
        groups: dict[tuple[str, str], list[int]] = {}
        for number, (planned, _) in enumerate(cells):
            groups.setdefault((planned.dataset, repr(planned.geometry)), []).append(number)
        for numbers in groups.values():
            self._answer([cells[number] for number in numbers], numbers, answers.__setitem__)
        return answers

    def _answer(
        self,
        cells: Sequence[tuple[PlannedResult, int]],
        numbers: Sequence[int],
        keep: Callable[[int, CellAnswer], object],
    ) -> None:
        """The cells of one dataset in one geometry, which share batches."""
        first, _ = cells[0]
        maker = ImageMaker(self.context.datasets, self.context.seed)
        rows = [row for _, row in cells]
        ready = maker.read_rows(self.context.datasets[first.dataset], rows, [first.geometry])[first.geometry]
        if not ready.readable:
            return
        # The batch has only the images that could be read: its row i is the cell at ``ready.readable[i]``.
        settings = [cells[position][0] for position in ready.readable]
        images = stacked(ready.images).copy()
        rows_by_setting = by_key((planned.result.key, row) for row, planned in enumerate(settings))
        for batch_rows in rows_by_setting.values():
            shift = settings[batch_rows[0]].setting.shift
            ids = [ready.ids[row] for row in batch_rows]
            images[batch_rows] = maker.shifted(shift, images[batch_rows], ids)
        view = ModelView(self.classifier, replace(ready, images=images), self.context.seed, 1)
        scores = view.scores(images, ready.ids)
        for row, (position, planned) in enumerate(zip(ready.readable, settings, strict=True)):
            block = predict(planned.projection(scores[row : row + 1]), self.classifier.outputs, Needs())
            keep(numbers[position], CellAnswer(int(block.top[0, 0]), float(np.asarray(block.confidence)[0])))
