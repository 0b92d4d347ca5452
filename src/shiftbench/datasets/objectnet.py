"""ObjectNet, and pictures whose border has to go before anything else is done with them.

Each ObjectNet picture has a thin red frame, put there so that a picture found in a training set is known by it;
for testing it is cropped. The ImageNet testbed crops 2 pixels of each side, and so does this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shiftbench.datasets.base import DecodedImage
from shiftbench.datasets.files import FileDataset
from shiftbench.datasets.fingerprint import ContentDataset, digest_bytes
from shiftbench.datasets.folder import list_classes
from shiftbench.datasets.images import bad_image
from shiftbench.errors import DatasetError
from shiftbench.io.paths import place
from shiftbench.labels.catalogue import label_space
from shiftbench.labels.space import LabelSpace
from shiftbench.labels.superclasses import objectnet_folders

OBJECTNET_BORDER = 2


class Borderless(ContentDataset):
    """Another data set without the outermost ``border`` pixels of each side."""

    def __init__(self, base: ContentDataset, border: int) -> None:
        if border < 1:
            raise DatasetError("a border to crop is at least one pixel wide", found=border)
        self.base, self.border = base, border
        # Part of the name, so that every score's provenance says it.
        self.name, self.space = f"{base.name}, {border} px border cropped", base.space
        self.ids, self.labels = base.ids, base.labels

    @property
    def metadata(self) -> Mapping[str, Sequence[Any]]:
        return self.base.metadata

    def read(self, index: int) -> DecodedImage:
        picture = self.base.read(index)
        height, width = picture.pixels.shape[:2]
        b = self.border
        if min(height, width) <= 2 * b:
            raise bad_image(self.ids[index], f"{width} x {height} pixels are all border")
        # A copy: a view would keep the whole picture in memory.
        return DecodedImage(picture.pixels[b : height - b, b : width - b].copy(), picture.converted)

    def digests(self, indices: Sequence[int]) -> list[bytes]:
        """The same files with another border are other images."""
        mark = b"border %d" % self.border
        return [digest_bytes(digest + mark) for digest in self.base.digests(indices)]

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "cropped": f"{self.border} pixels of each side before anything else"}


def find_objectnet(path: Path) -> Path | None:
    """The folder of ObjectNet's class folders: the path itself or its ``images``, if that is what it is.

    Known by the name of the download (objectnet-1.0, objectnet-1.0-beta), or by nearly all 313 folders: a user's
    own folders "umbrella" and "backpack" make no ObjectNet.
    """
    known = frozenset(objectnet_folders())
    for folder in (path / "images", path):
        if not folder.is_dir():
            continue
        found = {entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith(".")}
        named = "objectnet" in path.resolve().name.casefold()
        if (named and found & known) or len(found & known) > 0.9 * len(known):
            return folder
    return None


def open_objectnet(
    path: str | Path,
    *,
    space: LabelSpace | str | None = None,
    name: str | None = None,
    border: int = OBJECTNET_BORDER,
) -> ContentDataset:
    """The pictures of the 113 classes that ImageNet has too, in those super-classes, without their border.

    The other 200 folders are left out: no ImageNet classifier can name them. Folders of no class of ObjectNet
    are refused. ``border=0`` keeps the frame, for comparison.
    """
    target = _agreed(space)
    root = find_objectnet(place(path)) or place(path)
    listing = list_classes(root)
    foreign = sorted(set(listing.classes) - set(objectnet_folders()))
    if foreign:
        raise DatasetError(
            f"{len(foreign)} folders of {root} are no classes of ObjectNet",
            found=", ".join(foreign[:4]),
            expected="folders such as alarm_clock, backpack, banana",
        )
    folders = [folder for folder in target.keys if listing.classes.get(folder)]
    if not folders:
        raise DatasetError(f"no pictures of the 113 classes in {root}", expected="alarm_clock/<picture>.png, ...")
    paths = [f"{folder}/{file}" for folder in folders for file in listing.classes[folder]]
    labels = [target.index(folder) for folder in folders for _ in listing.classes[folder]]
    files = FileDataset(name or "objectnet", target, root, paths, labels)
    return Borderless(files, border) if border else files


def _agreed(space: LabelSpace | str | None) -> LabelSpace:
    """ObjectNet has its own classes. ``--labels imagenet-1k``, said of the classifier, does no harm."""
    target = label_space("objectnet-113")
    asked = label_space(space) if isinstance(space, str) else space
    if asked is not None and asked.keys != target.keys:
        target.projection_from(asked)  # refuses spaces that have nothing to do with it
    return target
