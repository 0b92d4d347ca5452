"""Images of no class, made by a formula, for out-of-distribution detection: ``--data anomalies:gaussian``.

Gaussian, Bernoulli and blobs are those of the code of Hendrycks et al. 2019 (outlier exposure), blobs scaled up from
its 32 pixels; textures are random gratings, not the photographs of the Describable Textures Dataset.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from shiftbench.arrays import FloatArray
from shiftbench.datasets.base import Dataset, DatasetKind, DecodedImage
from shiftbench.errors import DatasetError, argument, check_names
from shiftbench.io.hashing import digest
from shiftbench.io.paths import Location
from shiftbench.labels.catalogue import label_space
from shiftbench.labels.space import LabelSpace

_VERSION = 2


def _blobs(rng: np.random.Generator, side: int) -> FloatArray:
    """Blurred binary noise (over channels, too) where it exceeds 0.75, black elsewhere: shapes with sharp edges."""
    from scipy.ndimage import gaussian_filter

    spread = 1.5 * side / 32
    smooth = gaussian_filter(1.0 * rng.binomial(1, 0.7, (side, side, 3)), (spread, spread, 1.5), mode="nearest")
    # The blurred values of a larger image lie nearer to their mean of 0.7. They are spread as those of 32 pixels, so
    # that the same share stays above the threshold.
    level = 0.7 + (smooth - 0.7) * side / 32
    return np.where(level < 0.75, 0.0, level)


def _textures(rng: np.random.Generator, side: int) -> FloatArray:
    """Three gratings of random direction, wavelength and colour, added up."""
    y, x = np.mgrid[:side, :side] / side
    total = np.full((side, side, 3), 0.5)
    for _ in range(3):
        angle = rng.uniform(0, np.pi)
        waves = rng.uniform(4, 40)
        phase = rng.uniform(0, 2 * np.pi)
        grating = np.sin(2 * np.pi * waves * (np.cos(angle) * x + np.sin(angle) * y) + phase)
        total += grating[..., None] * rng.uniform(-0.4, 0.4, 3)
    return total


#: Functions from a generator and a side length to (side, side, 3) of values that are cut to [0, 1].
ANOMALIES: dict[str, Callable[[np.random.Generator, int], FloatArray]] = {
    "gaussian": lambda rng, side: rng.normal(0.5, 0.5, (side, side, 3)),
    "bernoulli": lambda rng, side: rng.binomial(1, 0.5, (side, side, 3)).astype(float),
    "blobs": _blobs,
    "textures": _textures,
}


class Anomalies(Dataset):
    """Seeded images without labels; ``space`` is that of the model's predictions."""

    def __init__(self, which: str, space: LabelSpace, images: int, side: int, seed: int, name: str) -> None:
        self.which = which
        self.side = side
        self.seed = seed
        self.space = space
        self.name = name
        self.ids = [f"{which}-{i:05d}" for i in range(images)]
        self.labels = np.full(images, -1, np.int32)

    @property
    def fingerprint(self) -> str:
        return digest(["anomalies", _VERSION, self.which, len(self.ids), self.side, self.seed])

    def read(self, index: int) -> DecodedImage:
        values = ANOMALIES[self.which](np.random.default_rng([self.seed, index]), self.side)
        return DecodedImage((255 * np.clip(values, 0.0, 1.0)).round().astype(np.uint8))


def open_anomalies(
    path: Location,
    *,
    space: LabelSpace | str | None = None,
    name: str | None = None,
    images: int = 2000,
    side: int = 224,
    seed: int = 0,
) -> Dataset:
    """``anomalies:gaussian``, ``bernoulli``, ``blobs`` or ``textures``: as many images as ImageNet-O has, of 224 px."""
    check_names("anomaly set", [path.name], ANOMALIES)
    if space is None:
        raise DatasetError(
            "images of no class need a label space for the predictions", hint=argument("labels", "imagenet-1k")
        )
    if isinstance(space, str):
        space = label_space(space)
    return Anomalies(path.name, space, images, side, seed, name or f"anomalies-{path.name}")


KIND = DatasetKind(lambda path: None, open_anomalies)
