"""Each official layout: is this path one, and is it whole? Names and counts are looked at, no picture is decoded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shiftbench.datasets import video_sets
from shiftbench.datasets.corruption_names import BENCHMARK_CORRUPTIONS, EXTRA_CORRUPTIONS
from shiftbench.datasets.files import FileDataset
from shiftbench.datasets.folder import Listing, list_classes
from shiftbench.datasets.objectnet import find_objectnet
from shiftbench.datasets.official import DataReport, OfficialSet, identify, is_number
from shiftbench.errors import ShiftbenchError, listed
from shiftbench.labels.catalogue import label_space
from shiftbench.labels.superclasses import objectnet_folders

SEVERITIES = ("1", "2", "3", "4", "5")
#: Of the 113 classes, as the testbed counts them.
_OBJECTNET_IMAGES = 18_514


def check_class_folders(path: Path) -> DataReport | None:
    """ImageNet val, V2, -A, -O, -R, -Sketch, Stylized-ImageNet, Real Blurry Images."""
    if not path.is_dir():
        return None
    listing = list_classes(path)
    found = identify(path, listing) if listing.classes else None
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
    )
    _compare(report, found, listing)
    _describe_numbers(report, listing)
    if found.suite == "imagenetv2":
        _describe_packing(report, listing)
    return report


def _compare(report: DataReport, wanted: OfficialSet, listing: Listing) -> None:
    keys = list(label_space(wanted.space).keys)
    if all(map(is_number, listing.classes)):
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
            shown = listed([f"{key} has {count}" for key, count in counts.items()])
            report.missing.append(f"{wanted.each} images in each of {len(counts)} classes: {shown}")
    if listing.images < wanted.images:
        report.missing.append(f"{wanted.images - listing.images:,} of {wanted.images:,} images")
    elif listing.images > wanted.images:
        report.notes.append(f"{listing.images - wanted.images:,} images more than the official {wanted.images:,}")


def _describe_numbers(report: DataReport, listing: Listing) -> None:
    """The trap of folders 0 to 999: sorted as text they begin 0, 1, 10, 100."""
    if not all(map(is_number, listing.classes)):
        return
    values = {int(folder) for folder in listing.classes}
    if 0 not in values and 1000 in values:
        report.missing.append("a folder 0: the folders count from 1; rename each to one less, 1 to 0 first")
    else:
        report.notes.append("folders 0 to 999: read as integers, never sorted as text")


def _describe_packing(report: DataReport, listing: Listing) -> None:
    if all(map(is_number, listing.classes)):
        return
    report.notes.append(
        "wnid folders: a re-packing, whose JPEG files may differ from the released ones; accuracies then differ by up "
        "to 0.55 points, so keep them apart from those of folders 0 to 999"
    )
    if listing.images == 20_000:
        report.notes.append("20,000 files: the short-lived release of 2020 that held every class twice; get it again")


def check_unsorted_val(path: Path) -> DataReport | None:
    """ImageNet's validation pictures as the archive leaves them: in one folder, without labels."""
    if not path.is_dir():
        return None
    count = sum(entry.name.startswith("ILSVRC2012_val_") for entry in path.iterdir() if entry.is_file())
    if not count:
        return None
    report = DataReport(str(path), "ImageNet val", "pictures in one folder", "imagenet-val", "imagenet", count, 50_000)
    report.missing.append("class folders: the file names carry no labels; sort the files into 1,000 wnid folders")
    report.home = "the labels are in ILSVRC2012_devkit_t12.tar.gz at image-net.org"
    return report


def check_objectnet(path: Path) -> DataReport | None:
    root = find_objectnet(path) if path.is_dir() else None
    if root is None:
        return None
    listing = list_classes(root)
    space = label_space("objectnet-113")
    present = [key for key in space.keys if listing.classes.get(key)]
    report = DataReport(
        str(path),
        "ObjectNet",
        f"{len(listing.classes)} class folders",
        role="objectnet",
        suite="objectnet",
        images=sum(len(listing.classes[key]) for key in present),
        images_expected=_OBJECTNET_IMAGES,
        classes=len(present),
        classes_expected=len(space),
        space=space.name,
        home="objectnet.dev, a zip file whose password is on the download page",
        notes=["a border of 2 pixels is cropped before anything else"],
    )
    absent = [key for key in space.keys if key not in present]
    if absent:
        report.missing.append(f"{len(absent)} of the 113 classes that ImageNet has too: {listed(absent)}")
    unknown = sorted(set(listing.classes) - set(objectnet_folders()))
    if unknown:
        report.missing.append(f"a known class for {len(unknown)} folders: {listed(unknown)}")
    others = len(set(listing.classes) - set(space.keys))
    if others:
        report.notes.append(f"{others} folders of classes that ImageNet lacks are left out")
    if report.images < _OBJECTNET_IMAGES:
        report.missing.append(f"{_OBJECTNET_IMAGES - report.images:,} of {_OBJECTNET_IMAGES:,} images")
    return report


@dataclass(frozen=True)
class _VideoSet:
    """A published set of video frames."""

    title: str
    role: str
    files: tuple[str, ...]
    open: Callable[..., FileDataset]
    anchors: int
    frames: str


_ANNOTATIONS = "annotations: GitHub, modestyachts/imagenet-testbed, below src/eval_settings"
_VIDEOS = (
    _VideoSet(
        "ImageNet-Vid-Robust",
        "imagenet-vid-robust",
        video_sets.VID_FILES,
        video_sets.open_vid_robust,
        1_109,
        "the VID validation videos of ILSVRC 2015 at image-net.org",
    ),
    _VideoSet(
        "YTBB-Robust",
        "ytbb-robust",
        video_sets.YTBB_FILES,
        video_sets.open_ytbb_robust,
        2_030,
        "frames of YouTube-BB's validation videos, to be cut from YouTube",
    ),
)


def check_videos(path: Path) -> DataReport | None:
    """Frames with their annotations: every frame that is listed must be there."""
    if not path.is_dir():
        return None
    name = path.resolve().name.casefold().replace("_", "-")
    annotated = [one for one in _VIDEOS if video_sets.find_metadata(path, one.files)]
    found = next(iter(annotated or [one for one in _VIDEOS if one.role == name]), None)
    if found is None:
        return None
    report = DataReport(str(path), found.title, "frames and annotations", found.role, found.role)
    report.home = f"{found.frames}; {_ANNOTATIONS}"
    try:
        dataset = found.open(path)
    except ShiftbenchError as error:
        report.missing.append(f"{error.message} ({error.found})" if error.found else error.message)
        return report
    report.images, report.space = len(set(dataset.metadata["frame"])), dataset.space.name
    report.classes, report.classes_expected = len(set(dataset.labels.tolist())), len(dataset.space)
    anchors = len(set(dataset.metadata["anchor"]))
    report.notes.append(f"{anchors:,} anchors, {report.images - anchors:,} neighbours")
    if anchors < found.anchors:
        report.missing.append(f"{found.anchors - anchors:,} of {found.anchors:,} anchors in the annotations")
    return report


def check_imagenet_c(path: Path) -> DataReport | None:
    """``<corruption>/<severity>/<wnid>/``: which corruptions and severities are there, and are they whole."""
    if not path.is_dir():
        return None
    present = {entry.name for entry in path.iterdir() if entry.is_dir()}
    known = [
        name
        for name in (*BENCHMARK_CORRUPTIONS, *EXTRA_CORRUPTIONS)
        if name in present and (path / name / "1").is_dir()
    ]
    if not known:
        return None
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
    gaps = [f"{name}/{s}" for name in known for s in SEVERITIES if not (path / name / s).is_dir()]
    if gaps:
        report.missing.append(f"{len(gaps)} severities: {listed(gaps)}")
    short = {}
    for name in known:
        for severity in SEVERITIES:
            folder = path / name / severity
            if folder.is_dir():
                count = _pictures(folder)
                report.images += count
                if count != 50_000:
                    short[f"{name}/{severity}"] = count
    if short:
        shown = listed([f"{place} has {count:,}" for place, count in short.items()])
        report.missing.append(f"50,000 images in each of {len(short)} folders: {shown}")
    return report


def _pictures(folder: Path) -> int:
    return list_classes(folder).images


def array_length(path: Path) -> int | None:
    """The length of an npy file's array, from its header."""
    try:
        return int(np.load(path, mmap_mode="r", allow_pickle=False).shape[0])
    except (OSError, ValueError, EOFError, IndexError):
        return None


def missing_files(folder: Path, files: Sequence[str]) -> list[str]:
    return [file for file in files if not (folder / file).is_file()]
