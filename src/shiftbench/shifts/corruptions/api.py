"""Corrupt an image or a batch, and the corruption as a shift of the evaluation line."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np

from shiftbench.arrays import Pixels
from shiftbench.errors import ShiftError
from shiftbench.shifts.base import Shift, shift_kinds
from shiftbench.shifts.compose import ThenJpeg
from shiftbench.shifts.corruptions.catalogue import CORRUPTIONS, Definition
from shiftbench.shifts.corruptions.frost import PROCEDURAL, resolve_textures, texture_source
from shiftbench.shifts.corruptions.greyscale import luma
from shiftbench.shifts.corruptions.randomness import Draws, KeyedDraws, PublishedDraws
from shiftbench.shifts.corruptions.severities import TABLES, parameters
from shiftbench.shifts.seeds import SEED_SCHEME, derive_key

GENERATOR_VERSION = "1"
MIN_SIDE = 8
_SIZE_RULE = "table of the nearest published side (32, 64, 224, 299) to the shorter side; lengths scaled"
_RULES = {"testbed": "224 px table at every size"}


def corrupt(
    image: Pixels,
    name: str,
    severity: float = 1,
    *,
    seed: int = 0,
    image_id: str | Sequence[str] | None = None,
    rng: np.random.RandomState | None = None,
    **options: Any,
) -> Pixels:
    """A corrupted copy of one uint8 image (H, W, 3) or (H, W), or of a batch (N, H, W, 3).

    The pixels depend on (seed, image id, corruption, severity) and the input alone. ``image_id`` is a string
    for one image, a sequence of strings for a batch; without it a single image has the id "0" and the images
    of a batch "0", "1", ... With ``rng`` the numbers are drawn from that RandomState in the order of the
    published ImageNet-C code instead, for a batch image after image, and seed and ids play no part.

    Options: ``frost_textures`` (frost: a folder, "package" or "procedural"), ``true_swap`` (glass_blur).
    A greyscale image is corrupted as three equal channels and brought back by its luma, except for noise,
    which is drawn once for each pixel.

    >>> import numpy as np
    >>> image = np.zeros((64, 64, 3), np.uint8)
    >>> corrupt(image, "fog", severity=3, seed=0, image_id="cat.jpg").shape
    (64, 64, 3)
    >>> batch = np.stack([image, image])
    >>> bool((corrupt(batch, "snow", 2)[0] == corrupt(image, "snow", 2)).all())
    True
    """
    shift = Corruption(name, severity, options)
    array = _checked(image)
    if array.ndim < 4:
        if image_id is not None and not isinstance(image_id, str):
            raise ShiftError("one image has one id", found=f"{type(image_id).__name__}", expected="a string")
        return shift.apply(
            array, shift.draws(seed, "0" if image_id is None else image_id) if rng is None else PublishedDraws(rng)
        )
    ids = _batch_ids(image_id, len(array))
    if rng is None:
        return shift.batch(array, image_ids=ids, seed=seed)
    draws = PublishedDraws(rng)
    out = np.empty_like(array)
    for i in range(len(array)):
        out[i] = shift.apply(array[i], draws)
    return out


@dataclass(frozen=True)
class Corruption(Shift):
    """One corruption at one severity, as a :class:`~shiftbench.shifts.base.Shift`.

    >>> fog = Corruption("fog", 3)
    >>> fog.name, fog.describe()["generator"]
    ('fog.3', '1')
    """

    corruption: str
    severity: float = 1
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        definition = CORRUPTIONS.get(self.corruption)
        _check_severity(self.severity)
        options = dict(self.options)
        unknown = sorted(set(options) - set(definition.options))
        if unknown:
            raise ShiftError(
                f"{self.corruption} does not take the option {unknown[0]!r}",
                expected=", ".join(definition.options) or "no options",
            )
        if "frost_textures" in definition.options:
            # Settled here, so that workers elsewhere use the same images or stop.
            choice = cast("str | Path | None", options.get("frost_textures"))
            options["frost_textures"] = resolve_textures(choice)
        object.__setattr__(self, "options", options)
        object.__setattr__(self, "severity", float(self.severity))  # 3, 3.0 and NumPy's 3 are one severity

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"{self.corruption}.{self.severity:g}"

    def __call__(self, image: Pixels, *, image_id: str, seed: int) -> Pixels:
        return self.apply(_checked(image), self.draws(seed, image_id))

    def draws(self, seed: int, image_id: str) -> KeyedDraws:
        return KeyedDraws(derive_key(seed, "corruption", self.corruption, self.severity, image_id))

    def apply(self, image: Pixels, draws: Draws) -> Pixels:
        """Corrupt one checked image with the given source of random numbers."""
        definition = CORRUPTIONS.get(self.corruption)
        if not (image.flags.c_contiguous and image.flags.writeable):
            image = image.copy()  # kernels are compiled for one kind of array
        if image.ndim == 3 or definition.any_channels:
            return self._run(definition, image, draws)
        return luma(self._run(definition, np.repeat(image[..., None], 3, axis=2), draws))

    def _run(self, definition: Definition, image: Pixels, draws: Draws) -> Pixels:
        if definition.tabled:
            row = parameters(self.corruption, self.severity, *image.shape[:2]).values
            result = definition.function(image, row, draws, **self.options)
        else:
            result = definition.function(image, self.severity, draws, **self.options)
        if not isinstance(result, np.ndarray) or result.shape != image.shape or result.dtype != np.uint8:
            raise ShiftError(
                f"the corruption {self.corruption!r} broke its contract",
                found=f"{type(result).__name__} {getattr(result, 'shape', '')} {getattr(result, 'dtype', '')}",
                expected=f"a uint8 array {image.shape}",
            )
        return result

    def describe(self) -> dict[str, Any]:
        definition = CORRUPTIONS.get(self.corruption)
        options = dict(self.options)
        out: dict[str, Any] = {
            "shift": "corruption",
            "corruption": self.corruption,
            "severity": float(self.severity),
            "generator": GENERATOR_VERSION,
            "seed_scheme": SEED_SCHEME,
            "rule": _RULES.get(definition.group, _SIZE_RULE if definition.tabled else "severity as given"),
        }
        if self.corruption in TABLES[224] and definition.tabled:
            out["parameters_224"] = list(parameters(self.corruption, self.severity, 224, 224).values)
        if "frost_textures" in options:
            out["frost"] = texture_source(options.pop("frost_textures"))
        if options:
            out["options"] = options
        return out

    def record(self) -> dict[str, Any]:
        return {
            "shift": "corruption",
            "corruption": self.corruption,
            "severity": float(self.severity),
            "options": dict(self.options),
        }


@shift_kinds.register("corruption")
def _rebuild(record: Mapping[str, Any]) -> Shift:
    options = dict(record.get("options", {}))
    # A description of version 0.1 has the textures' provenance, and JPEG at the quality of the released files.
    if "frost" in record:
        options["frost_textures"] = _textures_of(record["frost"])
    shift = Corruption(record["corruption"], record["severity"], options)
    written = ThenJpeg(shift)
    return written if record.get("then") == written.describe()["then"] else shift


def _textures_of(source: object) -> str | None:
    """The textures of this machine that have a provenance; None where it has no such."""
    return PROCEDURAL if texture_source(PROCEDURAL) == source else None


def _check_severity(severity: float) -> None:
    number = isinstance(severity, (int, float, np.integer, np.floating)) and not isinstance(severity, bool)
    if not number or not math.isfinite(severity) or not 1 <= severity <= 5:
        raise ShiftError(
            "invalid severity",
            found=repr(severity),
            expected="a number from 1 to 5, whole or not",
            hint="leave the shift out for a clean image",
        )


def _checked(image: Pixels) -> Pixels:
    shape = getattr(image, "shape", None)
    if not isinstance(image, np.ndarray) or image.dtype != np.uint8:
        found = f"{type(image).__name__} of {getattr(image, 'dtype', 'no dtype')}"
        raise ShiftError(
            "corruptions work on 8-bit images",
            found=found,
            expected="a uint8 NumPy array",
            hint="for floats on [0, 1]: (image * 255).round().astype('uint8')",
        )
    grey, colour = image.ndim == 2, image.ndim in (3, 4) and image.shape[-1] == 3
    if not grey and not colour:
        raise ShiftError(
            "not an image or a batch of images",
            found=f"an array of shape {shape}",
            expected="(H, W, 3), (H, W) or (N, H, W, 3)",
            hint="drop an alpha channel with image[..., :3]" if image.shape[-1:] == (4,) else None,
        )
    height, width = image.shape[-2:] if grey else image.shape[-3:-1]
    if min(height, width) < MIN_SIDE:
        raise ShiftError(
            "the image is too small to corrupt",
            found=f"{height} x {width} px",
            expected=f"at least {MIN_SIDE} px on each side",
        )
    return image


def _batch_ids(image_id: str | Sequence[str] | None, n: int) -> list[str]:
    if image_id is None:
        return [str(i) for i in range(n)]
    ids = [image_id] if isinstance(image_id, str) else [str(i) for i in image_id]
    if len(ids) != n:
        raise ShiftError("a batch needs one id for each image", found=f"{len(ids)} ids", expected=f"{n} ids")
    return ids
