"""The effect of the review on a test set's accuracies, by revision (004 appendix C.3.2).

Images that reviewers remove are replaced. If that makes the set easier or harder, the accuracies of the revisions show
it. As in 004, predictions are only compared after the set is final: nothing here runs a model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shiftbench.errors import ShiftbenchError
from shiftbench.metrics.intervals import clopper_pearson
from shiftbench.reports.table import Column, Table
from shiftbench.store.predictions import Predictions
from shiftbench.studies.fits import Fit, fit

_SHOWN = 40


class RevisionsImpact(Table):
    """Accuracy of every model on every revision, and its change since the first."""

    def __init__(self, revisions: Mapping[str, Sequence[str]], rows: Sequence[Mapping[str, object]]) -> None:
        self.revisions = {name: list(ids) for name, ids in revisions.items()}
        names = list(self.revisions)
        means = [float(np.mean([row["accuracy"] for row in rows if row["revision"] == name])) for name in names]
        way = " -> ".join(f"{name} {100 * mean:.2f}" for name, mean in zip(names, means, strict=True))
        super().__init__(
            [
                Column("model", "model"),
                Column("revision", "revision"),
                Column("n", "images", "count"),
                Column("accuracy", "accuracy %", "number", ends=("low", "high"), times=100),
                Column("change", "change", "points", times=100),
            ],
            rows,
            most=_SHOWN,
            title="Impact of revisions",
            lead=[f"mean accuracy: {way}", self._turnover()],
        )

    def accuracies(self, revision: str) -> dict[str, float]:
        """Accuracies by model."""
        return {row["model"]: row["accuracy"] for row in self.rows if row["revision"] == revision}

    def line(self, revision: str, original: Mapping[str, float], *, scale: str = "probit", **options: Any) -> Fit:
        """The fit of a revision's accuracies against those on the original set, as fractions (004 figure 8)."""
        return fit(original, self.accuracies(revision), scale=scale, unit="fraction", **options)

    def _turnover(self) -> str:
        first, last = (set(ids) for ids in (next(iter(self.revisions.values())), list(self.revisions.values())[-1]))
        return f"{len(first & last):,} of the {len(first):,} images of the first revision are in the last"


def impact_of_revisions(
    revisions: Mapping[str, Sequence[str]], predictions: Sequence[Predictions], *, level: float = 0.95
) -> RevisionsImpact:
    """``revisions``: image ids, oldest first; ``predictions`` must cover all of them.

    Unreadable images are ignored.
    """
    if not revisions or not predictions:
        raise ShiftbenchError("nothing to compare", expected="at least one revision and the predictions of one model")
    rows = []
    for one in predictions:
        places = {image: i for i, image in enumerate(one.ids)}
        first: float | None = None
        for name, ids in revisions.items():
            chosen = _places(name, ids, one, places)
            right, count = int((one.top[chosen, 0] == one.labels[chosen]).sum()), len(chosen)
            low, high = clopper_pearson(right, count, level)
            first = right / count if first is None else first
            rows.append(
                {"model": one.classifier, "revision": name, "n": count, "accuracy": right / count, "low": low,
                 "high": high, "change": right / count - first}
            )  # fmt: skip
    return RevisionsImpact(revisions, rows)


def _places(name: str, ids: Sequence[str], one: Predictions, places: Mapping[str, int]) -> list[int]:
    missing = [image for image in ids if image not in places]
    if missing:
        raise ShiftbenchError(
            f"no predictions of {one.classifier!r} for {len(missing)} images of revision {name}",
            found=f"none for {missing[0]}",
            expected="predictions on all images that were ever in the set",
            hint="evaluate on the union of the revisions",
        )
    chosen = [places[image] for image in ids if one.valid[places[image]]]
    if not chosen:
        raise ShiftbenchError(f"revision {name} has no valid images", found=f"{len(ids)} images")
    return chosen
