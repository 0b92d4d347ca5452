"""Images that are rows of one array: npy and npz files, arrays in memory.

Files are memory-mapped, and mapped again by each worker; object arrays, which would be unpickled, are rejected.
"""

from __future__ import annotations

import hashlib
import math
import pickle
import shutil
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from shiftbench.datasets.base import DatasetKind, DecodedImage, entry_names
from shiftbench.datasets.images import bad_image
from shiftbench.datasets.stored import Opened, StoredDataset, digest_bytes
from shiftbench.errors import DatasetError, listed, raising
from shiftbench.io.cache import cache_folder, check_expansion, local_copy, mark_used, trim_cache
from shiftbench.io.locks import file_lock
from shiftbench.io.paths import Location, place
from shiftbench.labels.catalogue import LabelsArgument, find_label_space
from shiftbench.labels.guard import recognise_folders
from shiftbench.labels.space import AskedSpace, LabelSpace

Array = NDArray[Any]
_IMAGE_KEYS = ("images", "data", "x", "x_test", "arr_0")
_LABEL_KEYS = ("labels", "label", "targets", "y", "y_test", "arr_1")


def read_npy(path: Location) -> Array:
    """The array of an npy file, memory-mapped."""
    with raising(DatasetError, f"{path} is not a readable npy file", OSError, ValueError, EOFError):
        array: Array = np.load(local_copy(path), mmap_mode="r", allow_pickle=False)
        return array


def read_npz(path: Location, member: str) -> Array:
    """One array of an npz file: a small one is read, a large one unpacked into the cache once and mapped."""
    problems = (OSError, ValueError, KeyError, zipfile.BadZipFile, zlib.error)
    with raising(DatasetError, f"{path} has no readable array {member!r}", *problems):
        file = local_copy(path)
        with zipfile.ZipFile(file) as archive:
            entry = archive.getinfo(f"{member}.npy")
            check_header(archive, entry)
            if entry.file_size <= 1 << 20:
                with np.load(file, allow_pickle=False) as arrays:
                    array: Array = arrays[member]
                return array
            identity = f"{file.resolve()}|{member}|{entry.file_size}|{entry.CRC}"
            name = hashlib.blake2b(identity.encode(), digest_size=12).hexdigest()
            target = cache_folder("arrays") / f"{name}.npy"
            with file_lock(target.with_suffix(".lock"), wait=True):
                if not target.exists() or _checksum(target) != entry.CRC:
                    target.unlink(missing_ok=True)
                    check_expansion(f"{member} of {file.name}", entry.compress_size, entry.file_size)
                    trim_cache()
                    _unpack_member(archive, entry, target)
        mark_used(target)
        return read_npy(target)


def check_header(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> None:
    """Raise ValueError if a member is not the npy file of plain values that its size promises.

    This is asked before the member is read, so that what cannot be used takes no space in memory or in the cache.
    """
    with archive.open(entry) as packed:
        version = npy_format.read_magic(packed)
        read_header = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
        shape, _, dtype = read_header(packed)
        expected_size = packed.tell() + math.prod(shape) * dtype.itemsize
    if dtype.hasobject:
        raise ValueError("it holds Python objects, which would have to be unpickled")
    if expected_size != entry.file_size:
        raise ValueError(f"its header announces {expected_size:,} bytes, and it has {entry.file_size:,}")


def _unpack_member(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, target: Path) -> None:
    """Unpack a member of an archive to a path; nothing is left there if it fails."""
    temporary = target.with_suffix(".tmp")
    try:
        with archive.open(entry) as packed, temporary.open("wb") as unpacked:
            shutil.copyfileobj(packed, unpacked, 1 << 22)
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _checksum(path: Path) -> int:
    """The CRC of a file, as zip archives have it: a file in the cache may have been damaged or changed."""
    checksum = 0
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            checksum = zlib.crc32(block, checksum)
    return checksum


class ArraysOnly(pickle.Unpickler):
    """An unpickler for plain values and NumPy arrays.

    A pickle that names anything else is rejected before anything is called.
    """

    def find_class(self, module: str, name: str) -> object:
        if name == "_reconstruct" and module in ("numpy.core.multiarray", "numpy._core.multiarray"):
            return np.empty(0).__reduce__()[0]
        if module == "numpy" and name in ("ndarray", "dtype"):
            return getattr(np, name)
        if (module, name) == ("_codecs", "encode"):
            import _codecs

            return _codecs.encode
        raise pickle.UnpicklingError(f"it names {module}.{name}, which plain data has no use for")


class ArrayDataset(StoredDataset):
    """Rows of a uint8 array (N, H, W, 3), (N, H, W, 1) or (N, H, W); or some of them.

    ``source`` is the array, or a picklable function that opens it, which each worker calls once.
    """

    def __init__(
        self,
        name: str,
        space: LabelSpace,
        source: Array | Callable[[], Array],
        labels: Sequence[int] | Array,
        *,
        ids: Sequence[str] | None = None,
        rows: Sequence[int] | range | None = None,
        metadata: Mapping[str, Sequence[Any]] | None = None,
    ) -> None:
        self.name = name
        self.space = space
        self.metadata = dict(metadata or {})
        self.labels = np.asarray(labels, dtype=np.int32)
        self._source = source
        self._rows = rows
        self._opened = Opened()
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
        if ids is None:
            digits = max(5, len(str(count - 1)))
            ids = [f"{i:0{digits}d}" for i in range(count)]
        self.ids = list(ids)

    @property
    def array(self) -> Array:
        """All rows of the source, which is opened on first use and checked to be images."""
        with self._opened.lock:
            if self._opened.value is None:
                array = self._source() if callable(self._source) else self._source
                _check_images(array, self.name)
                self._opened.value = array
            opened: Array = self._opened.value
        return opened

    def read(self, index: int) -> DecodedImage:
        flat = np.frombuffer(self._unchanged(index, self._bytes), np.uint8)
        shape: tuple[int, ...] = self.array.shape
        if len(shape) == 4 and shape[3] == 3:
            return DecodedImage(flat.reshape(shape[1:]).copy())
        return DecodedImage(np.repeat(flat.reshape(shape[1], shape[2], 1), 3, axis=2))

    def _hash(self, indices: Sequence[int]) -> list[bytes]:
        return [digest_bytes(self._bytes(i)) for i in indices]

    def _bytes(self, index: int) -> bytes:
        try:
            row = index if self._rows is None else self._rows[index]
            image: Array = self.array[row]
            return image.tobytes()
        except (OSError, DatasetError) as error:
            raise bad_image(self.ids[index], str(error)) from error


def _check_images(array: Array, name: str) -> None:
    """Raise a DatasetError if an array does not hold 8-bit images, one per row."""
    shape = array.shape
    if array.dtype != np.uint8:
        raise DatasetError(f"{name!r} is not an array of 8-bit images", found=array.dtype, expected="uint8, 0 to 255")
    if not (len(shape) == 3 or (len(shape) == 4 and shape[3] in (1, 3))):
        channels_first = len(shape) == 4 and shape[1] in (1, 3)
        raise DatasetError(
            f"{name!r} is not an array of images",
            found=f"shape {shape}",
            expected="(N, H, W, 3)",
            hint="channels come first: store images.transpose(0, 2, 3, 1)" if channels_first else None,
        )


def open_array(
    path: str | Location, *, labels: str | Location | None = None, space: AskedSpace = None, name: str | None = None
) -> ArrayDataset:
    """Images and labels as npy or npz files, or a folder with images.npy and labels.npy.

    An npz file holds both arrays. For an npy file without ``labels``, the labels are the file beside it:
    ``x_labels.npy`` for ``x_data.npy`` or ``x_images.npy``, else ``labels.npy``.
    """
    path = place(path)
    if path.is_dir():
        name = name or path.resolve().name
        path = path / "images.npy"
    name = name or path.stem
    if path.suffix != ".npz":
        values = read_npy(labels_beside(path) if labels is None else place(labels))
        target, indices = array_labels(values, space, name)
        return ArrayDataset(name, target, partial(read_npy, path), indices)
    with (
        raising(DatasetError, f"{path} is not a readable npz file", OSError, zipfile.BadZipFile),
        zipfile.ZipFile(local_copy(path)) as archive,
    ):
        members = [member.removesuffix(".npy") for member in archive.namelist() if member.endswith(".npy")]
    images_member = _only_member(path, members, _IMAGE_KEYS)
    labels_member = _only_member(path, members, _LABEL_KEYS)
    target, indices = array_labels(read_npz(path, labels_member), space, name)
    return ArrayDataset(name, target, partial(read_npz, path, images_member), indices)


def _only_member(path: Location, members: Sequence[str], keys: Sequence[str]) -> str:
    """The member of an npz file that has one of the usual names; none or several are an error."""
    matching = [key for key in keys if key in members]
    if len(matching) != 1:
        raise DatasetError(
            f"{path} lacks an array, or has several",
            found=listed(matching or members),
            expected=f"one named {' or '.join(keys)}",
        )
    return matching[0]


def recognise_array(path: Location) -> str | None:
    if {"images.npy", "labels.npy"} <= set(entry_names(path)):
        return "a folder with images.npy and labels.npy"
    if path.suffix in (".npy", ".npz") and path.is_file():
        return f"a {path.suffix} file"
    return None


KIND = DatasetKind(recognise_array, open_array, by_url=True)


def from_arrays(
    images: Array, labels: Sequence[int] | Array, *, space: LabelsArgument = None, name: str = "array"
) -> ArrayDataset:
    """Arrays in memory.

    Args:
        images: uint8 (N, H, W, 3).
        labels: Class of each image as an index into ``space``.
        space: Label space, its name, or the names of the classes in order; default: made of the labels.
        name: The name that tables and provenance show.

    Example:
        >>> zeros = np.zeros((10, 32, 32, 3), dtype=np.uint8)
        >>> from_arrays(zeros, range(10), space="cifar-10").read(3).pixels.shape
        (32, 32, 3)
    """
    target, indices = array_labels(np.asarray(labels), find_label_space(space), name)
    return ArrayDataset(name, target, images, indices)


def array_labels(values: Array, space: AskedSpace, name: str) -> tuple[LabelSpace, NDArray[np.int32]]:
    """Turn label values, integers or class names, into indices of a label space, which is returned, too.

    Negative and empty values mean no label, and become -1.
    """
    values = np.asarray(values)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1 or values.dtype.kind not in "iuU":
        raise DatasetError(
            f"the labels of {name!r} are neither integers nor class names",
            found=f"{values.dtype} array of shape {values.shape}",
            expected="one integer or name per image",
        )
    labelled = values != "" if values.dtype.kind == "U" else values >= 0
    classes = np.unique(values[labelled])
    class_names = [str(value) for value in classes.tolist()]
    target, index = recognise_folders(class_names, space)
    table = np.array([index[name] for name in class_names], dtype=np.int32)
    indices = np.full(len(values), -1, dtype=np.int32)
    indices[labelled] = table[np.searchsorted(classes, values[labelled])]
    return target, indices


def labels_beside(path: Location) -> Location:
    """The file of labels beside a file of images; a DatasetError is raised if there is none."""
    names = []
    for ending in ("_data", "_images", "data", "images"):
        if path.stem.endswith(ending):
            stem = path.stem.removesuffix(ending)
            names = [f"{stem.rstrip('_')}_labels.npy", f"{stem}labels.npy".replace("__", "_")]
            break
    for name in (*names, "labels.npy"):
        if path.with_name(name).is_file():
            return path.with_name(name)
    raise DatasetError(
        f"no labels for {path.name}",
        expected=f"labels.npy or {path.stem.removesuffix('_data')}_labels.npy beside it",
        hint=f"save the label of each image as {path.with_name('labels.npy')}",
    )
