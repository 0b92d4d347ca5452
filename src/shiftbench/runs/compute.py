"""Computing one block: its images are made ready once for all settings and classifiers, and scored by each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import Pixels
from shiftbench.classifiers.base import Classifier
from shiftbench.datasets.base import Dataset
from shiftbench.errors import ClassifierError, argument, explain
from shiftbench.io.locks import file_lock
from shiftbench.jobs.base import Block, Demand, Job, Problem, Reader
from shiftbench.jobs.progress import Advance
from shiftbench.jobs.threads import on_threads
from shiftbench.labels.space import Labels, Scores
from shiftbench.metrics.base import Needs
from shiftbench.runs.plan import PlannedResult, RunContext, block_is_complete, is_complete
from shiftbench.runs.prepare_images import PictureMaker, Ready, SharedPictureMaker, Wanted, stacked
from shiftbench.store.prediction_files import PredictionBlock, as_stored, write_block
from shiftbench.store.predictions import SKIPPED
from shiftbench.store.shifted_images import (
    MOST_SHIFTED_IMAGES,
    ShiftedImage,
    block_images_path,
    write_shifted_images,
)
from shiftbench.store.workspace import Workspace, setting_rows

if TYPE_CHECKING:
    from shiftbench.classifiers.recorded import RecordedPredictions
    from shiftbench.runs.known import KnownRows

T = TypeVar("T")


@dataclass(frozen=True)
class Evaluation(Job[Block]):
    """The blocks of a run, as a job."""

    context: RunContext
    #: By the key of a result: predictions that are made already.
    known: Mapping[str, KnownRows] = field(default_factory=dict)
    threads: int = 1
    #: Leave blocks that another run computes to it.
    skip_claimed: bool = False
    #: Who makes the images ready; without one, the worker itself.
    pictures: Reader | None = None

    def compute(self, item: Block, advance: Advance, *, wait: bool) -> list[Problem] | None:
        """None when another run is at it and ``wait`` is False."""
        workspace = self.context.workspace
        workspace.check_present()
        dataset = self.context.datasets[item.whole]
        lock = workspace.lock_path(f"{dataset.name}-{dataset.fingerprint[:16]}-{item.name}{self.context.part}")
        patience = self.context.patience
        with file_lock(lock, wait=patience if wait else False, while_waiting=lambda: advance(0)) as mine:
            if not mine:
                return [] if self.skip_claimed else None
            results = [planned for planned in self.context.results if planned.dataset == item.whole]
            missing = [planned for planned in results if not block_is_complete(workspace, planned, item)]
            # Another run may have finished a result, and cleared its blocks, while this one waited.
            pending = [planned for planned in missing if not is_complete(workspace, planned)]
            advance(sum(len(c.rows_between(item.start, item.stop)) for c in missing if c not in pending))
            return _BlockComputation(self, workspace, item, advance).compute(pending)

    def threaded(self, threads: int) -> Evaluation:
        return replace(self, threads=threads)

    def reader(self, threads: int) -> Reader:
        return SharedPictureMaker(self.context.datasets, self.context.seed, threads=threads)

    def with_reader(self, feed: Reader) -> Evaluation:
        return replace(self, pictures=feed)

    def divided(
        self, items: Sequence[Block], demand_of: Callable[[str], Demand]
    ) -> dict[Demand, tuple[Job[Block], Sequence[Block]]]:
        """By what the classifiers need: those of the same needs share workers, and read each image once."""
        names: dict[Demand, list[str]] = {}
        for name in dict.fromkeys(planned.result.classifier for planned in self.context.results):
            names.setdefault(demand_of(name), []).append(name)
        return {demand: self._of(chosen, items, number) for number, (demand, chosen) in enumerate(names.items())}

    def _of(self, names: Sequence[str], items: Sequence[Block], number: int) -> tuple[Job[Block], Sequence[Block]]:
        part = replace(
            self.context,
            classifiers={name: self.context.classifiers[name] for name in names},
            results=tuple(planned for planned in self.context.results if planned.result.classifier in set(names)),
            part=f"-{number}" if number else "",
        )
        own = {planned.dataset for planned in part.results}
        return replace(self, context=part), [item for item in items if item.whole in own]


class _TroubleError(Exception):
    """Ends the computation of some results, and of no others."""

    def __init__(self, trouble: Problem) -> None:
        super().__init__(str(trouble))
        self.trouble = trouble


@contextmanager
def _blamed_on(who: str, images: Sequence[str]) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise _TroubleError(Problem(who, explain(error), tuple(images))) from error


class _BlockComputation:
    def __init__(self, evaluation: Evaluation, workspace: Workspace, item: Block, advance: Advance) -> None:
        self.context, self.threads, self.known = evaluation.context, evaluation.threads, evaluation.known
        self.pictures = evaluation.pictures or PictureMaker(
            self.context.datasets, self.context.seed, threads=self.threads
        )
        self.workspace, self.item, self.advance = workspace, item, advance
        self.dataset: Dataset = self.context.datasets[item.whole]
        self.ids = [self.dataset.ids[i] for i in range(item.start, item.stop)]
        self.troubles: list[Problem] = []
        self.recorded = False

    def compute(self, results: Sequence[PlannedResult]) -> list[Problem]:
        pictured = []
        for planned in results:
            recorded = self.context.classifiers[planned.result.classifier].recorded
            if recorded is None:
                pictured.append(planned)
                continue
            with self._going_on():
                self._look_up(planned, recorded)
        if pictured:
            self._run(pictured)
        return self.troubles

    @contextmanager
    def _going_on(self) -> Iterator[None]:
        """Problem inside is written down, and ends nothing but what is inside."""
        try:
            yield
        except _TroubleError as error:
            # Settings that share a computation share its trouble.
            if error.trouble not in self.troubles:
                self.troubles.append(error.trouble)

    def _look_up(self, planned: PlannedResult, classifier: RecordedPredictions) -> None:
        rows = planned.rows_between(self.item.start, self.item.stop)
        ids = [self.dataset.ids[row] for row in rows]
        with _blamed_on(_the(classifier), ids):
            found = classifier.lookup(ids, planned.space)
        scores = found.scores if planned.needs.scores else None
        self._write(planned, PredictionBlock(found.top[:, : planned.needs.top_k], found.confidence, scores))

    def _run(self, results: Sequence[PlannedResult]) -> None:
        groups = [
            same_shift
            for _, same_geometry in _grouped(results, lambda planned: repr(planned.geometry))
            for _, same_shift in _grouped(same_geometry, lambda planned: planned.setting.shift.group)
        ]
        made = self.pictures(self.item, [_wanted(group[0]) for group in groups])
        for group in groups:
            self._run_together(group, next(made))  # kept by nobody while the next are made: 40 MB at 224 pixels

    def _run_together(self, results: Sequence[PlannedResult], ready: Ready | Problem) -> None:
        """Results of the same geometry and shift."""
        if isinstance(ready, Problem):
            self.troubles.append(ready)
            return
        self._record_problems(ready)
        for name, same_classifier in _grouped(results, lambda planned: planned.result.classifier):
            view = _View(self.context.classifiers[name], ready, self.context.seed, self.threads)
            for planned in same_classifier:
                with self._going_on():
                    known = self.known.get(planned.result.key)
                    own = view if known is None else replace(view, ready=self._unknown(ready, known), _shared={})
                    asked = _Asked(planned, self.dataset, self.item, own.ready)
                    scores = planned.setting.shift.scores_in(own, asked)
                    block = self._predict(planned, own.classifier, scores, own.ready.readable)
                    if known is not None:
                        block = known.fill(block, planned.rows_between(self.item.start, self.item.stop))
                    self._keep_images(planned, asked, block)
                    self._write(planned, block)

    def _unknown(self, ready: Ready, known: KnownRows) -> Ready:
        """The images whose predictions no earlier run made."""
        readable = np.array(ready.readable, np.int64)
        left = np.flatnonzero(~known.among(readable + self.item.start)).tolist()
        images = ready.images[left] if isinstance(ready.images, np.ndarray) else [ready.images[i] for i in left]
        return replace(
            ready,
            images=images,
            readable=tuple(readable[left].tolist()),
            ids=tuple(ready.ids[i] for i in left),
        )

    def _record_problems(self, ready: Ready) -> None:
        if ready.problems and not self.recorded:
            name, fingerprint = self.dataset.name, self.dataset.fingerprint
            self.workspace.record_problems(name, fingerprint, self.item, list(ready.problems))
            self.recorded = True

    def _predict(
        self, planned: PlannedResult, classifier: Classifier, scores: Scores, readable: Sequence[int]
    ) -> PredictionBlock:
        """This setting's rows of the block, with gaps where an image could not be read."""
        rows = planned.rows_between(self.item.start, self.item.stop) - self.item.start
        position = np.full(len(self.ids), -1)
        position[list(readable)] = np.arange(len(readable))
        present = position[rows] >= 0
        with _blamed_on(_the(classifier), self.ids):
            found = predict(planned.projection(scores[position[rows][present]]), classifier.outputs, planned.needs)
        return _with_gaps(found, present)

    def _keep_images(self, planned: PlannedResult, asked: _Asked, block: PredictionBlock) -> None:
        """The most confident mistakes, where the report can't make their images again. Before the block, which is
        not computed again once it is there."""
        if not asked.shown or not planned.result.spec.judged_by_image:
            return
        rows = planned.rows_between(self.item.start, self.item.stop).tolist()
        stored = as_stored(block)
        wrong = [
            i for i, row in enumerate(rows) if row in asked.shown and 0 <= asked.true_class[row] != stored.top[i, 0]
        ]
        wrong.sort(key=lambda i: -float(stored.confidence[i]))
        images = [
            ShiftedImage.of(self.dataset.ids[rows[i]], float(stored.confidence[i]), asked.shown[rows[i]])
            for i in wrong[:MOST_SHIFTED_IMAGES]
        ]
        if images:
            path = self.workspace.block_path(planned.result, self.item)
            write_shifted_images(self.workspace.files, block_images_path(path), images)

    def _write(self, planned: PlannedResult, block: PredictionBlock) -> None:
        path = self.workspace.block_path(planned.result, self.item)
        write_block(path, block, planned.result.spec, self.context.made_by)
        self.advance(len(block))


def predict(scores: Scores, outputs: str, needs: Needs) -> PredictionBlock:
    """Scores over a setting's label space to classes and confidence; ties go to the lower index.

    >>> block = predict(np.array([[0.0, 2.0, 1.0]], dtype=np.float32), "logits", Needs(top_k=2))
    >>> block.top.tolist(), round(float(block.confidence[0]), 4)
    ([[1, 2]], 0.6652)
    """
    k = min(needs.top_k, scores.shape[1])
    if len(scores) == 0:
        empty = PredictionBlock(np.empty((0, k), np.int32), np.empty(0, np.float32), None)
        return empty if not needs.scores else PredictionBlock(empty.top, empty.confidence, scores)
    top = _best(scores, k)
    best = scores.max(axis=1, keepdims=True).astype(np.float64)
    if outputs == "logits":
        confidence = 1 / np.exp(scores - best).sum(axis=1)
    else:
        confidence = best[:, 0] / scores.sum(axis=1, dtype=np.float64)
    return PredictionBlock(top, confidence.astype(np.float32), scores if needs.scores else None)


def _best(scores: Scores, k: int) -> NDArray[np.int32]:
    """The k best classes of each row. argpartition keeps any of several equal scores, depending on the processor: rows
    where that matters are sorted."""
    chosen = np.sort(np.argpartition(-scores, k - 1, axis=1)[:, :k], axis=1)
    values = np.take_along_axis(scores, chosen, axis=1)
    top = np.take_along_axis(chosen, np.argsort(-values, axis=1, kind="stable"), axis=1)
    tied = np.flatnonzero((scores >= values.min(axis=1, keepdims=True)).sum(axis=1) > k)
    top[tied] = np.argsort(-scores[tied], axis=1, kind="stable")[:, :k]
    return top.astype(np.int32)


def _scores(classifier: Classifier, images: Pixels, ids: Sequence[str], threads: int) -> Scores:
    """All images of a block in batches; scores that are not numbers are refused by name."""

    def score(batch: slice) -> Scores:
        with _blamed_on(_the(classifier), ids[batch]):
            return _checked(classifier, classifier.scores(images[batch]), ids[batch])

    size = classifier.batch_size
    batches = [slice(start, start + size) for start in range(0, len(images), size)]
    parts = on_threads(score, batches, threads)
    return np.concatenate([np.empty((0, len(classifier.space)), np.float32), *parts])


def _the(classifier: Classifier) -> str:
    return f"classifier {classifier.name!r}"


def _checked(classifier: Classifier, scores: Scores, ids: Sequence[str]) -> Scores:
    if scores.shape != (len(ids), len(classifier.space)):
        raise ClassifierError(
            f"classifier {classifier.name!r} returned scores of the wrong shape",
            found=scores.shape,
            expected=(len(ids), len(classifier.space)),
            hint=f"name its label space with {argument('labels')}, or correct the model's last layer",
        )
    if not np.isfinite(scores).all():
        first = int(np.flatnonzero(~np.isfinite(scores).all(axis=1))[0])
        raise ClassifierError(f"classifier {classifier.name!r} returned nan or inf for image {ids[first]!r}")
    return scores


@dataclass(frozen=True)
class _View:
    """``shifts.base.BlockView``: a model before what is ready of a block."""

    classifier: Classifier
    ready: Ready
    seed: int
    threads: int
    _shared: dict[str, object] = field(default_factory=dict)

    @property
    def images(self) -> Sequence[Pixels] | Pixels:
        return self.ready.images

    @property
    def ids(self) -> Sequence[str]:
        return self.ready.ids

    def square(self) -> int | None:
        crop = self.classifier.preprocessing.geometry.crop
        if isinstance(crop, tuple):
            raise ClassifierError(
                f"perturbation sequences need a square input, and {self.classifier.name!r} has another", found=crop
            )
        return crop

    def scores(self, images: Sequence[Pixels] | Pixels, ids: Sequence[str]) -> Scores:
        return _scores(self.classifier, stacked(images), ids, self.threads)

    def checked(self, scores: Scores, ids: Sequence[str]) -> Scores:
        return _checked(self.classifier, scores, ids)

    def shared(self, what: str, make: Callable[[], T]) -> T:
        if what not in self._shared:
            try:
                self._shared[what] = make()
            except Exception as error:
                self._shared[what] = error
        found = self._shared[what]
        if isinstance(found, Exception):
            raise found
        return cast("T", found)

    def blamed_on(self, who: str, ids: Sequence[str]) -> AbstractContextManager[None]:
        return _blamed_on(f"{who} for {_the(self.classifier)}", ids)


@dataclass(frozen=True)
class _Asked:
    """``shifts.base.Asked``: the images of a block that a planned result needs, with labels for its model."""

    planned: PlannedResult
    dataset: Dataset
    item: Block
    ready: Ready
    #: Images that the shift showed, by row of the dataset.
    shown: dict[int, Pixels] = field(default_factory=dict)

    @property
    def setting(self) -> str:
        return self.planned.result.setting

    @cached_property
    def _labels(self) -> dict[int, int]:
        """By position among the ready images."""
        columns = self._columns
        rows = {i: self.item.start + place for i, place in enumerate(self.ready.readable)}
        own = {i: self.true_class[row] for i, row in rows.items() if row in self.true_class}
        return {i: columns[label] if label >= 0 else -1 for i, label in own.items()}

    @cached_property
    def true_class(self) -> dict[int, int]:
        """In the setting's label space, by row of the dataset."""
        data = self.dataset
        chosen = setting_rows(data.labels, data.space, self.planned.space, data.label_sets)
        return dict(zip(chosen.rows.tolist(), chosen.labels.tolist(), strict=True))

    @property
    def _columns(self) -> list[int]:
        return [group[0] for group in self.planned.projection.groups]

    @property
    def used(self) -> list[int]:
        return list(self._labels)

    @property
    def labels(self) -> Labels:
        return np.array(list(self._labels.values()), np.int32)

    @property
    def classes(self) -> list[int] | None:
        return None if self.planned.projection.kind == "identity" else self._columns

    def show(self, images: Pixels) -> None:
        rows = [self.item.start + self.ready.readable[i] for i in self.used]
        self.shown.update(zip(rows, images, strict=True))


def _wanted(planned: PlannedResult) -> Wanted:
    """Shifts that are not made for each image alone begin with the images as they are."""
    shift = planned.setting.shift
    return Wanted(planned.geometry, shift if shift.per_image else None)


def _with_gaps(found: PredictionBlock, present: NDArray[np.bool_]) -> PredictionBlock:
    if present.all():
        return found
    top = np.full((len(present), found.top.shape[1]), SKIPPED, np.int32)
    confidence = np.full(len(present), np.nan, np.float32)
    top[present], confidence[present] = found.top, found.confidence
    scores = None
    if found.scores is not None:
        scores = np.full((len(present), found.scores.shape[1]), np.nan, np.float32)
        scores[present] = found.scores
    return PredictionBlock(top, confidence, scores)


def _grouped(results: Iterable[T], key: Callable[[T], str]) -> list[tuple[str, list[T]]]:
    ordered = sorted(results, key=key)
    return [(name, list(group)) for name, group in groupby(ordered, key)]
