"""Files and folders that appear complete or not at all, and folders that may be written to."""

from __future__ import annotations

import itertools
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from shiftbench.errors import StoreError
from shiftbench.io.locks import file_lock
from shiftbench.io.paths import Location
from shiftbench.jobs.base import Shard
from shiftbench.outputs.record import WORKSHOP

#: Folders in the workshop that are needed until all shards are done.
ARRAYS, SKIPPED = KEPT = ("arrays", "skipped")


class Staging:
    """Files are written in a folder of their own and renamed into place.

    What a killed run left there is cleared by the next one.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = itertools.count()
        self.clear()
        folder.mkdir(parents=True)

    def put(self, target: Path, data: bytes) -> None:
        """One image. Not forced to disk one by one, which would take longer than making it; ``os.sync`` at the end."""
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

    def clear(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def _temporary(self) -> Path:
        return self._folder / str(next(self._numbers))  # a count's next is one step for threads

    def _place(self, temporary: Path, target: Path) -> None:
        try:
            temporary.replace(target)
        except FileNotFoundError:
            target.parent.mkdir(parents=True, exist_ok=True)
            temporary.replace(target)


@contextmanager
def workshop(target: Path, shard: Shard) -> Iterator[Path]:
    """The folder where the files of a shard grow, for one run at a time; removed when the shard is done."""
    folder = target / WORKSHOP / str(shard).replace("/", "-of-")
    with file_lock(folder / "lock", wait=False) as free:
        if not free:
            raise StoreError(f"another run is writing to {target}", hint="wait for it, or write another shard")
        yield folder
        shutil.rmtree(folder, ignore_errors=True)
        # The last shard removes everything; the folder of one that was killed stays until it is continued, and so does
        # what the others need.
        if not any(path.name in KEPT or "-of-" in path.name for path in (target / WORKSHOP).iterdir()):
            shutil.rmtree(target / WORKSHOP, ignore_errors=True)


def check_destination(target: Path, record: str, source: Location | None = None) -> None:
    """Refuse to write into the source, around it, or into a folder of something else."""
    if source is not None:
        here, there = target.resolve(), source.resolve()
        if here == there or there in here.parents:
            raise StoreError("the destination lies inside the source", found=target, expected="a folder outside it")
        if here in there.parents:
            raise StoreError("the source lies inside the destination", found=source, expected="a folder outside it")
    if not target.exists():
        return
    if not target.is_dir():
        raise StoreError(f"{target} is not a folder", found="a file")
    # A run that was killed before its record leaves these and nothing else.
    others = sorted(path.name for path in target.iterdir() if path.name not in (WORKSHOP, ".lock"))
    if others and record not in others:
        raise StoreError(
            f"{target} holds other files",
            found=", ".join(others[:4]) + (f", ... ({len(others)} entries)" if len(others) > 4 else ""),
            expected=f"an empty folder, or one with {record}",
            hint="write to a new folder",
        )


def fill_folder(target: Path, fill: Callable[[Path], None]) -> None:
    """Call ``fill`` with an empty neighbour of ``target``, then rename it into place."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise StoreError(f"{target} already exists", hint="choose a new folder")
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.tmp")
    temporary.mkdir(parents=True)
    try:
        fill(temporary)
        if target.exists():
            target.rmdir()
        temporary.rename(target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def place_file(source: Path, target: Path) -> None:
    """A hard link to a file, or a copy where the file system has none."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
