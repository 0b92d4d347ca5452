"""Sizes and digests of the files of an output folder, by which a later run recognises files that are not what was
written: cut, exchanged, or zeros after a power failure.

An entry has 32 bytes, since a folder may hold millions of files: a hash of the file's path, its size, and a digest of
its content. While a folder is written, each worker appends to a file of its own in the hidden workshop; in the end all
are joined, in the order of the hashes, to one file that does not depend on the number of workers.
"""

from __future__ import annotations

import hashlib
import threading
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from shiftbench.io.atomic import write_bytes
from shiftbench.outputs.record import CHECKSUMS, WORKSHOP

#: The file in an output folder that holds the checksums; hidden, so that nobody takes it for data.
CHECKSUM_FILE = ".shiftbench-checksums"
#: Bytes of a file that are read at once.
_PART = 1 << 22
_ENTRY = np.dtype([("path", "<u8"), ("size", "<u8"), ("content", "V16")])


class Checksum(NamedTuple):
    """What is known of a file."""

    size: int
    content: bytes


class Checksums:
    """The checksums of a folder, as far as they were recorded."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        pieces = [_read(path) for path in _files(folder)]
        # The first of equal paths is kept, and pieces are newer than the joined file.
        entries = np.concatenate([*pieces[::-1], np.empty(0, _ENTRY)])
        _, first = np.unique(entries["path"], return_index=True)
        self._entries = entries[first]

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, file: str) -> Checksum | None:
        """The checksum of a file below the folder; None if there is none."""
        key = _path_key(file)
        row = int(np.searchsorted(self._entries["path"], key))
        if row == len(self._entries) or self._entries["path"][row] != key:
            return None
        return Checksum(int(self._entries["size"][row]), bytes(self._entries["content"][row]))

    def differs(self, file: str, size: int, *, content: bool) -> bool:
        """Whether a file of this size is not what was written; with ``content``, its bytes are compared, too."""
        checksum = self.get(file)
        if checksum is None:
            return False
        if size != checksum.size:
            return True
        return content and _digest_of_file(self.folder / file) != checksum.content

    def join(self, *, without: Iterable[str] = ()) -> None:
        """Write all checksums into one file, but for those ``without`` a file from now on."""
        dropped = np.array([_path_key(file) for file in without], np.uint64)
        entries = self._entries[~np.isin(self._entries["path"], dropped)]
        if len(entries):
            write_bytes(self.folder / CHECKSUM_FILE, entries.tobytes())


class ChecksumLog:
    """Appends the checksums of files that a worker writes; safe with threads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / WORKSHOP / CHECKSUMS / f"{uuid.uuid4().hex}.bin"
        self._turn = threading.Lock()

    def add(self, files: Iterable[tuple[str, bytes]]) -> None:
        """Note the content of files below the folder."""
        self._append([(_path_key(file), len(data), _content_digest(data)) for file, data in files])

    def add_file(self, file: str, path: Path) -> None:
        """Note the content of ``path``, which will be renamed to a file below the folder."""
        self._append([(_path_key(file), path.stat().st_size, _digest_of_file(path))])

    def _append(self, entries: list[tuple[int, int, bytes]]) -> None:
        with self._turn:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab") as log:
                log.write(np.array(entries, _ENTRY).tobytes())


def _files(folder: Path) -> list[Path]:
    """The files that hold checksums, the joined one first."""
    return [folder / CHECKSUM_FILE, *sorted((folder / WORKSHOP / CHECKSUMS).glob("*.bin"))]


def _read(path: Path) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    """The entries of a file; a kill may have cut the last one, and a power failure may have left zeros."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        data = b""
    whole = len(data) // _ENTRY.itemsize
    entries: np.ndarray[tuple[int], np.dtype[np.void]] = np.frombuffer(data, _ENTRY, count=whole)
    is_zeros: np.ndarray[tuple[int], np.dtype[np.bool_]] = (entries["path"] == 0) & (entries["size"] == 0)
    return np.delete(entries, np.flatnonzero(is_zeros))


def _path_key(file: str) -> int:
    return int.from_bytes(hashlib.blake2b(file.encode("utf-8", "surrogateescape"), digest_size=8).digest(), "little")


def _content_digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def _digest_of_file(path: Path) -> bytes:
    """The same digest, of a file that need not fit into memory."""
    content = hashlib.blake2b(digest_size=16)
    with path.open("rb") as file:
        while part := file.read(_PART):
            content.update(part)
    return content.digest()
