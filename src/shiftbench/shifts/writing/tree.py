"""The tree of ImageNet-C: ``<corruption>/<severity>/<class>/<file>``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from shiftbench.shifts.writing.job import Job, Layout
from shiftbench.shifts.writing.places import class_folders, tree_paths


class Tree(Layout):
    """Each source picture is decoded once and written for all corruptions and severities."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._places = tree_paths(job.dataset, job.encoding)
        self._folders = [str(job.folder(shift)) for shift in job.shifts]
        self._todo = list(range(len(job.dataset)))

    def done(self) -> int:
        missing = {i: count for i in self._todo if (count := len(self._missing(i)))}
        self._todo = list(missing)
        return self.total - sum(missing.values())

    def prepare(self) -> None:
        for folder in self._folders:
            for name in ("", *class_folders(self.job.dataset)):
                os.makedirs(os.path.join(folder, name), exist_ok=True)  # noqa: PTH103, PTH118 - many, and strings

    def units(self) -> Sequence[int]:
        return self._todo

    def write_unit(self, number: int) -> None:
        """A picture under all shifts."""
        job, index = self.job, number
        missing = self._missing(index)
        pixels = job.read(index) if missing else None
        if pixels is None:
            job.left_out(len(missing))
            return
        for shift in missing:
            corrupted = job.corrupt(job.shifts[shift], pixels, index)
            job.staging.put(Path(self._folders[shift], self._places[index]), job.encoding(corrupted))
            job.wrote(1)

    def _missing(self, index: int) -> list[int]:
        """Shifts whose file is not there. An empty file is what a power failure may leave of a whole one."""
        place = self._places[index]
        return [number for number, folder in enumerate(self._folders) if not _size(f"{folder}/{place}")]


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116 - called millions of times
    except OSError:
        return 0
