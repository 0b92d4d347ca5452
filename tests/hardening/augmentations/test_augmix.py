"""AugMix: each operation is Pillow's, and the mixture has the laws of the paper."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageEnhance, ImageOps
from scipy import stats

from shiftbench.arrays import Pixels
from shiftbench.hardening.augmentations import augmix as module
from shiftbench.hardening.augmentations.augmix import OPERATIONS, WITHHELD
from shiftbench.hardening.augmentations.base import ImageAugmentation, make_image_augmentation, stream
from tests.hardening.augmentations.pictures import SIZES, coloured, flat, grey

_BILINEAR = Image.Resampling.BILINEAR
_AFFINE = Image.Transform.AFFINE
Values = NDArray[np.float64]
Pillow = Callable[[Image.Image, float, int], Image.Image]


@pytest.fixture
def augmix_of(monkeypatch: pytest.MonkeyPatch) -> Callable[..., ImageAugmentation]:
    """AugMix with other operations than its own."""

    def make(*operations: module.Operation, **options: float) -> ImageAugmentation:
        monkeypatch.setattr(module, "OPERATIONS", {str(i): operation for i, operation in enumerate(operations)})
        return module.augmix(**options)

    return make


def whole(level: float, most: float) -> int:
    return int(level * most / 10)


def enhancer(kind: type[ImageEnhance.Color]) -> Pillow:
    return lambda image, level, sign: kind(image).enhance(level * 1.8 / 10 + 0.1)


#: The published definitions, on Pillow, with the image's own sides in place of a global IMAGE_SIZE.
PILLOW: dict[str, Pillow] = {
    "autocontrast": lambda image, level, sign: ImageOps.autocontrast(image),
    "equalize": lambda image, level, sign: ImageOps.equalize(image),
    "posterize": lambda image, level, sign: ImageOps.posterize(image, 4 - whole(level, 4)),
    "rotate": lambda image, level, sign: image.rotate(sign * whole(level, 30), resample=_BILINEAR),
    "solarize": lambda image, level, sign: ImageOps.solarize(image, 256 - whole(level, 256)),
    "shear_x": lambda image, level, sign: image.transform(
        image.size, _AFFINE, (1, sign * level * 0.3 / 10, 0, 0, 1, 0), resample=_BILINEAR
    ),
    "shear_y": lambda image, level, sign: image.transform(
        image.size, _AFFINE, (1, 0, 0, sign * level * 0.3 / 10, 1, 0), resample=_BILINEAR
    ),
    "translate_x": lambda image, level, sign: image.transform(
        image.size, _AFFINE, (1, 0, sign * whole(level, image.width / 3), 0, 1, 0), resample=_BILINEAR
    ),
    "translate_y": lambda image, level, sign: image.transform(
        image.size, _AFFINE, (1, 0, 0, 0, 1, sign * whole(level, image.height / 3)), resample=_BILINEAR
    ),
    "color": enhancer(ImageEnhance.Color),
    "contrast": enhancer(ImageEnhance.Contrast),  # type: ignore[arg-type]
    "brightness": enhancer(ImageEnhance.Brightness),  # type: ignore[arg-type]
    "sharpness": enhancer(ImageEnhance.Sharpness),  # type: ignore[arg-type]
}


def test_nine_operations_and_four_withheld() -> None:
    assert list({**OPERATIONS, **WITHHELD}) == [*OPERATIONS, *WITHHELD]
    assert set(OPERATIONS) | set(WITHHELD) == set(PILLOW) and len(OPERATIONS) == 9


@pytest.mark.parametrize("name", PILLOW)
def test_every_operation_equals_pillow(name: str) -> None:
    operation = {**OPERATIONS, **WITHHELD}[name]
    rng = np.random.default_rng(0)
    noise = rng.integers(0, 256, (37, 23, 3), dtype=np.uint8)
    pictures = [*(coloured(size) for size in SIZES), grey((20, 31)), flat(7), flat(255), noise, coloured((97, 128))]
    dim = (coloured((30, 30)) // 3 + 60).astype(np.uint8)  # has a range to stretch
    for picture in (*pictures, dim):
        for level in (0.1, 1.0, 2.5, 9.999999, *rng.uniform(0.1, 10, 4)):
            for sign in (1, -1):
                expected = np.array(PILLOW[name](Image.fromarray(picture), float(level), sign))
                assert np.array_equal(operation(picture, float(level), sign), expected), (picture.shape, level, sign)


def by_hand(image: Pixels, generator: np.random.Generator, severity: float, names: list[str]) -> Values:
    """The published loop on Pillow, on normalised pixels, taking numbers in our order."""
    mean = np.array([0.49, 0.48, 0.45])
    std = np.array([0.2, 0.21, 0.22])

    def normalised(picture: Image.Image) -> Values:
        return np.asarray((np.asarray(picture) / 255 - mean) / std)

    weights = generator.dirichlet([1.0] * 3)
    share = generator.beta(1.0, 1.0)
    mixed = np.zeros(image.shape)
    for i in range(3):
        chain = Image.fromarray(image)
        for which in generator.integers(len(names), size=int(generator.integers(1, 4))):
            level = generator.uniform(0.1, severity)
            chain = PILLOW[names[which]](chain, level, 1 if generator.random() < 0.5 else -1)
        mixed += weights[i] * normalised(chain)
    out = (1 - share) * normalised(Image.fromarray(image)) + share * mixed
    return np.asarray((out * std + mean) * 255)


@pytest.mark.parametrize("all_operations", [False, True])
def test_the_mixture_equals_the_published_loop_up_to_rounding(all_operations: bool) -> None:
    names = [*OPERATIONS, *(WITHHELD if all_operations else ())]
    augmix = make_image_augmentation("augmix", severity=5, all_operations=all_operations)
    for number in range(15):
        image = coloured((32, 40), number)
        found = augmix(image, stream(number, "a")).astype(float)
        assert np.abs(found - by_hand(image, stream(number, "a"), 5, names)).max() <= 0.5 + 1e-6


@pytest.mark.parametrize("alpha", [1.0, 3.0])
@pytest.mark.parametrize("width", [1, 3])
def test_the_weights_are_dirichlet_and_beta(
    augmix_of: Callable[..., ImageAugmentation], alpha: float, width: int
) -> None:
    """A first chain of white, further ones and the image of black: what is seen is share * w[0]."""
    calls = {"count": 0}

    def white_first(image: Pixels, level: float, sign: int) -> Pixels:
        calls["count"] += 1
        return flat(255 if calls["count"] % width == 1 % width else 0, (1, 1))

    augmix = augmix_of(white_first, severity=3, width=width, depth=1, alpha=alpha)
    generator = stream(0, "weights")
    seen = np.array([augmix(flat(0, (1, 1)), generator)[0, 0, 0] for _ in range(4000)]) / 255
    first = stats.dirichlet([alpha] * width) if width > 1 else None
    rng = np.random.default_rng(1)
    weight = first.rvs(4000, random_state=rng)[:, 0] if first is not None else np.ones(4000)
    expected = weight * stats.beta(alpha, alpha).rvs(4000, random_state=rng)
    assert stats.ks_2samp(seen, np.rint(expected * 255) / 255).pvalue > 0.001
    # E[m w] and E[m^2 w^2] in closed form.
    second = alpha * (alpha + 1) / (width * alpha * (width * alpha + 1)) * (alpha + 1) / (2 * (2 * alpha + 1))
    assert seen.mean() == pytest.approx(1 / (2 * width), abs=0.015)
    assert (seen**2).mean() == pytest.approx(second, abs=0.015)


def test_chains_are_drawn_as_the_paper_says(augmix_of: Callable[..., ImageAugmentation]) -> None:
    told: list[tuple[int, float, int]] = []

    def teller(which: int) -> Callable[[Pixels, float, int], Pixels]:
        def operation(image: Pixels, level: float, sign: int) -> Pixels:
            told.append((which, level, sign))
            return image

        return operation

    augmix = augmix_of(*map(teller, range(9)), severity=4, width=1)
    generator = stream(0, "chains")
    lengths = []
    for _ in range(1500):
        before = len(told)
        augmix(flat(0, (1, 1)), generator)
        lengths.append(len(told) - before)
    assert stats.chisquare(np.bincount(lengths)[1:]).pvalue > 0.001 and set(lengths) == {1, 2, 3}
    which, levels, signs = (np.array(column) for column in zip(*told, strict=True))
    assert stats.chisquare(np.bincount(which)).pvalue > 0.001
    assert stats.kstest(levels, stats.uniform(0.1, 3.9).cdf).pvalue > 0.001
    assert stats.binomtest(int((signs > 0).sum()), len(signs)).pvalue > 0.001


def test_a_fixed_depth_and_width(augmix_of: Callable[..., ImageAugmentation]) -> None:
    count = {"operations": 0}

    def counted(image: Pixels, level: float, sign: int) -> Pixels:
        count["operations"] += 1
        return image

    image = coloured((9, 9))
    augmix_of(counted, severity=1, width=5, depth=2)(image, stream(0, "d"))
    assert count["operations"] == 10


def test_operations_that_do_nothing_give_the_picture(augmix_of: Callable[..., ImageAugmentation]) -> None:
    """Weights sum to one, so nothing is darkened by mixing."""
    image = np.arange(256, dtype=np.uint8).reshape(16, 16, 1).repeat(3, axis=2)
    augmix = augmix_of(lambda picture, level, sign: picture, severity=3, width=4, depth=1, alpha=0.3)
    for seed in range(20):
        assert np.array_equal(augmix(image, stream(seed, "same")), image)
