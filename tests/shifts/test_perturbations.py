"""ImageNet-P sequences."""

from __future__ import annotations

import numpy as np
import pytest

from shiftbench.errors import ShiftError, UnknownNameError
from shiftbench.shifts.perturbations import centre_crop, perturbation_frames, perturbations
from tests.raised import raises
from tests.shifts.pictures import landscape

IMAGE = landscape(256, 300)
CLEAN = centre_crop(IMAGE, 224)


@pytest.mark.parametrize("name", perturbations("all"))
def test_frames(name: str) -> None:
    frames = perturbation_frames(IMAGE, name, image_id="a")
    assert frames.shape == ((41 if name == "translate" else 31), 224, 224, 3)
    assert frames.dtype == np.uint8
    assert (perturbation_frames(IMAGE, name, image_id="a") == frames).all()
    moved = np.abs(np.diff(frames.astype(int), axis=0)).mean(axis=(1, 2, 3))
    assert (moved > 0).mean() > 0.5  # neighbouring blurs can truncate to the same grey levels


@pytest.mark.parametrize(
    ("name", "frame"),
    (("gaussian_noise", 0), ("shot_noise", 0), ("speckle_noise", 0), ("zoom_blur", 0), ("brightness", 15)),
)
def test_which_frame_is_clean(name: str, frame: int) -> None:
    difference = np.abs(perturbation_frames(IMAGE, name)[frame].astype(int) - CLEAN)
    assert difference.max() <= (1 if name == "brightness" else 0)  # HSV and back, truncated


@pytest.mark.parametrize(("name", "frame"), (("rotate", 15), ("shear", 15), ("scale", 24)))
def test_unmoved_frames_of_the_geometric_ones(name: str, frame: int) -> None:
    assert np.abs(perturbation_frames(IMAGE, name)[frame].astype(int) - CLEAN).max() <= 1


def test_tilt_without_an_angle_only_shrinks_a_little() -> None:
    """The published camera stands one unit behind the focal distance: 0.25 % smaller at 256 x 300 px."""
    frame = perturbation_frames(IMAGE, "tilt")[15].astype(float)
    assert np.corrcoef(frame.ravel(), CLEAN.ravel())[0, 1] > 0.97


def test_translation_is_one_pixel_a_frame() -> None:
    frames = perturbation_frames(IMAGE, "translate")
    assert (frames[20] == CLEAN).all()
    assert (frames[21][:, 1:] == frames[20][:, :-1]).all()


def test_rotation_turns() -> None:
    """Turned by 5 degrees and by -5 degrees mirror each other on a mirrored picture."""
    square = landscape(256)
    forward = perturbation_frames(square, "rotate", crop=200)[20].astype(int)
    backward = perturbation_frames(square[:, ::-1].copy(), "rotate", crop=200)[10][:, ::-1].astype(int)
    assert np.abs(forward - backward).mean() < 12  # the centre of rotation lies half a pixel off the middle


def test_noise_levels_follow_the_difficulty() -> None:
    grey = np.full((224, 224, 3), 128, np.uint8)
    for name, levels in (("gaussian_noise", (0.03, 0.05, 0.08)), ("speckle_noise", (0.05, 0.1, 0.15))):
        for difficulty, level in enumerate(levels, start=1):
            spread = perturbation_frames(grey, name, difficulty)[1].std()
            assert spread == pytest.approx(level * (255 if name == "gaussian_noise" else 128), rel=0.03)


def test_drops_run_down_by_the_published_filter() -> None:
    from scipy.ndimage import convolve1d

    column = np.random.RandomState(0).rand(30)
    kernel = [0.05, 0.1, 0.15, 0.7]
    ours = convolve1d(column, kernel, mode="constant", origin=-1)
    assert np.allclose(ours, np.convolve(column, kernel, mode="same"))


def test_other_crops_and_published_numbers() -> None:
    small = landscape(36)
    assert perturbation_frames(small, "tilt", crop=32).shape == (31, 32, 32, 3)
    rng = np.random.RandomState
    first, second = (perturbation_frames(small, "snow", crop=32, rng=rng(1)) for _ in range(2))
    assert (first == second).all()


def test_refusals() -> None:
    with raises(UnknownNameError, name="rotat", hint="did you mean 'rotate'?"):
        perturbation_frames(IMAGE, "rotat")
    with raises(ShiftError, found="4", expected="1, 2 or 3"):
        perturbation_frames(IMAGE, "rotate", 4)
    with raises(ShiftError, found="64 x 64 px"):
        perturbation_frames(landscape(64), "rotate")
    with raises(ShiftError, found="ndarray (256, 256, 3) float64", expected="a uint8 array (H, W, 3)"):
        perturbation_frames(np.zeros((256, 256, 3)), "rotate")  # type: ignore[arg-type]
    with raises(ShiftError, found="'nosuch'", expected="test, extra, all"):
        perturbations("nosuch")
