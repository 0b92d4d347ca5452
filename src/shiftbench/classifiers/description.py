"""One flat vocabulary for preprocessing: a dict, a TOML or JSON file, a sidecar, ``--preprocess`` on the command line.

docs/models.md explains the keys. Only what is stated changes; everything else stays as the model's file, its library or
the documented assumption has it. A ``Fact`` notes who states what.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, structs

from shiftbench.classifiers.preprocessing import ColourOrder, Layout, Preprocessing
from shiftbench.datasets.geometry import Geometry, Interpolation, ResizeRule, Size
from shiftbench.errors import ClassifierError, raising
from shiftbench.io.atomic import parse_json
from shiftbench.io.schema import check_keys, decode, read_toml

#: Words for the rules of ``Geometry``.
RESIZE_WORDS: dict[str, ResizeRule] = {"squash": "exact", "short-side": "short", "fit": "fit", "cover": "cover"}
#: Other spellings of keys: American, and those of ``Normalisation``.
_SYNONYMS = {"colour_order": "colour", "color": "colour", "color_order": "colour"}
_GEOMETRY_KEYS = ("resize", "crop", "resize_rule", "interpolation", "fill", "crop_rounding")
NORMALISATION_KEYS = ("mean", "std", "scale", "colour", "layout")

#: The caller's arguments, a sidecar, the model file, the library the model comes from, the dataset, a trial run, or
#: nothing at all.
FactSource = Literal["given", "sidecar", "file", "library", "data", "measured", "assumed"]
GEOMETRY_FACTS = ("resize", "crop", "interpolation")
NORMALISATION_FACTS = ("mean", "std", "scale", "colour order")
#: Facts that decide the pixels a model sees.
PREPROCESSING_FACTS = (*GEOMETRY_FACTS, *NORMALISATION_FACTS, "layout")


class Description(Struct, frozen=True, kw_only=True):
    """What is stated about a preprocessing; None where nothing is."""

    size: int | list[int] | None = None
    resize: int | list[int] | str | None = None
    crop: int | list[int] | str | None = None
    resize_rule: str | None = None
    interpolation: Interpolation | None = None
    fill: list[int] | None = None
    crop_rounding: Literal["round", "floor"] | None = None
    mean: float | list[float] | None = None
    std: float | list[float] | None = None
    scale: float | str | None = None
    colour: ColourOrder | None = None
    layout: Layout | None = None
    outputs: Literal["logits", "probabilities"] | None = None
    #: Name of the output with the scores, of an ONNX graph with several.
    output: str | None = None

    @property
    def stated(self) -> frozenset[str]:
        return frozenset(key for key, value in structs.asdict(self).items() if value is not None)

    def over(self, base: Preprocessing) -> Preprocessing:
        """``base`` with everything that is stated here in its place."""
        geometry = self._sizes(base.geometry) if {"size", "resize", "crop"} & self.stated else {}
        rule = None if self.resize_rule is None else RESIZE_WORDS.get(self.resize_rule, self.resize_rule)
        others = {"resize_rule": rule, "interpolation": self.interpolation, "fill": self.fill}
        geometry |= _without_none(others | {"crop_rounding": self.crop_rounding})
        values: dict[str, Any] = {}
        for key, value in _without_none({"mean": self.mean, "std": self.std}).items():
            channels = value if isinstance(value, list) else [value]
            if len(set(channels)) > 1 and "grey" in (self.colour, base.normalisation.colour_order):
                raise ClassifierError(f"{key} needs one value for grey images", found=channels, expected="1 number")
            values[key] = channels * 3 if len(channels) == 1 else channels
        if self.scale is not None:
            values["scale"] = _fraction(self.scale)
        elif any(abs(value) > 1 for channels in values.values() for value in channels):
            values["scale"] = 1.0  # of pixels from 0 to 255
        elif len(values) == 2:
            values["scale"] = 1 / 255
        values |= _without_none({"colour_order": self.colour, "layout": self.layout})
        return Preprocessing(replace(base.geometry, **geometry), replace(base.normalisation, **values))

    def _sizes(self, base: Geometry) -> dict[str, Any]:
        crop, resize = None if self.crop == "none" else self.crop, self.resize
        if isinstance(crop, str):
            raise ClassifierError("invalid value of crop", found=repr(crop), expected="pixels, or none")
        if resize is None and self.size is None:
            return {"crop": crop}
        if resize is None:
            if self.crop is not None and crop != self.size:
                first, then = (",".join(map(str, s)) if isinstance(s, list) else s for s in (self.size, self.crop))
                raise ClassifierError(
                    "size and crop contradict each other: size is the input of the model",
                    found=f"size {self.size}, crop {self.crop}",
                    hint=f"resize={first},crop={then} to resize first and crop then",
                )
            return {"resize": self.size, "resize_rule": "exact", "crop": None}
        if resize == "none":
            return {"resize": None, "resize_rule": "short", "crop": crop if self.crop is not None else self.size}
        inside: object
        if isinstance(resize, str):
            if resize not in RESIZE_WORDS:
                expected = f"{', '.join(RESIZE_WORDS)}, none, or pixels"
                raise ClassifierError("invalid value of resize", found=repr(resize), expected=expected)
            side = self.size or base.output
            if side is None:
                raise ClassifierError(f"resize={resize} needs the size of the model's input", hint="add size=...")
            target, rule, inside = side, RESIZE_WORDS[resize], None if resize == "squash" else side
        else:
            target, rule = resize, "short" if isinstance(resize, int) else "exact"
            inside = self.size or (base.output if rule == "short" else None)
        return {"resize": target, "resize_rule": rule, "crop": inside if self.crop is None else crop}


KEYS: tuple[str, ...] = Description.__struct_fields__


def read_description(document: Mapping[str, object], what: str = "the preprocessing") -> Description:
    """From a dict: flat, or in the two halves that ``Preprocessing.describe`` gives."""
    flat = {key: value for key, value in document.items() if key not in ("geometry", "normalisation")}
    for half, keys in (("geometry", _GEOMETRY_KEYS), ("normalisation", ("colour_order", *NORMALISATION_KEYS))):
        if half in document:
            below = document[half]
            if not isinstance(below, Mapping):
                raise ClassifierError(f"invalid value of {half} in {what}", found=repr(below), expected="table")
            check_keys(below, keys, f"[{half}] of {what}", ClassifierError, half)
            flat.update(below)
    stated: dict[str, object] = {}
    for key, value in flat.items():
        if value is None and key in ("resize", "crop"):  # a null says that there is none
            value = "none"
        value = value.tolist() if hasattr(value, "tolist") else value
        value = "grey" if value == "gray" else list(value) if isinstance(value, tuple) else value
        stated[_SYNONYMS.get(key, key)] = value
    return decode(_without_none(stated), Description, what, ClassifierError)


def parse_description(text: str) -> dict[str, object]:
    """``size=32,mean=0.49,0.48,0.45,std=0.25,resize=squash`` as a dict; ``size=40x56`` and brackets are accepted."""
    values: dict[str, list[object]] = {}
    key = ""
    for part in text.split(","):
        name, equals, value = part.partition("=")
        twice = equals and name.strip() in values
        if equals:
            key = name.strip()
            values[key] = []
        value = (value if equals else name).strip(" []()")
        if not key or not value or twice:
            raise ClassifierError(
                "invalid preprocessing",
                found=repr(text),
                expected="key=value,..., each key once: size=32,mean=0.5,std=0.25; or a .toml or .json file",
            )
        sides = re.fullmatch(r"(\d+) ?x ?(\d+)", value)  # height x width, as `describe` shows them
        values[key] += map(int, sides.groups()) if sides else [_number_or_text(value)]
    return {key: found[0] if len(found) == 1 else found for key, found in values.items()}


def _number_or_text(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _fraction(scale: float | str) -> float:
    try:
        above, slash, below = str(scale).partition("/")
        return float(above) / float(below) if slash else float(scale)
    except (ValueError, ZeroDivisionError):
        raise ClassifierError("invalid value of scale", found=repr(scale), expected="a number, or 1/255") from None


def _without_none(values: Mapping[str, object]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def read_description_file(path: Path) -> dict[str, Any]:
    """The keys of a TOML or JSON file."""
    if path.suffix.lower() == ".toml":
        return read_toml(path, ClassifierError)
    with raising(ClassifierError, f"{path.name} is not valid JSON", ValueError):
        content = parse_json(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        raise ClassifierError(f"{path.name} describes no model", found=type(content).__name__, expected="an object")
    return content


def flat_description(preprocessing: Preprocessing, *, pixels: bool = False) -> dict[str, object]:
    """A preprocessing in the flat vocabulary; ``pixels``: without the normalisation, which such a model does itself."""
    geometry, normalisation = preprocessing.geometry, preprocessing.normalisation
    resize, crop = (
        "none" if size is None else size if isinstance(size, int) else list(size)
        for size in (geometry.resize, geometry.crop)
    )
    flat: dict[str, object] = {"resize": resize, "crop": crop}
    if geometry.resize is not None and geometry.resize_rule == "exact" and geometry.crop is None:
        flat = {"size": resize, "resize": "squash"}
    elif geometry.resize_rule != ("exact" if isinstance(geometry.resize, tuple) else "short"):
        flat["resize_rule"] = next(word for word, rule in RESIZE_WORDS.items() if rule == geometry.resize_rule)
    flat["interpolation"] = geometry.interpolation
    if geometry.fill != (0, 0, 0):
        flat["fill"] = list(geometry.fill)
    if geometry.crop_rounding != "round":
        flat["crop_rounding"] = geometry.crop_rounding
    if pixels:
        return flat
    flat |= {key: list(getattr(normalisation, key)[: normalisation.channels]) for key in ("mean", "std")}
    flat |= {"scale": "1/255" if normalisation.scale == 1 / 255 else normalisation.scale}
    return flat | {"colour": normalisation.colour_order, "layout": normalisation.layout}


def description_text(values: Mapping[str, object]) -> str:
    """As ``parse_description`` reads it."""
    texts = ((k, ",".join(f"{part:g}" for part in v) if isinstance(v, list) else v) for k, v in values.items())
    return ",".join(f"{key}={value}" for key, value in texts)


def fact_text(value: object) -> str:
    """The value of a fact for people."""
    if isinstance(value, tuple):
        return ", ".join(f"{part:g}" for part in value)
    return "1/255" if value == 1 / 255 else f"{value:g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class Fact:
    """One fact about a model: ``Fact("mean", (0.485, 0.456, 0.406), "assumed")``."""

    name: str
    value: object
    source: FactSource


def preprocessing_values(preprocessing: Preprocessing) -> dict[str, object]:
    """The facts of a preprocessing by name."""

    def sides(size: Size | None) -> str:
        return "none" if size is None else f"{size} x {size}" if isinstance(size, int) else f"{size[0]} x {size[1]}"

    geometry, values = preprocessing.geometry, preprocessing.normalisation
    words = {"short": "short side to", "exact": "squash to", "fit": "fit into", "cover": "cover"}
    target = geometry.resize if geometry.resize_rule == "short" else sides(geometry.resize)
    resize = "none" if geometry.resize is None else f"{words[geometry.resize_rule]} {target}"
    cut = (resize, sides(geometry.crop), geometry.interpolation)
    per_channel = (values.mean[: values.channels], values.std[: values.channels])
    normalised = (*per_channel, values.scale, values.colour_order, values.layout)
    return dict(zip(PREPROCESSING_FACTS, (*cut, *normalised), strict=True))


def settled_by(keys: Iterable[str]) -> set[str]:
    """The facts that a description with these keys leaves no doubt about.

    A size, a resize or a crop states the whole geometry; both mean and std state that pixels are RGB in [0, 1] unless
    the description says otherwise.
    """
    stated = set(keys)
    facts = stated & set(PREPROCESSING_FACTS)
    if stated & {"size", "resize", "crop"}:
        facts |= set(GEOMETRY_FACTS)
    if {"mean", "std"} <= stated:
        facts |= set(NORMALISATION_FACTS)
    return facts | ({"colour order"} if "colour" in stated else set())
