"""Planning a run: which results (classifier x setting) there are, and which blocks of images they still need."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache

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
from shiftbench.settings.base import Setting
from shiftbench.store.prediction_files import PredictionBlock, read_block
from shiftbench.store.predictions import setting_rows
from shiftbench.store.run_records import RunRecord
from shiftbench.store.spec import ClassifierRecord, DatasetRef, GeometryRecord, ResultSpec, ShiftRecord
from shiftbench.store.workspace import Result, Workspace, block_range, blocks_in, space_key

#: Images per block, at most and at least; blocks of a small dataset.
_MOST, _FEWEST, _BLOCKS_OF_A_SMALL_SET, _EVEN_COUNT = 256, 16, 32, 8


def record_images(workspace: Workspace, dataset: Dataset) -> None:
    """Keep ids, labels and further columns of a dataset's images."""
    about = (dataset.space, dataset.ids, dataset.labels, dataset.describe())
    workspace.record_dataset(dataset.name, dataset.fingerprint, *about, label_sets=dataset.label_sets)
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


def block_count(images: int) -> int:
    """How many blocks: it depends on the dataset alone, so that any number of workers gives the same files.

    A multiple of eight, of nearly equal blocks: two, four or eight workers are done at the same time.

    >>> [block_count(images) for images in (5, 114, 1000, 50_000)]
    [1, 8, 32, 200]
    """
    size = max(_FEWEST, min(_MOST, math.ceil(images / _BLOCKS_OF_A_SMALL_SET)))
    count = math.ceil(images / size)
    return count if count < _EVEN_COUNT else _EVEN_COUNT * math.ceil(count / _EVEN_COUNT)


def work_items(name: str, dataset: Dataset, workers: int = 1) -> list[Block]:
    """The blocks of a dataset; for more workers than there are blocks, each is cut into 2, 4, 8, ... parts."""
    images, parts = len(dataset), 1
    count = block_count(images)
    while count * parts < 2 * workers and images >= 2 * parts * count * _FEWEST:
        parts *= 2
    ends = [i * images // (count * parts) for i in range(count * parts + 1)]
    return [Block(start, stop, name, parts > 1) for start, stop in itertools.pairwise(ends)]


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
    """Check that classifier, data and label spaces fit, and write down everything that decides the predictions, and
    nothing else (no time, no place, no worker count)."""
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
    geometry = classifier.preprocessing.geometry
    if setting.uncropped:
        geometry = replace(geometry, crop=None)
    elif setting.crop_only and geometry.crop is not None:
        # A file that has the classifier's size stays as it is; a classifier of another size gets it resized once.
        geometry = replace(geometry, resize=geometry.crop, resize_rule="exact")
    stored = Needs(min(needs.top_k, len(space)), scores=needs.scores)
    if classifier.recorded is not None:
        # Predictions made elsewhere: they must be of these images, and give only what was recorded.
        if setting.shifted:
            raise SettingError(
                f"{classifier.name!r} holds predictions made elsewhere; it can't be run under {setting.name!r}",
                hint=f"evaluate it on settings whose images are used as they are: {argument('suite', 'clean')}",
            )
        classifier.recorded.check_ids(dataset.ids)
        answer = classifier.recorded.lookup(dataset.ids[:1], space)
        stored = Needs(min(stored.top_k, answer.top.shape[1]), scores=stored.scores and answer.scores is not None)
    provenance, family = _provenance(setting, dataset, recorded_space, len(rows), seed)
    spec = ResultSpec(
        ClassifierRecord(classifier.describe()),
        DatasetRef({"name": dataset.name, "fingerprint": dataset.fingerprint}),
        len(rows),
        GeometryRecord(geometry.describe()),
        # The seed also decides the order in which a stateful model sees the images.
        ShiftRecord({**setting.shift.identity(), **({"seed": seed} if setting.shifted or classifier.stateful else {})}),
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


def _provenance(setting: Setting, dataset: Dataset, space: LabelSpace, images: int, seed: int) -> tuple[str, str]:
    """(line, family): what two numbers must share to stand in one column, and to be averaged over corruptions.

    The classifier's own preprocessing is not part of it: it belongs to the row.
    """
    own = f"{dataset.name} ({images} images, {dataset.fingerprint[:8]})"
    common = [f"over {space.name} ({len(space)})"]
    if dataset.label_sets is not None:
        common.append("several labels an image")
    if setting.source is not None:
        common.append(setting.source)
    if setting.crop_only:
        common.append("centre crop only")
    if setting.source == "on-disk":
        # Released files: a folder for each corruption and severity, so that each is a dataset of its own.
        return "; ".join([own, *common]), "; ".join([f"{images} images", *common])
    common.insert(0, own)
    if not setting.shifted:
        return "; ".join(common), "; ".join(common)
    about = setting.shift.describe()
    made = {key: f"{key} {about[key]}" for key in ("generator", "options", "then") if key in about}
    line = [*common, ", ".join([*made.values(), f"seed {seed}"])]
    made.pop("options", None)  # of one corruption: results without them may be averaged with it
    common.append(", ".join([*made.values(), f"seed {seed}"]))
    more = [f"frost: {about['frost']}"] if "frost" in about else []
    if "assignment" in about:
        more.append(f"design {about['assignment']['design']} {about['assignment']['digest']}")
    return "; ".join([setting.shift.name, *line, *more]), "; ".join(common)


def is_complete(workspace: Workspace, planned: PlannedResult) -> bool:
    """Whether the result's file is there, whole, untouched and has the columns that are needed."""
    return (
        _read(workspace.predictions_path(planned.result), len(planned.rows), planned, planned.needs.scores) is not None
    )


def block_is_complete(workspace: Workspace, planned: PlannedResult, item: Block) -> bool:
    rows = len(planned.rows_between(item.start, item.stop))
    path = workspace.block_path(planned.result, item)
    return rows == 0 or _read(path, rows, planned, planned.needs.scores) is not None


def covering(blocks: Iterable[Block], wanted: Block) -> list[Block]:
    """Blocks that hold a range of images together, of those that ``stored_blocks`` found; none if images are missing.

    A run with another number of workers may have cut the blocks otherwise.
    """
    chosen, reached = [], wanted.start
    for block in blocks:
        if block.start <= reached < min(block.stop, wanted.stop):
            chosen.append(block)
            reached = block.stop
    return chosen if reached >= wanted.stop else []


def read_blocks(
    workspace: Workspace,
    planned: PlannedResult,
    blocks: Sequence[Block],
    wanted: Block,
    made: Mapping[Block, PredictionBlock] | None = None,
) -> PredictionBlock | None:
    """The predictions for a range of images; None while some are missing, damaged or lack columns.

    Of the ``blocks`` that are stored, those that this process has ``made`` are not read again.
    """
    while chosen := covering(blocks, wanted):
        found: list[PredictionBlock] = []
        damaged: set[Block] = set()
        reached = wanted.start
        for block in chosen:
            own = planned.rows_between(block.start, block.stop)
            first, last = np.searchsorted(own, [reached, wanted.stop])
            reached = block.stop
            if first == last:
                continue
            read = (made or {}).get(block) or _read(workspace.block_path(planned.result, block), len(own), planned)
            if read is None:
                damaged.add(block)
            else:
                found.append(read if len(read) == last - first else read.part(slice(first, last)))
        if not damaged:
            return PredictionBlock.concatenate(found)
        blocks = [block for block in blocks if block not in damaged]
    return None


def stored_blocks(workspace: Workspace, planned: PlannedResult, dataset: Dataset) -> list[Block]:
    """The blocks and parts of a result that are there, damaged or not; and blocks without any of its images."""
    whole = {block.start: block for block in work_items(planned.dataset, dataset)}
    found = [block for block in whole.values() if not len(planned.rows_between(block.start, block.stop))]
    for start, stop in map(block_range, blocks_in(workspace.blocks_folder(planned.result))):
        if stop is not None:
            found.append(Block(start, stop, planned.dataset, is_part=True))
        elif start in whole:
            found.append(whole[start])
    # Of those that begin at one image the largest first.
    return sorted(found, key=lambda block: (block.start, -block.stop))


def _read(path: Location, rows: int, planned: PlannedResult, scores: bool = True) -> PredictionBlock | None:
    try:
        block = read_block(path, scores=scores, key=planned.result.key)
    except UnreachableError:
        raise  # says nothing about the file
    except (FileNotFoundError, StoreError):
        # Not there, or damaged, edited or exchanged: computed again.
        return None
    needs = planned.needs
    if block.top.shape[1] < needs.top_k or (needs.scores and block.scores is None):
        return None
    return block if len(block) == rows else None


def all_items(planned: Iterable[PlannedResult], datasets: Mapping[str, Dataset], workers: int = 1) -> list[Block]:
    """Every block of a run, done or not, in an order that depends on the run alone."""
    names = sorted({one.dataset for one in planned})
    return [item for name in names for item in work_items(name, datasets[name], workers)]


def missing_items(
    workspace: Workspace, planned: Iterable[PlannedResult], items: Sequence[Block], datasets: Mapping[str, Dataset]
) -> tuple[list[Block], int, int]:
    """Of these blocks: (those that some result still lacks, predictions still to make, predictions already there)."""
    missing: dict[Block, None] = {}
    to_do = done = 0
    for item, rows, lacks in itertools.chain.from_iterable(block_states(workspace, planned, items, datasets)):
        if lacks:
            missing[item] = None
            to_do += rows
        else:
            done += rows
    # Longer blocks first, so that workers end at nearly the same time.
    return sorted(missing, key=lambda item: (item.whole, -len(item), item.start)), to_do, done


def block_states(
    workspace: Workspace, planned: Iterable[PlannedResult], items: Sequence[Block], datasets: Mapping[str, Dataset]
) -> Iterator[list[tuple[Block, int, bool]]]:
    """Per result: its blocks, each with the number of predictions and whether these are still to be made."""
    started = {folder.name for folder in workspace.block_folders()}
    items_of_dataset = by_key((item.whole, item) for item in items)

    def states(one: PlannedResult) -> list[tuple[Block, int, bool]]:
        own = items_of_dataset.get(one.dataset, [])
        ends = np.searchsorted(one.rows, [(item.start, item.stop) for item in own]).reshape(-1, 2)
        begun = one.result.key in started
        stored = stored_blocks(workspace, one, datasets[one.dataset]) if begun else []
        return [
            (item, rows, bool(rows) and (not begun or read_blocks(workspace, one, stored, item) is None))
            for item, rows in zip(own, (ends[:, 1] - ends[:, 0]).tolist(), strict=True)
        ]

    with ThreadPoolExecutor() as pool:
        yield from pool.map(states, planned)
