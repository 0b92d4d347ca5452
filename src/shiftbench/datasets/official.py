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
from itertools import chain, islice, product
from typing import Any, NamedTuple, Self

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
    """A published dataset of class folders: a row of ``official.csv``."""

    title: str
    #: Its role in ``--data ROLE=FOLDER``, and a suite that uses it.
    role: str
    suite: str
    images: int
    home: str
    #: Pattern of the folder names that identify it.
    named: str
    #: Label space of its class folders.
    space: str
    #: Whether all classes of the space must be present. False if nobody states how many the dataset has.
    every_class: bool = True
    #: Images per class, if all classes have the same number.
    each: int | None = None


@cache
def official_datasets() -> tuple[OfficialDataset, ...]:
    text = resources.files("shiftbench.datasets").joinpath("official.csv").read_text(encoding="utf-8")
    rows = []
    for row in csv.DictReader(text.splitlines()):
        rows.append({column: value for column, value in row.items() if value})
    return msgspec.convert(rows, tuple[OfficialDataset, ...], strict=False)


def identify(path: Location, listing: Listing) -> OfficialDataset | None:
    """Find which published dataset a folder is: by its name, else by its classes, counts and file names."""
    name = path.resolve().name.casefold().replace("_", "-")
    folders = list(listing.classes)
    for candidate in official_datasets():
        if folders and re.fullmatch(candidate.named, name) and _has_classes_of(candidate, folders):
            return candidate
    return _by_content(listing, folders)


def _has_classes_of(candidate: OfficialDataset, folders: Sequence[str]) -> bool:
    """Whether at least half of the folders are classes of the dataset: a folder called imagenet-r may hold anything."""
    keys = set(label_space(candidate.space).keys)
    # Numbers identify classes only where all 1,000 have one: 0 to 199 could be any order of 200.
    numbered = candidate.space == "imagenet-1k"
    fitting = 0
    for folder in folders:
        if folder in keys or (numbered and _is_number(folder)):
            fitting += 1
    return fitting >= 0.5 * len(folders)


def _is_number(folder: str) -> bool:
    return folder.isascii() and folder.isdecimal()


def _by_content(listing: Listing, folders: Sequence[str]) -> OfficialDataset | None:
    """Identify a dataset whose folder has another name than the published ones."""
    by_role = {candidate.role: candidate for candidate in reversed(official_datasets())}
    any_v2 = official_datasets()[-1]  # identified by nothing but its content
    if len(folders) > 900 and all(map(_is_number, folders)) and listing.images <= 20 * len(folders):
        return any_v2
    for letter in "aor":
        if set(folders) == set(label_space(f"imagenet-{letter}-200").keys):
            return by_role[f"imagenet-{letter}"]
    if not folders or not set(folders) <= set(label_space("imagenet-1k").keys):
        return None
    first_image = next(chain.from_iterable(listing.classes.values()), "")
    if first_image.startswith("ILSVRC2012_val_"):
        return by_role["imagenet-val"]
    if first_image.startswith("sketch_"):
        return by_role["imagenet-sketch"]
    if len(folders) == 1000 and all(len(files) == 10 for files in listing.classes.values()):
        return any_v2
    return None


def check_class_folders(path: Location) -> DataReport | None:
    """Compare a folder of class folders with the published dataset that it is; None if it is none."""
    listing = list_classes(path)
    official = identify(path, listing)
    if official is None:
        return None
    report = DataReport(
        str(path),
        official.title,
        f"{len(listing.classes)} class folders",
        role=official.role,
        suite=official.suite,
        images=listing.images,
        images_expected=official.images,
        classes=sum(bool(files) for files in listing.classes.values()),
        classes_expected=len(label_space(official.space)) if official.every_class else None,
        space=official.space,
        home=official.home,
        notes=listing.remarks,
    )
    keys = list(label_space(official.space).keys)
    classes = listing.classes
    numbered = all(map(_is_number, classes))
    if numbered:  # by value, so that 007 is 7
        keys = [str(i) for i in range(len(keys))]
        classes = {str(int(folder)): files for folder, files in classes.items()}
    _compare(report, official, classes, keys)
    if numbered and "0" not in classes and "1000" in classes:
        report.missing.append("a folder 0: the folders count from 1; rename each to one less, 1 to 0 first")
    elif numbered:  # sorted as text they would begin 0, 1, 10, 100 and give wrong labels
        report.notes.append("folders 0 to 999: read as integers, never sorted as text")
    elif official.suite == "imagenetv2":
        report.notes.append(
            "wnid folders: a repackaged version, whose JPEG files may differ from the released ones; accuracies then "
            "differ by up to 0.55 points, so keep them separate from those of folders 0 to 999"
        )
        if listing.images == 20_000:
            report.notes.append(
                "20,000 files: the short-lived release of 2020 that held every class twice; download it again"
            )
    return report


def _compare(report: DataReport, official: OfficialDataset, classes: dict[str, list[str]], keys: Sequence[str]) -> None:
    """Add to the report which classes and images are missing, and what is too much."""
    extra = sorted(set(classes) - set(keys))
    if extra:
        report.missing.append(f"a known class for {len(extra)} folders: {listed(extra)}")
    absent = [key for key in keys if not classes.get(key)]
    if absent and official.every_class:
        report.missing.append(f"{len(absent)} of {len(keys)} classes: {listed(absent)}")
    if official.each is not None:
        uneven = []
        for key, files in classes.items():
            # Empty folders were counted among the absent classes.
            if files and len(files) != official.each:
                uneven.append(f"{key} has {len(files)}")
        if uneven:
            report.missing.append(f"{official.each} images in each of {len(uneven)} classes: {listed(uneven)}")
    report.expect_images(official.images)
    if report.images > official.images:
        report.notes.append(f"{report.images - official.images:,} images more than the official {official.images:,}")


def recognise_unsorted_val(path: Location) -> str | None:
    for name in entry_names(path):
        if name.startswith("ILSVRC2012_val_") and (path / name).is_file():
            return "ImageNet's validation images in one folder"
    return None


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
    """Recognise ImageNetV2 by the folder's own name and by those of its class folders."""
    if not path.is_dir() or not re.match(r"imagenet-?v2", path.resolve().name, re.IGNORECASE):
        return None
    visible_names = [name for name in entry_names(path) if not name.startswith(".")]
    folders = [name for name in visible_names if (path / name).is_dir()]
    if folders and all(map(_is_number, folders)):
        return "ImageNetV2, folders 0 to 999"
    if folders and all(re.fullmatch(r"n\d{8}", name) for name in folders):
        return "ImageNetV2, wnid folders"
    return None


def open_imagenetv2(path: str | Location, *, space: AskedSpace = None, name: str | None = None) -> FileDataset:
    """ImageNetV2: folders 0 to 999 as released, or repackaged in wnid folders."""
    root = place(path)
    title = name or root.resolve().name
    if recognise_imagenetv2(root) == "ImageNetV2, wnid folders":
        title += " (wnid folders)"
    return open_folder(root, space=space or "imagenet-1k", name=title)


IMAGENETV2 = DatasetKind(recognise_imagenetv2, open_imagenetv2, check_folder, by_url=True)


# ImageNet-C as released: <corruption>/<severity>/<wnid>/. Each severity's folder is a dataset of class folders.


def _corruptions(path: Location) -> list[str]:
    return [name for name in (*BENCHMARK_CORRUPTIONS, *EXTRA_CORRUPTIONS) if (path / name / "1").is_dir()]


def recognise_imagenet_c(path: Location) -> str | None:
    if not path.is_dir():
        return None
    count = len(_corruptions(path))
    if not count:
        return None
    return f"{count} corruptions"


def open_imagenet_c(path: str | Location, *, space: AskedSpace = None, name: str | None = None) -> Dataset:
    """ImageNet-C: its folders PATH/CORRUPTION/SEVERITY are opened one at a time."""
    example = next(iter(_corruptions(place(path))), "fog")
    raise DatasetError(
        f"{path} is ImageNet-C, which has one dataset per corruption and severity",
        hint=f"open one of them, such as {place(path) / example / '1'}",
    )


def check_imagenet_c(path: Location) -> DataReport:
    """Report which corruptions and severities are present, and whether each has all images."""
    corruptions = _corruptions(path)
    report = DataReport(str(path), "ImageNet-C", f"{len(corruptions)} corruptions", "imagenet-c")
    report.suite = "imagenet-c --source on-disk"
    report.space = "imagenet-1k"
    report.home = "Zenodo, record 2235448, archives noise, blur, weather, digital and extra"
    absent = [name for name in BENCHMARK_CORRUPTIONS if name not in corruptions]
    if absent:
        report.missing.append(f"{len(absent)} of the 15 corruptions of mCE: {listed(absent)}")
    absent_extra = [name for name in EXTRA_CORRUPTIONS if name not in corruptions]
    if absent_extra:
        report.notes.append(f"without the extra corruptions {listed(absent_extra)}, which mCE does not need")
    absent_severities = []
    incomplete = []
    for corruption, severity in product(corruptions, "12345"):
        folder = path / corruption / severity
        if not folder.is_dir():
            absent_severities.append(f"{corruption}/{severity}")
            continue
        images = list_classes(folder).images
        report.images += images
        if images != 50_000:
            incomplete.append(f"{corruption}/{severity} has {images:,}")
    if absent_severities:
        report.missing.append(f"{len(absent_severities)} severities: {listed(absent_severities)}")
    if incomplete:
        report.missing.append(f"50,000 images in each of {len(incomplete)} folders: {listed(incomplete)}")
    return report


IMAGENET_C = DatasetKind(recognise_imagenet_c, open_imagenet_c, check_imagenet_c, by_url=True)

# Archives that were not unpacked or are incomplete. Members are counted, none is extracted.


class ArchivedDataset(NamedTuple):
    """A published dataset whose archive a file is named after, and where the archive comes from."""

    title: str
    role: str
    home: str


_SUFFIXES = (".tar.gz", ".tgz", ".tar", ".zip")
_CIFAR_HOME = "Alex Krizhevsky's page at cs.toronto.edu"
_OBJECTNET_HOME = "objectnet.dev, a zip file whose password is on the download page"
#: Archives of other layouts than class folders, by a pattern of their names.
_OTHER_ARCHIVES = {
    r"objectnet.*": ArchivedDataset("ObjectNet", "objectnet", _OBJECTNET_HOME),
    r"cifar-10-(python|binary)": ArchivedDataset("CIFAR-10", "cifar-10", _CIFAR_HOME),
    r"cifar-100-(python|binary)": ArchivedDataset("CIFAR-100", "cifar-100", _CIFAR_HOME),
    r"cifar-10-c": ArchivedDataset("CIFAR-10-C", "cifar-10-c", "Zenodo, CIFAR-10-C"),
    r"noise|blur|weather|digital|extra": ArchivedDataset("ImageNet-C", "imagenet-c", "Zenodo, record 2235448"),
}
#: What reading a damaged tar file raises.
_DAMAGED = (tarfile.TarError, EOFError, zlib.error, OSError)


def recognise_archive(path: Location) -> str | None:
    if _archived_dataset(path) is None or not path.is_file():
        return None
    suffix = _suffix(path)
    if suffix != ".zip" and _is_shard(path):
        return None
    return f"an archive, {suffix[1:]}"


def _is_shard(path: Location) -> bool:
    """Whether a tar file is a WebDataset shard, which may happen to have the name of a dataset's archive."""
    try:
        with path.open("rb") as file, tarfile.open(fileobj=file) as archive:
            return any(member.name.endswith((".cls", ".json")) for member in islice(archive, 16))
    except _DAMAGED:
        return False


def open_archive(path: str | Location, *, space: AskedSpace = None, name: str | None = None) -> Dataset:
    """The archive of a published dataset, which has to be unpacked first."""
    path = place(path)
    raise DatasetError(f"{path.name} is an archive", expected="the unpacked folder", hint=_unpack_command(path))


def check_archive(path: Location) -> DataReport | None:
    """Report whether the archive is complete; it has to be unpacked in any case."""
    dataset = _archived_dataset(path)
    if dataset is None:
        return None
    images, cut_off = _archive_contents(path)
    if cut_off:
        missing = f"the rest of the archive: {cut_off}; download it again"
    else:
        missing = f"the folder: the archive is not unpacked; {_unpack_command(path)}, then name the folder"
    return DataReport(
        str(path),
        dataset.title,
        f"an archive, {_suffix(path)[1:]}",
        dataset.role,
        images=images,
        home=dataset.home,
        missing=[missing],
    )


ARCHIVE = DatasetKind(recognise_archive, open_archive, check_archive)


def _suffix(path: Location) -> str:
    return next((ending for ending in _SUFFIXES if path.name.casefold().endswith(ending)), "")


def _unpack_command(path: Location) -> str:
    if _suffix(path) == ".zip":
        return f"unzip {path.name}"
    return f"tar -xf {path.name}"


def _archived_dataset(path: Location) -> ArchivedDataset | None:
    """The dataset that an archive is named after; None for other names."""
    name = path.name.casefold().removesuffix(_suffix(path)).replace("_", "-")
    for candidate in official_datasets():
        if re.fullmatch(candidate.named, name):
            return ArchivedDataset(candidate.title, candidate.role, candidate.home)
    for pattern, dataset in _OTHER_ARCHIVES.items():
        if re.fullmatch(pattern, name):
            return dataset
    return None


def _archive_contents(path: Location) -> tuple[int, str | None]:
    """The number of images, and where the archive ends if it is cut off."""
    if _suffix(path) == ".zip":
        return _zip_contents(path)
    images = 0
    last_member = "no file at all"
    try:
        with path.open("rb") as file, tarfile.open(fileobj=file) as archive:
            for member in archive:
                if member.isfile() and member.name.lower().endswith(EXTENSIONS):
                    images += 1
                last_member = member.name
            # An empty block marks the end of a tar file.
            if path.suffix.casefold() == ".tar" and path.stat().st_size < archive.offset + 512:
                return images, f"it ends after {last_member}"
    except _DAMAGED:
        return images, f"it ends inside or after {last_member}"
    return images, None


def _zip_contents(path: Location) -> tuple[int, str | None]:
    """As ``_archive_contents``; the table of contents of a zip file is at its end."""
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            return sum(name.lower().endswith(EXTENSIONS) for name in archive.namelist()), None
    except (zipfile.BadZipFile, OSError):
        return 0, "its table of contents at the end is missing"


# Each ObjectNet image has a thin red border, by which it can be found in a training set; for testing it is cropped. The
# ImageNet testbed crops 2 pixels on each side, and so does this module.
OBJECTNET_BORDER = 2
#: Number of images of the 113 classes, as the testbed counts them.
_OBJECTNET_IMAGES = 18_514


class Borderless(ContentDataset):
    """Another dataset without the outermost ``border`` pixels on each side."""

    def __init__(self, base: ContentDataset, border: int) -> None:
        if border < 1:
            raise DatasetError("a border to crop is at least one pixel wide", found=border)
        self.base = base
        self.border = border
        # The border is part of the name, so that it appears in every score's provenance.
        self.name = f"{base.name}, {border} px border cropped"
        self.space = base.space
        self.ids = base.ids
        self.labels = base.labels
        self.metadata = dict(base.metadata)

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
        # The crop is copied: a view would keep the whole image in memory.
        return DecodedImage(image.pixels[b : height - b, b : width - b].copy(), image.converted)

    def digests(self, indices: Sequence[int]) -> list[bytes]:
        """Digests of the files and the border: the same files with another border are other images."""
        mark = b"border %d" % self.border
        return [digest_bytes(digest + mark) for digest in self.base.digests(indices)]

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "cropped": f"{self.border} pixels of each side before anything else"}


def find_objectnet(path: Location) -> Location | None:
    """The folder of ObjectNet's class folders: the path itself or its ``images``; None if neither is one.

    It is recognised by the name of the download (objectnet-1.0-beta) or by nearly all 313 folders: the user's own
    dataset may have an "umbrella", too.
    """
    classes = frozenset(objectnet_folders())
    has_title = "objectnet" in path.resolve().name.casefold()
    for folder in (path / "images", path):
        if not folder.is_dir():
            continue
        present = classes.intersection(name for name in entry_names(folder) if (folder / name).is_dir())
        if (has_title and present) or len(present) > 0.9 * len(classes):
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
    paths = []
    labels = []
    for label, key in enumerate(target.keys):
        for file in classes.get(key, ()):
            paths.append(f"{key}/{file}")
            labels.append(label)
    if not paths:
        raise DatasetError(f"no images of the 113 classes in {root}", expected="alarm_clock/<image>.png, ...")
    files = FileDataset(name or "objectnet", target, root, paths, labels)
    if border:
        return Borderless(files, border)
    return files


def check_objectnet(path: Location) -> DataReport | None:
    root = find_objectnet(path)
    if root is None:
        return None
    classes = list_classes(root).classes
    space = label_space("objectnet-113")
    present = [key for key in space.keys if classes.get(key)]
    report = DataReport(str(path), "ObjectNet", f"{len(classes)} class folders", "objectnet", "objectnet")
    report.images = sum(len(classes[key]) for key in present)
    report.classes = len(present)
    report.classes_expected = len(space)
    report.space = space.name
    report.home = _OBJECTNET_HOME
    report.notes.append(f"a border of {OBJECTNET_BORDER} pixels is cropped before anything else")
    absent = [key for key in space.keys if key not in present]
    if absent:
        report.missing.append(f"{len(absent)} of the 113 classes that ImageNet has too: {listed(absent)}")
    unknown = sorted(set(classes) - set(objectnet_folders()))
    if unknown:
        report.missing.append(f"a known class for {len(unknown)} folders: {listed(unknown)}")
    left_out = len(set(classes) - set(space.keys))
    if left_out:
        report.notes.append(f"{left_out} folders of classes that ImageNet lacks are left out")
    report.expect_images(_OBJECTNET_IMAGES)
    return report


def _recognise_objectnet(path: Location) -> str | None:
    if path.is_dir() and find_objectnet(path):
        return "the class folders of ObjectNet"
    return None


OBJECTNET = DatasetKind(_recognise_objectnet, open_objectnet, check_objectnet, by_url=True)
