"""Locations: a path on a local or shared file system, or a URL in an object store."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, Protocol

from shiftbench.errors import StoreError
from shiftbench.io.objects import SCHEMES, ObjectPath

if TYPE_CHECKING:
    from typing_extensions import TypeIs

_URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)


class FileState(Protocol):
    """The part of ``os.stat_result`` that an object store knows too."""

    @property
    def st_size(self) -> int: ...
    @property
    def st_mtime_ns(self) -> int: ...
    @property
    def st_mtime(self) -> float: ...


class Location(Protocol):
    """A path or a URL: the part of pathlib's interface that both ``Path`` and ``ObjectPath`` have.

    Files are written by ``write_atomically``. Functions that need a disk take a ``Path``, such as ``local`` returns.
    """

    @property
    def name(self) -> str: ...
    @property
    def stem(self) -> str: ...
    @property
    def suffix(self) -> str: ...
    @property
    def parts(self) -> tuple[str, ...]: ...
    @property
    def parent(self) -> Location: ...
    @property
    def parents(self) -> Sequence[Location]: ...
    def __truediv__(self, more: str | PathLike[str], /) -> Location: ...
    def __hash__(self) -> int: ...
    def __lt__(self, other: Any, /) -> bool: ...
    def with_name(self, name: str, /) -> Location: ...
    def with_suffix(self, suffix: str, /) -> Location: ...
    def relative_to(self, other: Any, /) -> PurePath: ...
    def resolve(self) -> Location: ...
    def exists(self) -> bool: ...
    def is_file(self) -> bool: ...
    def is_dir(self) -> bool: ...
    def stat(self) -> FileState: ...
    def iterdir(self) -> Iterator[Location]: ...
    def glob(self, pattern: str, /) -> Iterator[Location]: ...
    def rglob(self, pattern: str, /) -> Iterator[Location]: ...
    def open(self, mode: Literal["rb"], /) -> BinaryIO: ...
    def read_bytes(self) -> bytes: ...
    def read_text(self, encoding: str = ..., errors: str = ...) -> str: ...
    def unlink(self, missing_ok: bool = ...) -> None: ...


def place(where: str | Location) -> Location:
    """The location that a text names, a path or a URL such as ``s3://bucket/folder``; a location is returned as it is.

    >>> place("photos/val"), place("s3://bucket/photos") / "val"
    (PosixPath('photos/val'), s3://bucket/photos/val)
    """
    if isinstance(where, str):
        return ObjectPath.parse(where) if _URL.match(where) else Path(where)
    if isinstance(where, Path) and where.parts[:1] and where.parts[0] in {f"{scheme}:" for scheme in SCHEMES}:
        raise _flattened(where)
    return where


def _flattened(path: Path) -> StoreError:
    return StoreError(
        "a URL was converted to a path and lost a slash",
        found=str(path),
        hint="pass it as text: 's3://bucket/folder'",
    )


def is_object(path: object) -> TypeIs[ObjectPath]:
    """Whether a location is in an object store: without locks and renaming, and with a request for every query."""
    return isinstance(path, ObjectPath)


def local(location: Location) -> Path:
    """The path of a location on a local or shared disk; an error for a URL."""
    if isinstance(location, Path):
        return location
    raise StoreError(
        f"{location} is in an object store, and this needs a local path",
        expected="a path on a local or shared file system",
        hint="copy it to a local folder first",
    )


def remove_tree(folder: Location) -> None:
    """Remove a folder and everything in it, if it exists."""
    if is_object(folder):
        folder.remove_tree()
    else:
        shutil.rmtree(local(folder), ignore_errors=True)
