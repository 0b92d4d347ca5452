"""The testbed's in-memory variants: their parts against PyTorch's, with which the testbed computes them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from shiftbench.shifts.corruptions.api import corrupt
from shiftbench.shifts.corruptions.blur import to_float32
from shiftbench.shifts.corruptions.catalogue import corruptions
from shiftbench.shifts.corruptions.testbed import _bell, _pixelate, _zoom
from shiftbench.shifts.seeds import KeyedDraws
from tests.shifts.pictures import landscape

DRAWS = KeyedDraws((1, 2))


def test_one_is_left_out() -> None:
    assert {name.removeprefix("testbed_") for name in corruptions("testbed")} == set(corruptions("all")) - {
        "glass_blur"
    }


@pytest.mark.parametrize("name", corruptions("testbed"))
def test_alike_to_the_originals(name: str) -> None:
    """Other borders and kernels, the same corruption: alike in mean and contrast, and reproducible."""
    image = landscape(224)
    drifting = name in ("testbed_fog", "testbed_frost")  # few patterns differ much in brightness
    for severity in (1, 4):
        ids = [str(i) for i in range(6 if drifting else 2)]
        ours = np.stack([corrupt(image, name, severity, image_id=i) for i in ids]).astype(float)
        original = name.removeprefix("testbed_")
        theirs = np.stack([corrupt(image, original, severity, image_id=i) for i in ids]).astype(float)
        assert (corrupt(image, name, severity) == ours[0]).all()
        assert abs(ours.mean() - theirs.mean()) < (45 if drifting else 12)
        assert ours.std() == pytest.approx(theirs.std(), rel=0.3)


@pytest.mark.parametrize("name", corruptions("testbed"))
def test_any_size(name: str) -> None:
    assert corrupt(landscape(100, 60), name, 2.5).shape == (100, 60, 3)
    assert corrupt(landscape(40, 90)[..., 0].copy(), name, 5).shape == (40, 90)


@pytest.mark.parametrize("factor", (1.0, 1.03, 1.3, 2.5, 4.5))
def test_zoom_is_half_pixel_bilinear(factor: float) -> None:
    torch = pytest.importorskip("torch")
    x = to_float32(landscape(64))
    crop = math.ceil(64 / factor)
    top = (64 - crop) // 2
    tensor = torch.from_numpy(x[top : top + crop, top : top + crop].transpose(2, 0, 1)[None].copy())
    wide = torch.nn.functional.interpolate(tensor, scale_factor=factor, mode="bilinear")[0]
    trim = (wide.shape[1] - 64) // 2
    theirs = wide[:, trim : trim + 64, trim : trim + 64].numpy().transpose(1, 2, 0)
    assert np.allclose(_zoom(x, factor), theirs, atol=2e-5)


@pytest.mark.parametrize("share", (0.6, 0.5, 0.4, 0.3, 0.25))
def test_pixelate_is_area_then_nearest(share: float) -> None:
    torch = pytest.importorskip("torch")
    x = to_float32(landscape(224))
    tensor = torch.from_numpy(x.transpose(2, 0, 1)[None].copy())
    small = torch.nn.functional.interpolate(tensor, size=(int(224 * share),) * 2, mode="area")
    theirs = torch.nn.functional.interpolate(small, size=(224, 224), mode="nearest")[0].numpy().transpose(1, 2, 0)
    assert np.allclose(_pixelate(x, (share,), DRAWS), theirs, atol=1e-6)


@pytest.mark.parametrize("sigma", (1, 2, 6))
def test_gaussian_reflects_about_the_edge_pixel(sigma: int) -> None:
    torch = pytest.importorskip("torch")
    x = to_float32(landscape(48))
    size = 4 * sigma - 1
    position = np.arange(size) - size // 2
    kernel = np.exp(-(position[:, None] ** 2 + position[None, :] ** 2) / (2.0 * sigma**2))
    weight = torch.from_numpy((kernel / kernel.sum()).astype(np.float32))[None, None]
    tensor = torch.from_numpy(x.transpose(2, 0, 1)[:, None].copy())
    padded = torch.nn.functional.pad(tensor, [size // 2] * 4, mode="reflect")
    theirs = torch.nn.functional.conv2d(padded, weight)[:, 0].numpy().transpose(1, 2, 0)
    assert np.allclose(_bell(x, sigma, size), theirs, atol=1e-5)
