"""ImageNet-A's recipe (003 section 3): images that classifiers get wrong, and not by a hair.

An image stays if no crop of any classifier is right, and none gives the true class more than 15 % confidence. Then
each confusion (label, class it is taken for) keeps at most 15 images, so that no single one fills the set. People
choose from the rest. The paper's two ResNet-50s see 200 of ImageNet's classes; name those as ``space``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from shiftbench.classifiers.base import Classifier
from shiftbench.datasets.base import Dataset
from shiftbench.datasets.subset import of_classes
from shiftbench.errors import ShiftbenchError
from shiftbench.labels.space import LabelSpace
from shiftbench.testsets.filtration.funnel import Funnel, Step
from shiftbench.testsets.filtration.shortlist import (
    Filtration,
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
    """The images that fool all ``classifiers``, for people to review.

    ``space``: the classes of the new test set, without which those of the data set are taken; images of other
    classes are left out. ``confidence``: whether the ``most`` confident crop or the ``mean`` over crops counts
    against ``max_confidence``; the paper does not say, and the former is stricter. A confusion that has more than
    ``per_confusion`` images (None: no limit) keeps those with the least confidence in the truth, or a ``random``
    choice by ``seed``; which class an image is taken for is the first classifier's matter. ``folder`` keeps what
    was computed, so that a filtration that was stopped continues.
    """
    _check(classifiers, max_confidence, confidence, per_confusion, order)
    space = space or dataset.space
    pool = of_classes(dataset, space)
    views = look_at(
        pool, pool.labels, classifiers, space, ten=ten_crop,
        folder=None if folder is None else Path(folder), workers=workers, show=show,
    )  # fmt: skip
    rows, readable = [one.rows for one in views], views[0].readable
    wrong = readable & np.logical_and.reduce([one["right"] == 0 for one in rows])
    unsure = wrong & np.logical_and.reduce([one[confidence] <= max_confidence for one in rows])
    ranked = _ranked(pool, np.flatnonzero(unsure), rows, confidence, order, seed)
    confusions = [(int(pool.labels[i]), int(rows[0]["taken_for"][i])) for i in ranked]
    chosen = capped(ranked, confusions, per_confusion)
    steps = [
        Step("candidates", len(dataset)),
        Step(f"of a class of {space.name}, and readable", int(readable.sum())),
        Step("no crop right" if ten_crop else "not right", int(wrong.sum())),
        Step(f"at most {max_confidence:.0%} sure of the truth", int(unsure.sum())),
    ]
    if per_confusion is not None:
        steps.append(Step(f"at most {per_confusion} of a confusion", len(chosen)))
    funnel = Funnel(steps, title="Adversarial filtration", notes=[described(classifiers, space)])
    labels = [space.names[pool.labels[i]] for i in chosen]
    return Filtration(pool, funnel, listed(pool, chosen, labels, rows, space), unreadable_of(pool, views[0]))


def _ranked(
    pool: Dataset,
    indices: NDArray[np.int64],
    rows: Sequence[NDArray[Any]],
    confidence: str,
    order: str,
    seed: int,
) -> list[int]:
    """The order in which images claim a place; ids break ties, so that the order of the pool does not matter."""
    if order == "random":
        return sorted(indices.tolist(), key=lambda i: _rank(seed, pool.ids[i]))
    truth = np.max([one[confidence] for one in rows], axis=0)
    return sorted(indices.tolist(), key=lambda i: (truth[i], pool.ids[i]))


def _rank(seed: int, image: str) -> bytes:
    return hashlib.blake2b(f"{seed}/{image}".encode("utf-8", "surrogateescape"), digest_size=16).digest()


def _check(
    classifiers: Sequence[Classifier], max_confidence: float, confidence: str, per_confusion: int | None, order: str
) -> None:
    check_classifiers(classifiers)
    check_share("max_confidence", max_confidence)
    if per_confusion is not None and per_confusion < 1:
        raise ShiftbenchError("bad limit for a confusion", found=per_confusion, expected="1 or more, or None")
    for what, value, choices in (
        ("confidence", confidence, ("most", "mean")),
        ("order", order, ("confidence", "random")),
    ):
        if value not in choices:
            raise ShiftbenchError(f"unknown {what} {value!r}", expected=" or ".join(choices))
