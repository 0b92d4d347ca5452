"""Computing one block: each of its images is read once, cut to every geometry and shifted, then scored by each model.

Images are prepared by the worker that computes the block, or by a reader that serves all workers of its machine
(``jobs.ray_executor``).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import groupby
from typing import TYPE_CHECKING, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import Pixels
from shiftbench.classifiers.base import Classifier
from shiftbench.classifiers.recorded import best_confidence
from shiftbench.datasets.base import Dataset
from shiftbench.datasets.geometry import Geometry
from shiftbench.errors import BadImageError, ClassifierError, argument
from shiftbench.grouping import by_key
from shiftbench.io.locks import file_lock
from shiftbench.jobs.base import Block, Demand, Job, Problem, Reader
from shiftbench.jobs.progress import Advance
from shiftbench.jobs.threads import on_threads
from shiftbench.labels.space import Labels, Scores
from shiftbench.metrics.base import Needs
from shiftbench.native.loops import best_classes
from shiftbench.runs.plan import PlannedResult, RunContext, block_is_complete, is_complete
from shiftbench.shifts.base import Shift
from shiftbench.store.prediction_files import (
    MOST_SHIFTED_IMAGES,
    PredictionBlock,
    ShiftedImage,
    as_stored,
    write_block,
    write_shifted_images,
)
from shiftbench.store.predictions import setting_rows
from shiftbench.store.run_records import record_worker

if TYPE_CHECKING:
    from shiftbench.runs.known import KnownRows

T = TypeVar("T")
#: By the key of a result: its predictions as they are stored.
Kept = dict[str, dict[Block, PredictionBlock]]
#: Blocks that a reader remembers: enough for workers that are at nearly the same one.
_REMEMBERED = 4
#: Runs whose software this process has compared with its own.
_recorded: set[str] = set()


@dataclass(frozen=True)
class Evaluation(Job[Block]):
    """The blocks of a run, as a job."""

    context: RunContext
    #: By the key of a result: predictions that are made already.
    known: Mapping[str, KnownRows] = field(default_factory=dict)
    threads: int = 1
    skip_claimed: bool = False  #: Leave blocks that another run computes to it.
    images: Reader | None = None  #: Prepares the images; default: the worker itself.
    made: Kept | None = None  #: What this process predicts, to be joined without being read again.
    #: Blocks that threads of this process are computing.
    _open: list[_BlockComputation] = field(default_factory=list, compare=False, repr=False)

    def compute(self, item: Block, advance: Advance, *, wait: bool) -> list[Problem] | None:
        """None if another run is computing it and ``wait`` is False."""
        computation = _BlockComputation(self, item, advance)
        self._open.append(computation)
        try:
            return self._compute(computation, item, advance, wait)
        finally:
            self._open.remove(computation)
            computation.offer([], iter(()))  # wake up the threads that wait for it

    def _compute(
        self, computation: _BlockComputation, item: Block, advance: Advance, wait: bool
    ) -> list[Problem] | None:
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
            pending: list[PlannedResult] = []
            finished_elsewhere = 0
            for planned in missing:
                # Another run may have finished a result, and cleared its blocks, while this one waited.
                if is_complete(workspace, planned):
                    finished_elsewhere += len(planned.rows_between(item.start, item.stop))
                else:
                    pending.append(planned)
            advance(finished_elsewhere)
            found = computation.compute(pending)
        record = self.context.record
        if record is not None and record.id not in _recorded:
            _recorded.add(record.id)
            record_worker(workspace, record)
        return found

    def assist(self) -> bool:
        return any(computation.take() for computation in list(self._open))

    def threaded(self, threads: int) -> Evaluation:
        return replace(self, threads=threads)

    def reader(self, threads: int) -> Reader:
        return ImageMaker(self.context.datasets, self.context.seed, threads=threads, remembered=_REMEMBERED)

    def with_reader(self, feed: Reader) -> Evaluation:
        return replace(self, images=feed)

    def divided(
        self, items: Sequence[Block], demand_of: Callable[[str], Demand]
    ) -> dict[Demand, tuple[Job[Block], Sequence[Block]]]:
        """By what the classifiers need: those of the same needs share workers, and read each image once."""
        models = dict.fromkeys(planned.result.classifier for planned in self.context.results)
        names = by_key((demand_of(name), name) for name in models)
        parts: dict[Demand, tuple[Job[Block], Sequence[Block]]] = {}
        for number, (demand, chosen) in enumerate(names.items()):
            part = replace(
                self.context,
                classifiers={name: self.context.classifiers[name] for name in chosen},
                results=tuple(planned for planned in self.context.results if planned.result.classifier in chosen),
                part=f"-{number}" if number else "",
            )
            own = {planned.dataset for planned in part.results}
            parts[demand] = replace(self, context=part), [item for item in items if item.whole in own]
        return parts


# -- preparing images ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wanted:
    """All images of a block in one geometry: stacked and shifted or, without a shift, as they are."""

    geometry: Geometry
    shift: Shift | None


@dataclass(frozen=True)
class Ready:
    """The requested images of a block, as far as they could be read."""

    images: Sequence[Pixels] | Pixels
    readable: tuple[int, ...]  #: Their positions in the block.
    ids: tuple[str, ...]
    #: Images of the block that were skipped or converted, and why.
    problems: tuple[dict[str, str], ...] = ()


class ImageMaker:
    """Reads the blocks of a run's datasets, and reports which images could not be used. Safe with threads.

    For several workers, which ask for the same blocks at nearly the same time, the last ones are ``remembered``, so
    that each is read once.
    """

    def __init__(self, datasets: Mapping[str, Dataset], seed: int, *, threads: int = 1, remembered: int = 0) -> None:
        self.datasets, self.seed, self.threads, self.remembered = datasets, seed, threads, remembered
        self._blocks: OrderedDict[Block, dict[Geometry, Ready]] = OrderedDict()
        self._turn = threading.Lock()

    def __reduce__(self) -> tuple[object, ...]:
        return partial(ImageMaker, threads=self.threads, remembered=self.remembered), (self.datasets, self.seed)

    def __call__(self, item: Block, wanted: Sequence[Wanted]) -> Iterator[Ready | Problem]:
        """In the requested order; a shift that fails yields a Problem."""
        geometries = dict.fromkeys(one.geometry for one in wanted)
        if not self.remembered:
            block = self._read(item, list(geometries))
        else:
            with self._turn:  # one worker reads the block, the others wait for it
                block = self._blocks.get(item, {})
                if not set(geometries) <= set(block):
                    block = self._blocks[item] = self._read(item, list(dict.fromkeys(block) | geometries))
                self._blocks.move_to_end(item)
                while len(self._blocks) > self.remembered:
                    self._blocks.popitem(last=False)
        for one in wanted:
            ready = block[one.geometry]
            if one.shift is None:
                yield ready
                continue
            try:
                images = self.shifted(one.shift, stacked(ready.images), ready.ids)
            except Exception as error:
                yield Problem.of_error(f"shift {one.shift.name!r}", error, ready.ids)
            else:
                yield replace(ready, images=images)
                del images  # free the memory before the next are computed

    def _read(self, item: Block, geometries: Sequence[Geometry]) -> dict[Geometry, Ready]:
        """Every readable image once, in every geometry, and what was wrong with the others."""
        return self.read_rows(self.datasets[item.whole], range(item.start, item.stop), geometries)

    def read_rows(self, dataset: Dataset, rows: Sequence[int], geometries: Sequence[Geometry]) -> dict[Geometry, Ready]:
        """As ``_read``, for any rows of a dataset; ``Ready.readable`` are positions among them."""
        decodings = dict.fromkeys(geometry.decoding for geometry in geometries)
        views = {decoding: dataset.decoded_as(decoding) for decoding in decodings}

        def read(index: int) -> tuple[list[Pixels | None], str]:
            crops: list[Pixels | None] = []
            try:
                images = {decoding: view.read(index) for decoding, view in views.items()}
            except BadImageError as error:
                return [None] * len(geometries), error.message
            problem = next((image.converted for image in images.values()), "")
            for geometry in geometries:
                try:
                    crops.append(geometry(images[geometry.decoding].pixels))
                except BadImageError as error:
                    crops.append(None)
                    problem = f"{dataset.ids[index]} can't be used: {error.found}"
            return crops, problem

        done = on_threads(read, rows, self.threads)
        problems = tuple(
            {
                "id": dataset.ids[rows[i]],
                "action": "skipped" if any(crop is None for crop in crops) else "converted",
                "why": problem,
            }
            for i, (crops, problem) in enumerate(done)
            if problem
        )
        block: dict[Geometry, Ready] = {}
        for number, geometry in enumerate(geometries):
            kept = {i: crop for i, (crops, _) in enumerate(done) if (crop := crops[number]) is not None}
            ids = tuple(dataset.ids[rows[i]] for i in kept)
            crops = list(kept.values())
            # Of one size: stacked, once for all shifts.
            images = np.stack(crops) if len({crop.shape for crop in crops}) == 1 else crops
            block[geometry] = Ready(images, tuple(kept), ids, problems)
        return block

    def shifted(self, shift: Shift, images: Pixels, ids: Sequence[str]) -> Pixels:
        """Images are shifted independently of each other, so threads share them."""
        size = max(1, -(-len(ids) // self.threads))
        parts = [slice(start, start + size) for start in range(0, len(ids), size)]
        if len(parts) < 2:
            return shift.batch(images, image_ids=ids, seed=self.seed)
        return np.concatenate(
            on_threads(lambda part: shift.batch(images[part], image_ids=ids[part], seed=self.seed), parts, self.threads)
        )


def stacked(images: Sequence[Pixels] | Pixels) -> Pixels:
    if isinstance(images, np.ndarray):
        return images
    if len({image.shape for image in images}) > 1:
        shapes = sorted({image.shape for image in images})
        raise ClassifierError(
            "images of different sizes can't be put in one batch",
            found=", ".join(map(str, shapes[:3])),
            expected="one size",
            hint="give the classifier a preprocessing with a crop",
        )
    return np.stack(images) if images else np.empty((0, 1, 1, 3), np.uint8)


# -- scoring ---------------------------------------------------------------------------------------------------------


class TroubleError(Exception):
    """Aborts the computation of some results; the others continue."""

    def __init__(self, trouble: Problem) -> None:
        super().__init__(str(trouble))
        self.trouble = trouble


@contextmanager
def blamed_on(who: str, images: Sequence[str]) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise TroubleError(Problem.of_error(who, error, images)) from error


class _BlockComputation:
    def __init__(self, evaluation: Evaluation, item: Block, advance: Advance) -> None:
        self.context, self.threads, self.known = evaluation.context, evaluation.threads, evaluation.known
        own = ImageMaker(self.context.datasets, self.context.seed, threads=self.threads)
        self.images = evaluation.images or own
        self.workspace, self.item, self.advance = evaluation.context.workspace, item, advance
        self.dataset: Dataset = self.context.datasets[item.whole]
        self.troubles: list[Problem] = []
        self.made = evaluation.made
        #: Results that share their images, and those images, of which each thread takes the next ones.
        self._groups: Iterator[list[PlannedResult]] | None = None
        self._ready: Iterator[Ready | Problem] = iter(())
        self._turn, self._busy = threading.Condition(), 0
        self._error: BaseException | None = None
        self._recorded_problems = False

    def compute(self, results: Sequence[PlannedResult]) -> list[Problem]:
        groups: dict[tuple[str, str], list[PlannedResult]] = {}
        for planned in results:
            recorded = self.context.classifiers[planned.result.classifier].recorded
            if recorded is None:
                groups.setdefault((repr(planned.geometry), planned.setting.shift.group), []).append(planned)
                continue
            with self._going_on():
                ids = [self.dataset.ids[row] for row in self._rows(planned)]
                with blamed_on(_the(recorded), ids):
                    found = recorded.lookup(ids, planned.space)
                scores = found.scores if planned.needs.scores else None
                self._write(planned, PredictionBlock(found.top[:, : planned.needs.top_k], found.confidence, scores))
        ordered = [groups[key] for key in sorted(groups)]
        # Shifts that are not made for each image alone begin with the images as they are.
        shifts = [(group[0].geometry, group[0].setting.shift) for group in ordered]
        wanted = [Wanted(geometry, shift if shift.per_image else None) for geometry, shift in shifts]
        self.offer(ordered, self.images(self.item, wanted) if wanted else iter(()))
        while self.take():
            pass
        with self._turn:
            self._turn.wait_for(lambda: self._busy <= 0)  # below 0 after Ctrl-C
        if self._error is not None:
            raise self._error
        for classifier, own in groupby(sorted(results, key=_classifier), _classifier):
            written = [self.workspace.block_path(planned.result, self.item) for planned in own]
            model = self.context.classifiers[classifier]
            with self._going_on(), blamed_on(_the(model), ()):
                self.context.watch.check(model, len(written) * len(self.item), written)
        return self.troubles

    def offer(self, groups: Sequence[list[PlannedResult]], ready: Iterator[Ready | Problem]) -> None:
        with self._turn:
            self._groups, self._ready = iter(groups), ready
            self._turn.notify_all()

    def take(self) -> bool:
        """Score the next group; False if none is left. Threads without a block of their own help with the last ones."""
        try:
            with self._turn:
                self._turn.wait_for(lambda: self._groups is not None)
                group = None if self._error or self._groups is None else next(self._groups, None)
                if group is None:
                    return False
                self._busy += 1
                ready = next(self._ready)
            self._score_group(group, ready)
        except BaseException as error:  # raised by the thread that computes the block
            self._error = error
        with self._turn:
            self._busy -= 1
            self._turn.notify_all()
        return True

    def _score_group(self, group: Sequence[PlannedResult], ready: Ready | Problem) -> None:
        if isinstance(ready, Problem):
            self.troubles.append(ready)
            return
        if ready.problems and not self._recorded_problems:
            self._recorded_problems = True
            name, fingerprint = self.dataset.name, self.dataset.fingerprint
            self.workspace.record_problems(name, fingerprint, self.item, list(ready.problems))
        for classifier, same_classifier in groupby(sorted(group, key=_classifier), _classifier):
            view = ModelView(self.context.classifiers[classifier], ready, self.context.seed, self.threads)
            for planned in same_classifier:
                with self._going_on():
                    self._score(planned, view)

    @contextmanager
    def _going_on(self) -> Iterator[None]:
        """Record a failure inside and continue after it."""
        try:
            yield
        except TroubleError as error:
            # Settings that share a computation share its trouble.
            if error.trouble not in self.troubles:
                self.troubles.append(error.trouble)

    def _rows(self, planned: PlannedResult) -> NDArray[np.int64]:
        return planned.rows_between(self.item.start, self.item.stop)

    def _score(self, planned: PlannedResult, view: ModelView) -> None:
        known, ready = self.known.get(planned.result.key), view.ready
        if known is not None:  # only the images whose predictions no earlier run made
            readable = np.array(ready.readable, np.int64)
            left = np.flatnonzero(~known.among(readable + self.item.start)).tolist()
            images = ready.images[left] if isinstance(ready.images, np.ndarray) else [ready.images[i] for i in left]
            ids = tuple(ready.ids[i] for i in left)
            ready = replace(ready, images=images, readable=tuple(readable[left].tolist()), ids=ids)
            view = replace(view, ready=ready, _shared={})
        asked = _Asked(planned, self.dataset, self.item, ready)
        scores = planned.setting.shift.scores_in(view, asked)
        # This setting's rows of the block, with gaps where an image could not be read.
        rows = self._rows(planned)
        position = np.full(len(self.item), -1)
        position[list(ready.readable)] = np.arange(len(ready.readable))
        places = position[rows - self.item.start]
        present = places >= 0
        block_ids = [self.dataset.ids[i] for i in range(self.item.start, self.item.stop)]
        with blamed_on(_the(view.classifier), block_ids):
            outputs = view.classifier.outputs
            block = predict(planned.projection(scores[places[present]]), outputs, planned.needs)
        if not present.all():
            block = block.spread(present)
        if known is not None:
            known.fill(block, rows)
        self._keep_images(planned, asked, block)
        self._write(planned, block)

    def _keep_images(self, planned: PlannedResult, asked: _Asked, block: PredictionBlock) -> None:
        """The most confident mistakes, where the report can't make their images again. Before the block, which is
        not computed again once it is there."""
        if not asked.shown or not planned.result.spec.judged_by_image:
            return
        stored, rows = as_stored(block), self._rows(planned).tolist()
        wrong = [i for i, r in enumerate(rows) if r in asked.shown and 0 <= asked.true_class[r] != stored.top[i, 0]]
        wrong.sort(key=lambda i: -float(stored.confidence[i]))
        images = [
            ShiftedImage.of(self.dataset.ids[rows[i]], float(stored.confidence[i]), asked.shown[rows[i]])
            for i in wrong[:MOST_SHIFTED_IMAGES]
        ]
        if images:
            path = self.workspace.block_path(planned.result, self.item)
            write_shifted_images(self.workspace.files, path.with_suffix(".images"), images)

    def _write(self, planned: PlannedResult, block: PredictionBlock) -> None:
        path = self.workspace.block_path(planned.result, self.item)
        write_block(path, block, planned.result.spec, self.context.made_by, compressed=False)
        if self.made is not None:
            self.made.setdefault(planned.result.key, {})[self.item] = as_stored(block)
        self.advance(len(block))


def _classifier(planned: PlannedResult) -> str:
    return planned.result.classifier


def predict(scores: Scores, outputs: str, needs: Needs) -> PredictionBlock:
    """Scores over a setting's label space to classes and confidence; ties go to the lower index."""
    k, kept = min(needs.top_k, scores.shape[1]), scores if needs.scores else None
    if len(scores) == 0:
        return PredictionBlock(np.empty((0, k), np.int32), np.empty(0, np.float32), kept)
    top = np.empty((len(scores), k), np.int32)
    best_classes(np.ascontiguousarray(scores, np.float32), top)
    return PredictionBlock(top, best_confidence(scores, outputs), kept)


def _the(classifier: Classifier) -> str:
    return f"classifier {classifier.name!r}"


@dataclass(frozen=True)
class ModelView:
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
        classifier, batch = self.classifier, stacked(images)

        def score(part: slice) -> Scores:
            with blamed_on(_the(classifier), ids[part]):
                return self.checked(classifier.scores(batch[part]), ids[part])

        size = classifier.batch_size
        parts = [slice(start, start + size) for start in range(0, len(batch), size)]
        none = np.empty((0, len(classifier.space)), np.float32)
        return np.concatenate([none, *on_threads(score, parts, self.threads)])

    def checked(self, scores: Scores, ids: Sequence[str]) -> Scores:
        expected = (len(ids), len(self.classifier.space))
        if scores.shape != expected:
            raise ClassifierError(
                f"{_the(self.classifier)} returned scores of the wrong shape",
                found=scores.shape,
                expected=expected,
                hint=f"name its label space with {argument('labels')}, or correct the model's last layer",
            )
        probabilities = self.classifier.outputs == "probabilities"
        fine = (np.isfinite(scores) & (scores >= (0 if probabilities else -np.inf))).all(axis=1)
        if not fine.all():
            what = f"nan or inf{', or a negative probability,' * probabilities}"
            raise ClassifierError(f"{_the(self.classifier)} returned {what} for image {ids[int(fine.argmin())]!r}")
        return scores

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
        return blamed_on(f"{who} for {_the(self.classifier)}", ids)


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
    def true_class(self) -> dict[int, int]:
        """In the setting's label space, by row of the dataset."""
        data = self.dataset
        chosen = setting_rows(data.labels, data.space, self.planned.space, data.label_sets)
        return dict(zip(chosen.rows.tolist(), chosen.labels.tolist(), strict=True))

    @cached_property
    def _labels(self) -> dict[int, int]:
        """By position among the ready images, for the model."""
        rows = {i: self.item.start + place for i, place in enumerate(self.ready.readable)}
        own = {i: self.true_class[row] for i, row in rows.items() if row in self.true_class}
        columns = self._columns
        return {i: columns[label] if label >= 0 else -1 for i, label in own.items()}

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
