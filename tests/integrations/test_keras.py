"""The callback for Keras, with the real library on torch: the same numbers as by hand, and the same training."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shiftbench as sb

os.environ.setdefault("KERAS_BACKEND", "torch")
keras: Any = pytest.importorskip("keras")

CORRUPTED = "shiftbench/photos-c/top1"


def fitted(epochs: int, *callbacks: Any) -> tuple[Any, dict[str, list[float]]]:
    keras.utils.set_random_seed(3)
    model = keras.Sequential(
        [keras.Input((16, 16, 3)), keras.layers.Conv2D(4, 3, activation="relu"),
         keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(2)]
    )  # fmt: skip
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    light = np.linspace(0.1, 0.9, 16)
    images = np.repeat(light, 16 * 16 * 3).reshape(-1, 16, 16, 3)
    history = model.fit(images, (light > 0.5).astype(int), epochs=epochs, verbose=0, callbacks=list(callbacks))
    return model, history.history


def test_the_history_has_the_metrics_and_the_training_stays_the_same(settings: dict[str, Any], tmp_path: Path) -> None:
    settings["preprocessing"] = {"size": 16, "mean": 0.0, "std": 1.0, "scale": "1/255"}
    monitor = sb.Monitor(**settings)
    best = keras.callbacks.ModelCheckpoint(str(tmp_path / "best.keras"), monitor=CORRUPTED, mode="max")
    watched, history = fitted(2, monitor.keras_callback(), best)
    rows = [row["value"] for row in monitor.history().rows if row["metric"] == "photos-c/top1"]
    assert history[CORRUPTED] == rows and len(rows) == 2
    assert (tmp_path / "best.keras").exists()
    plain, _ = fitted(2)
    for weights, others in zip(watched.get_weights(), plain.get_weights(), strict=True):
        assert (weights == others).all()


def test_a_model_object_gets_images_in_its_own_layout(settings: dict[str, Any]) -> None:
    model, _ = fitted(1)
    stated = {"size": 16, "interpolation": "bilinear", "mean": 0.5, "std": 0.25, "colour": "rgb", "outputs": "logits"}
    classifier = sb.load_classifier(model, labels=["dark", "light"], preprocessing=stated)
    images = np.random.default_rng(2).integers(0, 256, (3, 16, 16, 3), dtype=np.uint8)
    expected = model.predict_on_batch((images / 255 - 0.5) / 0.25)
    assert classifier.scores(images) == pytest.approx(expected, abs=1e-4)
    assert classifier.preprocessing.normalisation.layout == "nhwc"
