"""Preprocessing descriptions read from other libraries' configurations; none of them is imported here."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

from shiftbench.classifiers.preprocessing import Normalisation, Preprocessing
from shiftbench.datasets.geometry import Geometry, Interpolation, ResizeRule, Size
from shiftbench.errors import ClassifierError

#: Pillow's numbers for its filters, as Hugging Face's files write them.
_RESAMPLE: tuple[Interpolation, ...] = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")
_IMAGENET = Normalisation()


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
            interpolation=_interpolation(getattr(preset.interpolation, "value", preset.interpolation)),
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
    if not config.get("do_normalize", True):
        return Normalisation(mean=(0, 0, 0), std=(1, 1, 1), scale=scale)
    mean, std = config.get("image_mean") or (0.5,) * 3, config.get("image_std") or (0.5,) * 3
    order = "bgr" if config.get("do_flip_channel_order") else "rgb"
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


def _one(size: Any) -> Size:
    sides = [size] if isinstance(size, int) else list(size)
    return int(sides[0]) if len(sides) == 1 else (int(sides[0]), int(sides[1]))
