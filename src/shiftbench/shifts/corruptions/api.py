"""Corrupt an image or a batch; the corruption as a shift of the evaluation line, and as a transform of pipelines."""

from __future__ import annotations

import hashlib
import math
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import numpy as np

from shiftbench.arrays import Pixels
from shiftbench.errors import ShiftError, UnknownNameError, warn_user
from shiftbench.io.code_state import code_state, source_of
from shiftbench.io.hashing import digest
from shiftbench.shifts.base import Shift, shift_kinds
from shiftbench.shifts.compose import ThenJpeg, luma
from shiftbench.shifts.corruptions.catalogue import CORRUPTIONS, GROUPS, corruptions
from shiftbench.shifts.corruptions.frost import PROCEDURAL, resolve_textures, texture_source
from shiftbench.shifts.corruptions.image_kinds import Unpacked, unpack
from shiftbench.shifts.corruptions.severities import TABLES, parameters
from shiftbench.shifts.seeds import SEED_SCHEME, Draws, KeyedDraws, PublishedDraws, derive_key, random_word

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
    **options: object,
) -> Image:
    """Corrupt one image or a batch, reproducibly.

    The pixels depend on (seed, image id, corruption, severity) and the input alone. The kernels work on 8 bits:
    16-bit and float values are rounded to 256 levels first. An alpha channel passes unchanged. A greyscale image is
    corrupted as three equal channels and brought back by its luma, except for noise, which is drawn once per pixel.

    For fresh noise at every call, as in training, use ``sb.Corrupt``.

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
    unpacked = unpack(image)
    ids = image_ids(image_id, unpacked)
    if rng is not None:
        published = PublishedDraws(rng)
        return cast("Image", unpacked.map(lambda pixels, _: shift.apply(pixels, published)))
    draws_of_images = [shift.draws(seed, id_of_image) for id_of_image in ids or _numbered(unpacked)]
    corrupted = unpacked.map(lambda pixels, i: shift.apply(pixels, draws_of_images[i]))
    if ids is None and any(draws.used for draws in draws_of_images):
        _warn_of_shared_noise(unpacked.pixels, seed)
    return cast("Image", corrupted)


def image_ids(image_id: str | Sequence[str] | None, image: Unpacked) -> list[str] | None:
    """One id per image, checked; None if none were given."""
    if image_id is None:
        return None
    if not image.batch:
        if not isinstance(image_id, str):
            raise ShiftError("one image has one id", found=type(image_id).__name__, expected="a string")
        return [image_id]
    if isinstance(image_id, str):
        ids = [image_id]
    else:
        ids = [str(name) for name in image_id]
    if len(ids) != len(image.pixels):
        raise ShiftError(
            "a batch needs one id for each image", found=f"{len(ids)} ids", expected=f"{len(image.pixels)} ids"
        )
    return ids


def _numbered(image: Unpacked) -> list[str]:
    """The ids of images that have none: their positions."""
    if not image.batch:
        return ["0"]
    return [str(i) for i in range(len(image.pixels))]


#: The last seed and image that were corrupted without an id, until the warning was given.
_unnamed: tuple[int, bytes] | None = None
_warned = False


def _warn_of_shared_noise(pixels: Pixels, seed: int) -> None:
    """Warn once per process that different images without an id get the same noise.

    A few hundred pixels distinguish images well enough for a warning, at no cost.
    """
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
    """One corruption at one severity, as a ``Shift``.

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
        severity = self.severity
        options = dict(self.options)
        is_number = isinstance(severity, (int, float, np.integer, np.floating)) and not isinstance(severity, bool)
        if not is_number or not math.isfinite(severity) or not 1 <= severity <= 5:
            raise ShiftError(
                "invalid severity",
                found=repr(severity),
                expected="a number from 1 to 5, whole or not",
                hint="leave the shift out for a clean image",
            )
        unknown = sorted(set(options) - set(definition.options))
        if unknown:
            raise ShiftError(
                f"{self.corruption} does not take the option {unknown[0]!r}",
                expected=", ".join(definition.options) or "no options",
            )
        if "frost_textures" in definition.options:
            # Settled here, so that workers elsewhere use the same images or stop.
            options["frost_textures"] = resolve_textures(options.get("frost_textures"))
        object.__setattr__(self, "options", options)
        object.__setattr__(self, "severity", float(severity))  # 3, 3.0 and NumPy's 3 are one severity

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"{self.corruption}.{self.severity:g}"

    def __call__(self, image: Pixels, *, image_id: str, seed: int) -> Pixels:
        unpacked = unpack(image)
        image_ids(image_id, unpacked)
        corrupted: Pixels = unpacked.map(lambda pixels, _: self.apply(pixels, self.draws(seed, image_id)))
        return corrupted

    def batch(self, images: Pixels, *, image_ids: Sequence[str], seed: int) -> Pixels:
        if not len(images):
            return images
        corrupted: Pixels = unpack(images).map(lambda pixels, i: self.apply(pixels, self.draws(seed, image_ids[i])))
        return corrupted

    def draws(self, seed: int, image_id: str) -> KeyedDraws:
        """The random numbers of one image."""
        return KeyedDraws(derive_key(seed, "corruption", self.corruption, self.severity, image_id))

    def apply(self, image: Pixels, draws: Draws) -> Pixels:
        """Corrupt one checked image with the given source of random numbers."""
        definition = CORRUPTIONS.get(self.corruption)
        if not (image.flags.c_contiguous and image.flags.writeable):
            image = image.copy()  # kernels are compiled for one kind of array
        if image.ndim == 2 and not definition.any_channels:
            return luma(self.apply(np.repeat(image[..., None], 3, axis=2), draws))
        strength: Any = self.severity
        if definition.tabled:
            strength = parameters(self.corruption, self.severity, *image.shape[:2])
        result = definition.function(image, strength, draws, **self.options)
        if not isinstance(result, np.ndarray) or result.shape != image.shape or result.dtype != np.uint8:
            raise ShiftError(
                f"the corruption {self.corruption!r} returned an invalid image",
                found=f"{type(result).__name__} {getattr(result, 'shape', '')} {getattr(result, 'dtype', '')}",
                expected=f"a uint8 array {image.shape}",
            )
        return result

    def describe(self) -> dict[str, Any]:
        definition = CORRUPTIONS.get(self.corruption)
        options = dict(self.options)
        rule_without_group = _SIZE_RULE if definition.tabled else "severity as given"
        description: dict[str, object] = {
            "shift": "corruption",
            "corruption": self.corruption,
            "severity": self.severity,
            "generator": GENERATOR_VERSION,
            "seed_scheme": SEED_SCHEME,
            "rule": _RULES.get(definition.group, rule_without_group),
        }
        if self.corruption in TABLES[224] and definition.tabled:
            description["parameters_224"] = list(parameters(self.corruption, self.severity, 224, 224))
        if "frost_textures" in options:
            description["frost"] = texture_source(options.pop("frost_textures"))
        if definition.identity is not None:
            options = dict(definition.identity(options))
        if options:
            description["options"] = options
        if not (definition.function.__module__ or "").startswith("shiftbench."):
            # The code of a third party has no version that we know of.
            function = definition.function
            description["code"] = digest(source_of(function), sorted(code_state(function).items()))
        return description

    def record(self) -> dict[str, Any]:
        named = {"shift": "corruption", "corruption": self.corruption}
        return {**named, "severity": self.severity, "options": dict(self.options)}


@shift_kinds.register("corruption")
def _rebuild(record: Mapping[str, Any]) -> Shift:
    options = dict(record.get("options", {}))
    # A description of version 0.1 has the textures' provenance, and JPEG at the quality of the released files.
    if "frost" in record:
        is_procedural = record["frost"] == texture_source(PROCEDURAL)
        options["frost_textures"] = PROCEDURAL if is_procedural else None
    shift = Corruption(record["corruption"], record["severity"], options)
    compressed = ThenJpeg(shift)
    if record.get("then") == compressed.describe()["then"]:
        return compressed
    return shift


_SETS = ("benchmark", "extra", "all", "registered", *GROUPS)


class Corrupt:
    """A transform that corrupts images, for DataLoaders, ``torchvision.transforms`` (v1 and v2) and plain loops.

    Images may be PIL, NumPy or torch (``tv_tensors.Image`` included), uint8, uint16 or floats on [0, 1], with 1, 3
    or 4 channels, channels first or last, single or in batches; what comes out has the same kind, type, shape and
    device. The kernels work on 8 bits: 16-bit and float values are rounded to 256 levels. Alpha passes unchanged.

    Randomness:
        * By default every call draws fresh noise, from torch's global generator in programs that have imported torch
          and from Python's ``random`` in others. ``torch.manual_seed`` therefore makes a run reproducible, and the
          workers of a DataLoader get different noise in every worker and epoch.
        * With ``seed``, the noise depends on the seed and the image's content alone: different images get different
          noise, the same image always the same.
        * With an id, ``transform(image, id="cat.jpg")``, the pixels are those of the benchmark: of ``corrupt()`` and
          of ``evaluate()`` with this seed (0 if none is given).

    Args:
        corruption: A name, several names, or a set of them ("benchmark", "extra", "all", "noise", "blur", "weather",
            "digital"); of several, one is chosen at random for each image.
        severity: 1 to 5, whole or not; of several, one is chosen at random for each image.
        seed: None for fresh noise at every call.
        **options: As for ``corrupt()``: ``frost_textures``, ``true_swap``; passed to the corruptions that take them.

    Raises:
        ShiftError: If a severity or option is invalid.
        UnknownNameError: If no such corruption is registered.

    Example:
        >>> import numpy as np
        >>> transform = Corrupt("weather", severity=[2, 3])
        >>> transform
        Corrupt('weather', severity=[2, 3])
        >>> transform(np.zeros((3, 32, 32), np.float32)).shape
        (3, 32, 32)
        >>> image = np.full((32, 32, 3), 90, np.uint8)
        >>> fog = Corrupt("fog", severity=3)
        >>> bool((fog(image, id="a.png") == fog(image, id="a.png")).all()), bool((fog(image) == fog(image)).all())
        (True, False)
    """

    def __init__(
        self,
        corruption: str | Sequence[str],
        severity: float | Sequence[float] = 1,
        *,
        seed: int | None = None,
        **options: object,
    ) -> None:
        self.corruption = corruption
        self.severity = severity
        self.seed = seed
        self.options = options
        names = _corruption_names(corruption)
        if isinstance(severity, str | float | int):
            severities = [severity]
        else:
            severities = list(severity)
        accepted_options = {name: CORRUPTIONS.get(name).options for name in names}
        accepted_by_any = sorted(set().union(*accepted_options.values()))
        for option in options:
            if option not in accepted_by_any:
                raise ShiftError(
                    f"{corruption!r} does not take the option {option!r}",
                    expected=", ".join(accepted_by_any) or "no options",
                )
        self._choices: list[Corruption] = []
        for name in names:
            own_options = {key: value for key, value in options.items() if key in accepted_options[name]}
            self._choices += [Corruption(name, level, own_options) for level in severities]
        if not self._choices:
            raise ShiftError("nothing to choose from", found=repr(self), expected="a corruption and a severity")

    def __call__(self, image: object, *others: object, id: str | Sequence[str] | None = None) -> Any:
        """Corrupt an image or a batch.

        Args:
            image: The image or batch.
            *others: Returned as they are, behind the image: labels, masks and boxes of torchvision's joint transforms.
            id: The image's id, or one per image of a batch, for the benchmark's exact pixels.

        Returns:
            The corrupted image, or a tuple of it and ``others``.
        """
        unpacked = unpack(image)
        ids = image_ids(id, unpacked)
        seed = self.seed or 0
        if ids is None and self.seed is None:
            ids = _numbered(unpacked)
            seed = _fresh_seed()
        elif ids is None:
            ids = _content_hashes(unpacked)

        def corrupt_image(pixels: Pixels, position: int) -> Pixels:
            image_id = ids[position]
            shift = self._choices[0]
            if len(self._choices) > 1:
                number = random_word(derive_key(seed, "choice", image_id), 0)
                shift = self._choices[number % len(self._choices)]
            return shift.apply(pixels, shift.draws(seed, image_id))

        corrupted = unpacked.map(corrupt_image)
        if others:
            return (corrupted, *others)
        return corrupted

    def __repr__(self) -> str:
        arguments: dict[str, object] = {"severity": self.severity}
        if isinstance(self.severity, range):
            arguments["severity"] = list(self.severity)
        if self.seed is not None:
            arguments["seed"] = self.seed
        arguments |= self.options
        text = "".join(f", {key}={value!r}" for key, value in arguments.items())
        return f"Corrupt({self.corruption!r}{text})"


def _corruption_names(corruption: str | Sequence[str]) -> list[str]:
    """The corruptions that a name, a set or a list of names stands for."""
    if not isinstance(corruption, str):
        return list(corruption)
    if corruption in CORRUPTIONS:
        return [corruption]
    if corruption not in _SETS:
        raise UnknownNameError("corruption", corruption, [*CORRUPTIONS.names(), *_SETS])
    return corruptions(corruption)


def _fresh_seed() -> int:
    """A seed from torch's generator if the program uses torch, else from Python's.

    Workers of a DataLoader seed both generators differently in every worker and epoch.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return random.getrandbits(63)
    return int(torch.randint(2**63 - 1, (), device="cpu"))


def _content_hashes(image: Unpacked) -> list[str]:
    images = image.pixels if image.batch else [image.pixels]
    return [hashlib.blake2b(pixels.tobytes(), digest_size=16).hexdigest() for pixels in images]
