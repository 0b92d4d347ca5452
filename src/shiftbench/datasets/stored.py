"""Datasets that hold their images: files below one folder, or bytes inside larger files such as shards and tables.

Their fingerprint is of the content: equal ids, labels, classes and image bytes, equal fingerprint, on every machine.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from pathlib import Path
from stat import S_ISREG
from threading import RLock
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import BoolArray
from shiftbench.datasets.base import Dataset, DecodedImage, Decoding
from shiftbench.datasets.images import MAX_PIXELS, decode, read_file
from shiftbench.errors import BadImageError, DatasetError, StoreError
from shiftbench.io import hashing
from shiftbench.io.atomic import write_bytes
from shiftbench.io.cache import cache_folder
from shiftbench.io.paths import Location, ObjectPath, UnreachableError, UnwritableError, is_object
from shiftbench.jobs.threads import on_threads
from shiftbench.labels.space import Labels, LabelSets, LabelSpace

DIGEST_SIZE = 16
#: Images of a dataset up to which its ``identity`` is its content; more are identified by names and labels.
HASHED = 200_000
#: The digest of an image whose bytes can't be read.
UNREADABLE = bytes(DIGEST_SIZE)
_THREADS = min(8, (os.cpu_count() or 1) + 2)
#: Objects fetched concurrently: the network is the bottleneck, not the processor.
_REQUESTS = 16
#: A file changed more recently may change again within the clock's resolution: its hash is not cached.
_SETTLED_NS = 2_000_000_000
#: Errors that are the file's; others (too many open files, a disk or server that fails) say nothing about it.
_ABOUT_THE_FILE = (
    errno.ENOENT, errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.EINVAL,
)  # fmt: skip


def digest_bytes(data: bytes | memoryview) -> bytes:
    return hashlib.blake2b(data, digest_size=DIGEST_SIZE).digest()


def identity(dataset: Dataset) -> str:
    """The fingerprint of the content; of large datasets a hash of names and labels, which takes seconds, not hours."""
    if len(dataset) <= HASHED:
        return dataset.fingerprint
    sets = dataset.labels.tobytes() if dataset.label_sets is None else repr(dataset.label_sets).encode()
    names = "\n".join(dataset.ids).encode("utf-8", "surrogateescape")
    return "names:" + hashing.digest(dataset.space.fingerprint, names, sets)


def combine(
    ids: Sequence[str], labels: Labels, space: LabelSpace, digests: Iterable[bytes], label_sets: LabelSets | None = None
) -> str:
    total = hashlib.blake2b(space.fingerprint.encode(), digest_size=DIGEST_SIZE)
    sets = label_sets if label_sets is not None else [(label,) for label in labels.tolist()]
    for image_id, own, digest in zip(ids, sets, digests, strict=True):
        # the length first, so that no two lists of ids run together into the same text
        encoded = image_id.encode("utf-8", "surrogateescape")
        total.update(b"%d:%b%b:" % (len(encoded), encoded, ",".join(map(str, own)).encode()))
        total.update(digest)
    return total.hexdigest()


class ContentDataset(Dataset):
    """A dataset with a digest of each image; its fingerprint and those of its subsets follow from them."""

    _fingerprint: str | None = None

    @abstractmethod
    def digests(self, indices: Sequence[int]) -> list[bytes]:
        """A hash of each image's bytes."""

    @property
    def fingerprint(self) -> str:
        if self._fingerprint is None:
            digests = self.digests(range(len(self)))
            self._fingerprint = combine(self.ids, self.labels, self.space, digests, self.label_sets)
        return self._fingerprint


class StoredDataset(ContentDataset):
    """A dataset that holds the images itself. What is read later must be what was hashed: results are stored under the
    fingerprint, so an image that changes or vanishes during a run must not enter them."""

    #: The digest of each image that was hashed, and which were: 17 bytes per image, as workers get a copy.
    _known: tuple[NDArray[np.uint8], BoolArray] | None = None

    @abstractmethod
    def _hash(self, indices: Sequence[int]) -> list[bytes]:
        """A hash of each image's bytes, as they are now; UNREADABLE for those that can't be read."""

    def digests(self, indices: Sequence[int]) -> list[bytes]:
        if self._known is None:
            self._known = np.zeros((len(self), DIGEST_SIZE), np.uint8), np.zeros(len(self), bool)
        values, hashed = self._known
        chosen = np.asarray(indices, np.int64)
        missing = np.unique(chosen[~hashed[chosen]])
        if len(missing):
            fresh = b"".join(self._hash(missing.tolist()))
            values[missing] = np.frombuffer(fresh, np.uint8).reshape(-1, DIGEST_SIZE)
            hashed[missing] = True
        return [row.tobytes() for row in values[chosen]]

    def _unchanged(self, index: int, read: Callable[[int], bytes]) -> bytes:
        """The bytes of an image: BadImageError if it never had any, DatasetError if it is not what was hashed."""
        expected = self._known[0][index].tobytes() if self._known is not None and self._known[1][index] else None
        try:
            data = read(index)
        except BadImageError as error:
            if expected in (None, UNREADABLE):
                raise
            raise self._changed(index, str(error.found or error.message)) from error
        if expected is not None and digest_bytes(data) != expected:
            raise self._changed(index, "other bytes")
        return data

    def _changed(self, index: int, found: str) -> DatasetError:
        return DatasetError(
            f"{self.ids[index]} of {self.name!r} changed or vanished after the dataset was opened",
            found=found,
            expected="the bytes that the dataset's fingerprint is of",
            hint="restore the files and rerun, or rerun to evaluate them as they are now",
        )


class Opened:
    """A resource that is opened on first use, once per process, and not pickled with the dataset."""

    def __init__(self) -> None:
        self.value: Any = None
        self.lock = RLock()

    def __reduce__(self) -> tuple[type[Opened], tuple[()]]:
        return (Opened, ())


class EncodedDataset(StoredDataset):
    """A subclass provides the bytes of one image (``_bytes``); reading and fingerprint follow from them."""

    _max_pixels = MAX_PIXELS
    _decoding = Decoding()

    @abstractmethod
    def _bytes(self, index: int) -> bytes:
        """The encoded image; raises BadImageError if it is not available."""

    def decoded_as(self, decoding: Decoding) -> Self:
        if decoding == self._decoding:
            return self
        view = copy(self)
        view._decoding = decoding
        return view

    def read(self, index: int) -> DecodedImage:
        data = self._unchanged(index, self._bytes)
        return decode(data, self.ids[index], max_pixels=self._max_pixels, decoding=self._decoding)

    def _hash(self, indices: Sequence[int]) -> list[bytes]:
        digests = []
        for index in indices:
            try:
                digests.append(digest_bytes(self._bytes(index)))
            except BadImageError:
                digests.append(UNREADABLE)
        return digests


class FileDataset(EncodedDataset):
    """Each image is a file ``root / path``; the ids are the paths with ``/``, unless given."""

    def __init__(
        self,
        name: str,
        space: LabelSpace,
        root: Location,
        paths: Sequence[str],
        labels: Sequence[int],
        *,
        ids: Sequence[str] | None = None,
        label_sets: LabelSets | None = None,
        metadata: Mapping[str, Sequence[Any]] | None = None,
        max_pixels: int = MAX_PIXELS,
    ) -> None:
        self.name, self.space, self.root = name, space, root
        self.paths = list(paths)
        # A file name need not be valid text, but an id must be, to be stored.
        texts = (
            p if p.isascii() else p.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
            for p in paths
        )
        self.ids = list(texts if ids is None else ids)
        self.labels = np.asarray(labels, dtype=np.int32)
        self.label_sets, self.metadata, self._max_pixels = label_sets, dict(metadata or {}), max_pixels

    def _bytes(self, index: int) -> bytes:
        return read_file(self.root / self.paths[index], self.ids[index])

    def _hash(self, indices: Sequence[int]) -> list[bytes]:
        return digest_files(self.root, [self.paths[i] for i in indices])


def digest_files(root: Location, names: Sequence[str]) -> list[bytes]:
    """Digests of many files, in parallel; those of unchanged files come from the cache."""
    where = str(root).encode() if is_object(root) else os.fsencode(root.resolve())
    key = hashlib.blake2b(where, digest_size=12).hexdigest()
    try:
        store = cache_folder("hashes") / f"{key}.json"
    except OSError:  # a read-only home: hash anew each time
        store = None
    known = _load(store)
    # in blocks: for unchanged files, submitting each to a thread would cost more than the stat call
    size, threads = (8, _REQUESTS) if is_object(root) else (256, _THREADS)
    blocks = [names[i : i + size] for i in range(0, len(names), size)]
    listed = root.as_listed_now() if is_object(root) else None  # one listing shows which objects are unchanged
    done = on_threads(lambda block: [_digest(str(root), listed, name, known) for name in block], blocks, threads)
    results = [result for block in done for result in block]
    found = zip(names, results, strict=True)
    fresh = {name: [*stamp, digest.hex()] for name, (stamp, digest, new) in found if new and stamp}
    if fresh and store is not None:
        with suppress(OSError, UnwritableError):  # a cache that cannot be written only costs time
            write_bytes(store, json.dumps(_load(store) | fresh).encode())
    return [digest for _, digest, _ in results]


Stamp = tuple[int, int, int]
#: Name to its stamp and digest, in one list.
Known = dict[str, list[Any]]


def _digest(root: str, listed: ObjectPath | None, name: str, known: Known) -> tuple[Stamp | None, bytes, bool]:
    """The state of a file or object (None if it is not to be kept), its digest, and whether it was read now."""
    path = os.path.join(root, name)  # noqa: PTH118  # much faster than pathlib, and called for every file
    try:
        if listed is not None:
            state = (listed / name).stat()
            stamp = (state.st_size, state.st_mtime_ns, 0)
        else:
            status = os.stat(path)  # noqa: PTH116
            if not S_ISREG(status.st_mode):  # opening a pipe would block, and a device may be endless
                return None, UNREADABLE, False
            # ctime too: it also moves when a copying tool restores the old mtime of another image of equal size
            stamp = (status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        entry = known.get(name)
        if entry is not None and entry[:3] == [*stamp]:
            return stamp, bytes.fromhex(entry[3]), False
        if listed is not None:
            digest = digest_bytes((listed / name).read_bytes())
        else:
            with open(path, "rb") as file:  # noqa: PTH123
                digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=DIGEST_SIZE)).digest()
    except UnreachableError:
        raise
    except (OSError, ValueError, StoreError) as error:
        if isinstance(error, OSError) and error.errno not in (None, *_ABOUT_THE_FILE):
            raise DatasetError(f"{path} can't be read now", found=error.strerror, hint="rerun when it can") from error
        return None, UNREADABLE, False
    settled = time.time_ns() - max(stamp[1:]) > _SETTLED_NS
    return (stamp if settled else None), digest, True


def _load(store: Path | None) -> Known:
    """An unreadable cache is replaced."""
    try:
        known = json.loads(store.read_bytes()) if store is not None else {}
        fine = isinstance(known, dict) and all(len(entry) == 4 for entry in known.values())
        return known if fine else {}
    except (OSError, ValueError, TypeError):
        return {}
