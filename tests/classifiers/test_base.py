"""Cutting, padding, shrinking."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shiftbench.classifiers.base import BatchedClassifier, out_of_memory
from shiftbench.classifiers.preprocessing import Preprocessing
from shiftbench.errors import ClassifierError
from shiftbench.labels.space import LabelSpace
from tests.raised import raises


class Recorder(BatchedClassifier):
    """Scores are the first pixel; remembers the sizes it was run with, and has memory for ``limit`` images."""

    name = "recorder"
    fingerprint = "0"

    def __init__(self, limit: int = 100, least: int = 1, error: Exception | None = None) -> None:
        super().__init__()
        self.space = LabelSpace("colours", ("r", "g", "b"))
        self.preprocessing = Preprocessing()
        self.batch_size = 8
        self.limit = limit
        self.least = least
        self.error = error or MemoryError()
        self.sizes: list[int] = []

    def rows(self) -> int:
        return self.least

    def forward(self, images: Any) -> Any:
        self.sizes.append(len(images))
        if len(images) > self.limit:
            raise self.error
        return images[:, 0, 0, :].astype(np.float32)


IMAGES = np.random.default_rng(0).integers(0, 256, (21, 4, 4, 3), dtype=np.uint8)
EXPECTED = IMAGES[:, 0, 0, :].astype(np.float32)


def test_batches_are_cut() -> None:
    recorder = Recorder()
    assert np.array_equal(recorder.scores(IMAGES), EXPECTED)
    assert recorder.sizes == [8, 8, 5]


def test_batches_are_padded() -> None:
    recorder = Recorder(least=8)
    assert np.array_equal(recorder.scores(IMAGES), EXPECTED)
    assert recorder.sizes == [8, 8, 8]


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("CUDA out of memory. Tried to allocate"), RuntimeError("std::bad_alloc")]
)
def test_memory_that_runs_out(error: Exception) -> None:
    recorder = Recorder(limit=3, error=error)
    assert np.array_equal(recorder.scores(IMAGES), EXPECTED)
    assert recorder.batch_size == 2
    recorder.sizes.clear()
    recorder.scores(IMAGES[:4])
    assert recorder.sizes == [2, 2]  # remembered


def test_one_image_too_much() -> None:
    with pytest.raises(MemoryError):
        Recorder(limit=0).scores(IMAGES)


def test_other_errors_pass() -> None:
    recorder = Recorder(limit=0, error=ValueError("shape"))
    with pytest.raises(ValueError, match="shape"):
        recorder.scores(IMAGES)
    assert recorder.batch_size == 8
    assert not out_of_memory(KeyboardInterrupt())


@pytest.mark.parametrize(
    "images", [IMAGES[0], IMAGES.astype(np.float32), IMAGES[..., :1], IMAGES.transpose(0, 3, 1, 2)[:, :2]]
)
def test_no_batch_of_pictures(images: Any) -> None:
    with raises(ClassifierError, expected="uint8 (N, height, width, 3)"):
        Recorder().scores(images)


def test_scores_for_another_space() -> None:
    recorder = Recorder()
    recorder.space = LabelSpace("pair", ("a", "b"))
    with pytest.raises(ClassifierError, match="wrong shape"):
        recorder.scores(IMAGES)


def test_no_images() -> None:
    assert Recorder().scores(IMAGES[:0]).shape == (0, 3)
