"""A dataset: ordered labelled images with stable ids, a label space and a fingerprint of its content."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import DTypeLike, NDArray

from shiftbench.arrays import Pixels
from shiftbench.errors import BadImageError, listed
from shiftbench.io import html
from shiftbench.labels.space import Labels, LabelSets, LabelSpace

if TYPE_CHECKING:
    from PIL.Image import Image

#: Images that a notebook shows of a dataset.
_SHOWN = 12


@dataclass(frozen=True)
class DecodedImage:
    """One decoded image: RGB uint8 (H, W, 3), and the conversion that decoding needed ("" if none).

    Attributes:
        pixels: uint8 (H, W, 3), RGB.
        converted: The conversion that decoding needed; empty if none.
    """

    pixels: Pixels
    converted: str = ""


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
        sets, names = self.dataset.label_sets, self.dataset.space.names
        own = sets[self.index] if sets is not None else (self.label,) * (self.label >= 0)
        return listed(names[label] for label in own)

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


class Dataset(ABC):
    """Ordered labelled images.

    ``dataset[0]`` is a ``LabelledImage`` with ``image``, ``pixels``, ``label``, ``label_name`` and ``id``;
    ``dataset[:100]`` is a dataset of the first 100 images; ``for item in dataset`` goes through all.

    To add a kind of dataset, set the attributes and implement ``fingerprint`` and ``read``. Implementations read one
    image at a time and are picklable, so that workers can open them again.
    """

    name: str
    space: LabelSpace
    #: Stable, unique names of the images, in order. They do not depend on the location of the data.
    ids: Sequence[str]
    #: For each image its class as an index into ``space``; -1 for images with no label or several.
    labels: Labels
    #: What was odd about the files when the dataset was opened, for people.
    remarks: Sequence[str] = ()

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """A hash of the ids, labels and image bytes: equal content, equal fingerprint."""

    @abstractmethod
    def read(self, index: int) -> DecodedImage:
        """Decode one image.

        Args:
            index: Its place in ``ids``.

        Raises:
            BadImageError: The image can't be used.
            DatasetError: It is no longer the image that the fingerprint is of. Nothing else is raised.
        """

    @property
    def label_sets(self) -> LabelSets | None:
        """For each image all its classes, ascending, where images may have several; None where each has one."""
        return None

    @property
    def metadata(self) -> Mapping[str, Sequence[Any]]:
        """Further columns, one value per image."""
        return {}

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
        return f"<{type(self).__name__} {self.name!r}: {self._about}>"

    @property
    def _about(self) -> str:
        return f"{len(self):,} images, {len(self.space)} classes of {self.space.name}"

    def _repr_html_(self) -> str:
        """Images from all over the dataset, so that most classes are seen."""
        chosen = np.unique(np.linspace(0, len(self) - 1, min(_SHOWN, len(self))).round().astype(int)).tolist()
        return html.block(html.title(self.name, self._about), html.grid(_figure(self[i]) for i in chosen))


def _figure(item: LabelledImage) -> str:
    try:
        return html.figure(item.pixels, item.label_name, item.id)
    except BadImageError:
        return html.missing_figure(item.label_name, item.id)
