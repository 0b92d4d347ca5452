"""The recipe of ImageNet-A (003 section 3): images that models misclassify by a clear margin.

An image is kept if no crop is classified correctly by any model, and no crop gives the true class more than 15 %
confidence. Each confusion (label, predicted class) then keeps at most 15 images, so that none dominates the set. People
choose from the rest. The paper's two ResNet-50s predict 200 of ImageNet's classes; pass those as ``space``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import IntArray
from shiftbench.classifiers.base import Classifier
from shiftbench.datasets.base import Dataset
from shiftbench.datasets.subset import of_classes
from shiftbench.errors import ShiftbenchError
from shiftbench.io.hashing import seeded_rank
from shiftbench.jobs.blocks import ComputeOptions
from shiftbench.labels.space import LabelSpace
from shiftbench.testsets.filtration.shortlist import (
    Filtration,
    Funnel,
    FunnelStep,
    capped,
    check_classifiers,
    check_share,
    described,
    listed,
    unreadable_of,
)
from shiftbench.testsets.filtration.views import look_at

MAX_CONFIDENCE = 0.15
PER_CONFUSION = 15


def filter_adversarially(
    dataset: Dataset,
    classifiers: Sequence[Classifier],
    *,
    space: LabelSpace | None = None,
    max_confidence: float = MAX_CONFIDENCE,
    confidence: Literal["most", "mean"] = "most",
    per_confusion: int | None = PER_CONFUSION,
    order: Literal["confidence", "random"] = "confidence",
    seed: int = 0,
    ten_crop: bool = True,
    folder: str | Path | None = None,
    workers: int | None = None,
    show: bool = False,
) -> Filtration:
    """The images that fool all ``classifiers``, for human review.

    ``space``: the classes of the new test set (default: those of the dataset); images of other classes are dropped.
    ``confidence``: whether the ``most`` confident crop or the ``mean`` over crops is compared with ``max_confidence``;
    the paper does not specify it, and the former is stricter. A confusion with more than ``per_confusion`` images
    (None: no limit) keeps those with the lowest confidence in the true class, or a ``random`` choice by ``seed``; the
    first classifier determines the predicted class. ``folder`` caches results, so that an interrupted filtration
    resumes.
    """
    _check(classifiers, max_confidence, confidence, per_confusion, order)
    space = space or dataset.space
    pool = of_classes(dataset, space)
    options = ComputeOptions(folder, workers, show=show)
    views = look_at(pool, pool.labels, classifiers, space, options, ten=ten_crop)
    rows, readable = [one.rows for one in views], views[0].readable
    wrong = readable & np.logical_and.reduce([one["right"] == 0 for one in rows])
    unsure = wrong & np.logical_and.reduce([one[confidence] <= max_confidence for one in rows])
    ranked = _ranked(pool, np.flatnonzero(unsure), rows, confidence, order, seed)
    confusions = [(int(pool.labels[i]), int(rows[0]["taken_for"][i])) for i in ranked]
    chosen = capped(ranked, confusions, per_confusion)
    steps = [
        FunnelStep("candidates", len(dataset)),
        FunnelStep(f"readable, in a class of {space.name}", int(readable.sum())),
        FunnelStep("no crop correct" if ten_crop else "not correct", int(wrong.sum())),
        FunnelStep(f"confidence in the true class at most {max_confidence:.0%}", int(unsure.sum())),
    ]
    if per_confusion is not None:
        steps.append(FunnelStep(f"at most {per_confusion} per confusion", len(chosen)))
    funnel = Funnel(steps, title="Adversarial filtration", notes=[described(classifiers, space)])
    labels = [space.names[pool.labels[i]] for i in chosen]
    return Filtration(pool, funnel, listed(pool, chosen, labels, rows, space), unreadable_of(pool, views[0]))


def _ranked(
    pool: Dataset,
    indices: IntArray,
    rows: Sequence[NDArray[Any]],
    confidence: str,
    order: str,
    seed: int,
) -> list[int]:
    """Images in order of priority; ids break ties, so that the order of the pool does not matter."""
    if order == "random":
        return sorted(indices.tolist(), key=lambda i: seeded_rank(seed, pool.ids[i]))
    truth = np.max([one[confidence] for one in rows], axis=0)
    return sorted(indices.tolist(), key=lambda i: (truth[i], pool.ids[i]))


def _check(
    classifiers: Sequence[Classifier], max_confidence: float, confidence: str, per_confusion: int | None, order: str
) -> None:
    check_classifiers(classifiers)
    check_share("max_confidence", max_confidence)
    if per_confusion is not None and per_confusion < 1:
        raise ShiftbenchError("invalid per_confusion", found=per_confusion, expected="1 or more, or None")
    for what, value, choices in (
        ("confidence", confidence, ("most", "mean")),
        ("order", order, ("confidence", "random")),
    ):
        if value not in choices:
            raise ShiftbenchError(f"unknown {what} {value!r}", expected=" or ".join(choices))
