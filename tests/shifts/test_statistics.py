"""The fast seeded numbers follow the published laws."""

from __future__ import annotations

import itertools
from pathlib import Path

import cv2
import numpy as np
import pytest
from scipy import stats

from shiftbench.shifts.corruptions.api import corrupt
from shiftbench.shifts.corruptions.digital import displacement_fields
from shiftbench.shifts.corruptions.frost import ORIGINALS, frost_texture
from shiftbench.shifts.corruptions.noise import noise_law
from shiftbench.shifts.corruptions.severities import parameters
from shiftbench.shifts.seeds import KeyedDraws, PublishedDraws, derive_key, random_word
from tests.shifts.pictures import landscape

NOISE = ("gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise")


@pytest.mark.parametrize("level", (0, 1, 37, 128, 254, 255))
@pytest.mark.parametrize("severity", (1, 5))
@pytest.mark.parametrize("name", NOISE)
def test_noise_follows_its_law(name: str, severity: int, level: int) -> None:
    """Chi-squared of 150,528 outputs of one grey level against the exact probabilities."""
    image = np.full((224, 224, 3), level, np.uint8)
    law = noise_law(name.removesuffix("_noise"), parameters(name, severity, 224, 224)[0])[level]
    counts = np.bincount(corrupt(image, name, severity, seed=level).ravel(), minlength=256)
    expected = law * image.size
    common = expected >= 5
    rare = ~common & (expected > 0)
    observed = np.append(counts[common], counts[rare].sum())
    wanted = np.append(expected[common], expected[rare].sum())
    assert counts[expected == 0].sum() == 0
    if len(observed) > 2:
        keep = wanted > 0
        chi2 = ((observed - wanted)[keep] ** 2 / wanted[keep]).sum()
        assert stats.chi2.sf(chi2, keep.sum() - 1) > 1e-4
    else:
        assert observed[0] == pytest.approx(wanted[0], rel=0.01)


@pytest.mark.parametrize("name", NOISE)
def test_the_law_is_the_published_formulas(name: str) -> None:
    """The law's mean and variance at every level against 400 draws of the published formula from each."""
    parameter = parameters(name, 3, 224, 224)[0]
    law = noise_law(name.removesuffix("_noise"), parameter)
    assert np.allclose(law.sum(axis=1), 1)
    levels = np.repeat(np.arange(256, dtype=np.uint8)[:, None], 3 * 400, axis=1).reshape(256, 400, 3)
    drawn = corrupt(levels, name, 3, rng=np.random.RandomState(0)).reshape(256, -1).astype(float)
    outcomes = np.arange(256)
    mean = law @ outcomes
    deviation = np.sqrt(np.maximum(law @ outcomes**2 - mean**2, 0))
    assert (np.abs(drawn.mean(axis=1) - mean) <= 5 * deviation / np.sqrt(1200) + 1e-9).all()
    assert np.allclose(drawn.std(axis=1), deviation, rtol=0.25, atol=0.3)


def test_keyed_numbers() -> None:
    draws = KeyedDraws(derive_key(0, "test"))
    assert stats.kstest(draws.uniforms((200_000,)), "uniform").pvalue > 1e-3
    normals = draws.normals((400_000,))
    assert stats.kstest(normals, "norm").pvalue > 1e-3
    assert 2 * stats.norm.sf(3.6) * normals.size == pytest.approx((np.abs(normals) > 3.6).sum(), rel=0.4)
    whole = np.bincount([draws.integer(0, 5) for _ in range(5000)], minlength=5)
    assert stats.chisquare(whole).pvalue > 1e-3
    neighbours = np.corrcoef(normals[:-1], normals[1:])[0, 1]
    assert abs(neighbours) < 5 / np.sqrt(normals.size)


def test_compiled_and_plain_words_agree() -> None:
    from shiftbench.native.loops import fill_uniform

    key = derive_key(3, "words")
    out = np.empty(5)
    fill_uniform(out, np.uint64(key[0]), np.uint64(key[1]), np.uint64(1 << 40))
    plain = [(random_word(key, (1 << 40) + i) >> 11) * 2.0**-53 for i in range(5)]
    assert out.tolist() == plain


@pytest.mark.parametrize("severity", range(1, 6))
def test_elastic_fields_have_the_published_spread(severity: int) -> None:
    """Standard deviation and neighbour correlation of the displacement, keyed against published numbers."""
    alpha, sigma, _ = parameters("elastic_transform", severity, 224, 224)
    keyed = KeyedDraws(derive_key(0, "fields", severity))
    plain = PublishedDraws(np.random.RandomState(severity))
    ours, theirs = ([displacement_fields((224, 224), alpha, sigma, d) for _ in range(60)] for d in (keyed, plain))
    a = np.array(ours).reshape(-1, 224, 224)
    b = np.array(theirs).reshape(-1, 224, 224)
    # a wide filter leaves few independent values in a field, hence the wide tolerance there
    tolerance = 0.3 if sigma > 100 else 0.05
    assert a.std() == pytest.approx(b.std(), rel=tolerance)
    steps = [np.diff(f, axis=2).std() for f in (a, b)]
    assert steps[0] == pytest.approx(steps[1], rel=tolerance)


@pytest.mark.parametrize("name", ("snow", "fog", "spatter", "glass_blur", "motion_blur", "elastic_transform"))
def test_pictures_are_alike_in_distribution(name: str) -> None:
    """Mean, contrast and histogram over 24 pictures from the two sources of numbers."""
    image = landscape(96)
    ours = np.stack([corrupt(image, name, 4, image_id=str(i)) for i in range(24)]).astype(float)
    theirs = np.stack([corrupt(image, name, 4, rng=np.random.RandomState(i)) for i in range(24)]).astype(float)
    spread = np.sqrt(ours.mean(axis=(1, 2, 3)).var() + theirs.mean(axis=(1, 2, 3)).var()) / np.sqrt(24)
    assert abs(ours.mean() - theirs.mean()) < 4 * spread + 0.3
    assert ours.std() == pytest.approx(theirs.std(), rel=0.12)
    histograms = [np.histogram(x, bins=16, range=(0, 256))[0] / x.size for x in (ours, theirs)]
    assert np.abs(histograms[0] - histograms[1]).sum() < 0.2


def test_procedural_frost_resembles_the_original_pictures(reference_data: Path) -> None:
    """Per pane: mean colour within 6 levels, contrast within 4, spectral slope within 0.9 (1/f-like)."""
    for index, file in enumerate(ORIGINALS):
        original = cv2.imread(str(reference_data / "frost" / file))
        assert original is not None
        theirs = original[..., ::-1].astype(float)
        ours = frost_texture(index).astype(float)
        assert np.allclose(ours.mean(axis=(0, 1)), theirs.mean(axis=(0, 1)), atol=6)
        assert np.allclose(ours.std(axis=(0, 1)), theirs.std(axis=(0, 1)), atol=4)
        assert _slope(ours) == pytest.approx(_slope(theirs), abs=0.9)


def _slope(picture: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> float:
    """The exponent of the power spectrum between 2 and 120 cycles on a 256 px window."""
    grey = picture[:256, :256].mean(axis=2)
    grey = (grey - grey.mean()) * np.outer(np.hanning(256), np.hanning(256))
    power = np.abs(np.fft.fft2(grey)) ** 2
    radius = np.hypot(*np.meshgrid(np.fft.fftfreq(256), np.fft.fftfreq(256)))
    edges = np.geomspace(2 / 256, 120 / 256, 8)
    means = [power[(radius >= a) & (radius < b)].mean() for a, b in itertools.pairwise(edges)]
    return float(np.polyfit(np.log(np.sqrt(edges[:-1] * edges[1:])), np.log(means), 1)[0])
