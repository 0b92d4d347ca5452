"""SSIM against its definition and scikit-image; correlation after alignment against OpenCV."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from benchmarks.planted import EDITS
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter
from skimage.metrics import structural_similarity

from shiftbench.datasets.base import Dataset
from shiftbench.errors import ShiftbenchError
from shiftbench.testsets.near_duplicates import similarity
from shiftbench.testsets.near_duplicates.descriptors import squashed
from shiftbench.testsets.near_duplicates.similarity import _BLUR, aligned_correlation, ssim

Pictures = NDArray[np.uint8]


def defined(a: Pictures, b: Pictures) -> float:
    """The formula of Wang et al. by SciPy's filter, in float64, where the window of 11 fits."""
    x = a.astype(np.float64)
    y = b.astype(np.float64)

    def local(values: NDArray[np.float64]) -> NDArray[np.float64]:
        planes = [gaussian_filter(values[..., c], 1.5, truncate=3.5)[5:-5, 5:-5] for c in range(3)]
        return np.stack(planes, axis=-1)

    mx = local(x)
    my = local(y)
    vx = local(x * x) - mx**2
    vy = local(y * y) - my**2
    c = local(x * y) - mx * my
    c1 = (0.01 * 255) ** 2
    c2 = (0.03 * 255) ** 2
    return float(((2 * mx * my + c1) * (2 * c + c2) / ((mx**2 + my**2 + c1) * (vx + vy + c2))).mean())


def test_ssim_is_its_definition(small_pictures: Pictures) -> None:
    first = small_pictures[:60]
    second = small_pictures[60:120]
    edited = np.stack([EDITS["jpeg-50"](picture) for picture in first])
    for compared in (second, edited, first // 2):
        expected = [defined(a, b) for a, b in zip(first, compared, strict=True)]
        np.testing.assert_allclose(ssim(first, compared), expected, atol=1e-5)


def test_ssim_of_scikit_image(small_pictures: Pictures) -> None:
    expected = [
        structural_similarity(
            a, b, gaussian_weights=True, sigma=1.5, use_sample_covariance=False, channel_axis=-1, data_range=255
        )
        for a, b in zip(small_pictures[:20], small_pictures[20:40], strict=True)
    ]
    np.testing.assert_allclose(ssim(small_pictures[:20], small_pictures[20:40]), expected, atol=1e-5)


def test_ssim_of_oblong_pictures_and_the_smallest() -> None:
    rng = np.random.default_rng(0)
    for shape in ((3, 11, 11, 3), (2, 20, 47, 3)):
        a, b = (rng.integers(0, 256, shape).astype(np.uint8) for _ in range(2))
        np.testing.assert_allclose(ssim(a, b), [defined(x, y) for x, y in zip(a, b, strict=True)], atol=1e-5)
        np.testing.assert_allclose(ssim(a, b), ssim(b, a), atol=1e-6)
        np.testing.assert_allclose(ssim(a, a), 1, atol=1e-6)


@pytest.mark.parametrize("function", [ssim, aligned_correlation])
@pytest.mark.parametrize("shapes", [((2, 32, 32, 3), (3, 32, 32, 3)), ((2, 32, 32), (2, 32, 32)), ((1, 8, 8, 3),) * 2])
def test_pictures_that_can_not_be_compared(function: object, shapes: tuple[tuple[int, ...], ...]) -> None:
    a, b = (np.zeros(shape, np.uint8) for shape in shapes)
    with pytest.raises(ShiftbenchError):
        function(a, b)  # type: ignore[operator]


def test_correlation_without_zoom_is_that_of_opencv(small_pictures: Pictures, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same detail, template by template; OpenCV knows no noise floor, so only pictures with much detail."""

    monkeypatch.setattr(similarity, "_MAGNIFICATIONS", ((1.0, 1.0),))

    def detail(picture: Pictures) -> NDArray[np.float32]:
        light = picture.astype(np.float64) @ np.array([0.299, 0.587, 0.114])
        blurred, inside = (
            gaussian_filter(values, _BLUR, mode="constant", truncate=12) for values in (light, np.ones_like(light))
        )
        return np.asarray(light - blurred / inside, np.float32)

    first = small_pictures[:40]
    second = small_pictures[40:80]
    correlations = aligned_correlation(first, second)
    for a, b, value in zip(first, second, correlations, strict=True):
        scores = cv2.matchTemplate(detail(b), detail(a)[4:28, 4:28], cv2.TM_CCOEFF_NORMED)
        strong = min(detail(a).std(), detail(b).std()) > 8
        assert value <= scores.max() + 1e-4
        assert value == pytest.approx(scores.max(), abs=0.05 if strong else 0.5)


def test_small_edits_are_undone_and_other_pictures_stay_other(photographs: Dataset) -> None:
    pictures = [photographs.read(i).pixels for i in range(0, 40, 2)]
    small = squashed(pictures, 32)
    for name in ("crop-90", "crop-80", "crop-90-corner", "shift-3", "stretch-1.2", "darker", "grey", "jpeg-50"):
        edited = squashed([EDITS[name](picture) for picture in pictures], 32)
        assert (aligned_correlation(edited, small) > 0.7).mean() >= 0.95, name
        assert (aligned_correlation(small, edited) > 0.7).mean() >= 0.95, name
    assert aligned_correlation(small, np.roll(small, 1, axis=0)).max() < 0.6


def test_brightness_and_contrast_drop_out_of_the_correlation(small_pictures: Pictures) -> None:
    first = small_pictures[:30]
    second = small_pictures[:30] // 2 + 60
    assert aligned_correlation(first, second.astype(np.uint8)).min() > 0.93


def test_flat_pictures_correlate_with_nothing() -> None:
    flat = np.full((2, 32, 32, 3), 90, np.uint8)
    noise = flat + np.random.default_rng(0).integers(0, 2, flat.shape).astype(np.uint8)
    assert np.abs(aligned_correlation(flat, noise)).max() < 0.2
