"""Layouts of the image variants on disk: a tree of files, or NumPy arrays; see ``packed`` for the others.

A layout consists of units that are written independently of each other, by threads here or by workers elsewhere. Each
source image is decoded once for all its variants.
"""

from __future__ import annotations

import os
import shutil
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
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
from shiftbench.outputs.checksums import ChecksumLog, Checksums
from shiftbench.outputs.encoding import Encoding
from shiftbench.outputs.record import ARRAYS, SKIPPED, WORKSHOP, Staging

_SURVEY = "survey.json"


class Variants(ABC):
    """The images to write: for each source image one per name. Workers get a pickled copy."""

    source: DatasetLike
    names: Sequence[str]
    encoding: Encoding

    @abstractmethod
    def make(self, variant: int, pixels: Pixels, image_id: str) -> Pixels:
        """One variant of an image; raises BadImageError if the image can't be used."""

    def make_batch(self, variant: int, images: Pixels, ids: Sequence[str]) -> Pixels:
        """One variant of several images of one size."""
        pairs = zip(images, ids, strict=True)
        return np.stack([self.make(variant, pixels, image_id) for pixels, image_id in pairs])

    def read(self, index: int) -> Pixels:
        """A source image, ready to make variants of; raises BadImageError if it can't be used."""
        return self.source.read(index).pixels

    def encode(self, pixels: Pixels, file: str) -> bytes:
        """The bytes of a variant in the file of this name."""
        return self.encoding(pixels)


@dataclass
class Writer:
    """The state of one worker: its staging folder and its counts."""

    staging: Staging
    advance: Advance = lambda count: None
    threads: int = 1
    written: int = 0
    #: By id of a source image: the reason why it could not be used.
    skipped: dict[str, str] = field(default_factory=dict)
    _counting: threading.Lock = field(default_factory=threading.Lock)

    def read(self, variants: Variants, index: int) -> Pixels | None:
        """A source image; None, after a note in ``skipped``, if it can't be used."""
        try:
            return variants.read(index)
        except BadImageError as error:
            self.skip(variants.source.ids[index], error)
            return None

    def skip(self, image_id: str, error: BadImageError) -> None:
        """Note that an image can't be used."""
        self.skipped[image_id] = str(error.found or error.message)

    def wrote(self, count: int) -> None:
        """Count images that were written; called from several threads."""
        with self._counting:
            self.written += count
        self.advance(count)


class Layout(ABC):
    """Units are numbered; each holds all variants of some source images."""

    #: The source images of each unit.
    parts: Sequence[Sequence[int]]
    #: The largest number of source images of a unit.
    unit_images: int = 1
    #: Whether all threads write one unit together, then the next, so that memory holds a single unit.
    threads_inside: bool = False
    #: Whether the content of files that exist is compared with what was written, not only their size.
    verify: bool = False
    #: Whether a file without a checksum counts as missing.
    needs_checksums: bool = False

    def __init__(self, variants: Variants, folder: Path) -> None:
        self.variants = variants
        self.folder = folder
        self._checksums: Checksums | None = None
        self._log: ChecksumLog | None = None

    def __getstate__(self) -> dict[str, object]:
        """All attributes but the log: every worker writes one of its own."""
        return {**self.__dict__, "_log": None}

    @property
    def units(self) -> range:
        """The numbers of all units."""
        return range(len(self.parts))

    @abstractmethod
    def missing(self, unit: int) -> Sequence[int]:
        """The variants that are not on disk."""

    def scan(self) -> None:
        """Look at the folder once for all units; called before ``missing``."""
        self._checksums = Checksums(self.folder)

    def prepare(self, writer: Writer) -> None:  # noqa: B027 - not all layouts need it
        """Called once, before any unit is written."""

    @abstractmethod
    def write(self, unit: int, writer: Writer) -> None:
        """Write what is missing of a unit."""

    def finish(self, writer: Writer) -> None:
        """Called once, when all units are written."""
        Checksums(self.folder).join()

    def is_as_written(self, file: str) -> bool:
        """Whether a file below the folder exists and is what was written, as far as that was noted.

        Empty files count as missing, as a power failure may leave them.
        """
        size = file_size(f"{self.folder}/{file}")
        if not size:
            return False
        if self._checksums is None:
            return True
        if self.needs_checksums and self._checksums.get(file) is None:
            return False
        return not self._checksums.differs(file, size, content=self.verify)

    @property
    def log(self) -> ChecksumLog:
        """The checksums of what this worker writes; each worker has a file of its own."""
        if self._log is None:
            self._log = ChecksumLog(self.folder)
        return self._log

    def put(self, writer: Writer, file: str, write: Callable[[Path], object]) -> None:
        """Write a file below the folder, and note its checksum before it is in place."""

        def write_and_note(temporary: Path) -> None:
            write(temporary)
            self.log.add_file(file, temporary)

        writer.staging.write(self.folder / file, write_and_note)


class Tree(Layout):
    """A file per source image and variant: ``files[image][variant]`` below the folder."""

    def __init__(
        self, variants: Variants, folder: Path, files: Sequence[Sequence[str]], folders: Sequence[str] = ()
    ) -> None:
        """``folders`` are made even if they stay empty."""
        super().__init__(variants, folder)
        self._files = files
        self._folders = folders
        self.parts = [(index,) for index in range(len(files))]

    def missing(self, unit: int) -> Sequence[int]:
        """The variants without a file, or with one that is not what was written."""
        return [variant for variant, file in enumerate(self._files[unit]) if not self.is_as_written(file)]

    def prepare(self, writer: Writer) -> None:
        for folder in self._folders:
            (self.folder / folder).mkdir(parents=True, exist_ok=True)

    def write(self, unit: int, writer: Writer) -> None:
        missing = self.missing(unit)
        pixels = writer.read(self.variants, unit) if missing else None
        if pixels is None:
            writer.advance(len(missing))
            return
        image_id = self.variants.source.ids[unit]
        files = [self._files[unit][variant] for variant in missing]
        try:
            for variant, file in zip(missing, files, strict=True):
                variant_pixels = self.variants.make(variant, pixels, image_id)
                data = self.variants.encode(variant_pixels, file)
                self.log.add([(file, data)])
                writer.staging.put(self.folder / file, data)
        except BadImageError as error:
            # An image that one of the variants can't be made of is left out of all of them.
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
        self._groups = groups
        #: Number of variants in each array.
        self._depth = len(next(iter(groups.values())))
        self._workshop = folder / WORKSHOP / ARRAYS
        # An array must know its length before its first row. The survey is kept, so that images are surveyed once,
        # whichever run continues.
        try:
            survey = read_json(self._workshop / _SURVEY)
            self._skipped: dict[str, str] = survey["skipped"]
            self._shape: tuple[int, ...] = tuple(survey["shape"])
        except FileNotFoundError:
            self._skipped, self._shape = _survey(variants, uniform, threads)
        self._readable = [i for i, image_id in enumerate(variants.source.ids) if image_id not in self._skipped]
        self.unit_images = self._piece_size()
        self._pieces = cut(len(self._readable), self.unit_images)
        self.parts = [self._readable[piece.slice] for piece in self._pieces]
        #: By array: the units whose piece, or whose array, is on disk.
        self._written_units: dict[str, set[int]] = {}

    def _piece_size(self) -> int:
        """Images per piece: at most 256 or 4 MiB of them, and at most a 16th of all.

        The size depends on the data alone, as pieces outlive a run.
        """
        image_bytes = int(np.prod(self._shape))
        sixteenth = -(-len(self._readable) // 16)
        return max(1, min(256, (4 << 20) // image_bytes, sixteenth))

    def scan(self) -> None:
        """List the folder, and remove arrays and pieces that are not what was written.

        Its files are not looked up one by one: a shared file system may remember for a minute that a file was missing.
        """
        pieces: dict[str, list[int]] = {}
        for name in self._groups:
            stems = (path.stem for path in (self._workshop / name).glob("*.npy"))
            # Tools that copy folders between machines leave other names there.
            pieces[name] = [int(stem) for stem in stems if stem.isdigit()]
        # The checksum of a piece is noted before the piece is in place, so what was listed now has one.
        super().scan()
        for name, numbers in pieces.items():
            if self._is_kept(self._final(name)):
                self._written_units[name] = set(self.units)
            else:
                self._written_units[name] = {number for number in numbers if self._is_kept(self._piece(name, number))}

    def _is_kept(self, file: str) -> bool:
        """Whether a file is as it was written; another one is removed."""
        if self.is_as_written(file):
            return True
        (self.folder / file).unlink(missing_ok=True)
        return False

    def missing(self, unit: int) -> Sequence[int]:
        missing: list[int] = []
        for name, variants in self._groups.items():
            if unit not in self._written_units.get(name, ()):
                missing += variants
        return missing

    def prepare(self, writer: Writer) -> None:
        """Fix the set of images of the folder."""
        write_json(self._workshop / _SURVEY, {"skipped": self._skipped, "shape": list(self._shape)})
        writer.skipped.update(self._skipped)
        labels = np.tile(self.variants.source.labels[self._readable].astype(np.int64), self._depth)
        if not self.is_as_written("labels.npy"):
            self.put(writer, "labels.npy", lambda temporary: save_array(temporary, labels))

    def write(self, unit: int, writer: Writer) -> None:
        missing = []
        for name in self._groups:
            if not (self.folder / self._piece(name, unit)).exists() and not (self.folder / self._final(name)).exists():
                missing.append(name)
        if not missing:
            return
        ids = [self.variants.source.ids[index] for index in self.parts[unit]]
        images = self._read_images(unit, writer)
        for name in missing:
            variants = self._groups[name]
            rows = np.stack([self.variants.make_batch(variant, images, ids) for variant in variants])
            self.put(writer, self._piece(name, unit), partial(save_array, values=rows))
            writer.wrote(len(variants) * len(ids))

    def _read_images(self, unit: int, writer: Writer) -> Pixels:
        """The source images of a unit; raises DatasetError if one is no longer as it was surveyed."""
        images = []
        for index in self.parts[unit]:
            pixels = writer.read(self.variants, index)
            if pixels is None or pixels.shape != self._shape:
                raise DatasetError(f"{self.variants.source.ids[index]} changed while it was in use")
            images.append(pixels)
        return np.stack(images)

    def finish(self, writer: Writer) -> None:
        for name in self._groups:
            if not (self.folder / self._final(name)).exists():
                self.put(writer, self._final(name), partial(self._join, name))
            shutil.rmtree(self._workshop / name, ignore_errors=True)
        pieces = (self._piece(name, unit) for name in self._groups for unit in self.units)
        Checksums(self.folder).join(without=pieces)

    def _join(self, name: str, path: Path) -> None:
        """Write one array, made of its pieces, to a path; raises StoreError if a piece is damaged."""
        count = len(self._readable)
        array = open_memmap(path, mode="w+", dtype=np.uint8, shape=(self._depth * count, *self._shape))
        by_variant = array.reshape(self._depth, count, *self._shape)
        for unit, piece in enumerate(self._pieces):
            expected_shape = (self._depth, len(piece), *self._shape)
            by_variant[:, piece.slice] = _load_piece(self.folder / self._piece(name, unit), expected_shape)
        array.flush()

    def _piece(self, name: str, unit: int) -> str:
        """The file of one unit of an array, until all are joined."""
        return f"{WORKSHOP}/{ARRAYS}/{name}/{unit:06d}.npy"

    def _final(self, name: str) -> str:
        """The file of an array."""
        return f"{name}.npy"


def _load_piece(file: Path, expected_shape: tuple[int, ...]) -> Pixels:
    """The rows of a piece, mapped; a damaged piece is removed, and StoreError raised."""
    try:
        rows: Pixels = np.load(file, mmap_mode="r", allow_pickle=False)
        if rows.shape != expected_shape:
            raise ValueError(f"an array {rows.shape}")
    except (OSError, ValueError, EOFError) as error:
        file.unlink(missing_ok=True)
        raise StoreError(
            f"{file} is damaged; it was removed",
            found=repr(error),
            expected=f"an array {expected_shape}",
            hint="rerun the same command; it resumes",
        ) from error
    return rows


def _survey(variants: Variants, uniform: bool, threads: int) -> tuple[dict[str, str], tuple[int, ...]]:
    """The images that can't be used, with the reason, and the common shape of the others.

    Of ``uniform`` images only the first is read. Raises DatasetError if shapes differ, or no image can be used.
    """
    source = variants.source
    writer = Writer(staging=None)  # type: ignore[arg-type]

    def shape_of(index: int) -> tuple[int, ...] | None:
        pixels = writer.read(variants, index)
        return None if pixels is None else pixels.shape

    count = min(1, len(source)) if uniform else len(source)
    shapes_or_none = on_threads(shape_of, range(count), threads)
    shapes = {source.ids[index]: shape for index, shape in enumerate(shapes_or_none) if shape is not None}
    check_usable(source.name, len(shapes), writer.skipped)
    first_id, first_shape = next(iter(shapes.items()))
    for image_id, shape in shapes.items():
        if shape != first_shape:
            raise DatasetError(
                "the images of an array must have one size",
                found=f"{first_id} {first_shape}, {image_id} {shape}",
                hint=f"resize them with {argument('size')}, or write a tree",
            )
    return writer.skipped, first_shape


def check_usable(name: str, usable: int, skipped: Mapping[str, str]) -> None:
    """Raise DatasetError if no image of a dataset can be used."""
    if not usable:
        raise DatasetError(f"no image of {name!r} can be used", found=next(iter(skipped.values()), None))


def keep_skipped(folder: Path, number: int, writer: Writer) -> None:
    """Keep the images that could not be used, for a resumed run, whose files do not show which are missing."""
    if writer.skipped:
        write_json(folder / WORKSHOP / SKIPPED / f"{number}.json", writer.skipped)


def kept_skipped(folder: Path) -> dict[str, str]:
    """All images that ``keep_skipped`` has kept."""
    skipped: dict[str, str] = {}
    for path in sorted((folder / WORKSHOP / SKIPPED).glob("*.json")):
        skipped |= read_json(path)
    return skipped


def file_size(path: str | Path) -> int:
    """The size of a file in bytes; 0 if there is no such file."""
    try:
        return os.stat(path).st_size  # noqa: PTH116 - called millions of times
    except OSError:
        return 0
