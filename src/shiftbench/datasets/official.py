"""The official test sets: how a folder of each is known, what belongs into it, and where a user gets it.

Nothing is downloaded here: most of these archives ask for an account or a licence to be agreed to.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from shiftbench.datasets.folder import Listing
from shiftbench.labels.catalogue import label_space

_IMAGE_NET = "image-net.org, after registration"
_V2_HOME = "Hugging Face, data set vaishaal/ImageNetV2, archive {}.tar.gz"


@dataclass
class DataReport:
    """What a path holds, and what is missing of it."""

    path: str
    #: The official set it is, or None.
    what: str | None
    #: What was seen, in a few words.
    seen: str
    #: What to call it in ``--data ROLE=FOLDER``, and a suite that uses it.
    role: str | None = None
    suite: str | None = None
    images: int = 0
    images_expected: int | None = None
    classes: int = 0
    classes_expected: int | None = None
    space: str | None = None
    notes: list[str] = field(default_factory=list)
    #: Each in words; empty for a whole set.
    missing: list[str] = field(default_factory=list)
    #: Where a user gets it.
    home: str | None = None
    #: The data sets in the folder, if it is a folder of data sets.
    parts: list[DataReport] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.missing and all(part.ok for part in self.parts)

    def as_dict(self) -> dict[str, Any]:
        parts = [part.as_dict() for part in self.parts]
        return {**asdict(self), "parts": parts, "ok": self.ok}


@dataclass(frozen=True)
class OfficialSet:
    """A published test set of class folders."""

    title: str
    #: What it is called in ``--data ROLE=FOLDER``, and a suite that uses it.
    role: str
    suite: str
    images: int
    home: str
    #: The folder's own name, when it says what the folder is.
    named: str
    #: The label space of its class folders; all must be there, unless ``classes`` counts fewer.
    space: str = "imagenet-1k"
    classes: int | None = None
    #: Images in each class, where all have as many.
    each: int | None = None

    @property
    def class_count(self) -> int:
        return self.classes or len(label_space(self.space))


def _v2(title: str, role: str, archive: str, named: str) -> OfficialSet:
    home = _V2_HOME.format(archive)
    return OfficialSet(f"ImageNetV2 {title}", role, "imagenetv2", 10_000, home, named, each=10)


#: In the order in which names are tried.
OFFICIAL = (
    _v2(
        "MatchedFrequency, -format-val",
        "imagenetv2-matched-frequency-format-val",
        "imagenetv2-matched-frequency",
        r"imagenet-?v2-matched-frequency-format-val",
    ),
    _v2(
        "Threshold0.7, -format-val",
        "imagenetv2-threshold0.7-format-val",
        "imagenetv2-threshold0.7",
        r"imagenet-?v2-threshold-?0\.7-format-val",
    ),
    _v2(
        "TopImages, -format-val",
        "imagenetv2-top-images-format-val",
        "imagenetv2-top-images",
        r"imagenet-?v2-top-?images-format-val",
    ),
    _v2(
        "MatchedFrequency",
        "imagenetv2-matched-frequency",
        "imagenetv2-matched-frequency",
        r"imagenet-?v2-matched-?frequency|imagenet-?v2-b-33",
    ),
    _v2(
        "Threshold0.7",
        "imagenetv2-threshold0.7",
        "imagenetv2-threshold0.7",
        r"imagenet-?v2-threshold-?0\.7|imagenet-?v2-a-44",
    ),
    _v2("TopImages", "imagenetv2-top-images", "imagenetv2-top-images", r"imagenet-?v2-top-?images|imagenet-?v2-c-12"),
    OfficialSet(
        "ImageNet-A",
        "imagenet-a",
        "imagenet-a",
        7_500,
        "GitHub, hendrycks/natural-adv-examples, archive imagenet-a.tar",
        r"imagenet-a",
        "imagenet-a-200",
    ),
    OfficialSet(
        "ImageNet-O",
        "imagenet-o",
        "imagenet-o",
        2_000,
        "GitHub, hendrycks/natural-adv-examples, archive imagenet-o.tar",
        r"imagenet-o",
        "imagenet-o-200",
    ),
    OfficialSet(
        "ImageNet-R",
        "imagenet-r",
        "imagenet-r",
        30_000,
        "GitHub, hendrycks/imagenet-r, archive imagenet-r.tar",
        r"imagenet-r(endition)?",
        "imagenet-r-200",
    ),
    OfficialSet(
        "ImageNet-Sketch",
        "imagenet-sketch",
        "imagenet-sketch",
        50_889,
        "GitHub, HaohanWang/ImageNet-Sketch, which links the archive",
        r"(imagenet-?)?sketch",
    ),
    OfficialSet(
        "Stylized-ImageNet val",
        "stylized-imagenet",
        "stylized-imagenet",
        50_000,
        "not distributed: made from ImageNet val with the code of GitHub, rgeirhos/Stylized-ImageNet",
        r"styli[sz]ed-imagenet.*",
        each=50,
    ),
    OfficialSet(
        "Real Blurry Images",
        "real-blurry-images",
        "real-blurry-images",
        1_000,
        "the page of ImageNet-R's authors at Berkeley, archive blurry_images.tar",
        r"(real-)?blurry(-images)?",
        classes=100,
    ),
    OfficialSet(
        "ImageNet val",
        "imagenet-val",
        "imagenet",
        50_000,
        f"{_IMAGE_NET}, archive ILSVRC2012_img_val.tar, sorted into one folder a class",
        r"(imagenet-?|ilsvrc2012-)(img-)?val(idation)?",
        each=50,
    ),
)
#: A V2 tree under a name that does not say which of the three it is.
ANY_V2 = _v2("(which of the three, its name does not say)", "imagenetv2-matched-frequency", "imagenetv2-*", r"(?!)")


def identify(path: Path, listing: Listing) -> OfficialSet | None:
    """Which official set a folder of class folders is: by its name, else by its classes, counts and file names."""
    name = path.resolve().name.casefold().replace("_", "-")
    folders = list(listing.classes)
    for candidate in OFFICIAL:
        if re.fullmatch(candidate.named, name) and _plausible(candidate, folders):
            return candidate
    return _by_content(listing, folders)


def by_role(role: str) -> OfficialSet:
    return next(candidate for candidate in OFFICIAL if candidate.role == role)


def _plausible(candidate: OfficialSet, folders: Sequence[str]) -> bool:
    """Half of the folders at least are classes of it; a folder called imagenet-r may hold anything."""
    known = set(label_space(candidate.space).keys)
    # Numbers mean classes only where all 1,000 have one: 0 to 199 could be any order of 200.
    numbered = candidate.space == "imagenet-1k"
    fitting = sum(folder in known or (numbered and is_number(folder)) for folder in folders)
    return bool(folders) and fitting >= 0.5 * len(folders)


def is_number(folder: str) -> bool:
    return folder.isascii() and folder.isdecimal()


def _by_content(listing: Listing, folders: Sequence[str]) -> OfficialSet | None:
    if len(folders) > 900 and all(map(is_number, folders)) and listing.images <= 20 * len(folders):
        return ANY_V2
    for letter in "aor":
        if set(folders) == set(label_space(f"imagenet-{letter}-200").keys):
            return by_role(f"imagenet-{letter}")
    full = set(label_space("imagenet-1k").keys)
    if not folders or not set(folders) <= full:
        return None
    first = next((file for files in listing.classes.values() for file in files), "")
    if first.startswith("ILSVRC2012_val_"):
        return by_role("imagenet-val")
    if first.startswith("sketch_"):
        return by_role("imagenet-sketch")
    if len(folders) == 1000 and all(len(files) == 10 for files in listing.classes.values()):
        return ANY_V2
    return None
