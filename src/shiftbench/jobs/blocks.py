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
#: From images and their indices to one row for each, all of one shape and type. For ``Numbers``, images are empty.
Compute = Callable[[Sequence[Pixels], NDArray[np.int64]], Rows]
#: A part of every key; it changes when the format of the files does.
_FORMAT = 1
#: Up to this many blocks of numbers are computed without an executor.
_FEW_BLOCKS = 4
#: The file of the growing result, beside its blocks.
_JOINED_FILE = "whole.npy"


def run_items(
    job: Job[Item], items: Sequence[Item], executor: Executor | None, advance: Advance, workers: int | None = None
) -> None:
    """Do a job for all items, on threads or on an executor whose workers see the same folders.

    Raises:
        StoreError: An item failed on the executor; on threads, the exception itself is raised.
    """
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

    fingerprint: str  #: A hash of the items.
    count: int

    def __len__(self) -> int:
        return self.count


@dataclass(frozen=True)
class Computation:
    """Something to compute from every image or number.

    ``identity`` is a value that JSON can write and that states everything that decides the rows.
    """

    compute: Compute
    identity: object


@dataclass(frozen=True)
class PerImage:
    """One row per image of the dataset, or per number; zeros for an image that can't be used.

    Rows that are kept on disk are mapped, and travel to other workers as the name of their file.
    """

    rows: Rows
    #: By index of an image: the reason why it can't be used.
    problems: dict[int, str]
    #: The file of the rows, where they are kept on disk.
    file: Path | None = None

    @cached_property
    def readable(self) -> NDArray[np.bool_]:
        """True for every image that can be used."""
        mask = np.ones(len(self.rows), np.bool_)
        mask[list(self.problems)] = False
        return mask

    @property
    def fingerprint(self) -> str:
        """A hash of everything that decides the rows; "" if they are not kept on disk."""
        if self.file is None:
            return ""
        return digest(self.file.stem, sorted(self.problems))

    def __getstate__(self) -> dict[str, object]:
        rows = self.rows if self.file is None else None
        return {"rows": rows, "problems": self.problems, "file": self.file}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self.file is not None:
            self.__dict__["rows"] = np.load(self.file, mmap_mode="r", allow_pickle=False)


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
    work = _Work(dataset, options, what, size)
    if options.folder is None:
        if options.executor is not None:
            raise StoreError("an executor needs a folder to keep blocks in")
        return work.compute(computations, [_Blocks(None) for _ in computations])
    # Other workers, with working directories of their own, find an absolute path.
    folder = Path(options.folder).absolute()
    keys = [digest(_FORMAT, dataset.fingerprint, computation.identity, size) for computation in computations]
    with file_lock(folder / f"{dataset.fingerprint}.lock", wait=True):
        missing = [i for i, key in enumerate(keys) if _load_kept(folder, key) is None]
        missing_computations = [computations[i] for i in missing]
        stores = [_Blocks(folder / keys[i]) for i in missing]
        for i, result in zip(missing, work.compute(missing_computations, stores), strict=True):
            _keep(folder, keys[i], result)
            shutil.rmtree(folder / keys[i], ignore_errors=True)
    return [_require_kept(folder, key) for key in keys]


@dataclass(frozen=True)
class _Work:
    """The items that computations are done on, and how: the arguments of ``per_image``."""

    dataset: DatasetLike | Numbers
    options: ComputeOptions
    what: str
    size: int

    def compute(self, computations: Sequence[Computation], stores: Sequence[_Blocks]) -> list[PerImage]:
        """Compute all blocks, keep those of each computation in its store, and join them.

        Args:
            computations: What to compute; without any, nothing is read.
            stores: One for each computation.
        """
        if not computations:
            return []
        blocks = cut(len(self.dataset), self.size, self.what)
        if not blocks:
            # A computation on no images still knows the shape and the type of its rows.
            no_items = np.empty(0, np.int64)
            return [PerImage(computation.compute([], no_items), {}) for computation in computations]
        with progress_bar(self.what, len(self.dataset), show=self.options.show) as advance:
            job = _Computations(self.dataset, computations, stores)
            run_items(job, blocks, self._executor_for(blocks), advance, self.options.workers)
        return [store.joined(blocks) for store in stores]

    def _executor_for(self, blocks: Sequence[Block]) -> Executor | None:
        """The executor, but None for a few blocks of numbers, which take less time than starting a worker.

        Images may need the worker's GPU, however few they are.
        """
        if isinstance(self.dataset, Numbers) and len(blocks) <= _FEW_BLOCKS:
            return None
        return self.options.executor


def kept_rows(rows: Rows, folder: str | Path | None) -> PerImage:
    """Rows that the caller has computed; kept in ``folder``, if there is one, so that other workers can map them."""
    if folder is None:
        return PerImage(rows, {})
    folder = Path(folder).absolute()
    key = digest(_FORMAT, str(rows.dtype), list(rows.shape), rows.tobytes())
    if _load_kept(folder, key) is None:
        _keep(folder, key, PerImage(rows, {}))
    return _require_kept(folder, key)


@dataclass(frozen=True)
class _Blocks:
    """The blocks of one result until they are joined: in memory, or a NumPy archive each in a folder."""

    folder: Path | None
    in_memory: dict[Block, PerImage] = field(default_factory=dict)

    def read(self, block: Block) -> PerImage | None:
        """The result of a block; None if it is missing or damaged."""
        if self.folder is None:
            return self.in_memory.get(block)
        try:
            with np.load(self.folder / f"{block.name}.npz", allow_pickle=False) as arrays:
                rows = arrays["rows"]
                bad_indices = arrays["bad"].tolist()
                reasons = arrays["why"].tolist()
        except Exception:  # NumPy and zipfile raise nearly every kind of exception for a torn file.
            return None
        if len(rows) != len(block):
            return None
        return PerImage(rows, dict(zip(bad_indices, reasons, strict=True)))

    def write(self, block: Block, result: PerImage) -> None:
        """Keep the result of a block, without waiting for the disk.

        The archive has a checksum, and a torn one is computed again.
        """
        if self.folder is None:
            self.in_memory[block] = result
            return
        bad_indices = np.array(list(result.problems), np.int64)
        reasons = np.array(list(result.problems.values()), np.str_)

        def save(temporary: Path) -> None:
            with temporary.open("wb") as file:
                np.savez(file, rows=result.rows, bad=bad_indices, why=reasons)

        write_atomically(self.folder / f"{block.name}.npz", save, durable=False)

    def joined(self, blocks: Sequence[Block]) -> PerImage:
        """The result of all blocks; that of blocks in a folder is a file, as memory may not hold it."""
        rows: Rows = np.empty(0)
        problems: dict[int, str] = {}
        for block in blocks:
            result = self.read(block)
            if result is None:
                raise StoreError(f"{block} is lost or damaged", hint="rerun the same command; it resumes")
            if block is blocks[0]:
                rows = self._new_rows((blocks[-1].stop, *result.rows.shape[1:]), result.rows.dtype)
            rows[block.slice] = result.rows
            problems |= result.problems
        return PerImage(rows, problems)

    def _new_rows(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Rows:
        if self.folder is None:
            return np.empty(shape, dtype)
        return open_memmap(self.folder / _JOINED_FILE, mode="w+", dtype=dtype, shape=shape)


@dataclass(frozen=True)
class _Computations(Job[Block]):
    dataset: DatasetLike | Numbers
    computations: Sequence[Computation]
    stores: Sequence[_Blocks]

    def compute(self, item: Block, advance: Advance, *, wait: bool) -> list[Problem]:
        """Do all computations whose result of the block is missing; images are read only if there is one."""
        pairs = zip(self.computations, self.stores, strict=True)
        missing = [(computation, store) for computation, store in pairs if store.read(item) is None]
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
            rows = computation.compute(pixels, readable)
            if problems:
                rows = _spread(rows, readable - item.start, len(item))
            store.write(item, PerImage(rows, problems))
        advance(len(item))
        return []


def _spread(rows: Rows, positions: NDArray[np.int64], count: int) -> Rows:
    """``count`` rows, with these at their positions and zeros elsewhere."""
    spread = np.zeros((count, *rows.shape[1:]), rows.dtype)
    spread[positions] = rows
    return spread


def _keep(folder: Path, key: str, result: PerImage) -> None:
    """Keep a complete result in the folder."""
    if isinstance(result.rows, np.memmap):
        result.rows.flush()
        (folder / key / _JOINED_FILE).replace(folder / f"{key}.npy")
    else:
        # The caller has computed the rows, or the dataset is empty and has no blocks.
        write_atomically(folder / f"{key}.npy", lambda temporary: save_array(temporary, result.rows))
    # This file is written last: it marks the rows as complete.
    problems = {str(index): reason for index, reason in result.problems.items()}
    write_json(folder / f"{key}.json", {"problems": problems})


def _require_kept(folder: Path, key: str) -> PerImage:
    """The result that was just kept; raises StoreError if another process has removed it."""
    kept = _load_kept(folder, key)
    if kept is None:
        raise StoreError(f"{key}.npy vanished from {folder}", hint="rerun; no other process may clear the folder")
    return kept


def _load_kept(folder: Path, key: str) -> PerImage | None:
    """The complete result of a key; None if it is missing or damaged."""
    file = folder / f"{key}.npy"
    try:
        problems = read_json(folder / f"{key}.json")["problems"]
        rows = np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, KeyError):
        return None
    return PerImage(rows, {int(index): reason for index, reason in problems.items()}, file)
