"""Images that a training set and another dataset have in common."""

from __future__ import annotations

import numpy as np
import pytest

from shiftbench.datasets import overlap
from shiftbench.datasets.arrays import ArrayDataset
from shiftbench.datasets.overlap import TrainedOn
from shiftbench.datasets.subset import sample, take
from shiftbench.labels import label_space


def images(count: int, seed: int) -> ArrayDataset:
    pixels = np.random.default_rng(seed).integers(0, 256, (count, 8, 8, 3), np.uint8)
    ids = [f"set-{seed}/{i}" for i in range(count)]
    return ArrayDataset(f"set-{seed}", label_space("cifar-10"), pixels, np.zeros(count, int), ids=ids)


@pytest.mark.parametrize("hashed", [10_000, 10])  # by content, and by name as for large datasets
def test_shared_images_are_counted(hashed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlap, "HASHED", hashed)
    whole = images(200, 0)
    extra = images(50, 1)
    known = TrainedOn.of([sample(whole, 80), extra])
    assert known.by == ("content" if hashed > 200 else "names") and known.images == 80
    assert known.among(whole).sum() == 80
    assert known.among(sample(whole, 80, seed=1)).sum() == len(
        {*sample(whole, 80).indices.tolist()} & {*sample(whole, 80, seed=1).indices.tolist()}
    )
    assert known.among(take(extra, [3, 5, 4])).sum() == 3
    assert known.among(images(300, 2)).sum() == 0


def test_a_model_saved_without_keys_recognises_the_whole_set_and_its_parts() -> None:
    whole = images(20, 0)
    known = TrainedOn(whole.fingerprint, 20)
    counts = [known.among(one).sum() for one in (whole, take(whole, [1, 2]), images(20, 1))]
    assert counts == [20, 2, 0]
