"""Published datasets of class folders: how a folder or an archive is identified, what belongs in it, where to get it.

ImageNetV2, ImageNet-C and ObjectNet are kinds of their own. The others are in ``official.csv``, in the order in which
names are tried. Nothing is downloaded here: most of these archives require an account or acceptance of a licence.
"""

from __future__ import annotations

import csv
import re
import tarfile
import zipfile
import zlib
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import islice
from typing import Any, Self

import msgspec

from shiftbench.datasets.base import (
    DataReport,
    Dataset,
    DatasetKind,
    DecodedImage,
    Decoding,
    entry_names,
    own_space,
)
from shiftbench.datasets.corruption_names import BENCHMARK_CORRUPTIONS, EXTRA_CORRUPTIONS
from shiftbench.datasets.folder import EXTENSIONS, Listing, check_folder, list_classes, open_folder
from shiftbench.datasets.images import bad_image
from shiftbench.datasets.stored import ContentDataset, FileDataset, digest_bytes
from shiftbench.errors import DatasetError, listed
from shiftbench.io.paths import Location, place
from shiftbench.labels.builtin import objectnet_folders
from shiftbench.labels.catalogue import label_space
from shiftbench.labels.space import AskedSpace

_DEVKIT = "the labels are in ILSVRC2012_devkit_t12.tar.gz at image-net.org"


@dataclass(frozen=True)
class OfficialDataset:
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
    classes: int | None = None
    #: Images per class, if all classes have the same number.
    each: int | None = None


@cache
def official_datasets() -> tuple[OfficialDataset, ...]:
    text = resources.files("shiftbench.datasets").joinpath("official.csv").read_text(encoding="utf-8")
    rows = [{key: value for key, value in row.items() if value} for row in csv.DictReader(text.splitlines())]
    return msgspec.convert(rows, tuple[OfficialDataset, ...], strict=False)


def identify(path: Location, listing: Listing) -> OfficialDataset | None:
    """Which published dataset a folder is: by its name, else by its classes, counts and file names."""
    name = path.resolve().name.casefold().replace("_", "-")
    folders = list(listing.classes)
    for candidate in official_datasets():
        if folders and re.fullmatch(candidate.named, name):
            known = set(label_space(candidate.space).keys)
            # Numbers identify classes only where all 1,000 have one: 0 to 199 could be any order of 200.
            numbered = candidate.space == "imagenet-1k"
            fitting = sum(folder in known or (numbered and _is_number(folder)) for folder in folders)
            if fitting >= 0.5 * len(folders):  # a folder called imagenet-r may hold anything
                return candidate
    return _by_content(listing, folders)


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
    return any_v2 if len(folders) == 1000 and all(len(files) == 10 for files in listing.classes.values()) else None


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
        classes_expected=found.classes or len(label_space(found.space)),
        space=found.space,
        home=found.home,
        notes=listing.remarks,
    )
    keys, classes = list(label_space(found.space).keys), listing.classes
    numbered = all(map(_is_number, classes))
    if numbered:  # by value, so that 007 is 7
        keys, classes = [str(i) for i in range(len(keys))], {str(int(key)): files for key, files in classes.items()}
    _compare(report, found, classes, keys)
    if numbered and "0" not in classes and "1000" in classes:
        report.missing.append("a folder 0: the folders count from 1; rename each to one less, 1 to 0 first")
    elif numbered:  # sorted as text they would begin 0, 1, 10, 100 and give wrong labels
        report.notes.append("folders 0 to 999: read as integers, never sorted as text")
    elif found.suite == "imagenetv2":
        report.notes.append(
            "wnid folders: a repackaged version, whose JPEG files may differ from the released ones; accuracies then "
            "differ by up to 0.55 points, so keep them separate from those of folders 0 to 999"
        )
        if listing.images == 20_000:
            report.notes.append(
                "20,000 files: the short-lived release of 2020 that held every class twice; download it again"
            )
    return report


def _compare(report: DataReport, wanted: OfficialDataset, classes: dict[str, list[str]], keys: Sequence[str]) -> None:
    if extra := sorted(set(classes) - set(keys)):
        report.missing.append(f"a known class for {len(extra)} folders: {listed(extra)}")
    if wanted.classes is None:
        if absent := [key for key in keys if not classes.get(key)]:
            report.missing.append(f"{len(absent)} of {len(keys)} classes: {listed(absent)}")
    elif report.classes < wanted.classes:
        report.missing.append(f"{wanted.classes - report.classes} of {wanted.classes} classes")
    counts = {key: len(files) for key, files in classes.items() if files and len(files) != wanted.each}
    if wanted.each is not None and counts:
        shown = listed(f"{key} has {count}" for key, count in counts.items())
        report.missing.append(f"{wanted.each} images in each of {len(counts)} classes: {shown}")
    report.expect_images(wanted.images)
    if report.images > wanted.images:
        report.notes.append(f"{report.images - wanted.images:,} images more than the official {wanted.images:,}")


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


def recognise_imagenetv2(path: Location) -> str | None:
    """By the folder's own name and those of its class folders."""
    if not path.is_dir() or not re.match(r"imagenet-?v2", path.resolve().name, re.IGNORECASE):
        return None
    folders = [name for name in entry_names(path) if not name.startswith(".") and (path / name).is_dir()]
    if folders and all(map(_is_number, folders)):
        return "ImageNetV2, folders 0 to 999"
    wnids = folders and all(re.fullmatch(r"n\d{8}", name) for name in folders)
    return "ImageNetV2, wnid folders" if wnids else None


def open_imagenetv2(path: str | Location, *, space: AskedSpace = None, name: str | None = None) -> FileDataset:
    """ImageNetV2: folders 0 to 999 as released, or repackaged in wnid folders."""
    root = place(path)
    repacked = (recognise_imagenetv2(root) or "").endswith("wnid folders")
    title = (name or root.resolve().name) + (" (wnid folders)" if repacked else "")
    return open_folder(root, space=space or "imagenet-1k", name=title)


IMAGENETV2 = DatasetKind(recognise_imagenetv2, open_imagenetv2, check_folder, by_url=True)


# ImageNet-C as released: <corruption>/<severity>/<wnid>/. Each severity's folder is a dataset of class folders.


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
    report = DataReport(str(path), "ImageNet-C", f"{len(known)} corruptions", "imagenet-c")
    report.suite, report.space = "imagenet-c --source on-disk", "imagenet-1k"
    report.home = "Zenodo, record 2235448, archives noise, blur, weather, digital and extra"
    if absent := [name for name in BENCHMARK_CORRUPTIONS if name not in known]:
        report.missing.append(f"{len(absent)} of the 15 corruptions of mCE: {listed(absent)}")
    if extra := [name for name in EXTRA_CORRUPTIONS if name not in known]:
        report.notes.append(f"without the extra corruptions {listed(extra)}, which mCE does not need")
    folders = {f"{name}/{severity}": path / name / severity for name in known for severity in "12345"}
    if gaps := [key for key, folder in folders.items() if not folder.is_dir()]:
        report.missing.append(f"{len(gaps)} severities: {listed(gaps)}")
    counts = {key: list_classes(folder).images for key, folder in folders.items() if key not in gaps}
    report.images = sum(counts.values())
    if short := [f"{key} has {count:,}" for key, count in counts.items() if count != 50_000]:
        report.missing.append(f"50,000 images in each of {len(short)} folders: {listed(short)}")
    return report


IMAGENET_C = DatasetKind(recognise_imagenet_c, open_imagenet_c, check_imagenet_c, by_url=True)

# Archives that were not unpacked or are incomplete. Members are counted, none is extracted.
_SUFFIXES = (".tar.gz", ".tgz", ".tar", ".zip")
#: Archives of other layouts than class folders, by name: title, role, where it comes from.
_OTHER_ARCHIVES = {
    r"objectnet.*": ("ObjectNet", "objectnet", "objectnet.dev, a zip file whose password is on the download page"),
    r"cifar-10-(python|binary)": ("CIFAR-10", "cifar-10", "Alex Krizhevsky's page at cs.toronto.edu"),
    r"cifar-100-(python|binary)": ("CIFAR-100", "cifar-100", "Alex Krizhevsky's page at cs.toronto.edu"),
    r"cifar-10-c": ("CIFAR-10-C", "cifar-10-c", "Zenodo, CIFAR-10-C"),
    r"noise|blur|weather|digital|extra": ("ImageNet-C", "imagenet-c", "Zenodo, record 2235448"),
}
_DAMAGED = (tarfile.TarError, EOFError, zlib.error, OSError)


def recognise_archive(path: Location) -> str | None:
    suffix, known = _suffix(path), _archived(path)
    if known is None or not path.is_file():
        return None
    if suffix != ".zip":
        try:  # a WebDataset shard may happen to have the name of an archive
            with path.open("rb") as file, tarfile.open(fileobj=file) as archive:
                if any(member.name.endswith((".cls", ".json")) for member in islice(archive, 16)):
                    return None
        except _DAMAGED:
            pass
    return f"an archive, {suffix[1:]}"


def open_archive(path: str | Location, *, space: AskedSpace = None, name: str | None = None) -> Dataset:
    """The archive of a published dataset, which has to be unpacked first."""
    path = place(path)
    raise DatasetError(f"{path.name} is an archive", expected="the unpacked folder", hint=_unpack_command(path))


def check_archive(path: Location) -> DataReport | None:
    """Whether the archive is complete; it has to be unpacked in any case."""
    known = _archived(path)
    if known is None:
        return None
    title, role, home = known
    images, cut_off = _archive_contents(path)
    unpack = f"the folder: the archive is not unpacked; {_unpack_command(path)}, then name the folder"
    missing = [f"the rest of the archive: {cut_off}; download it again" if cut_off else unpack]
    seen = f"an archive, {_suffix(path)[1:]}"
    return DataReport(str(path), title, seen, role, images=images, home=home, missing=missing)


ARCHIVE = DatasetKind(recognise_archive, open_archive, check_archive)


def _suffix(path: Location) -> str:
    return next((ending for ending in _SUFFIXES if path.name.casefold().endswith(ending)), "")


def _unpack_command(path: Location) -> str:
    return f"unzip {path.name}" if _suffix(path) == ".zip" else f"tar -xf {path.name}"


def _archived(path: Location) -> tuple[str, str, str] | None:
    """Title, role and home of the dataset that an archive is named after."""
    name = path.name.casefold().removesuffix(_suffix(path)).replace("_", "-")
    for candidate in official_datasets():
        if re.fullmatch(candidate.named, name):
            return candidate.title, candidate.role, candidate.home
    return next((about for pattern, about in _OTHER_ARCHIVES.items() if re.fullmatch(pattern, name)), None)


def _archive_contents(path: Location) -> tuple[int, str | None]:
    """The number of images, and where the archive ends if it is cut off."""
    if _suffix(path) == ".zip":  # its table of contents is at the end
        try:
            with path.open("rb") as file, zipfile.ZipFile(file) as archive:
                return sum(name.lower().endswith(EXTENSIONS) for name in archive.namelist()), None
        except (zipfile.BadZipFile, OSError):
            return 0, "its table of contents at the end is missing"
    images, last = 0, "no file at all"
    try:
        with path.open("rb") as file, tarfile.open(fileobj=file) as opened:
            for member in opened:
                images += member.isfile() and member.name.lower().endswith(EXTENSIONS)
                last = member.name
            if path.suffix.casefold() == ".tar" and path.stat().st_size < opened.offset + 512:
                return images, f"it ends after {last}"  # an empty block marks the end of a tar file
    except _DAMAGED:
        return images, f"it ends inside or after {last}"
    return images, None


# Each ObjectNet image has a thin red border, by which it can be found in a training set; for testing it is cropped. The
# ImageNet testbed crops 2 pixels on each side, and so does this module.
OBJECTNET_BORDER = 2
#: Of the 113 classes, as the testbed counts them.
_OBJECTNET_IMAGES = 18_514


class Borderless(ContentDataset):
    """Another dataset without the outermost ``border`` pixels on each side."""

    def __init__(self, base: ContentDataset, border: int) -> None:
        if border < 1:
            raise DatasetError("a border to crop is at least one pixel wide", found=border)
        self.base, self.border = base, border
        # Part of the name, so that it appears in every score's provenance.
        self.name, self.space = f"{base.name}, {border} px border cropped", base.space
        self.ids, self.labels, self.metadata = base.ids, base.labels, dict(base.metadata)

    def decoded_as(self, decoding: Decoding) -> Self:
        view = copy(self)
        view.base = self.base.decoded_as(decoding)
        return view

    def read(self, index: int) -> DecodedImage:
        image = self.base.read(index)
        height, width = image.pixels.shape[:2]
        b = self.border
        if min(height, width) <= 2 * b:
            raise bad_image(self.ids[index], f"{width} x {height} pixels are all border")
        # A copy: a view would keep the whole image in memory.
        return DecodedImage(image.pixels[b : height - b, b : width - b].copy(), image.converted)

    def digests(self, indices: Sequence[int]) -> list[bytes]:
        """The same files with another border are other images."""
        mark = b"border %d" % self.border
        return [digest_bytes(digest + mark) for digest in self.base.digests(indices)]

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "cropped": f"{self.border} pixels of each side before anything else"}


def find_objectnet(path: Location) -> Location | None:
    """The folder of ObjectNet's class folders: the path itself or its ``images``."""
    # By the name of the download (objectnet-1.0-beta) or nearly all 313 folders: a user may have an "umbrella", too.
    known = frozenset(objectnet_folders())
    for folder in (path / "images", path):
        if not folder.is_dir():
            continue
        found = {name for name in entry_names(folder) if (folder / name).is_dir()}
        named = "objectnet" in path.resolve().name.casefold()
        if (named and found & known) or len(found & known) > 0.9 * len(known):
            return folder
    return None


def open_objectnet(
    path: str | Location, *, space: AskedSpace = None, name: str | None = None, border: int = OBJECTNET_BORDER
) -> ContentDataset:
    """ObjectNet: the 113 classes that ImageNet has too, without the red border.

    The other 200 folders are left out: no ImageNet model can predict them. Folders that are not ObjectNet classes are
    an error. ``border=0`` keeps the border, for comparison.
    """
    target = own_space("objectnet-113", space, projectable=True)
    root = find_objectnet(place(path)) or place(path)
    classes = list_classes(root).classes
    foreign = sorted(set(classes) - set(objectnet_folders()))
    if foreign:
        raise DatasetError(
            f"{len(foreign)} folders of {root} are not classes of ObjectNet",
            found=listed(foreign),
            expected="folders such as alarm_clock, backpack, banana",
        )
    images = [(f"{key}/{file}", label) for label, key in enumerate(target.keys) for file in classes.get(key, ())]
    if not images:
        raise DatasetError(f"no images of the 113 classes in {root}", expected="alarm_clock/<image>.png, ...")
    files = FileDataset(name or "objectnet", target, root, *zip(*images, strict=True))
    return Borderless(files, border) if border else files


def check_objectnet(path: Location) -> DataReport | None:
    root = find_objectnet(path)
    if root is None:
        return None
    classes, space = list_classes(root).classes, label_space("objectnet-113")
    present = [key for key in space.keys if classes.get(key)]
    report = DataReport(str(path), "ObjectNet", f"{len(classes)} class folders", "objectnet", "objectnet")
    report.images, report.classes = sum(len(classes[key]) for key in present), len(present)
    report.classes_expected, report.space = len(space), space.name
    report.home = "objectnet.dev, a zip file whose password is on the download page"
    report.notes.append(f"a border of {OBJECTNET_BORDER} pixels is cropped before anything else")
    if absent := [key for key in space.keys if key not in present]:
        report.missing.append(f"{len(absent)} of the 113 classes that ImageNet has too: {listed(absent)}")
    if unknown := sorted(set(classes) - set(objectnet_folders())):
        report.missing.append(f"a known class for {len(unknown)} folders: {listed(unknown)}")
    if others := len(set(classes) - set(space.keys)):
        report.notes.append(f"{others} folders of classes that ImageNet lacks are left out")
    report.expect_images(_OBJECTNET_IMAGES)
    return report


OBJECTNET = DatasetKind(
    lambda path: "the class folders of ObjectNet" if path.is_dir() and find_objectnet(path) else None,
    open_objectnet,
    check_objectnet,
    by_url=True,
)
