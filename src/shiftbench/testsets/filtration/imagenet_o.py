"""The recipe of ImageNet-O (003 section 3): out-of-distribution images with confident predictions.

Candidates come from classes that the model was not trained on (ImageNet-22K without ImageNet-1K). Images are kept if
they fool the usual out-of-distribution detector: the maximum softmax probability over the classes of the new test set
is high. People choose from the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from shiftbench.arrays import IntArray
from shiftbench.classifiers.base import Classifier
from shiftbench.datasets.base import Dataset
from shiftbench.datasets.subset import take
from shiftbench.errors import ShiftbenchError
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

#: The paper gives no number. Above one half, a class is more likely than all others together.
MIN_CONFIDENCE = 0.5


def filter_out_of_distribution(
    dataset: Dataset,
    classifiers: Sequence[Classifier],
    *,
    space: LabelSpace | None = None,
    known: LabelSpace | None = None,
    min_confidence: float = MIN_CONFIDENCE,
    per_class: int | None = None,
    folder: str | Path | None = None,
    workers: int | None = None,
    show: bool = False,
) -> Filtration:
    """The out-of-distribution images that all ``classifiers`` are confident on, the most confident first.

    ``space``: the classes for the confidence (200 for ImageNet-O; default: all of the first classifier). ``known``: the
    classes that candidates must not belong to (default: all of the first classifier), judged by their labels; images
    without a label are accepted. ``per_class`` limits the images per predicted class.
    """
    check_classifiers(classifiers)
    check_share("min_confidence", min_confidence)
    if per_class is not None and per_class < 1:
        raise ShiftbenchError("invalid per_class", found=per_class, expected="1 or more, or None")
    space, known = space or classifiers[0].space, known or classifiers[0].space
    outside = _outside(dataset, known)
    pool = take(dataset, outside.tolist())
    options = ComputeOptions(folder, workers, show=show)
    views = look_at(pool, np.full(len(pool), -1, np.int32), classifiers, space, options, ten=False)
    rows, readable = [one.rows for one in views], views[0].readable
    least = np.min([one["confidence"] for one in rows], axis=0)
    confident = np.flatnonzero(readable & (least >= min_confidence))
    ranked = sorted(confident.tolist(), key=lambda i: (-least[i], pool.ids[i]))
    chosen = capped(ranked, [int(rows[0]["taken_for"][i]) for i in ranked], per_class)
    steps = [
        FunnelStep("candidates", len(dataset)),
        FunnelStep(f"readable, in no class of {known.name}", int(readable.sum())),
        FunnelStep(f"confidence at least {min_confidence:.0%}", len(confident)),
    ]
    if per_class is not None:
        steps.append(FunnelStep(f"at most {per_class} per predicted class", len(chosen)))
    notes = [described(classifiers, space)]
    unlabelled = int((dataset.labels < 0).sum())
    if unlabelled:
        notes.append(f"{unlabelled:,} candidates have no label and are assumed to be out of distribution")
    funnel = Funnel(steps, title="Out-of-distribution filtration", notes=notes)
    labels = [dataset.space.names[pool.labels[i]] if pool.labels[i] >= 0 else "" for i in chosen]
    return Filtration(pool, funnel, listed(pool, chosen, labels, rows, space), unreadable_of(pool, views[0]))


def _outside(dataset: Dataset, known: LabelSpace) -> IntArray:
    """Images whose class, or its group, is not among the known classes."""
    inside = np.append(known.relabel_from(dataset.space) >= 0, False)  # -1, no label, is the last
    return np.flatnonzero(~inside[dataset.labels])
