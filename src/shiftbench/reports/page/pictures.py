"""The pictures behind predictions: found again, proven to be the same by their fingerprint, and made small."""

from __future__ import annotations

import base64
import hashlib
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from pathlib import Path

from PIL import Image

from shiftbench.arrays import Pixels
from shiftbench.classifiers.preprocessing import Geometry
from shiftbench.datasets.base import Dataset
from shiftbench.datasets.catalogue import named_datasets, open_dataset, open_named
from shiftbench.datasets.subset import Subset
from shiftbench.errors import ShiftbenchError
from shiftbench.settings.base import Setting, Suite
from shiftbench.settings.roles import open_data
from shiftbench.shifts.base import Shift
from shiftbench.store.spec import DatasetRef, canonical_json
from shiftbench.store.workspace import DatasetRecord, Workspace

LONGEST = 112
_QUALITY = 50
#: Cropped pictures that are kept while many settings are made of them; some 60 MB at 224 pixels.
_KEPT_CROPS = 400

#: Folders by the data set's name or role; "" for those that were given without one.
Folders = Mapping[str, Sequence[Path]]


@dataclass(frozen=True, eq=False)
class PictureSource:
    """A data set whose content is that of the run."""

    dataset: Dataset

    @cached_property
    def row(self) -> dict[str, int]:
        return {image_id: i for i, image_id in enumerate(self.dataset.ids)}

    def read(self, image_id: str) -> Pixels:
        return self.dataset.read(self.row[image_id]).pixels


class PictureFinder:
    """Looks for the data sets of a workspace: in the folders given, and among those that have a name."""

    def __init__(self, workspace: Workspace, folders: Folders) -> None:
        self.workspace, self.folders = workspace, folders
        self._found: dict[DatasetRef, PictureSource | None] = {}
        #: Why data sets have no pictures, in words for the reader of the page.
        self.notes: list[str] = []

    def source(self, dataset: DatasetRef) -> PictureSource | None:
        """The dataset, if what was found has this very content."""
        if dataset not in self._found:
            self._found[dataset] = self._look_for(dataset.name, dataset.fingerprint)
        return self._found[dataset]

    def _look_for(self, name: str, fingerprint: str) -> PictureSource | None:
        seen: list[str] = []
        try:
            record = self.workspace.dataset(name, fingerprint)
        except ShiftbenchError as error:
            self.notes.append(f"no pictures of {name}: {error.message}")
            return None
        for open_candidate in self._candidates(record):
            try:
                candidate = open_candidate()
                same = _same_content(candidate, record)
            except ShiftbenchError as error:  # a folder of something else, or a package that can't be fetched now
                seen.append(error.message)
                continue
            if same is not None:
                return PictureSource(same)
            seen.append(
                f"what lies there now has another content than the {len(record.ids)} images of the run "
                f"(fingerprint {candidate.fingerprint[:8]}, not {fingerprint[:8]})"
            )
        why = seen[0] if seen else f"make the report again with --images {name}=FOLDER"
        self.notes.append(f"no pictures of {name}: {why}")
        return None

    def _candidates(self, record: DatasetRecord) -> Iterator[Callable[[], Dataset]]:
        """What to try, the likeliest first; whether it is the data set of the run its fingerprint tells."""
        role, _, below = record.name.partition("/")
        named = [*self.folders.get(record.name, ()), *self.folders.get(role, ()), *self.folders.get("", ())]
        # Perhaps named by its role in a suite, which a workspace does not keep.
        others = [folder for given in self.folders.values() for folder in given]
        if record.name in named_datasets:
            yield partial(open_named, record.name)
        # A workspace from elsewhere must not lead out of the folders that were given.
        if ".." not in Path(record.name).parts and not Path(record.name).is_absolute():
            opening = _open_below if below else _open_plain
            yield from (partial(opening, folder, record) for folder in dict.fromkeys([*named, *others]))


def _open_plain(folder: Path, record: DatasetRecord) -> Dataset:
    inside = folder / record.name
    return open_dataset(inside if inside.is_dir() else folder, space=record.space, name=record.name)


def _open_below(folder: Path, record: DatasetRecord) -> Dataset:
    """Released files lie in folders below their role's: ``imagenet-c/fog/3``."""
    wanted = Suite("pictures", (Setting(record.name, record.name),))
    [dataset] = open_data(wanted, {wanted.roles[0]: folder}, space=record.space)[0].values()
    return dataset


def _same_content(candidate: Dataset, record: DatasetRecord) -> Dataset | None:
    """The candidate, or those of its images that the run used, if the fingerprint is the run's."""
    if candidate.fingerprint == record.fingerprint:
        return candidate
    row = {image_id: i for i, image_id in enumerate(candidate.ids)}
    if not all(image_id in row for image_id in record.ids):
        return None
    part = Subset(candidate, [row[image_id] for image_id in record.ids], name=record.name, space=record.space)
    return part if part.fingerprint == record.fingerprint else None


@dataclass(frozen=True, eq=False)
class Recipe:
    """How one small picture is made: the whole picture, or what a classifier saw of it."""

    source: PictureSource
    image_id: str
    #: None: the picture as it is.
    geometry: Geometry | None = None
    shift: Shift | None = None
    seed: int = 0

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for equal pictures, so that each is made and kept once."""
        shift = "" if self.shift is None else canonical_json(self.shift.describe())
        return self.source.dataset.fingerprint, self.image_id, self.geometry, shift, self.seed

    @property
    def digest(self) -> str:
        """A name for the picture that does not change while its content does not."""
        return hashlib.blake2b(repr(self.key).encode("utf-8", "replace"), digest_size=12).hexdigest()

    def pixels(self) -> Pixels:
        if self.geometry is None or self.shift is None:
            return self.source.read(self.image_id)
        cropped = _crop(self.source, self.image_id, self.geometry)
        return self.shift(cropped, image_id=self.image_id, seed=self.seed)

    def webp(self) -> bytes:
        return thumbnail(self.pixels())

    def data_url(self) -> str:
        return f"data:image/webp;base64,{base64.b64encode(self.webp()).decode()}"


@lru_cache(maxsize=_KEPT_CROPS)
def _crop(source: PictureSource, image_id: str, geometry: Geometry) -> Pixels:
    pixels = geometry(source.read(image_id))
    pixels.setflags(write=False)
    return pixels


def thumbnail(pixels: Pixels) -> bytes:
    """WebP of at most ``LONGEST`` pixels a side; a small picture is not enlarged."""
    image = Image.fromarray(pixels)
    image.thumbnail((LONGEST, LONGEST), Image.Resampling.LANCZOS)
    file = io.BytesIO()
    image.save(file, "WEBP", quality=_QUALITY, method=4)
    return file.getvalue()
