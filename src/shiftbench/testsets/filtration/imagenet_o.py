"""ImageNet-O's recipe (003 section 3): images of no known class that a classifier is confident on.

Candidates come from classes that the classifier was not trained on (ImageNet-22K without ImageNet-1K). Those stay
that fool the usual detector of such images: the greatest softmax probability over the classes of the new test set is
high. People choose from the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shiftbench.classifiers.base import Classifier
from shiftbench.datasets.base import Dataset
from shiftbench.datasets.subset import take
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

#: The paper says "high" and no number. Above one half a class is likelier than all others together.
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
    """The images of unknown classes that all ``classifiers`` are confident on, the most confident first.

    ``space``: the classes whose confidence counts (200 for ImageNet-O), without which all of the first classifier's
    count. ``known``: the classes that candidates must not belong to, without which they are all that the first
    classifier knows; a candidate's own label decides, and one without a label is trusted. ``per_class`` limits how
    many may be taken for the same class.
    """
    check_classifiers(classifiers)
    check_share("min_confidence", min_confidence)
    if per_class is not None and per_class < 1:
        raise ShiftbenchError("bad limit for a class", found=per_class, expected="1 or more, or None")
    space, known = space or classifiers[0].space, known or classifiers[0].space
    outside = _outside(dataset, known)
    pool = take(dataset, outside.tolist())
    views = look_at(
        pool, np.full(len(pool), -1, np.int32), classifiers, space, ten=False,
        folder=None if folder is None else Path(folder), workers=workers, show=show,
    )  # fmt: skip
    rows, readable = [one.rows for one in views], views[0].readable
    least = np.min([one["confidence"] for one in rows], axis=0)
    confident = np.flatnonzero(readable & (least >= min_confidence))
    ranked = sorted(confident.tolist(), key=lambda i: (-least[i], pool.ids[i]))
    chosen = capped(ranked, [int(rows[0]["taken_for"][i]) for i in ranked], per_class)
    steps = [
        Step("candidates", len(dataset)),
        Step(f"of no class of {known.name}, and readable", int(readable.sum())),
        Step(f"at least {min_confidence:.0%} confident", len(confident)),
    ]
    if per_class is not None:
        steps.append(Step(f"at most {per_class} taken for a class", len(chosen)))
    notes = [described(classifiers, space)]
    unlabelled = int((dataset.labels < 0).sum())
    if unlabelled:
        notes.append(f"{unlabelled:,} candidates have no label; nothing shows that they are of no known class")
    funnel = Funnel(steps, title="Out-of-distribution filtration", notes=notes)
    labels = [dataset.space.names[pool.labels[i]] if pool.labels[i] >= 0 else "" for i in chosen]
    return Filtration(pool, funnel, listed(pool, chosen, labels, rows, space), unreadable_of(pool, views[0]))


def _outside(dataset: Dataset, known: LabelSpace) -> NDArray[np.int64]:
    """Images whose class, or whose class's group, is none of the known ones."""
    inside = np.append(known.relabel_from(dataset.space) >= 0, False)  # -1, no label, is the last
    return np.flatnonzero(~inside[dataset.labels])
