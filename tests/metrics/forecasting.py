"""Predictions with confidences or scores, for tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from shiftbench.store.predictions import Predictions
from tests.metrics.making import changed, predictions, with_hits


def forecasts(confidence: ArrayLike, correct: ArrayLike, **more: Any) -> Predictions:
    """Two classes; each image right or wrong, with a confidence."""
    return replace(with_hits(correct, **more), confidence=np.asarray(confidence, dtype=np.float32))


def scored(scores: ArrayLike, labels: ArrayLike, *, outputs: str = "logits", **more: Any) -> Predictions:
    """All scores kept; the confidence is the softmax, or for probabilities the share, of the best class."""
    table = np.asarray(scores, dtype=np.float32)
    raised = table.astype(np.float64)
    if outputs == "logits":
        raised = np.exp(raised - raised.max(axis=1, keepdims=True))
    made = predictions(
        table.argmax(axis=1),
        labels,
        classes=table.shape[1],
        scores=table,
        classifier=more.pop("classifier", "net"),
        **more,
    )
    with np.errstate(invalid="ignore"):
        confidence = (raised.max(axis=1) / raised.sum(axis=1)).astype(np.float32)
    return changed(replace(made, confidence=confidence), classifier={"outputs": outputs})
