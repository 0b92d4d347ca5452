"""Files that are there whole or not at all."""

from __future__ import annotations

import errno
import json
import os
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from shiftbench.io.paths import Location, UnwritableError, is_object

#: The place is full or closed: nothing else could be written there either.
_REFUSALS = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EFBIG}


def write_atomically(
    path: Location, write: Callable[[Path], object], *, durable: bool = True, exclusive: bool = False
) -> None:
    """Call ``write`` with a temporary neighbour of ``path``, then rename it into place.

    A reader, and a run that starts again after ``kill -9``, sees the old file, the new one or none; two
    writers do not disturb each other, because each has its own neighbour. ``durable`` waits for the disk, so
    that even a power cut leaves a whole file; what carries its own digest and can be made again need not.
    ``exclusive`` leaves a file that another writer has put there meanwhile, where the file system has hard links.

    In an object store, where a name has all its bytes or none, the file is made here and put there at once; the
    store's answer means that it is kept.
    """
    if is_object(path):
        with tempfile.TemporaryDirectory(prefix="shiftbench-") as folder:
            made = Path(folder) / path.name
            write(made)
            path.upload(made)
        return
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:  # a file is in the way, or no folder can be made there
        raise UnwritableError(path.parent, os.strerror(error.errno or 0)) from error
    with named_refusals(path):
        try:
            write(temporary)
            if durable:
                to_disk(temporary)
            if not exclusive or not _linked(temporary, path):
                temporary.replace(path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise


@contextmanager
def named_refusals(path: Path) -> Iterator[None]:
    """A full or closed disk inside is an error that names ``path`` and says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in _REFUSALS:
            raise UnwritableError(path, os.strerror(error.errno)) from error
        raise


def check_writable(path: Path) -> None:
    """Refuse a place where no file can be written now, not when its content is known after hours."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise UnwritableError(path, os.strerror(error.errno or 0)) from error


def to_disk(path: Path) -> None:
    """Wait until the disk has all of a file."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _linked(temporary: Path, path: Path) -> bool:
    """Whether there is a file at ``path``, this one or another's; False where links are not possible."""
    try:
        path.hardlink_to(temporary)
    except FileExistsError:
        pass
    except OSError:
        return False
    temporary.unlink()
    return True


def write_bytes(path: Location, data: bytes | memoryview, *, durable: bool = False) -> None:
    write_atomically(path, lambda temporary: temporary.write_bytes(data), durable=durable)


def write_json(path: Location, value: Any, *, exclusive: bool = False) -> None:
    text = json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    write_atomically(path, lambda temporary: temporary.write_bytes(text.encode()), exclusive=exclusive)


def read_json(path: Location) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def parse_json(text: str | bytes) -> Any:
    """JSON that people write: a key that occurs twice in an object is a ValueError; else the last one would count."""

    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise ValueError(f"a key occurs twice among {', '.join(found)}")
        return found

    return json.loads(text, object_pairs_hook=unique)
