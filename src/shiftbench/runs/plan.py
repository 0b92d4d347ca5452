"""Planning a run: which results (classifier x setting) there are, and which blocks of images they still need."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shiftbench.classifiers.base import Classifier
from shiftbench.datasets.base import Dataset
from shiftbench.datasets.geometry import Geometry
from shiftbench.errors import SettingError, StoreError, argument
from shiftbench.grouping import by_key
from shiftbench.io.paths import Location, UnreachableError
from shiftbench.jobs.base import Block
from shiftbench.labels import label_space
from shiftbench.labels.space import LabelSpace, Projection
from shiftbench.metrics.base import Needs
from shiftbench.runs.behaviour import ModelWatch
from shiftbench.settings.base import LeftOut, Setting
from shiftbench.store.prediction_files import PredictionBlock, read_block
from shiftbench.store.predictions import setting_rows
from shiftbench.store.run_records import RunRecord
from shiftbench.store.spec import ClassifierRecord, DatasetRef, GeometryRecord, ResultSpec, ShiftRecord
from shiftbench.store.workspace import Result, Workspace, block_range, blocks_in, space_key

#: Images per block: at most this many, so that an interrupted run loses little ...
_MAX_BLOCK_SIZE = 256
#: ... and at least this many, so that files and locks cost little.
_MIN_BLOCK_SIZE = 16
#: A dataset with few images has about this many blocks.
_BLOCKS_OF_A_SMALL_DATASET = 32
#: From this many blocks on, their number is a multiple of it.
_EVEN_COUNT = 8


def record_images(workspace: Workspace, dataset: Dataset) -> None:
    """Keep ids, labels and further columns of a dataset's images."""
    workspace.record_dataset(
        dataset.name,
        dataset.fingerprint,
        dataset.space,
        dataset.ids,
        dataset.labels,
        dataset.describe(),
        label_sets=dataset.label_sets,
    )
    workspace.record_metadata(dataset.name, dataset.fingerprint, dataset.metadata)


@dataclass(frozen=True)
class PlannedResult:
    """A result with all that computing it needs."""

    result: Result
    setting: Setting
    dataset: str
    geometry: Geometry
    space: LabelSpace
    projection: Projection
    rows: NDArray[np.int64]  #: Rows of the dataset that the setting uses, ascending.
    #: What is stored of it: no more than the label space, or a record made elsewhere, can give.
    needs: Needs

    def rows_between(self, start: int, stop: int) -> NDArray[np.int64]:
        """The rows from ``start`` to before ``stop``."""
        low, high = np.searchsorted(self.rows, [start, stop])
        return self.rows[low:high]


@dataclass(frozen=True)
class RunContext:
    """All that a worker needs; sent once to each."""

    workspace: Workspace
    datasets: Mapping[str, Dataset]
    classifiers: Mapping[str, Classifier]
    results: tuple[PlannedResult, ...]
    seed: int
    made_by: str
    #: Seconds to wait for a block that another run computes; True: until it is done.
    patience: float | bool = True
    #: Distinguishes the locks, where a run's classifiers are computed apart: two parts may be at one block at once.
    part: str = ""
    watch: ModelWatch = field(default_factory=ModelWatch)
    record: RunRecord | None = None
    #: Settings of the suite that the run does not evaluate.
    left_out: tuple[LeftOut, ...] = ()


def block_count(images: int) -> int:
    """How many blocks: it depends on the dataset alone, so that any number of workers gives the same files.

    A multiple of eight, of nearly equal blocks: two, four or eight workers are done at the same time.

    >>> [block_count(images) for images in (5, 114, 1000, 50_000)]
    [1, 8, 32, 200]
    """
    size = math.ceil(images / _BLOCKS_OF_A_SMALL_DATASET)
    size = max(_MIN_BLOCK_SIZE, min(_MAX_BLOCK_SIZE, size))
    count = math.ceil(images / size)
    if count < _EVEN_COUNT:
        return count
    return _EVEN_COUNT * math.ceil(count / _EVEN_COUNT)


def work_items(name: str, dataset: Dataset, workers: int = 1) -> list[Block]:
    """The blocks of a dataset; for more workers than there are blocks, each is cut into 2, 4, 8, ... parts."""
    images = len(dataset)
    count = block_count(images)
    parts = 1
    while count * parts < 2 * workers and images >= 2 * parts * count * _MIN_BLOCK_SIZE:
        parts *= 2
    boundaries = [i * images // (count * parts) for i in range(count * parts + 1)]
    return [Block(start, stop, name, parts > 1) for start, stop in itertools.pairwise(boundaries)]


class BlockState(NamedTuple):
    """A block of a result: the number of its predictions, and whether they are still to be made."""

    block: Block
    predictions: int
    is_missing: bool


class Common:
    """Values that many results share, stored once: 40,000 results must fit into memory and be sent to workers."""

    def __init__(self) -> None:
        self.rows = cache(_setting_rows)
        self.projection = cache(LabelSpace.projection_from)


def _setting_rows(dataset: Dataset, space: LabelSpace) -> NDArray[np.int64]:
    return setting_rows(dataset.labels, dataset.space, space, dataset.label_sets).rows


def plan_result(
    classifier: Classifier,
    setting: Setting,
    dataset: Dataset,
    needs: Needs,
    seed: int,
    workspace: Workspace,
    common: Common | None = None,
) -> PlannedResult:
    """A result whose spec has everything that decides the predictions, and nothing else (no time, no path, no worker
    count); SettingError if classifier, data and label spaces don't fit together."""
    common = common or Common()
    space = dataset.space if setting.space is None else label_space(setting.space)
    rows = common.rows(dataset, space)
    if len(rows) == 0:
        raise SettingError(
            f"setting {setting.name!r} has no images: no label of {dataset.name!r} is a class of {space.name!r}",
            found=f"labels of {dataset.space.name!r}",
        )
    projection = common.projection(space, classifier.space)
    if classifier.stateful and not setting.shift.per_image:
        raise SettingError(
            f"{setting.name!r} can't be evaluated with the stateful model {classifier.name!r}",
            found=f"the shift {setting.shift.name!r}, which runs the model several times per image",
            expected="settings that change each image once, such as corruptions",
        )
    recorded_space = workspace.record_space(space)
    geometry = setting_geometry(classifier.preprocessing.geometry, setting)
    stored = Needs(min(needs.top_k, len(space)), scores=needs.scores)
    if classifier.outputs == "answers":
        stored = Needs(1, scores=False)  # a model that names one class has no second one, and no scores
    if classifier.recorded is not None:
        # Predictions made elsewhere must be of these images, and hold only what was recorded.
        if setting.shifted and not classifier.recorded.of_shifted_images:
            raise SettingError(
                f"{classifier.name!r} holds predictions made elsewhere; it can't be run under {setting.name!r}",
                hint=f"evaluate it on settings whose images are used as they are: {argument('suite', 'clean')}",
            )
        classifier.recorded.check_ids(dataset.ids)
        answer = classifier.recorded.lookup(dataset.ids[:1], space)
        stored = Needs(min(stored.top_k, answer.top.shape[1]), scores=stored.scores and answer.scores is not None)
    provenance, family = _provenance(setting, dataset, recorded_space, len(rows), seed)
    shift_identity = setting.shift.identity()
    if setting.shifted or classifier.stateful:
        # The seed also decides the order in which a stateful model sees the images.
        shift_identity = {**shift_identity, "seed": seed}
    spec = ResultSpec(
        ClassifierRecord(classifier.describe()),
        DatasetRef({"name": dataset.name, "fingerprint": dataset.fingerprint}),
        len(rows),
        GeometryRecord(geometry.describe()),
        ShiftRecord(shift_identity),
        setting.source,
        space_key(recorded_space),
        setting.reference,
        setting.metric,
        provenance,
        family,
    )
    result = Result(classifier.name, setting.name, spec)
    if not workspace.predictions_path(result).exists():
        setting.shift.check_setting(classifier, setting.name, dataset, projection)
    return PlannedResult(result, setting, setting.dataset, geometry, space, projection, rows, stored)


def setting_geometry(geometry: Geometry, setting: Setting) -> Geometry:
    """How the setting's images are resized and cropped for a classifier with this geometry."""
    if setting.uncropped:
        return replace(geometry, crop=None)
    if setting.crop_only and geometry.crop is not None:
        # A file that has the classifier's size stays as it is; a classifier of another size gets it resized once.
        return replace(geometry, resize=geometry.crop, resize_rule="exact")
    return geometry


def _provenance(setting: Setting, dataset: Dataset, space: LabelSpace, images: int, seed: int) -> tuple[str, str]:
    """(line, family): what two numbers must share to stand in one column, and to be averaged over corruptions.

    The classifier's own preprocessing is not part of it: it belongs to the row.
    """
    images_used = f"{dataset.name} ({images} images, {dataset.fingerprint[:8]})"
    common = [f"over {space.name} ({len(space)})"]
    if dataset.label_sets is not None:
        common.append("several labels an image")
    if setting.source is not None:
        common.append(setting.source)
    if setting.crop_only:
        common.append("centre crop only")
    if setting.source == "on-disk":
        # Released files: a folder for each corruption and severity, so that each is a dataset of its own.
        return "; ".join([images_used, *common]), "; ".join([f"{images} images", *common])
    common.insert(0, images_used)
    if not setting.shifted:
        return "; ".join(common), "; ".join(common)
    shift = setting.shift.describe()
    # Options belong to one corruption, whose results may be averaged with those of corruptions without options.
    of_line = [f"{key} {shift[key]}" for key in ("generator", "options", "then") if key in shift]
    of_family = [f"{key} {shift[key]}" for key in ("generator", "then") if key in shift]
    line = [setting.shift.name, *common, ", ".join([*of_line, f"seed {seed}"])]
    if "frost" in shift:
        line.append(f"frost: {shift['frost']}")
    if "assignment" in shift:
        line.append(f"design {shift['assignment']['design']} {shift['assignment']['digest']}")
    family = [*common, ", ".join([*of_family, f"seed {seed}"])]
    return "; ".join(line), "; ".join(family)


def is_complete(workspace: Workspace, planned: PlannedResult) -> bool:
    """Whether the result's file exists, is undamaged and unedited, and has the columns that are needed."""
    scores = planned.needs.scores
    return _usable(lambda: workspace.read_block(planned.result, scores=scores), len(planned.rows), planned) is not None


def block_is_complete(workspace: Workspace, planned: PlannedResult, item: Block) -> bool:
    """As ``is_complete``, for the file of one block; a block without images of the result is complete."""
    rows = len(planned.rows_between(item.start, item.stop))
    path = workspace.block_path(planned.result, item)
    return rows == 0 or _read(path, rows, planned, planned.needs.scores) is not None


def covering(blocks: Iterable[Block], target: Block) -> list[Block]:
    """Blocks that hold a range of images together, of those that ``stored_blocks`` found; none if images are missing.

    A run with another number of workers may have cut the blocks otherwise.
    """
    covering_blocks: list[Block] = []
    reached = target.start
    for block in blocks:
        if block.start <= reached < min(block.stop, target.stop):
            covering_blocks.append(block)
            reached = block.stop
    if reached < target.stop:
        return []
    return covering_blocks


def read_blocks(
    workspace: Workspace,
    planned: PlannedResult,
    blocks: Sequence[Block],
    target: Block,
    kept: Mapping[Block, PredictionBlock] | None = None,
) -> PredictionBlock | None:
    """The predictions for a range of images; None while some are missing, damaged or lack columns.

    Of the ``blocks`` that are stored, those whose predictions this process has ``kept`` are not read again.
    """
    kept = kept or {}
    while covering_blocks := covering(blocks, target):
        predictions: list[PredictionBlock] = []
        damaged: set[Block] = set()
        reached = target.start
        for block in covering_blocks:
            rows = planned.rows_between(block.start, block.stop)
            first, last = np.searchsorted(rows, [reached, target.stop])
            reached = block.stop
            if first == last:
                continue
            stored = kept.get(block) or _read(workspace.block_path(planned.result, block), len(rows), planned)
            if stored is None:
                damaged.add(block)
            elif len(stored) == last - first:
                predictions.append(stored)
            else:
                predictions.append(stored.part(slice(first, last)))
        if not damaged:
            return PredictionBlock.concatenate(predictions)
        # Other blocks may cover the range without the damaged ones.
        blocks = [block for block in blocks if block not in damaged]
    return None


def stored_blocks(workspace: Workspace, planned: PlannedResult, dataset: Dataset) -> list[Block]:
    """The blocks of a result that are stored, damaged or not.

    A block without any of the result's images counts as stored: no file is written for it.
    """
    whole_blocks = {block.start: block for block in work_items(planned.dataset, dataset)}
    stored = [block for block in whole_blocks.values() if not len(planned.rows_between(block.start, block.stop))]
    for file in blocks_in(workspace.blocks_folder(planned.result)):
        # Only the name of a part states where it ends; a whole block ends where the plan says.
        start, stop = block_range(file)
        if stop is not None:
            stored.append(Block(start, stop, planned.dataset, is_part=True))
        elif start in whole_blocks:
            stored.append(whole_blocks[start])
    # Where several blocks begin at one image, the largest comes first.
    return sorted(stored, key=lambda block: (block.start, -block.stop))


def _read(path: Location, rows: int, planned: PlannedResult, scores: bool = True) -> PredictionBlock | None:
    """The predictions in the file of a block; None if they can't be used."""
    return _usable(lambda: read_block(path, scores=scores, key=planned.result.key), rows, planned)


def _usable(read: Callable[[], PredictionBlock], rows: int, planned: PlannedResult) -> PredictionBlock | None:
    """What is read; None if it is missing, damaged, or lacks rows or columns that are needed."""
    try:
        block = read()
    except UnreachableError:
        raise  # says nothing about the file
    except (FileNotFoundError, StoreError):
        # A file that is missing, damaged, edited or exchanged is computed again.
        return None
    needs = planned.needs
    if block.top.shape[1] < needs.top_k or (needs.scores and block.scores is None):
        return None
    return block if len(block) == rows else None


def all_items(planned: Iterable[PlannedResult], datasets: Mapping[str, Dataset], workers: int = 1) -> list[Block]:
    """Every block of a run, done or not, in an order that depends on the run alone."""
    items: list[Block] = []
    for name in sorted({result.dataset for result in planned}):
        items += work_items(name, datasets[name], workers)
    return items


class MissingItems(NamedTuple):
    """What is left to do of some blocks."""

    #: The blocks that some result still lacks.
    items: list[Block]
    #: Number of predictions that are still to be made.
    to_do: int
    #: Number of predictions that are stored.
    done: int


def missing_items(
    workspace: Workspace, planned: Iterable[PlannedResult], items: Sequence[Block], datasets: Mapping[str, Dataset]
) -> MissingItems:
    """What the results still lack of these blocks, longer blocks first."""
    missing: set[Block] = set()
    to_do = 0
    done = 0
    for state in itertools.chain.from_iterable(block_states(workspace, planned, items, datasets)):
        if state.is_missing:
            missing.add(state.block)
            to_do += state.predictions
        else:
            done += state.predictions
    # Longer blocks first, so that workers end at nearly the same time.
    longest_first = sorted(missing, key=lambda item: (item.whole, -len(item), item.start))
    return MissingItems(longest_first, to_do, done)


def block_states(
    workspace: Workspace, planned: Iterable[PlannedResult], items: Sequence[Block], datasets: Mapping[str, Dataset]
) -> Iterator[list[BlockState]]:
    """The states of the blocks of each result."""
    started = {folder.name for folder in workspace.block_folders()}
    items_of_dataset = by_key((item.whole, item) for item in items)

    def states(result: PlannedResult) -> list[BlockState]:
        blocks = items_of_dataset.get(result.dataset, [])
        limits = np.searchsorted(result.rows, [(block.start, block.stop) for block in blocks]).reshape(-1, 2)
        counts = (limits[:, 1] - limits[:, 0]).tolist()
        if result.result.key not in started:
            return [BlockState(block, count, count > 0) for block, count in zip(blocks, counts, strict=True)]
        stored = stored_blocks(workspace, result, datasets[result.dataset])
        block_states = []
        for block, count in zip(blocks, counts, strict=True):
            is_missing = count > 0 and read_blocks(workspace, result, stored, block) is None
            block_states.append(BlockState(block, count, is_missing))
        return block_states

    with ThreadPoolExecutor() as pool:
        yield from pool.map(states, planned)
