"""Files that state an orientation, or are transparent: the treatment of the training is found and printed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import shiftbench as sb
from shiftbench.arrays import Pixels
from shiftbench.labels.space import Scores

pytestmark = pytest.mark.filterwarnings("ignore::shiftbench.ResultWarning")
STATED = {"size": 16, "resize": "squash", "interpolation": "box"}
#: The value of EXIF's orientation tag for an image that viewers turn by 180 degrees.
UPSIDE_DOWN = 3


def bright_half(images: Pixels) -> Scores:
    """Whether the left or the right half is brighter."""
    middle = images.shape[2] // 2
    return np.stack([images[:, :, :middle].mean((1, 2, 3)), images[:, :, middle:].mean((1, 2, 3))], 1)


def write_images(folder: Path, *, turned: bool, transparent: bool) -> None:
    """80 images that are bright on the left or on the right; a quarter of them have the property."""
    draws = np.random.default_rng(0)
    for name in ("left", "right"):
        (folder / name).mkdir(parents=True)
        for number in range(40):
            pixels = draws.integers(0, 120, (16, 16, 3)).astype(np.uint8)
            bright = slice(0, 8) if name == "left" else slice(8, 16)
            pixels[:, bright] += 120
            image = Image.fromarray(pixels)
            file = folder / name / f"{number}.png"
            if turned and number % 4 == 0:
                exif = Image.Exif()
                exif[0x0112] = UPSIDE_DOWN
                image.transpose(Image.Transpose.ROTATE_180).save(file, exif=exif)
            elif transparent and number % 4 == 0:
                # The dark half is transparent, and white below: dropped alpha leaves nothing but white there.
                covered = np.full((16, 16, 4), 255, np.uint8)
                covered[:, :, 3] = 0
                covered[:, bright, :3] = pixels[:, bright]
                covered[:, bright, 3] = 255
                Image.fromarray(covered).save(file)
            else:
                image.save(file)


@pytest.mark.parametrize("fact", ["exif", "alpha"])
def test_the_treatment_of_files_is_found_and_the_fix_repairs_the_accuracy(fact: str, tmp_path: Path) -> None:
    write_images(tmp_path / "photos", turned=fact == "exif", transparent=fact == "alpha")

    def accuracy(preprocessing: object) -> float:
        run = sb.evaluate(
            bright_half,
            data=tmp_path / "photos",
            workspace=tmp_path / "w",
            labels="folders",
            preprocessing=preprocessing,
            progress=False,
        )
        return run.metrics()["photos/top1"]

    found = sb.doctor(bright_half, tmp_path / "photos", labels="folders", preprocessing=STATED, progress=False)
    right = {"exif": "apply", "alpha": "black"}[fact]
    assert found.status == "fault" and {fact: better for fact, (_, better) in found.changes.items()} == {fact: right}
    assert accuracy(STATED) == 0.75
    assert accuracy({**STATED, **found.preprocess}) == 1


def test_images_without_either_cost_no_candidates(tmp_path: Path) -> None:
    write_images(tmp_path / "photos", turned=False, transparent=False)
    found = sb.doctor(bright_half, tmp_path / "photos", labels="folders", preprocessing=STATED, progress=False)
    assert found.status == "nothing found" and found.factors["decoding"] == 0
