"""Recognise, open and check Icons-50: rebuilt or original, a folder or the npy file, whole or one part of a protocol.

A part is named like a file in the dataset: ``icons/style.train``, ``icons/style-apple.test``, so that a suite can name
the part that a setting is evaluated on. The original's npy file holds a pickled dictionary (class, style, subtype,
rendition, image). It is read by an unpickler that makes NumPy arrays and plain values and nothing else.
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
from shiftbench.datasets.base import Dataset
from shiftbench.datasets.files import FileDataset
from shiftbench.datasets.folder import list_classes
from shiftbench.datasets.icons.protocols import PARTS, split_icons
from shiftbench.datasets.icons.record import RECORD, TABLE, read_record
from shiftbench.datasets.kind import DataReport, DatasetKind, own_space
from shiftbench.datasets.manifest import open_manifest
from shiftbench.errors import DatasetError, ShiftbenchError, argument, listed
from shiftbench.io.paths import Location, local
from shiftbench.labels.catalogue import label_space
from shiftbench.labels.guard import recognise_folders
from shiftbench.labels.space import LabelSpace

_PART = re.compile(rf"(?P<protocol>(?:style|subtype|version)[a-z0-9-]*)\.(?P<part>{'|'.join(PARTS)})")
#: Number of the 50 class folders that distinguishes Icons-50 from a folder with classes such as hat and flag.
_ENOUGH_CLASSES = 25
#: Number of icons of the original.
_IMAGES = 10_000


def recognise_icons(path: Location) -> str | None:
    match = _PART.fullmatch(path.name)
    if match is not None and not path.exists():
        return f"{match['protocol']}.{match['part']} of Icons-50" if _recognise_set(path.parent) else None
    return _recognise_set(path)


def _recognise_set(path: Location) -> str | None:
    if path.is_file():
        return "Icons-50 in one file" if path.name.lower() == "icons-50.npy" else None
    if not path.is_dir():
        return None
    if (path / RECORD).is_file() and (path / TABLE).is_file():
        return "Icons-50, rebuilt from registry packages"
    present = [key for key in label_space("icons-50").keys if (path / key).is_dir()]
    if len(present) < _ENOUGH_CLASSES:
        return None
    named = (_FILE_NAME.fullmatch(file.name) for key in present[:3] for file in (path / key).iterdir())
    return "Icons-50" if any(named) else None


def open_icons(path: str | Path, *, space: LabelSpace | str | None = None, name: str | None = None) -> Dataset:
    """Icons-50, original or rebuilt, or a part of it such as PATH/style.train."""
    place = Path(path)
    own_space("icons-50", space)
    match = _PART.fullmatch(place.name)
    if match is not None and not place.exists():
        split = split_icons(_open_set(place.parent, None), match["protocol"])
        part = split.part(match["part"])
        part.name = name or part.name
        return part
    return _open_set(place, name)


def _open_set(place: Path, name: str | None) -> Dataset:
    if place.is_file():
        return _open_npy(place, name=name)
    if (place / TABLE).is_file():
        return open_manifest(place / TABLE, space="icons-50", label="class", name=name or place.resolve().name)
    return _open_original_folder(place, name=name)


def check_icons(path: Location) -> DataReport:
    """The original has 10,000 icons; a rebuilt dataset has as many as its record lists."""
    path = local(path)
    seen = recognise_icons(path) or "Icons-50"
    report = DataReport(str(path), "Icons-50", seen, role="icons", suite="icons-style", classes_expected=50)
    report.home = "GitHub, hendrycks/robustness, which links the archive; or rebuild it: shiftbench data icons FOLDER"
    try:
        dataset = open_icons(path)
        expected = _recorded(path) if (path / RECORD).is_file() else _IMAGES
    except ShiftbenchError as error:
        report.missing.append(f"{error.message} ({error.found})" if error.found else error.message)
        return report
    report.count(dataset)
    present = set(dataset.labels.tolist())
    absent = [key for i, key in enumerate(dataset.space.keys) if i not in present]
    if absent:
        report.missing.append(f"{len(absent)} of 50 classes: {listed(absent)}")
    report.notes.append(f"styles: {listed(sorted(set(dataset.metadata['style'])), 12)}")
    lost = [image_id for image_id in dataset.ids if path.is_dir() and not (path / image_id).is_file()]
    if lost:
        report.missing.append(f"{len(lost):,} of the listed icons: {listed(lost, 3)}")
    report.expect_images(expected)
    return report


def _recorded(folder: Path) -> int:
    return sum(int(about["images"]) for about in read_record(folder)["styles"].values())


KIND = DatasetKind(recognise_icons, open_icons, check_icons)


#: ``emoji-one_3_waving_hand_sign.png``: a style has hyphens at most, a rendition is a number.
_FILE_NAME = re.compile(r"(?P<style>[a-z0-9-]+)_(?P<rendition>[0-9]+)_(?P<subtype>.+)\.png")
_FACTORS = ("style", "rendition", "subtype")
_NPY_KEYS = {"class", "style", "subtype", "rendition", "image"}


def _open_original_folder(folder: Path, *, name: str | None = None) -> FileDataset:
    """The class folders; style, rendition and subtype of each icon are metadata."""
    listing = list_classes(folder)
    space, index = recognise_folders(listing.classes, "icons-50")
    paths = [f"{label}/{file}" for label in sorted(listing.classes) for file in listing.classes[label]]
    if not paths:
        raise DatasetError(f"{folder} holds no icons", found=f"{len(listing.classes)} empty class folders")
    parsed = [_FILE_NAME.fullmatch(path.rpartition("/")[2]) for path in paths]
    odd = [path for path, match in zip(paths, parsed, strict=True) if match is None]
    if odd:
        raise DatasetError(
            f"{len(odd)} files of {folder} are not named as those of Icons-50",
            found=odd[0],
            expected="<style>_<rendition>_<subtype>.png",
            hint=f"as plain class folders: folder:PATH with {argument('labels', 'icons-50')}",
        )
    metadata = {factor: [match[factor] for match in parsed if match] for factor in _FACTORS}
    labels = [index[path.split("/")[0]] for path in paths]
    return FileDataset(name or folder.resolve().name, space, folder, paths, labels, metadata=metadata)


def _open_npy(path: Path, *, name: str | None = None) -> ArrayDataset:
    """``Icons-50.npy``: 10,000 icons of 32 pixels, under the ids that the files have in the folder."""
    space = label_space("icons-50")
    value = _read_npy(path)
    labels = [int(label) for label in value["class"]]
    wrong = next((label for label in labels if not 0 <= label < len(space)), None)
    if wrong is not None:
        raise DatasetError(f"{path} has a class that Icons-50 has not", found=wrong, expected="0 to 49")
    metadata = {factor: [str(entry) for entry in value[factor]] for factor in _FACTORS}
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
