"""Work on every picture of a data set, or on anything with numbers, block by block and side by side; kept on disk.

A network over a million reference pictures, or ten crops of eighty thousand candidates, takes hours. With a folder
each finished block is a file, so that work that was killed continues where it stopped, and the complete result is
one array that the next call maps into memory instead of computing it.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from shiftbench.arrays import Pixels
from shiftbench.classifiers.hashing import digest
from shiftbench.datasets.base import Dataset
from shiftbench.errors import BadImageError, StoreError
from shiftbench.io.atomic import read_json, write_atomically, write_json
from shiftbench.io.locks import file_lock
from shiftbench.jobs.base import Executor, Job, Trouble
from shiftbench.jobs.progress import Advance, progress_bar
from shiftbench.jobs.threads import worker_count

Rows = NDArray[Any]
#: The pictures at these indices to one row each, of one shape and type; no pictures where there are ``Numbers`` only.
Compute = Callable[[Sequence[Pixels], NDArray[np.int64]], Rows]
#: Raised when the files change.
_FORMAT = 1
#: Blocks of numbers that no executor is bothered with.
_FEW = 4
#: The growing result, beside its shards.
_WHOLE = "whole.npy"


@dataclass(frozen=True)
class Numbers:
    """Things that are no pictures to be read, such as rows of a search or pairs, from 0 to ``count``."""

    #: Of what the numbers stand for.
    fingerprint: str
    count: int

    def __len__(self) -> int:
        return self.count


@dataclass(frozen=True)
class Computation:
    """Something to compute of every picture or number; ``identity``, JSON-able, says all that decides the rows."""

    compute: Compute
    identity: object


@dataclass(frozen=True)
class PerImage:
    """One row an image of the data set, or a number; zeros for a picture that can't be used.

    Rows that are kept on disk are mapped, and travel to workers elsewhere as the name of their file.
    """

    rows: Rows
    #: Why, by index.
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

    def __getstate__(self) -> dict[str, Any]:
        return {"rows": self.rows if self.place is None else None, "problems": self.problems, "place": self.place}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self.place is not None:
            self.__dict__["rows"] = _mapped(self.place)


def per_image(
    dataset: Dataset | Numbers,
    computations: Sequence[Computation],
    *,
    what: str,
    folder: Path | None = None,
    size: int = 256,
    workers: int | None = None,
    executor: Executor | None = None,
    show: bool = False,
) -> list[PerImage]:
    """All ``computations`` on all pictures of ``dataset``; each picture is read once, ``size`` at a time.

    ``Numbers`` in the place of a data set stand for things that computations find for themselves. ``what`` stands
    beside the progress bar. With a ``folder`` each result is kept there under a hash of the data set's content and the
    computation's identity. Computations are called from ``workers`` threads at once; the rows do not depend on their
    number. With an ``executor`` the blocks are computed where it computes them, by way of the folder, which all its
    workers must see.
    """
    if folder is None:
        if executor is not None:
            raise StoreError("blocks that are computed elsewhere need a folder to be kept in")
        return _Work(dataset, computations, [None] * len(computations), size, workers).run(what, show)
    folder = folder.absolute()  # as workers elsewhere, who stand in folders of their own, find it
    keys = [digest(_FORMAT, dataset.fingerprint, one.identity, size) for one in computations]
    with file_lock(folder / f"{dataset.fingerprint}.lock", wait=True):
        missing = [i for i, key in enumerate(keys) if _kept(folder, key) is None]
        wanted, shards = [computations[i] for i in missing], [folder / keys[i] for i in missing]
        if executor is not None and missing and _worth_sending(dataset, size):
            _compute_elsewhere(_Blocks(dataset, wanted, shards), size, executor, what, show)
        work = _Work(dataset, wanted, shards, size, workers)
        for i, done in zip(missing, work.run(what, show), strict=True):
            _keep(folder, keys[i], done)
            shutil.rmtree(folder / keys[i], ignore_errors=True)
    return [_found(folder, key) for key in keys]


def kept_rows(rows: Rows, folder: Path | None) -> PerImage:
    """Rows that are known already, put beside the others in ``folder``, if given, where workers elsewhere map them."""
    if folder is None:
        return PerImage(rows, {})
    folder, key = folder.absolute(), digest(_FORMAT, str(rows.dtype), list(rows.shape), rows.tobytes())
    if _kept(folder, key) is None:
        _keep(folder, key, PerImage(rows, {}))
    return _found(folder, key)


def side_by_side(
    work: Callable[[slice], None],
    count: int,
    *,
    size: int,
    workers: int | None = None,
    advance: Advance = lambda count: None,
) -> None:
    """``work`` on 0 to ``count``, ``size`` at a time, from several threads; ``advance`` is told what is done."""
    parts = [slice(start, min(start + size, count)) for start in range(0, count, size)]
    pool = ThreadPoolExecutor(worker_count(workers))
    try:
        for part, _ in zip(parts, pool.map(work, parts), strict=True):
            advance(part.stop - part.start)
    finally:
        pool.shutdown(cancel_futures=True)


@dataclass(frozen=True)
class _Block:
    rows: Rows
    problems: dict[int, str]


@dataclass(frozen=True)
class _Part:
    """A block: the item that an executor hands out."""

    what: str
    start: int
    stop: int

    def __str__(self) -> str:
        return f"the block {self.start} to {self.stop - 1} of {self.what!r}"


@dataclass(frozen=True)
class _Blocks(Job[_Part]):
    """The blocks of all computations; those with a place on disk are kept there."""

    dataset: Dataset | Numbers
    computations: Sequence[Computation]
    shards: Sequence[Path | None]

    def compute(self, item: _Part, advance: Advance, *, wait: bool) -> list[Trouble]:
        for _ in self.of(slice(item.start, item.stop)):
            pass
        advance(item.stop - item.start)
        return []

    def of(self, part: slice) -> Iterator[tuple[int, _Block]]:
        """(number of the computation, its block): read where it is kept already, else computed and kept."""
        pictures: _Pictures | None = None
        for i, (computation, folder) in enumerate(zip(self.computations, self.shards, strict=True)):
            path = None if folder is None else folder / f"{part.start:09d}.npz"
            block = None if path is None else _read_shard(path, part.stop - part.start)
            if block is None:
                pictures = pictures or _Pictures(self.dataset, part)
                block = pictures.computed(computation)
                if path is not None:
                    _write_shard(path, block)
            yield i, block


def _worth_sending(dataset: Dataset | Numbers, size: int) -> bool:
    """Pictures may need a network, and that a GPU; a few blocks of anything else are done before a worker starts."""
    return isinstance(dataset, Dataset) or len(dataset) > _FEW * size


def _compute_elsewhere(blocks: _Blocks, size: int, executor: Executor, what: str, show: bool) -> None:
    count = len(blocks.dataset)
    items = [_Part(what, start, min(start + size, count)) for start in range(0, count, size)]
    with progress_bar(what, count, show=show) as advance:
        failures = executor.run(blocks, items, advance)
    if failures:
        raise StoreError(
            f"{len(failures)} blocks could not be computed",
            found=str(failures[0]),
            hint="the same command continues; what is done is kept",
        )


class _Work:
    def __init__(
        self,
        dataset: Dataset | Numbers,
        computations: Sequence[Computation],
        shards: Sequence[Path | None],
        size: int,
        workers: int | None,
    ) -> None:
        self.dataset, self.computations, self.shards = dataset, computations, shards
        self.blocks = _Blocks(dataset, computations, shards)
        self.size, self.workers = size, workers
        self._results: list[PerImage | None] = [None] * len(computations)
        self._allocating = threading.Lock()

    def run(self, what: str, show: bool) -> list[PerImage]:
        count = len(self.dataset) if self.computations else 0
        with progress_bar(what, count, show=show) as advance:
            side_by_side(self._block, count, size=self.size, workers=self.workers, advance=advance)
        nothing = np.empty(0, np.int64)
        return [
            result or PerImage(one.compute([], nothing), {})
            for result, one in zip(self._results, self.computations, strict=True)
        ]

    def _block(self, part: slice) -> None:
        for i, block in self.blocks.of(part):
            self._gather(i, part, block)

    def _gather(self, i: int, part: slice, block: _Block) -> None:
        with self._allocating:
            result = self._results[i]
            if result is None:
                result = self._results[i] = PerImage(self._room(i, block.rows), {})
            result.problems.update(block.problems)
        result.rows[part] = block.rows

    def _room(self, i: int, like: Rows) -> Rows:
        """Rows for all images: in memory, or in a file where the work is kept, which may be larger than memory."""
        folder, shape = self.shards[i], (len(self.dataset), *like.shape[1:])
        if folder is None:
            return np.zeros(shape, like.dtype)
        return open_memmap(folder / _WHOLE, mode="w+", dtype=like.dtype, shape=shape)


class _Pictures:
    """The pictures of one block that could be read; of numbers there is nothing to read."""

    def __init__(self, dataset: Dataset | Numbers, part: slice) -> None:
        self.part = part
        self.pixels: list[Pixels] = []
        self.problems: dict[int, str] = {}
        readable = []
        for index in range(part.start, part.stop):
            try:
                if isinstance(dataset, Dataset):
                    self.pixels.append(dataset.read(index).pixels)
                readable.append(index)
            except BadImageError as error:
                self.problems[index] = str(error.found or error.message)
        self.readable = np.array(readable, np.int64)

    def computed(self, computation: Computation) -> _Block:
        found = computation.compute(self.pixels, self.readable)
        if not self.problems:
            return _Block(found, {})
        rows = np.zeros((self.part.stop - self.part.start, *found.shape[1:]), found.dtype)
        rows[self.readable - self.part.start] = found
        return _Block(rows, self.problems)


def _write_shard(path: Path, block: _Block) -> None:
    """Not waiting for the disk: the archive has a checksum, and a torn one is computed anew."""

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            np.savez(
                file,
                rows=block.rows,
                bad=np.array(list(block.problems), np.int64),
                why=np.array(list(block.problems.values()), np.str_),
            )

    write_atomically(path, write, durable=False)


def _read_shard(path: Path, count: int) -> _Block | None:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            rows, bad, why = arrays["rows"], arrays["bad"], arrays["why"]
    except Exception:  # none yet, or a torn one: NumPy and zipfile raise nearly every kind of exception for it
        return None
    if len(rows) != count:
        return None
    return _Block(rows, dict(zip(bad.tolist(), why.tolist(), strict=True)))


def _keep(folder: Path, key: str, done: PerImage) -> None:
    if isinstance(done.rows, np.memmap):
        done.rows.flush()
        (folder / key / _WHOLE).replace(folder / f"{key}.npy")
    else:  # rows that were known, or none: an empty data set has no blocks
        write_atomically(folder / f"{key}.npy", lambda temporary: _save(temporary, done.rows))
    # Written last: it says that the rows are complete.
    write_json(folder / f"{key}.json", {"problems": {str(index): why for index, why in done.problems.items()}})


def _save(path: Path, rows: Rows) -> None:
    with path.open("wb") as file:
        np.save(file, rows, allow_pickle=False)


def _found(folder: Path, key: str) -> PerImage:
    kept = _kept(folder, key)
    if kept is None:
        raise StoreError(f"{key}.npy vanished from {folder}", hint="run again, and let nothing else clear the folder")
    return kept


def _kept(folder: Path, key: str) -> PerImage | None:
    place = folder / f"{key}.npy"
    try:
        problems = read_json(folder / f"{key}.json")["problems"]
        rows = _mapped(place)
    except (OSError, ValueError, KeyError):
        return None
    return PerImage(rows, {int(index): why for index, why in problems.items()}, place)


def _mapped(place: Path) -> Rows:
    rows: Rows = np.load(place, mmap_mode="r", allow_pickle=False)
    return rows
