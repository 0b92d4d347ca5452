"""Write corrupted copies of a data set: checked before the first byte, continued after any interruption."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from shiftbench.datasets.arrays import ArrayDataset
from shiftbench.datasets.base import Dataset
from shiftbench.datasets.catalogue import open_dataset
from shiftbench.datasets.files import FileDataset
from shiftbench.datasets.subset import Subset
from shiftbench.errors import DatasetError, LabelError, ShiftError, StoreError
from shiftbench.io.locks import claim
from shiftbench.io.paths import is_object, place
from shiftbench.jobs.base import Executor
from shiftbench.jobs.progress import progress_bar
from shiftbench.jobs.threads import worker_count
from shiftbench.labels.space import LabelSpace
from shiftbench.shifts.corruptions import CORRUPTIONS, GENERATOR_VERSION, Corruption, corruptions
from shiftbench.shifts.seeds import SEED_SCHEME
from shiftbench.shifts.writing.arrays import Arrays
from shiftbench.shifts.writing.encoding import Encoding
from shiftbench.shifts.writing.job import Job, Layout, Staging
from shiftbench.shifts.writing.record import RECORD, WORKSHOP, Record, read_record
from shiftbench.shifts.writing.shards import SHARD_SIZE, Shards
from shiftbench.shifts.writing.sizes import Preparation, preparation
from shiftbench.shifts.writing.spread import LayoutOf, write_spread
from shiftbench.shifts.writing.tree import Tree

if TYPE_CHECKING:
    from rich.console import Console

Format = Literal["tree", "arrays", "shards"]
FORMATS: tuple[Format, ...] = ("tree", "arrays", "shards")
#: Words that stand for several corruptions.
SETS = ("benchmark", "extra", "all", "registered", "noise", "blur", "weather", "digital")


@dataclass(frozen=True)
class Written:
    """What ``write_corruptions`` did."""

    destination: Path
    format: Format
    source: str
    images: int
    corruptions: tuple[str, ...]
    severities: tuple[float, ...]
    #: Corrupted images written now, and those that were there before.
    written: int
    already: int
    seconds: float
    #: Source pictures that could not be used, and why.
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def record(self) -> Path:
        return self.destination / RECORD

    def summary(self) -> dict[str, Any]:
        """JSON-able."""
        return {
            "destination": str(self.destination),
            "record": str(self.record),
            "format": self.format,
            "source": self.source,
            "images": self.images,
            "corruptions": list(self.corruptions),
            "severities": list(self.severities),
            "written": self.written,
            "already": self.already,
            "seconds": round(self.seconds, 3),
            "skipped": [{"id": image_id, "why": why} for image_id, why in sorted(self.skipped.items())],
        }


def write_corruptions(
    source: str | Path | Dataset,
    destination: str | Path,
    *,
    names: str | Sequence[str] = "all",
    severities: Sequence[float] = (1, 2, 3, 4, 5),
    format: Format | None = None,
    size: int | None = None,
    resize: bool = True,
    lossless: bool = False,
    seed: int = 0,
    workers: int | None = None,
    executor: Executor | None = None,
    frost_textures: str | Path | None = None,
    labels: LabelSpace | str | None = None,
    shard_size: int = SHARD_SIZE,
    progress: bool = False,
    console: Console | None = None,
) -> Written:
    """Corrupted copies of ``source`` in ``destination``, as an ImageNet-C tree, CIFAR-C arrays or tar shards.

    ``names`` are corruptions, or words for several ("all", "benchmark", "extra", a group). Without ``format``,
    pictures in files give a tree and rows of an array arrays. Pictures are first brought to ``size``, by default
    224 in the way of ImageNet-C and not at all for arrays; ``resize=False`` takes them as they are. ``labels`` is
    the label space of the source, needed where numbers are written for classes and the source does not name them.

    Threads of this process do the work, or an ``executor`` (``runs.executors``, ``runs.ray_engine``); the files are
    the same. The same call continues a run that was stopped at any moment. A call with more corruptions or severities
    extends the set, one with any other difference is refused.
    """
    started = time.monotonic()
    shifts = chosen_shifts(names, severities, frost_textures)
    dataset = _open(source, labels, tree=format in (None, "tree"))
    layout = format or natural_format(dataset)
    if layout not in FORMATS:
        raise StoreError(f"unknown format {layout!r}", expected=", ".join(FORMATS))
    prepared = _preparation(dataset, size, resize)
    encoding = Encoding(lossless=lossless)
    target = place(destination)
    if is_object(target):
        raise StoreError(
            "corrupted copies are written to a disk", found=target, hint="name a folder here, and copy it there"
        )
    check_destination(target, source, dataset)
    recipe = _recipe(dataset, layout, prepared, encoding, seed, shifts, shard_size)
    Record.draft(target, recipe, shifts)  # refuses before anything is touched
    with claim(target / WORKSHOP / "lock", wait=False) as mine:
        if not mine:
            raise StoreError(f"another run is writing to {target}", hint="wait for it, or write to another folder")
        record = Record.draft(target, recipe, shifts)
        job = Job(dataset, target, shifts, prepared, encoding, seed, worker_count(workers), Staging(target))
        _run(job, record, partial(_layout, layout, shard_size), executor, progress, console)
    return _written(job, record, layout, time.monotonic() - started)


def _run(
    job: Job,
    record: Record,
    layout_of: LayoutOf,
    executor: Executor | None,
    progress: bool,
    console: Console | None,
) -> None:
    fresh = not record.path.exists()
    try:
        work = layout_of(job)
    except BaseException:
        if fresh:  # nothing was begun, so nothing is left behind
            job.staging.close()
        raise
    record.save()
    already = 0 if fresh else work.done()
    with progress_bar("corrupted images", work.total, already, show=progress, console=console) as job.progress:
        work.prepare()
        if executor is None:
            work.write()
        else:
            write_spread(job, work, layout_of, executor)
        work.finish()
    if job.written:
        job.staging.sync()
    job.gather_skipped()
    record.finish(job.shifts, job.skipped)
    job.staging.close()
    if len(record.skipped) == len(job.dataset):
        why = next(iter(record.skipped.values()), None)
        raise DatasetError(f"no picture of {job.dataset.name!r} can be used", found=why)


def chosen_shifts(
    names: str | Sequence[str], severities: Sequence[float], frost_textures: str | Path | None = None
) -> list[Corruption]:
    """Every corruption at every severity, checked; names as the command line takes them.

    >>> [shift.name for shift in chosen_shifts("fog,extra", [3])]
    ['fog.3', 'speckle_noise.3', 'gaussian_blur.3', 'spatter.3', 'saturate.3']
    """
    words = names.split(",") if isinstance(names, str) else list(names)
    chosen: dict[str, None] = {}
    for word in filter(None, (word.strip() for word in words)):
        chosen.update(dict.fromkeys(corruptions(word) if word in SETS else [word]))
    if not chosen or not severities:
        raise ShiftError("nothing to write", found="no corruption" if not chosen else "no severity")
    out = []
    for name in chosen:
        takes = "frost_textures" in CORRUPTIONS.get(name).options and frost_textures is not None
        options = {"frost_textures": frost_textures} if takes else {}
        out += [Corruption(name, severity, options) for severity in sorted(set(severities))]
    return out


def natural_format(dataset: Dataset) -> Format:
    """The layout that a data set already has, or the nearest to it."""
    from shiftbench.datasets.webdataset import WebDataset

    base = _base(dataset)
    if isinstance(base, ArrayDataset):
        return "arrays"
    return "shards" if isinstance(base, WebDataset) else "tree"


def check_destination(target: Path, source: str | Path | Dataset, dataset: Dataset) -> None:
    """Refuse to write into the source, around it, or into a folder of something else."""
    base = _base(dataset)
    root = base.root if isinstance(base, FileDataset) else None
    if isinstance(source, (str, Path)) and Path(source).is_dir():
        root = Path(source)
    if root is not None:
        here, there = target.resolve(), root.resolve()
        if here == there or there in here.parents:
            raise StoreError("the destination lies inside the source", found=target, expected="a folder outside it")
    if not target.exists():
        return
    if not target.is_dir():
        raise StoreError(f"{target} is not a folder", found="a file")
    if read_record(target) is None:
        # A run that was killed before its record leaves the workshop and nothing else.
        others = sorted(path.name for path in target.iterdir() if path.name != WORKSHOP)
        if others:
            shown = ", ".join(others[:4]) + (f", ... ({len(others)} entries)" if len(others) > 4 else "")
            raise StoreError(
                f"{target} holds something else",
                found=shown,
                expected=f"an empty folder, or one with {RECORD}",
                hint="write to a new folder",
            )


def _open(source: str | Path | Dataset, labels: LabelSpace | str | None, *, tree: bool) -> Dataset:
    """A tree keeps class folders by name, so there it does not matter which label space they belong to."""
    if isinstance(source, Dataset):
        return source
    try:
        return open_dataset(source, space=labels)
    except LabelError:
        if labels is not None or not tree or not Path(source).is_dir():
            raise
        return open_dataset(source, space="folders")


def _preparation(dataset: Dataset, size: int | None, resize: bool) -> Preparation:
    if not resize:
        if size is not None:
            raise ShiftError("a size was given, and also that pictures stay as they are", found=f"size {size}")
        return preparation(None)
    if size is None and not isinstance(_base(dataset), ArrayDataset):
        size = 224
    return preparation(size)


def _recipe(
    dataset: Dataset,
    layout: Format,
    prepared: Preparation,
    encoding: Encoding,
    seed: int,
    shifts: Sequence[Corruption],
    shard_size: int,
) -> dict[str, Any]:
    recipe: dict[str, Any] = {
        "layout": layout,
        "seed": seed,
        "generator": GENERATOR_VERSION,
        "seed_scheme": SEED_SCHEME,
        "geometry": prepared.describe(),
        "encoding": {"format": "npy uint8"} if layout == "arrays" else encoding.describe(),
        "source": {
            "name": dataset.name,
            "images": len(dataset),
            "labels": dataset.space.name,
            "fingerprint": dataset.fingerprint,
        },
    }
    if layout == "arrays":
        recipe["severities"] = sorted({float(shift.severity) for shift in shifts})
    if layout == "shards":
        recipe["shard_size"] = shard_size
    return recipe


def _layout(layout: Format, shard_size: int, job: Job) -> Layout:
    if layout == "shards":
        if shard_size < 1:
            raise StoreError("a shard holds pictures", found=shard_size, expected="1 or more")
        return Shards(job, shard_size)
    return Arrays(job) if layout == "arrays" else Tree(job)


def _base(dataset: Dataset) -> Dataset:
    while isinstance(dataset, Subset):
        dataset = dataset.base
    return dataset


def _written(job: Job, record: Record, layout: Format, seconds: float) -> Written:
    skipped = record.skipped
    usable = len(job.dataset) - len(skipped)
    return Written(
        job.destination,
        layout,
        job.dataset.name,
        usable,
        tuple(dict.fromkeys(shift.corruption for shift in job.shifts)),
        tuple(sorted({float(shift.severity) for shift in job.shifts})),
        job.written,
        usable * len(job.shifts) - job.written,
        seconds,
        skipped,
    )
