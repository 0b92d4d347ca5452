"""What the plug-in registers. shiftbench imports this module at the first look-up of a name."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from shiftbench import Dataset, LabelSpace, Predictions, Score
from shiftbench.datasets import DatasetKind, dataset_kinds, from_arrays
from shiftbench.errors import DatasetError
from shiftbench.extend.shifts import Draws
from shiftbench.extend.types import Pixels
from shiftbench.metrics import Needs, metric, proportion
from shiftbench.shifts import corruption

#: Side of the images in a .raw file.
SIDE = 32


@corruption("stripes", group="digital")
def stripes(image: Pixels, severity: float, draws: Draws) -> Pixels:
    """Darken every eighth row, as a defective sensor does; the first row is random."""
    first = draws.integer(0, 8)
    striped = image.astype(np.float64)
    striped[first::8] *= 1 - 0.18 * severity
    return striped.astype(np.uint8)


@metric("confident_mistakes", needs=Needs(top_k=1), higher_is_better=False)
def confident_mistakes(predictions: Predictions, *, level: float = 0.95) -> Score:
    """The share of images that are wrong at a confidence above 0.9."""
    wrong = ~predictions.correct & (predictions.confidence[predictions.valid] > 0.9)
    return proportion("confident_mistakes", int(wrong.sum()), predictions, n=len(wrong), level=level)


def recognise_raw(path: Path) -> str | None:
    """What a path is, by its name alone; None if it is of another kind."""
    return "a raw file" if path.suffix == ".raw" else None


def open_raw(path: str | Path, *, space: LabelSpace | str | None = None, name: str | None = None) -> Dataset:
    """Raw RGB images of 32 x 32 pixels, each after one byte with its class."""
    record_size = 1 + 3 * SIDE**2
    content = np.fromfile(path, np.uint8)
    if len(content) % record_size:
        raise DatasetError(
            f"{path} is not a raw file",
            found=f"{len(content)} bytes",
            expected=f"a multiple of {record_size}",
            hint="write one byte with the class before each image",
        )
    records = content.reshape(-1, record_size)
    images = records[:, 1:].reshape(-1, SIDE, SIDE, 3)
    return from_arrays(images, records[:, 0].astype(int), space=space or "cifar-10", name=name or Path(path).stem)


dataset_kinds.add("raw", DatasetKind(recognise_raw, open_raw))
