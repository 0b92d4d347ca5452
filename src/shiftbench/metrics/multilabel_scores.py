"""The registered metrics of images with several labels; the arithmetic is in ``multilabel``.

Scores are ranked class by class as the classifier gives them, logits or probabilities: a sigmoid would not change
their order. Images of one label count too, so that any data set can be scored so.
"""

from __future__ import annotations

from shiftbench.metrics.base import Needs, Score, metric
from shiftbench.metrics.multilabel import mean_average_precision_score
from shiftbench.metrics.probabilities import kept_scores
from shiftbench.store.predictions import Predictions

_SCORES = Needs(top_k=1, confidence=False, scores=True)


@metric("mean_average_precision", needs=_SCORES, beside=("mean_average_precision_plain",))
def weighted(predictions: Predictions, *, level: float = 0.95) -> Score:
    """mAP as DeepFashion Remixed takes it: each class weighted by how many labels it has."""
    return _score(predictions, level, weighted=True)


@metric("mean_average_precision_plain", needs=_SCORES)
def plain(predictions: Predictions, *, level: float = 0.95) -> Score:
    """mAP as the plain mean over the classes that have an image."""
    return _score(predictions, level, weighted=False)


def _score(predictions: Predictions, level: float, *, weighted: bool) -> Score:
    rows = predictions.readable & predictions.multi_hot.any(axis=1)
    if not rows.any():
        return Score("mAP", float("nan"), 0.0, 1.0, 0, level, "no images", predictions.provenance)
    return mean_average_precision_score(
        kept_scores(predictions)[rows],
        predictions.multi_hot[rows],
        weighted,
        level=level,
        provenance=predictions.provenance,
    )
