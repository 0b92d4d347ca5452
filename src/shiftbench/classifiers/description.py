"""One flat vocabulary for preprocessing: a dict, a TOML or JSON file, a sidecar, ``--preprocess`` on the command line.

docs/models.md explains the keys. Only what is stated changes; everything else stays as the model's file, its library or
the documented assumption has it. A ``Fact`` notes who states what.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, structs

from shiftbench.classifiers.preprocessing import Layout, Normalisation, Preprocessing
from shiftbench.datasets.geometry import Geometry, Interpolation, ResizeRule, Size
from shiftbench.errors import ClassifierError
from shiftbench.io.schema import check_keys, decode, read_toml

#: Words for the rules of ``Geometry``.
RESIZE_WORDS: dict[str, ResizeRule] = {"squash": "exact", "short-side": "short", "fit": "fit", "cover": "cover"}
#: Other spellings of keys: American, and those of ``Normalisation``.
_SYNONYMS = {"colour_order": "colour", "color": "colour", "color_order": "colour"}
#: Keys that state where the pixels come from, and those that state what is done to their values.
GEOMETRY_KEYS = ("size", "resize", "crop", "resize_rule", "interpolation", "fill", "crop_rounding")
NORMALISATION_KEYS = ("mean", "std", "scale", "colour", "layout")


class Description(Struct, frozen=True, kw_only=True):
    """What is stated about a preprocessing; None where nothing is.

    >>> Description(size=32, mean=0.5, std=0.25).over(Preprocessing()).normalisation.mean
    (0.5, 0.5, 0.5)
    >>> Description(size=32).over(Preprocessing()).geometry
    Geometry(resize=32, crop=None, resize_rule='exact', interpolation='bilinear', fill=(0, 0, 0), crop_rounding='round')
    """

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
    colour: Literal["rgb", "bgr"] | None = None
    layout: Layout | None = None
    outputs: Literal["logits", "probabilities"] | None = None

    @property
    def stated(self) -> frozenset[str]:
        """The keys that have a value."""
        return frozenset(key for key, value in structs.asdict(self).items() if value is not None)

    def over(self, base: Preprocessing) -> Preprocessing:
        """``base`` with everything that is stated here in its place."""
        return Preprocessing(self._geometry(base.geometry), self._normalisation(base.normalisation))

    def _geometry(self, base: Geometry) -> Geometry:
        changes: dict[str, Any] = {}
        if {"size", "resize", "crop"} & self.stated:
            changes = self._size_changes(base)
        if self.resize_rule is not None:
            changes["resize_rule"] = RESIZE_WORDS.get(self.resize_rule, self.resize_rule)
        for key in ("interpolation", "fill", "crop_rounding"):
            if getattr(self, key) is not None:
                changes[key] = getattr(self, key)
        return replace(base, **changes) if changes else base

    def _size_changes(self, base: Geometry) -> dict[str, Any]:
        crop = None if self.crop == "none" else self.crop
        if isinstance(self.crop, str) and crop is not None:
            raise ClassifierError("invalid value of crop", found=repr(self.crop), expected="pixels, or none")
        if self.resize is None and self.size is None:  # only a crop
            return {"crop": crop}
        if self.resize is None:
            if self.crop is not None and crop != self.size:
                raise ClassifierError(
                    "size and crop contradict each other: size is the input of the model",
                    found=f"size {self.size}, crop {self.crop}",
                    hint=f"resize={_text(self.size)},crop={_text(self.crop)} to resize first and crop then",
                )
            return {"resize": self.size, "resize_rule": "exact", "crop": None}
        if self.resize == "none":
            return {"resize": None, "resize_rule": "short", "crop": crop if self.crop is not None else self.size}
        if isinstance(self.resize, str):
            return self._by_word(self.resize, base)
        rule = "short" if isinstance(self.resize, int) else "exact"
        inside = self.size or (base.output if rule == "short" else None)
        return {"resize": self.resize, "resize_rule": rule, "crop": inside if self.crop is None else crop}

    def _by_word(self, word: str, base: Geometry) -> dict[str, Any]:
        if word not in RESIZE_WORDS:
            raise ClassifierError(
                "invalid value of resize", found=repr(word), expected=f"{', '.join(RESIZE_WORDS)}, none, or pixels"
            )
        side = self.size or base.output
        if side is None:
            raise ClassifierError(f"resize={word} needs the size of the model's input", hint="add size=...")
        crop = None if word == "squash" else side
        if self.crop is not None:
            crop = None if self.crop == "none" else self.crop  # type: ignore[assignment]
        return {"resize": side, "resize_rule": RESIZE_WORDS[word], "crop": crop}

    def _normalisation(self, base: Normalisation) -> Normalisation:
        changes: dict[str, Any] = {}
        for key in ("mean", "std"):
            value = getattr(self, key)
            if value is not None:
                values = value if isinstance(value, list) else [value]
                changes[key] = values * 3 if len(values) == 1 else values
        if self.scale is not None:
            changes["scale"] = _fraction(self.scale)
        elif any(abs(value) > 1 for values in changes.values() for value in values):
            changes["scale"] = 1.0  # of pixels from 0 to 255
        elif len(changes) == 2:
            changes["scale"] = 1 / 255
        if self.colour is not None:
            changes["colour_order"] = self.colour
        if self.layout is not None:
            changes["layout"] = self.layout
        return replace(base, **changes) if changes else base


def read_description(document: Mapping[str, Any], what: str = "the preprocessing") -> Description:
    """From a dict: flat, or in the two halves that ``Preprocessing.describe`` gives.

    >>> read_description({"geometry": {"crop": None}, "normalisation": {"colour_order": "bgr"}}).colour
    'bgr'
    """
    flat = {key: value for key, value in document.items() if key not in ("geometry", "normalisation")}
    for half, keys in (("geometry", GEOMETRY_KEYS[1:]), ("normalisation", ("colour_order", *NORMALISATION_KEYS))):
        if half in document:
            below = document[half]
            if not isinstance(below, Mapping):
                raise ClassifierError(f"invalid value of {half} in {what}", found=repr(below), expected="table")
            check_keys(below, keys, f"[{half}] of {what}", ClassifierError, half)
            flat.update(below)
    plain = {_SYNONYMS.get(key, key): _plain(key, value) for key, value in flat.items()}
    stated = {key: value for key, value in plain.items() if value is not None}
    return decode(stated, Description, what, ClassifierError)


def parse_description(text: str) -> dict[str, Any]:
    """``size=32,mean=0.49,0.48,0.45,std=0.25,resize=squash`` as a dict.

    >>> parse_description("size=32,mean=0.5,0.4,0.3,scale=1/255")
    {'size': 32, 'mean': [0.5, 0.4, 0.3], 'scale': '1/255'}
    """
    values: dict[str, list[Any]] = {}
    key = ""
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if equals:
            key = name.strip()
            values[key] = []
        if not key or not (value if equals else name).strip():
            raise ClassifierError(
                "invalid preprocessing",
                found=repr(text),
                expected="key=value,key=value, such as size=32,mean=0.5,std=0.25; or a .toml or .json file",
            )
        values[key].append(_value((value if equals else name).strip()))
    return {key: found[0] if len(found) == 1 else found for key, found in values.items()}


def read_description_file(path: Path) -> dict[str, Any]:
    """The keys of a TOML or JSON file."""
    if path.suffix.lower() == ".toml":
        return read_toml(path, ClassifierError)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ClassifierError(f"{path.name} is not valid JSON", found=error) from error
    if not isinstance(content, dict):
        raise ClassifierError(f"{path.name} describes no model", found=type(content).__name__, expected="an object")
    return content


def flat_description(preprocessing: Preprocessing, *, pixels: bool = False) -> dict[str, Any]:
    """A preprocessing in the flat vocabulary; ``pixels``: without the normalisation, for models that do it themselves.

    >>> flat_description(Preprocessing())["resize"], flat_description(Preprocessing())["scale"]
    (256, '1/255')
    >>> read_description(flat_description(Preprocessing())).over(Preprocessing(Geometry(8))) == Preprocessing()
    True
    """
    geometry, normalisation = preprocessing.geometry, preprocessing.normalisation
    flat = _flat_geometry(geometry)
    if pixels:
        return flat
    flat |= {"mean": list(normalisation.mean), "std": list(normalisation.std)}
    flat |= {"scale": "1/255" if normalisation.scale == 1 / 255 else normalisation.scale}
    return flat | {"colour": normalisation.colour_order, "layout": normalisation.layout}


def _flat_geometry(geometry: Geometry) -> dict[str, Any]:
    flat: dict[str, Any]
    if geometry.resize is not None and geometry.resize_rule == "exact" and geometry.crop is None:
        flat = {"size": _listed(geometry.resize), "resize": "squash"}
    else:
        flat = {"resize": _listed(geometry.resize), "crop": _listed(geometry.crop)}
        usual = "exact" if isinstance(geometry.resize, tuple) else "short"
        if geometry.resize_rule != usual:
            flat["resize_rule"] = next(word for word, rule in RESIZE_WORDS.items() if rule == geometry.resize_rule)
    flat["interpolation"] = geometry.interpolation
    if geometry.fill != (0, 0, 0):
        flat["fill"] = list(geometry.fill)
    if geometry.crop_rounding != "round":
        flat["crop_rounding"] = geometry.crop_rounding
    return flat


def description_text(values: Mapping[str, Any]) -> str:
    """As ``parse_description`` reads it.

    >>> description_text({"size": [32, 48], "mean": 0.5})
    'size=32,48,mean=0.5'
    """
    return ",".join(
        f"{key}={','.join(f'{part:g}' for part in value) if isinstance(value, list) else value}"
        for key, value in values.items()
    )


def _plain(key: str, value: Any) -> Any:
    """Tuples and NumPy values as msgspec reads them; a null says that there is no resize or crop."""
    if value is None:
        return "none" if key in ("resize", "crop") else None
    value = value.tolist() if hasattr(value, "tolist") else value
    return list(value) if isinstance(value, tuple) else value


def _value(text: str) -> int | float | str:
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


def _listed(size: Size | None) -> int | list[int] | str:
    return "none" if size is None else size if isinstance(size, int) else list(size)


def _text(size: object) -> str:
    return ",".join(map(str, size)) if isinstance(size, list) else str(size)


KEYS: tuple[str, ...] = Description.__struct_fields__


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
