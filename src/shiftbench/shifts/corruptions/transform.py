"""``Corrupt``: corruptions as a transform of training and evaluation pipelines."""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Sequence
from typing import Any

from shiftbench.arrays import Pixels
from shiftbench.errors import ShiftError, UnknownNameError
from shiftbench.shifts.corruptions.api import Corruption, default_ids, image_ids
from shiftbench.shifts.corruptions.catalogue import CORRUPTIONS, GROUPS, corruptions
from shiftbench.shifts.corruptions.image_kinds import Unpacked, unpack
from shiftbench.shifts.seeds import derive_key, random_word

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
        **options: Any,
    ) -> None:
        self.corruption, self.severity, self.seed, self.options = corruption, severity, seed, options
        names = _names(corruption)
        severities = [severity] if isinstance(severity, str | float | int) else list(severity)
        taken = {name: CORRUPTIONS.get(name).options for name in names}
        for option in options:
            if not any(option in one for one in taken.values()):
                known = sorted({known for one in taken.values() for known in one})
                raise ShiftError(
                    f"{corruption!r} does not take the option {option!r}", expected=", ".join(known) or "no options"
                )
        self._choices = [
            Corruption(name, one, {key: value for key, value in options.items() if key in taken[name]})
            for name in names
            for one in severities
        ]
        if not self._choices:
            raise ShiftError("nothing to choose from", found=repr(self), expected="a corruption and a severity")

    def __call__(self, image: Any, *others: Any, id: str | Sequence[str] | None = None) -> Any:
        """Corrupt an image or a batch.

        Args:
            image: The image or batch.
            *others: Returned as they are, behind the image: labels, masks and boxes of torchvision's joint transforms.
            id: The image's id, or one per image of a batch, for the benchmark's exact pixels.

        Returns:
            The corrupted image, or a tuple of it and ``others``.
        """
        given = unpack(image)
        seed, ids = self._stream(given, image_ids(id, given))
        corrupted = given.map(lambda pixels, i: self._one(pixels, seed, ids[i]))
        return (corrupted, *others) if others else corrupted

    def __repr__(self) -> str:
        severity = list(self.severity) if isinstance(self.severity, range) else self.severity
        more = {} if self.seed is None else {"seed": self.seed}
        shown = "".join(f", {key}={value!r}" for key, value in {"severity": severity, **more, **self.options}.items())
        return f"Corrupt({self.corruption!r}{shown})"

    def _stream(self, given: Unpacked, ids: list[str] | None) -> tuple[int, list[str]]:
        if ids is not None:
            return self.seed or 0, ids
        if self.seed is None:
            return _fresh_seed(), default_ids(given)
        return self.seed, [_content(one) for one in (given.pixels if given.batch else [given.pixels])]

    def _one(self, pixels: Pixels, seed: int, image_id: str) -> Pixels:
        number = 0
        if len(self._choices) > 1:
            number = random_word(derive_key(seed, "choice", image_id), 0) % len(self._choices)
        chosen = self._choices[number]
        return chosen.apply(pixels, chosen.draws(seed, image_id))


def _names(corruption: str | Sequence[str]) -> list[str]:
    if not isinstance(corruption, str):
        return list(corruption)
    if corruption in CORRUPTIONS:
        return [corruption]
    if corruption in _SETS:
        return corruptions(corruption)
    raise UnknownNameError("corruption", corruption, [*CORRUPTIONS.names(), *_SETS])


def _fresh_seed() -> int:
    """Workers of a DataLoader seed both generators differently in every worker and epoch."""
    torch = sys.modules.get("torch")
    return random.getrandbits(63) if torch is None else int(torch.randint(2**63 - 1, (), device="cpu"))


def _content(pixels: Pixels) -> str:
    return hashlib.blake2b(pixels.tobytes(), digest_size=16).hexdigest()
