"""Settings of models that change while they run, or mix the images of a batch, on purpose: test-time adaptation.

Such a model's prediction depends on the images before and beside an image. So a setting is one piece of work: the model
is reset, one thread shows it the images in a random order that the seed decides, in batches of a stated size, and the
predictions are written when all are there. A setting that was interrupted begins again, and gives the same bytes.
Datasets are often sorted by class, and a batch of a single class would tell such a model more than the images do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import PurePosixPath

import numpy as np
from numpy.typing import NDArray

from shiftbench.classifiers.base import Classifier
from shiftbench.errors import SettingError, argument
from shiftbench.io.hashing import digest
from shiftbench.io.locks import file_lock
from shiftbench.jobs.base import Block, Failure, Job, Problem
from shiftbench.jobs.executors import ThreadExecutor
from shiftbench.jobs.progress import Advance
from shiftbench.labels.space import Scores
from shiftbench.runs.compute import ImageMaker, ModelView, TroubleError, predict, stacked
from shiftbench.runs.plan import PlannedResult, RunContext, is_complete
from shiftbench.store.prediction_files import write_block


def check_stateful(classifiers: Iterable[Classifier], *, designed: bool, shared: bool) -> None:
    """Refuse, before a run begins, what stateful models can't be evaluated with."""
    stateful = [classifier.name for classifier in classifiers if classifier.stateful]
    if not stateful:
        return
    if designed:
        raise SettingError(
            f"a design can't be evaluated with the stateful model {stateful[0]!r}",
            found="images of all shifts in one pass, and the model would adapt to their mixture",
            hint=f"{argument('design', 'full')}; {argument('corruptions', flag='--corruption')} and "
            f"{argument('severities', flag='--severity')} reduce the work",
        )
    if shared:
        raise SettingError(
            f"the stateful model {stateful[0]!r} can't be shared by jobs",
            found="blocks of images, and it needs all images of a setting in one job",
            hint=f"leave {argument('shard')} out, or give each job its own settings",
        )


def image_order(ids: Sequence[str], seed: int) -> list[int]:
    """Positions of images in the order in which a stateful model sees them.

    It depends on the seed and on the images' names alone, and is the same with every version of every library.

    >>> image_order(["a", "b", "c", "d"], seed=0)
    [2, 1, 3, 0]
    """
    return sorted(range(len(ids)), key=lambda position: digest("order of images", seed, ids[position]))


@dataclass(frozen=True)
class StatefulEvaluation(Job[PurePosixPath]):
    """The settings of stateful models, as a job: an item is the ``Result.relative`` of a planned result.

    It is not the key of the result, which two settings of different names share if they ask for the same predictions.
    """

    context: RunContext

    @cached_property
    def _planned(self) -> dict[PurePosixPath, PlannedResult]:
        return {planned.result.relative: planned for planned in self.context.results}

    def compute(self, item: PurePosixPath, advance: Advance, *, wait: bool) -> list[Problem] | None:
        planned = self._planned[item]
        workspace = self.context.workspace
        workspace.check_present()
        patience = self.context.patience if wait else False
        with file_lock(
            workspace.lock_path(f"stateful-{planned.result.key}"), wait=patience, while_waiting=lambda: advance(0)
        ) as is_locked:
            if not is_locked:
                return None
            if not is_complete(workspace, planned):
                try:
                    self._evaluate(planned, advance)
                except TroubleError as error:
                    return [error.trouble]
                except Exception as error:
                    return [Problem.of_error(f"setting {planned.result.setting!r}", error)]
        return []

    def _evaluate(self, planned: PlannedResult, advance: Advance) -> None:
        """Compute one setting and write its predictions as one block."""
        workspace = self.context.workspace
        dataset = self.context.datasets[planned.dataset]
        classifier = self.context.classifiers[planned.result.classifier]
        maker = ImageMaker(self.context.datasets, self.context.seed)
        all_images = Block(0, len(dataset), planned.dataset, is_part=True)
        scores = np.empty((len(planned.rows), len(classifier.space)), np.float32)
        readable = np.zeros(len(planned.rows), np.bool_)
        problems: list[dict[str, str]] = []
        order = image_order([dataset.ids[row] for row in planned.rows], self.context.seed)
        classifier.reset()
        for start in range(0, len(order), classifier.batch_size):
            positions = np.array(order[start : start + classifier.batch_size])
            rows = planned.rows[positions].tolist()
            ready = maker.read_rows(dataset, rows, [planned.geometry])[planned.geometry]
            problems += ready.problems
            used = positions[list(ready.readable)]
            if len(used):
                images = maker.shifted(planned.setting.shift, stacked(ready.images), ready.ids)
                view = ModelView(classifier, ready, self.context.seed, threads=1)
                scores[used] = view.scores(images, ready.ids)
                readable[used] = True
            advance(len(positions))
        workspace.record_problems(dataset.name, dataset.fingerprint, all_images, problems)
        self._write(planned, scores, readable, all_images)

    def _write(self, planned: PlannedResult, scores: Scores, readable: NDArray[np.bool_], images: Block) -> None:
        classifier = self.context.classifiers[planned.result.classifier]
        block = predict(planned.projection(scores[readable]), classifier.outputs, planned.needs)
        if not readable.all():
            block = block.spread(readable)
        path = self.context.workspace.block_path(planned.result, images)
        write_block(path, block, planned.result.spec, self.context.made_by, compressed=False)


def evaluate_stateful(context: RunContext, results: Sequence[PlannedResult], advance: Advance) -> list[Failure]:
    """One result after the other, for they may share a model."""
    job = StatefulEvaluation(replace(context, results=tuple(results)))
    return ThreadExecutor(1).run(job, [planned.result.relative for planned in results], advance)
