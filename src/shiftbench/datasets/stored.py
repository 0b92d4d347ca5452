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
from itertools import chain
from pathlib import Path
from stat import S_ISREG
from threading import RLock
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

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
SETTLED_NS = 2_000_000_000
#: Errors that are the file's; others (too many open files, a disk or server that fails) say nothing about it.
_FILE_ERRORS = (
    errno.ENOENT,
    errno.EACCES,
    errno.EPERM,
    errno.ELOOP,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.ENAMETOOLONG,
    errno.EINVAL,
)


def digest_bytes(data: bytes | memoryview) -> bytes:
    return hashlib.blake2b(data, digest_size=DIGEST_SIZE).digest()


def identity(dataset: Dataset) -> str:
    """The fingerprint of the content; of large datasets a hash of names and labels, which takes seconds, not hours."""
    if len(dataset) <= HASHED:
        return dataset.fingerprint
    if dataset.label_sets is None:
        labels = dataset.labels.tobytes()
    else:
        labels = repr(dataset.label_sets).encode()
    names = "\n".join(dataset.ids).encode("utf-8", "surrogateescape")
    return "names:" + hashing.digest(dataset.space.fingerprint, names, labels)


def combine(
    ids: Sequence[str], labels: Labels, space: LabelSpace, digests: Iterable[bytes], label_sets: LabelSets | None = None
) -> str:
    """The fingerprint of a dataset from the ids, labels and digests of its images."""
    fingerprint = hashlib.blake2b(space.fingerprint.encode(), digest_size=DIGEST_SIZE)
    if label_sets is None:
        label_sets = [(label,) for label in labels.tolist()]
    for image_id, classes, digest in zip(ids, label_sets, digests, strict=True):
        # The length comes first, so that no two lists of ids run together into the same text.
        encoded = image_id.encode("utf-8", "surrogateescape")
        class_text = ",".join(map(str, classes)).encode()
        fingerprint.update(b"%d:%b%b:" % (len(encoded), encoded, class_text))
        fingerprint.update(digest)
    return fingerprint.hexdigest()


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


class KnownDigests:
    """The digests of the images that were hashed: 17 bytes per image, as workers get a copy."""

    def __init__(self, images: int) -> None:
        self._values = np.zeros((images, DIGEST_SIZE), np.uint8)
        self._hashed = np.zeros(images, bool)

    def missing(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows among these whose images were not hashed, sorted and without repetitions."""
        return np.unique(rows[~self._hashed[rows]])

    def add(self, rows: NDArray[np.int64], digests: Iterable[bytes]) -> None:
        self._values[rows] = np.frombuffer(b"".join(digests), np.uint8).reshape(-1, DIGEST_SIZE)
        self._hashed[rows] = True

    def of(self, rows: NDArray[np.int64]) -> list[bytes]:
        """The digests of images that were hashed."""
        return [value.tobytes() for value in self._values[rows]]

    def get(self, row: int) -> bytes | None:
        """The digest of an image; None if it was not hashed."""
        if not self._hashed[row]:
            return None
        digest: bytes = self._values[row].tobytes()
        return digest


class StoredDataset(ContentDataset):
    """A dataset that holds the images itself.

    What is read later must be what was hashed: results are stored under the fingerprint, so an image that changes or
    vanishes during a run must not enter them.
    """

    _known_digests: KnownDigests | None = None

    @abstractmethod
    def _hash(self, indices: Sequence[int]) -> list[bytes]:
        """A hash of each image's bytes, as they are now; UNREADABLE for those that can't be read."""

    def digests(self, indices: Sequence[int]) -> list[bytes]:
        if self._known_digests is None:
            self._known_digests = KnownDigests(len(self))
        rows = np.asarray(indices, np.int64)
        missing = self._known_digests.missing(rows)
        if len(missing):
            self._known_digests.add(missing, self._hash(missing.tolist()))
        return self._known_digests.of(rows)

    def _forget_digests(self, indices: Sequence[int]) -> None:
        """Forget digests that are kept from run to run and turned out to be wrong, so that they are computed again.

        Most datasets keep none.
        """
        return

    def _unchanged(self, index: int, read: Callable[[int], bytes]) -> bytes:
        """Read the bytes of an image; a second time if they are not what was hashed, since a disk or server may fail.

        If the image was misread when it was hashed, the next run hashes it again.

        Raises:
            BadImageError: The image can't be read, and could not be when it was hashed.
            DatasetError: The image is not what was hashed.
        """
        expected = None
        if self._known_digests is not None:
            expected = self._known_digests.get(index)
        try:
            data = read(index)
        except BadImageError as error:
            if expected in (None, UNREADABLE):
                raise
            self._forget_digests([index])
            raise self._changed(index, str(error.found or error.message)) from error
        if expected is None or digest_bytes(data) == expected:
            return data
        data = read(index)
        if digest_bytes(data) == expected:
            return data
        self._forget_digests([index])
        raise self._changed(index, "other bytes")

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
    """A dataset of encoded images: a subclass provides the bytes of one image, reading and fingerprint follow."""

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

    #: Whether rows may show the same file on purpose, as a video frame that has several labels.
    repeats_files = False

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
        if ids is None:
            ids = [_valid_text(path) for path in paths]
        self.name = name
        self.space = space
        self.root = root
        self.paths = list(paths)
        self.ids = list(ids)
        self.labels = np.asarray(labels, dtype=np.int32)
        self.label_sets = label_sets
        self.metadata = dict(metadata or {})
        self._max_pixels = max_pixels

    def _bytes(self, index: int) -> bytes:
        return read_file(self.root / self.paths[index], self.ids[index])

    def _hash(self, indices: Sequence[int]) -> list[bytes]:
        return digest_files(self.root, [self.paths[i] for i in indices])

    def _forget_digests(self, indices: Sequence[int]) -> None:
        forget_digests(self.root, [self.paths[i] for i in indices])


def _valid_text(path: str) -> str:
    """A path as an id: a file name need not be valid text, but an id must be, to be stored."""
    if path.isascii():
        return path
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


#: Size, time of modification and time of change of a file; another stamp means that it may have changed.
Stamp = tuple[int, int, int]
#: The cache of digests: for each name the three numbers of its stamp and its digest, in one list.
HashCache = dict[str, list[Any]]


class FileDigest(NamedTuple):
    """The digest of a file or object; ``stamp`` is None if the digest must not be cached."""

    digest: bytes
    stamp: Stamp | None
    from_cache: bool


def digest_files(root: Location, names: Sequence[str]) -> list[bytes]:
    """Digests of many files, in parallel; those of unchanged files come from the cache."""
    cache_file = _hash_cache_file(root)
    cache = _load_cache(cache_file)
    # Files are hashed in blocks: submitting each unchanged file to a thread would cost more than the stat call.
    block_size = 256
    threads = _THREADS
    listed: ObjectPath | None = None
    if is_object(root):
        block_size = 8
        threads = _REQUESTS
        listed = root.as_listed_now()  # one listing shows which objects are unchanged
    blocks = [names[i : i + block_size] for i in range(0, len(names), block_size)]
    hashed_blocks = on_threads(
        lambda block: [_digest(str(root), listed, name, cache) for name in block], blocks, threads
    )
    results = list(chain.from_iterable(hashed_blocks))
    fresh = {}
    for name, result in zip(names, results, strict=True):
        if result.stamp is not None and not result.from_cache:
            fresh[name] = [*result.stamp, result.digest.hex()]
    if fresh and cache_file is not None:
        with suppress(OSError, UnwritableError):  # a cache that cannot be written only costs time
            # The cache is loaded again, as another process may have added to it.
            write_bytes(cache_file, json.dumps(_load_cache(cache_file) | fresh).encode())
    return [result.digest for result in results]


def forget_digests(root: Location, names: Sequence[str]) -> None:
    """Remove files from the cache of digests."""
    cache_file = _hash_cache_file(root)
    cache = _load_cache(cache_file)
    kept = {name: entry for name, entry in cache.items() if name not in names}
    if cache_file is not None and len(kept) < len(cache):
        with suppress(OSError, UnwritableError):
            write_bytes(cache_file, json.dumps(kept).encode())


def _hash_cache_file(root: Location) -> Path | None:
    """The file that caches the digests below ``root``; None if the cache folder can't be made."""
    location = str(root).encode() if is_object(root) else os.fsencode(root.resolve())
    key = hashlib.blake2b(location, digest_size=12).hexdigest()
    try:
        return cache_folder("hashes") / f"{key}.json"
    except OSError:  # the home folder is read-only: files are hashed again each time
        return None


def _digest(root: str, listed: ObjectPath | None, name: str, cache: HashCache) -> FileDigest:
    """Hash a file or object, or take its digest from the cache if its stamp is the same.

    ``listed`` is the root as an object store lists it; None for files on a disk.
    """
    path = os.path.join(root, name)  # noqa: PTH118  # much faster than pathlib, and called for every file
    try:
        if listed is not None:
            state = (listed / name).stat()
            stamp = (state.st_size, state.st_mtime_ns, 0)
        else:
            status = os.stat(path)  # noqa: PTH116
            if not S_ISREG(status.st_mode):  # opening a pipe would block, and a device may be endless
                return FileDigest(UNREADABLE, None, from_cache=False)
            # The ctime is needed, too: it also moves when a copying tool restores the old mtime of another image of
            # equal size.
            stamp = (status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        entry = cache.get(name)
        if entry is not None and entry[:3] == [*stamp]:
            return FileDigest(bytes.fromhex(entry[3]), stamp, from_cache=True)
        if listed is not None:
            data = (listed / name).read_bytes()
            length = len(data)
            digest = digest_bytes(data)
        else:
            with open(path, "rb") as file:  # noqa: PTH123
                digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=DIGEST_SIZE)).digest()
                length = file.tell()
    except UnreachableError:
        raise
    except (OSError, ValueError, StoreError) as error:
        if isinstance(error, OSError) and error.errno not in (None, *_FILE_ERRORS):
            raise DatasetError(f"{path} can't be read now", found=error.strerror, hint="rerun when it can") from error
        return FileDigest(UNREADABLE, None, from_cache=False)
    if length != stamp[0]:
        raise DatasetError(
            f"{path} can't be read now",
            found=f"{length} bytes",
            expected=f"{stamp[0]} bytes, its size",
            hint="rerun when it is complete",
        )
    settled = time.time_ns() - max(stamp[1:]) > SETTLED_NS
    return FileDigest(digest, stamp if settled else None, from_cache=False)


def _load_cache(file: Path | None) -> HashCache:
    """The cached digests; none if the file is missing or damaged, which is then replaced."""
    if file is None:
        return {}
    try:
        cache = json.loads(file.read_bytes())
        if isinstance(cache, dict) and all(len(entry) == 4 for entry in cache.values()):
            return cache
    except (OSError, ValueError, TypeError):
        pass
    return {}
