"""What is known about a model's input and output, and where each fact comes from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from shiftbench.classifiers.preprocessing import Preprocessing
from shiftbench.datasets.geometry import Geometry, Size

#: The caller's arguments, a sidecar, the model file, the library the model comes from, the dataset, a trial run, or
#: nothing at all.
FactSource = Literal["given", "sidecar", "file", "library", "data", "measured", "assumed"]

GEOMETRY_FACTS = ("resize", "crop", "interpolation")
NORMALISATION_FACTS = ("mean", "std", "scale", "colour order")
#: Facts that decide the pixels a model sees.
PREPROCESSING_FACTS = (*GEOMETRY_FACTS, *NORMALISATION_FACTS, "layout")


@dataclass(frozen=True)
class Fact:
    """One fact about a model: ``Fact("mean", (0.485, 0.456, 0.406), "assumed")``."""

    name: str
    value: object
    source: FactSource


def preprocessing_values(preprocessing: Preprocessing) -> dict[str, object]:
    """The facts of a preprocessing by name."""
    geometry, normalisation = preprocessing.geometry, preprocessing.normalisation
    values = (
        resize_text(geometry),
        _size_text(geometry.crop) if geometry.crop is not None else "none",
        geometry.interpolation,
        normalisation.mean,
        normalisation.std,
        normalisation.scale,
        normalisation.colour_order,
        normalisation.layout,
    )
    return dict(zip(PREPROCESSING_FACTS, values, strict=True))


def settled_by(keys: Iterable[str]) -> set[str]:
    """The facts that a description with these keys leaves no doubt about.

    A size, a resize or a crop states the whole geometry; both mean and std state that pixels are RGB in [0, 1] unless
    the description says otherwise.

    >>> sorted(settled_by(["size", "mean"]))
    ['crop', 'interpolation', 'mean', 'resize']
    """
    stated = set(keys)
    facts = stated & set(PREPROCESSING_FACTS)
    if stated & {"size", "resize", "crop"}:
        facts |= set(GEOMETRY_FACTS)
    if {"mean", "std"} <= stated:
        facts |= set(NORMALISATION_FACTS)
    return facts | ({"colour order"} if "colour" in stated else set())


def resize_text(geometry: Geometry) -> str:
    """
    >>> resize_text(Geometry(32, None, "exact")), resize_text(Geometry())
    ('squash to 32 x 32', 'short side to 256')
    """
    if geometry.resize is None:
        return "none"
    if geometry.resize_rule == "short":
        return f"short side to {geometry.resize}"
    words = {"exact": "squash to", "fit": "fit into", "cover": "cover"}
    return f"{words[geometry.resize_rule]} {_size_text(geometry.resize)}"


def _size_text(size: Size) -> str:
    height, width = (size, size) if isinstance(size, int) else size
    return f"{height} x {width}"
