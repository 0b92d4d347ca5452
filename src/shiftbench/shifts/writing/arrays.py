"""The arrays of CIFAR-C: ``<corruption>.npy`` with one block of all images for each severity, and ``labels.npy``.

A piece of an array is some of its images at all severities: a file of its own in the hidden workshop, renamed into
place, so that any worker on any machine can make it and a run that was killed continues after the last piece. When all
pieces are there, they are joined, one array after the other. So the disk holds at most what the set will take, and
one array more.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import Pixels
from shiftbench.datasets.arrays import ArrayDataset
from shiftbench.errors import DatasetError, StoreError
from shiftbench.io.atomic import read_json, write_json
from shiftbench.jobs.threads import for_each
from shiftbench.shifts.corruptions import Corruption
from shiftbench.shifts.writing.job import Job, Layout
from shiftbench.shifts.writing.record import WORKSHOP


class Arrays(Layout):
    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._by_name: dict[str, list[Corruption]] = {}
        for shift in sorted(job.shifts, key=lambda shift: shift.severity):
            self._by_name.setdefault(shift.corruption, []).append(shift)
        self._severities = len({shift.severity for shift in job.shifts})
        self._workshop = job.destination / WORKSHOP / "arrays"
        self._survey = Survey.kept(self._workshop) or Survey.of(job)
        self._readable = [i for i, image_id in enumerate(job.dataset.ids) if image_id not in self._survey.skipped]
        self.unit_images = _rows_a_piece(len(self._readable), self._survey.shape)
        self._pieces = range(-(-len(self._readable) // self.unit_images))

    def done(self) -> int:
        pieces = (piece for name in self._by_name for piece in self._there(name))
        return sum(len(self._indices(piece)) for piece in pieces) * self._severities

    def prepare(self) -> None:
        self._survey.keep(self._workshop)
        self.job.skipped.update(self._survey.skipped)
        self.job.left_out(len(self._survey.skipped) * len(self.job.shifts))
        labels = np.tile(self.job.dataset.labels[self._readable].astype(np.int64), self._severities)
        path = self.job.destination / "labels.npy"
        if not path.exists():
            self.job.staging.write(path, partial(_save, labels))

    def units(self) -> Sequence[int]:
        there = [self._there(name) for name in self._by_name]
        return [piece for piece in self._pieces if not all(piece in pieces for pieces in there)]

    def write_unit(self, number: int) -> None:
        """A piece of every array; decoded once."""
        missing = {name: shifts for name, shifts in self._by_name.items() if not self._has(name, number)}
        if not missing:
            return
        indices = self._indices(number)
        images = np.stack([self._image(index) for index in indices])
        ids = [self.job.dataset.ids[index] for index in indices]
        for name, shifts in missing.items():
            rows = np.stack([shift.batch(images, image_ids=ids, seed=self.job.seed) for shift in shifts])
            self.job.staging.write(self._piece(name, number), partial(_save, rows))
            self.job.wrote(len(shifts) * len(ids))

    def finish(self) -> None:
        for name in self._by_name:
            if not self._final(name).exists():
                self.job.staging.write(self._final(name), partial(self._join, name))
            shutil.rmtree(self._workshop / name, ignore_errors=True)

    def _join(self, name: str, path: Path) -> None:
        whole = (self._severities * len(self._readable), *self._survey.shape)
        header = {"descr": "|u1", "fortran_order": False, "shape": whole}
        with path.open("wb") as file:
            np.lib.format.write_array_header_1_0(file, header)
            for severity in range(self._severities):
                for piece in self._pieces:
                    file.write(self._rows(name, piece)[severity].data)

    def _rows(self, name: str, piece: int) -> NDArray[np.uint8]:
        """(severities, images, ...), mapped."""
        path, expected = self._piece(name, piece), (self._severities, len(self._indices(piece)), *self._survey.shape)
        try:
            rows: NDArray[np.uint8] = np.load(path, mmap_mode="r", allow_pickle=False)
            if rows.shape != expected:
                raise ValueError(f"an array {rows.shape}")
        except (OSError, ValueError, EOFError) as error:
            path.unlink(missing_ok=True)
            raise StoreError(
                f"{path} is not whole",
                found=repr(error),
                expected=f"an array {expected}",
                hint="run the same command again",
            ) from error
        return rows

    def _there(self, name: str) -> set[int]:
        """The pieces of an array that are written. The folder is listed, its files are not asked for one by one: a
        shared file system may remember for a minute that a file was not there."""
        if self._final(name).exists():
            return set(self._pieces)
        return {int(path.stem) for path in (self._workshop / name).glob("*.npy")}

    def _has(self, name: str, piece: int) -> bool:
        return self._piece(name, piece).exists() or self._final(name).exists()

    def _image(self, index: int) -> Pixels:
        pixels = self.job.read(index)
        if pixels is None or pixels.shape != self._survey.shape:
            raise DatasetError(f"{self.job.dataset.ids[index]} changed while it was in use")
        return pixels

    def _indices(self, piece: int) -> list[int]:
        return self._readable[piece * self.unit_images : (piece + 1) * self.unit_images]

    def _piece(self, name: str, number: int) -> Path:
        return self._workshop / name / f"{number:06d}.npy"

    def _final(self, name: str) -> Path:
        return self.job.destination / f"{name}.npy"


@dataclass(frozen=True)
class Survey:
    """Which pictures can't be used, and why, and the common shape of the others: an array must know its length before
    its first row. Kept in the workshop, so that pictures are surveyed once, whoever writes and continues the pieces.
    """

    skipped: dict[str, str]
    shape: tuple[int, ...]

    @classmethod
    def of(cls, job: Job) -> Survey:
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
        return cls(dict(job.skipped), shapes[first])

    @classmethod
    def kept(cls, workshop: Path) -> Survey | None:
        try:
            content = read_json(workshop / _SURVEY)
        except FileNotFoundError:
            return None
        return cls(content["skipped"], tuple(content["shape"]))

    def keep(self, workshop: Path) -> None:
        """Called when the record is written: from then on the folder takes pieces of no other pictures."""
        write_json(workshop / _SURVEY, {"skipped": self.skipped, "shape": list(self.shape)})


_SURVEY = "survey.json"


def _rows_a_piece(count: int, shape: tuple[int, ...]) -> int:
    """At most 256 rows or 4 MiB, and 16 pieces or more; a function of the data alone, as pieces outlive a run."""
    size = int(np.prod(shape))
    return max(1, min(256, (4 << 20) // size, -(-count // 16)))


def _save(values: NDArray[Any], path: Path) -> None:
    with path.open("wb") as file:  # np.save would add a suffix to the name
        np.save(file, values)
