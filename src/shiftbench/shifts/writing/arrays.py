"""The arrays of CIFAR-C: ``<corruption>.npy`` with one block of all images for each severity, and ``labels.npy``.

The arrays grow as memory-mapped files in the hidden workshop. A piece of rows is first forced to disk, then noted
in the record, so a run that was killed continues after the last piece. An array moves to its place when all of
its rows are there.
"""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shiftbench.datasets.arrays import ArrayDataset
from shiftbench.errors import DatasetError
from shiftbench.shifts.base import Pixels
from shiftbench.shifts.corruptions import Corruption
from shiftbench.shifts.writing.job import Job, Layout
from shiftbench.shifts.writing.parallel import for_each
from shiftbench.shifts.writing.record import WORKSHOP, Record


class Arrays(Layout):
    def __init__(self, job: Job, record: Record) -> None:
        super().__init__(job)
        self._record = record
        self._severities = sorted({shift.severity for shift in job.shifts})
        self._by_name: dict[str, list[Corruption]] = {}
        for shift in sorted(job.shifts, key=lambda shift: shift.severity):
            self._by_name.setdefault(shift.corruption, []).append(shift)
        self._readable, self._shape = _survey(job)
        self._rows = _rows_a_piece(len(self._readable), self._shape)
        self._pieces = -(-len(self._readable) // self._rows)
        self._noting = threading.Lock()
        self._done: dict[str, set[int]] = {}

    def done(self) -> int:
        """Also forgets what the record says of arrays that are no longer there."""
        for name in self._by_name:
            if self._final(name).exists():
                self._done[name] = set(range(self._pieces))
            else:
                whole = self._partial(name).exists() and self._fits(self._partial(name))
                self._done[name] = self._record.blocks(name) if whole else set()
        images = sum(len(self._indices(piece)) for pieces in self._done.values() for piece in pieces)
        bad = len(self.job.dataset) - len(self._readable)
        return (images + bad * len(self._by_name)) * len(self._severities)

    def write(self) -> None:
        self._write_labels()
        open_arrays = {name: self._open(name) for name in self._by_name if not self._final(name).exists()}
        missing = [p for p in range(self._pieces) if any(p not in self._done[name] for name in open_arrays)]
        for_each(lambda piece: self._piece(piece, open_arrays), missing, self.job.workers)
        for name in open_arrays:
            self._partial(name).replace(self._final(name))
        self._record.set_blocks(dict.fromkeys(open_arrays))

    def _piece(self, piece: int, arrays: dict[str, NDArray[np.uint8]]) -> None:
        """Some rows of every array; decoded once."""
        indices = self._indices(piece)
        images = np.stack([self._image(index) for index in indices])
        ids = [self.job.dataset.ids[index] for index in indices]
        first, count = piece * self._rows, len(self._readable)
        todo = [name for name in arrays if piece not in self._done[name]]
        for name in todo:
            for block, shift in enumerate(self._by_name[name]):
                start = block * count + first
                arrays[name][start : start + len(ids)] = shift.batch(images, image_ids=ids, seed=self.job.seed)
                self.job.wrote(len(ids))
        self._note(piece, {name: arrays[name] for name in todo})

    def _note(self, piece: int, arrays: dict[str, NDArray[np.uint8]]) -> None:
        for array in arrays.values():
            array.flush()  # type: ignore[attr-defined]  # a memmap: the rows first, then the word that they are there
        with self._noting:
            for name in arrays:
                self._done[name].add(piece)
            self._record.set_blocks({name: self._done[name] for name in arrays})

    def _image(self, index: int) -> Pixels:
        pixels = self.job.read(index)
        if pixels is None or pixels.shape != self._shape:
            raise DatasetError(f"{self.job.dataset.ids[index]} changed while it was in use")
        return pixels

    def _indices(self, piece: int) -> list[int]:
        return self._readable[piece * self._rows : (piece + 1) * self._rows]

    def _write_labels(self) -> None:
        labels = np.tile(self.job.dataset.labels[self._readable].astype(np.int64), len(self._severities))
        path = self.job.destination / "labels.npy"
        if not path.exists():
            self.job.staging.write(path, lambda temporary: _save(temporary, labels))

    def _open(self, name: str) -> NDArray[np.uint8]:
        path = self._partial(name)
        if path.exists() and self._fits(path):
            kept: NDArray[np.uint8] = np.lib.format.open_memmap(path, mode="r+")
            return kept
        path.parent.mkdir(parents=True, exist_ok=True)
        new: NDArray[np.uint8] = np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=self._whole)
        return new

    def _fits(self, path: Path) -> bool:
        try:
            found = np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError):
            return False
        return bool(found.shape == self._whole and found.dtype == np.uint8)

    @property
    def _whole(self) -> tuple[int, ...]:
        return (len(self._severities) * len(self._readable), *self._shape)

    def _final(self, name: str) -> Path:
        return self.job.destination / f"{name}.npy"

    def _partial(self, name: str) -> Path:
        return self.job.destination / WORKSHOP / "arrays" / f"{name}.npy"


def _survey(job: Job) -> tuple[list[int], tuple[int, ...]]:
    """Which pictures can be used, and their common shape: an array must know its length before its first row."""
    shapes: dict[int, tuple[int, ...]] = {}

    def look(index: int) -> None:
        pixels = job.read(index)
        if pixels is not None:
            shapes[index] = pixels.shape

    # the rows of an array are alike and readable
    uniform = isinstance(job.dataset, ArrayDataset)
    for_each(look, range(min(1, len(job.dataset)) if uniform else len(job.dataset)), job.workers)
    if not shapes:
        why = next(iter(job.skipped.values()), None)
        raise DatasetError(f"no picture of {job.dataset.name!r} can be used", found=why)
    first = min(shapes)
    for index, shape in sorted(shapes.items()):
        if shape != shapes[first]:
            raise DatasetError(
                "the pictures of an array have one size",
                found=f"{job.dataset.ids[first]} {shapes[first]}, {job.dataset.ids[index]} {shape}",
                hint="give them one with --size, or write a tree",
            )
    return (list(range(len(job.dataset))) if uniform else sorted(shapes)), shapes[first]


def _rows_a_piece(count: int, shape: tuple[int, ...]) -> int:
    """At most 256 rows or 4 MiB, and 16 pieces or more; a function of the data alone, as pieces are on record."""
    size = int(np.prod(shape))
    return max(1, min(256, (4 << 20) // size, -(-count // 16)))


def _save(path: Path, values: NDArray[np.int64]) -> None:
    with path.open("wb") as file:  # np.save would add a suffix to the name
        np.save(file, values)
