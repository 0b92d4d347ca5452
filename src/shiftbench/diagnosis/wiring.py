"""Ways to feed a model and to read its outputs, factor by factor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, get_args

import numpy as np

from shiftbench.arrays import FloatArray, Pixels
from shiftbench.classifiers.description import preprocessing_values
from shiftbench.classifiers.preprocessing import Colour, ColourOrder, Layout, Normalisation, Preprocessing
from shiftbench.datasets.geometry import Geometry, available_interpolations
from shiftbench.labels.space import LabelSpace

#: What is left of the short side after the centre crop.
_CROP_FRACTIONS = (1.0, 0.95, 0.9, 0.875, 0.8, 0.7)
_SIZES = (28, 32, 40, 48, 64, 80, 96, 112, 128, 160, 192, 224, 227, 240, 256, 260, 288, 299, 320, 384, 448, 512)
#: Images of this side or less may have the size of the model's input.
_LARGEST_SIDE = 512
_UNIT = 1 / 255
#: Mean, std and scale, in the order R, G, B, as frameworks and papers have them.
_FAMILIES: tuple[tuple[Colour, Colour, float], ...] = (
    ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225), _UNIT),  # torchvision
    ((0.0,) * 3, (1.0,) * 3, _UNIT),
    ((0.0,) * 3, (1.0,) * 3, 1.0),
    ((0.5,) * 3, (0.5,) * 3, _UNIT),  # TensorFlow, Inception
    ((0.5,) * 3, (1.0,) * 3, _UNIT),
    ((123.68, 116.779, 103.939), (1.0,) * 3, 1.0),  # Caffe
    ((123.68, 116.779, 103.939), (58.393, 57.12, 57.375), _UNIT),  # the values of 0 to 255 on 0 to 1
    ((0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616), _UNIT),  # CIFAR-10
    ((0.4815, 0.4578, 0.4082), (0.2686, 0.2613, 0.2758), _UNIT),  # CLIP
)
_ORIENTATIONS: tuple[Literal["ignore", "apply"], ...] = ("ignore", "apply")
_BACKGROUNDS: tuple[Literal["drop", "white", "black"], ...] = ("drop", "white", "black")
VALUES = "values and colours"
FITTED = "fitted mean and std"
REFINED = "refined mean and std"
INPUT_SIZE = "input size"
#: Faults of the pixels that no option describes.
AS_READ = "as read"
VIEWS: dict[str, Callable[[Pixels], Pixels]] = {
    AS_READ: lambda pixels: pixels,
    "transposed": lambda pixels: pixels.swapaxes(0, 1),
    "upside down": lambda pixels: pixels[::-1],
    "turned left": lambda pixels: np.rot90(pixels),
    "turned right": lambda pixels: np.rot90(pixels, -1),
    "negative": lambda pixels: 255 - pixels,
}


@dataclass(frozen=True)
class Wiring:
    """A preprocessing, and for each class the column of the model's outputs that is read as its score."""

    preprocessing: Preprocessing
    #: One of ``VIEWS``.
    image: str = AS_READ
    #: None for the order as it is stated.
    columns: tuple[int, ...] | None = None
    #: How the columns came about, for people.
    order: str = field(default="as stated", compare=False)

    def having(self, change: Geometry | Normalisation | str) -> Wiring:
        """With another resize and crop, other values, or another view of the images."""
        if isinstance(change, str):
            return replace(self, image=change)
        if isinstance(change, Geometry):
            return replace(self, preprocessing=replace(self.preprocessing, geometry=change))
        return replace(self, preprocessing=replace(self.preprocessing, normalisation=change))

    def facts(self) -> dict[str, object]:
        return {**preprocessing_values(self.preprocessing), "image": self.image, "label order": self.order}

    def changes_from(self, other: Wiring) -> dict[str, tuple[object, object]]:
        """The facts that differ: the other's value and its own."""
        was = other.facts()
        return {fact: (was[fact], value) for fact, value in self.facts().items() if value != was[fact]}

    def space(self, stated: LabelSpace) -> LabelSpace:
        """The classes in the order of the outputs."""
        if self.columns is None:
            return stated
        classes = np.argsort(self.columns).tolist()
        keys = tuple(stated.keys[label] for label in classes)
        names = tuple(stated.names[label] for label in classes)
        return LabelSpace(f"{stated.name}, reordered", keys, names)


@dataclass(frozen=True)
class ImageFacts:
    """What the candidates depend on besides the present wiring."""

    #: Distinct (width, height).
    sizes: frozenset[tuple[int, int]]
    #: Mean of all pixels, per channel, on 0 to 1.
    mean: Colour
    std: Colour
    #: Whether any file states an orientation of its image, and whether any image is transparent.
    turned: bool = False
    transparent: bool = False


Candidates = Callable[[Preprocessing, ImageFacts], Iterable[Geometry | Normalisation | str]]


def other_colour_order(values: Normalisation) -> ColourOrder:
    """BGR instead of RGB, or the reverse; a grey image has one channel in either order."""
    if values.channels != 3:
        return values.colour_order
    return "bgr" if values.colour_order == "rgb" else "rgb"


def _values(preprocessing: Preprocessing, images: ImageFacts) -> Iterator[Normalisation]:
    """Value range, mean and std, in both orders of the channels."""
    present = preprocessing.normalisation
    first, second = get_args(ColourOrder)[:2] if present.channels == 3 else ("grey", "grey")
    order = other_colour_order(present)
    reversed_mean = present.mean[::-1]
    reversed_std = present.std[::-1]
    yield replace(present, colour_order=order)
    yield replace(present, colour_order=order, mean=reversed_mean, std=reversed_std)
    yield replace(present, mean=reversed_mean, std=reversed_std)
    yield replace(present, scale=_UNIT if present.scale == 1 else 1.0)
    # The negative image, 255 - x.
    negative_mean = rounded(255 * present.scale - np.array(present.mean))
    yield replace(present, mean=negative_mean, std=rounded(-np.array(present.std)))
    for mean, std, scale in (*_FAMILIES, (images.mean, images.std, _UNIT)):
        yield replace(present, mean=mean, std=std, scale=scale, colour_order=first)
        yield replace(present, mean=mean[::-1], std=std[::-1], scale=scale, colour_order=second)


def _nearby_values(
    preprocessing: Preprocessing, images: ImageFacts, *, steps: Sequence[float]
) -> Iterator[Normalisation]:
    """Mean shifted by parts of the images' deviation, std multiplied, of all channels or of one."""
    present = preprocessing.normalisation
    mean = np.array(present.mean)
    std = np.array(present.std)
    deviation = 255 * present.scale * np.mean(images.std)
    groups = [np.ones(3)]
    if present.channels == 3:
        groups += list(np.eye(3))
    for group in groups:
        for step in steps:
            yield replace(present, mean=rounded(mean + deviation * step * group))
            yield replace(present, std=rounded(std * 2 ** (step * group)))


def rounded(values: FloatArray) -> Colour:
    """To four digits."""
    red, green, blue = (float(f"{value:.4g}") for value in values)
    return red, green, blue


def _resize_and_crop(preprocessing: Preprocessing, images: ImageFacts) -> Iterator[Geometry]:
    present = preprocessing.geometry
    output = present.output
    if output is None:
        return
    yield replace(present, resize=output, crop=None, resize_rule="exact")
    yield replace(present, resize=output, crop=output, resize_rule="fit")
    yield replace(present, resize=None, crop=output, resize_rule="short")
    if output[0] == output[1]:
        for fraction in _CROP_FRACTIONS:
            yield replace(present, resize=round(output[0] / fraction), crop=output, resize_rule="short")
        yield replace(present, resize=round(output[0] / 0.875), crop=output, resize_rule="exact")


def _input_size(preprocessing: Preprocessing, images: ImageFacts) -> Iterator[Geometry]:
    """Other square inputs, resized in proportion: first the size that all images have, then the usual sizes."""
    present = preprocessing.geometry
    if present.output is None or present.output[0] != present.output[1]:
        return
    side = present.output[0]
    resize = present.resize if isinstance(present.resize, int) else side
    sides = [size for size in _SIZES if size <= 2 * side]
    if len(images.sizes) == 1:
        [(width, height)] = images.sizes
        if width == height <= _LARGEST_SIDE:
            sides.insert(0, height)  # the size of the images themselves comes first
    for new_side in dict.fromkeys(sides):
        if new_side == side:
            continue
        new_resize = None if present.resize is None else round(resize * new_side / side)
        new_crop = None if present.crop is None else new_side
        yield replace(present, resize=new_resize, crop=new_crop)


def _decoding(preprocessing: Preprocessing, images: ImageFacts) -> Iterator[Geometry]:
    """The orientation in EXIF data applied or not, and transparent images on other backgrounds, if there are any."""
    present = preprocessing.geometry
    orientations = _ORIENTATIONS if images.turned else (present.exif,)
    backgrounds = _BACKGROUNDS if images.transparent else (present.alpha,)
    for exif in orientations:
        for alpha in backgrounds:
            yield replace(present, exif=exif, alpha=alpha)


def _layout(preprocessing: Preprocessing, images: ImageFacts) -> Iterator[Normalisation]:
    for layout in get_args(Layout):
        yield replace(preprocessing.normalisation, layout=layout)


def _interpolation(preprocessing: Preprocessing, images: ImageFacts) -> Iterator[Geometry]:
    for name in available_interpolations():
        yield replace(preprocessing.geometry, interpolation=name)


def _orientation(preprocessing: Preprocessing, images: ImageFacts) -> Iterator[str]:
    """The views of an image that has been turned or mirrored."""
    yield from ("transposed", "upside down", "turned left", "turned right")


def _pixels(preprocessing: Preprocessing, images: ImageFacts) -> Iterator[Normalisation | str]:
    """What can be wrong with the values for a model that takes pixels: the order of the channels, and the sign."""
    present = preprocessing.normalisation
    yield replace(present, colour_order=other_colour_order(present))
    yield "negative"


#: In the order in which they are searched.
FACTORS: dict[str, Candidates] = {
    VALUES: _values,
    "layout": _layout,
    INPUT_SIZE: _input_size,
    "resize and crop": _resize_and_crop,
    "interpolation": _interpolation,
    "decoding": _decoding,
    "orientation": _orientation,
    "pixels": _pixels,
    FITTED: partial(_nearby_values, steps=(1, -1)),
    REFINED: partial(_nearby_values, steps=(1, -1, 0.5, -0.5)),
}


def factors(takes_pixels: bool) -> list[str]:
    """Those that can be varied from outside, without the fits, which are searched apart."""
    inside = (VALUES, "layout") if takes_pixels else ("pixels",)
    return [name for name in FACTORS if name not in (*inside, FITTED, REFINED)]


def alternatives(factor: str, wiring: Wiring, images: ImageFacts) -> list[Wiring]:
    """The candidates that give other inputs than the present wiring, and than each other."""
    distinct = {_signature(wiring, images): wiring}
    for change in FACTORS[factor](wiring.preprocessing, images):
        candidate = wiring.having(change)
        distinct.setdefault(_signature(candidate, images), candidate)
    return list(distinct.values())[1:]


def _signature(wiring: Wiring, images: ImageFacts) -> object:
    """Equal where every image gives the same input: many rules do the same to images of one size."""
    geometry = wiring.preprocessing.geometry
    values = wiring.preprocessing.normalisation
    sizes = sorted(images.sizes)
    targets = tuple(geometry.target(*size) for size in sizes)
    crop = None
    if any(geometry.output != target[::-1] for target in targets):
        crop = geometry.crop
    interpolation = ""
    if any(target != size for target, size in zip(targets, sizes, strict=True)):
        interpolation = geometry.interpolation
    numbers = tuple(np.round(np.concatenate([values.gain, values.offset]), 4).tolist())
    pixels = (targets, crop, interpolation, geometry.decoding)
    return pixels, numbers, values.colour_order, values.layout, wiring.image, wiring.columns


def reverted(candidate: Wiring, present: Wiring) -> Iterator[Wiring]:
    """``candidate`` with one of its changes undone, for each of them."""
    geometry = candidate.preprocessing.geometry
    values = candidate.preprocessing.normalisation
    stated_geometry = present.preprocessing.geometry
    stated_values = present.preprocessing.normalisation
    yield replace(candidate, columns=present.columns, order=present.order)
    yield candidate.having(present.image)
    yield candidate.having(stated_geometry)
    yield candidate.having(replace(stated_geometry, exif=geometry.exif, alpha=geometry.alpha))
    yield candidate.having(replace(geometry, exif=stated_geometry.exif))
    yield candidate.having(replace(geometry, alpha=stated_geometry.alpha))
    yield candidate.having(stated_values)
    yield candidate.having(replace(values, layout=stated_values.layout))
    yield candidate.having(replace(geometry, interpolation=stated_geometry.interpolation))
    if values.colour_order != stated_values.colour_order:
        yield candidate.having(_in_order(values, stated_values.colour_order))
        yield candidate.having(_in_order(stated_values, values.colour_order))
        yield candidate.having(replace(values, colour_order=stated_values.colour_order))


def _in_order(values: Normalisation, order: ColourOrder) -> Normalisation:
    """The same mean and std of each colour, with the channels in the other order."""
    return replace(values, colour_order=order, mean=values.mean[::-1], std=values.std[::-1])
