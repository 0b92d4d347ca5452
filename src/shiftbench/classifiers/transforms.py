"""Evaluation transforms of torchvision (v1, v2) and timm as a ``Preprocessing``; neither is imported here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from shiftbench.classifiers.preprocessing import Normalisation, Preprocessing
from shiftbench.datasets.geometry import Geometry, ResizeRule
from shiftbench.errors import ClassifierError

#: Conversions that do not change values.
_NEUTRAL = {"Identity", "ToImage", "PILToTensor", "ToPILImage", "ToPureTensor", "RGB", "MaybePILToTensor", "ToNumpy"}
_RAW = Preprocessing(Geometry(None, None), Normalisation(mean=(0, 0, 0), std=(1, 1, 1), scale=1))
#: Conversions to [0, 1].
_SCALING = {"ToTensor", "MaybeToTensor"}


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
    size = _size(step.size)
    rule: ResizeRule = "short" if isinstance(step.size, int) or len(step.size) == 1 else "exact"
    geometry = replace(result.geometry, resize=size, resize_rule=rule, interpolation=_interpolation(step))
    return replace(result, geometry=geometry)


def _kept_ratio(result: Preprocessing, step: Any) -> Preprocessing:
    """timm's: both sides fit in (``longest`` 1) or cover (0)."""
    if step.longest not in (0.0, 1.0) or step.random_scale_prob or step.random_aspect_prob:
        raise _unsupported("ResizeKeepRatio", "random or mixed ratios")
    rule: ResizeRule = "fit" if step.longest else "cover"
    geometry = replace(result.geometry, resize=_size(step.size), resize_rule=rule, interpolation=_interpolation(step))
    return replace(result, geometry=geometry)


def _cropped(result: Preprocessing, step: Any) -> Preprocessing:
    fill = getattr(step, "fill", 0)
    colour = (fill,) * 3 if isinstance(fill, int) else tuple(fill)
    return replace(result, geometry=replace(result.geometry, crop=_size(step.size), fill=colour))


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


def _size(size: Any) -> int | tuple[int, int]:
    sides = [size] if isinstance(size, int) else [int(side) for side in size]
    return sides[0] if len(sides) == 1 else (sides[0], sides[1])


def _interpolation(step: Any) -> Any:
    return str(getattr(step.interpolation, "value", step.interpolation)).lower()


def _unsupported(name: str, why: str) -> ClassifierError:
    return ClassifierError(
        f"the transform {name} is not understood",
        found=why,
        expected="Resize, CenterCrop, ToTensor (or ToImage and ToDtype) and Normalize, in this order",
        hint="pass the transform of the evaluation, or a dict such as {'size': 32, 'mean': 0.5, 'std': 0.25}",
    )
