"""Reads the weights of the demo's networks from the files of registry packages, without torch or Keras.

Arrays have torch's names and layouts: filters (out, in, height, width), matrices (out, in).
"""

from __future__ import annotations

import io
import pickle
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO

import numpy as np
from numpy.typing import NDArray

from shiftbench.errors import ClassifierError, required

if TYPE_CHECKING:
    import h5py

Weights = dict[str, NDArray[np.float32]]

#: What torch writes at the start of its files before version 1.6.
_MAGIC = 0x1950A86A20F9469CFC6C
_STORAGES = {"FloatStorage": np.dtype("<f4"), "LongStorage": np.dtype("<i8")}
#: The weights inside ResNet-8's archive.
_MEMBER = "image_classification.h5"
#: Keras' names of the arrays of a layer, and torch's.
_NAMES = {
    "kernel": "weight", "W": "weight", "bias": "bias", "b": "bias", "gamma": "weight", "beta": "bias",
    "moving_mean": "running_mean", "moving_variance": "running_var",
}  # fmt: skip


def pickled_tensors(path: Path) -> Weights:
    """The state dict in a file of torch before 1.6: five pickles, then the values of each storage.

    The file may name nothing but tensors and dictionaries; anything else is an error, so no code in it runs.
    """
    storages: dict[str, NDArray[np.generic]] = {}
    with path.open("rb") as file:
        magic, _, _, state, keys = (_Tensors(file, storages).load() for _ in range(5))
        if magic != _MAGIC:
            raise ClassifierError(f"{path.name} is not a torch file of the format before version 1.6")
        for key in keys:
            storage = storages[key]
            (count,) = np.frombuffer(file.read(8), "<i8")
            if count != storage.size:
                raise ClassifierError(f"{path.name} is damaged", found=f"{count} values", expected=storage.size)
            storage[:] = np.frombuffer(file.read(storage.nbytes), storage.dtype)
    return dict(state)


class _Tensors(pickle.Unpickler):
    """Storages are filled later; tensors are views of them."""

    def __init__(self, file: BinaryIO, storages: dict[str, NDArray[np.generic]]) -> None:
        super().__init__(file)
        self._storages = storages

    def find_class(self, module: str, name: str) -> object:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _tensor
        if module == "torch" and name in _STORAGES:
            return _STORAGES[name]
        raise ClassifierError("a file of weights names other things than tensors", found=f"{module}.{name}")

    def persistent_load(self, pid: tuple[str, np.dtype[np.generic], str, str, int, None]) -> NDArray[np.generic]:
        _, dtype, key, _, count, _ = pid
        return self._storages.setdefault(key, np.zeros(count, dtype))


def _tensor(
    storage: NDArray[np.generic], offset: int, shape: tuple[int, ...], strides: tuple[int, ...], *about: object
) -> NDArray[np.generic]:
    last = offset + sum((length - 1) * stride for length, stride in zip(shape, strides, strict=True))
    if min(0, offset, *strides) < 0 or last >= storage.size:
        raise ClassifierError("a tensor reaches beyond its values", found=f"{shape} at {offset}", expected=storage.size)
    places = tuple(stride * storage.itemsize for stride in strides)
    return np.lib.stride_tricks.as_strided(storage[offset:], shape, places)


def keras_file(file: Path | IO[bytes], below: str = "/") -> Weights:
    """All arrays of an HDF5 file of Keras; "fire2/expand1x1/fire2/expand1x1_W:0" is "fire2.expand1x1.weight" here."""
    arrays: Weights = {}

    def visit(name: str, item: h5py.Dataset | h5py.Group) -> None:
        if not hasattr(item, "shape"):
            return
        *folders, leaf = name.split("/")
        leaf = leaf.removesuffix(":0")
        # Newer files name the layer by its folder, older ones in front of the array: "conv1/conv1_W:0".
        layer, kind = (folders[-1], leaf) if leaf in _NAMES else tuple(leaf.rsplit("_", 1))
        stem = layer if folders[0] == layer else f"{folders[0]}.{layer}"
        array = item[()]
        axes = {4: (3, 2, 0, 1), 2: (1, 0)}.get(array.ndim, (0,))
        arrays[f"{stem}.{_NAMES[kind]}"] = np.ascontiguousarray(array.transpose(axes), np.float32)

    with required("h5py", "demo", "reading weights of Keras").File(file) as opened:
        opened[below].visititems(visit)
    return arrays


def keras_archive(archive: Path) -> Weights:
    """The arrays of the HDF5 file in ResNet-8's archive."""
    with zipfile.ZipFile(archive) as opened:
        return keras_file(io.BytesIO(opened.read(_MEMBER)), "model_weights")
