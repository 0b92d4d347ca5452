"""Images of no class: seeded, of the stated laws, and refused without a label space."""

from __future__ import annotations

import numpy as np
import pytest
from skimage.filters import gaussian as skimage_gaussian

import shiftbench as sb
from shiftbench.datasets.anomalies import ANOMALIES
from shiftbench.errors import DatasetError, UnknownNameError
from tests.raised import raises


@pytest.mark.parametrize("which", ANOMALIES)
def test_images_are_seeded(which: str) -> None:
    first, again = (sb.open_dataset(f"anomalies:{which}", space="cifar-10", images=3, side=48) for _ in range(2))
    assert first.fingerprint == again.fingerprint and len(first) == 3 and set(first.labels.tolist()) == {-1}
    assert first.read(1).pixels.shape == (48, 48, 3) and (first.read(1).pixels == again.read(1).pixels).all()
    assert (first.read(0).pixels != first.read(1).pixels).any()
    other = sb.open_dataset(f"anomalies:{which}", space="cifar-10", images=3, side=48, seed=1)
    assert other.fingerprint != first.fingerprint and (other.read(0).pixels != first.read(0).pixels).any()


def test_laws() -> None:
    def pixels(which: str) -> np.ndarray:
        return sb.open_dataset(f"anomalies:{which}", space="imagenet-1k").read(0).pixels

    bernoulli = pixels("bernoulli")
    gaussian = pixels("gaussian")
    blobs = pixels("blobs")
    assert set(np.unique(bernoulli).tolist()) == {0, 255} and 0.49 < (bernoulli > 0).mean() < 0.51
    assert 0.155 < (gaussian == 0).mean() < 0.165  # a normal value of mean and deviation 0.5 is below 1/510 in 16 %
    assert blobs[blobs > 0].min() >= round(0.75 * 255)
    # As the published code makes them, which has 32 pixels; larger ones look alike.
    small = sb.open_dataset("anomalies:blobs", space="cifar-10", side=32, images=40)
    expected = [
        skimage_gaussian(
            np.random.default_rng([0, i]).binomial(1, 0.7, (32, 32, 3)).astype(float), 1.5, channel_axis=None
        )
        for i in range(40)
    ]
    for i, values in enumerate(expected):
        made = np.where(values < 0.75, 0.0, values)
        np.testing.assert_allclose(small.read(i).pixels, 255 * np.clip(made, 0, 1), atol=0.51)
    share = np.mean(np.array(expected) >= 0.75)
    assert abs((blobs > 0).mean() - share) < 0.1


def test_errors() -> None:
    with raises(UnknownNameError, name="noise"):
        sb.open_dataset("anomalies:noise", space="imagenet-1k")
    with pytest.raises(DatasetError, match="label space"):
        sb.open_dataset("anomalies:blobs")
