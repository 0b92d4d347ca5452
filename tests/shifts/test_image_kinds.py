"""Every kind of image comes back as the kind it was, with the pixels of the uint8 array (H, W, 3)."""

from __future__ import annotations

import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import shiftbench as sb
from shiftbench.arrays import Pixels
from shiftbench.classifiers.zoo import import_torchvision
from shiftbench.shifts.corruptions import api
from tests.shifts.pictures import landscape

PHOTO = landscape(24, 40)
GREY = PHOTO[..., 0].copy()
ALPHA = np.arange(24 * 40, dtype=np.uint8).reshape(24, 40, 1)


def corrupted(image: Any) -> Any:
    return sb.corrupt(image, "gaussian_noise", 3, image_id="a.png")


COLOUR = corrupted(PHOTO)
SHADES = corrupted(GREY)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float16, np.float32, np.float64])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("channels", [0, 1, 3, 4])
def test_arrays_and_tensors(dtype: type, first: bool, channels: int) -> None:
    levels = {0: GREY, 1: GREY[..., None], 3: PHOTO, 4: np.concatenate([PHOTO, ALPHA], axis=-1)}[channels]
    expected = {0: SHADES, 1: SHADES[..., None], 3: COLOUR, 4: np.concatenate([COLOUR, ALPHA], axis=-1)}[channels]
    if first and channels:
        levels = np.moveaxis(levels, -1, 0)
        expected = np.moveaxis(expected, -1, 0)
    image = as_type(levels, dtype)
    before = image.copy()
    out = corrupted(image)
    assert (out.dtype, out.shape) == (image.dtype, image.shape)
    assert (out == as_type(expected, dtype)).all()
    assert (image == before).all() and not np.shares_memory(out, image)
    tensor = corrupted(torch.from_numpy(np.ascontiguousarray(image)))
    assert type(tensor) is torch.Tensor and (tensor.numpy() == out).all()


def as_type(levels: Pixels, dtype: type) -> Any:
    if dtype == np.uint8:
        return levels
    return levels * np.uint16(257) if dtype == np.uint16 else (levels / 255).astype(dtype)


def test_other_tensors() -> None:
    import_torchvision()
    from torchvision import tv_tensors

    image = tv_tensors.Image(torch.from_numpy(PHOTO.transpose(2, 0, 1).copy()))
    out = corrupted(image)
    assert type(out) is tv_tensors.Image and (out.numpy() == COLOUR.transpose(2, 0, 1)).all()
    half = torch.rand(3, 16, 16, dtype=torch.bfloat16, requires_grad=True)
    out = corrupted(half)
    assert out.dtype == torch.bfloat16 and not out.requires_grad


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "I;16"])
def test_pil(mode: str) -> None:
    image = Image.fromarray({"L": GREY, "I;16": GREY * np.uint16(257)}.get(mode, PHOTO))
    if mode == "RGBA":
        image.putalpha(Image.fromarray(ALPHA[..., 0]))
    out = corrupted(image)
    assert isinstance(out, Image.Image) and (out.mode, out.size) == (mode, image.size)
    array = np.asarray(out)
    expected = {"L": SHADES, "I;16": SHADES * np.uint16(257)}.get(mode, COLOUR)
    assert (array[..., :3] == expected).all() if mode == "RGBA" else (array == expected).all()
    assert mode != "RGBA" or (array[..., 3:] == ALPHA).all()


def test_batches_in_both_layouts() -> None:
    batch = np.stack([PHOTO, PHOTO[::-1]])
    out = sb.corrupt(batch, "snow", 2, image_id=["a", "b"])
    assert (out[1] == sb.corrupt(batch[1], "snow", 2, image_id="b")).all()
    tensor = torch.from_numpy(batch.transpose(0, 3, 1, 2).copy())
    assert (sb.corrupt(tensor, "snow", 2, image_id=["a", "b"]).permute(0, 2, 3, 1).numpy() == out).all()
    grey = torch.from_numpy(batch[..., :1].transpose(0, 3, 1, 2).copy()).float() / 255
    assert sb.corrupt(grey, "fog", 2, image_id=["a", "b"]).shape == (2, 1, 24, 40)
    assert sb.corrupt(batch[:0], "fog", 2).shape == (0, 24, 40, 3)


def test_values_are_rounded_to_the_nearest_of_256_levels() -> None:
    levels = np.linspace(0, 1, 1024).reshape(32, 32)
    found = sb.corrupt(levels, "pixelate", 1, image_id="a")
    exact = sb.corrupt(np.rint(levels * 255).astype(np.uint8), "pixelate", 1, image_id="a")
    assert np.allclose(found * 255, exact, atol=1e-9)
    wide = np.linspace(0, 65535, 1024).astype(np.uint16).reshape(32, 32)
    exact = sb.corrupt(np.rint(wide / 257).astype(np.uint8), "pixelate", 1, image_id="a")
    assert (sb.corrupt(wide, "pixelate", 1, image_id="a") == exact * np.uint16(257)).all()


def test_no_framework_is_imported_for_arrays() -> None:
    code = (
        "import sys, numpy as np, shiftbench as sb\n"
        "sb.Corrupt('contrast', 2)(np.zeros((3, 16, 16), np.float32))\n"
        "sys.exit(str([name for name in ('torch', 'torchvision') if name in sys.modules] or '') or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def not_yet_warned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "_warned", False)
    monkeypatch.setattr(api, "_unnamed", None)


@pytest.mark.usefixtures("not_yet_warned")
def test_different_images_without_ids_warn_once() -> None:
    sb.corrupt(PHOTO, "gaussian_noise")
    with pytest.warns(UserWarning, match="image_id") as caught:
        sb.corrupt(PHOTO[::-1], "gaussian_noise")
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sb.corrupt(PHOTO, "gaussian_noise")


@pytest.mark.usefixtures("not_yet_warned")
def test_no_warning_where_no_noise_is_shared() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number, image in enumerate((PHOTO, PHOTO[::-1])):
            sb.corrupt(image, "gaussian_noise", seed=number)
            sb.corrupt(image, "gaussian_noise", image_id=str(number))
            sb.corrupt(image, "contrast")  # draws nothing
            sb.corrupt(image, "snow", rng=np.random.RandomState(0))
        for name in sb.corruptions("noise"):
            sb.corrupt(PHOTO[::-1], name, seed=number)
