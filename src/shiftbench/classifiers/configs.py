"""Preprocessing read from other libraries' configurations and transforms; none of them is imported here."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from shiftbench.classifiers.description import Description, parse_description, read_description, read_description_file
from shiftbench.classifiers.options import Options
from shiftbench.classifiers.policy import KnownInput
from shiftbench.classifiers.preprocessing import Normalisation, Preprocessing
from shiftbench.datasets.geometry import Geometry, Interpolation, ResizeRule, Size
from shiftbench.errors import ClassifierError

#: Pillow's numbers for its filters, as Hugging Face's files write them.
_RESAMPLE: tuple[Interpolation, ...] = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")
_IMAGENET = Normalisation()
#: Keys that only a configuration of Hugging Face's image processors has.
_HF_KEYS = {"image_mean", "do_resize", "do_normalize", "do_rescale", "crop_size", "image_processor_type"}


#: Conversions that do not change values.
_NEUTRAL = {"Identity", "ToImage", "PILToTensor", "ToPILImage", "ToPureTensor", "RGB", "MaybePILToTensor", "ToNumpy"}
_RAW = Preprocessing(Geometry(None, None), Normalisation(mean=(0, 0, 0), std=(1, 1, 1), scale=1))
#: Conversions to [0, 1].
_SCALING = {"ToTensor", "MaybeToTensor"}


def understood(thing: Any) -> Preprocessing | Description:
    """What a ``preprocessing=...`` of any kind states; an error names what cannot be represented.

    >>> understood("size=32,colour=bgr").stated == {"size", "colour"}
    True
    >>> understood({"input_size": (3, 32, 32), "crop_pct": 1.0}).geometry.output
    (32, 32)
    """
    if isinstance(thing, Preprocessing | Description):
        return thing
    if isinstance(thing, str | Path):
        return _from_text(str(thing))
    if isinstance(thing, partial):  # weights.transforms, not called
        thing = thing()
    if isinstance(thing, Mapping):
        return _from_mapping(thing)
    if hasattr(thing, "resize_size") and hasattr(thing, "crop_size"):
        return from_torchvision(thing)
    if hasattr(thing, "image_mean") and hasattr(thing, "to_dict"):
        return _from_mapping({key: value for key, value in thing.to_dict().items() if value is not None})
    if hasattr(thing, "transforms") or type(thing).__name__ == "Sequential":
        return from_transforms(thing)
    raise ClassifierError(
        "this kind of preprocessing is not understood",
        found=f"{type(thing).__module__}.{type(thing).__qualname__}",
        expected='a dict such as {"size": 32, "mean": 0.5, "std": 0.25}, a file, a torchvision or timm transform, or '
        "an image processor of transformers",
    )


def _from_text(text: str) -> Preprocessing | Description:
    path = Path(text)
    if path.suffix.lower() not in (".toml", ".json"):
        return read_description(parse_description(text))
    if not path.is_file():
        raise ClassifierError(f"file not found: {path}")
    content = read_description_file(path)
    # A sidecar is such a file too; its name and labels belong to the model it lies beside.
    content = {key: value for key, value in content.items() if key not in ("name", "labels")}
    return _from_mapping(content.pop("preprocessing", {}) | content, path.name)


def _from_mapping(values: Mapping[str, Any], what: str = "the preprocessing") -> Preprocessing | Description:
    if "input_size" in values:
        return from_timm(values)
    if _HF_KEYS & set(values) or isinstance(values.get("size"), Mapping):
        return from_hf(values)
    return read_description(values, what)


def from_library(module: Any, options: Options) -> tuple[Options, KnownInput]:
    """What timm or transformers wrote into a module: the whole preprocessing, or at least the size of the input."""
    config = getattr(module, "pretrained_cfg", None) or getattr(module, "default_cfg", None)
    if isinstance(config, Mapping) and config.get("input_size"):
        # With another head than the published one, it was trained by someone else, perhaps on other inputs.
        own = getattr(module, "num_classes", None) not in (None, config.get("num_classes"))
        return options.over(from_timm(config), "assumed" if own else "library"), KnownInput()
    config = getattr(module, "config", None)
    if not hasattr(config, "id2label"):
        return options, KnownInput()
    folder = Path(str(getattr(config, "_name_or_path", "") or ""))
    if (written := folder / "preprocessor_config.json").is_file():
        return options.over(from_hf(json.loads(written.read_text(encoding="utf-8")))), KnownInput()
    size = getattr(config, "image_size", None)
    sides = (size, size) if isinstance(size, int) else tuple(size or ())
    return options, KnownInput((sides[0], sides[1]) if len(sides) == 2 else None, source="library")


def from_timm(config: Mapping[str, Any]) -> Preprocessing:
    """From a model's ``pretrained_cfg`` or timm's resolved data config.

    The resize is floor(size / crop_pct), as in timm's evaluation transform.

    >>> from_timm({"input_size": (3, 224, 224), "crop_pct": 0.95, "interpolation": "bicubic"}).geometry.resize
    235
    """
    _, height, width = config.get("input_size") or (3, 224, 224)
    part = config.get("crop_pct") or 0.875
    mean = tuple(config.get("mean") or _IMAGENET.mean)
    target = (math.floor(height / part), math.floor(width / part))
    mode = config.get("crop_mode") or "center"
    fill = (0, 0, 0)
    rule: ResizeRule
    if mode == "squash":
        rule = "exact"
    elif mode == "border":
        rule, fill = "fit", cast(tuple[int, int, int], tuple(round(255 * value) for value in mean))
    else:
        rule = "short" if target[0] == target[1] else "cover"
    interpolation = _interpolation(config.get("interpolation") or "bilinear")
    if rule == "cover":
        interpolation = "bilinear"  # timm passes no filter on for non-square inputs
    return Preprocessing(
        Geometry(
            resize=target[0] if target[0] == target[1] else target,
            crop=(height, width),
            resize_rule=rule,
            interpolation=interpolation,
            fill=fill,
        ),
        Normalisation(mean=mean, std=tuple(config.get("std") or _IMAGENET.std)),
    )


def from_torchvision(preset: Any) -> Preprocessing:
    """From what ``weights.transforms()`` gives: resize, crop, interpolation, mean and std."""
    return Preprocessing(
        Geometry(
            resize=_one(preset.resize_size),
            crop=_one(preset.crop_size),
            interpolation=_filter(preset),
        ),
        Normalisation(mean=tuple(preset.mean), std=tuple(preset.std)),
    )


def from_hf(config: Mapping[str, object]) -> Preprocessing:
    """From a ``preprocessor_config.json``: ViT, BiT, CLIP, ConvNeXt, ResNet, MobileNet and their kin.

    Pillow resizes, as in the processors that those models were published with; the centre is rounded down.
    """
    return Preprocessing(_hf_geometry(config), _hf_normalisation(config))


def _hf_geometry(config: Mapping[str, Any]) -> Geometry:
    interpolation = _interpolation(config.get("resample", 2))
    size = config.get("size") or {}
    if not isinstance(size, Mapping):  # files of early versions have a bare number
        square = "height" if config.get("do_center_crop") is not True else "shortest_edge"
        size = {"height": size, "width": size} if square == "height" else {"shortest_edge": size}
    if not config.get("do_resize", True):
        size = {}
    crop = _hf_side(config.get("crop_size")) if config.get("do_center_crop") else None
    resize: Size | None = None
    rule: ResizeRule = "exact"
    if "shortest_edge" in size:
        resize, rule = int(size["shortest_edge"]), "short"
        part = config.get("crop_pct")
        if part and resize < 384:  # ConvNeXt's rule: shrink less, then crop ...
            crop, resize = resize, int(resize / part)
        elif part or (crop is None and "crop_pct" in config):  # ... and from 384 on squash
            crop, rule = None, "exact"
    elif size:
        resize = _hf_side(size)
    return Geometry(
        resize=resize,
        crop=crop,
        resize_rule=rule,
        interpolation=interpolation,
        crop_rounding="floor",
    )


def _hf_normalisation(config: Mapping[str, Any]) -> Normalisation:
    scale = config.get("rescale_factor", 1 / 255) if config.get("do_rescale", True) else 1.0
    order = "bgr" if config.get("do_flip_channel_order") else "rgb"
    mean, std = config.get("image_mean") or (0.5,) * 3, config.get("image_std") or (0.5,) * 3
    if not config.get("do_normalize", True):
        mean, std = (0, 0, 0), (1, 1, 1)
    return Normalisation(mean=tuple(mean), std=tuple(std), scale=scale, colour_order=order)  # type: ignore[arg-type]


def _hf_side(size: Any) -> Size | None:
    if size is None:
        return None
    if isinstance(size, Mapping):
        if "height" not in size or "width" not in size:
            raise ClassifierError("this size of the image processor is not understood", found=dict(size))
        return (int(size["height"]), int(size["width"]))
    return int(size)


def _interpolation(value: object) -> Interpolation:
    if isinstance(value, int):
        if not 0 <= value < len(_RESAMPLE):
            raise ClassifierError("unknown number of a resampling filter", found=value, expected="0 to 5")
        return _RESAMPLE[value]
    return cast(Interpolation, str(value).lower())


def _filter(step: Any) -> Interpolation:
    return _interpolation(getattr(step.interpolation, "value", step.interpolation))


def _one(size: Any) -> Size:
    sides = [size] if isinstance(size, int) else list(size)
    return int(sides[0]) if len(sides) == 1 else (int(sides[0]), int(sides[1]))


def from_transforms(transform: Any) -> Preprocessing:
    """From ``Compose([Resize(40), CenterCrop(32), ToTensor(), Normalize(mean, std)])`` and the like.

    Raises:
        ClassifierError: A step that a preprocessing cannot represent: random ones, greyscale, a Lambda, steps in
            another order than resize, crop, normalise.
    """
    result, stage = _RAW, 0
    for step in _steps(transform):
        name = type(step).__name__
        if name in _NEUTRAL:
            continue
        if name not in _STEPS:
            raise _unsupported(name, "a transform that cannot be represented")
        place, apply = _STEPS[name]
        if place < stage:
            raise _unsupported(name, "after a step that comes later in every preprocessing")
        stage, result = place, apply(result, step)
    return result


def _steps(transform: Any) -> Iterator[Any]:
    inner: Iterable[Any] | None = getattr(transform, "transforms", None)
    if inner is None and type(transform).__name__ == "Sequential":
        inner = list(transform)
    if inner is None:
        yield transform
        return
    for step in inner:
        yield from _steps(step)


def _resized(result: Preprocessing, step: Any) -> Preprocessing:
    if getattr(step, "max_size", None) is not None:
        raise _unsupported("Resize", "max_size")
    size = _one(step.size)
    rule: ResizeRule = "short" if isinstance(step.size, int) or len(step.size) == 1 else "exact"
    geometry = replace(result.geometry, resize=size, resize_rule=rule, interpolation=_filter(step))
    return replace(result, geometry=geometry)


def _kept_ratio(result: Preprocessing, step: Any) -> Preprocessing:
    """timm's: both sides fit in (``longest`` 1) or cover (0)."""
    if step.longest not in (0.0, 1.0) or step.random_scale_prob or step.random_aspect_prob:
        raise _unsupported("ResizeKeepRatio", "random or mixed ratios")
    rule: ResizeRule = "fit" if step.longest else "cover"
    geometry = replace(result.geometry, resize=_one(step.size), resize_rule=rule, interpolation=_filter(step))
    return replace(result, geometry=geometry)


def _cropped(result: Preprocessing, step: Any) -> Preprocessing:
    fill = getattr(step, "fill", 0)
    colour = (fill,) * 3 if isinstance(fill, int) else tuple(fill)
    return replace(result, geometry=replace(result.geometry, crop=_one(step.size), fill=colour))


def _scaled(result: Preprocessing, step: Any) -> Preprocessing:
    scale = 1 / 255 if getattr(step, "scale", True) else 1.0
    return replace(result, normalisation=replace(result.normalisation, scale=scale))


def _normalised(result: Preprocessing, step: Any) -> Preprocessing:
    mean, std = (_channels(values) for values in (step.mean, step.std))
    return replace(result, normalisation=replace(result.normalisation, mean=mean, std=std))


#: A step, its place in the order, and what it does.
_STEPS: dict[str, tuple[int, Callable[[Preprocessing, Any], Preprocessing]]] = {
    "Resize": (0, _resized),
    "ResizeKeepRatio": (0, _kept_ratio),
    "CenterCrop": (1, _cropped),
    "CenterCropOrPad": (1, _cropped),
    "ToDtype": (1, _scaled),
    "ConvertImageDtype": (1, _scaled),
    **dict.fromkeys(_SCALING, (1, _scaled)),
    "Normalize": (2, _normalised),
}


def _channels(values: Any) -> Any:
    found = tuple(float(value) for value in (values.tolist() if hasattr(values, "tolist") else values))
    return found * 3 if len(found) == 1 else found


def _unsupported(name: str, why: str) -> ClassifierError:
    return ClassifierError(
        f"the transform {name} is not understood",
        found=why,
        expected="Resize, CenterCrop, ToTensor (or ToImage and ToDtype) and Normalize, in this order",
        hint="pass the transform of the evaluation, or a dict such as {'size': 32, 'mean': 0.5, 'std': 0.25}",
    )
