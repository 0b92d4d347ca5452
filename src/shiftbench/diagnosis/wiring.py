"""Ways to feed a model and to read its outputs, factor by factor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from shiftbench.classifiers.description import preprocessing_values
from shiftbench.classifiers.preprocessing import Colour, Normalisation, Preprocessing
from shiftbench.datasets.geometry import Geometry, available_interpolations
from shiftbench.labels.space import LabelSpace

#: What is left of the short side after the centre crop.
_CROP_FRACTIONS = (1.0, 0.95, 0.9, 0.875, 0.8, 0.7)
_SIZES = (28, 32, 40, 48, 64, 80, 96, 112, 128, 160, 192, 224, 227, 240, 256, 260, 288, 299, 320, 384, 448, 512)
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


@dataclass(frozen=True)
class Wiring:
    """A preprocessing, and for each class the column of the model's outputs that is read as its score."""

    preprocessing: Preprocessing
    #: None for the order as it is stated.
    columns: tuple[int, ...] | None = None
    #: How the columns came about, for people.
    order: str = field(default="as stated", compare=False)

    def facts(self) -> dict[str, object]:
        return {**preprocessing_values(self.preprocessing), "label order": self.order}

    def changes_from(self, other: Wiring) -> dict[str, tuple[object, object]]:
        """The facts that differ: the other's value and its own."""
        was = other.facts()
        return {fact: (was[fact], value) for fact, value in self.facts().items() if value != was[fact]}

    def space(self, stated: LabelSpace) -> LabelSpace:
        """The classes in the order of the outputs."""
        if self.columns is None:
            return stated
        classes = np.argsort(self.columns)
        return LabelSpace(
            f"{stated.name}, reordered", *(tuple(of[i] for i in classes) for of in (stated.keys, stated.names))
        )


@dataclass(frozen=True)
class ImageFacts:
    """What the candidates depend on besides the present wiring."""

    #: Distinct (width, height).
    sizes: frozenset[tuple[int, int]]
    #: Of all pixels, per channel, on 0 to 1.
    mean: Colour
    std: Colour


Candidates = Callable[[Wiring, ImageFacts], Iterable[Wiring]]


def _normalised(wiring: Wiring, changes: Normalisation) -> Wiring:
    return replace(wiring, preprocessing=replace(wiring.preprocessing, normalisation=changes))


def _resized(wiring: Wiring, changes: Geometry) -> Wiring:
    return replace(wiring, preprocessing=replace(wiring.preprocessing, geometry=changes))


def _values(wiring: Wiring, images: ImageFacts) -> Iterator[Wiring]:
    """Value range, mean and std, in both orders of the channels."""
    present = wiring.preprocessing.normalisation
    other: Literal["rgb", "bgr"] = "bgr" if present.colour_order == "rgb" else "rgb"
    mean, std = present.mean[::-1], present.std[::-1]
    yield _normalised(wiring, replace(present, colour_order=other))
    yield _normalised(wiring, replace(present, colour_order=other, mean=mean, std=std))
    yield _normalised(wiring, replace(present, mean=mean, std=std))
    yield _normalised(wiring, replace(present, scale=_UNIT if present.scale == 1 else 1.0))
    own = (images.mean, images.std, _UNIT)
    for family_mean, family_std, scale in (*_FAMILIES, own):
        rgb = replace(present, mean=family_mean, std=family_std, scale=scale, colour_order="rgb")
        yield _normalised(wiring, rgb)
        bgr = replace(rgb, mean=family_mean[::-1], std=family_std[::-1], colour_order="bgr")
        yield _normalised(wiring, bgr)


def _layout(wiring: Wiring, images: ImageFacts) -> Iterator[Wiring]:
    present = wiring.preprocessing.normalisation
    yield _normalised(wiring, replace(present, layout="nhwc" if present.layout == "nchw" else "nchw"))


def _resize_and_crop(wiring: Wiring, images: ImageFacts) -> Iterator[Wiring]:
    present = wiring.preprocessing.geometry
    if (output := present.output) is None:
        return
    yield _resized(wiring, replace(present, resize=output, crop=None, resize_rule="exact"))
    yield _resized(wiring, replace(present, resize=output, crop=output, resize_rule="fit"))
    yield _resized(wiring, replace(present, resize=None, crop=output, resize_rule="short"))
    if output[0] == output[1]:
        for fraction in _CROP_FRACTIONS:
            short = replace(present, resize=round(output[0] / fraction), crop=output, resize_rule="short")
            yield _resized(wiring, short)
        yield _resized(wiring, replace(present, resize=round(output[0] / 0.875), crop=output, resize_rule="exact"))


def _input_size(wiring: Wiring, images: ImageFacts) -> Iterator[Wiring]:
    present = wiring.preprocessing.geometry
    if present.output is None or present.output[0] != present.output[1]:
        return
    side = present.output[0]
    resize = present.resize if isinstance(present.resize, int) else side
    own = {height for width, height in images.sizes if width == height} if len(images.sizes) == 1 else set()
    for other in sorted({*(size for size in _SIZES if size <= 2 * side), *(size for size in own if size <= 512)}):
        if other != side:
            wider = None if present.resize is None else round(resize * other / side)
            yield _resized(wiring, replace(present, resize=wider, crop=None if present.crop is None else other))


def _interpolation(wiring: Wiring, images: ImageFacts) -> Iterator[Wiring]:
    present = wiring.preprocessing.geometry
    for name in available_interpolations():
        yield _resized(wiring, replace(present, interpolation=name))


#: In the order in which they are searched; the first two are not for models that normalise for themselves.
FACTORS: dict[str, Candidates] = {
    "values and colours": _values,
    "layout": _layout,
    "input size": _input_size,
    "resize and crop": _resize_and_crop,
    "interpolation": _interpolation,
}
NORMALISATION_FACTORS = ("values and colours", "layout")


def alternatives(factor: str, wiring: Wiring, images: ImageFacts) -> list[Wiring]:
    """The candidates that give other inputs than the present wiring, and than each other."""
    seen = {_signature(wiring, images)}
    found = []
    for candidate in FACTORS[factor](wiring, images):
        signature = _signature(candidate, images)
        if signature not in seen:
            seen.add(signature)
            found.append(candidate)
    return found


def _signature(wiring: Wiring, images: ImageFacts) -> object:
    """Equal where every image gives the same input: many rules do the same to images of one size."""
    geometry, values = wiring.preprocessing.geometry, wiring.preprocessing.normalisation
    targets = [(geometry.target(*size), size) for size in sorted(images.sizes)]
    resized = any(target != size for target, size in targets)
    crop = geometry.crop if any(geometry.output != target[::-1] for target, _ in targets) else None
    numbers = tuple(np.round(np.concatenate([values.gain, values.offset]), 4).tolist())
    seen = tuple(target for target, _ in targets), crop, geometry.interpolation if resized else ""
    return seen, numbers, values.colour_order, values.layout, wiring.columns


def reverted(found: Wiring, present: Wiring) -> Iterator[Wiring]:
    """``found`` with one of its changes undone, for each of them."""
    if found.columns != present.columns:
        yield replace(found, columns=present.columns, order=present.order)
    now, was = found.preprocessing, present.preprocessing
    if now.geometry.output == was.geometry.output and now.geometry != was.geometry:
        yield _resized(found, replace(was.geometry, interpolation=now.geometry.interpolation))
    if now.geometry.interpolation != was.geometry.interpolation:
        yield _resized(found, replace(now.geometry, interpolation=was.geometry.interpolation))
    values, before = now.normalisation, was.normalisation
    if (values.mean, values.std, values.scale) != (before.mean, before.std, before.scale):
        mean, std = before.mean, before.std
        if values.colour_order != before.colour_order:
            mean, std = mean[::-1], std[::-1]
        yield _normalised(found, replace(values, mean=mean, std=std, scale=before.scale))
    if values.colour_order != before.colour_order:
        yield _normalised(found, replace(values, colour_order=before.colour_order))
        mean, std = values.mean[::-1], values.std[::-1]
        yield _normalised(found, replace(values, colour_order=before.colour_order, mean=mean, std=std))
    if values.layout != before.layout:
        yield _normalised(found, replace(values, layout=before.layout))
