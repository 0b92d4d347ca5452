"""One flat vocabulary for preprocessing: a dict, a TOML or JSON file, a sidecar, ``--preprocess`` on the command line.

docs/models.md explains the keys. Only what is stated changes; everything else stays as the model's file, its library or
the documented assumption has it. A ``Fact`` notes who states what; a fact that nobody states is assumed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, structs

from shiftbench.classifiers.preprocessing import ColourOrder, Layout, Preprocessing
from shiftbench.datasets.base import Decoding
from shiftbench.datasets.geometry import Geometry, Interpolation, ResizeRule, Size
from shiftbench.errors import ClassifierError, raising
from shiftbench.io.atomic import parse_json
from shiftbench.io.schema import check_keys, decode, read_toml

#: Words for the rules of ``Geometry``.
RESIZE_WORDS: dict[str, ResizeRule] = {"squash": "exact", "short-side": "short", "fit": "fit", "cover": "cover"}
#: Other spellings of keys: American, and those of ``Normalisation``.
_SYNONYMS = {"colour_order": "colour", "color": "colour", "color_order": "colour"}
_GEOMETRY_KEYS = ("resize", "crop", "resize_rule", "interpolation", "fill", "crop_rounding", "exif", "alpha")
NORMALISATION_KEYS = ("mean", "std", "scale", "colour", "layout")

#: Who states a fact: the caller's arguments, a sidecar, the model file, the library the model comes from, the dataset,
#: a trial run, or nobody. A "default" is an assumption that matters for few images: a run reports whether it met any.
FactSource = Literal["given", "sidecar", "file", "library", "data", "measured", "default", "assumed"]
#: Sources that hold for every dataset. The images of one dataset may leave a fact open that matters for others.
STATING_SOURCES: tuple[FactSource, ...] = ("given", "sidecar", "file", "library", "measured")
GEOMETRY_FACTS = ("resize", "crop", "interpolation")
NORMALISATION_FACTS = ("mean", "std", "scale", "colour order")
#: Facts that decide the pixels a model sees.
PREPROCESSING_FACTS = (*GEOMETRY_FACTS, *NORMALISATION_FACTS, "layout")
#: Facts about image files with an orientation or transparency.
DECODING_FACTS = ("exif", "alpha")
#: Keys that state a fact of another name.
_FACTS_OF_KEYS = {"colour": "colour order"}
#: The size of the input follows from both of these.
_SIZE_FACTS = frozenset({"resize", "crop"})
#: The values that a network receives follow from all of these.
_VALUE_FACTS = frozenset({"mean", "std", "scale"})


class Description(Struct, frozen=True, kw_only=True):
    """What is stated about a preprocessing; a value that is not stated is None."""

    size: int | list[int] | None = None
    resize: int | list[int] | str | None = None
    crop: int | list[int] | str | None = None
    resize_rule: str | None = None
    interpolation: Interpolation | None = None
    fill: list[int] | None = None
    crop_rounding: Literal["round", "floor"] | None = None
    exif: Literal["ignore", "apply"] | None = None
    alpha: Literal["drop", "white", "black"] | None = None
    mean: float | list[float] | None = None
    std: float | list[float] | None = None
    scale: float | str | None = None
    colour: ColourOrder | None = None
    layout: Layout | None = None
    outputs: Literal["logits", "probabilities"] | None = None
    #: Name of the output with the scores, of an ONNX graph with several.
    output: str | None = None
    #: Keys whose values were assumed when the description was written. They are used, and stay assumptions.
    assumed: list[str] | None = None

    @property
    def keys(self) -> frozenset[str]:
        """The keys that have a value, whether stated or assumed."""
        return frozenset(key for key, value in structs.asdict(self).items() if value is not None) - {"assumed"}

    @property
    def stated(self) -> frozenset[str]:
        """The keys that have a value that is not marked as assumed."""
        return self.keys - set(self.assumed or ())

    @property
    def facts(self) -> frozenset[str]:
        """The facts that the values of this description decide, whether stated or assumed."""
        return self._facts_of(self.keys)

    @property
    def stated_facts(self) -> frozenset[str]:
        """The facts that this description leaves no doubt about."""
        return self._facts_of(self.stated)

    def _facts_of(self, keys: frozenset[str]) -> frozenset[str]:
        """The facts that some of the keys state.

        The size of the input alone states neither how an image becomes that large nor by which filter, and mean and
        std do not state the order of the channels.
        """
        facts = {_FACTS_OF_KEYS.get(key, key) for key in keys} & {*PREPROCESSING_FACTS, *DECODING_FACTS}
        if {"size", "resize_rule"} <= keys:
            facts.add("resize")
        if "resize" in keys and (self.resize in RESIZE_WORDS or "size" in keys):
            facts.add("crop")
        if "resize" in keys and self.resize == "none":
            facts.add("interpolation")
        if {"mean", "std"} <= keys and self._values_tell_the_scale():
            facts.add("scale")
        return frozenset(facts)

    def _values_tell_the_scale(self) -> bool:
        """Whether mean and std show the range of the pixels they were computed on; 0 and 1 fit any range."""
        values = [*_channels(self.mean), *_channels(self.std)]
        return any(value not in (0, 1) for value in values)

    def over(self, base: Preprocessing) -> Preprocessing:
        """``base`` with everything that is described here in its place."""
        geometry: dict[str, Any] = {}
        if self.keys & {"size", "resize", "crop"}:
            geometry |= self._sizes(base.geometry)
        if self.resize_rule is not None:
            geometry["resize_rule"] = RESIZE_WORDS.get(self.resize_rule, self.resize_rule)
        for key in ("interpolation", "fill", "crop_rounding", "exif", "alpha"):
            if key in self.keys:
                geometry[key] = getattr(self, key)
        normalisation = self._normalisation(base.normalisation.colour_order)
        return Preprocessing(replace(base.geometry, **geometry), replace(base.normalisation, **normalisation))

    def _normalisation(self, base_colour: ColourOrder) -> dict[str, Any]:
        """The described fields of ``Normalisation``."""
        values: dict[str, Any] = {}
        for key in ("mean", "std"):
            channels = _channels(getattr(self, key))
            if len(set(channels)) > 1 and "grey" in (self.colour, base_colour):
                raise ClassifierError(f"{key} needs one value for grey images", found=channels, expected="1 number")
            if len(channels) == 1:
                channels = channels * 3
            if channels:
                values[key] = channels
        if self.scale is not None:
            values["scale"] = _fraction(self.scale)
        elif any(abs(value) > 1 for value in [*_channels(self.mean), *_channels(self.std)]):
            values["scale"] = 1.0  # Such values are those of pixels from 0 to 255.
        elif self.mean is not None and self.std is not None:
            values["scale"] = 1 / 255
        if self.colour is not None:
            values["colour_order"] = self.colour
        if self.layout is not None:
            values["layout"] = self.layout
        return values

    def _sizes(self, base: Geometry) -> dict[str, Any]:
        """Resize, rule and crop of ``Geometry`` from ``size``, ``resize`` and ``crop``."""
        crop = None if self.crop == "none" else self.crop
        if isinstance(crop, str):
            raise ClassifierError("invalid value of crop", found=repr(crop), expected="pixels, or none")
        if self.resize is None and self.size is None:
            return {"crop": crop}
        if self.resize is None:
            self._check_size_against_crop()
            return {"resize": self.size, "resize_rule": "exact", "crop": None}
        if isinstance(self.resize, str):
            sizes = self._sizes_by_word(base)
        elif isinstance(self.resize, int):
            sizes = {"resize": self.resize, "resize_rule": "short", "crop": self.size or base.output}
        else:
            sizes = {"resize": self.resize, "resize_rule": "exact", "crop": self.size or None}
        if self.crop is not None:
            sizes["crop"] = crop
        return sizes

    def _sizes_by_word(self, base: Geometry) -> dict[str, Any]:
        """Resize, rule and the usual crop for a ``resize`` that is a word: ``squash``, ``none``, ..."""
        if self.resize == "none":
            return {"resize": None, "resize_rule": "short", "crop": self.size}
        rule = self._resize_word()
        target = self.size or base.output
        if target is None:
            message = f"resize={self.resize} needs the size of the model's input"
            raise ClassifierError(message, hint="add size=...")
        crop = None if rule == "exact" else target
        return {"resize": target, "resize_rule": rule, "crop": crop}

    def _resize_word(self) -> ResizeRule:
        """The rule that a word stands for; a ClassifierError if there is none."""
        word = str(self.resize)
        if word not in RESIZE_WORDS:
            expected = f"{', '.join(RESIZE_WORDS)}, none, or pixels"
            raise ClassifierError("invalid value of resize", found=repr(word), expected=expected)
        return RESIZE_WORDS[word]

    def _check_size_against_crop(self) -> None:
        """``size`` is the input of the model, so a crop of another size contradicts it."""
        if self.crop in (None, "none", self.size):
            return
        raise ClassifierError(
            "size and crop contradict each other: size is the input of the model",
            found=f"size {self.size}, crop {self.crop}",
            hint=f"resize={_sides(self.size)},crop={_sides(self.crop)} to resize first and crop then",
        )


KEYS: tuple[str, ...] = Description.__struct_fields__


def _channels(values: float | list[float] | None) -> list[float]:
    """The values of ``mean`` or ``std`` as a list; empty if there are none."""
    if values is None:
        return []
    if isinstance(values, list):
        return values
    return [values]


def _sides(size: object) -> str:
    """A size as the command line takes it."""
    if isinstance(size, list):
        return ",".join(map(str, size))
    return str(size)


def read_description(document: Mapping[str, object], source: str = "the preprocessing") -> Description:
    """Read a dict that is flat, or has the two halves that ``Preprocessing.describe`` gives.

    Raises ClassifierError, which names the ``source``, for unknown keys and invalid values.
    """
    flat = {key: value for key, value in document.items() if key not in ("geometry", "normalisation")}
    halves = {"geometry": _GEOMETRY_KEYS, "normalisation": ("colour_order", *NORMALISATION_KEYS)}
    for half, keys in halves.items():
        if half in document:
            values = document[half]
            if not isinstance(values, Mapping):
                raise ClassifierError(f"invalid value of {half} in {source}", found=repr(values), expected="table")
            check_keys(values, keys, f"[{half}] of {source}", ClassifierError, half)
            flat.update(values)
    stated: dict[str, object] = {}
    for key, value in flat.items():
        if value is None and key in ("resize", "crop"):  # a null says that there is none
            stated[key] = "none"
        elif value is not None:
            stated[_SYNONYMS.get(key, key)] = _plain(value)
    description = decode(stated, Description, source, ClassifierError)
    check_keys(dict.fromkeys(description.assumed or ()), KEYS, f"assumed in {source}", ClassifierError)
    return description


def _plain(value: Any) -> object:
    """A value of a dict as JSON has it: no arrays and no tuples, British spelling."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, tuple):
        return list(value)
    return "grey" if value == "gray" else value


def parse_description(text: str) -> dict[str, object]:
    """``size=32,mean=0.49,0.48,0.45,std=0.25,resize=squash`` as a dict; ``size=40x56`` and brackets are accepted."""
    values: dict[str, list[object]] = {}
    key = ""
    for entry in text.split(","):
        # An entry without "=" is a further value of the key before it.
        name, equals, value = entry.partition("=")
        is_repeated = False
        if equals:
            key = name.strip()
            is_repeated = key in values
            values[key] = []
        else:
            value = entry
        value = value.strip(" []()")
        if not key or not value or is_repeated:
            raise ClassifierError(
                "invalid preprocessing",
                found=repr(text),
                expected="key=value,..., each key once: size=32,mean=0.5,std=0.25; or a .toml or .json file",
            )
        sides = re.fullmatch(r"(\d+) ?x ?(\d+)", value)  # height x width, as `describe` shows them
        if sides:
            values[key] += map(int, sides.groups())
        else:
            values[key].append(_number_or_text(value))
    description: dict[str, object] = {}
    for key, entries in values.items():
        description[key] = entries[0] if len(entries) == 1 else entries
    return description


def _number_or_text(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _fraction(scale: float | str) -> float:
    try:
        numerator, slash, denominator = str(scale).partition("/")
        if slash:
            return float(numerator) / float(denominator)
        return float(scale)
    except (ValueError, ZeroDivisionError):
        raise ClassifierError("invalid value of scale", found=repr(scale), expected="a number, or 1/255") from None


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
    """A preprocessing in the flat vocabulary.

    With ``pixels`` only the colour order is left of the normalisation, since a model that takes pixels does the rest
    itself.
    """
    flat = _flat_geometry(preprocessing.geometry)
    normalisation = preprocessing.normalisation
    if pixels:
        flat["colour"] = normalisation.colour_order
        return flat
    flat["mean"] = list(normalisation.mean[: normalisation.channels])
    flat["std"] = list(normalisation.std[: normalisation.channels])
    flat["scale"] = "1/255" if normalisation.scale == 1 / 255 else normalisation.scale
    flat["colour"] = normalisation.colour_order
    flat["layout"] = normalisation.layout
    return flat


def _flat_geometry(geometry: Geometry) -> dict[str, object]:
    """The keys of a description that state the geometry; those that have their usual value are left out."""
    resize = _flat_size(geometry.resize)
    usual_rule: ResizeRule = "exact" if isinstance(geometry.resize, tuple) else "short"
    flat: dict[str, object]
    if geometry.resize is not None and geometry.resize_rule == "exact" and geometry.crop is None:
        flat = {"size": resize, "resize": "squash"}
    else:
        flat = {"resize": resize, "crop": _flat_size(geometry.crop)}
        if geometry.resize_rule != usual_rule:
            flat["resize_rule"] = next(word for word, rule in RESIZE_WORDS.items() if rule == geometry.resize_rule)
    flat["interpolation"] = geometry.interpolation
    if geometry.fill != (0, 0, 0):
        flat["fill"] = list(geometry.fill)
    if geometry.crop_rounding != "round":
        flat["crop_rounding"] = geometry.crop_rounding
    usual = Decoding()
    if geometry.exif != usual.exif:
        flat["exif"] = geometry.exif
    if geometry.alpha != usual.alpha:
        flat["alpha"] = geometry.alpha
    return flat


def _flat_size(size: Size | None) -> int | list[int] | str:
    if size is None:
        return "none"
    return size if isinstance(size, int) else list(size)


def assumed_keys(flat: Mapping[str, object], sources: Mapping[str, FactSource]) -> list[str]:
    """The keys of a flat description whose values are assumptions, by the sources of a model's facts."""
    return [key for key in flat if sources.get(_FACTS_OF_KEYS.get(key, key)) == "assumed"]


def given_or_assumed(flat: Mapping[str, object], sources: Mapping[str, FactSource]) -> dict[str, object]:
    """The part of a flat description that the caller gave or that is assumed: with it, an option states all facts."""
    return {key: value for key, value in flat.items() if sources.get(_fact_of_key(key)) in ("given", "assumed")}


def given_or_changed(
    flat: Mapping[str, object], sources: Mapping[str, FactSource], changed: Collection[str]
) -> dict[str, object]:
    """The part of a flat description that the caller gave, or whose facts are among the changed ones.

    Facts that are still assumptions are left out, so that an option made of this does not turn them into statements.
    Facts that are only meaningful together are stated together.
    """
    stated = set(changed)
    for group in (_SIZE_FACTS, _VALUE_FACTS):
        if stated & group:
            stated |= group
    stated |= {fact for fact, source in sources.items() if source == "given"}
    return {key: value for key, value in flat.items() if _fact_of_key(key) in stated}


def _fact_of_key(key: str) -> str:
    """The fact that a key of a flat description states.

    A way to resize is only stated together with the size that it leads to.
    """
    if key in ("size", "resize_rule", "fill", "crop_rounding"):
        return "resize"
    return _FACTS_OF_KEYS.get(key, key)


def description_text(values: Mapping[str, object]) -> str:
    """A description as ``parse_description`` reads it, without loss of digits."""
    return ",".join(f"{key}={_value_text(value)}" for key, value in values.items())


def _value_text(value: object) -> str:
    if isinstance(value, list):
        return ",".join(map(_value_text, value))
    if isinstance(value, float):
        return _number_text(value)
    return str(value)


def _number_text(value: float) -> str:
    """The shortest text of a number that is read as the same number."""
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def fact_text(value: object) -> str:
    """The value of a fact for people."""
    if isinstance(value, tuple):
        return ", ".join(f"{channel:g}" for channel in value)
    if value == 1 / 255:
        return "1/255"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


@dataclass(frozen=True)
class Fact:
    """One fact about a model: ``Fact("mean", (0.485, 0.456, 0.406), "assumed")``."""

    name: str
    value: object
    source: FactSource


def preprocessing_values(preprocessing: Preprocessing) -> dict[str, object]:
    """The facts of a preprocessing by name, in the order in which they are shown."""
    geometry = preprocessing.geometry
    normalisation = preprocessing.normalisation
    return {
        "resize": _resize_text(geometry),
        "crop": _size_text(geometry.crop),
        "interpolation": geometry.interpolation,
        "mean": normalisation.mean[: normalisation.channels],
        "std": normalisation.std[: normalisation.channels],
        "scale": normalisation.scale,
        "colour order": normalisation.colour_order,
        "layout": normalisation.layout,
        "exif": geometry.exif,
        "alpha": geometry.alpha,
    }


def _resize_text(geometry: Geometry) -> str:
    if geometry.resize is None:
        return "none"
    if geometry.resize_rule == "short":
        return f"short side to {geometry.resize}"
    words = {"exact": "squash to", "fit": "fit into", "cover": "cover"}
    return f"{words[geometry.resize_rule]} {_size_text(geometry.resize)}"


def _size_text(size: Size | None) -> str:
    if size is None:
        return "none"
    if isinstance(size, int):
        return f"{size} x {size}"
    return f"{size[0]} x {size[1]}"
