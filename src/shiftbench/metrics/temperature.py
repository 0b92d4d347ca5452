"""Temperature scaling: one number, fitted on held-out images, that calibrates confidences (Guo et al. 2017).

Probabilities become softmax(z / T). T > 1 tempers overconfidence; classes, and so accuracy, stay as they are.
Fit on images that are not scored afterwards: fitted on the test set, it looks better than it is.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from shiftbench.arrays import BoolArray, FloatArray
from shiftbench.errors import ShiftbenchError, argument
from shiftbench.metrics import arrays
from shiftbench.store.predictions import Predictions

#: Temperatures outside are of no use: confidences are all 1/K or all 1 long before.
BOUNDS = (0.01, 100.0)
#: The published search is a bisection between these temperatures ...
PUBLISHED_BOUNDS = (0.2, 5.0)
#: ... until they are no further apart than this.
PUBLISHED_WIDTH = 1e-4

#: Rows whose exponentials are held at once.
_BLOCK = 4096


def fit_temperature(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    method: Literal["exact", "published"] = "exact",
    bounds: tuple[float, float] | None = None,
) -> float:
    """The temperature with the least negative log-likelihood, mean(log sum_k exp(z_k / T) - z_label / T).

    In b = 1/T this is convex, and its derivative mean(E_p[z] - z_label) only rises: where it changes its sign
    is the minimum, found by Brent's method. Without a change, as for a classifier that is always right (T
    would go to 0) or worse than chance (to infinity), the better bound is returned.

    ``method="published"`` bisects on [0.2, 5] to 1e-4, as the code of "Natural Adversarial Examples".

    Args:
        logits: (n, classes) scores before softmax.
        labels: Label of each image, as an index of a class.
        method: ``"exact"``, or ``"published"`` as in the papers' code.
        bounds: Lowest and highest temperature.

    Example:
        >>> round(fit_temperature([[2.0, 0.0]] * 4, [0, 0, 0, 1]), 4)  # 3 of 4 right: 2 / log 3
        1.8205
    """
    table = arrays.real_matrix("logits", logits)
    label_indices = arrays.class_labels(labels, *table.shape)
    if not np.isfinite(table).all():
        raise ShiftbenchError("a temperature can't be fitted to infinite logits", expected="finite numbers")
    mean_label_logit = float(table[np.arange(len(table)), label_indices].mean())
    if bounds is None:
        bounds = BOUNDS if method == "exact" else PUBLISHED_BOUNDS
    low, high = bounds
    if not 0 < low < high:
        raise ShiftbenchError("invalid bounds of a temperature", found=f"{low} to {high}", expected="0 < low < high")

    def slope(temperature: float) -> float:
        """The derivative of the loss in b = 1/T; falls with T."""
        return _expected_logit(table, 1.0 / temperature) - mean_label_logit

    if method == "published":
        while high - low > PUBLISHED_WIDTH:
            middle = (low + high) / 2
            # The loss rises with T where it falls with 1/T.
            if slope(middle) < 0:
                high = middle
            else:
                low = middle
        candidates = (low, (low + high) / 2, high)
        return min(candidates, key=lambda t: _mean_loss(table, mean_label_logit, 1.0 / t))
    if low <= 1.0 <= high and slope(1.0) == 0:  # the minimum, or one class only and no temperature matters
        return 1.0
    if slope(high) >= 0:  # even the least confident answer is too confident
        return high
    if slope(low) <= 0:
        return low
    from scipy.optimize import brentq  # here, so that importing the metrics stays light

    # Searched in log T: the interesting temperatures are factors apart.
    return float(np.exp(brentq(lambda log_t: slope(float(np.exp(log_t))), np.log(low), np.log(high), xtol=1e-10)))


def apply_temperature(logits: ArrayLike, temperature: float) -> FloatArray:
    """softmax(z / T): the probabilities at a temperature.

    Args:
        logits: (n, classes) scores before softmax.
        temperature: T, above 0.

    Example:
        >>> apply_temperature([[2.0, 0.0]], 1.8205).round(3).tolist()
        [[0.75, 0.25]]
    """
    _check(temperature)
    return arrays.softmax(arrays.real_matrix("logits", logits) / temperature)


def fit_temperature_of(predictions: Predictions) -> float:
    """The temperature that fits predictions with kept scores; probabilities p count as logits log p."""
    if not predictions.valid.any():
        raise ShiftbenchError("no image to fit a temperature on", found=f"{len(predictions)} rows, none counts")
    table = arrays.log_probabilities(predictions, predictions.valid)
    smallest = np.log(np.finfo(np.float32).tiny)
    return fit_temperature(np.maximum(table, smallest), predictions.labels[predictions.valid])


def with_temperature(predictions: Predictions, temperature: float) -> Predictions:
    """The same predictions with confidences and scores at a temperature, which the provenance records.

    Args:
        predictions: The predictions of one model in one setting.
        temperature: T, above 0.
    """
    _check(temperature)
    read = predictions.readable
    logs = arrays.log_probabilities(predictions, read) / temperature
    scores = arrays.kept_scores(predictions).copy()
    confidence = np.full(len(predictions), np.nan, dtype=np.float32)
    if len(logs):
        logs -= logs.max(axis=1, keepdims=True)
        table = np.exp(logs)
        table /= table.sum(axis=1, keepdims=True)
        confidence[read] = table.max(axis=1)
        if arrays.gives_probabilities(predictions):
            scores[read] = table
        else:
            scores[read] /= temperature
    line = f"{predictions.provenance}; temperature {temperature:.4g}".removeprefix("; ")
    further_facts = {**predictions.spec.others, "temperature": temperature}
    spec = replace(predictions.spec, provenance=line, others=further_facts)
    return replace(predictions, confidence=confidence, scores=scores, spec=spec)


@dataclass(frozen=True)
class Calibrated:
    """Predictions of the scored images, as they are and at a temperature that was fitted on other images."""

    before: Predictions
    after: Predictions
    temperature: float
    #: What it was fitted on.
    held_out: Predictions


def calibrate(
    scored: Predictions, fit: Predictions | None = None, *, split: float | None = None, seed: int = 0
) -> Calibrated:
    """Fit a temperature on held-out images and apply it to the scored ones; no image is on both sides.

    ``fit`` are predictions of the same classifier on other images; where some are the same, they are refused.
    ``split`` holds out that share of the images instead, of ``fit`` or of the scored ones themselves (by default one
    half): an image's side depends on its id and the seed alone, so that it is the same under every shift.

    Args:
        scored: Predictions to apply the temperature to, with scores of all classes.
        fit: Predictions of the same model on other images.
        split: Share of the images to hold out instead.
        seed: Seed of the split.
    """
    source = fit
    if source is None:
        source = scored
    if scored.spec.classifier != source.spec.classifier:
        raise ShiftbenchError(
            "a temperature belongs to the model it was fitted to",
            found=f"{source.classifier!r} and {scored.classifier!r}",
            expected="the same, with the same weights and preprocessing",
        )
    if fit is None and split is None:
        split = 0.5
    if split is None:
        _refuse_common_images(scored, source)
        held_out = source
        before = scored
    else:
        held_out = source.part(_held_out(source, split, seed), f"{100 * split:g} % of the images, seed {seed}")
        before = scored.part(~_held_out(scored, split, seed), f"without {100 * split:g} % of the images, seed {seed}")
    temperature = fit_temperature_of(held_out)
    return Calibrated(before, with_temperature(before, temperature), temperature, held_out)


def _refuse_common_images(scored: Predictions, source: Predictions) -> None:
    """Raise if an image would be scored by a temperature that was fitted on it.

    The same image under another shift counts too, because its label would be known.
    """
    scored_data = scored.spec.dataset
    source_data = source.spec.dataset
    if scored_data.name != source_data.name and scored_data.fingerprint != source_data.fingerprint:
        return
    common = set(scored.ids) & set(source.ids)
    if common:
        raise ShiftbenchError(
            f"a temperature fitted on {source.setting!r} would be scored on images that it was fitted on",
            found=f"{len(common)} images in both",
            expected="other images",
            hint=f"hold some out with {argument('split', 0.5)}, or fit on another dataset",
        )


def _held_out(predictions: Predictions, share: float, seed: int) -> BoolArray:
    """True for about ``share`` of the images, chosen by their ids."""
    if not 0 < share < 1:
        raise ShiftbenchError("invalid share of images to hold out", found=share, expected="between 0 and 1")
    held_out = np.zeros(len(predictions.ids), dtype=bool)
    for i, image_id in enumerate(predictions.ids):
        # A hash is as good as a random number here, and it does not depend on which other images there are.
        text = f"{seed}/{image_id}".encode("utf-8", "replace")
        number = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest())
        held_out[i] = number < share * 2**64
    return held_out


def _expected_logit(table: FloatArray, scale: float) -> float:
    """mean over images of sum_k p_k z_k, p = softmax(scale z)."""
    total = 0.0
    for start in range(0, len(table), _BLOCK):
        rows = table[start : start + _BLOCK]
        p = np.exp(scale * (rows - rows.max(axis=1, keepdims=True)))
        total += float((np.einsum("nk,nk->n", p, rows) / p.sum(axis=1)).sum())
    return total / len(table)


def _mean_loss(table: FloatArray, mean_label_logit: float, scale: float) -> float:
    """The mean over images of log sum_k exp(scale z_k) - scale z_label."""
    total = 0.0
    for start in range(0, len(table), _BLOCK):
        rows = table[start : start + _BLOCK]
        top = rows.max(axis=1, keepdims=True)
        total += float((scale * top[:, 0] + np.log(np.exp(scale * (rows - top)).sum(axis=1))).sum())
    return total / len(table) - scale * mean_label_logit


def _check(temperature: float) -> None:
    if not 0 < temperature < float("inf"):
        raise ShiftbenchError("invalid temperature", found=temperature, expected="more than 0")
