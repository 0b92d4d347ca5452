"""Augmented copies of a folder tree: the same tree again, continued after any interruption, in shards if wanted.

The generator of a copy belongs to (seed, picture, copy). The bytes do not depend on workers, shards or interruptions.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from shiftbench.arrays import Pixels
from shiftbench.datasets.files import FileDataset
from shiftbench.datasets.folder import open_unlabelled
from shiftbench.errors import DatasetError, ShiftbenchError, StoreError
from shiftbench.hardening.augmentations.base import ImageAugmentation, image_augmentations
from shiftbench.hardening.augmentations.folder_record import (
    RECORD,
    begin,
    check_recipe,
    described,
    listing,
    note_skipped,
    read_record,
)
from shiftbench.hardening.augmentations.options import AugmentationError, checked_options, whole
from shiftbench.hardening.augmentations.streams import stream
from shiftbench.io.locks import claim
from shiftbench.jobs.progress import Advance, progress_bar
from shiftbench.jobs.threads import for_each, one_torch_thread, worker_count
from shiftbench.labels.space import LabelSpace
from shiftbench.shifts.seeds import SEED_SCHEME
from shiftbench.shifts.writing.encoding import Encoding, without_picture_suffix
from shiftbench.shifts.writing.job import Staging
from shiftbench.shifts.writing.record import WORKSHOP

if TYPE_CHECKING:
    from rich.console import Console

#: Training pictures: finer than the quality 85 that corrupted ones are published with.
JPEG_QUALITY = 95
#: Changes when the same options give other pixels.
VERSION = 1


@dataclass(frozen=True)
class Shard:
    """The ``number``-th of ``count`` equal parts of the work, counted from 1.

    >>> Shard.parse("2/8")
    Shard(number=2, count=8)
    """

    number: int = 1
    count: int = 1

    @classmethod
    def parse(cls, text: str) -> Shard:
        number, _, count = text.partition("/")
        if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
            raise AugmentationError("a shard is NUMBER/COUNT, counted from 1", found=repr(text), expected="such as 2/8")
        return cls(int(number), int(count))

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


@dataclass(frozen=True)
class Augmented:
    """What ``augment_folder`` did."""

    destination: Path
    source: Path
    augmentation: str
    options: dict[str, Any]
    copies: int
    shard: Shard
    #: Source pictures of this shard.
    pictures: int
    #: Augmented pictures written now, and those that were there before.
    written: int
    already: int
    seconds: float
    #: Source pictures that could not be used, and why.
    skipped: dict[str, str] = field(default_factory=dict)

    def summary(self) -> dict[str, Any]:
        """JSON-able."""
        return {
            "destination": str(self.destination),
            "record": str(self.destination / RECORD),
            "source": str(self.source),
            "augmentation": self.augmentation,
            "options": self.options,
            "copies": self.copies,
            "shard": str(self.shard),
            "pictures": self.pictures,
            "written": self.written,
            "already": self.already,
            "seconds": round(self.seconds, 3),
            "skipped": [{"id": image_id, "why": why} for image_id, why in sorted(self.skipped.items())],
        }


def augment_folder(
    source: str | Path,
    destination: str | Path,
    name: str,
    *,
    options: Mapping[str, Any] | None = None,
    copies: int = 1,
    shard: Shard | None = None,
    seed: int = 0,
    lossless: bool = False,
    workers: int | None = None,
    progress: bool = False,
    console: Console | None = None,
) -> Augmented:
    """``copies`` augmentations of every picture below ``source``, under the same names below ``destination``.

    Several copies get ``-1``, ``-2``, ... before the suffix. JPEG stays JPEG, everything else becomes PNG, as does
    all with ``lossless``. Files that are no pictures are left alone.

    The same call continues one that was stopped at any moment; one with other options is refused. Shards of the
    same call may run at the same time, on several machines with one file system.
    """
    started = time.monotonic()
    root, target, part = Path(source), Path(destination), shard or Shard()
    count = whole("copies", copies, 1, 10_000)
    factory = image_augmentations.get(name)
    chosen = checked_options(factory, name, options or {})
    check_places(root, target)
    pictures = pictures_below(root)
    check_links(pictures, target)
    places = names_of_copies(pictures.paths, count, lossless=lossless)
    recipe = _recipe(pictures, name, chosen, count, seed, lossless)
    if (found := read_record(target)) is not None:
        check_recipe(target, found["recipe"], recipe)  # refuses before anything is touched
    work = _Work(pictures, target, factory(**dict(options or {})), places, seed)
    already = work.look(range(part.number - 1, len(pictures), part.count))
    with _workshop(target, part) as workshop:
        begin(target, recipe)
        work.staging = Staging(workshop)
        with progress_bar("augmented pictures", work.total, already, show=progress, console=console) as work.progress:
            for_each(work.picture, work.missing, worker_count(workers))
        if work.written:
            work.staging.sync()
        note_skipped(target, work.skipped, [pictures.ids[i] for i in work.missing])
    if len(work.skipped) == len(pictures):
        raise DatasetError(f"no picture of {root} can be used", found=next(iter(work.skipped.values())))
    seconds, tried = time.monotonic() - started, work.total // count
    return Augmented(target, root, name, chosen, count, part, tried, work.written, already, seconds, work.skipped)


@contextlib.contextmanager
def _workshop(target: Path, part: Shard) -> Iterator[Path]:
    """The folder where this shard's files grow, for one run at a time; taken away when the shard is done."""
    folder = target / WORKSHOP / str(part).replace("/", "-of-")
    with claim(folder / "lock", wait=False) as free:
        if not free:
            raise StoreError(f"another run is writing this part of {target}", hint="wait for it, or take another shard")
        yield folder
        shutil.rmtree(folder, ignore_errors=True)
        # The last shard takes all of it away; the folder of one that was killed stays until it is continued.
        if not any(path.is_dir() for path in folder.parent.iterdir()):
            shutil.rmtree(folder.parent, ignore_errors=True)


def pictures_below(root: str | Path) -> FileDataset:
    """Every picture below a folder, whatever the folders mean. Links are followed, as in every data set."""
    return open_unlabelled(root, space=LabelSpace("pictures", ("picture",)))


class _Work:
    """The pictures of one shard that are still to be made."""

    staging: Staging

    def __init__(
        self,
        pictures: FileDataset,
        target: Path,
        augmentation: ImageAugmentation,
        places: Sequence[Sequence[str]],
        seed: int,
    ) -> None:
        self.pictures, self.target, self.augmentation = pictures, target, augmentation
        self.places, self.seed = places, seed
        #: For each source picture the copies that are not there.
        self.missing: dict[int, list[int]] = {}
        #: Copies of the whole shard.
        self.total = 0
        self.skipped: dict[str, str] = {}
        self.written = 0
        self.progress: Advance = lambda count: None
        self._counting = threading.Lock()

    def look(self, indices: Sequence[int]) -> int:
        """Find what is to be made; returns how many copies are there already."""
        for index in indices:
            copies = [copy for copy, place in enumerate(self.places[index]) if not _size(self.target / place)]
            self.total += len(self.places[index])
            if copies:
                self.missing[index] = copies
        return self.total - sum(map(len, self.missing.values()))

    def picture(self, index: int) -> None:
        image_id, copies = self.pictures.ids[index], self.missing[index]
        try:
            pixels = self.pictures.read(index).pixels
            made = [self._augmented(pixels, image_id, copy) for copy in copies]
        except ShiftbenchError as error:  # broken, or of a kind that the augmentation can't take
            self.skipped[image_id] = str(error.found or error.message)
            self.progress(len(copies))
            return
        for copy, augmented in zip(copies, made, strict=True):
            place = self.places[index][copy]
            self.staging.put(self.target / place, _encoding(place)(augmented))
            with self._counting:
                self.written += 1
            self.progress(1)

    def _augmented(self, pixels: Pixels, image_id: str, copy: int) -> Pixels:
        with one_torch_thread():
            return self.augmentation(pixels, stream(self.seed, "augment", image_id, copy))


def check_places(source: Path, target: Path) -> None:
    """Refuse to write into the source or around it, or into a folder of something else."""
    here, there = target.resolve(), source.resolve()
    if here == there or there in here.parents:
        raise StoreError("the destination lies inside the source", found=target, expected="a folder outside it")
    if here in there.parents:
        raise StoreError("the source lies inside the destination", found=source, expected="a folder outside it")
    if not target.exists():
        return
    if not target.is_dir():
        raise StoreError(f"{target} is not a folder", found="a file")
    # A run that was killed before its record leaves the workshop and nothing else.
    others = sorted(path.name for path in target.iterdir() if path.name != WORKSHOP)
    if others and read_record(target) is None:
        shown = ", ".join(others[:4]) + (f", ... ({len(others)} entries)" if len(others) > 4 else "")
        raise StoreError(
            f"{target} holds something else",
            found=shown,
            expected=f"an empty folder, or one with {RECORD}",
            hint="write to a new folder",
        )


def check_links(pictures: FileDataset, target: Path) -> None:
    """Links may bring pictures into the source; none may lead the work out of the destination, or into itself."""
    inside = target.resolve()
    for folder in sorted({str(PurePosixPath(path).parent) for path in pictures.paths}):
        came_from, goes_to = (pictures.root / folder).resolve(), (target / folder).resolve()
        if came_from == inside or inside in came_from.parents:
            raise StoreError("a link in the source leads into the destination", found=pictures.root / folder)
        if goes_to != inside and inside not in goes_to.parents:
            raise StoreError(
                "a link in the destination leads out of it",
                found=f"{target / folder} -> {goes_to}",
                expected="plain folders",
            )


def names_of_copies(paths: Sequence[str], copies: int, *, lossless: bool = False) -> list[list[str]]:
    """Where the copies of each picture go, below the destination.

    >>> names_of_copies(["cat/a.JPEG", "b.tif"], 1)
    [['cat/a.JPEG'], ['b.png']]
    >>> names_of_copies(["cat/a.JPEG"], 2)
    [['cat/a-1.JPEG', 'cat/a-2.JPEG']]

    Two pictures that would get one name keep their old suffix inside the new one.

    >>> names_of_copies(["a.tif", "a.png"], 1)
    [['a.tif.png'], ['a.png']]
    """
    names = [_suffixed(path, lossless) for path in paths]
    taken = Counter(names)
    names = [
        f"{path}.png" if taken[name] > 1 and name != path else name for path, name in zip(paths, names, strict=True)
    ]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise DatasetError("two pictures would be written to one file", found=twice[0], hint="rename one of them")
    if copies == 1:
        return [[name] for name in names]
    stems = [PurePosixPath(name) for name in names]
    return [[str(stem.with_name(f"{stem.stem}-{i}{stem.suffix}")) for i in range(1, copies + 1)] for stem in stems]


def _suffixed(path: str, lossless: bool) -> str:
    suffix = PurePosixPath(path).suffix.lower()
    if suffix == ".png" or (suffix in (".jpg", ".jpeg") and not lossless):
        return path
    return f"{without_picture_suffix(path)}.png"


def _encoding(place: str) -> Encoding:
    return Encoding(lossless=place.lower().endswith(".png"), quality=JPEG_QUALITY)


def _recipe(
    pictures: FileDataset, name: str, options: Mapping[str, Any], copies: int, seed: int, lossless: bool
) -> dict[str, Any]:
    """All that decides the bytes, in JSON's words. The source counts by its names and sizes, not by its place."""
    sizes = [(i, _size(pictures.root / path)) for i, path in zip(pictures.ids, pictures.paths, strict=True)]
    return {
        "augmentation": name,
        "options": {key: described(key, value) for key, value in options.items()},
        "copies": copies,
        "seed": seed,
        "lossless": lossless,
        "version": VERSION,
        "seed_scheme": SEED_SCHEME,
        "source": {"pictures": len(pictures), "listing": listing(sizes)},
    }


def _size(path: Path) -> int:
    """0 also for what is not there: an empty file is what a power failure may leave of a whole one."""
    try:
        return os.stat(path).st_size  # noqa: PTH116 - called millions of times
    except OSError:
        return 0
