"""The effect of class balance (004 B.2.9) and of the review (004 C.3.2) on a test set's accuracies.

CIFAR-10.1 v4 has 8 % ships, CIFAR-10 has 10 %. If class balance mattered, accuracies on a balanced subset, or the mean
of per-class accuracies, would differ from the plain ones. If replacing the images that reviewers remove makes the set
easier or harder, the accuracies of the revisions show it. As in 004, predictions are only compared after the set is
final: nothing here runs a model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from shiftbench.arrays import FloatArray, IntArray
from shiftbench.datasets.base import Dataset
from shiftbench.datasets.subset import Subset
from shiftbench.errors import DatasetError, ShiftbenchError
from shiftbench.grouping import by_key
from shiftbench.labels.space import Labels, LabelSpace
from shiftbench.metrics.accuracy import class_counts, hits
from shiftbench.reports.table import Column, Table
from shiftbench.store.predictions import Predictions
from shiftbench.studies.results import Results
from shiftbench.testsets.followups.splits import ACCURACY_COLUMNS, accuracy_values, shuffled_groups

_SHOWN = 40


def class_balanced(dataset: Dataset, *, per_class: int | None = None, seed: int = 0) -> Subset:
    """A random subset with the same number of images per class: the size of the smallest class, or ``per_class``.
    In the order of the dataset; images without a label are dropped."""
    chosen = balanced_indices(dataset.ids, dataset.labels, dataset.space, per_class, seed)
    return Subset(dataset, chosen.tolist(), name=f"{dataset.name} balanced")


def balanced_indices(
    ids: Sequence[str], labels: Labels, space: LabelSpace, per_class: int | None, seed: int
) -> IntArray:
    known = np.flatnonzero(labels >= 0)
    classes = shuffled_groups([ids[i] for i in known.tolist()], labels[known].tolist(), seed)
    if not classes:
        raise DatasetError("no image has a label: there are no classes to balance")
    smallest = min(classes, key=lambda label: (len(classes[label]), label))
    least = len(classes[smallest])
    count = least if per_class is None else per_class
    if not 1 <= count <= least:
        raise DatasetError(
            f"cannot draw {count} images per class",
            found=f"{least} of {space.names[smallest]!r}, the smallest class",
            expected=f"1 to {least} per class",
            hint="collect more images of small classes, or omit the number",
        )
    return np.sort(known[np.concatenate([members[:count] for members in classes.values()])])


def balance_effect(
    predictions: Sequence[Predictions], *, per_class: int | None = None, seed: int = 0, level: float = 0.95
) -> Table:
    """Accuracy of every model on the set, on a balanced subset, and as the mean of per-class accuracies.

    Images are drawn by id: models with the same valid images share the balanced subset.
    """
    if not predictions:
        raise ShiftbenchError("no predictions to balance")
    rows = []
    for one in predictions:
        valid = np.flatnonzero(one.valid)
        ids = [one.ids[i] for i in valid.tolist()]
        part = balanced_indices(ids, one.labels[valid], one.space, per_class, seed)
        right, of_class = class_counts(one)
        here = of_class > 0
        plain = accuracy_values(int(one.correct.sum()), len(one.correct), level)
        even = accuracy_values(int(one.correct[part].sum()), len(part), level, plain["accuracy"])
        class_mean = float((right[here] / of_class[here]).mean())
        rows.append(
            {
                "model": one.classifier,
                **plain,
                "balanced": even["accuracy"],
                "change": even["change"],
                **{f"balanced_{name}": even[name] for name in ("n", "low", "high")},
                "class_mean": class_mean,
                "class_mean_change": class_mean - plain["accuracy"],
            }
        )
    mean = float(np.mean([row["class_mean_change"] for row in rows]))
    columns = [
        Column("model", "model"),
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


class RevisionsImpact(Table):
    def __init__(self, revisions: Mapping[str, Sequence[str]], rows: Sequence[Mapping[str, object]]) -> None:
        self.revisions = {name: list(ids) for name, ids in revisions.items()}
        names = list(self.revisions)
        means = [float(np.mean([row["accuracy"] for row in rows if row["revision"] == name])) for name in names]
        way = " -> ".join(f"{name} {100 * mean:.2f}" for name, mean in zip(names, means, strict=True))
        first, last = (set(ids) for ids in (self.revisions[names[0]], self.revisions[names[-1]]))
        turnover = f"{len(first & last):,} of the {len(first):,} images of the first revision are in the last"
        columns = [Column("model", "model"), Column("revision", "revision"), *ACCURACY_COLUMNS]
        lead = [f"mean accuracy: {way}", turnover]
        super().__init__(columns, rows, most=_SHOWN, title="Impact of revisions", lead=lead)

    @property
    def intervals(self) -> dict[str, list[tuple[float, float, float]]]:
        """By model, for each revision: accuracy and the ends of its interval."""
        return by_key((row["model"], (row["accuracy"], row["low"], row["high"])) for row in self.rows)

    @property
    def changed(self) -> dict[str, int]:
        """By revision, how many of its images the previous one does not have."""
        before = [[], *self.revisions.values()]
        return {name: len({*ids} - {*old}) for (name, ids), old in zip(self.revisions.items(), before, strict=False)}

    @staticmethod
    def setting(revision: str) -> str:
        return f"revision {revision}"

    def beside(self, original: Results) -> Results:
        """The accuracies of the same models on other sets, with a column for each revision."""
        columns, sizes = dict[str, FloatArray](), dict[str, FloatArray]()
        for name in self.revisions:
            found = {row["model"]: row for row in self.rows if row["revision"] == name}
            for key, into in (("accuracy", columns), ("n", sizes)):
                values = [found[model][key] if model in found else np.nan for model in original.models]
                into[self.setting(name)] = np.array(values, dtype=np.float64)
        return replace(original.with_columns(columns), sizes={**original.sizes, **sizes})


def impact_of_revisions(
    revisions: Mapping[str, Sequence[str]], predictions: Sequence[Predictions], *, k: int = 1, level: float = 0.95
) -> RevisionsImpact:
    """Top-k accuracies. ``revisions``: image ids, oldest first; ``predictions`` must cover all of them. Unreadable
    images are ignored."""
    if not revisions or not predictions:
        raise ShiftbenchError("nothing to compare", expected="at least one revision and the predictions of one model")
    rows = []
    for one in predictions:
        valid = np.flatnonzero(one.valid).tolist()
        right = {one.ids[i]: hit for i, hit in zip(valid, hits(one, k).tolist(), strict=True)}
        known, first = set(one.ids), None
        for name, ids in revisions.items():
            missing = [image for image in ids if image not in known]
            if missing:
                raise ShiftbenchError(
                    f"no predictions of {one.classifier!r} for {len(missing)} images of revision {name}",
                    found=f"none for {missing[0]}",
                    expected="predictions on all images that were ever in the set",
                    hint="evaluate on the union of the revisions",
                )
            here = [right[image] for image in ids if image in right]
            if not here:
                raise ShiftbenchError(f"revision {name} has no valid images", found=f"{len(ids)} images")
            first = sum(here) / len(here) if first is None else first
            values = accuracy_values(sum(here), len(here), level, first)
            rows.append({"model": one.classifier, "revision": name, **values})
    return RevisionsImpact(revisions, rows)
