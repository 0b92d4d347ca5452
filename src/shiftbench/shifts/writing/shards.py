"""WebDataset shards: ``<corruption>/<severity>/000000.tar`` with members ``key.jpg`` and ``key.cls``.

A chunk of pictures is decoded once; then each corruption and severity of it is one tar file, made by one worker
and renamed into place. A killed run loses the tar files it was at, a few seconds of work.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Sequence
from pathlib import Path

from shiftbench.arrays import Pixels
from shiftbench.jobs.threads import for_each
from shiftbench.shifts.corruptions import Corruption
from shiftbench.shifts.writing.job import Job, Layout
from shiftbench.shifts.writing.places import shard_keys

SHARD_SIZE = 1000
#: Decoded pictures are kept up to so many bytes; those beyond are decoded again for each corruption.
_KEEP_BYTES = 1 << 30


class Shards(Layout):
    def __init__(self, job: Job, shard_size: int = SHARD_SIZE) -> None:
        super().__init__(job)
        self.unit_images = shard_size
        self._keys = shard_keys(job.dataset)
        count = len(job.dataset)
        self._chunks = [range(start, min(start + shard_size, count)) for start in range(0, count, shard_size)]

    def done(self) -> int:
        return sum(
            len(chunk)
            for number, chunk in enumerate(self._chunks)
            for shift in self.job.shifts
            if self._file(shift, number).exists()
        )

    def write(self) -> None:
        """One after the other, each by all threads: of decoded pictures there is one chunk in memory."""
        for number in self.units():
            self.write_unit(number)

    def units(self) -> Sequence[int]:
        return [number for number in range(len(self._chunks)) if self._missing(number)]

    def write_unit(self, number: int) -> None:
        """A chunk of pictures: one tar file for each shift."""
        chunk, shifts = self._chunks[number], self._missing(number)
        pictures = _Pictures(self.job)
        for_each(pictures.load, chunk, self.job.workers)
        self.job.keep_skipped(number)
        usable = [index for index in chunk if self.job.dataset.ids[index] not in self.job.skipped]

        def write(shift: Corruption) -> None:
            file = self._file(shift, number)
            self.job.staging.write(file, lambda path: self._tar(path, shift, usable, pictures))
            self.job.left_out(len(chunk) - len(usable))

        for_each(write, shifts, self.job.workers)

    def _missing(self, number: int) -> list[Corruption]:
        return [shift for shift in self.job.shifts if not self._file(shift, number).exists()]

    def _tar(self, path: Path, shift: Corruption, indices: Sequence[int], pictures: _Pictures) -> None:
        with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as archive:
            for index in indices:
                corrupted = self.job.corrupt(shift, pictures[index], index)
                _add(archive, f"{self._keys[index]}.{self.job.encoding.ending}", self.job.encoding(corrupted))
                label = int(self.job.dataset.labels[index])
                if label >= 0:
                    _add(archive, f"{self._keys[index]}.cls", str(label).encode())
                self.job.wrote(1)

    def _file(self, shift: Corruption, number: int) -> Path:
        return self.job.folder(shift) / f"{number:06d}.tar"


class _Pictures:
    """The decoded pictures of a chunk, within the bounds of memory."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._kept: dict[int, Pixels] = {}
        self._bytes = 0

    def load(self, index: int) -> None:
        pixels = self._job.read(index)
        # Two threads may both pass the limit: it is a guideline, not a wall.
        if pixels is not None and self._bytes + pixels.nbytes <= _KEEP_BYTES:
            self._bytes += pixels.nbytes
            self._kept[index] = pixels

    def __getitem__(self, index: int) -> Pixels:
        pixels = self._kept.get(index)
        if pixels is None:
            pixels = self._job.read(index)
        assert pixels is not None, "a picture that was readable a moment ago"
        return pixels


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    """A member without date or owner, so that equal content gives equal bytes."""
    member = tarfile.TarInfo(name)
    member.size, member.mode, member.mtime = len(data), 0o644, 0
    archive.addfile(member, io.BytesIO(data))
