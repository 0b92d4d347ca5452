"""Recognise, open and check Icons-50: rebuilt or original, a folder or the npy file, whole or one part of a protocol.

A part is named like a file in the dataset: ``icons/style.train``, ``icons/style-apple.test``, so that a suite can name
the part that a setting is evaluated on.
"""

from __future__ import annotations

import re
from pathlib import Path

from shiftbench.datasets.base import Dataset
from shiftbench.datasets.icons import original
from shiftbench.datasets.icons.protocols import PARTS, split_icons
from shiftbench.datasets.icons.record import RECORD, TABLE, read_record
from shiftbench.datasets.kind import DataReport, DatasetKind, own_space
from shiftbench.datasets.manifest import open_manifest
from shiftbench.errors import ShiftbenchError, listed
from shiftbench.io.paths import Location, local
from shiftbench.labels.catalogue import label_space
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
    named = (original.FILE_NAME.fullmatch(file.name) for key in present[:3] for file in (path / key).iterdir())
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
        return original.open_npy(place, name=name)
    if (place / TABLE).is_file():
        return open_manifest(place / TABLE, space="icons-50", label="class", name=name or place.resolve().name)
    return original.open_folder(place, name=name)


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
