"""Places in object stores, named by URLs such as ``s3://bucket/folder``, through Arrow's file systems.

An object store is no file system: a name either has all its bytes or does not exist, there is no rename, there are
no locks, folders are only parts of names, and every question is a request. So ``ObjectPath`` has the part of
pathlib's interface that this package uses, with few requests: ``glob`` makes one listing, whatever the pattern, and
what it finds knows its own size and kind from it. Nothing is remembered beyond that: another machine may write there.
"""

from __future__ import annotations

import errno
import io
import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from shiftbench.errors import StoreError
from shiftbench.io.errors import UnreachableError, UnwritableError

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

#: s3 is what the tests run against; the others have the same interface in Arrow.
SCHEMES = ("s3", "gs", "abfs")
#: A smaller file is fetched whole, with one request, whatever is read of it.
_FETCHED_WHOLE = 1 << 20
#: Bytes that are fetched at once of a larger one.
_AT_LEAST = 1 << 16
_WILD = re.compile(r"[*?\[]")
_GONE = re.compile(r"\b(NO_SUCH_KEY|RESOURCE_NOT_FOUND)\b")
_USER = re.compile(r"//[^/@\s]+@")
T = TypeVar("T")


@dataclass(frozen=True)
class ObjectState:
    """What a store tells about an object, in the words of ``os.stat_result``."""

    st_size: int
    st_mtime_ns: int

    @property
    def st_mtime(self) -> float:
        return self.st_mtime_ns / 1e9


#: What stands for the state of a folder, which has none.
_FOLDER = ObjectState(0, 0)


@dataclass(frozen=True)
class _Listing:
    """The names below a folder at one moment; only those right below it where it is not ``deep``."""

    root: PurePosixPath
    deep: bool
    #: By full names, those of folders too.
    found: dict[str, ObjectState]
    #: Names that are no paths: with "..", ".", or nothing between two slashes.
    odd: tuple[str, ...]

    @cached_property
    def folders(self) -> dict[str, list[str]]:
        """What lies right in each folder."""
        inside: dict[str, list[str]] = {}
        for name in self.found:
            inside.setdefault(name.rpartition("/")[0], []).append(name)
        return inside

    def covers(self, key: PurePosixPath) -> bool:
        """Whether it says all there is to say about a name."""
        return key.parent == self.root or (self.deep and self.root in (key, *key.parents))

    def look(self, key: PurePosixPath) -> ObjectState | None:
        if key == self.root:
            return _FOLDER if self.found else None
        return self.found.get(str(key))

    def covers_inside(self, folder: PurePosixPath) -> bool:
        return folder == self.root or (self.deep and self.root in folder.parents)


class ObjectPath:
    """An object or a "folder" of them; has no ``__fspath__``, so that nothing takes it for a local path."""

    __slots__ = ("_key", "_listing", "_scheme")

    def __init__(self, scheme: str, key: PurePosixPath, listing: _Listing | None = None) -> None:
        self._scheme, self._key = scheme, key
        self._listing = listing

    @classmethod
    def parse(cls, url: str) -> ObjectPath:
        """
        >>> ObjectPath.parse("s3://bucket/runs/") / "a.json"
        s3://bucket/runs/a.json
        """
        scheme, _, rest = url.partition("://")
        if "@" in rest.partition("/")[0]:
            # Not shown: it may hold a password.
            raise StoreError(
                f"a {scheme} URL names no user and no password",
                expected=f"{scheme}://BUCKET/FOLDER",
                hint="give credentials by the environment or a profile: docs/workspace.md",
            )
        parts = rest.rstrip("/").split("/")
        if scheme not in SCHEMES or not parts[0] or {"", ".", ".."} & set(parts) or "?" in rest:
            raise StoreError(
                "that is no place in an object store",
                # Without a query: it may hold a token.
                found=url.partition("?")[0],
                expected=f"{' or '.join(f'{known}://' for known in SCHEMES)}, a bucket, and a folder in it",
            )
        return cls(scheme, PurePosixPath(*parts))

    # -- names -------------------------------------------------------------------------------------------

    def __str__(self) -> str:
        return f"{self._scheme}://{self._key}"

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectPath) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __lt__(self, other: ObjectPath) -> bool:
        return self._key < other._key

    def __reduce__(self) -> tuple[type[ObjectPath], tuple[str, PurePosixPath]]:
        # Without the listing: a worker needs the place alone.
        return ObjectPath, (self._scheme, self._key)

    def _at(self, key: PurePosixPath) -> ObjectPath:
        return ObjectPath(self._scheme, key, self._listing)

    def __truediv__(self, more: str | os.PathLike[str]) -> ObjectPath:
        if ".." in PurePosixPath(more).parts or PurePosixPath(more).is_absolute():
            raise StoreError(f"a name leads out of {self}", found=str(more), expected="a name below it")
        return self._at(self._key / more)

    def with_name(self, name: str) -> ObjectPath:
        return self._at(self._key.with_name(name))

    def with_suffix(self, suffix: str) -> ObjectPath:
        return self._at(self._key.with_suffix(suffix))

    def relative_to(self, other: ObjectPath) -> PurePosixPath:
        return self._key.relative_to(other._key)

    def resolve(self) -> ObjectPath:
        return self

    @property
    def name(self) -> str:
        return self._key.name

    @property
    def stem(self) -> str:
        return self._key.stem

    @property
    def suffix(self) -> str:
        return self._key.suffix

    @property
    def parts(self) -> tuple[str, ...]:
        return self._key.parts

    @property
    def parent(self) -> ObjectPath:
        return self._at(self._key.parent)

    @property
    def parents(self) -> list[ObjectPath]:
        return [self._at(key) for key in list(self._key.parents)[:-1]]

    # -- questions ---------------------------------------------------------------------------------------

    def exists(self) -> bool:
        return self._look() is not None

    def is_file(self) -> bool:
        return self._look() not in (None, _FOLDER)

    def is_dir(self) -> bool:
        return self._look() == _FOLDER

    def stat(self) -> ObjectState:
        state = self._look()
        if state is None or state == _FOLDER:
            raise FileNotFoundError(errno.ENOENT, "no such object", str(self))
        return state

    def _look(self) -> ObjectState | None:
        if self._listing is not None and self._listing.covers(self._key):
            return self._listing.look(self._key)
        return self._ask(lambda store, key: _state(store.get_file_info(key)))

    def iterdir(self) -> Iterator[ObjectPath]:
        return iter(self._below(deep=False))

    def glob(self, pattern: str) -> Iterator[ObjectPath]:
        """As pathlib's, without ``**``; sorted, and with a single listing."""
        fixed, wild = _split(pattern)
        base = self / fixed if fixed else self
        depth = len(base._key.parts)
        for path in base._below(deep=len(wild) > 1):
            parts = path._key.parts[depth:]
            if len(parts) == len(wild) and all(map(fnmatchcase, parts, wild)):
                yield path

    def rglob(self, pattern: str) -> Iterator[ObjectPath]:
        return (path for path in self._below(deep=True) if fnmatchcase(path.name, pattern))

    def _below(self, *, deep: bool) -> list[ObjectPath]:
        """What lies in this folder, or anywhere below it; the paths keep what the listing reported."""
        listing = self._list(deep=deep)
        inside = f"{self._key}/"
        names = (
            [name for name in listing.found if name.startswith(inside)]
            if deep
            else listing.folders.get(str(self._key), [])
        )
        return sorted(ObjectPath(self._scheme, PurePosixPath(name), listing) for name in names)

    def as_listed_now(self) -> ObjectPath:
        """The same place; questions about what lies there are answered from one listing of all of it.

        For what does not change while it is used: a dataset of a thousand folders is a few requests, not thousands.
        Names that are no paths are refused: written to a disk, they could lead anywhere.
        """
        listing = self._list(deep=True)
        if listing.odd:
            raise StoreError(
                f"{self} holds names that are no paths",
                found=repr(listing.odd[0]),
                expected="names without '..', '.' and empty parts",
                hint="rename these objects, or leave them out",
            )
        # An object has nothing below it: it is asked about by itself, as are its neighbours.
        return self if not listing.found else ObjectPath(self._scheme, self._key, listing)

    def _list(self, *, deep: bool) -> _Listing:
        known = self._listing
        if known is not None and known.covers_inside(self._key):
            return known
        from pyarrow.fs import FileSelector

        found = self._ask(
            lambda store, key: store.get_file_info(FileSelector(key, recursive=deep, allow_not_found=True))
        )
        states = {info.path: _state(info) or _FOLDER for info in found}
        odd = {name for name in states if {"", ".", ".."} & set(name.split("/"))}
        plain = {name: state for name, state in states.items() if name not in odd}
        return _Listing(self._key, deep, plain, tuple(sorted(odd)))

    # -- contents ----------------------------------------------------------------------------------------

    def read_bytes(self) -> bytes:
        return self._ask(_read)

    def read_text(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return self.read_bytes().decode(encoding, errors)

    def open(self, mode: str = "rb") -> BinaryIO:
        """To read bytes; a large object is fetched in the parts that are asked for."""
        if mode != "rb":
            raise ValueError(f"objects are opened to read bytes only, and written by write_atomically; not {mode!r}")
        file: Any = self._ask(lambda store, key: store.open_input_file(key))
        if file.size() > _FETCHED_WHOLE:
            return io.BufferedReader(_Parts(self, file), _AT_LEAST)
        with file:
            return io.BytesIO(self._ask(lambda store, key: file.read()))

    def upload(self, file: Path) -> None:
        """Put a local file here, whole or not at all: nobody sees it before the store has all of it.

        A stream that is left half-way is closed, and that would end the upload as if all were there. So all is
        given at once, by a thread of its own, which Ctrl-C does not reach.
        """
        try:
            with ThreadPoolExecutor(1) as pool:
                self._ask(lambda store, key: pool.submit(_put, store, key, file).result())
        except FileNotFoundError as error:
            raise UnwritableError(self, error.strerror or str(error)) from error

    def unlink(self, missing_ok: bool = False) -> None:
        try:
            self._ask(lambda store, key: store.delete_file(key))
        except FileNotFoundError:
            if not missing_ok:
                raise

    def remove_tree(self) -> None:
        """Remove all that lies below; nothing where nothing does."""
        try:
            self._ask(lambda store, key: store.delete_dir(key))
        except FileNotFoundError:
            return

    def _ask(self, question: Callable[[FileSystem, str], T]) -> T:
        """Ask the store; that an object is not there is an answer, everything else is the store's trouble."""
        try:
            return question(_file_system(self._scheme, self._key.parts[0], os.getpid()), str(self._key))
        except FileNotFoundError:
            raise
        except OSError as error:
            message = _without_secrets(str(error))
            if _GONE.search(message):  # removed by another, between two requests
                raise FileNotFoundError(errno.ENOENT, message, str(self)) from error
            raise UnreachableError(self, message) from error


class _Parts(io.RawIOBase):
    """A large object; every read is a request of its own, with the errors of any other."""

    def __init__(self, path: ObjectPath, file: Any) -> None:
        self._path, self._file, self._position = path, file, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._file.size()}[whence]
        self._position = max(0, start + offset)
        return self._position

    def readinto(self, buffer: Any) -> int:
        wanted = min(len(buffer), max(0, self._file.size() - self._position))
        data: bytes = self._path._ask(lambda store, key: self._file.read_at(wanted, self._position)) if wanted else b""
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)

    def close(self) -> None:
        self._file.close()
        super().close()


def _read(store: FileSystem, key: str) -> bytes:
    with store.open_input_file(key) as file:
        data: bytes = file.read()
    return data


def _put(store: FileSystem, key: str, file: Path) -> None:
    from pyarrow import memory_map

    # Nothing can be mapped of an empty file.
    data = memory_map(str(file)).read_buffer() if file.stat().st_size else b""
    with store.open_output_stream(key) as target:
        target.write(data)


def _state(info: Any) -> ObjectState | None:
    from pyarrow.fs import FileType

    if info.type == FileType.NotFound:
        return None
    # One nanosecond at least: an empty object of no known date is no folder.
    return ObjectState(info.size, info.mtime_ns or 1) if info.type == FileType.File else _FOLDER


def _split(pattern: str) -> tuple[str, list[str]]:
    """
    >>> _split("problems/*.json"), _split("*/record.json")
    (('problems', ['*.json']), ('', ['*', 'record.json']))
    """
    parts = pattern.split("/")
    first = next((i for i, part in enumerate(parts) if _WILD.search(part)), len(parts) - 1)
    return "/".join(parts[:first]), parts[first:]


def _without_secrets(text: str) -> str:
    """A client's message, without a user in a URL and without any credential of the environment.

    >>> _without_secrets("no answer from http://me:secret@host/bucket")
    'no answer from http://***@host/bucket'
    """
    for name in ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        secret = os.environ.get(name)
        text = text.replace(secret, "***") if secret else text
    return _USER.sub("//***@", text)


@lru_cache(maxsize=64)
def _file_system(scheme: str, bucket: str, process: int) -> FileSystem:
    """Arrow's client, one a process and bucket; ``process`` because no client survives a fork."""
    from pyarrow.fs import FileSystem

    if scheme != "s3":
        return FileSystem.from_uri(f"{scheme}://{bucket}")[0]
    return _s3(bucket)


def _s3(bucket: str) -> FileSystem:
    """Credentials as the AWS tools find them: environment, profile, role. Small objects are one PUT."""
    try:
        from pyarrow.fs import S3FileSystem, resolve_s3_region
    except ImportError as error:
        raise StoreError("this build of Arrow knows no S3", hint="pip install --force-reinstall pyarrow") from error
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if region is None:
        # Amazon knows where a bucket is; other servers do not care.
        region = resolve_s3_region(bucket) if endpoint is None else "us-east-1"
    return S3FileSystem(
        endpoint_override=endpoint,
        region=region,
        allow_delayed_open=True,
        # Without them, a client that lost one part of several ends the upload with the others.
        background_writes=True,
        connect_timeout=10,
        request_timeout=60,
    )
