"""Preprocessing read from other libraries' configurations and transforms; none of them is imported here."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from shiftbench.classifiers.description import (
    GEOMETRY_FACTS,
    NORMALISATION_FACTS,
    Description,
    FactSource,
    assumed_keys,
    flat_description,
    parse_description,
    read_description,
    read_description_file,
)
from shiftbench.classifiers.options import IMAGENET_CLASSES, KnownInput, Options, existing_file
from shiftbench.classifiers.preprocessing import Colour, ColourOrder, Normalisation, Preprocessing
from shiftbench.datasets.geometry import Geometry, Interpolation, ResizeRule, Size
from shiftbench.errors import ClassifierError
from shiftbench.labels import label_space
from shiftbench.labels.space import LabelSpace

#: Pillow's numbers for its filters, as Hugging Face's files write them.
_RESAMPLE: tuple[Interpolation, ...] = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")
#: Keys that only a configuration of Hugging Face's image processors has.
_HF_KEYS = {"image_mean", "do_resize", "do_normalize", "do_rescale", "crop_size", "image_processor_type"}
#: Steps of a transform that do not change the values of an RGB image. The functions are those of open_clip and CLIP.
_NEUTRAL_STEPS = {
    "Identity",
    "ToPILImage",
    "ToPureTensor",
    "ToNumpy",
    "RGB",
    "_convert_to_rgb",
    "_convert_image_to_rgb",
}
#: Steps that turn an image into a tensor of the same values.
_TENSOR_STEPS = {"ToImage", "PILToTensor", "MaybePILToTensor"}
#: Steps that turn an image into a tensor of values from 0 to 1.
_SCALING_STEPS = {"ToTensor", "MaybeToTensor"}
_DTYPE_STEPS = {"ToDtype", "ConvertImageDtype"}
_CROP_STEPS = {"CenterCrop", "CenterCropOrPad"}
_RESIZE_STEPS = {"Resize", "ResizeKeepRatio"}
#: What torch does to a tensor without antialiasing is what OpenCV does to an image.
_WITHOUT_ANTIALIASING: dict[str, Interpolation] = {"bilinear": "opencv-bilinear", "bicubic": "opencv-bicubic"}


def understood(stated: object) -> Preprocessing | Description:
    """What a ``preprocessing=...`` of any kind states; an error names what cannot be represented."""
    if isinstance(stated, Preprocessing | Description):
        return stated
    if isinstance(stated, str | Path):
        return _understood_text(stated)
    if isinstance(stated, partial):  # ``weights.transforms`` of torchvision, which the user did not call.
        stated = stated()
    if hasattr(stated, "image_mean") and hasattr(stated, "to_dict"):
        return from_hf({key: value for key, value in stated.to_dict().items() if value is not None})
    if isinstance(stated, Mapping):
        return _understood_mapping(stated, "the preprocessing")
    if hasattr(stated, "resize_size") and hasattr(stated, "crop_size"):
        return from_torchvision(stated)
    if hasattr(stated, "transforms") or type(stated).__name__ == "Sequential":
        return from_transforms(stated)
    raise ClassifierError(
        "this kind of preprocessing is not understood",
        found=f"{type(stated).__module__}.{type(stated).__qualname__}",
        expected='a dict such as {"size": 32, "mean": 0.5, "std": 0.25}, a file, a torchvision, timm or open_clip '
        "transform, or an image processor of transformers",
    )


def _understood_text(text: str | Path) -> Preprocessing | Description:
    """What ``size=32,mean=0.5`` or a TOML or JSON file states."""
    path = Path(text)
    if path.suffix.lower() not in (".toml", ".json"):
        return read_description(parse_description(str(text)))
    content = read_description_file(existing_file(path))
    # A sidecar is such a file too; its name and labels belong to the model it lies beside.
    content = {key: value for key, value in content.items() if key not in ("name", "labels")}
    nested = content.pop("preprocessing", {})
    return _understood_mapping(nested | content, path.name)


def _understood_mapping(values: Mapping[str, Any], source: str) -> Preprocessing | Description:
    """What a data config of timm, a configuration of an image processor, or a dict of our own keys states."""
    if "input_size" in values:
        return _with_assumptions(from_timm(values), timm_sources(values, "given"))
    if _HF_KEYS & set(values) or isinstance(values.get("size"), Mapping):
        return _with_assumptions(from_hf(values), hf_sources(values, "given"))
    return read_description(values, source)


def _with_assumptions(preprocessing: Preprocessing, sources: Mapping[str, FactSource]) -> Preprocessing | Description:
    """The preprocessing itself; or a description in which facts are assumed, if the configuration leaves them out."""
    flat = flat_description(preprocessing)
    assumed = assumed_keys(flat, sources)
    if not assumed:
        return preprocessing
    return read_description({**flat, "assumed": assumed})


def timm_sources(config: Mapping[str, Any], source: FactSource) -> dict[str, FactSource]:
    """Who states each fact of a data config of timm: ``source``, or nobody where the config lacks the key."""
    keys = {"mean": "mean", "std": "std", "interpolation": "interpolation", "crop_pct": "resize"}
    return _sources(source, [fact for key, fact in keys.items() if not config.get(key)])


def hf_sources(config: Mapping[str, Any], source: FactSource) -> dict[str, FactSource]:
    """Who states each fact of an image processor's configuration: ``source``, or nobody where it lacks the key.

    The defaults of a missing key differ between the processors of transformers.
    """
    unstated = []
    if config.get("do_resize", True) and config.get("resample") is None:
        unstated.append("interpolation")
    if config.get("do_normalize", True):
        keys = {"image_mean": "mean", "image_std": "std"}
        unstated += [fact for key, fact in keys.items() if config.get(key) is None]
    return _sources(source, unstated)


def _sources(source: FactSource, unstated: Sequence[str]) -> dict[str, FactSource]:
    sources: dict[str, FactSource] = dict.fromkeys((*GEOMETRY_FACTS, *NORMALISATION_FACTS), source)
    sources |= dict.fromkeys(unstated, "assumed")
    return sources


def from_library(module: object, options: Options, name: str) -> tuple[Options, KnownInput]:
    """The options and the input of a model, with what timm or transformers wrote into its module.

    That is the whole preprocessing or at least the size of the input, and for transformers the names of the classes.
    """
    published = getattr(module, "pretrained_cfg", None) or getattr(module, "default_cfg", None)
    if isinstance(published, Mapping) and published.get("input_size"):
        # Someone else trained a module with another head than the published one, perhaps on other inputs.
        has_other_head = getattr(module, "num_classes", None) not in (None, published.get("num_classes"))
        sources = timm_sources(published, "assumed" if has_other_head else "library")
        options = _with_logits(options)
        return options.over(from_timm(published), sources), KnownInput()
    config: Any = getattr(module, "config", None)
    if hasattr(config, "id2label"):
        return _from_transformers(config, options, name)
    return options, KnownInput()


def _with_logits(options: Options) -> Options:
    """The options for a module of a library whose classifiers return logits, unless something else is stated."""
    if options.outputs is not None:
        return options
    return replace(options, outputs="logits", sources={"outputs": "library", **options.sources})


def _from_transformers(config: Any, options: Options, name: str) -> tuple[Options, KnownInput]:
    """The options and the input of a model, with what the ``config`` of its module in transformers states."""
    options = _with_logits(options)
    classes = {int(index): str(label) for index, label in config.id2label.items()}
    # Placeholders such as LABEL_7 name nothing; a thousand of them are ImageNet's.
    has_names = len(classes) == IMAGENET_CLASSES or any(label != f"LABEL_{index}" for index, label in classes.items())
    if options.labels is None and has_names:
        options = replace(options, labels=space_of(classes, name), sources={**options.sources, "labels": "file"})
    folder = Path(str(getattr(config, "_name_or_path", "") or ""))
    processor_file = folder / "preprocessor_config.json"
    if processor_file.is_file():
        processor = json.loads(processor_file.read_text(encoding="utf-8"))
        return options.over(from_hf(processor), hf_sources(processor, "library")), KnownInput()
    size = getattr(config, "image_size", None)
    if isinstance(size, int):
        return options, KnownInput((size, size), source="library")
    sides = tuple(size or ())
    if len(sides) == 2:
        return options, KnownInput((sides[0], sides[1]), source="library")
    return options, KnownInput(None, source="library")


def space_of(id2label: Mapping[Any, str], name: str) -> LabelSpace:
    """ImageNet's label space if the names are its thousand names or placeholders, else a space of the model's own."""
    names = [id2label[index] for index in sorted(id2label, key=int)]
    if len(names) == IMAGENET_CLASSES:
        imagenet = label_space("imagenet-1k")
        pairs = zip(names, imagenet.names, strict=True)
        same_count = sum(
            _first_synonym(model_name) == _first_synonym(imagenet_name) for model_name, imagenet_name in pairs
        )
        are_placeholders = all(label == f"LABEL_{index}" for index, label in enumerate(names))
        # Some lists differ in a few spellings.
        if same_count >= 900 or are_placeholders:
            return imagenet
    counts = Counter(names)
    keys = []
    for index, class_name in enumerate(names):
        is_unique = counts[class_name] == 1
        keys.append(class_name if is_unique else f"{class_name} ({index})")
    return LabelSpace(name, tuple(keys), tuple(names))


def _first_synonym(class_name: str) -> str:
    """The first of the synonyms of a class, in small letters: "tench, Tinca tinca" is "tench"."""
    return class_name.split(",")[0].strip().lower()


def from_timm(config: Mapping[str, Any]) -> Preprocessing:
    """The preprocessing that a model's ``pretrained_cfg`` or timm's resolved data config states.

    The resize is floor(size / crop_pct), as in timm's evaluation transform.
    """
    usual = Normalisation()
    _, height, width = config.get("input_size") or (3, 224, 224)
    crop_share = config.get("crop_pct") or 0.875
    mean = tuple(config.get("mean") or usual.mean)
    tall = math.floor(height / crop_share)
    wide = math.floor(width / crop_share)
    rule: ResizeRule = "short" if tall == wide else "cover"
    fill = (0, 0, 0)
    if config.get("crop_mode") == "squash":
        rule = "exact"
    elif config.get("crop_mode") == "border":
        rule = "fit"
        fill = cast(tuple[int, int, int], tuple(round(255 * value) for value in mean))
    if rule == "cover":
        interpolation: Interpolation = "bilinear"  # timm passes no filter on for inputs that are not square.
    else:
        interpolation = _interpolation(config.get("interpolation") or "bilinear")
    resize = tall if tall == wide else (tall, wide)
    return Preprocessing(
        Geometry(resize, (height, width), resize_rule=rule, interpolation=interpolation, fill=fill),
        Normalisation(mean=mean, std=tuple(config.get("std") or usual.std)),
    )


def from_torchvision(preset: Any) -> Preprocessing:
    """The preprocessing of a preset, which ``weights.transforms()`` of torchvision returns."""
    interpolation = _interpolation(preset.interpolation)
    return Preprocessing(
        Geometry(_size(preset.resize_size), _size(preset.crop_size), interpolation=interpolation),
        Normalisation(mean=tuple(preset.mean), std=tuple(preset.std)),
    )


def from_hf(config: Mapping[str, Any]) -> Preprocessing:
    """The preprocessing that a ``preprocessor_config.json`` states: of ViT, BiT, CLIP, ConvNeXt, ResNet, MobileNet, ...

    Pillow resizes, as in the processors that those models were published with; the centre is rounded down.
    """
    geometry = _hf_geometry(config)
    scale = 1.0
    if config.get("do_rescale", True):
        scale = config.get("rescale_factor", 1 / 255)
    order: ColourOrder = "bgr" if config.get("do_flip_channel_order") else "rgb"
    mean: Colour = (0.0, 0.0, 0.0)
    std: Colour = (1.0, 1.0, 1.0)
    if config.get("do_normalize", True):
        mean = tuple(config.get("image_mean") or (0.5, 0.5, 0.5))
        std = tuple(config.get("image_std") or (0.5, 0.5, 0.5))
    return Preprocessing(geometry, Normalisation(mean=mean, std=std, scale=scale, colour_order=order))


def _hf_geometry(config: Mapping[str, Any]) -> Geometry:
    """What an image processor of transformers does to the size, from its configuration.

    The keys differ between processors: a size is a shortest edge, or a height and a width; ``crop_pct`` is ConvNeXt's.
    """
    size = config.get("size") or {}
    if not isinstance(size, Mapping):  # Files of early versions have a single number.
        is_cropped = config.get("do_center_crop") is True
        size = {"shortest_edge": size} if is_cropped else {"height": size, "width": size}
    if not config.get("do_resize", True):
        size = {}
    crop: Size | None = None
    if config.get("do_center_crop"):
        crop = _hf_side(config.get("crop_size"))
    resize: Size | None = None
    rule: ResizeRule = "exact"
    if "shortest_edge" in size:
        side = int(size["shortest_edge"])
        resize = side
        rule = "short"
        crop_share = config.get("crop_pct")
        if crop_share and side < 384:  # ConvNeXt's rule: shrink less, then crop ...
            crop = side
            resize = int(side / crop_share)
        elif crop_share or (crop is None and "crop_pct" in config):  # ... and from 384 on squash
            crop = None
            rule = "exact"
    elif size:
        resize = _hf_side(size)
    interpolation = _interpolation(config.get("resample", 2))
    return Geometry(resize, crop, resize_rule=rule, interpolation=interpolation, crop_rounding="floor")


def _hf_side(size: Any) -> Size | None:
    if size is None:
        return None
    if not isinstance(size, Mapping):
        return int(size)
    if "height" not in size or "width" not in size:
        raise ClassifierError("this size of the image processor is not understood", found=dict(size))
    return (int(size["height"]), int(size["width"]))


def _interpolation(value: object) -> Interpolation:
    value = getattr(value, "value", value)
    if not isinstance(value, int):
        name = str(value).lower()
        # Torchvision calls Pillow's way of taking the nearest pixel "exact".
        return "nearest" if name == "nearest-exact" else cast(Interpolation, name)
    if not 0 <= value < len(_RESAMPLE):
        raise ClassifierError("unknown number of a resampling filter", found=value, expected="0 to 5")
    return _RESAMPLE[value]


def _size(size: Any) -> Size:
    """The size that a step of torchvision states: a number, or a list of one or two numbers."""
    if isinstance(size, int):
        return int(size)
    sides = [int(side) for side in size]
    if len(sides) == 1:
        return sides[0]
    return sides[0], sides[1]


def from_transforms(transform: object) -> Preprocessing:
    """The preprocessing of ``Compose([Resize(40), CenterCrop(32), ToTensor(), Normalize(mean, std)])`` and the like.

    Raises ClassifierError for what a preprocessing cannot represent: random steps, a Lambda, another order than resize,
    crop, normalise.
    """
    read = _ReadTransform()
    for step in _flattened(transform):
        read.add(step)
    return Preprocessing(read.geometry, read.normalisation)


class _ReadTransform:
    """The steps of a transform so far, as a preprocessing."""

    def __init__(self) -> None:
        self.geometry = Geometry(None, None)
        self.normalisation = Normalisation(mean=(0, 0, 0), std=(1, 1, 1), scale=1)
        #: Names of the steps that resizing must not follow, and of those that nothing may follow.
        self._after_resize = ""
        self._after_all = ""
        self._is_tensor = False

    def add(self, step: Any) -> None:
        """Add the next step; raises ClassifierError if a description cannot represent it, at this place or at all."""
        name = getattr(step, "__name__", type(step).__name__)
        if name in _NEUTRAL_STEPS:
            return
        if name in _TENSOR_STEPS:
            self._is_tensor = True
        elif name == "MaybeConvertMode" and step.mode in ("RGB", "L"):
            self._convert("grey" if step.mode == "L" else "rgb")
        elif name == "Grayscale" and step.num_output_channels == 1:
            self._convert("grey")
        elif name in _RESIZE_STEPS:
            self._resize(name, step)
        elif name in _CROP_STEPS:
            self._crop(name, step)
        elif name in _SCALING_STEPS:
            self._scale(name, 1 / 255)
        elif name in _DTYPE_STEPS:
            self._change_dtype(name, step)
        elif name == "Normalize":
            self.normalisation = replace(self.normalisation, mean=_channels(step.mean), std=_channels(step.std))
            self._after_all = name
        else:
            raise _unsupported(name, "a transform that cannot be represented")

    def _convert(self, colour: ColourOrder) -> None:
        if colour == "grey":
            self.normalisation = replace(self.normalisation, colour_order="grey")

    def _check_order(self, name: str, earlier: str) -> None:
        if earlier:
            raise _unsupported(name, f"{name} after {earlier}")

    def _resize(self, name: str, step: Any) -> None:
        self._check_order(name, self._after_all or self._after_resize)
        self.geometry = _resized(self.geometry, name, step, is_tensor=self._is_tensor)

    def _crop(self, name: str, step: Any) -> None:
        self._check_order(name, self._after_all)
        fill = getattr(step, "fill", 0)
        colour = (fill, fill, fill) if isinstance(fill, int) else tuple(fill)
        self.geometry = replace(self.geometry, crop=_size(step.size), fill=colour)
        self._after_resize = name

    def _scale(self, name: str, scale: float) -> None:
        self._check_order(name, self._after_all)
        self.normalisation = replace(self.normalisation, scale=scale)
        self._after_resize = name

    def _change_dtype(self, name: str, step: Any) -> None:
        """Integers become values from 0 to 1 if the step scales; a step to uint8 leaves images as they are."""
        dtype = step.dtype
        if isinstance(dtype, Mapping):  # It has a type for each kind of input.
            dtype = next((value for kind, value in dtype.items() if getattr(kind, "__name__", "") == "Image"), None)
        if str(dtype) == "torch.uint8":
            return
        if not str(dtype).startswith(("torch.float", "torch.bfloat")):
            raise _unsupported(name, f"dtype {step.dtype}")
        self._scale(name, 1 / 255 if getattr(step, "scale", True) else 1.0)


def _flattened(transform: Any) -> Iterator[Any]:
    """The steps of a transform, with those of transforms inside it."""
    steps = getattr(transform, "transforms", None)
    if steps is None and type(transform).__name__ == "Sequential":
        steps = list(transform)
    if steps is None:
        yield transform
        return
    for step in steps:
        yield from _flattened(step)


def _resized(geometry: Geometry, name: str, step: Any, *, is_tensor: bool) -> Geometry:
    """The geometry after a resizing step of torchvision or timm.

    Tensors are resized by torch, which takes other pixels for "nearest" than Pillow, and smooths only if it is told to.
    """
    if step.size is None:
        raise _unsupported(name, "no size")
    rule: ResizeRule = "short" if isinstance(step.size, int) or len(step.size) == 1 else "exact"
    if name == "ResizeKeepRatio":  # In timm, the image fits into the size (``longest`` 1) or covers it (0).
        if step.longest not in (0.0, 1.0) or step.random_scale_prob or step.random_aspect_prob:
            raise _unsupported(name, "random or mixed ratios")
        rule = "fit" if step.longest else "cover"
    elif getattr(step, "max_size", None) is not None:
        raise _unsupported(name, "max_size")
    interpolation = _interpolation(step.interpolation)
    if is_tensor and getattr(step.interpolation, "value", None) == "nearest":
        interpolation = "opencv-nearest"
    elif is_tensor and getattr(step, "antialias", True) is False:
        interpolation = _WITHOUT_ANTIALIASING.get(interpolation, interpolation)
    return replace(geometry, resize=_size(step.size), resize_rule=rule, interpolation=interpolation)


def _channels(values: Any) -> Colour:
    """Mean or std of three channels; a single value is repeated for each channel."""
    if hasattr(values, "tolist"):
        values = values.tolist()
    channels = tuple(float(number) for number in values)
    if len(channels) == 1:
        channels *= 3
    return cast(Colour, channels)


def _unsupported(name: str, reason: str) -> ClassifierError:
    return ClassifierError(
        f"the transform {name} is not understood",
        found=reason,
        expected="Resize, CenterCrop, ToTensor (or ToImage and ToDtype) and Normalize, in this order",
        hint="pass the transform of the evaluation, or a dict such as {'size': 32, 'mean': 0.5, 'std': 0.25}",
    )
