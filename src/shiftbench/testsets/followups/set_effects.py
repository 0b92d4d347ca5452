"""The effect of class balance (004 B.2.9) and of the review (004 C.3.2) on a test set's accuracies.

CIFAR-10.1 v4 has 8 % ships, CIFAR-10 has 10 %. If class balance mattered, accuracies on a balanced subset, or the mean
of per-class accuracies, would differ from the plain ones. If replacing the images that reviewers remove makes the set
easier or harder, the accuracies of the revisions show it. As in 004, predictions are only compared after the set is
final: nothing here runs a model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from shiftbench import Dataset, LabelSpace, Predictions, ShiftbenchError
from shiftbench.datasets import Subset
from shiftbench.errors import DatasetError
from shiftbench.extend.metrics import class_counts, hits
from shiftbench.extend.tables import Column, Table
from shiftbench.extend.types import FloatArray, IntArray, Labels
from shiftbench.studies import Results
from shiftbench.testsets.followups.splits import ACCURACY_COLUMNS, accuracy_values, shuffled_groups

#: Rows of a table shown in a terminal.
_ROWS_IN_TERMINAL = 40


def class_balanced(dataset: Dataset, *, per_class: int | None = None, seed: int = 0) -> Subset:
    """A random subset with the same number of images per class: the size of the smallest class, or ``per_class``.
    In the order of the dataset; images without a label are dropped."""
    indices = balanced_indices(dataset.ids, dataset.labels, dataset.space, per_class, seed)
    return Subset(dataset, indices.tolist(), name=f"{dataset.name} balanced")


def balanced_indices(
    ids: Sequence[str], labels: Labels, space: LabelSpace, per_class: int | None, seed: int
) -> IntArray:
    """The indices of :func:`class_balanced`; raises DatasetError if a class has too few images."""
    labelled = np.flatnonzero(labels >= 0)
    classes = shuffled_groups([ids[i] for i in labelled.tolist()], labels[labelled].tolist(), seed)
    if not classes:
        raise DatasetError("no image has a label: there are no classes to balance")
    smallest_class = min(classes, key=lambda label: (len(classes[label]), label))
    smallest = len(classes[smallest_class])
    count = smallest if per_class is None else per_class
    if not 1 <= count <= smallest:
        raise DatasetError(
            f"cannot draw {count} images per class",
            found=f"{smallest} of {space.names[smallest_class]!r}, the smallest class",
            expected=f"1 to {smallest} per class",
            hint="collect more images of small classes, or omit the number",
        )
    return np.sort(labelled[np.concatenate([members[:count] for members in classes.values()])])


def balance_effect(
    predictions: Sequence[Predictions], *, per_class: int | None = None, seed: int = 0, level: float = 0.95
) -> Table:
    """Accuracy of every model on the set, on a balanced subset, and as the mean of per-class accuracies.

    Images are drawn by id: models with the same valid images share the balanced subset.
    """
    if not predictions:
        raise ShiftbenchError("no predictions to balance")
    rows = [_balance_row(model, per_class, seed, level) for model in predictions]
    mean = float(np.mean([row["class_mean_change"] for row in rows]))
    columns = [
        Column("model", "model", "model"),
        Column("accuracy", "accuracy %", "number", ends=("low", "high"), times=100),
        Column("balanced", "balanced %", "number", ends=("balanced_low", "balanced_high"), times=100),
        Column("change", "change", "points", times=100),
        Column("class_mean", "class mean %", "number", times=100, optional=True),
        Column("class_mean_change", "class mean change", "points", times=100),
    ]
    size = f"{rows[0]['n']:,} images, {rows[0]['balanced_n']:,} in the balanced subset"
    return Table(
        columns,
        rows,
        title=f"{predictions[0].setting}, class-balanced",
        lead=[f"{size}; mean change {100 * mean:+.2f}"],
        notes=["the mean of per-class accuracies needs no sampling: its change is due to balance alone"],
    )


def _balance_row(predictions: Predictions, per_class: int | None, seed: int, level: float) -> dict[str, Any]:
    """The row of one model in the table of :func:`balance_effect`."""
    # ``correct`` has an element for each valid image only.
    valid = np.flatnonzero(predictions.valid)
    ids = [predictions.ids[i] for i in valid.tolist()]
    balanced = balanced_indices(ids, predictions.labels[valid], predictions.space, per_class, seed)
    all_values = accuracy_values(int(predictions.correct.sum()), len(predictions.correct), level)
    balanced_right = int(predictions.correct[balanced].sum())
    balanced_values = accuracy_values(balanced_right, len(balanced), level, all_values["accuracy"])
    right_by_class, images_by_class = class_counts(predictions)
    with_images = images_by_class > 0
    class_mean = float((right_by_class[with_images] / images_by_class[with_images]).mean())
    return {
        "model": predictions.classifier,
        **all_values,
        "balanced": balanced_values["accuracy"],
        "change": balanced_values["change"],
        "balanced_n": balanced_values["n"],
        "balanced_low": balanced_values["low"],
        "balanced_high": balanced_values["high"],
        "class_mean": class_mean,
        "class_mean_change": class_mean - all_values["accuracy"],
    }


class RevisionsImpact(Table):
    """The accuracies of models on every revision of a set."""

    def __init__(self, revisions: Mapping[str, Sequence[str]], rows: Sequence[Mapping[str, object]]) -> None:
        self.revisions = {name: list(ids) for name, ids in revisions.items()}
        names = list(self.revisions)
        means = []
        for name in names:
            mean = float(np.mean([row["accuracy"] for row in rows if row["revision"] == name]))
            means.append(f"{name} {100 * mean:.2f}")
        first = set(self.revisions[names[0]])
        last = set(self.revisions[names[-1]])
        turnover = f"{len(first & last):,} of the {len(first):,} images of the first revision are in the last"
        columns = [Column("model", "model", "model"), Column("revision", "revision"), *ACCURACY_COLUMNS]
        lead = [f"mean accuracy: {' -> '.join(means)}", turnover]
        super().__init__(columns, rows, most=_ROWS_IN_TERMINAL, title="Impact of revisions", lead=lead)

    @property
    def intervals(self) -> dict[str, list[tuple[float, float, float]]]:
        """By model, for each revision: accuracy and the ends of its interval."""
        intervals: dict[str, list[tuple[float, float, float]]] = {}
        for row in self.rows:
            intervals.setdefault(row["model"], []).append((row["accuracy"], row["low"], row["high"]))
        return intervals

    @property
    def changed(self) -> dict[str, int]:
        """By revision, how many of its images the previous one does not have."""
        changed = {}
        previous: set[str] = set()
        for name, ids in self.revisions.items():
            changed[name] = len(set(ids) - previous)
            previous = set(ids)
        return changed

    @staticmethod
    def setting(revision: str) -> str:
        return f"revision {revision}"

    def beside(self, original: Results) -> Results:
        """The accuracies of the same models on other sets, with a column for each revision."""
        columns: dict[str, FloatArray] = {}
        sizes: dict[str, FloatArray] = {}
        for name in self.revisions:
            accuracies = {row["model"]: row["accuracy"] for row in self.rows if row["revision"] == name}
            counts = {row["model"]: row["n"] for row in self.rows if row["revision"] == name}
            columns[self.setting(name)] = np.array([accuracies.get(model, np.nan) for model in original.models], float)
            sizes[self.setting(name)] = np.array([counts.get(model, np.nan) for model in original.models], float)
        return replace(original.with_columns(columns), sizes={**original.sizes, **sizes})


def impact_of_revisions(
    revisions: Mapping[str, Sequence[str]], predictions: Sequence[Predictions], *, k: int = 1, level: float = 0.95
) -> RevisionsImpact:
    """The top-k accuracies of every model on every revision.

    ``revisions`` are the image ids of each, the oldest first. ``predictions``, one per model, must cover all of these
    images, or ShiftbenchError is raised. Unreadable images are ignored.
    """
    if not revisions or not predictions:
        raise ShiftbenchError("nothing to compare", expected="at least one revision and the predictions of one model")
    rows = []
    for model_predictions in predictions:
        first_accuracy = None
        for name, ids in revisions.items():
            revision_hits = _hits_on(model_predictions, name, ids, k)
            if first_accuracy is None:
                first_accuracy = sum(revision_hits) / len(revision_hits)
            values = accuracy_values(sum(revision_hits), len(revision_hits), level, first_accuracy)
            rows.append({"model": model_predictions.classifier, "revision": name, **values})
    return RevisionsImpact(revisions, rows)


def _hits_on(predictions: Predictions, revision: str, ids: Sequence[str], k: int) -> list[bool]:
    """Whether each readable image of a revision is among the top k; raises ShiftbenchError if there is none."""
    predicted_ids = set(predictions.ids)
    missing = [image for image in ids if image not in predicted_ids]
    if missing:
        raise ShiftbenchError(
            f"no predictions of {predictions.classifier!r} for {len(missing)} images of revision {revision}",
            found=f"none for {missing[0]}",
            expected="predictions on all images that were ever in the set",
            hint="evaluate on the union of the revisions",
        )
    valid_ids = [predictions.ids[i] for i in np.flatnonzero(predictions.valid).tolist()]
    hit_of_image = dict(zip(valid_ids, hits(predictions, k).tolist(), strict=True))
    revision_hits = [hit_of_image[image] for image in ids if image in hit_of_image]
    if not revision_hits:
        raise ShiftbenchError(f"revision {revision} has no valid images", found=f"{len(ids)} images")
    return revision_hits
