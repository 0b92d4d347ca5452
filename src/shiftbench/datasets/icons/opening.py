"""Recognise, open and check Icons-50: rebuilt or original, a folder or the npy file, whole or one part of a protocol.

A part is named like a file in the dataset: ``icons/style.train``, ``icons/style-apple.test``. The protocols are the
three experiments of paper 002:

=========  ==========================================================================================================
style      one vendor's icons are the test set, all others train; Microsoft's, as in the paper, or ``style-apple``, ...
subtype    50 subtypes are the test set, all others train: the classifier knows other birds, and no duck. The published
           script finds them as parts of the whole path, which withholds the classes books and monkey altogether:
           ``subtype-published``
version    one version of icons that have several is the test set (the paper's control: no shift but the redrawing).
           Rendition 2, as published; ``version-newest`` takes the last one, whatever its number
=========  ==========================================================================================================

The paper trains on all icons that are not tested. Here one in ten of them is set aside, so that there is a score on
seen styles and subtypes to compare with; ``seen_share=0`` trains as the paper does.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy_format

from shiftbench.datasets.arrays import Array, ArrayDataset, ArraysOnly
from shiftbench.datasets.base import DataReport, Dataset, DatasetKind, own_space
from shiftbench.datasets.folder import list_classes
from shiftbench.datasets.icons.assemble import RECORD, TABLE, read_icon_record
from shiftbench.datasets.icons.sources import HELD_OUT_SUBTYPES, is_held_out
from shiftbench.datasets.manifest import open_manifest
from shiftbench.datasets.stored import FileDataset
from shiftbench.datasets.subset import Subset
from shiftbench.errors import DatasetError, ShiftbenchError, UnknownNameError, argument, listed
from shiftbench.grouping import by_key
from shiftbench.io.paths import Location, local
from shiftbench.labels.catalogue import label_space
from shiftbench.labels.guard import recognise_folders
from shiftbench.labels.space import AskedSpace

PARTS = ("train", "seen", "test")
_PART = re.compile(rf"(?P<protocol>(?:style|subtype|version)[a-z0-9-]*)\.(?P<part>{'|'.join(PARTS)})")
#: Number of the 50 class folders that distinguishes Icons-50 from a folder with classes such as hat and flag.
_ENOUGH_CLASSES = 25
#: Number of icons of the original.
_IMAGES = 10_000


def recognise_icons(path: Location) -> str | None:
    match = _PART.fullmatch(path.name)
    if match is not None and not path.exists():
        if recognise_icons(path.parent) is None:
            return None
        return f"{match['protocol']}.{match['part']} of Icons-50"
    if path.is_file() and path.name.lower() == "icons-50.npy":
        return "Icons-50 in one file"
    if not path.is_dir():
        return None
    if (path / RECORD).is_file() and (path / TABLE).is_file():
        return "Icons-50, rebuilt from registry packages"
    if _is_original_folder(path):
        return "Icons-50"
    return None


def _is_original_folder(path: Location) -> bool:
    """Whether a folder has many of the class folders, and any of the first three has a file named as the original's."""
    present = [key for key in label_space("icons-50").keys if (path / key).is_dir()]
    if len(present) < _ENOUGH_CLASSES:
        return False
    return any(_has_icon(path / key) for key in present[:3])


def _has_icon(folder: Location) -> bool:
    return any(_FILE_NAME.fullmatch(file.name) for file in folder.iterdir())


def open_icons(path: str | Path, *, space: AskedSpace = None, name: str | None = None) -> Dataset:
    """Icons-50, original or rebuilt, or a part of it such as PATH/style.train."""
    path = Path(path)
    own_space("icons-50", space)  # raises for another label space
    match = _PART.fullmatch(path.name)
    if match is not None and not path.exists():
        parts = split_icons(open_icons(path.parent), match["protocol"])
        dataset = parts[match["part"]]
        dataset.name = name or dataset.name
        return dataset
    if path.is_file():
        return _open_npy(path, name or path.stem)
    name = name or path.resolve().name
    if (path / TABLE).is_file():
        return open_manifest(path / TABLE, space="icons-50", label="class", name=name)
    return _open_original_folder(path, name)


def check_icons(path: Location) -> DataReport:
    """Report what is missing: the original has 10,000 icons, a rebuilt dataset as many as its record lists."""
    path = local(path)
    seen = recognise_icons(path) or "Icons-50"
    report = DataReport(str(path), "Icons-50", seen, role="icons", suite="icons-style", classes_expected=50)
    report.home = "GitHub, hendrycks/robustness, which links the archive; or rebuild it: shiftbench data icons FOLDER"
    try:
        dataset = open_icons(path)
        record = read_icon_record(path)
        expected = _IMAGES
        if record is not None:
            expected = sum(int(style["images"]) for style in record["styles"].values())
    except ShiftbenchError as error:
        message = error.message
        if error.found:
            message += f" ({error.found})"
        report.missing.append(message)
        return report
    report.count(dataset)
    present = set(dataset.labels.tolist())
    absent = [key for i, key in enumerate(dataset.space.keys) if i not in present]
    if absent:
        report.missing.append(f"{len(absent)} of 50 classes: {listed(absent)}")
    report.notes.append(f"styles: {listed(sorted(set(dataset.metadata['style'])), 12)}")
    if path.is_dir():
        lost = [image_id for image_id in dataset.ids if not (path / image_id).is_file()]
        if lost:
            report.missing.append(f"{len(lost):,} of the listed icons: {listed(lost, 3)}")
    report.expect_images(expected)
    return report


KIND = DatasetKind(recognise_icons, open_icons, check_icons)


#: ``emoji-one_3_waving_hand_sign.png``: a style has hyphens at most, a rendition is a number.
_FILE_NAME = re.compile(r"(?P<style>[a-z0-9-]+)_(?P<rendition>[0-9]+)_(?P<subtype>.+)\.png")
_FACTORS = ("style", "rendition", "subtype")
_NPY_KEYS = {"class", "style", "subtype", "rendition", "image"}


def _open_original_folder(folder: Path, name: str) -> FileDataset:
    """The released class folders; style, rendition and subtype of an icon are parts of its file name."""
    listing = list_classes(folder)
    space, index = recognise_folders(listing.classes, "icons-50")
    if not listing.images:
        raise DatasetError(f"{folder} holds no icons", found=f"{len(listing.classes)} empty class folders")
    paths = []
    labels = []
    odd = []
    metadata: dict[str, list[str]] = {factor: [] for factor in _FACTORS}
    for class_folder in sorted(listing.classes):
        for file in listing.classes[class_folder]:
            path = f"{class_folder}/{file}"
            paths.append(path)
            labels.append(index[class_folder])
            match = _FILE_NAME.fullmatch(path.rpartition("/")[2])
            if match is None:
                odd.append(path)
                continue
            for factor in _FACTORS:
                metadata[factor].append(match[factor])
    if odd:
        raise DatasetError(
            f"{len(odd)} files of {folder} are not named as those of Icons-50",
            found=odd[0],
            expected="<style>_<rendition>_<subtype>.png",
            hint=f"as plain class folders: folder:PATH with {argument('labels', 'icons-50')}",
        )
    return FileDataset(name, space, folder, paths, labels, metadata=metadata)


def _open_npy(path: Path, name: str) -> ArrayDataset:
    """``Icons-50.npy``: 10,000 icons of 32 pixels, under the ids that the files have in the folder."""
    space = label_space("icons-50")
    value = _read_npy(path)
    labels = [int(label) for label in value["class"]]
    for label in labels:
        if not 0 <= label < len(space):
            raise DatasetError(f"{path} has a class that is not in Icons-50", found=label, expected="0 to 49")
    metadata = {factor: list(map(str, value[factor])) for factor in _FACTORS}
    names = zip(labels, metadata["style"], metadata["rendition"], metadata["subtype"], strict=True)
    ids = [f"{space.keys[label]}/{style}_{rendition}_{subtype}.png" for label, style, rendition, subtype in names]
    if len(set(ids)) != len(ids):  # a file of the user's own may repeat names: numbers are unique
        ids = [f"{i:05d}" for i in range(len(ids))]
    return ArrayDataset(name, space, partial(_npy_images, path), labels, ids=ids, metadata=metadata)


def _npy_images(path: Path) -> Array:
    return np.ascontiguousarray(np.asarray(_read_npy(path)["image"]).transpose(0, 2, 3, 1))


class _PlainValues(ArraysOnly):
    """As ``ArraysOnly``, with NumPy's scalars, which the file has, too."""

    def find_class(self, module: str, name: str) -> object:
        if name == "scalar" and module in ("numpy.core.multiarray", "numpy._core.multiarray"):
            return np.float64(0).__reduce__()[0]
        return super().find_class(module, name)


def _read_npy(path: Path) -> dict[str, Any]:
    """The one object of the file, as ``np.load(..., allow_pickle=True).item()`` gives it, but safely."""
    try:
        with path.open("rb") as file:
            version = npy_format.read_magic(file)
            if version != (1, 0):
                raise ValueError(f"npy version {version}")
            shape, _, kind = npy_format.read_array_header_1_0(file)
            if kind != np.dtype(object) or shape != ():
                raise ValueError(f"an array of {kind} {shape}, not one object")
            value = _PlainValues(file, encoding="latin1").load().item()
        if not isinstance(value, dict):
            raise ValueError(f"keys {type(value).__name__}")
        if _NPY_KEYS - set(value):
            raise ValueError(f"keys {sorted(value)}")
        images = np.asarray(value["image"])
        if images.dtype != np.uint8 or images.ndim != 4 or images.shape[1] != 3:
            raise ValueError(f"images of shape {images.shape}, {images.dtype}")
        lengths = [len(value[key]) for key in sorted(_NPY_KEYS)]
        if len(set(lengths)) != 1:
            raise ValueError(f"lists of {', '.join(map(str, lengths))} entries")
    except Exception as error:  # a damaged or hostile pickle can raise anything
        raise DatasetError(
            f"{path} is not Icons-50",
            found=f"{type(error).__name__}: {error}",
            expected=f"a dictionary of {', '.join(sorted(_NPY_KEYS))}",
        ) from error
    return value


#: The style that the paper holds out.
STYLE = "microsoft"
#: The rendition that the published script holds out.
RENDITION = 2
SEEN_SHARE = 0.1
_STYLE_PROTOCOL = re.compile(r"style(?:-(?P<style>[a-z0-9-]+))?")


def split_icons(dataset: Dataset, protocol: str, *, seen_share: float = SEEN_SHARE, seed: int = 0) -> dict[str, Subset]:
    """The parts ``train``, ``seen`` and ``test``: to train on, icons like those that stay unseen, and to test on.

    The protocol is ``style``, ``style-<name>``, ``subtype``, ``subtype-published``, ``version`` or ``version-newest``.
    """
    tested_rows = _find_rule(protocol)
    if not 0 <= seen_share < 1:
        raise DatasetError("invalid share of icons to set aside", found=seen_share, expected="0 to below 1")
    lacking = [column for column in _FACTORS if column not in dataset.metadata]
    if lacking:
        raise DatasetError(
            f"{dataset.name!r} lacks the metadata that the protocol needs",
            found=f"no column {lacking[0]!r}",
            expected="icons, as `shiftbench data icons` writes them, or the original Icons-50",
        )
    tested = tested_rows(dataset)
    if len(set(tested)) < 2:
        raise DatasetError(
            f"{protocol!r} does not split {dataset.name!r}",
            found="all icons are tested" if all(tested) else "no icon is tested",
        )
    seen = _set_aside(dataset, tested, seen_share, seed)
    rows: dict[str, list[int]] = {part: [] for part in PARTS}
    for i, is_tested in enumerate(tested):
        if is_tested:
            rows["test"].append(i)
        elif i in seen:
            rows["seen"].append(i)
        else:
            rows["train"].append(i)
    return {part: Subset(dataset, rows[part], name=f"{dataset.name}/{protocol}.{part}") for part in PARTS}


def _set_aside(dataset: Dataset, tested: Sequence[bool], share: float, seed: int) -> set[int]:
    """The rows that are neither tested nor trained on.

    They are the same share of every class, rounded down, drawn by (seed, id): the same on every machine.
    """
    untested_rows = np.flatnonzero(~np.asarray(tested, bool)).tolist()
    rows_by_class = by_key((int(dataset.labels[row]), row) for row in untested_rows)

    def rank(row: int) -> bytes:
        return hashlib.blake2b(f"{seed}/{dataset.ids[row]}".encode(), digest_size=8).digest()

    drawn: set[int] = set()
    for rows in rows_by_class.values():
        count = int(share * len(rows))
        drawn.update(sorted(rows, key=rank)[:count])
    return drawn


#: A rule of a protocol: for each icon of a dataset whether it is tested.
Rule = Callable[[Dataset], list[bool]]


def _find_rule(protocol: str) -> Rule:
    match = _STYLE_PROTOCOL.fullmatch(protocol)
    if match is not None:
        return partial(_of_style, style=match["style"] or STYLE)
    rule = _RULES.get(protocol)
    if rule is None:
        raise UnknownNameError("protocol of icons", protocol, ["style", "style-STYLE", *_RULES])
    return rule


def _of_style(dataset: Dataset, style: str) -> list[bool]:
    styles = [str(image_style) for image_style in dataset.metadata["style"]]
    if style not in styles:
        raise UnknownNameError(f"style of {dataset.name!r}", style, sorted(set(styles)))
    return [image_style == style for image_style in styles]


def _of_held_out_subtype(dataset: Dataset) -> list[bool]:
    return [is_held_out(str(subtype)) for subtype in dataset.metadata["subtype"]]


def _of_published_subtype(dataset: Dataset) -> list[bool]:
    """The published script looks for the names anywhere in the path."""
    tested = []
    for image_id in dataset.ids:
        tested.append(any(name in image_id for name in HELD_OUT_SUBTYPES))
    return tested


def _of_published_rendition(dataset: Dataset) -> list[bool]:
    return _redrawn(dataset, lambda rendition, _: rendition == RENDITION)


def _of_newest_rendition(dataset: Dataset) -> list[bool]:
    return _redrawn(dataset, lambda rendition, renditions: rendition == max(renditions))


def _redrawn(dataset: Dataset, is_tested: Callable[[int, Sequence[int]], bool]) -> list[bool]:
    """Apply ``is_tested`` to icons that a vendor drew more than once; all others are trained on.

    Its arguments are the number of a rendition, and the numbers of all renditions of that icon.
    """
    styles, numbers, subtypes = (dataset.metadata[factor] for factor in _FACTORS)
    drawings = [f"{style}/{subtype}" for style, subtype in zip(styles, subtypes, strict=True)]
    renditions = list(map(int, numbers))
    groups = by_key(zip(drawings, renditions, strict=True))
    tested = []
    for drawing, rendition in zip(drawings, renditions, strict=True):
        group = groups[drawing]
        tested.append(len(group) > 1 and is_tested(rendition, group))
    return tested


#: The rules of all protocols but those of styles.
_RULES: dict[str, Rule] = {
    "subtype": _of_held_out_subtype,
    "subtype-published": _of_published_subtype,
    "version": _of_published_rendition,
    "version-newest": _of_newest_rendition,
}
