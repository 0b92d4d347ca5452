"""Parts of the study of a frozen set that need no model."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from shiftbench.labels import label_space
from shiftbench.store.predictions import Predictions
from shiftbench.testsets.frozen import FrozenSet
from shiftbench.testsets.study import _Set
from tests.metrics.making import with_hits


def _predictions(model: str, setting: str, places: list[int], stored: int) -> Predictions:
    """Predictions whose right class has these places among ten; ``stored`` classes of each image are known."""
    labels = np.arange(len(places)) % 10
    top = np.stack([np.roll(np.arange(10), place - label) for label, place in zip(labels, places, strict=True)])
    plain = with_hits(np.ones(len(places), bool))
    return Predictions(
        model,
        setting,
        label_space("cifar-10"),
        plain.ids,
        labels.astype(np.int32),
        top[:, :stored].astype(np.int32),
        plain.confidence,
        plain.spec,
    )


def test_a_model_without_top_5_is_named_and_the_others_have_it(tmp_path: Path) -> None:
    places = {"a": [0, 3, 3, 9], "b": [0, 0, 6, 9], "csv": [0, 0, 0, 9]}
    sides = []
    for setting in ("new", "old"):
        sides.append([_predictions(m, setting, p, 1 if m == "csv" else 10) for m, p in places.items()])
    frozen = FrozenSet(
        tmp_path, "pets", "top", 1, datetime.now(UTC), label_space("cifar-10"), 4, "", 4, "", {"strategy": "top-images"}
    )
    testset = _Set(frozen, *sides)
    assert testset.tops == (1, 5)
    assert testset.results(1).column("new").tolist() == [0.25, 0.5, 0.75]
    assert testset.results(5).models == ("a", "b") and testset.results(5).column("new").tolist() == [0.75, 0.5]
    assert testset.without_classes(5) == ["csv"] and testset.without_classes(1) == []
