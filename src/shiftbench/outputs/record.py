"""The record file of an output folder: how its files were written, and which source images could not be used.

Everything that determines the bytes is in the record. A later run with the same record continues the folder; any other
is refused, as images of two seeds look alike.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shiftbench.errors import StoreError
from shiftbench.io.atomic import named_refusals, read_json, to_disk, write_json
from shiftbench.io.locks import file_lock
from shiftbench.io.paths import Location
from shiftbench.jobs.base import Shard

#: Hidden staging folder beside the record; removed when the work is done.
WORKSHOP = ".writing"
Content = dict[str, Any]
Change = Callable[[Content], object]


def read_record(path: Path, kinds: Mapping[str, type], *, format: int = 1) -> Content | None:
    """The content of a record file whose keys have these types, or None if there is no such file."""
    if not path.exists():
        return None
    try:
        content = read_json(path)
        version = content["format"]
        wrong = [key for key, kind in kinds.items() if version == format and not isinstance(content.get(key), kind)]
        if wrong:
            raise TypeError(f"invalid or missing {', '.join(wrong)}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path} is not a valid record", found=repr(error), hint="write to a new folder") from error
    if version != format:
        raise StoreError(f"unsupported format version of {path}", found=version, expected=format)
    return dict(content)


def check_recipe(folder: Path, before: Mapping[str, object], now: Mapping[str, object]) -> None:
    """Refuse to mix two recipes in one folder, naming the first key that differs. Nested options count one by one."""
    old, new = _flat(before), _flat(now)
    for key in {**new, **old}:
        if old.get(key) != new.get(key):
            raise StoreError(
                f"{folder} was written with different {key}; one folder never holds both",
                found=json.dumps(old.get(key), ensure_ascii=False),
                expected=json.dumps(new.get(key), ensure_ascii=False),
                hint="write to another folder, or repeat the options that made this one",
            )


def _flat(recipe: Mapping[str, Any]) -> dict[str, object]:
    options = {f"option {key!r}": value for key, value in recipe.get("options", {}).items()}
    flat = {key: value for key, value in recipe.items() if key != "options"} | options
    if isinstance(source := flat.get("source"), Mapping):  # its name is where it was; its content is what counts
        flat["source"] = {key: value for key, value in source.items() if key != "name"}
    return flat


def plain(value: object) -> Any:
    """A value after a JSON round trip, for comparison with a stored one."""
    return json.loads(json.dumps(value))


@dataclass(frozen=True)
class OutputRecord:
    """The record of one folder, as one run wants it."""

    folder: Path
    #: File name.
    name: str
    about: str
    recipe: Mapping[str, Any]
    #: Adds what this run will write; raises if it does not fit what is there.
    enter: Change = lambda content: None
    #: Called when all of it is written.
    complete: Change = lambda content: None

    @property
    def path(self) -> Path:
        return self.folder / self.name

    def draft(self) -> Content:
        """The content, new or continued; raises if the folder was made in another way. Writes nothing."""
        recipe = plain(self.recipe)
        content = self.read()
        if content is None:
            content = {"format": 1, "about": self.about, "recipe": recipe, "skipped": []}
        check_recipe(self.folder, content["recipe"], recipe)
        self.enter(content)
        return content

    def begin(self) -> None:
        """Write the record; several shards may do so at once."""
        self.change(lambda content: None)

    def change(self, change: Change) -> None:
        """Write the record with a change to its content; several workers may do so at once."""
        with file_lock(self.folder / WORKSHOP / "lock", wait=True):
            content = self.draft()
            change(content)
            self._save(content)

    def finish(self, skipped: Mapping[str, str], tried: Collection[str], *, complete: bool) -> dict[str, str]:
        """Record the unusable images among those that were ``tried``; returns all of them."""
        with file_lock(self.folder / WORKSHOP / "lock", wait=True):
            content = self.read() or self.draft()
            before = {entry["id"]: entry["why"] for entry in content["skipped"]}
            kept = {image_id: why for image_id, why in before.items() if image_id not in tried}
            now = dict(sorted({**kept, **skipped}.items()))
            content["skipped"] = [{"id": image_id, "why": why} for image_id, why in now.items()]
            if complete:
                self.complete(content)
            self._save(content)
        return now

    def read(self) -> Content | None:
        return read_record(self.path, {"recipe": dict, "skipped": list})

    def _save(self, content: Content) -> None:
        if content == self.read():
            return
        # In the workshop first, so that a killed run leaves no half-written file beside the record.
        draft = self.folder / WORKSHOP / self.name
        write_json(draft, content)
        draft.replace(self.path)


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
        self.write(target, lambda temporary: temporary.write_bytes(data), durable=False)

    def write(self, target: Path, write: Callable[[Path], object], *, durable: bool = True) -> None:
        """One file; a ``durable`` one is forced to disk."""
        temporary = self._folder / str(next(self._numbers))  # a count's next is one step for threads
        with named_refusals(target):
            write(temporary)
            if durable:
                to_disk(temporary)
            try:
                temporary.replace(target)
            except FileNotFoundError:
                target.parent.mkdir(parents=True, exist_ok=True)
                temporary.replace(target)

    def clear(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


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
    # All that a run leaves that was killed before it wrote its record.
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


#: The name of a file, and what writes it to a path.
OutputFile = tuple[str, Callable[[Path], object]]


def write_files(record: OutputRecord, files: Iterable[OutputFile]) -> None:
    """Write those files of a folder that are missing."""
    record.draft()  # refuses before anything is touched
    with workshop(record.folder, Shard()) as folder:
        record.begin()
        staging = Staging(folder / "files")
        for name, write in files:
            if not (record.folder / name).exists():
                staging.write(record.folder / name, write, durable=False)


def place_file(source: Path, target: Path) -> None:
    """A hard link to a file, or a copy where the file system has none."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
