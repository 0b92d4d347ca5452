"""ObjectNet, and images whose border is cropped before anything else.

Each ObjectNet image has a thin red border, by which it can be found in a training set; for testing it is cropped. The
ImageNet testbed crops 2 pixels on each side, and so does this module.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shiftbench.datasets.base import DataReport, DatasetKind, DecodedImage, entry_names, own_space
from shiftbench.datasets.folder import list_classes
from shiftbench.datasets.images import bad_image
from shiftbench.datasets.stored import ContentDataset, FileDataset, digest_bytes
from shiftbench.errors import DatasetError, listed
from shiftbench.io.paths import Location, place
from shiftbench.labels.builtin import objectnet_folders
from shiftbench.labels.catalogue import label_space
from shiftbench.labels.space import AskedSpace

OBJECTNET_BORDER = 2
#: Of the 113 classes, as the testbed counts them.
_IMAGES = 18_514


class Borderless(ContentDataset):
    """Another dataset without the outermost ``border`` pixels on each side."""

    def __init__(self, base: ContentDataset, border: int) -> None:
        if border < 1:
            raise DatasetError("a border to crop is at least one pixel wide", found=border)
        self.base, self.border = base, border
        # Part of the name, so that it appears in every score's provenance.
        self.name, self.space = f"{base.name}, {border} px border cropped", base.space
        self.ids, self.labels = base.ids, base.labels

    @property
    def metadata(self) -> Mapping[str, Sequence[Any]]:
        return self.base.metadata

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
    """The folder of ObjectNet's class folders: the path itself or its ``images``, if that is what it is.

    Known by the name of the download (objectnet-1.0, objectnet-1.0-beta), or by nearly all 313 folders: a user's
    own folders "umbrella" and "backpack" make no ObjectNet.
    """
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
    report.expect_images(_IMAGES)
    return report


KIND = DatasetKind(
    lambda path: "the class folders of ObjectNet" if path.is_dir() and find_objectnet(path) else None,
    open_objectnet,
    check_objectnet,
    by_url=True,
)
