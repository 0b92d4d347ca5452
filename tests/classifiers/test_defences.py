"""Input defences against plain definitions."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import replace

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from shiftbench.classifiers.base import Classifier
from shiftbench.classifiers.defences import (
    Clahe,
    Defended,
    NonLocalMeans,
    TenCrop,
    defences,
    noise_level,
    with_defences,
)
from shiftbench.classifiers.function import FunctionClassifier
from shiftbench.classifiers.preprocessing import Preprocessing
from shiftbench.datasets.geometry import Geometry
from shiftbench.datasets.samples import sample_images
from shiftbench.errors import ClassifierError, UnknownNameError
from shiftbench.labels.space import LabelSpace
from tests.raised import raises

SPACE = LabelSpace("three", ("a", "b", "c"))
Plane = NDArray[np.uint8]


def weighted(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Scores that depend on where things are, so that every crop differs."""
    ramp = np.arange(images.shape[2]) / images.shape[2]
    scores = (images / 100 * ramp[:, None]).mean(axis=(1, 2))
    return np.asarray(scores, np.float32)


def probabilities(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    scores = weighted(images)
    return np.asarray(scores / scores.sum(axis=1, keepdims=True), np.float32)


def classifier(
    function: Callable[[NDArray[np.uint8]], NDArray[np.float32]] = weighted, geometry: Geometry | None = None
) -> FunctionClassifier:
    preprocessing = Preprocessing(geometry or Geometry(resize=64, crop=56))
    outputs = "logits" if function is weighted else "probabilities"
    return FunctionClassifier(function, name="net", space=SPACE, preprocessing=preprocessing, outputs=outputs)  # type: ignore[arg-type]


def test_clahe_is_that_of_its_definition() -> None:
    for shape in ((64, 64), (37, 50)):
        image = sample_images(1, shape)[0]
        lab = cv2.cvtColor(image, cv2.COLOR_RGB2LAB)
        lab[..., 0] = plain_clahe(lab[..., 0], 2.0, 8)
        difference = cv2.cvtColor(lab, cv2.COLOR_LAB2RGB).astype(int) - Clahe()(image[None])[0]
        # rounding of a half may differ where four mappings are mixed
        assert abs(difference).max() <= 3 and (difference != 0).mean() < 0.02


def plain_clahe(plane: Plane, clip: float, tiles: int) -> Plane:
    """Histograms of tiles, clipped; their mappings interpolated between the tiles' centres."""
    height, width = plane.shape
    tall = -(-height // tiles)
    wide = -(-width // tiles)
    if height % tiles or width % tiles:
        # OpenCV adds a whole tile's worth where only one side divides
        tall = (height + tiles - height % tiles) // tiles
        wide = (width + tiles - width % tiles) // tiles
    padded = np.pad(plane, ((0, tall * tiles - height), (0, wide * tiles - width)), mode="reflect")
    maps = np.empty((tiles, tiles, 256))
    limit = max(int(clip * tall * wide / 256), 1)
    for r in range(tiles):
        for c in range(tiles):
            tile = padded[r * tall : (r + 1) * tall, c * wide : (c + 1) * wide]
            histogram = np.bincount(tile.ravel(), minlength=256)
            excess = int(np.maximum(histogram - limit, 0).sum())
            histogram = np.minimum(histogram, limit) + excess // 256
            rest = excess % 256
            if rest:
                step = max(256 // rest, 1)
                histogram[np.arange(0, 256, step)[:rest]] += 1
            maps[r, c] = np.clip(np.rint(np.cumsum(histogram) * 255 / (tall * wide)), 0, 255)
    out = np.empty_like(plane)
    for y in range(height):
        for x in range(width):
            fy = y / tall - 0.5
            fx = x / wide - 0.5
            y0 = int(np.floor(fy))
            x0 = int(np.floor(fx))
            wy = fy - y0
            wx = fx - x0
            rows = np.clip([y0, y0 + 1], 0, tiles - 1)
            columns = np.clip([x0, x0 + 1], 0, tiles - 1)
            corners = maps[np.ix_(rows, columns)][:, :, plane[y, x]]
            out[y, x] = np.rint(np.array([1 - wy, wy]) @ corners @ np.array([1 - wx, wx]))
    return out


def test_clahe_widens_a_low_contrast() -> None:
    image = sample_images(1, (224, 224))
    flat = (100 + image // 8).astype(np.uint8)
    assert Clahe()(flat).std() > 1.5 * flat.std()


def plain_noise_level(plane: NDArray[np.float64]) -> float:
    """Every diagonal coefficient by the double sum of its definition."""
    root = 3**0.5
    low = np.array([1 + root, 3 + root, 3 - root, 1 - root]) / (4 * 2**0.5)
    high = np.array([low[3], -low[2], low[1], -low[0]])
    assert abs(high @ high - 1) < 1e-12 and abs(high.sum()) < 1e-12 and abs(high @ np.arange(4)) < 1e-12
    size = [(side - 4) // 2 + 1 for side in plane.shape]
    details = [
        sum(high[i] * high[j] * plane[2 * r + i, 2 * c + j] for i in range(4) for j in range(4))
        for r in range(size[0])
        for c in range(size[1])
    ]
    return float(np.median(np.abs(details)) / 0.6744897501960817)


@pytest.mark.parametrize("shape", [(16, 16), (17, 20), (4, 5)])
def test_the_noise_estimate_is_that_of_its_definition(shape: tuple[int, int]) -> None:
    plane = np.random.default_rng(0).normal(100, 12, shape)
    assert noise_level(plane) == pytest.approx(plain_noise_level(plane), rel=1e-12)


@pytest.mark.parametrize("sigma", [2.0, 10.0, 40.0])
def test_the_noise_estimate_finds_the_noise_in_a_scene(sigma: float) -> None:
    rows, columns = np.mgrid[0:224, 0:224]
    scene = 128 + 60 * np.sin(rows / 30) * np.cos(columns / 40) + 50 * (rows > 100)
    noisy = scene + np.random.default_rng(1).normal(0, sigma, scene.shape)
    assert noise_level(noisy) == pytest.approx(sigma, rel=0.05)
    assert noise_level(np.full((3, 9), 7.0)) == 0


def plain_means(planes: NDArray[np.float64], h: float, patch: int = 7, search: int = 21) -> NDArray[np.float64]:
    """Non-local means of (H, W, C): weights exp(-d / h^2), d the mean square difference of two patches."""
    reach = search // 2
    half = patch // 2
    border = reach + half
    wide = np.pad(planes, ((border, border), (border, border), (0, 0)), mode="reflect")
    height, width, channels = planes.shape
    total = np.zeros_like(planes)
    weights = np.zeros((height, width, 1))

    def shifted(dy: int, dx: int, margin: int) -> NDArray[np.float64]:
        top = border + dy - margin
        left = border + dx - margin
        return wide[top : top + height + 2 * margin, left : left + width + 2 * margin]

    for dy in range(-reach, reach + 1):
        for dx in range(-reach, reach + 1):
            square = ((shifted(dy, dx, half) - shifted(0, 0, half)) ** 2).sum(axis=2)
            windows = np.lib.stride_tricks.sliding_window_view(square, (patch, patch))
            weight = np.exp(-windows.mean(axis=(2, 3)) / (h * h * channels))[..., None]
            weight[weight < 0.001] = 0
            total += weight * shifted(dy, dx, 0)
            weights += weight
    return total / weights


def test_denoising_is_non_local_means_at_the_estimated_level() -> None:
    rng = np.random.default_rng(2)
    image = np.clip(sample_images(1, (48, 40))[0] + rng.normal(0, 15, (48, 40, 3)), 0, 255).astype(np.uint8)
    lab = cv2.cvtColor(image, cv2.COLOR_LRGB2LAB)
    levels = [plain_noise_level(lab[..., plane].astype(float)) for plane in range(3)]
    light = plain_means(lab[..., :1].astype(float), 1.15 * levels[0])
    colour = plain_means(lab[..., 1:].astype(float), 1.15 * (levels[1] + levels[2]) / 2)
    plain = cv2.cvtColor(np.rint(np.concatenate([light, colour], axis=2)).astype(np.uint8), cv2.COLOR_LAB2LRGB)
    found = NonLocalMeans()(image[None])[0]
    # OpenCV computes with integer weights and rounds patch distances to a power of two
    difference = abs(found.astype(int) - plain)
    assert difference.mean() < 2 < abs(found.astype(int) - image).mean()


def test_denoising_takes_noise_away_and_leaves_clean_images_nearly_alone() -> None:
    clean = sample_images(2, (96, 96))
    smooth = np.stack([cv2.GaussianBlur(image, (0, 0), 2.5) for image in clean])
    rng = np.random.default_rng(0)
    noisy = np.clip(smooth + rng.normal(0, 25, smooth.shape), 0, 255).astype(np.uint8)
    denoised = NonLocalMeans()(noisy)
    error = [abs(x.astype(int) - smooth).mean() for x in (noisy, denoised)]
    assert error[1] < 0.5 * error[0]
    assert abs(NonLocalMeans()(smooth).astype(int) - smooth).mean() < 2
    flat = np.full((1, 32, 32, 3), 90, np.uint8)
    np.testing.assert_array_equal(NonLocalMeans()(flat), flat)
    assert NonLocalMeans()(flat[:0]).shape == (0, 32, 32, 3)


@pytest.mark.parametrize("function", [weighted, probabilities])
def test_ten_crop_is_the_mean_distribution_over_corners_middle_and_mirrors(
    function: Callable[[NDArray[np.uint8]], NDArray[np.float32]],
) -> None:
    net = classifier(function)
    images = sample_images(3, (64, 64))
    expected = []
    for image in images:
        crops = [image[y : y + 56, x : x + 56] for y, x in ((0, 0), (0, 8), (8, 0), (8, 8), (4, 4))]
        crops += [crop[:, ::-1] for crop in crops]
        rows = []
        for crop in crops:
            scores = function(crop[None])[0].astype(float)
            rows.append(np.exp(scores) / np.exp(scores).sum() if function is weighted else scores)
        expected.append(np.mean(rows, axis=0))
    defended = Defended(net, "ten-crop")
    np.testing.assert_allclose(defended.scores(images), expected, rtol=1e-5)
    assert defended.outputs == "probabilities" and defended.batch_size == 3
    np.testing.assert_allclose(defended.scores(images).sum(axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize(
    ("own", "delivered"),
    [
        (Geometry(256, 224), Geometry(256, 256)),
        (Geometry(256, 224, interpolation="bicubic"), Geometry(256, 256, interpolation="bicubic")),
        (Geometry(224, 224), Geometry(256, 256)),
        (Geometry(None, 32), Geometry(37, 37)),
        (Geometry((100, 120), (80, 90), resize_rule="exact"), Geometry((100, 120), (100, 120), resize_rule="exact")),
    ],
)
def test_ten_crop_asks_for_the_larger_square(own: Geometry, delivered: Geometry) -> None:
    found = Defended(classifier(geometry=own), "ten-crop").preprocessing.geometry
    assert (found.resize, found.crop, found.resize_rule) == (delivered.resize, delivered.crop, delivered.resize_rule)
    assert found.interpolation == own.interpolation
    image = sample_images(1, (150, 130))[0]
    np.testing.assert_array_equal(found(image), delivered(image))


def test_ten_crop_refuses_files_that_are_as_small_as_a_crop() -> None:
    geometry = Defended(classifier(), "ten-crop").preprocessing.geometry
    with raises(ClassifierError, expected="images to be resized to 64"):
        replace(geometry, resize=None)  # what a run over released corrupted files does
    with pytest.raises(ClassifierError, match="no fixed size"):
        Defended(classifier(geometry=Geometry(32, None)), "ten-crop")
    with raises(ClassifierError, found="40 x 64", expected="at least 56 x 56"):
        TenCrop(56, 56)(np.zeros((1, 40, 64, 3), np.uint8))


@pytest.mark.parametrize("name", defences.names())
def test_a_defended_classifier_keeps_the_contract(name: str) -> None:
    net = classifier()
    defended = with_defences(net, name)
    side = defended.preprocessing.geometry.output
    assert side is not None
    images = sample_images(4, side)
    before = images.copy()
    scores = defended.scores(images)
    assert scores.shape == (4, 3) and scores.dtype == np.float32
    np.testing.assert_array_equal(images, before)
    alone = np.concatenate([defended.scores(images[i : i + 1]) for i in range(4)])
    np.testing.assert_array_equal(alone, scores)
    again = pickle.loads(pickle.dumps(defended))
    np.testing.assert_array_equal(again.scores(images), scores)
    assert again.fingerprint == defended.fingerprint != net.fingerprint
    assert defended.name == f"net+{name}"
    description = json.loads(json.dumps(defended.describe()))
    assert description["classifier"] == defended.name and description["defences"][0]["defence"] == name
    assert defended.scores(images[:0]).shape == (0, 3)


def test_defences_are_applied_in_the_order_given() -> None:
    net = classifier()
    images = sample_images(2, (64, 64))
    both = with_defences(net, "clahe,ten-crop")
    assert both.name == "net+clahe+ten-crop"
    expected = Defended(net, "ten-crop").scores(Clahe()(images))
    np.testing.assert_array_equal(both.scores(images), expected)
    assert both.fingerprint != with_defences(net, ["ten-crop", "clahe"]).fingerprint


def test_parameters_change_the_fingerprint() -> None:
    net = classifier()
    assert Defended(net, Clahe(clip_limit=4)).fingerprint != Defended(net, "clahe").fingerprint


def test_names() -> None:
    net: Classifier = classifier()
    assert with_defences(net, "") is net and with_defences(net, []) is net
    with raises(UnknownNameError, name="clahee"):
        with_defences(net, "clahee")
    with raises(ClassifierError, expected="clahe, denoise, ten-crop"):
        Defended(net)
