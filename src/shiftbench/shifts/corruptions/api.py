"""Corrupt an image or a batch, and the corruption as a shift of the evaluation line."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from shiftbench.arrays import Pixels
from shiftbench.errors import ShiftError, warn_user
from shiftbench.shifts.base import Shift, shift_kinds
from shiftbench.shifts.compose import ThenJpeg
from shiftbench.shifts.corruptions.catalogue import CORRUPTIONS, Definition
from shiftbench.shifts.corruptions.frost import PROCEDURAL, resolve_textures, texture_source
from shiftbench.shifts.corruptions.greyscale import luma
from shiftbench.shifts.corruptions.image_kinds import Unpacked, unpack
from shiftbench.shifts.corruptions.randomness import Draws, KeyedDraws, PublishedDraws
from shiftbench.shifts.corruptions.severities import TABLES, parameters
from shiftbench.shifts.seeds import SEED_SCHEME, derive_key

Image = TypeVar("Image")
GENERATOR_VERSION = "1"
_SIZE_RULE = "table of the nearest published side (32, 64, 224, 299) to the shorter side; lengths scaled"
_RULES = {"testbed": "224 px table at every size"}


def corrupt(
    image: Image,
    name: str,
    severity: float = 1,
    *,
    seed: int = 0,
    image_id: str | Sequence[str] | None = None,
    rng: np.random.RandomState | None = None,
    **options: Any,
) -> Image:
    """Corrupt one image or a batch, reproducibly.

    The pixels depend on (seed, image id, corruption, severity) and the input alone. The kernels work on 8 bits:
    16-bit and float values are rounded to 256 levels first. An alpha channel passes unchanged. A greyscale image is
    corrupted as three equal channels and brought back by its luma, except for noise, which is drawn once per pixel.

    For fresh noise at every call, as in training, use :class:`~shiftbench.Corrupt`.

    Args:
        image: A PIL image (L, RGB, RGBA, I;16), NumPy array or torch tensor; uint8, uint16 or floats on [0, 1];
            (H, W), (H, W, C) or (C, H, W) with 1, 3 or 4 channels, or a batch (N, H, W, C) or (N, C, H, W).
        name: A corruption; ``shiftbench.corruptions("registered")`` lists them.
        severity: 1 to 5, whole or not.
        seed: Seed of the benchmark; the results of different seeds are independent.
        image_id: A string for one image, a sequence of strings for a batch. Images with the same id get the same
            noise. Without it, a single image has the id "0" and those of a batch "0", "1", ...; a warning is issued
            when different images are corrupted so.
        rng: Draw the numbers from this RandomState in the order of the published ImageNet-C code instead, for a
            batch image after image; seed and ids play no part.
        **options: ``frost_textures`` (frost: a folder, "package" or "procedural"), ``true_swap`` (glass_blur),
            ``network`` and ``styles`` (style_transfer).

    Returns:
        A corrupted copy of the same kind, type, shape and device as ``image``.

    Raises:
        ShiftError: If the image, severity, ids or options are invalid.
        UnknownNameError: If no such corruption is registered.

    Example:
        >>> import numpy as np
        >>> image = np.zeros((64, 64, 3), np.uint8)
        >>> corrupt(image, "fog", severity=3, seed=0, image_id="cat.jpg").shape
        (64, 64, 3)
        >>> batch = np.stack([image, image])
        >>> bool((corrupt(batch, "snow", 2)[0] == corrupt(image, "snow", 2)).all())
        True
    """
    shift = Corruption(name, severity, options)
    given = unpack(image)
    ids = image_ids(image_id, given)
    if rng is not None:
        published = PublishedDraws(rng)
        return cast("Image", given.map(lambda pixels, _: shift.apply(pixels, published)))
    draws = [shift.draws(seed, one) for one in ids or default_ids(given)]
    corrupted = given.map(lambda pixels, i: shift.apply(pixels, draws[i]))
    if ids is None and any(one.used for one in draws):
        _warn_of_shared_noise(given.pixels, seed)
    return cast("Image", corrupted)


def image_ids(image_id: str | Sequence[str] | None, image: Unpacked) -> list[str] | None:
    """One id per image, checked; None if none were given."""
    if image_id is None:
        return None
    if not image.batch:
        if not isinstance(image_id, str):
            raise ShiftError("one image has one id", found=type(image_id).__name__, expected="a string")
        return [image_id]
    ids = [image_id] if isinstance(image_id, str) else [str(i) for i in image_id]
    if len(ids) != len(image.pixels):
        raise ShiftError(
            "a batch needs one id for each image", found=f"{len(ids)} ids", expected=f"{len(image.pixels)} ids"
        )
    return ids


def default_ids(image: Unpacked) -> list[str]:
    return [str(i) for i in range(len(image.pixels))] if image.batch else ["0"]


#: The last seed and image that were corrupted without an id, until the warning was given.
_unnamed: tuple[int, bytes] | None = None
_warned = False


def _warn_of_shared_noise(pixels: Pixels, seed: int) -> None:
    """Once per process. A few hundred pixels distinguish images well enough for a warning, at no cost."""
    global _unnamed, _warned
    if _warned:
        return
    sampled = pixels.reshape(-1)[:: 1 + pixels.size // 512].tobytes()
    if _unnamed is not None and _unnamed[0] == seed and _unnamed[1] != sampled:
        _warned = True
        warn_user(
            "corrupt() was called for different images without image_id: they get the same noise. Pass image_id=... "
            "(a file name, for example), or use shiftbench.Corrupt for fresh noise at every call."
        )
    _unnamed = (seed, sampled)


@dataclass(frozen=True)
class Corruption(Shift):
    """One corruption at one severity, as a :class:`~shiftbench.shifts.base.Shift`.

    Attributes:
        corruption: Name of the corruption.
        severity: From 1 to 5; fractions are interpolated where the corruption allows it.
        options: Options of the corruption, such as ``frost_textures``.

    Example:
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
        given = unpack(image)
        image_ids(image_id, given)
        corrupted: Pixels = given.map(lambda pixels, _: self.apply(pixels, self.draws(seed, image_id)))
        return corrupted

    def draws(self, seed: int, image_id: str) -> KeyedDraws:
        """The random numbers of one image."""
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
        if definition.identity is not None:
            options = dict(definition.identity(options))
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
