"""Real predictions: 30 published models on CIFAR-10 and both versions of CIFAR-10.1."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from shiftbench.labels import label_space
from shiftbench.store.predictions import Predictions
from shiftbench.store.spec import ResultSpec

Maker = Callable[[str], list[Predictions]]


def predictions(
    name: str, setting: str, ids: list[str], labels: NDArray[np.integer], answers: NDArray[np.integer]
) -> Predictions:
    return Predictions(
        name,
        setting,
        label_space("cifar-10"),
        ids,
        labels.astype(np.int32),
        answers.astype(np.int32)[:, None],
        np.full(len(ids), np.nan, np.float32),
        ResultSpec(),
    )


@pytest.fixture(scope="session")
def published(reference_data: Path) -> Maker:
    """Predictions on "cifar10", "v4" or "v6"; images of CIFAR-10.1 are known by their place in Tiny Images."""
    folder = reference_data / "cifar-10.1"

    def made(which: str) -> list[Predictions]:
        with np.load(folder / "cifar10_and_10.1_predictions_30models.npz", allow_pickle=False) as file:
            models = file["models"].tolist()
            labels = file[f"labels_{which}"]
            answers = file[which]
        if which == "cifar10":
            ids = [f"test/{i:05d}" for i in range(len(labels))]
        else:
            ids = [str(i) for i in json.loads((folder / f"cifar10.1_{which}_ti_indices.json").read_text())]
        return [predictions(name, which, ids, labels, row) for name, row in zip(models, answers, strict=True)]

    return made
