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
from shiftbench.io.paths import Location, refuse_linked_folders
from shiftbench.jobs.base import Shard

#: Hidden staging folder beside the record; removed when the work is done.
WORKSHOP = ".writing"
#: Folders in the workshop that are needed until all shards are done.
ARRAYS = "arrays"
SKIPPED = "skipped"
CHECKSUMS = "checksums"
KEPT = (ARRAYS, SKIPPED, CHECKSUMS)
Content = dict[str, Any]
Change = Callable[[Content], object]


def read_record(path: Path, kinds: Mapping[str, type], *, format: int = 1) -> Content | None:
    """The content of a record file whose keys have these types; None if there is no such file.

    Raises StoreError for a file that is damaged or of another format.
    """
    if not path.exists():
        return None
    try:
        content = read_json(path)
        version = content["format"]
        invalid_keys = [key for key, kind in kinds.items() if not isinstance(content.get(key), kind)]
        # Another format may have other keys, and is reported below.
        if invalid_keys and version == format:
            raise TypeError(f"invalid or missing {', '.join(invalid_keys)}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path} is not a valid record", found=repr(error), hint="write to a new folder") from error
    if version != format:
        raise StoreError(f"unsupported format version of {path}", found=version, expected=format)
    return dict(content)


def check_recipe(folder: Path, written: Mapping[str, object], requested: Mapping[str, object]) -> None:
    """Refuse to mix two recipes in one folder, naming the first key that differs. Nested options count one by one."""
    old = _flat(written)
    new = _flat(requested)
    for key in {**new, **old}:
        if old.get(key) != new.get(key):
            raise StoreError(
                f"{folder} was written with different {key}; one folder never holds both",
                found=json.dumps(old.get(key), ensure_ascii=False),
                expected=json.dumps(new.get(key), ensure_ascii=False),
                hint="write to another folder, or repeat the options that made this one",
            )


def _flat(recipe: Mapping[str, Any]) -> dict[str, object]:
    """A recipe with every option as a key of its own."""
    flat = {key: value for key, value in recipe.items() if key != "options"}
    for key, value in recipe.get("options", {}).items():
        flat[f"option {key!r}"] = value
    source = flat.get("source")
    if isinstance(source, Mapping):
        # The name of the source says where it was, which may change; what counts is its content.
        flat["source"] = {key: value for key, value in source.items() if key != "name"}
    return flat


def plain(value: object) -> Any:
    """A value after a JSON round trip, for comparison with a stored one."""
    return json.loads(json.dumps(value))


@dataclass(frozen=True)
class OutputRecord:
    """The record of one folder, as one run requests it."""

    folder: Path
    name: str  #: The name of the record file.
    about: str
    recipe: Mapping[str, Any]
    #: Adds what this run will write; raises if that does not fit what the folder holds.
    enter: Change = lambda content: None
    #: Called when all of it is written.
    complete: Change = lambda content: None

    @property
    def path(self) -> Path:
        """The record file."""
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
        """Record which images could not be used, and why.

        Args:
            skipped: The reason for each unusable image of this run, by id.
            tried: The ids of all images that this run worked on.
            complete: Whether everything is written, by this run and by other shards.

        Returns:
            The unusable images of all runs, with their reasons.
        """
        with file_lock(self.folder / WORKSHOP / "lock", wait=True):
            content = self.read() or self.draft()
            all_skipped = dict(skipped)
            for entry in content["skipped"]:
                # What this run found out replaces what an earlier one recorded: an image may have become readable.
                if entry["id"] not in tried:
                    all_skipped.setdefault(entry["id"], entry["why"])
            all_skipped = dict(sorted(all_skipped.items()))
            content["skipped"] = [{"id": image_id, "why": reason} for image_id, reason in all_skipped.items()]
            if complete:
                self.complete(content)
            self._save(content)
        return all_skipped

    def read(self) -> Content | None:
        """The content of the record file; None if there is none."""
        return read_record(self.path, {"recipe": dict, "skipped": list})

    def _save(self, content: Content) -> None:
        if content == self.read():
            return
        # The record is written in the workshop first, so that a killed run leaves no half-written file beside it.
        draft = self.folder / WORKSHOP / self.name
        write_json(draft, content)
        draft.replace(self.path)


class Staging:
    """A folder in which files are written before they are renamed into place.

    What a killed run left there is cleared by the next one.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = itertools.count()
        self.clear()
        folder.mkdir(parents=True)

    def put(self, target: Path, data: bytes) -> None:
        """Write the file of one image.

        It is not forced to disk, which would take longer than making it; ``os.sync`` is called at the end.
        """
        self.write(target, lambda temporary: temporary.write_bytes(data), durable=False)

    def write(self, target: Path, write: Callable[[Path], object], *, durable: bool = True) -> None:
        """Write one file; a ``durable`` one is forced to disk."""
        # Taking the next number of a count can't be interrupted by another thread.
        temporary = self._folder / str(next(self._numbers))
        with named_refusals(target):
            # Arrow takes a relative path such as copies:1/table.parquet for a URL.
            write(temporary.absolute())
            if durable:
                to_disk(temporary)
            try:
                temporary.replace(target)
            except FileNotFoundError:
                target.parent.mkdir(parents=True, exist_ok=True)
                temporary.replace(target)

    def clear(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self._folder, ignore_errors=True)


@contextmanager
def workshop(target: Path, shard: Shard) -> Iterator[Path]:
    """The folder where the files of a shard grow, for one run at a time; removed when the shard is done."""
    refuse_linked_folders(target)
    folder = target / WORKSHOP / str(shard).replace("/", "-of-")
    with file_lock(folder / "lock", wait=False) as is_free:
        if not is_free:
            raise StoreError(f"another run is writing to {target}", hint="wait for it, or write another shard")
        yield folder
        shutil.rmtree(folder, ignore_errors=True)
        # The last shard removes everything. The folder of a shard that was killed stays until it is continued, and so
        # do the folders that the other shards need.
        names = [path.name for path in (target / WORKSHOP).iterdir()]
        if not any(name in KEPT or "-of-" in name for name in names):
            shutil.rmtree(target / WORKSHOP, ignore_errors=True)


def check_destination(target: Path, record: str, source: Location | None = None) -> None:
    """Refuse to write into the source, around it, or into a folder of something else."""
    if source is not None:
        target_path = target.resolve()
        source_path = source.resolve()
        if target_path == source_path or source_path in target_path.parents:
            raise StoreError("the destination lies inside the source", found=target, expected="a folder outside it")
        if target_path in source_path.parents:
            raise StoreError("the source lies inside the destination", found=source, expected="a folder outside it")
    if not target.exists():
        return
    if not target.is_dir():
        raise StoreError(f"{target} is not a folder", found="a file")
    # A run that was killed before it wrote its record leaves only these two.
    names = sorted(path.name for path in target.iterdir() if path.name not in (WORKSHOP, ".lock"))
    if names and record not in names:
        entries_text = ", ".join(names[:4])
        if len(names) > 4:
            entries_text += f", ... ({len(names)} entries)"
        raise StoreError(
            f"{target} holds other files",
            found=entries_text,
            expected=f"an empty folder, or one with {record}",
            hint="write to a new folder",
        )


def fill_folder(target: Path, fill: Callable[[Path], None]) -> None:
    """Call ``fill`` with an empty folder beside ``target``, then rename it into place."""
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


#: The name of a file, and a function that writes it to a path.
OutputFile = tuple[str, Callable[[Path], object]]


def write_files(record: OutputRecord, files: Iterable[OutputFile]) -> None:
    """Write those files of a folder that are missing."""
    record.draft()  # This raises before anything is touched if the folder was written in another way.
    with workshop(record.folder, Shard()) as folder:
        record.begin()
        staging = Staging(folder / "files")
        for name, write in files:
            if not (record.folder / name).exists():
                staging.write(record.folder / name, write, durable=False)


def place_file(source: Path, target: Path) -> None:
    """Make a hard link to a file, or a copy where the file system has no links."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
