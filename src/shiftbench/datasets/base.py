"""A dataset: ordered labelled images with stable ids, a label space and a fingerprint of its content.

A kind of dataset: how a path of it is recognised, opened and checked.
"""

from __future__ import annotations

import importlib
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fnmatch import translate
from functools import cached_property
from itertools import chain, islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, overload

import numpy as np
from numpy.typing import DTypeLike, NDArray

from shiftbench.arrays import Pixels
from shiftbench.errors import BadImageError, DatasetError, listed
from shiftbench.io import html
from shiftbench.io.paths import Location, is_object
from shiftbench.labels.catalogue import label_space
from shiftbench.labels.space import AskedSpace, Labels, LabelSets, LabelSpace

if TYPE_CHECKING:
    from PIL.Image import Image

#: Number of images that a notebook shows of a dataset.
_MAX_FIGURES = 12


@dataclass(frozen=True)
class DecodedImage:
    """One decoded image.

    Attributes:
        pixels: uint8 (H, W, 3), RGB.
        converted: The conversion that decoding needed; empty if none.
    """

    pixels: Pixels
    converted: str = ""


@dataclass(frozen=True)
class Decoding:
    """What is done about an image file's orientation and transparency; the defaults are Pillow's ``convert("RGB")``.

    Attributes:
        exif: Whether the orientation in a file's EXIF data is applied (``"apply"``) or not (``"ignore"``).
        alpha: Transparent images lose their alpha channel (``"drop"``) or are laid on a background.
    """

    exif: Literal["ignore", "apply"] = "ignore"
    alpha: Literal["drop", "white", "black"] = "drop"


@dataclass(frozen=True, repr=False)
class LabelledImage:
    """One image of a dataset, decoded when its pixels are asked for; ``numpy.asarray(item)`` gives them, too.

    Attributes:
        dataset: The dataset it belongs to.
        index: Its place there.
    """

    dataset: Dataset
    index: int

    @property
    def id(self) -> str:
        """The image's name in its dataset."""
        return self.dataset.ids[self.index]

    @property
    def label(self) -> int:
        """Its class as an index into the dataset's label space; -1 if it has no label, or several."""
        return int(self.dataset.labels[self.index])

    @property
    def label_name(self) -> str:
        """The name of its class; several, separated by commas, for a multi-label image."""
        names = self.dataset.space.names
        if self.dataset.label_sets is not None:
            return listed(names[label] for label in self.dataset.label_sets[self.index])
        if self.label >= 0:
            return names[self.label]
        return ""

    @cached_property
    def pixels(self) -> Pixels:
        """uint8 (H, W, 3), RGB."""
        return self.dataset.read(self.index).pixels

    @property
    def image(self) -> Image:
        """As a Pillow image."""
        from PIL import Image

        return Image.fromarray(self.pixels)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        pixels = self.pixels if dtype is None else self.pixels.astype(dtype)
        return np.array(pixels) if copy else pixels

    def __repr__(self) -> str:
        return f"<image {self.id!r} of {self.dataset.name}: {self.label_name or 'no label'}>"

    def _repr_html_(self) -> str:
        return html.block(html.figure(self.pixels, self.label_name, self.id), html.notes([self.id]))


class StorageGroups(NamedTuple):
    """Images that are read together, such as the row groups of a Parquet file: for readers that choose their order."""

    #: The number of the group that each image is in.
    numbers: NDArray[np.int64]
    #: The number of groups that the dataset keeps in memory. Images of more groups than this, read in turn, are slow.
    kept: int


class Dataset(ABC):
    """Ordered labelled images.

    ``dataset[0]`` is a ``LabelledImage`` with ``image``, ``pixels``, ``label``, ``label_name`` and ``id``;
    ``dataset[:100]`` is a dataset of the first 100 images; ``for item in dataset`` goes through all.

    To add a kind of dataset, set the attributes and implement ``fingerprint`` and ``read``. Implementations read one
    image at a time and are picklable, so that workers can open them again.

    Attributes:
        name: The name that tables and provenance show.
        space: Label space of the labels.
        ids: Stable, unique names of the images, in order. They do not depend on the location of the data.
        labels: For each image its class as an index into ``space``; -1 for images with no label or several.
        label_sets: For each image all its classes, ascending, where images may have several; None where each has one.
        metadata: Further columns, one value per image.
        remarks: Remarks on files that were skipped or look unusual, found when the dataset was opened.
    """

    name: str
    space: LabelSpace
    ids: Sequence[str]
    labels: Labels
    label_sets: LabelSets | None = None
    metadata: Mapping[str, Sequence[Any]] = MappingProxyType({})
    remarks: Sequence[str] = ()

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """A hash of the ids, labels and image bytes: equal content, equal fingerprint."""

    def decoded_as(self, decoding: Decoding) -> Self:
        """The same images, with orientation and transparency of image files treated in this way.

        A dataset that holds pixels, not image files, has neither: it is returned as it is.

        Args:
            decoding: What is done about orientation and transparency.
        """
        return self

    def storage_groups(self) -> StorageGroups | None:
        """How images share storage that is read as a whole; None if each image is read by itself."""
        return None

    @abstractmethod
    def read(self, index: int) -> DecodedImage:
        """Decode one image.

        Args:
            index: Its place in ``ids``.

        Raises:
            BadImageError: The image can't be used.
            DatasetError: It is no longer the image that the fingerprint is of. Nothing else is raised.
        """

    def describe(self) -> dict[str, Any]:
        """JSON-able provenance."""
        return {"dataset": self.name, "images": len(self), "fingerprint": self.fingerprint, "labels": self.space.name}

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, index: int) -> LabelledImage: ...
    @overload
    def __getitem__(self, index: slice) -> Dataset: ...
    def __getitem__(self, index: int | slice) -> LabelledImage | Dataset:
        places = range(len(self))[index]
        if isinstance(places, int):
            return LabelledImage(self, places)
        from shiftbench.datasets.subset import Subset

        return Subset(self, places)

    def __iter__(self) -> Iterator[LabelledImage]:
        return (LabelledImage(self, index) for index in range(len(self)))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}: {self._size_text}>"

    @property
    def _size_text(self) -> str:
        return f"{len(self):,} images, {len(self.space)} classes of {self.space.name}"

    def _repr_html_(self) -> str:
        """Show images from all over the dataset, so that most classes are seen."""
        positions = np.linspace(0, len(self) - 1, min(_MAX_FIGURES, len(self))).round().astype(int)
        figures = (_figure(self[i]) for i in np.unique(positions).tolist())
        return html.block(html.title(self.name, self._size_text), html.grid(figures))


def _figure(item: LabelledImage) -> str:
    try:
        return html.figure(item.pixels, item.label_name, item.id)
    except BadImageError:
        return html.missing_figure(item.label_name, item.id)


@dataclass
class DataReport:
    """What lies at a path, and what is missing from it.

    Attributes:
        path: The path that was looked at.
        what: Title of the dataset that it is.
        seen: What was found there.
        role: The role that it can fill.
        suite: A suite that uses it.
        images: Number of images.
        images_expected: Number of images of the published dataset.
        classes: Number of classes.
        classes_expected: Number of classes of the published dataset.
        space: Name of its label space.
        notes: Further remarks.
        missing: What is missing or wrong.
        home: Web page of the dataset.
        parts: Reports on the datasets below it.
        kind: Name of the dataset kind.
    """

    path: str
    what: str | None
    seen: str
    role: str | None = None
    suite: str | None = None
    images: int = 0
    images_expected: int | None = None
    classes: int = 0
    classes_expected: int | None = None
    space: str | None = None
    notes: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    home: str | None = None
    parts: list[DataReport] = field(default_factory=list)
    kind: str | None = None

    @property
    def ok(self) -> bool:
        return not self.missing and all(part.ok for part in self.parts)

    def as_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {**asdict(self), "parts": [part.as_dict() for part in self.parts], "ok": self.ok}

    def count(self, dataset: Dataset) -> None:
        """Fill in the images and classes of an opened dataset."""
        if dataset.label_sets is None:
            labels = set(dataset.labels.tolist())
        else:
            labels = set(chain.from_iterable(dataset.label_sets))
        self.images = len(dataset)
        self.space = dataset.space.name
        self.classes = len(labels - {-1})
        self.classes_expected = len(dataset.space)

    def expect_images(self, expected: int) -> None:
        """Note the number of images that the published dataset has."""
        self.images_expected = expected
        if self.images < expected:
            self.missing.append(f"{expected - self.images:,} of {expected:,} images")


class DatasetKind:
    """How datasets of one kind are recognised, opened and checked.

    Args:
        recognise: Describes in a few words what lies at a path of this kind; None for any other path. It looks at file
            names, not at contents, and also recognises incomplete datasets.
        open: ``open(path, *, space, name, ...)`` opens it; its further keyword parameters are the options of the kind.
        check: Compares a recognised path with the published dataset; None if it is not a published one.
        by_url: Whether it reads ``shiftbench.io.paths.place(path)`` and so opens s3://bucket/folder as well.
        first: Whether it is tried before the built-in kinds.
    """

    def __init__(
        self,
        recognise: Callable[[Location], str | None],
        open: Callable[..., Dataset],
        check: Callable[[Location], DataReport | None] = lambda path: None,
        *,
        by_url: bool = False,
        first: bool = False,
    ) -> None:
        self.recognise = recognise
        self.open = open
        self.check = check
        self.by_url = by_url
        self.first = first

    def may_be(self, names: Iterable[str], entries: Iterable[str]) -> bool:
        """Whether a path with these names (its own, and those of its entries) is worth asking ``recognise`` about."""
        return True


class LazyKind(DatasetKind):
    """A built-in kind, whose module is imported only for paths that could be of this kind.

    ``home`` is ``module:NAME``. ``marks`` are name patterns: every path of the kind has such a name, or, for patterns
    that begin with a slash, an entry of such a name.
    """

    first = False

    def __init__(self, home: str, marks: str) -> None:
        self._home = home
        self._names = _any_of(mark for mark in marks.split() if not mark.startswith("/"))
        self._entries = _any_of(mark[1:] for mark in marks.split() if mark.startswith("/"))

    def may_be(self, names: Iterable[str], entries: Iterable[str]) -> bool:
        return any(map(self._names.match, names)) or any(map(self._entries.match, entries))

    def __getattr__(self, name: str) -> Any:
        """On first use, become the kind that the module defines."""
        module, _, variable = self._home.partition(":")
        loaded: DatasetKind = getattr(importlib.import_module(f"shiftbench.datasets.{module}"), variable)
        vars(self).update(vars(loaded))
        return getattr(loaded, name)


def _any_of(marks: Iterable[str]) -> re.Pattern[str]:
    """A pattern that matches the names of any mark; without marks it matches nothing."""
    return re.compile("|".join(map(translate, marks)) or "(?!)")


def own_space(name: str, asked: AskedSpace, *, projectable: bool = False) -> LabelSpace:
    """The label space ``name`` of a dataset whose files determine its classes; asking for another one is an error.

    ``projectable`` accepts the label space of a model whose predictions can be projected onto it, such as imagenet-1k.
    """
    target = label_space(name)
    if isinstance(asked, str):
        asked = label_space(asked)
    if asked is None:
        return target
    if asked.keys == target.keys:
        return asked
    if not projectable:
        raise DatasetError(
            f"the labels of these files are {name}", found=f"the label space {asked.name!r}", expected=name
        )
    target.projection_from(asked)  # raises for unrelated spaces
    return target


def counted_remarks(names_by_remark: Mapping[str, Sequence[str]]) -> list[str]:
    """Each remark that applies to something, with the number of names and an example.

    >>> counted_remarks({"files are ignored": ["notes.txt", "list.csv"], "links are followed": []})
    ['2 files are ignored, such as notes.txt']
    """
    remarks = []
    for remark, names in names_by_remark.items():
        if names:
            remarks.append(f"{len(names)} {remark}, such as {names[0]}")
    return remarks


def entry_names(path: Location, most: int = 4096) -> Iterator[str]:
    """The names of a folder's entries, up to ``most``: a few thousand are enough to recognise it."""
    if is_object(path):
        yield from (entry.name for entry in islice(path.iterdir(), most))
        return
    try:
        with os.scandir(path) as entries:
            yield from (entry.name for entry in islice(entries, most))
    except OSError:  # not a folder, or not readable: opening it reports the reason
        return
