"""One stranger for all tests of this folder: images, a trained network, estimators, and their true accuracies."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.first_hour.own import CLASSES, export, make_images, network_scores, train_network, write_folder


@dataclass(frozen=True)
class Stranger:
    """What a new user has before the first command."""

    folder: Path
    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    network: Any
    mean: list[float]
    std: list[float]
    estimator: Any
    raw_estimator: Any

    @property
    def data(self) -> Path:
        return self.folder / "photos"

    @property
    def statement(self) -> str:
        """The one option: what the network was trained with."""
        mean, std = (",".join(map(str, values)) for values in (self.mean, self.std))
        return f"size=32,mean={mean},std={std},colour=rgb"

    def accuracy(self, scores: NDArray[Any]) -> float:
        return float((scores.argmax(axis=1) == self.labels).mean())

    @property
    def true_accuracy(self) -> float:
        return self.accuracy(network_scores(self.network, self.mean, self.std, self.images))

    def function(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        """The network behind a plain function that normalises for itself."""
        return network_scores(self.network, self.mean, self.std, images)


@pytest.fixture(scope="session")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Stranger:
    pytest.importorskip("torch")
    pytest.importorskip("onnx")
    forests = pytest.importorskip("sklearn.ensemble")
    folder = tmp_path_factory.mktemp("stranger")
    training, targets = make_images(60, seed=0)
    images, labels = make_images(40, seed=1)
    network, mean, std = train_network(training, targets)
    write_folder(folder / "photos", images, labels)
    for name, options in (
        ("fixed", {}),
        ("any_size", {"dynamic": True}),
        ("nhwc", {"nhwc": True}),
        ("half", {"half": True}),
    ):
        export(network, folder / f"{name}.onnx", **options)
    rows = training.reshape(len(training), -1)
    classes = np.array(CLASSES)[targets]
    return Stranger(
        folder,
        images,
        labels,
        network,
        mean,
        std,
        forests.RandomForestClassifier(30, random_state=0).fit(rows / 255, classes),
        forests.RandomForestClassifier(30, random_state=0).fit(rows.astype(float), classes),
    )
