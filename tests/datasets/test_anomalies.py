"""Images of no class: seeded, of the stated laws, and refused without a label space."""

from __future__ import annotations

import numpy as np
import pytest

import shiftbench as sb
from shiftbench.datasets.anomalies import ANOMALIES
from shiftbench.errors import DatasetError, UnknownNameError


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

    bernoulli, gaussian, blobs = pixels("bernoulli"), pixels("gaussian"), pixels("blobs")
    assert set(np.unique(bernoulli).tolist()) == {0, 255} and 0.49 < (bernoulli > 0).mean() < 0.51
    assert 0.30 < (gaussian == 0).mean() < 0.32  # a normal value of mean 0.5 and deviation 1 is negative in 30.9 %
    assert 0.15 < (blobs > 0).mean() < 0.45 and blobs[blobs > 0].min() >= round(0.75 * 255)


def test_errors() -> None:
    with pytest.raises(UnknownNameError, match="gaussian"):
        sb.open_dataset("anomalies:noise", space="imagenet-1k")
    with pytest.raises(DatasetError, match="label space"):
        sb.open_dataset("anomalies:blobs")
