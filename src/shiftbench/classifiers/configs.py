"""Preprocessing read from other libraries' configurations and transforms; none of them is imported here."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from shiftbench.classifiers.description import Description, parse_description, read_description, read_description_file
from shiftbench.classifiers.options import IMAGENET_CLASSES, KnownInput, Options, existing_file
from shiftbench.classifiers.preprocessing import Normalisation, Preprocessing
from shiftbench.datasets.geometry import Geometry, Interpolation, ResizeRule, Size
from shiftbench.errors import ClassifierError
from shiftbench.labels import label_space
from shiftbench.labels.space import LabelSpace

#: Pillow's numbers for its filters, as Hugging Face's files write them.
_RESAMPLE: tuple[Interpolation, ...] = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")
#: Keys that only a configuration of Hugging Face's image processors has.
_HF_KEYS = {"image_mean", "do_resize", "do_normalize", "do_rescale", "crop_size", "image_processor_type"}
#: Conversions that do not change values.
_NEUTRAL = {"Identity", "ToImage", "PILToTensor", "ToPILImage", "ToPureTensor", "RGB", "MaybePILToTensor", "ToNumpy"}
#: Other steps of a transform, and their place in the order.
_STEPS = {
    "Resize": 0, "ResizeKeepRatio": 0, "CenterCrop": 1, "CenterCropOrPad": 1, "ToDtype": 1, "ConvertImageDtype": 1,
    "ToTensor": 1, "MaybeToTensor": 1, "Normalize": 2,
}  # fmt: skip


def understood(thing: object) -> Preprocessing | Description:
    """What a ``preprocessing=...`` of any kind states; an error names what cannot be represented."""
    what = "the preprocessing"
    if isinstance(thing, Preprocessing | Description):
        return thing
    if isinstance(thing, str | Path):
        path = Path(thing)
        if path.suffix.lower() not in (".toml", ".json"):
            return read_description(parse_description(str(thing)))
        content = read_description_file(existing_file(path))
        # A sidecar is such a file too; its name and labels belong to the model it lies beside.
        content = {key: value for key, value in content.items() if key not in ("name", "labels")}
        thing, what = content.pop("preprocessing", {}) | content, path.name
    if isinstance(thing, partial):  # weights.transforms, not called
        thing = thing()
    if hasattr(thing, "image_mean") and hasattr(thing, "to_dict"):
        thing = {key: value for key, value in thing.to_dict().items() if value is not None}
    if isinstance(thing, Mapping):
        if "input_size" in thing:
            return from_timm(thing)
        if _HF_KEYS & set(thing) or isinstance(thing.get("size"), Mapping):
            return from_hf(thing)
        return read_description(thing, what)
    if hasattr(thing, "resize_size") and hasattr(thing, "crop_size"):
        return from_torchvision(thing)
    if hasattr(thing, "transforms") or type(thing).__name__ == "Sequential":
        return from_transforms(thing)
    raise ClassifierError(
        "this kind of preprocessing is not understood",
        found=f"{type(thing).__module__}.{type(thing).__qualname__}",
        expected='a dict such as {"size": 32, "mean": 0.5, "std": 0.25}, a file, a torchvision or timm transform, or '
        "an image processor of transformers",
    )


def from_library(module: object, options: Options, name: str) -> tuple[Options, KnownInput]:
    """What timm or transformers wrote into a module: the whole preprocessing, or at least the size of the input, and
    the names of its classes."""
    published = getattr(module, "pretrained_cfg", None) or getattr(module, "default_cfg", None)
    if isinstance(published, Mapping) and published.get("input_size"):
        # With another head than the published one, it was trained by someone else, perhaps on other inputs.
        own = getattr(module, "num_classes", None) not in (None, published.get("num_classes"))
        return options.over(from_timm(published), "assumed" if own else "library"), KnownInput()
    config: Any = getattr(module, "config", None)
    if not hasattr(config, "id2label"):
        return options, KnownInput()
    # Placeholders such as LABEL_7 name nothing; a thousand of them are ImageNet's.
    classes = {int(index): str(label) for index, label in config.id2label.items()}
    named = len(classes) == IMAGENET_CLASSES or any(label != f"LABEL_{index}" for index, label in classes.items())
    if options.labels is None and named:
        options = replace(options, labels=space_of(classes, name), sources={**options.sources, "labels": "file"})
    folder = Path(str(getattr(config, "_name_or_path", "") or ""))
    if (written := folder / "preprocessor_config.json").is_file():
        return options.over(from_hf(json.loads(written.read_text(encoding="utf-8")))), KnownInput()
    size = getattr(config, "image_size", None)
    sides = (size, size) if isinstance(size, int) else tuple(size or ())
    return options, KnownInput((sides[0], sides[1]) if len(sides) == 2 else None, source="library")


def space_of(id2label: Mapping[Any, str], name: str) -> LabelSpace:
    """ImageNet's own space where the thousand names are its names or placeholders, else one of the model's own."""
    names = [id2label[index] for index in sorted(id2label, key=int)]
    if len(names) == IMAGENET_CLASSES:
        imagenet = label_space("imagenet-1k")
        pairs = zip(names, imagenet.names, strict=True)
        same = sum(a.split(",")[0].strip().lower() == b.split(",")[0].strip().lower() for a, b in pairs)
        # Some lists differ in a few spellings.
        if same >= 900 or all(one == f"LABEL_{index}" for index, one in enumerate(names)):
            return imagenet
    counts = Counter(names)
    keys = tuple(key if counts[key] == 1 else f"{key} ({index})" for index, key in enumerate(names))
    return LabelSpace(name, keys, tuple(names))


def from_timm(config: Mapping[str, Any]) -> Preprocessing:
    """From a model's ``pretrained_cfg`` or timm's resolved data config.

    The resize is floor(size / crop_pct), as in timm's evaluation transform.
    """
    usual = Normalisation()
    _, height, width = config.get("input_size") or (3, 224, 224)
    part = config.get("crop_pct") or 0.875
    mean = tuple(config.get("mean") or usual.mean)
    tall, wide = math.floor(height / part), math.floor(width / part)
    rule: ResizeRule = "short" if tall == wide else "cover"
    fill = (0, 0, 0)
    if config.get("crop_mode") == "squash":
        rule = "exact"
    elif config.get("crop_mode") == "border":
        rule, fill = "fit", cast(tuple[int, int, int], tuple(round(255 * value) for value in mean))
    # timm passes no filter on for non-square inputs
    interpolation = "bilinear" if rule == "cover" else _interpolation(config.get("interpolation") or "bilinear")
    resize = tall if tall == wide else (tall, wide)
    return Preprocessing(
        Geometry(resize, (height, width), resize_rule=rule, interpolation=interpolation, fill=fill),
        Normalisation(mean=mean, std=tuple(config.get("std") or usual.std)),
    )


def from_torchvision(preset: Any) -> Preprocessing:
    """From what ``weights.transforms()`` gives: resize, crop, interpolation, mean and std."""
    interpolation = _interpolation(preset.interpolation)
    return Preprocessing(
        Geometry(_size(preset.resize_size), _size(preset.crop_size), interpolation=interpolation),
        Normalisation(mean=tuple(preset.mean), std=tuple(preset.std)),
    )


def from_hf(config: Mapping[str, Any]) -> Preprocessing:
    """From a ``preprocessor_config.json``: ViT, BiT, CLIP, ConvNeXt, ResNet, MobileNet and their kin.

    Pillow resizes, as in the processors that those models were published with; the centre is rounded down.
    """
    size = config.get("size") or {}
    if not isinstance(size, Mapping):  # files of early versions have a bare number
        cropped = config.get("do_center_crop") is True
        size = {"shortest_edge": size} if cropped else {"height": size, "width": size}
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
    interpolation = _interpolation(config.get("resample", 2))
    scale = config.get("rescale_factor", 1 / 255) if config.get("do_rescale", True) else 1.0
    order = "bgr" if config.get("do_flip_channel_order") else "rgb"
    mean, std = config.get("image_mean") or (0.5,) * 3, config.get("image_std") or (0.5,) * 3
    if not config.get("do_normalize", True):
        mean, std = (0, 0, 0), (1, 1, 1)
    return Preprocessing(
        Geometry(resize, crop, resize_rule=rule, interpolation=interpolation, crop_rounding="floor"),
        Normalisation(mean=tuple(mean), std=tuple(std), scale=scale, colour_order=order),  # type: ignore[arg-type]
    )


def _hf_side(size: Any) -> Size | None:
    if not isinstance(size, Mapping):
        return None if size is None else int(size)
    if "height" not in size or "width" not in size:
        raise ClassifierError("this size of the image processor is not understood", found=dict(size))
    return (int(size["height"]), int(size["width"]))


def _interpolation(value: object) -> Interpolation:
    value = getattr(value, "value", value)
    if not isinstance(value, int):
        return cast(Interpolation, str(value).lower())
    if not 0 <= value < len(_RESAMPLE):
        raise ClassifierError("unknown number of a resampling filter", found=value, expected="0 to 5")
    return _RESAMPLE[value]


def _size(size: Any) -> Size:
    sides = [size] if isinstance(size, int) else list(size)
    return int(sides[0]) if len(sides) == 1 else (int(sides[0]), int(sides[1]))


def from_transforms(transform: object) -> Preprocessing:
    """From ``Compose([Resize(40), CenterCrop(32), ToTensor(), Normalize(mean, std)])`` and the like; an error for what
    a preprocessing cannot represent: random steps, a Lambda, another order than resize, crop, normalise."""
    geometry = Geometry(None, None)
    values = Normalisation(mean=(0, 0, 0), std=(1, 1, 1), scale=1)
    stage = 0
    for step in _flattened(transform):
        name = type(step).__name__
        if name in _NEUTRAL:
            continue
        if name == "Grayscale" and step.num_output_channels == 1:
            values = replace(values, colour_order="grey")
            continue
        if name not in _STEPS:
            raise _unsupported(name, "a transform that cannot be represented")
        if _STEPS[name] < stage:
            raise _unsupported(name, "after a step that comes later in every preprocessing")
        stage = _STEPS[name]
        if stage == 0:
            geometry = _resized(geometry, name, step)
        elif name in ("CenterCrop", "CenterCropOrPad"):
            fill = getattr(step, "fill", 0)
            geometry = replace(
                geometry, crop=_size(step.size), fill=(fill,) * 3 if isinstance(fill, int) else tuple(fill)
            )
        elif name == "Normalize":
            mean, std = (_channels(given) for given in (step.mean, step.std))
            values = replace(values, mean=mean, std=std)
        else:
            values = replace(values, scale=1 / 255 if getattr(step, "scale", True) else 1.0)
    return Preprocessing(geometry, values)


def _flattened(transform: Any) -> Iterator[Any]:
    inner = list(transform) if type(transform).__name__ == "Sequential" else None
    inner = getattr(transform, "transforms", inner)
    if inner is None:
        yield transform
    for step in inner or ():
        yield from _flattened(step)


def _resized(geometry: Geometry, name: str, step: Any) -> Geometry:
    rule: ResizeRule = "short" if isinstance(step.size, int) or len(step.size) == 1 else "exact"
    if name == "ResizeKeepRatio":  # timm's: both sides fit in (``longest`` 1) or cover (0)
        if step.longest not in (0.0, 1.0) or step.random_scale_prob or step.random_aspect_prob:
            raise _unsupported(name, "random or mixed ratios")
        rule = "fit" if step.longest else "cover"
    elif getattr(step, "max_size", None) is not None:
        raise _unsupported(name, "max_size")
    interpolation = _interpolation(step.interpolation)
    return replace(geometry, resize=_size(step.size), resize_rule=rule, interpolation=interpolation)


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
