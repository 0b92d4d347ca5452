"""Computing one block: each of its images is read once, cut to every geometry and shifted, then scored by each model.

Images are prepared by the worker that computes the block, or by a reader that serves all workers of its machine
(``jobs.ray_executor``).
"""

from __future__ import annotations

import math
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
from shiftbench.classifiers.recorded import RecordedPredictions, best_confidence
from shiftbench.datasets.base import Dataset
from shiftbench.datasets.geometry import Geometry
from shiftbench.errors import BadImageError, ClassifierError, argument
from shiftbench.grouping import by_key
from shiftbench.io.locks import file_lock
from shiftbench.io.paths import Location
from shiftbench.jobs.base import Block, Demand, Job, Problem, Reader
from shiftbench.jobs.progress import Advance
from shiftbench.jobs.threads import on_threads
from shiftbench.labels.space import NO_ANSWER, Labels, Scores
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
KeptPredictions = dict[str, dict[Block, PredictionBlock]]
#: Number of blocks that a reader remembers: enough for workers that are at nearly the same one.
_REMEMBERED_BLOCKS = 4
#: How far a probability may lie above 1.
_ROUNDING = 1e-3
#: Ids of the runs in whose records this process has entered its software.
_recorded_runs: set[str] = set()


@dataclass(frozen=True)
class Evaluation(Job[Block]):
    """The blocks of a run, as a job."""

    context: RunContext
    #: By the key of a result: predictions that the workspace holds already.
    known: Mapping[str, KnownRows] = field(default_factory=dict)
    threads: int = 1
    #: Whether blocks that another run is computing are left to it.
    skip_claimed: bool = False
    #: What prepares the images; by default the worker itself.
    images: Reader | None = None
    #: The predictions of this process, which are joined without being read again; None if they are too many.
    kept: KeptPredictions | None = None
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
        patience = self.context.patience if wait else False
        with file_lock(lock, wait=patience, while_waiting=lambda: advance(0)) as is_locked:
            if not is_locked:
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
            problems = computation.compute(pending)
        record = self.context.record
        if record is not None and record.id not in _recorded_runs:
            _recorded_runs.add(record.id)
            record_worker(workspace, record)
        return problems

    def assist(self) -> bool:
        return any(computation.take() for computation in list(self._open))

    def threaded(self, threads: int) -> Evaluation:
        return replace(self, threads=threads)

    def reader(self, threads: int) -> Reader:
        return ImageMaker(self.context.datasets, self.context.seed, threads=threads, remembered=_REMEMBERED_BLOCKS)

    def with_reader(self, feed: Reader) -> Evaluation:
        return replace(self, images=feed)

    def divided(
        self, items: Sequence[Block], demand_of: Callable[[str], Demand]
    ) -> dict[Demand, tuple[Job[Block], Sequence[Block]]]:
        """By what the classifiers need: those of the same needs share workers, and read each image once."""
        models = dict.fromkeys(planned.result.classifier for planned in self.context.results)
        demands = {name: demand_of(name) for name in models}
        names_by_demand = by_key((demand, name) for name, demand in demands.items())
        jobs: dict[Demand, tuple[Job[Block], Sequence[Block]]] = {}
        for number, (demand, names) in enumerate(names_by_demand.items()):
            results = [planned for planned in self.context.results if demands[planned.result.classifier] == demand]
            classifiers = {name: self.context.classifiers[name] for name in names}
            part = f"-{number}" if number else ""
            context = replace(self.context, classifiers=classifiers, results=tuple(results), part=part)
            datasets = {planned.dataset for planned in results}
            jobs[demand] = replace(self, context=context), [item for item in items if item.whole in datasets]
        return jobs


# -- preparing images ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ImageRequest:
    """All images of a block in one geometry: stacked and shifted or, without a shift, as they are."""

    geometry: Geometry
    shift: Shift | None


@dataclass(frozen=True)
class Ready:
    """The requested images of a block, as far as they could be read."""

    images: Sequence[Pixels] | Pixels
    #: Positions of the images in the block.
    readable: tuple[int, ...]
    ids: tuple[str, ...]
    #: Images of the block that were skipped or converted, and why.
    problems: tuple[dict[str, str], ...] = ()


@dataclass(frozen=True)
class _Crops:
    """An image in every requested geometry; None where it could not be read or cut."""

    image_id: str
    crops: list[Pixels | None]
    #: What was converted when the image was read, or why it can't be used; empty if nothing was.
    problem: str

    def describe_problem(self) -> dict[str, str]:
        is_skipped = any(crop is None for crop in self.crops)
        return {"id": self.image_id, "action": "skipped" if is_skipped else "converted", "why": self.problem}


class ImageMaker:
    """Reads the blocks of a run's datasets, and reports which images could not be used. Safe with threads.

    For several workers, which ask for the same blocks at nearly the same time, the last ones are ``remembered``, so
    that each is read once.
    """

    def __init__(self, datasets: Mapping[str, Dataset], seed: int, *, threads: int = 1, remembered: int = 0) -> None:
        self.datasets = datasets
        self.seed = seed
        self.threads = threads
        self.remembered = remembered
        self._blocks: OrderedDict[Block, dict[Geometry, Ready]] = OrderedDict()
        self._turn = threading.Lock()

    def __reduce__(self) -> tuple[object, ...]:
        return partial(ImageMaker, threads=self.threads, remembered=self.remembered), (self.datasets, self.seed)

    def __call__(self, item: Block, requests: Sequence[ImageRequest]) -> Iterator[Ready | Problem]:
        """The images in the requested order; a shift that fails yields a Problem."""
        geometries = list(dict.fromkeys(request.geometry for request in requests))
        if self.remembered:
            block = self._read_once(item, geometries)
        else:
            block = self._read(item, geometries)
        for request in requests:
            ready = block[request.geometry]
            if request.shift is None:
                yield ready
                continue
            try:
                images = self.shifted(request.shift, stacked(ready.images), ready.ids)
            except Exception as error:
                yield Problem.of_error(f"shift {request.shift.name!r}", error, ready.ids)
            else:
                yield replace(ready, images=images)
                del images  # free the memory before the next are computed

    def _read_once(self, item: Block, geometries: Sequence[Geometry]) -> dict[Geometry, Ready]:
        """As ``_read``, but a remembered block is not read again."""
        with self._turn:  # one worker reads the block, the others wait for it
            block = self._blocks.get(item, {})
            if not set(geometries) <= set(block):
                block = self._read(item, list(dict.fromkeys([*block, *geometries])))
                self._blocks[item] = block
            self._blocks.move_to_end(item)
            while len(self._blocks) > self.remembered:
                self._blocks.popitem(last=False)
        return block

    def _read(self, item: Block, geometries: Sequence[Geometry]) -> dict[Geometry, Ready]:
        """Every readable image once, in every geometry, and what was wrong with the others."""
        return self.read_rows(self.datasets[item.whole], range(item.start, item.stop), geometries)

    def read_rows(self, dataset: Dataset, rows: Sequence[int], geometries: Sequence[Geometry]) -> dict[Geometry, Ready]:
        """As ``_read``, for any rows of a dataset; ``Ready.readable`` are positions among them."""
        decodings = dict.fromkeys(geometry.decoding for geometry in geometries)
        views = {decoding: dataset.decoded_as(decoding) for decoding in decodings}

        def read(index: int) -> _Crops:
            """One image in every geometry."""
            crops: list[Pixels | None] = []
            try:
                images = {decoding: view.read(index) for decoding, view in views.items()}
            except BadImageError as error:
                return _Crops(dataset.ids[index], [None] * len(geometries), error.message)
            problem = next((image.converted for image in images.values()), "")
            for geometry in geometries:
                try:
                    crops.append(geometry(images[geometry.decoding].pixels))
                except BadImageError as error:
                    crops.append(None)
                    problem = f"{dataset.ids[index]} can't be used: {error.found}"
            return _Crops(dataset.ids[index], crops, problem)

        images_read = on_threads(read, rows, self.threads)
        problems = tuple(image.describe_problem() for image in images_read if image.problem)
        block: dict[Geometry, Ready] = {}
        for number, geometry in enumerate(geometries):
            readable: list[int] = []
            ids: list[str] = []
            crops: list[Pixels] = []
            for position, image in enumerate(images_read):
                crop = image.crops[number]
                if crop is not None:
                    readable.append(position)
                    ids.append(image.image_id)
                    crops.append(crop)
            # Images of one size are stacked once, for all shifts.
            have_one_size = len({crop.shape for crop in crops}) == 1
            block[geometry] = Ready(np.stack(crops) if have_one_size else crops, tuple(readable), tuple(ids), problems)
        return block

    def shifted(self, shift: Shift, images: Pixels, ids: Sequence[str]) -> Pixels:
        """Images are shifted independently of each other, so threads share them."""
        size = max(1, math.ceil(len(ids) / self.threads))
        parts = [slice(start, start + size) for start in range(0, len(ids), size)]
        if len(parts) < 2:
            return shift.batch(images, image_ids=ids, seed=self.seed)

        def shift_part(part: slice) -> Pixels:
            return shift.batch(images[part], image_ids=ids[part], seed=self.seed)

        return np.concatenate(on_threads(shift_part, parts, self.threads))


def stacked(images: Sequence[Pixels] | Pixels) -> Pixels:
    """The images as one array; ClassifierError if their sizes differ."""
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
    """Turn an exception inside into a TroubleError that names who failed, and on which images."""
    try:
        yield
    except Exception as error:
        raise TroubleError(Problem.of_error(who, error, images)) from error


class _BlockComputation:
    """The predictions for one block: the thread that computes it prepares the images, and others may help to score."""

    def __init__(self, evaluation: Evaluation, item: Block, advance: Advance) -> None:
        self.context = evaluation.context
        self.threads = evaluation.threads
        self.known = evaluation.known
        own_reader = ImageMaker(self.context.datasets, self.context.seed, threads=self.threads)
        self.images = evaluation.images or own_reader
        self.workspace = evaluation.context.workspace
        self.item = item
        self.advance = advance
        self.dataset: Dataset = self.context.datasets[item.whole]
        self.troubles: list[Problem] = []
        self.kept = evaluation.kept
        #: Results that share their images, and those images, of which each thread takes the next ones.
        self._groups: Iterator[list[PlannedResult]] | None = None
        self._ready: Iterator[Ready | Problem] = iter(())
        self._turn = threading.Condition()
        #: Number of threads that are scoring a group.
        self._busy = 0
        self._error: BaseException | None = None
        self._recorded_problems = False

    def compute(self, results: Sequence[PlannedResult]) -> list[Problem]:
        """Write the predictions of these results for the block; what failed is returned."""
        for model, paths in self._blocks_by_model(results):
            self.context.watch.begin(model, paths)
        groups: dict[tuple[str, str], list[PlannedResult]] = {}
        for planned in results:
            recorded = self.context.classifiers[planned.result.classifier].recorded
            if recorded is None:
                groups.setdefault((repr(planned.geometry), planned.setting.shift.group), []).append(planned)
            else:
                with self._going_on():
                    self._copy_recorded(planned, recorded)
        ordered = [groups[key] for key in sorted(groups)]
        requests: list[ImageRequest] = []
        for group in ordered:
            shift = group[0].setting.shift
            # Shifts that are not made for each image alone begin with the images as they are.
            requests.append(ImageRequest(group[0].geometry, shift if shift.per_image else None))
        self.offer(ordered, self.images(self.item, requests) if requests else iter(()))
        while self.take():
            pass
        with self._turn:
            self._turn.wait_for(lambda: self._busy <= 0)  # below 0 after Ctrl-C
        if self._error is not None:
            raise self._error
        for model, written in self._blocks_by_model(results):
            with self._going_on(), blamed_on(_the(model), ()):
                self.context.watch.check(model, len(written) * len(self.item), written)
        return self.troubles

    def _blocks_by_model(self, results: Sequence[PlannedResult]) -> Iterator[tuple[Classifier, list[Location]]]:
        """Each model with the files that its results have for this block."""
        for classifier, same_classifier in groupby(sorted(results, key=_classifier), _classifier):
            paths = [self.workspace.block_path(planned.result, self.item) for planned in same_classifier]
            yield self.context.classifiers[classifier], paths

    def _copy_recorded(self, planned: PlannedResult, recorded: RecordedPredictions) -> None:
        """Write predictions that were made elsewhere."""
        ids = [self.dataset.ids[row] for row in self._rows(planned)]
        with blamed_on(_the(recorded), ids):
            answer = recorded.lookup(ids, planned.space)
        scores = answer.scores if planned.needs.scores else None
        self._write(planned, PredictionBlock(answer.top[:, : planned.needs.top_k], answer.confidence, scores))

    def offer(self, groups: Sequence[list[PlannedResult]], ready: Iterator[Ready | Problem]) -> None:
        """Let all threads take groups of results that share their images; ``ready`` yields the images of each group."""
        with self._turn:
            self._groups = iter(groups)
            self._ready = ready
            self._turn.notify_all()

    def take(self) -> bool:
        """Score the next group; False if none is left. Threads without a block of their own help with the last ones."""
        try:
            with self._turn:
                self._turn.wait_for(lambda: self._groups is not None)
                if self._error or self._groups is None:
                    return False
                group = next(self._groups, None)
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
            self.workspace.record_problems(self.dataset.name, self.dataset.fingerprint, self.item, list(ready.problems))
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
        """Rows of the dataset that are in this block and in the result's setting."""
        return planned.rows_between(self.item.start, self.item.stop)

    def _score(self, planned: PlannedResult, view: ModelView) -> None:
        known_rows = self.known.get(planned.result.key)
        ready = view.ready
        if known_rows is not None:
            ready = self._without_known(ready, known_rows)
            view = replace(view, ready=ready, _shared={})
        asked = _Asked(planned, self.dataset, self.item, ready)
        scores = planned.setting.shift.scores_in(view, asked)
        # This setting's rows of the block, with gaps where an image could not be read.
        rows = self._rows(planned)
        score_row = np.full(len(self.item), -1)
        score_row[list(ready.readable)] = np.arange(len(ready.readable))
        score_rows = score_row[rows - self.item.start]
        present = score_rows >= 0
        block_ids = [self.dataset.ids[i] for i in range(self.item.start, self.item.stop)]
        with blamed_on(_the(view.classifier), block_ids):
            outputs = view.classifier.outputs
            block = predict(planned.projection(scores[score_rows[present]]), outputs, planned.needs)
        if not present.all():
            block = block.spread(present)
        if known_rows is not None:
            known_rows.fill(block, rows)
        self._keep_images(planned, asked, block)
        self._write(planned, block)

    def _without_known(self, ready: Ready, known_rows: KnownRows) -> Ready:
        """Only the images whose predictions no earlier run made."""
        readable = np.array(ready.readable, np.int64)
        unknown = np.flatnonzero(~known_rows.among(readable + self.item.start)).tolist()
        images: Sequence[Pixels] | Pixels
        if isinstance(ready.images, np.ndarray):
            images = ready.images[unknown]
        else:
            images = [ready.images[i] for i in unknown]
        ids = tuple(ready.ids[i] for i in unknown)
        return replace(ready, images=images, readable=tuple(readable[unknown].tolist()), ids=ids)

    def _keep_images(self, planned: PlannedResult, asked: _Asked, block: PredictionBlock) -> None:
        """Keep the images of the most confident mistakes, where the report can't make them again.

        This comes before the block is written: a block that is there is not computed again.
        """
        if not asked.shown or not planned.result.spec.judged_by_image:
            return
        stored = as_stored(block)
        rows = self._rows(planned).tolist()
        wrong: list[int] = []
        for i, row in enumerate(rows):
            if row in asked.shown and 0 <= asked.true_class[row] != stored.top[i, 0]:
                wrong.append(i)
        wrong.sort(key=lambda i: -float(stored.confidence[i]))
        images = []
        for i in wrong[:MOST_SHIFTED_IMAGES]:
            row = rows[i]
            images.append(ShiftedImage.of(self.dataset.ids[row], float(stored.confidence[i]), asked.shown[row]))
        if images:
            path = self.workspace.block_path(planned.result, self.item)
            write_shifted_images(self.workspace.files, path.with_suffix(".images"), images)

    def _write(self, planned: PlannedResult, block: PredictionBlock) -> None:
        path = self.workspace.block_path(planned.result, self.item)
        write_block(path, block, planned.result.spec, self.context.made_by, compressed=False)
        if self.kept is not None:
            self.kept.setdefault(planned.result.key, {})[self.item] = as_stored(block)
        self.advance(len(block))


def _classifier(planned: PlannedResult) -> str:
    return planned.result.classifier


def predict(scores: Scores, outputs: str, needs: Needs) -> PredictionBlock:
    """Scores over a setting's label space to classes and confidence; ties go to the lower index.

    An image for which a model that gives answers has named no class of the setting gets ``NO_ANSWER``.
    """
    k = min(needs.top_k, scores.shape[1])
    stored_scores = scores if needs.scores else None
    if len(scores) == 0:
        return PredictionBlock(np.empty((0, k), np.int32), np.empty(0, np.float32), stored_scores)
    top = np.empty((len(scores), k), np.int32)
    best_classes(np.ascontiguousarray(scores, np.float32), top)
    if outputs == "answers":
        top[scores.max(axis=1) == 0] = NO_ANSWER
    return PredictionBlock(top, best_confidence(scores, outputs), stored_scores)


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
        """The side of the square input that perturbation sequences are cropped to; None for a model without a crop."""
        crop = self.classifier.preprocessing.geometry.crop
        if isinstance(crop, tuple):
            raise ClassifierError(
                f"perturbation sequences need a square input, and {self.classifier.name!r} has another", found=crop
            )
        return crop

    def scores(self, images: Sequence[Pixels] | Pixels, ids: Sequence[str]) -> Scores:
        """The model's scores for these images, in batches of its size."""
        classifier = self.classifier
        batch = stacked(images)

        def score(part: slice) -> Scores:
            with blamed_on(_the(classifier), ids[part]):
                return self.checked(classifier.scores(batch[part]), ids[part])

        size = classifier.images_per_call
        parts = [slice(start, start + size) for start in range(0, len(batch), size)]
        no_scores = np.empty((0, len(classifier.space)), np.float32)  # gives the shape where there are no images
        return np.concatenate([no_scores, *on_threads(score, parts, self.threads)])

    def checked(self, scores: Scores, ids: Sequence[str]) -> Scores:
        """The scores, if they have the right shape and are possible; otherwise ClassifierError."""
        expected = (len(ids), len(self.classifier.space))
        if scores.shape != expected:
            raise ClassifierError(
                f"{_the(self.classifier)} returned scores of the wrong shape",
                found=scores.shape,
                expected=expected,
                hint=f"name its label space with {argument('labels')}, or correct the model's last layer",
            )
        lowest = -np.inf
        highest = np.inf
        fault = "nan or inf"
        hint = None
        if self.classifier.outputs == "probabilities":
            lowest = 0.0
            fault = "nan or inf, or a negative probability,"
            if "outputs" in self.classifier.assumed:
                # Percentages are recognised by their sum, so that what is assumed to be a probability is at most 1.
                highest = 1 + _ROUNDING
                fault = "nan or inf, or a score that is no probability,"
                option = argument("preprocessing", "outputs=logits", flag="--preprocess")
                hint = f"{option}, if the outputs are no probabilities"
        valid = (np.isfinite(scores) & (scores >= lowest) & (scores <= highest)).all(axis=1)
        if not valid.all():
            image_id = ids[int(valid.argmin())]
            raise ClassifierError(f"{_the(self.classifier)} returned {fault} for image {image_id!r}", hint=hint)
        return scores

    def shared(self, what: str, make: Callable[[], T]) -> T:
        """The value that ``make`` returned, or the exception that it raised, when ``what`` was first asked for."""
        if what not in self._shared:
            try:
                self._shared[what] = make()
            except Exception as error:
                self._shared[what] = error
        value = self._shared[what]
        if isinstance(value, Exception):
            raise value
        return cast("T", value)

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
        dataset = self.dataset
        labelled = setting_rows(dataset.labels, dataset.space, self.planned.space, dataset.label_sets)
        return dict(zip(labelled.rows.tolist(), labelled.labels.tolist(), strict=True))

    @cached_property
    def _labels(self) -> dict[int, int]:
        """By position among the ready images: the column of the true class in the model's scores, or -1 for none."""
        columns = self._columns
        labels: dict[int, int] = {}
        for i, position in enumerate(self.ready.readable):
            row = self.item.start + position
            if row in self.true_class:
                label = self.true_class[row]
                labels[i] = columns[label] if label >= 0 else -1
        return labels

    @property
    def _columns(self) -> list[int]:
        """By class of the setting: the first column of the model's scores that belongs to it."""
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
