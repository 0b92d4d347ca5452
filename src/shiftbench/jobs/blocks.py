"""Work in blocks: cut, computed on threads or by an executor, kept on disk, joined.

Running a network on a million reference images takes hours. Every stored block is a separate file, written atomically,
so that any worker on any machine can compute it and an interrupted computation resumes. The complete result is one
array that the next call maps into memory.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from shiftbench.arrays import Pixels
from shiftbench.errors import BadImageError, StoreError
from shiftbench.io.atomic import read_json, write_atomically, write_json
from shiftbench.io.hashing import digest
from shiftbench.io.locks import file_lock
from shiftbench.jobs.base import Block, Executor, Item, Job, Problem, add_tracebacks, cut, retry_hint
from shiftbench.jobs.progress import Advance, progress_bar
from shiftbench.jobs.threads import on_threads

Rows = NDArray[Any]
#: The images at these indices to one row each, of one shape and type; no images where there are ``Numbers`` only.
Compute = Callable[[Sequence[Pixels], NDArray[np.int64]], Rows]
#: Changes when the files do.
_FORMAT = 1
#: Up to this many blocks of numbers are computed without an executor.
_FEW = 4
#: The growing result, beside its blocks.
_WHOLE = "whole.npy"


def run_items(
    job: Job[Item], items: Sequence[Item], executor: Executor | None, advance: Advance, workers: int | None = None
) -> None:
    """All items of a job: on threads, or on an executor whose workers see the same folders. Raises if any failed."""
    if executor is None:
        on_threads(lambda item: job.compute(item, advance, wait=True), items, workers)
        return
    failures = executor.run(job, items, advance)
    if failures:
        error = StoreError(
            f"{len(failures)} of {len(items)} blocks failed", found=str(failures[0]), hint=retry_hint(failures)
        )
        add_tracebacks(error, failures)
        raise error


def save_array(path: Path, values: NDArray[Any]) -> None:
    """``np.save`` without a suffix added to the name."""
    with path.open("wb") as file:
        np.save(file, values, allow_pickle=False)


class _Decoded(Protocol):
    @property
    def pixels(self) -> Pixels: ...


class DatasetLike(Protocol):
    """The part of a dataset that is needed here, as datasets are defined above this layer."""

    name: str
    ids: Sequence[str]
    labels: NDArray[np.int32]

    @property
    def fingerprint(self) -> str: ...
    def __len__(self) -> int: ...
    def read(self, index: int) -> _Decoded: ...


@dataclass(frozen=True)
class Numbers:
    """Items that are not images, such as rows of a search or pairs, numbered from 0 to ``count``."""

    #: Of the items.
    fingerprint: str
    count: int

    def __len__(self) -> int:
        return self.count


@dataclass(frozen=True)
class Computation:
    """Something to compute from every image or number; ``identity``, JSON-able, is all that decides the rows."""

    compute: Compute
    identity: object


@dataclass(frozen=True)
class PerImage:
    """One row per image of the dataset, or per number; zeros for an image that can't be used.

    Rows that are kept on disk are mapped, and travel to other workers as the name of their file.
    """

    rows: Rows
    #: Why an image can't be used, by index.
    problems: dict[int, str]
    place: Path | None = None

    @cached_property
    def readable(self) -> NDArray[np.bool_]:
        mask = np.ones(len(self.rows), np.bool_)
        mask[list(self.problems)] = False
        return mask

    @property
    def fingerprint(self) -> str:
        """Of all that decides the rows, where they are kept."""
        return "" if self.place is None else digest(self.place.stem, sorted(self.problems))

    def __getstate__(self) -> dict[str, object]:
        return {"rows": self.rows if self.place is None else None, "problems": self.problems, "place": self.place}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self.place is not None:
            self.__dict__["rows"] = np.load(self.place, mmap_mode="r", allow_pickle=False)


@dataclass(frozen=True)
class ComputeOptions:
    """Where computations run, and the folder that keeps their results."""

    folder: str | Path | None = None
    workers: int | None = None
    #: Needs a folder, which all its workers must see.
    executor: Executor | None = None
    #: Whether to show a progress bar.
    show: bool = False


def per_image(
    dataset: DatasetLike | Numbers,
    computations: Sequence[Computation],
    options: ComputeOptions | None = None,
    *,
    what: str,
    size: int = 256,
) -> list[PerImage]:
    """All ``computations`` on all images of ``dataset``; each image is read once, ``size`` at a time.

    ``what`` is shown beside the progress bar. With a folder, each result is kept there under a hash of the dataset's
    content and the computation's identity. Computations are called from several threads at once; the rows do not depend
    on their number.
    """
    options = options or ComputeOptions()
    executor = options.executor

    def run(computations: Sequence[Computation], stores: Sequence[_Blocks]) -> list[PerImage]:
        blocks = cut(len(dataset), size, what) if computations else []
        # A few blocks of numbers are computed before a worker elsewhere has started; images may need its GPU.
        here = isinstance(dataset, Numbers) and len(blocks) <= _FEW
        with progress_bar(what, len(dataset), show=options.show and bool(blocks)) as advance:
            job = _Computations(dataset, computations, stores)
            run_items(job, blocks, None if here else executor, advance, options.workers)
        if not blocks:
            return [PerImage(one.compute([], np.empty(0, np.int64)), {}) for one in computations]
        return [store.joined(blocks) for store in stores]

    if options.folder is None:
        if executor is not None:
            raise StoreError("an executor needs a folder to keep blocks in")
        return run(computations, [_Blocks(None) for _ in computations])
    folder = Path(options.folder).absolute()  # as other workers, with working directories of their own, find it
    keys = [digest(_FORMAT, dataset.fingerprint, one.identity, size) for one in computations]
    with file_lock(folder / f"{dataset.fingerprint}.lock", wait=True):
        missing = [i for i, key in enumerate(keys) if _kept(folder, key) is None]
        wanted, stores = [computations[i] for i in missing], [_Blocks(folder / keys[i]) for i in missing]
        for i, done in zip(missing, run(wanted, stores), strict=True):
            _keep(folder, keys[i], done)
            shutil.rmtree(folder / keys[i], ignore_errors=True)
    return [_found(folder, key) for key in keys]


def kept_rows(rows: Rows, folder: str | Path | None) -> PerImage:
    """Rows that are already known, kept beside the others in ``folder``, if given, where other workers map them."""
    if folder is None:
        return PerImage(rows, {})
    folder, key = Path(folder).absolute(), digest(_FORMAT, str(rows.dtype), list(rows.shape), rows.tobytes())
    if _kept(folder, key) is None:
        _keep(folder, key, PerImage(rows, {}))
    return _found(folder, key)


@dataclass(frozen=True)
class _Blocks:
    """The blocks of one result until they are joined: in memory, or a NumPy archive each in a folder."""

    folder: Path | None
    in_memory: dict[Block, PerImage] = field(default_factory=dict)

    def read(self, block: Block) -> PerImage | None:
        """None if it is not there, or damaged."""
        if self.folder is None:
            return self.in_memory.get(block)
        try:
            with np.load(self.folder / f"{block.name}.npz", allow_pickle=False) as arrays:
                rows, bad, why = arrays["rows"], arrays["bad"], arrays["why"]
        except Exception:  # NumPy and zipfile raise nearly every kind of exception for a torn file
            return None
        return None if len(rows) != len(block) else PerImage(rows, dict(zip(bad.tolist(), why.tolist(), strict=True)))

    def write(self, block: Block, found: PerImage) -> None:
        """Without waiting for the disk: the archive has a checksum, and a torn one is computed again."""
        if self.folder is None:
            self.in_memory[block] = found
            return
        bad, why = np.array(list(found.problems), np.int64), np.array(list(found.problems.values()), np.str_)

        def save(temporary: Path) -> None:
            with temporary.open("wb") as file:
                np.savez(file, rows=found.rows, bad=bad, why=why)

        write_atomically(self.folder / f"{block.name}.npz", save, durable=False)

    def joined(self, blocks: Sequence[Block]) -> PerImage:
        """The rows of a folder, which may be more than memory holds, go to a file as well."""
        rows: Rows = np.empty(0)
        problems: dict[int, str] = {}
        for block in blocks:
            found = self.read(block)
            if found is None:
                raise StoreError(f"{block} is lost or damaged", hint="rerun the same command; it resumes")
            if block is blocks[0]:
                shape, dtype = (blocks[-1].stop, *found.rows.shape[1:]), found.rows.dtype
                if self.folder is None:
                    rows = np.empty(shape, dtype)
                else:
                    rows = open_memmap(self.folder / _WHOLE, mode="w+", dtype=dtype, shape=shape)
            rows[block.slice] = found.rows
            problems |= found.problems
        return PerImage(rows, problems)


@dataclass(frozen=True)
class _Computations(Job[Block]):
    dataset: DatasetLike | Numbers
    computations: Sequence[Computation]
    stores: Sequence[_Blocks]

    def compute(self, item: Block, advance: Advance, *, wait: bool) -> list[Problem]:
        pairs = zip(self.computations, self.stores, strict=True)
        missing = [(one, store) for one, store in pairs if store.read(item) is None]
        pixels: list[Pixels] = []
        problems: dict[int, str] = {}
        indices = range(item.start, item.stop)
        if missing and not isinstance(self.dataset, Numbers):
            for index in indices:
                try:
                    pixels.append(self.dataset.read(index).pixels)
                except BadImageError as error:
                    problems[index] = str(error.found or error.message)
        readable = np.array([index for index in indices if index not in problems], np.int64)
        for computation, store in missing:
            rows = found = computation.compute(pixels, readable)
            if problems:
                rows = np.zeros((len(item), *found.shape[1:]), found.dtype)
                rows[readable - item.start] = found
            store.write(item, PerImage(rows, problems))
        advance(len(item))
        return []


def _keep(folder: Path, key: str, done: PerImage) -> None:
    if isinstance(done.rows, np.memmap):
        done.rows.flush()
        (folder / key / _WHOLE).replace(folder / f"{key}.npy")
    else:  # rows that were known, or none: an empty dataset has no blocks
        write_atomically(folder / f"{key}.npy", lambda temporary: save_array(temporary, done.rows))
    # Written last: it marks the rows as complete.
    write_json(folder / f"{key}.json", {"problems": {str(index): why for index, why in done.problems.items()}})


def _found(folder: Path, key: str) -> PerImage:
    kept = _kept(folder, key)
    if kept is None:
        raise StoreError(f"{key}.npy vanished from {folder}", hint="rerun; no other process may clear the folder")
    return kept


def _kept(folder: Path, key: str) -> PerImage | None:
    place = folder / f"{key}.npy"
    try:
        problems = read_json(folder / f"{key}.json")["problems"]
        rows = np.load(place, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, KeyError):
        return None
    return PerImage(rows, {int(index): why for index, why in problems.items()}, place)
