"""Locations: a path on a local or shared file system, or a URL in an object store such as ``s3://bucket/folder``.

An object store is not a file system: objects appear when complete, there is no rename and no lock, folders are only
prefixes of names, and every query is a request. ``ObjectPath`` implements the part of pathlib's interface that this
package uses on top of Arrow's file systems, with few requests: ``glob`` makes one listing for any pattern, and the
paths that it returns keep their size and kind. Nothing else is cached, as other machines may write there.
"""

from __future__ import annotations

import errno
import io
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache
from pathlib import Path, PurePath, PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from shiftbench.errors import StoreError
from shiftbench.grouping import by_key

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem
    from typing_extensions import TypeIs

#: The tests cover s3; the others have the same interface in Arrow.
SCHEMES = ("s3", "gs", "abfs")
#: An object of at most this many bytes is fetched whole, with one request, whatever is read of it.
_FETCHED_WHOLE = 1 << 20
#: Of a larger object, at least this many bytes are fetched with one request.
_BUFFER_SIZE = 1 << 16
#: A single letter before the colon is a drive of Windows.
_URL = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)
_DRIVE = re.compile(r"[a-z]:[\\/]", re.IGNORECASE)
#: Parts of a name that are not the name of a file or folder.
_INVALID_PARTS = {"", ".", ".."}
T = TypeVar("T")


class UnwritableError(StoreError):
    """The disk is full or not writable. Files written before are complete."""

    problem = "can't be written"
    hint_for_people = "free disk space or give write access, then rerun: finished work is kept"

    def __init__(self, path: object, reason: str = "") -> None:
        super().__init__(f"{path} {self.problem}", found=reason, hint=self.hint_for_people)


class UnreachableError(UnwritableError):
    """An object store that does not respond or denies access; the requested file is not at fault."""

    problem = "can't be reached"
    hint_for_people = "check address, bucket and credentials (docs/workspace.md), then rerun: finished work is kept"


class GoneError(UnwritableError):
    """The workspace of a run was deleted or replaced by another while the run went on."""

    problem = "was deleted or replaced while this run used it; nothing more is written there"
    hint_for_people = "rerun the same command; it starts in a new workspace"


class LinkedFolderError(StoreError):
    """A folder inside a workspace or an output folder is a link, so files there may belong to somebody else."""

    def __init__(self, link: Path, root: Path) -> None:
        super().__init__(
            f"{link} is a link, and nothing is written or removed behind it",
            found=f"a link to {link.readlink()}",
            expected=f"folders and files only within {root}",
            hint=f"remove the link, or replace it by the folder that it points to: ls -l {link.parent}",
        )


def place(where: str | Location) -> Location:
    """The location of a path or URL such as ``s3://bucket/folder``; a location is returned unchanged.

    ``~`` is expanded, as text from Python or a file has not passed a shell.
    """
    if isinstance(where, str):
        if _URL.match(where):
            return ObjectPath.parse(where)
        return Path(where).expanduser()
    if isinstance(where, Path) and where.parts[:1] and where.parts[0] in {f"{scheme}:" for scheme in SCHEMES}:
        raise StoreError(
            "a URL was converted to a path and lost a slash",
            found=str(where),
            hint="pass it as text: 's3://bucket/folder'",
        )
    return where


def split_kind(spec: str) -> tuple[str, str]:
    """What precedes and what follows the first colon of ``kind:path``; the colon of a Windows drive does not count.

    >>> split_kind("unlabelled:C:/images"), split_kind("C:/images")
    (('unlabelled', 'C:/images'), ('', 'C:/images'))
    """
    drive = _DRIVE.match(spec)
    start = drive.end() if drive else 0
    colon = spec.find(":", start)
    if colon < 0:
        return "", spec
    return spec[:colon], spec[colon + 1 :]


def is_object(path: object) -> TypeIs[ObjectPath]:
    """Whether a location is in an object store: no locks, no renaming, a request per query."""
    return isinstance(path, ObjectPath)


def local(location: Location) -> Path:
    """The path of a location on a local or shared disk; an error for a URL."""
    if not is_object(location):
        return location
    raise StoreError(
        f"{location} is in an object store, and this needs a local path",
        expected="a path on a local or shared file system",
        hint="copy it to a local folder first",
    )


def remove_tree(folder: Location) -> None:
    """Remove a folder and everything in it, if it exists; of a link, only the link is removed."""
    if is_object(folder):
        folder.remove_tree()
    elif folder.is_symlink():
        folder.unlink()
    else:
        shutil.rmtree(folder, ignore_errors=True)


def inside(location: Location, root: Location) -> Location:
    """The location itself, if no folder between it and ``root`` is a link; raises LinkedFolderError otherwise.

    Whoever writes or removes a file below a folder that may come from a stranger asks this first. A last part that is
    a link is allowed: removing or replacing it affects the link alone.
    """
    if is_object(location):
        return location
    top = local(root)
    for folder in location.parents:
        if folder == top:
            return location
        if folder.is_symlink():
            raise LinkedFolderError(folder, top)
    raise StoreError(f"{location} lies outside {root}", expected="a name below it")


def glob_unlinked(root: Path, pattern: str) -> Iterator[Path]:
    """The files and folders below ``root`` that match a pattern, sorted, as ``Path.glob`` finds them.

    A workspace of 200 models has 40,000 folders: each is listed once, and the listing says what is a link.

    Raises:
        LinkedFolderError: Something that matches lies behind a link to a folder.
    """
    return _glob_parts(root, pattern.split("/"), root)


def _glob_parts(folder: Path, parts: Sequence[str], root: Path) -> Iterator[Path]:
    """As ``glob_unlinked``, for the parts of the pattern that are left below one of the folders."""
    for name, is_link in _matching_names(folder, parts[0]):
        path = folder / name
        if len(parts) == 1:
            yield path
            continue
        matches = _glob_parts(path, parts[1:], root)
        if not is_link:
            yield from matches
        elif next(matches, None) is not None:
            raise LinkedFolderError(path, root)


def _matching_names(folder: Path, pattern: str) -> list[tuple[str, bool]]:
    """The sorted names in a folder that match, each with whether it is a link; none if the folder can't be listed."""
    if not any(sign in pattern for sign in "*?["):
        path = folder / pattern
        return [(pattern, path.is_symlink())] if path.exists() else []
    try:
        with os.scandir(folder) as entries:
            return sorted((entry.name, entry.is_symlink()) for entry in entries if fnmatchcase(entry.name, pattern))
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []


def is_linked_folder(location: Location) -> bool:
    """Whether a location is a link to a folder."""
    return not is_object(location) and location.is_symlink() and location.is_dir()


def linked_folders(root: Location) -> list[Path]:
    """The links to folders anywhere below a folder; no link is followed."""
    if is_object(root):
        return []
    links = []
    for parent, names, _ in os.walk(root):
        folder = Path(parent)
        links += [folder / name for name in names if (folder / name).is_symlink()]
    return sorted(links)


def refuse_linked_folders(root: Path) -> None:
    """Raise LinkedFolderError if there is a link to a folder below ``root``."""
    for link in linked_folders(root):
        raise LinkedFolderError(link, root)


def relative(location: Location, folder: Location) -> PurePath:
    """The part of a location's name below a folder."""
    if is_object(location) and is_object(folder):
        return location.relative_to(folder)
    return local(location).relative_to(local(folder))


@dataclass(frozen=True)
class ObjectState:
    """The state of an object, with the names of ``os.stat_result``."""

    st_size: int
    st_mtime_ns: int

    @property
    def st_mtime(self) -> float:
        """The time of the last change, in seconds."""
        return self.st_mtime_ns / 1e9


#: Marks a folder, which has no state of its own.
_FOLDER = ObjectState(0, 0)


@dataclass(frozen=True)
class _Listing:
    """The names below a folder at one moment; only those right below it where it is not ``deep``."""

    root: PurePosixPath
    deep: bool
    #: The states of objects and folders, by full name.
    states: dict[str, ObjectState]

    @cached_property
    def folders(self) -> dict[str, list[str]]:
        """The names directly in each folder."""
        return by_key((name.rpartition("/")[0], name) for name in self.states)

    def knows_state_of(self, key: PurePosixPath) -> bool:
        """Whether the listing says if there is an object or folder of this name."""
        return key.parent == self.root or (self.deep and self.root in (key, *key.parents))

    def knows_content_of(self, key: PurePosixPath) -> bool:
        """Whether the listing says which names are in this folder."""
        return key == self.root or (self.deep and self.root in key.parents)


class ObjectPath:
    """An object or a "folder" of objects; without ``__fspath__``, so that it is never used as a local path."""

    __slots__ = ("_key", "_listing", "_scheme", "name", "parts", "stem", "suffix")

    def __init__(self, scheme: str, key: PurePosixPath, listing: _Listing | None = None) -> None:
        self._scheme = scheme
        self._key = key
        self._listing = listing
        self.name = key.name
        self.stem = key.stem
        self.suffix = key.suffix
        self.parts = key.parts

    @classmethod
    def parse(cls, url: str) -> ObjectPath:
        """The location of a URL; raises StoreError if it is not one of an object store."""
        scheme, _, address = url.partition("://")
        # The message does not repeat the URL, which may hold a password.
        if "@" in address.partition("/")[0]:
            raise StoreError(
                "a URL must not contain a user name or password",
                expected=f"{scheme}://BUCKET/FOLDER",
                hint="pass credentials through the environment or a profile: docs/workspace.md",
            )
        parts = address.rstrip("/").split("/")
        if scheme not in SCHEMES or _INVALID_PARTS & set(parts) or "?" in address:
            schemes = " or ".join(f"{valid_scheme}://" for valid_scheme in SCHEMES)
            raise StoreError(
                "invalid object store URL",
                found=url.partition("?")[0],  # A query may hold a token.
                expected=f"{schemes}, a bucket, and a folder in it",
            )
        return cls(scheme, PurePosixPath(*parts))

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
        # Workers do not need the listing, which may be large.
        return ObjectPath, (self._scheme, self._key)

    def _at(self, key: PurePosixPath) -> ObjectPath:
        return ObjectPath(self._scheme, key, self._listing)

    def __truediv__(self, name: str | os.PathLike[str]) -> ObjectPath:
        if ".." in PurePosixPath(name).parts or PurePosixPath(name).is_absolute():
            raise StoreError(f"a name points outside {self}", found=str(name), expected="a name below it")
        return self._at(self._key / name)

    def with_name(self, name: str) -> ObjectPath:
        return self._at(self._key.with_name(name))

    def with_suffix(self, suffix: str) -> ObjectPath:
        return self._at(self._key.with_suffix(suffix))

    def relative_to(self, folder: ObjectPath) -> PurePosixPath:
        return self._key.relative_to(folder._key)

    def resolve(self) -> ObjectPath:
        return self

    @property
    def parent(self) -> ObjectPath:
        return self._at(self._key.parent)

    @property
    def parents(self) -> list[ObjectPath]:
        return [self._at(key) for key in list(self._key.parents)[:-1]]

    def exists(self) -> bool:
        return self._find() is not None

    def is_file(self) -> bool:
        return self._find() not in (None, _FOLDER)

    def is_dir(self) -> bool:
        return self._find() == _FOLDER

    def stat(self) -> ObjectState:
        state = self._find()
        if state is None or state == _FOLDER:
            raise FileNotFoundError(errno.ENOENT, "no such object", str(self))
        return state

    def _find(self) -> ObjectState | None:
        """The state of the object, or ``_FOLDER``; None if there is nothing of this name."""
        listing = self._listing
        if listing is None or not listing.knows_state_of(self._key):
            return self._ask(lambda store, name: _state(store.get_file_info(name)))
        if self._key == listing.root:
            return _FOLDER if listing.states else None
        return listing.states.get(str(self._key))

    def iterdir(self) -> Iterator[ObjectPath]:
        return iter(self._below(deep=False))

    def glob(self, pattern: str) -> Iterator[ObjectPath]:
        """The paths that match, as in pathlib but without ``**``; sorted, and with a single listing."""
        patterns = pattern.split("/")
        base = self
        # The listing is made of the deepest folder whose name has no wildcards.
        while len(patterns) > 1 and not re.search(r"[*?\[]", patterns[0]):
            base = base / patterns.pop(0)
        for path in base._below(deep=len(patterns) > 1):
            names = path.parts[len(base.parts) :]
            if len(names) == len(patterns) and all(map(fnmatchcase, names, patterns)):
                yield path

    def rglob(self, pattern: str) -> Iterator[ObjectPath]:
        return (path for path in self._below(deep=True) if fnmatchcase(path.name, pattern))

    def _below(self, *, deep: bool) -> list[ObjectPath]:
        """The entries of this folder, or all below it; the paths keep their state from the listing."""
        listing, _ = self._list(deep=deep)
        if deep:
            names = [name for name in listing.states if name.startswith(f"{self._key}/")]
        else:
            names = listing.folders.get(str(self._key), [])
        return sorted(ObjectPath(self._scheme, PurePosixPath(name), listing) for name in names)

    def as_listed_now(self) -> ObjectPath:
        """The same location; later queries below it are answered from one listing.

        For data that does not change while it is used: a dataset of a thousand folders takes a few requests instead of
        thousands. Names that are not valid paths are refused: on a disk they could point anywhere.
        """
        listing, invalid_names = self._list(deep=True)
        if invalid_names:
            raise StoreError(
                f"{self} holds names that are not valid paths",
                found=repr(min(invalid_names)),
                expected="names without '..', '.' and empty parts",
                hint="rename these objects, or leave them out",
            )
        # A single object has nothing below it, so its listing is empty and it is queried by itself.
        if not listing.states:
            return self
        return ObjectPath(self._scheme, self._key, listing)

    def _list(self, *, deep: bool) -> tuple[_Listing, set[str]]:
        """A listing, and the names in it that are not valid paths: with "..", ".", or nothing between two slashes."""
        if self._listing is not None and self._listing.knows_content_of(self._key):
            return self._listing, set()
        from pyarrow.fs import FileSelector

        def list_files(store: FileSystem, key: str) -> Any:
            return store.get_file_info(FileSelector(key, recursive=deep, allow_not_found=True))

        states = {}
        invalid_names = set()
        for info in self._ask(list_files):
            if _INVALID_PARTS & set(info.path.split("/")):
                invalid_names.add(info.path)
            else:
                states[info.path] = _state(info) or _FOLDER
        return _Listing(self._key, deep, states), invalid_names

    def read_bytes(self) -> bytes:
        def read(store: FileSystem, key: str) -> bytes:
            with store.open_input_file(key) as file:
                data: bytes = file.read()
            return data

        return self._ask(read)

    def read_text(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return self.read_bytes().decode(encoding, errors)

    def open(self, mode: str = "rb") -> BinaryIO:
        """Open to read bytes; only the requested parts of a large object are fetched."""
        if mode != "rb":
            raise ValueError(f"objects are opened to read bytes only, and written by write_atomically; not {mode!r}")
        file: Any = self._ask(lambda store, key: store.open_input_file(key))
        if file.size() > _FETCHED_WHOLE:
            return io.BufferedReader(_LargeObject(self, file), _BUFFER_SIZE)
        with file:
            return io.BytesIO(self._ask(lambda store, key: file.read()))

    def read_range(self, start: int, size: int) -> bytes:
        """``size`` bytes from ``start`` on, fewer if the object ends before; one request, but for the first of it."""

        def read(store: FileSystem, key: str) -> bytes:
            data: bytes = _opened_object(self._scheme, key, os.getpid()).read_at(size, start)
            return data

        return self._ask(read)

    def upload(self, file: Path) -> None:
        """Upload a local file; it becomes visible only when complete.

        An interrupted stream is closed, which would complete the upload with a part of the data. So everything is
        written at once, by a separate thread that Ctrl-C does not reach.
        """
        from pyarrow import memory_map

        def put(store: FileSystem, key: str) -> None:
            # An empty file cannot be mapped.
            data = memory_map(str(file)).read_buffer() if file.stat().st_size else b""
            with store.open_output_stream(key) as target:
                target.write(data)

        try:
            with ThreadPoolExecutor(1) as pool:
                self._ask(lambda store, key: pool.submit(put, store, key).result())
        except FileNotFoundError as error:
            raise UnwritableError(self, error.strerror or str(error)) from error

    def unlink(self, missing_ok: bool = False) -> None:
        try:
            self._ask(lambda store, key: store.delete_file(key))
        except FileNotFoundError:
            if not missing_ok:
                raise

    def remove_tree(self) -> None:
        """Remove everything below it, if there is anything."""
        try:
            self._ask(lambda store, key: store.delete_dir(key))
        except FileNotFoundError:
            return

    def _ask(self, question: Callable[[FileSystem, str], T]) -> T:
        """Query the store; a missing object raises FileNotFoundError, any other failure UnreachableError."""
        try:
            return question(_file_system(self._scheme, self._key.parts[0], os.getpid()), str(self._key))
        except FileNotFoundError:
            raise
        except OSError as error:
            message = str(error)
            for name in ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
                secret = os.environ.get(name)
                if secret:
                    message = message.replace(secret, "***")
            message = re.sub(r"//[^/@\s]+@", "//***@", message)
            # Another process has removed the object between two requests.
            if re.search(r"\b(NO_SUCH_KEY|RESOURCE_NOT_FOUND)\b", message):
                raise FileNotFoundError(errno.ENOENT, message, str(self)) from error
            raise UnreachableError(self, message) from error


#: A path or a URL, used through their common interface. Files are written by ``write_atomically``; functions that need
#: a disk take a ``Path``, as returned by ``local``.
Location = Path | ObjectPath


class _LargeObject(io.RawIOBase):
    """A large object; every read is a separate request with the usual errors."""

    def __init__(self, path: ObjectPath, file: Any) -> None:
        self._path = path
        self._file = file
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        origins = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._file.size()}
        self._position = max(0, origins[whence] + offset)
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Read the next bytes into the buffer, as ``io.RawIOBase`` requires; returns their number, 0 at the end."""
        size = min(len(buffer), max(0, self._file.size() - self._position))
        data = b""
        if size:
            data = self._path._ask(lambda store, key: self._file.read_at(size, self._position))
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)

    def close(self) -> None:
        self._file.close()
        super().close()


def _state(info: Any) -> ObjectState | None:
    """The state that Arrow reports; None if there is nothing of this name."""
    from pyarrow.fs import FileType

    if info.type == FileType.NotFound:
        return None
    if info.type != FileType.File:
        return _FOLDER
    # The time is at least one nanosecond, as an empty object without a date would otherwise equal a folder.
    return ObjectState(info.size, info.mtime_ns or 1)


@lru_cache(maxsize=256)
def _opened_object(scheme: str, key: str, process: int) -> Any:
    """An object that stays open, so that its size is asked for once; any number of threads may read it."""
    return _file_system(scheme, key.split("/")[0], process).open_input_file(key)


def forget_open_objects() -> None:
    """The next range is read of the objects as they are then: they may have been replaced."""
    _opened_object.cache_clear()


@lru_cache(maxsize=64)
def _file_system(scheme: str, bucket: str, process: int) -> FileSystem:
    """Arrow's client for a bucket; every ``process`` has its own, because no client survives a fork.

    Credentials of S3 are looked up as the AWS tools do: environment, profile, role. Small objects are one PUT request.
    """
    from pyarrow.fs import FileSystem

    if scheme != "s3":
        return FileSystem.from_uri(f"{scheme}://{bucket}")[0]
    try:
        from pyarrow.fs import S3FileSystem, resolve_s3_region
    except ImportError as error:
        raise StoreError("pyarrow was built without S3", hint="pip install --force-reinstall pyarrow") from error
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if region is None:
        # Amazon can look up the region; other servers ignore it.
        region = resolve_s3_region(bucket) if endpoint is None else "us-east-1"
    return S3FileSystem(
        endpoint_override=endpoint,
        region=region,
        allow_delayed_open=True,
        # Without background writes, a client that loses one of several parts completes the upload with the others.
        background_writes=True,
        connect_timeout=10,
        request_timeout=60,
    )
