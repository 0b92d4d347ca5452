"""Predictions for tests, from little."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from shiftbench.labels.space import LabelSpace
from shiftbench.store.predictions import Predictions
from shiftbench.store.spec import ResultSpec


def space(classes: int = 3) -> LabelSpace:
    return LabelSpace(f"test-{classes}", tuple(f"c{i}" for i in range(classes)))


def predictions(
    top: ArrayLike,
    labels: ArrayLike,
    *,
    classifier: str = "net",
    setting: str = "clean",
    classes: int = 3,
    ids: Sequence[str] | None = None,
    scores: ArrayLike | None = None,
    **spec: Any,
) -> Predictions:
    best = np.asarray(top, dtype=np.int32)
    best = best[:, None] if best.ndim == 1 else best
    return Predictions(
        classifier,
        setting,
        space(classes),
        list(ids) if ids is not None else [f"image-{i}" for i in range(len(best))],
        np.asarray(labels, dtype=np.int32),
        best,
        np.where(best[:, 0] < 0, np.nan, 1.0).astype(np.float32),
        ResultSpec.from_json(spec),
        None if scores is None else np.asarray(scores, dtype=np.float32),
    )


def changed(found: Predictions, **spec: Any) -> Predictions:
    """The same predictions with other entries in their spec."""
    return replace(found, spec=ResultSpec.from_json({**found.spec.to_json(), **spec}))


def with_hits(hits: ArrayLike, **more: Any) -> Predictions:
    """Two classes, label 0 everywhere; an image is right where ``hits`` says so."""
    right = np.asarray(hits, dtype=bool)
    return predictions(np.where(right, 0, 1), np.zeros(len(right)), classes=2, **more)
