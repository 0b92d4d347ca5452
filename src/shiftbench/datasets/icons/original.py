"""Icons-50 as it was released: class folders of ``<style>_<rendition>_<subtype>.png``, or one npy file.

The npy file holds a pickled dictionary (class, style, subtype, rendition, image). It is read by an unpickler that makes
NumPy arrays and plain values and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy_format

from shiftbench.datasets.arrays import Array, ArrayDataset, ArraysOnly
from shiftbench.datasets.files import FileDataset
from shiftbench.datasets.folder import list_classes
from shiftbench.errors import DatasetError
from shiftbench.labels.catalogue import label_space
from shiftbench.labels.guard import recognise_folders

#: ``emoji-one_3_waving_hand_sign.png``: a style has hyphens at most, a rendition is a number.
FILE_NAME = re.compile(r"(?P<style>[a-z0-9-]+)_(?P<rendition>[0-9]+)_(?P<subtype>.+)\.png")
FACTORS = ("style", "rendition", "subtype")
_NPY_KEYS = {"class", "style", "subtype", "rendition", "image"}


def open_folder(folder: Path, *, name: str | None = None) -> FileDataset:
    """The class folders; style, rendition and subtype of each icon are metadata."""
    listing = list_classes(folder)
    space, index = recognise_folders(listing.classes, "icons-50")
    paths = [f"{label}/{file}" for label in sorted(listing.classes) for file in listing.classes[label]]
    if not paths:
        raise DatasetError(f"{folder} holds no icons", found=f"{len(listing.classes)} empty class folders")
    parsed = [FILE_NAME.fullmatch(path.rpartition("/")[2]) for path in paths]
    odd = [path for path, match in zip(paths, parsed, strict=True) if match is None]
    if odd:
        raise DatasetError(
            f"{len(odd)} files of {folder} are not named as those of Icons-50",
            found=odd[0],
            expected="<style>_<rendition>_<subtype>.png",
            hint="as plain class folders: folder:PATH with --labels icons-50",
        )
    metadata = {factor: [match[factor] for match in parsed if match] for factor in FACTORS}
    labels = [index[path.split("/")[0]] for path in paths]
    return FileDataset(name or folder.resolve().name, space, folder, paths, labels, metadata=metadata)


def open_npy(path: Path, *, name: str | None = None) -> ArrayDataset:
    """``Icons-50.npy``: 10,000 icons of 32 pixels, under the ids that the files have in the folder."""
    space = label_space("icons-50")
    value = _read_npy(path)
    labels = [int(label) for label in value["class"]]
    wrong = next((label for label in labels if not 0 <= label < len(space)), None)
    if wrong is not None:
        raise DatasetError(f"{path} has a class that Icons-50 has not", found=wrong, expected="0 to 49")
    metadata = {factor: [str(entry) for entry in value[factor]] for factor in FACTORS}
    names = zip(labels, metadata["style"], metadata["rendition"], metadata["subtype"], strict=True)
    ids = [f"{space.keys[label]}/{style}_{rendition}_{subtype}.png" for label, style, rendition, subtype in names]
    if len(set(ids)) != len(ids):  # a file of one's own: numbers are unique
        ids = [f"{i:05d}" for i in range(len(ids))]
    return ArrayDataset(name or path.stem, space, IconsNpy(path), labels, ids=ids, metadata=metadata)


@dataclass(frozen=True)
class IconsNpy:
    """The images of the npy file, as (N, height, width, 3)."""

    path: Path

    def open(self) -> Array:
        images = np.asarray(_read_npy(self.path)["image"])
        return np.ascontiguousarray(images.transpose(0, 2, 3, 1))


class _PlainValues(ArraysOnly):
    """Arrays, and the numbers of NumPy."""

    def find_class(self, module: str, name: str) -> Any:
        if name == "scalar" and module in ("numpy.core.multiarray", "numpy._core.multiarray"):
            return np.float64(0).__reduce__()[0]
        return super().find_class(module, name)


def _read_npy(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            value = _pickled(file)
        if not isinstance(value, dict) or _NPY_KEYS - set(value):
            raise ValueError(f"keys {sorted(value) if isinstance(value, dict) else type(value).__name__}")
        _check_shapes(value)
    except Exception as error:  # a damaged or hostile pickle can raise anything
        raise DatasetError(
            f"{path} is not Icons-50",
            found=f"{type(error).__name__}: {error}",
            expected=f"a dictionary of {', '.join(sorted(_NPY_KEYS))}",
        ) from error
    return value


def _pickled(file: BinaryIO) -> Any:
    """The one object of an npy file, as ``np.load(..., allow_pickle=True).item()`` gives it, but safely."""
    version = npy_format.read_magic(file)
    if version != (1, 0):
        raise ValueError(f"npy version {version}")
    shape, _, kind = npy_format.read_array_header_1_0(file)
    if kind != np.dtype(object) or shape != ():
        raise ValueError(f"an array of {kind} {shape}, not one object")
    return _PlainValues(file, encoding="latin1").load().item()


def _check_shapes(value: dict[str, Any]) -> None:
    images = np.asarray(value["image"])
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[1] != 3:
        raise ValueError(f"images of shape {images.shape}, {images.dtype}")
    lengths: Sequence[int] = [len(value[key]) for key in sorted(_NPY_KEYS)]
    if len(set(lengths)) != 1:
        raise ValueError(f"lists of {', '.join(map(str, lengths))} entries")
