"""Published datasets of class folders: how a folder is identified, what belongs in it, and where to get it.

ImageNetV2 and ImageNet-C are kinds of their own. The others are in ``official.csv``, in the order in which names are
tried. Nothing is downloaded here: most of these archives require an account or acceptance of a licence.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal

from shiftbench.datasets.base import Dataset
from shiftbench.datasets.corruption_names import BENCHMARK_CORRUPTIONS, EXTRA_CORRUPTIONS
from shiftbench.datasets.files import FileDataset
from shiftbench.datasets.folder import Listing, check_folder, list_classes, open_folder
from shiftbench.datasets.kind import DataReport, DatasetKind, entry_names
from shiftbench.errors import DatasetError, listed
from shiftbench.io.paths import Location, place
from shiftbench.labels.catalogue import label_space
from shiftbench.labels.space import AskedSpace

_DEVKIT = "the labels are in ILSVRC2012_devkit_t12.tar.gz at image-net.org"


@dataclass(frozen=True)
class OfficialDataset:
    """A published test set of class folders."""

    title: str
    #: Its role in ``--data ROLE=FOLDER``, and a suite that uses it.
    role: str
    suite: str
    images: int
    home: str
    #: Pattern of the folder names that identify it.
    named: str
    #: Label space of its class folders; all classes must be present, unless ``classes`` counts fewer.
    space: str
    classes: int | None
    #: Images per class, if all classes have the same number.
    each: int | None

    @property
    def class_count(self) -> int:
        return self.classes or len(label_space(self.space))


@cache
def official_datasets() -> tuple[OfficialDataset, ...]:
    """
    >>> official_datasets()[0].images
    10000
    """
    text = resources.files("shiftbench.datasets").joinpath("official.csv").read_text(encoding="utf-8")
    return tuple(
        OfficialDataset(
            **{key: row[key] for key in ("title", "role", "suite", "home", "named", "space")},
            images=int(row["images"]),
            classes=int(row["classes"]) if row["classes"] else None,
            each=int(row["each"]) if row["each"] else None,
        )
        for row in csv.DictReader(text.splitlines())
    )


def identify(path: Location, listing: Listing) -> OfficialDataset | None:
    """Which published dataset a folder is: by its name, else by its classes, counts and file names."""
    name = path.resolve().name.casefold().replace("_", "-")
    folders = list(listing.classes)
    for candidate in official_datasets():
        if re.fullmatch(candidate.named, name) and _plausible(candidate, folders):
            return candidate
    return _by_content(listing, folders)


def _plausible(candidate: OfficialDataset, folders: Sequence[str]) -> bool:
    """At least half of the folders are classes of it; a folder called imagenet-r may hold anything."""
    known = set(label_space(candidate.space).keys)
    # Numbers identify classes only where all 1,000 have one: 0 to 199 could be any order of 200.
    numbered = candidate.space == "imagenet-1k"
    fitting = sum(folder in known or (numbered and _is_number(folder)) for folder in folders)
    return bool(folders) and fitting >= 0.5 * len(folders)


def _is_number(folder: str) -> bool:
    return folder.isascii() and folder.isdecimal()


def _by_content(listing: Listing, folders: Sequence[str]) -> OfficialDataset | None:
    by_role = {candidate.role: candidate for candidate in reversed(official_datasets())}
    any_v2 = official_datasets()[-1]  # identified by nothing but its content
    if len(folders) > 900 and all(map(_is_number, folders)) and listing.images <= 20 * len(folders):
        return any_v2
    for letter in "aor":
        if set(folders) == set(label_space(f"imagenet-{letter}-200").keys):
            return by_role[f"imagenet-{letter}"]
    if not folders or not set(folders) <= set(label_space("imagenet-1k").keys):
        return None
    first = next((file for files in listing.classes.values() for file in files), "")
    for start, role in (("ILSVRC2012_val_", "imagenet-val"), ("sketch_", "imagenet-sketch")):
        if first.startswith(start):
            return by_role[role]
    if len(folders) == 1000 and all(len(files) == 10 for files in listing.classes.values()):
        return any_v2
    return None


def check_class_folders(path: Location) -> DataReport | None:
    """Compare a folder of class folders with the published dataset that it is."""
    listing = list_classes(path)
    found = identify(path, listing)
    if found is None:
        return None
    report = DataReport(
        str(path),
        found.title,
        f"{len(listing.classes)} class folders",
        role=found.role,
        suite=found.suite,
        images=listing.images,
        images_expected=found.images,
        classes=sum(bool(files) for files in listing.classes.values()),
        classes_expected=found.class_count,
        space=found.space,
        home=found.home,
        notes=listing.remarks,
    )
    _compare(report, found, listing)
    if all(map(_is_number, listing.classes)):
        _describe_numbers(report, listing)
    elif found.suite == "imagenetv2":
        _describe_packing(report, listing)
    return report


def _compare(report: DataReport, wanted: OfficialDataset, listing: Listing) -> None:
    keys = list(label_space(wanted.space).keys)
    if all(map(_is_number, listing.classes)):
        # By value, so that 007 is 7.
        listing = Listing({str(int(folder)): files for folder, files in listing.classes.items()}, listing.others)
        keys = [str(i) for i in range(len(keys))]
    extra = sorted(set(listing.classes) - set(keys))
    if extra:
        report.missing.append(f"a known class for {len(extra)} folders: {listed(extra)}")
    if wanted.classes is None:
        absent = [key for key in keys if not listing.classes.get(key)]
        if absent:
            report.missing.append(f"{len(absent)} of {len(keys)} classes: {listed(absent)}")
    elif report.classes < wanted.classes:
        report.missing.append(f"{wanted.classes - report.classes} of {wanted.classes} classes")
    if wanted.each is not None:
        counts = {key: len(files) for key, files in listing.classes.items() if files and len(files) != wanted.each}
        if counts:
            shown = listed(f"{key} has {count}" for key, count in counts.items())
            report.missing.append(f"{wanted.each} images in each of {len(counts)} classes: {shown}")
    report.expect_images(wanted.images)
    if listing.images > wanted.images:
        report.notes.append(f"{listing.images - wanted.images:,} images more than the official {wanted.images:,}")


def _describe_numbers(report: DataReport, listing: Listing) -> None:
    """Folders 0 to 999 sorted as text would begin 0, 1, 10, 100 and give wrong labels."""
    values = {int(folder) for folder in listing.classes}
    if 0 not in values and 1000 in values:
        report.missing.append("a folder 0: the folders count from 1; rename each to one less, 1 to 0 first")
    else:
        report.notes.append("folders 0 to 999: read as integers, never sorted as text")


def _describe_packing(report: DataReport, listing: Listing) -> None:
    report.notes.append(
        "wnid folders: a repackaged version, whose JPEG files may differ from the released ones; accuracies then "
        "differ by up to 0.55 points, so keep them separate from those of folders 0 to 999"
    )
    if listing.images == 20_000:
        report.notes.append(
            "20,000 files: the short-lived release of 2020 that held every class twice; download it again"
        )


def recognise_unsorted_val(path: Location) -> str | None:
    found = any(name.startswith("ILSVRC2012_val_") and (path / name).is_file() for name in entry_names(path))
    return "ImageNet's validation images in one folder" if found else None


def open_unsorted_val(path: str | Location, *, space: AskedSpace = None, name: str | None = None) -> Dataset:
    """ImageNet's validation images as unpacked, which have to be sorted into class folders first."""
    raise DatasetError(
        f"{path} holds ImageNet's validation images without labels",
        expected="one folder per class, named by wnid",
        hint=f"sort the files into class folders; {_DEVKIT}",
    )


def check_unsorted_val(path: Location) -> DataReport:
    """ImageNet's validation images as the archive unpacks: in one folder, without labels."""
    count = sum(entry.name.startswith("ILSVRC2012_val_") for entry in path.iterdir() if entry.is_file())
    report = DataReport(str(path), "ImageNet val", "images in one folder", "imagenet-val", "imagenet", count, 50_000)
    report.missing.append("class folders: the file names carry no labels; sort the files into 1,000 wnid folders")
    report.home = _DEVKIT
    return report


UNSORTED_VAL = DatasetKind(recognise_unsorted_val, open_unsorted_val, check_unsorted_val)


# The official archives of ImageNetV2 hold folders 0 to 999 (class indices: sorting them as text would give wrong
# labels) of ten JPEG files each. Repackaged versions have wnid folders, and their JPEG files may differ: in the
# ImageNet testbed the accuracies of one model on both differ by 0.11 points in the median and 0.55 at most. So the name
# of the dataset, which is part of every score's provenance, tells them apart.
Packing = Literal["integers", "wnids"]
_V2_NAME = re.compile(r"imagenet-?v2", re.IGNORECASE)


def packing_of(path: Location) -> Packing | None:
    """Which packing of ImageNetV2 a folder is, by its own name and those of its class folders; else None."""
    if not path.is_dir() or not _V2_NAME.match(path.resolve().name):
        return None
    folders = [name for name in entry_names(path) if not name.startswith(".") and (path / name).is_dir()]
    if folders and all(name.isascii() and name.isdecimal() for name in folders):
        return "integers"
    if folders and all(re.fullmatch(r"n\d{8}", name) for name in folders):
        return "wnids"
    return None


def open_imagenetv2(path: str | Location, *, space: AskedSpace = None, name: str | None = None) -> FileDataset:
    """ImageNetV2: folders 0 to 999 as released, or repackaged in wnid folders."""
    root = place(path)
    packing = packing_of(root)
    title = name or root.resolve().name
    if packing == "wnids":
        title += " (wnid folders)"
    return open_folder(root, space=space or "imagenet-1k", name=title)


def recognise_imagenetv2(path: Location) -> str | None:
    packing = packing_of(path)
    return f"ImageNetV2, {'folders 0 to 999' if packing == 'integers' else 'wnid folders'}" if packing else None


IMAGENETV2 = DatasetKind(recognise_imagenetv2, open_imagenetv2, check_folder, by_url=True)


# ImageNet-C as released: <corruption>/<severity>/<wnid>/. Each severity's folder is a dataset of class folders.
_SEVERITIES = ("1", "2", "3", "4", "5")
_IMAGES_PER_SEVERITY = 50_000


def _corruptions(path: Location) -> list[str]:
    return [name for name in (*BENCHMARK_CORRUPTIONS, *EXTRA_CORRUPTIONS) if (path / name / "1").is_dir()]


def recognise_imagenet_c(path: Location) -> str | None:
    count = len(_corruptions(path)) if path.is_dir() else 0
    return f"{count} corruptions" if count else None


def open_imagenet_c(path: str | Location, *, space: AskedSpace = None, name: str | None = None) -> Dataset:
    """ImageNet-C: its folders PATH/CORRUPTION/SEVERITY are opened one at a time."""
    example = next(iter(_corruptions(place(path))), "fog")
    raise DatasetError(
        f"{path} is ImageNet-C, which has one dataset per corruption and severity",
        hint=f"open one of them, such as {place(path) / example / '1'}",
    )


def check_imagenet_c(path: Location) -> DataReport:
    """Which corruptions and severities are present, and whether each has all images."""
    known = _corruptions(path)
    report = DataReport(
        str(path),
        "ImageNet-C",
        f"{len(known)} corruptions",
        role="imagenet-c",
        suite="imagenet-c --source on-disk",
        space="imagenet-1k",
        home="Zenodo, record 2235448, archives noise, blur, weather, digital and extra",
    )
    absent = [name for name in BENCHMARK_CORRUPTIONS if name not in known]
    if absent:
        report.missing.append(f"{len(absent)} of the 15 corruptions of mCE: {listed(absent)}")
    extra = [name for name in EXTRA_CORRUPTIONS if name not in known]
    if extra:
        report.notes.append(f"without the extra corruptions {listed(extra)}, which mCE does not need")
    folders = {f"{name}/{severity}": path / name / severity for name in known for severity in _SEVERITIES}
    gaps = [key for key, folder in folders.items() if not folder.is_dir()]
    if gaps:
        report.missing.append(f"{len(gaps)} severities: {listed(gaps)}")
    counts = {key: list_classes(folder).images for key, folder in folders.items() if key not in gaps}
    report.images = sum(counts.values())
    short = [f"{key} has {count:,}" for key, count in counts.items() if count != _IMAGES_PER_SEVERITY]
    if short:
        report.missing.append(f"{_IMAGES_PER_SEVERITY:,} images in each of {len(short)} folders: {listed(short)}")
    return report


IMAGENET_C = DatasetKind(recognise_imagenet_c, open_imagenet_c, check_imagenet_c, by_url=True)
