"""What all layouts share: the pictures, the shifts, and files that appear whole or not at all."""

from __future__ import annotations

import itertools
import os
import shutil
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from shiftbench.arrays import Pixels
from shiftbench.datasets.base import Dataset
from shiftbench.errors import BadImageError
from shiftbench.io.atomic import read_json, write_json
from shiftbench.jobs.progress import Advance
from shiftbench.jobs.threads import for_each
from shiftbench.shifts.corruptions import Corruption
from shiftbench.shifts.writing.encoding import Encoding
from shiftbench.shifts.writing.record import WORKSHOP
from shiftbench.shifts.writing.sizes import Preparation


class Staging:
    """Files are written in a folder of their own and renamed into place.

    What a killed run left behind lies there alone, and is cleared by the next one.
    """

    def __init__(self, root: Path, name: str = "files") -> None:
        """``name`` is the folder's own: workers that write at the same time have one each."""
        self.root = root
        self._folder = root / WORKSHOP / name
        self._numbers = itertools.count()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)

    def put(self, target: Path, data: bytes) -> None:
        """One picture. Not forced to disk one by one, which would take longer than corrupting; ``sync`` at the end."""
        temporary = self._temporary()
        with temporary.open("wb", buffering=0) as file:
            file.write(data)
        self._place(temporary, target)

    def write(self, target: Path, write: Callable[[Path], None]) -> None:
        """One large file, forced to disk."""
        temporary = self._temporary()
        write(temporary)
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        self._place(temporary, target)

    def sync(self) -> None:
        if hasattr(os, "sync"):
            os.sync()

    def clear(self) -> None:
        """Of a worker that is done; the others go on."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def close(self) -> None:
        shutil.rmtree(self.root / WORKSHOP, ignore_errors=True)

    def _temporary(self) -> Path:
        return self._folder / str(next(self._numbers))  # a count's next is one step for threads

    def _place(self, temporary: Path, target: Path) -> None:
        try:
            temporary.replace(target)
        except FileNotFoundError:
            target.parent.mkdir(parents=True, exist_ok=True)
            temporary.replace(target)


@dataclass
class Job:
    """One call of ``write_corruptions``, checked and ready to run."""

    dataset: Dataset
    destination: Path
    shifts: Sequence[Corruption]
    preparation: Preparation
    encoding: Encoding
    seed: int
    workers: int
    staging: Staging
    #: Pictures that could not be used, and why.
    skipped: dict[str, str] = field(default_factory=dict)
    #: Corrupted images written by this job.
    written: int = 0
    #: Told of every corrupted image that is settled, written or not.
    progress: Advance = lambda count: None
    _counting: threading.Lock = field(default_factory=threading.Lock)

    def read(self, index: int) -> Pixels | None:
        """A source picture, resized and cropped; None if it can't be used, which is noted."""
        image_id = self.dataset.ids[index]
        try:
            return self.preparation(self.dataset.read(index).pixels, image_id)
        except BadImageError as error:
            self.skipped[image_id] = str(error.found or error.message)
            return None

    def keep_skipped(self, number: int) -> None:
        """Of a unit, or of several: for a run that continues, and finds files that do not tell who is missing."""
        if self.skipped:
            write_json(self._skipped / f"{number}.json", self.skipped)

    def gather_skipped(self) -> None:
        for path in self._skipped.glob("*.json"):
            self.skipped.update(read_json(path))

    @property
    def _skipped(self) -> Path:
        return self.destination / WORKSHOP / "skipped"

    def corrupt(self, shift: Corruption, pixels: Pixels, index: int) -> Pixels:
        return shift(pixels, image_id=self.dataset.ids[index], seed=self.seed)

    def wrote(self, count: int) -> None:
        with self._counting:
            self.written += count
        self.progress(count)

    def left_out(self, count: int) -> None:
        """Corrupted images that there can't be, because of a bad picture."""
        self.progress(count)

    def folder(self, shift: Corruption) -> Path:
        return self.destination / shift.corruption / f"{shift.severity:g}"


class Layout(ABC):
    """One way to lay corrupted images out on disk, in units that can be written apart from each other: by threads
    here, or by workers elsewhere."""

    #: Source pictures of a unit, at most.
    unit_images: int = 1

    def __init__(self, job: Job) -> None:
        self.job = job

    @property
    def total(self) -> int:
        """Corrupted images when all is written."""
        return len(self.job.dataset) * len(self.job.shifts)

    @abstractmethod
    def done(self) -> int:
        """Corrupted images that are there already; called before anything is written."""

    def prepare(self) -> None:  # noqa: B027 - not all layouts need it
        """Once, before any unit is written."""

    @abstractmethod
    def units(self) -> Sequence[int]:
        """What is not (all) there yet, by number."""

    @abstractmethod
    def write_unit(self, number: int) -> None:
        """Write what is missing of it, and tell the job of each image."""

    def write(self) -> None:
        """All units that are missing, by threads of this process."""
        for_each(self.write_unit, self.units(), self.job.workers)

    def finish(self) -> None:  # noqa: B027 - nor this
        """Once, when all units are written."""
