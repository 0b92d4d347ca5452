"""Images that are rows of one array: npy and npz files, arrays in memory.

Files are memory-mapped, and mapped again by each worker; object arrays, which would be unpickled, are rejected.
"""

from __future__ import annotations

import hashlib
import pickle
import shutil
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from shiftbench.datasets.base import DecodedImage
from shiftbench.datasets.fingerprint import Opened, StoredDataset, digest_bytes
from shiftbench.datasets.images import bad_image
from shiftbench.datasets.kind import DatasetKind, entry_names
from shiftbench.errors import DatasetError
from shiftbench.io.cache import cache_folder, local_copy
from shiftbench.io.locks import file_lock
from shiftbench.io.paths import Location, place
from shiftbench.labels.guard import recognise_folders
from shiftbench.labels.space import AskedSpace, LabelSpace

Array = NDArray[Any]
_IMAGE_KEYS = ("images", "data", "x", "x_test", "arr_0")
_LABEL_KEYS = ("labels", "label", "targets", "y", "y_test", "arr_1")


class ArraySource(Protocol):
    """Where an array comes from; small and picklable."""

    def open(self) -> Array: ...


@dataclass(frozen=True, eq=False)
class InMemory:
    array: Array

    def open(self) -> Array:
        return self.array


@dataclass(frozen=True)
class NpyFile:
    path: Location

    def open(self) -> Array:
        try:
            array: Array = np.load(local_copy(self.path), mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise DatasetError(f"{self.path} is not a readable npy file", found=error) from error
        return array


@dataclass(frozen=True)
class NpzMember:
    """One array of an npz file: a small one is read, a large one unpacked into the cache once and mapped."""

    path: Location
    member: str

    def open(self) -> Array:
        try:
            path = local_copy(self.path)
            with zipfile.ZipFile(path) as archive:
                if archive.getinfo(f"{self.member}.npy").file_size <= 1 << 20:
                    with np.load(path, allow_pickle=False) as arrays:
                        small: Array = arrays[self.member]
                    return small
            return NpyFile(self._unpacked()).open()
        except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
            raise DatasetError(f"{self.path} has no readable array {self.member!r}", found=error) from error

    def _unpacked(self) -> Path:
        path = local_copy(self.path)
        status = path.stat()
        identity = f"{path.resolve()}|{status.st_size}|{status.st_mtime_ns}|{self.member}"
        key = hashlib.blake2b(identity.encode(), digest_size=12).hexdigest()
        target = cache_folder("arrays") / f"{key}.npy"
        with file_lock(target.with_suffix(".lock"), wait=True):
            if not target.exists():
                temporary = target.with_suffix(".tmp")
                with (
                    zipfile.ZipFile(path) as archive,
                    archive.open(f"{self.member}.npy") as packed,
                    temporary.open("wb") as file,
                ):
                    shutil.copyfileobj(packed, file, 1 << 22)
                temporary.replace(target)
        return target


class ArraysOnly(pickle.Unpickler):
    """Makes plain values and NumPy arrays; a pickle that names anything else is rejected before anything is called."""

    def find_class(self, module: str, name: str) -> Any:
        if name == "_reconstruct" and module in ("numpy.core.multiarray", "numpy._core.multiarray"):
            return np.empty(0).__reduce__()[0]
        if module == "numpy" and name in ("ndarray", "dtype"):
            return getattr(np, name)
        if (module, name) == ("_codecs", "encode"):
            import _codecs

            return _codecs.encode
        raise pickle.UnpicklingError(f"it names {module}.{name}, which plain data has no use for")


class ArrayDataset(StoredDataset):
    """Rows of a uint8 array (N, H, W, 3), (N, H, W, 1) or (N, H, W); or of a block of it."""

    def __init__(
        self,
        name: str,
        space: LabelSpace,
        source: ArraySource,
        labels: Sequence[int] | Array,
        *,
        ids: Sequence[str] | None = None,
        rows: Sequence[int] | range | None = None,
        metadata: Mapping[str, Sequence[Any]] | None = None,
    ) -> None:
        self.name, self.space, self._source = name, space, source
        self._rows = rows
        self._metadata = dict(metadata or {})
        self._opened = Opened()
        self.labels = np.asarray(labels, dtype=np.int32)
        count = len(self.array) if rows is None else len(rows)
        if self.labels.shape != (count,):
            raise DatasetError(
                f"{name!r} needs one label per image", found=f"labels {self.labels.shape}", expected=f"({count},)"
            )
        if len(self.labels) and (self.labels.min() < -1 or self.labels.max() >= len(space)):
            raise DatasetError(
                f"labels of {name!r} lie outside its label space {space.name!r}",
                found=f"{self.labels.min()} to {self.labels.max()}",
                expected=f"0 to {len(space) - 1}, or -1 for no label",
            )
        self.ids = [f"{i:0{max(5, len(str(count - 1)))}d}" for i in range(count)] if ids is None else list(ids)

    @property
    def array(self) -> Array:
        if self._opened.value is None:
            with self._opened.lock:
                if self._opened.value is None:
                    self._opened.value = _checked(self._source.open(), self.name)
        array: Array = self._opened.value
        return array

    @property
    def metadata(self) -> Mapping[str, Sequence[Any]]:
        return self._metadata

    def read(self, index: int) -> DecodedImage:
        flat = np.frombuffer(self._unchanged(index, self._bytes), np.uint8)
        shape: tuple[int, ...] = self.array.shape
        pixels = flat.reshape(shape[1:]).copy()
        return DecodedImage(
            pixels
            if pixels.ndim == 3 and pixels.shape[2] == 3
            else np.repeat(pixels.reshape(pixels.shape[0], pixels.shape[1], 1), 3, axis=2)
        )

    def _hash(self, indices: Sequence[int]) -> list[bytes]:
        return [digest_bytes(self._bytes(i)) for i in indices]

    def _bytes(self, index: int) -> bytes:
        try:
            row: Array = self.array[index if self._rows is None else self._rows[index]]
            return row.tobytes()
        except (OSError, DatasetError) as error:
            raise bad_image(self.ids[index], str(error)) from error


def open_array(
    path: str | Location, *, labels: str | Location | None = None, space: AskedSpace = None, name: str | None = None
) -> ArrayDataset:
    """Images and labels as npy or npz files, or a folder with images.npy and labels.npy.

    An npz file holds both arrays. For an npy file without ``labels``, the labels are the file beside it:
    ``x_labels.npy`` for ``x_data.npy`` or ``x_images.npy``, else ``labels.npy``.
    """
    path = place(path)
    if path.is_dir():
        name, path = name or path.resolve().name, path / "images.npy"
    name = name or path.stem
    if path.suffix == ".npz":
        keys = _npz_keys(path)
        images: ArraySource = NpzMember(path, _pick(path, keys, _IMAGE_KEYS))
        values = NpzMember(path, _pick(path, keys, _LABEL_KEYS)).open()
    else:
        images = NpyFile(path)
        values = NpyFile(labels_beside(path) if labels is None else place(labels)).open()
    target, indices = array_labels(values, space, name)
    return ArrayDataset(name, target, images, indices)


def recognise_array(path: Location) -> str | None:
    if {"images.npy", "labels.npy"} <= set(entry_names(path)):
        return "a folder with images.npy and labels.npy"
    return f"a {path.suffix} file" if path.suffix in (".npy", ".npz") and path.is_file() else None


KIND = DatasetKind(recognise_array, open_array, by_url=True)


def from_arrays(
    images: Array, labels: Sequence[int] | Array, *, space: AskedSpace = None, name: str = "array"
) -> ArrayDataset:
    """Arrays in memory.

    Args:
        images: uint8 (N, H, W, 3).
        labels: Class of each image as an index into ``space``.
        space: Label space, or its name; default: made of the labels.
        name: The name that tables and provenance show.

    Example:
        >>> zeros = np.zeros((10, 32, 32, 3), dtype=np.uint8)
        >>> from_arrays(zeros, range(10), space="cifar-10").read(3).pixels.shape
        (32, 32, 3)
    """
    target, indices = array_labels(np.asarray(labels), space, name)
    return ArrayDataset(name, target, InMemory(images), indices)


def array_labels(values: Array, space: AskedSpace, name: str) -> tuple[LabelSpace, NDArray[np.int32]]:
    """Label values, integers or class names, as indices into a space that the guard accepts."""
    values = np.asarray(values)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1 or values.dtype.kind not in "iuU":
        raise DatasetError(
            f"the labels of {name!r} are neither integers nor class names",
            found=f"{values.dtype} array of shape {values.shape}",
            expected="one integer or name per image",
        )
    known = values != "" if values.dtype.kind == "U" else values >= 0
    distinct = np.unique(values[known])
    target, index = recognise_folders([str(v) for v in distinct.tolist()], space)
    table = np.array([index[str(v)] for v in distinct.tolist()], dtype=np.int32)
    indices = np.full(len(values), -1, dtype=np.int32)
    indices[known] = table[np.searchsorted(distinct, values[known])]
    return target, indices


def labels_beside(path: Location) -> Location:
    stem = path.stem
    for ending in ("_data", "_images", "data", "images"):
        if stem.endswith(ending):
            candidate = path.with_name(f"{stem.removesuffix(ending)}labels.npy".replace("__", "_"))
            joined = path.with_name(f"{stem.removesuffix(ending).rstrip('_')}_labels.npy")
            for found in (joined, candidate):
                if found.is_file():
                    return found
    if path.with_name("labels.npy").is_file():
        return path.with_name("labels.npy")
    raise DatasetError(
        f"no labels for {path.name}",
        expected=f"labels.npy or {stem.removesuffix('_data')}_labels.npy beside it",
        hint="pass labels=FILE",
    )


def _npz_keys(path: Location) -> list[str]:
    try:
        with zipfile.ZipFile(local_copy(path)) as archive:
            return [n.removesuffix(".npy") for n in archive.namelist() if n.endswith(".npy")]
    except (OSError, zipfile.BadZipFile) as error:
        raise DatasetError(f"{path} is not a readable npz file", found=error) from error


def _pick(path: Location, keys: Sequence[str], wanted: Sequence[str]) -> str:
    for key in wanted:
        if key in keys:
            return key
    raise DatasetError(f"{path} lacks an array", found=", ".join(keys), expected=f"one named {' or '.join(wanted)}")


def _checked(array: Array, name: str) -> Array:
    shape = array.shape
    if array.dtype != np.uint8:
        raise DatasetError(f"{name!r} is not an array of 8-bit images", found=array.dtype, expected="uint8, 0 to 255")
    if len(shape) == 3 or (len(shape) == 4 and shape[3] in (1, 3)):
        return array
    first = len(shape) == 4 and shape[1] in (1, 3)
    raise DatasetError(
        f"{name!r} is not an array of images",
        found=f"shape {shape}",
        expected="(N, H, W, 3)",
        hint="channels come first: store images.transpose(0, 2, 3, 1)" if first else None,
    )
