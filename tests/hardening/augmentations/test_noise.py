"""Noise has the law of the corruption of its name, with the strengths that the papers draw."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from shiftbench.hardening.augmentations.base import make_image_augmentation, stream
from shiftbench.hardening.augmentations.simple import GAUSSIAN_SCALES, SPECKLE_SCALES
from shiftbench.shifts.corruptions.noise import noise_law
from shiftbench.shifts.corruptions.severities import TABLES
from tests.hardening.augmentations.pictures import flat


@pytest.mark.parametrize(("name", "kind"), [("speckle", "speckle"), ("gaussian-noise", "gaussian")])
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("level", [40, 200])
def test_values_follow_the_corruptions_law(name: str, kind: str, per_channel: bool, level: int) -> None:
    augment = make_image_augmentation(name, scales=0.2, probability=1, per_channel=per_channel)
    out = augment(flat(level, (120, 120)), stream(0, name))
    expected = noise_law(kind, 0.2)[level] * out.size
    seen = np.bincount(out.reshape(-1), minlength=256).astype(float)
    enough = expected >= 5
    rest = [seen[~enough].sum()], [expected[~enough].sum()]
    tail = rest if rest[1][0] >= 5 else ([], [])
    observed = [*seen[enough], *tail[0]]
    wanted = np.array([*expected[enough], *tail[1]])
    assert stats.chisquare(observed, wanted * sum(observed) / wanted.sum()).pvalue > 0.001


@pytest.mark.parametrize("name", ["speckle", "gaussian-noise"])
def test_values_equal_the_formula_in_law(name: str) -> None:
    """Against the published formula with NumPy's normal numbers."""
    level = 128
    scale = 0.15
    rng = np.random.default_rng(0)
    out = make_image_augmentation(name, scales=scale, probability=1)(flat(level, (100, 100)), stream(1, name))
    x = level / 255
    normal = rng.normal(size=30_000) * scale
    formula = (np.clip(x + (x * normal if name == "speckle" else normal), 0, 1) * 255).astype(np.uint8)
    assert stats.ks_2samp(out.reshape(-1), formula).pvalue > 0.001


def test_scales_are_those_of_imagenet_c() -> None:
    assert tuple(row[0] for row in TABLES[224]["speckle_noise"]) == SPECKLE_SCALES
    assert tuple(row[0] for row in TABLES[224]["gaussian_noise"]) == GAUSSIAN_SCALES


def test_speckle_as_for_deepfashion_remixed() -> None:
    """Half of the images, each channel with one of five strengths, all equally often."""
    augment = make_image_augmentation("speckle")
    generator = stream(0, "dfr")
    image = flat(100, (40, 40))
    noisy = [out for out in (augment(image, generator) for _ in range(600)) if not np.array_equal(out, image)]
    assert stats.binomtest(len(noisy), 600).pvalue > 0.001
    deviations = np.array([out.reshape(-1, 3).astype(float).std(axis=0) / 100 for out in noisy])
    nearest = np.abs(deviations[..., None] - np.array(SPECKLE_SCALES)).argmin(axis=-1)
    assert stats.chisquare(np.bincount(nearest.reshape(-1), minlength=5)).pvalue > 0.001
    assert (nearest[:, 0] != nearest[:, 1]).mean() == pytest.approx(0.8, abs=0.1)


def test_speckle_of_one_strength_a_picture() -> None:
    augment = make_image_augmentation("speckle", probability=1, per_channel=False)
    generator = stream(0, "imagenet")
    for _ in range(20):
        out = augment(flat(100, (60, 60)), generator)
        deviations = out.reshape(-1, 3).astype(float).std(axis=0)
        assert deviations.max() / deviations.min() < 1.1


def test_noise_keeps_within_the_grey_levels() -> None:
    for level in (0, 255):
        out = make_image_augmentation("gaussian-noise", scales=10, probability=1)(flat(level), stream(0, "e"))
        assert out.dtype == np.uint8 and out.min() >= 0
    black = make_image_augmentation("speckle", probability=1)(flat(0), stream(0, "e"))
    assert not black.any()  # speckle leaves black alone
