"""Layouts of the image variants on disk: a tree of files, or NumPy arrays; see ``packed`` for the others.

A layout consists of units that are written independently of each other, by threads here or by workers elsewhere. Each
source image is decoded once for all its variants.
"""

from __future__ import annotations

import os
import shutil
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
from numpy.lib.format import open_memmap

from shiftbench.arrays import Pixels
from shiftbench.errors import BadImageError, DatasetError, StoreError, argument
from shiftbench.io.atomic import read_json, write_json
from shiftbench.jobs.base import cut
from shiftbench.jobs.blocks import DatasetLike, save_array
from shiftbench.jobs.progress import Advance
from shiftbench.jobs.threads import on_threads
from shiftbench.outputs.encoding import Encoding
from shiftbench.outputs.record import ARRAYS, SKIPPED, WORKSHOP, Staging

_SURVEY = "survey.json"


class Variants(ABC):
    """The images to write: for each source image one per name. Picklable."""

    source: DatasetLike
    names: Sequence[str]
    encoding: Encoding

    @abstractmethod
    def make(self, variant: int, pixels: Pixels, image_id: str) -> Pixels:
        """One variant of an image; raises BadImageError if the image can't be used."""

    def make_batch(self, variant: int, images: Pixels, ids: Sequence[str]) -> Pixels:
        return np.stack([self.make(variant, pixels, i) for pixels, i in zip(images, ids, strict=True)])

    def read(self, index: int) -> Pixels:
        """A source image, ready to make variants of; raises BadImageError if it can't be used."""
        return self.source.read(index).pixels

    def encode(self, pixels: Pixels, file: str) -> bytes:
        return self.encoding(pixels)


@dataclass
class Writer:
    """The state of one worker: its staging folder and its counts."""

    staging: Staging
    advance: Advance = lambda count: None
    threads: int = 1
    written: int = 0
    #: Source images that could not be used, and why.
    skipped: dict[str, str] = field(default_factory=dict)
    _counting: threading.Lock = field(default_factory=threading.Lock)

    def read(self, variants: Variants, index: int) -> Pixels | None:
        try:
            return variants.read(index)
        except BadImageError as error:
            self.skip(variants.source.ids[index], error)
            return None

    def skip(self, image_id: str, error: BadImageError) -> None:
        self.skipped[image_id] = str(error.found or error.message)

    def wrote(self, count: int) -> None:
        with self._counting:
            self.written += count
        self.advance(count)


class Layout(ABC):
    """Units are numbered; each holds all variants of some source images."""

    #: The source images of each unit, and how many they are at most.
    parts: Sequence[Sequence[int]]
    unit_images: int = 1
    #: Whether a unit is written by all threads, one unit after the other, as memory is bounded by one of them.
    threads_inside: bool = False

    def __init__(self, variants: Variants, folder: Path) -> None:
        self.variants, self.folder = variants, folder

    @property
    def units(self) -> range:
        return range(len(self.parts))

    @abstractmethod
    def missing(self, unit: int) -> Sequence[int]:
        """The variants that are not on disk."""

    def scan(self) -> None:  # noqa: B027 - not all layouts need it
        """Look at the folder once for all units; called before ``missing``."""

    def prepare(self, writer: Writer) -> None:  # noqa: B027
        """Once, before any unit is written."""

    @abstractmethod
    def write(self, unit: int, writer: Writer) -> None:
        """Write what is missing of a unit."""

    def finish(self, writer: Writer) -> None:  # noqa: B027
        """Once, when all units are written."""


class Tree(Layout):
    """A file per source image and variant: ``files[image][variant]`` below the folder."""

    def __init__(
        self, variants: Variants, folder: Path, files: Sequence[Sequence[str]], folders: Sequence[str] = ()
    ) -> None:
        """``folders`` are made even if they stay empty."""
        super().__init__(variants, folder)
        self._files, self._folders = files, folders
        self.parts = [(index,) for index in range(len(files))]

    def missing(self, unit: int) -> Sequence[int]:
        """Empty files count as missing: a power failure may leave them."""
        return [i for i, file in enumerate(self._files[unit]) if not file_size(f"{self.folder}/{file}")]

    def prepare(self, writer: Writer) -> None:
        for folder in self._folders:
            (self.folder / folder).mkdir(parents=True, exist_ok=True)

    def write(self, unit: int, writer: Writer) -> None:
        variants, image_id, missing = self.variants, self.variants.source.ids[unit], self.missing(unit)
        pixels = writer.read(variants, unit) if missing else None
        if pixels is None:
            writer.advance(len(missing))
            return
        files = [self._files[unit][variant] for variant in missing]
        try:
            for variant, file in zip(missing, files, strict=True):
                made = variants.make(variant, pixels, image_id)
                writer.staging.put(self.folder / file, variants.encode(made, file))
        except BadImageError as error:  # of all its variants there are none
            for file in files:
                (self.folder / file).unlink(missing_ok=True)
            writer.skip(image_id, error)
            writer.advance(len(missing))
            return
        writer.wrote(len(missing))


class Arrays(Layout):
    """``<name>.npy`` per group of variants, with one block of all images for each variant, and ``labels.npy``.

    A piece of an array is some of its images in all variants: a file of its own in the hidden workshop. When all
    pieces are there they are joined, one array after the other, so the disk holds at most one array more than the set.
    """

    def __init__(
        self, variants: Variants, folder: Path, groups: Mapping[str, Sequence[int]], uniform: bool, threads: int
    ) -> None:
        """``groups`` are the variants of each array; ``uniform`` images are all readable and of one shape."""
        super().__init__(variants, folder)
        self._groups, self._depth = groups, len(next(iter(groups.values())))
        self._workshop = folder / WORKSHOP / ARRAYS
        # An array must know its length before its first row. Kept, so that images are surveyed once, whoever continues.
        try:
            kept = read_json(self._workshop / _SURVEY)
            self._skipped, self._shape = kept["skipped"], tuple(kept["shape"])
        except FileNotFoundError:
            self._skipped, self._shape = _survey(variants, uniform, threads)
        self._readable = [i for i, image_id in enumerate(variants.source.ids) if image_id not in self._skipped]
        # At most 256 rows or 4 MiB, and at least 16 pieces; a function of the data alone, as pieces outlive a run.
        size = int(np.prod(self._shape))
        self.unit_images = max(1, min(256, (4 << 20) // size, -(-len(self._readable) // 16)))
        self._pieces = cut(len(self._readable), self.unit_images)
        self.parts = [self._readable[piece.slice] for piece in self._pieces]
        self._there: dict[str, set[int]] = {}

    def scan(self) -> None:
        """The folder is listed, its files are not looked up one by one: a shared file system may remember for a
        minute that a file was not there."""
        for name in self._groups:
            done = set(self.units) if self._final(name).exists() else set[int]()
            self._there[name] = done or {int(path.stem) for path in (self._workshop / name).glob("*.npy")}

    def missing(self, unit: int) -> Sequence[int]:
        groups = self._groups.items()
        return [variant for name, own in groups if unit not in self._there.get(name, ()) for variant in own]

    def prepare(self, writer: Writer) -> None:
        """Fix the set of images of the folder."""
        write_json(self._workshop / _SURVEY, {"skipped": self._skipped, "shape": list(self._shape)})
        writer.skipped.update(self._skipped)
        labels = np.tile(self.variants.source.labels[self._readable].astype(np.int64), self._depth)
        path = self.folder / "labels.npy"
        if not path.exists():
            writer.staging.write(path, lambda temporary: save_array(temporary, labels))

    def write(self, unit: int, writer: Writer) -> None:
        missing = {
            name: own
            for name, own in self._groups.items()
            if not self._piece(name, unit).exists() and not self._final(name).exists()
        }
        if not missing:
            return
        indices = self.parts[unit]
        ids = [self.variants.source.ids[index] for index in indices]
        read = [writer.read(self.variants, index) for index in indices]
        images = [pixels for pixels in read if pixels is not None and pixels.shape == self._shape]
        if len(images) < len(ids):
            wrong = next(
                i for i, pixels in zip(ids, read, strict=True) if pixels is None or pixels.shape != self._shape
            )
            raise DatasetError(f"{wrong} changed while it was in use")
        batch = np.stack(images)
        for name, own in missing.items():
            rows = np.stack([self.variants.make_batch(variant, batch, ids) for variant in own])
            writer.staging.write(self._piece(name, unit), partial(save_array, values=rows))
            writer.wrote(len(own) * len(ids))

    def finish(self, writer: Writer) -> None:
        for name in self._groups:
            if not self._final(name).exists():
                writer.staging.write(self._final(name), partial(self._join, name))
            shutil.rmtree(self._workshop / name, ignore_errors=True)

    def _join(self, name: str, path: Path) -> None:
        count = len(self._readable)
        whole = open_memmap(path, mode="w+", dtype=np.uint8, shape=(self._depth * count, *self._shape))
        by_variant = whole.reshape(self._depth, count, *self._shape)
        for unit, piece in enumerate(self._pieces):
            file, expected = self._piece(name, unit), (self._depth, len(piece), *self._shape)
            try:
                rows: Pixels = np.load(file, mmap_mode="r", allow_pickle=False)
                if rows.shape != expected:
                    raise ValueError(f"an array {rows.shape}")
            except (OSError, ValueError, EOFError) as error:
                file.unlink(missing_ok=True)
                raise StoreError(
                    f"{file} is damaged; it was removed",
                    found=repr(error),
                    expected=f"an array {expected}",
                    hint="rerun the same command; it resumes",
                ) from error
            by_variant[:, piece.slice] = rows
        whole.flush()

    def _piece(self, name: str, unit: int) -> Path:
        return self._workshop / name / f"{unit:06d}.npy"

    def _final(self, name: str) -> Path:
        return self.folder / f"{name}.npy"


def _survey(variants: Variants, uniform: bool, threads: int) -> tuple[dict[str, str], tuple[int, ...]]:
    """Which images can't be used, and why, and the common shape of the others."""
    source, writer = variants.source, Writer(staging=None)  # type: ignore[arg-type]

    def look(index: int) -> tuple[int, ...] | None:
        pixels = writer.read(variants, index)
        return None if pixels is None else pixels.shape

    found = on_threads(look, range(min(1, len(source)) if uniform else len(source)), threads)
    shapes = {source.ids[index]: shape for index, shape in enumerate(found) if shape is not None}
    check_usable(source.name, len(shapes), writer.skipped)
    first, shape = next(iter(shapes.items()))
    for image_id, other in shapes.items():
        if other != shape:
            raise DatasetError(
                "the images of an array must have one size",
                found=f"{first} {shape}, {image_id} {other}",
                hint=f"resize them with {argument('size')}, or write a tree",
            )
    return writer.skipped, shape


def check_usable(name: str, usable: int, skipped: Mapping[str, str]) -> None:
    if not usable:
        raise DatasetError(f"no image of {name!r} can be used", found=next(iter(skipped.values()), None))


def keep_skipped(folder: Path, number: int, writer: Writer) -> None:
    """For a resumed run, whose files do not show which images are missing."""
    if writer.skipped:
        write_json(folder / WORKSHOP / SKIPPED / f"{number}.json", writer.skipped)


def kept_skipped(folder: Path) -> dict[str, str]:
    files = sorted((folder / WORKSHOP / SKIPPED).glob("*.json"))
    return {image_id: why for path in files for image_id, why in read_json(path).items()}


def file_size(path: str | Path) -> int:
    """0 if there is no such file."""
    try:
        return os.stat(path).st_size  # noqa: PTH116 - called millions of times
    except OSError:
        return 0
