"""Small images of mistakes: the images of a run are found again, verified by fingerprint, and scaled down."""

from __future__ import annotations

import hashlib
import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from pathlib import Path

from shiftbench.arrays import Pixels
from shiftbench.datasets.base import Dataset, Decoding
from shiftbench.datasets.catalogue import named_datasets, open_dataset, open_named
from shiftbench.datasets.geometry import Geometry
from shiftbench.datasets.subset import Subset, rows_of
from shiftbench.errors import ShiftbenchError
from shiftbench.io.html import image_url, thumbnail
from shiftbench.io.paths import Location
from shiftbench.settings.base import Setting, Suite
from shiftbench.settings.roles import open_data
from shiftbench.shifts.base import Shift
from shiftbench.store.prediction_files import ShiftedImage
from shiftbench.store.spec import DatasetRef, canonical_json
from shiftbench.store.workspace import DatasetRecord, Workspace

#: Bytes of all thumbnails in a file: a page of about 3 MB opens quickly and can be mailed.
BUDGET = 2_000_000
#: The folder of the live viewer's thumbnails, relative to the page.
THUMBNAILS = "images"
#: Cropped images in memory while many settings are made of them; about 60 MB at 224 pixels.
_KEPT_CROPS = 400

_USUAL_DECODING = Decoding()

#: Folders by the dataset's name or role; "" for those that were given without one.
Folders = Mapping[str, Sequence[Location]]


@dataclass(frozen=True, eq=False)
class ThumbnailSource:
    """A dataset with the content of the run."""

    dataset: Dataset

    @cached_property
    def row(self) -> dict[str, int]:
        return {image_id: i for i, image_id in enumerate(self.dataset.ids)}

    def read(self, image_id: str, decoding: Decoding = _USUAL_DECODING) -> Pixels:
        return self.dataset.decoded_as(decoding).read(self.row[image_id]).pixels


class ImageFinder:
    """Finds the datasets of a workspace: in the given folders, and among the named datasets."""

    def __init__(self, workspace: Workspace, folders: Folders) -> None:
        self.workspace = workspace
        self.folders = folders
        self._sources: dict[DatasetRef, ThumbnailSource | None] = {}
        #: For the reader: why datasets have no images.
        self.notes: list[str] = []

    def source(self, dataset: DatasetRef) -> ThumbnailSource | None:
        """The dataset, if a candidate has exactly its content."""
        if dataset not in self._sources:
            self._sources[dataset] = self._look_for(dataset.name, dataset.fingerprint)
        return self._sources[dataset]

    def _look_for(self, name: str, fingerprint: str) -> ThumbnailSource | None:
        """Where the images of a dataset are now; None, with a note on what was tried, if they cannot be found."""
        try:
            record = self.workspace.dataset(name, fingerprint)
        except ShiftbenchError as error:
            self.notes.append(f"no images of {name}: {error.message}")
            return None
        reasons: list[str] = []
        for open_candidate in self._candidates(record):
            try:
                candidate = open_candidate()
                images = _images_of(record, candidate)
                if images.fingerprint == fingerprint:
                    return ThumbnailSource(images)
            except ShiftbenchError as error:  # a folder of something else, or a package that can't be fetched now
                reasons.append(error.message)
                continue
            reasons.append(
                f"its content differs from the {len(record.ids)} images of the run "
                f"(fingerprint {candidate.fingerprint[:8]}, not {fingerprint[:8]})"
            )
        if not reasons:
            reasons.append(f"run the command again with --images {shlex.quote(f'{name}=FOLDER')}")
        self.notes.append(f"no images of {name}: {reasons[0]}")
        return None

    def _candidates(self, record: DatasetRecord) -> Iterator[Callable[[], Dataset]]:
        """What to try, most likely first; the fingerprint decides whether it is the dataset of the run."""
        source = self.workspace.source(record.name, record.fingerprint)
        # Nothing is fetched because a workspace names it, and what is opened must have the content of the run.
        if source is not None and "://" not in source[1]:
            yield partial(_open_role, *source, record)
        if record.name in named_datasets:
            yield partial(open_named, record.name)
        # A workspace from elsewhere must not lead out of the folders that were given.
        if ".." in Path(record.name).parts or Path(record.name).is_absolute():
            return
        role, _, below = record.name.partition("/")
        for folder in self._folders_for(record.name, role):
            if below:
                yield partial(_open_role, role, folder, record)
            else:
                inside = folder / record.name
                path = inside if inside.is_dir() else folder
                yield partial(open_dataset, path, space=record.space, name=record.name)

    def _folders_for(self, name: str, role: str) -> list[Location]:
        """The folders that were given for a dataset or its role, then all others: their role may have another name."""
        folders: dict[Location, None] = {}
        for key in (name, role, "", *self.folders):
            folders.update(dict.fromkeys(self.folders.get(key, ())))
        return list(folders)


def _images_of(record: DatasetRecord, candidate: Dataset) -> Dataset:
    """The candidate, or those of its images that the run used."""
    if candidate.fingerprint == record.fingerprint:
        return candidate
    rows = rows_of(candidate, record.ids)
    if -1 in rows:
        return candidate
    return Subset(candidate, rows, name=record.name, space=record.space)


def _open_role(role: str, given: str | Location, record: DatasetRecord) -> Dataset:
    """The whole role, as the run opened it, or the dataset below it that has the name: ``imagenet-c/fog/3``."""
    suite = Suite("images", (Setting(record.name, record.name),))
    if suite.roles != [role]:
        suite = Suite("images", (Setting(record.name, role),))
    datasets, *_ = open_data(suite, {role: given}, space=record.space)
    [dataset] = datasets.values()
    return dataset


@dataclass(frozen=True, eq=False)
class Thumbnail:
    """How one small image is made: the whole image, or the image as a model saw it."""

    source: ThumbnailSource
    image_id: str
    #: None: the whole image.
    geometry: Geometry | None = None
    shift: Shift | None = None
    seed: int = 0
    #: The image that the run kept, if the shift depends on the model.
    kept: ShiftedImage | None = None

    @property
    def digest(self) -> str:
        """A name that changes only with the content, so that each image is made and kept once."""
        shift = "" if self.shift is None else canonical_json(self.shift.describe())
        kept = b"" if self.kept is None else self.kept.webp
        content = (self.source.dataset.fingerprint, self.image_id, self.geometry, shift, self.seed, kept)
        return hashlib.blake2b(repr(content).encode("utf-8", "replace"), digest_size=12).hexdigest()

    def pixels(self) -> Pixels:
        if self.kept is not None:
            return self.kept.pixels()
        if self.geometry is None:
            return self.source.read(self.image_id)
        if self.shift is None:
            return self.source.read(self.image_id, self.geometry.decoding)
        cropped = _crop(self.source, self.image_id, self.geometry)
        return self.shift(cropped, image_id=self.image_id, seed=self.seed)

    def webp(self) -> bytes:
        return thumbnail(self.pixels())


@lru_cache(maxsize=_KEPT_CROPS)
def _crop(source: ThumbnailSource, image_id: str, geometry: Geometry) -> Pixels:
    pixels = geometry(source.read(image_id, geometry.decoding))
    pixels.setflags(write=False)
    return pixels


@dataclass
class Album(ABC):
    """Thumbnails by their index on the page."""

    #: In the order of their indices.
    urls: list[str] = field(default_factory=list, init=False)
    _index: dict[str, int | None] = field(default_factory=dict, init=False)

    def place(self, thumbnails: Sequence[Thumbnail]) -> list[int | None]:
        """The indices of the images; None for one that can't be made."""
        digests = [thumbnail.digest for thumbnail in thumbnails]
        by_digest = dict(zip(digests, thumbnails, strict=True))
        new = {digest: thumbnail for digest, thumbnail in by_digest.items() if digest not in self._index}
        for digest, url in zip(new, self._urls_of(new), strict=True):
            if url is None:
                self._index[digest] = None
            else:
                self._index[digest] = len(self.urls)
                self.urls.append(url)
        return [self._index[digest] for digest in digests]

    @abstractmethod
    def _urls_of(self, new: Mapping[str, Thumbnail]) -> Iterable[str | None]: ...

    @property
    def full(self) -> bool:
        """Whether the size limit of the page is reached."""
        return False


@dataclass
class FileAlbum(Album):
    """Images made at once and kept as data: URLs."""

    budget: float = BUDGET

    def _urls_of(self, new: Mapping[str, Thumbnail]) -> Iterable[str | None]:
        def url_of(thumbnail: Thumbnail) -> str | None:
            try:
                return image_url(thumbnail.webp())
            except ShiftbenchError:
                return None

        with ThreadPoolExecutor() as pool:
            return list(pool.map(url_of, new.values()))

    @property
    def full(self) -> bool:
        return sum(map(len, self.urls)) >= self.budget


@dataclass
class LiveAlbum(Album):
    """Images with their own URLs, made on request."""

    thumbnails: dict[str, Thumbnail] = field(default_factory=dict)

    def _urls_of(self, new: Mapping[str, Thumbnail]) -> Iterable[str]:
        self.thumbnails.update(new)
        return [f"{THUMBNAILS}/{name}.webp" for name in new]
