"""Predictions: the per-image result of one classifier in one setting. Every number is derived from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from shiftbench.io import html
from shiftbench.labels.space import (
    NO_ANSWER,
    Labels,
    LabelSets,
    LabelSpace,
    Scores,
    multi_hot,
    relabel_sets,
    single_labels,
)
from shiftbench.store.spec import ResultSpec

#: The class of an image that could not be read.
SKIPPED = -1
#: Number of images that a notebook lists.
_LISTED_IMAGES = 10


@dataclass(frozen=True)
class Predictions:
    """Row i is the i-th image of the setting; a skipped image has class -1 and confidence nan.

    An image for which a model named no class has class -2 and counts as wrong.

    Attributes:
        classifier: Name or id of the model.
        setting: Name of the setting.
        space: Label space of labels and predictions.
        ids: Names of the images.
        labels: The class of each image; -1 where it has none, or several.
        top: (N, k) classes, best first, as indices into ``space``.
        confidence: The softmax probability of ``top[:, 0]``, over ``space``.
        spec: All that decided these numbers: dataset, classifier, preprocessing, shift, seed, versions.
        scores: (N, classes) over ``space``, when the run was asked to keep them.
        label_sets: All classes of each image, where images may have several.
    """

    classifier: str
    setting: str
    space: LabelSpace
    ids: Sequence[str]
    labels: Labels
    top: NDArray[np.int32]
    confidence: NDArray[np.float32]
    spec: ResultSpec
    scores: Scores | None = None
    label_sets: LabelSets | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return f"<Predictions of {self.classifier} on {self.setting}: {self._summary}>"

    @property
    def _summary(self) -> str:
        valid = int(self.valid.sum())
        summary = f"{len(self):,} images ({valid:,} count), {len(self.space)} classes of {self.space.name}"
        if valid and self.spec.judged_by_image:
            summary += f", top-1 {self.correct.mean():.1%}"
        return summary

    def _repr_html_(self) -> str:
        # The indices -1, for no label or an image that was not read, and -2, for no answer, are the ends of this.
        names = (*self.space.names, "no answer", "–")
        rows = []
        for i in range(min(len(self), _LISTED_IMAGES)):
            label = html.text(names[self.labels[i]])
            prediction = html.text(names[self.top[i, 0]])
            confidence = "" if np.isnan(self.confidence[i]) else f"{self.confidence[i]:.3f}"
            rows.append((html.text(self.ids[i]), label, prediction, confidence))
        notes = []
        if len(self) > _LISTED_IMAGES:
            notes.append(f"first {_LISTED_IMAGES} of {len(self):,} images")
        return html.block(
            html.title(f"{self.classifier} on {self.setting}", self._summary),
            html.table(("image", "label", "prediction", "confidence"), rows, left=3),
            html.notes(notes),
            html.notes([self.provenance]),
        )

    @cached_property
    def readable(self) -> NDArray[np.bool_]:
        """Rows whose image could be read."""
        read: NDArray[np.bool_] = self.top[:, 0] != SKIPPED
        return read

    @cached_property
    def valid(self) -> NDArray[np.bool_]:
        """Rows that count: the image could be read and has one label in the setting's space."""
        counts: NDArray[np.bool_] = self.readable & (self.labels >= 0)
        return counts

    def predicted_name(self, row: int) -> str:
        """The name of the class that was predicted for an image.

        Args:
            row: Number of the image.
        """
        index = int(self.top[row, 0])
        return "no answer" if index == NO_ANSWER else self.space.names[index]

    @cached_property
    def multi_hot(self) -> NDArray[np.bool_]:
        """(N, classes), true where an image has the class."""
        sets = self.label_sets
        if sets is None:
            sets = [(label,) if label >= 0 else () for label in self.labels.tolist()]
        return multi_hot(sets, len(self.space))

    @cached_property
    def correct(self) -> NDArray[np.bool_]:
        """Top-1 hits of the rows that count."""
        hits: NDArray[np.bool_] = self.top[:, 0] == self.labels
        # Usually all rows count, and picking rows takes longer than comparing them.
        if self.valid.all():
            return hits
        return hits[self.valid]

    def part(self, chosen: NDArray[np.bool_], which: str) -> Predictions:
        """The chosen rows only; ``which`` tells in the provenance which they are.

        Args:
            chosen: True for each row to keep.
            which: What the rows are, for the provenance.
        """
        rows = np.flatnonzero(chosen).tolist()
        provenance = f"{self.provenance}; {which}".removeprefix("; ")
        label_sets = None
        if self.label_sets is not None:
            label_sets = [self.label_sets[row] for row in rows]
        return replace(
            self,
            ids=[self.ids[row] for row in rows],
            labels=self.labels[rows],
            top=self.top[rows],
            confidence=self.confidence[rows],
            spec=replace(self.spec, provenance=provenance),
            scores=None if self.scores is None else self.scores[rows],
            label_sets=label_sets,
        )

    @property
    def provenance(self) -> str:
        """One line for people; two results are comparable when these lines agree."""
        return self.spec.provenance


@dataclass(frozen=True)
class SettingRows:
    """The images of a dataset that a setting uses, with their labels over its label space."""

    rows: NDArray[np.int64]  #: Positions in the dataset, ascending.
    labels: Labels
    label_sets: LabelSets | None = None


def setting_rows(
    labels: Labels, source: LabelSpace, target: LabelSpace, label_sets: LabelSets | None = None
) -> SettingRows:
    """Which images of a dataset belong to a setting, and their labels in its label space.

    Images whose class the setting lacks are left out, such as those of val beyond the classes of ImageNet-A. An image
    with several classes is left out if the setting has none of them. A dataset without any labels is kept whole, with
    the label -1.
    """
    if label_sets is not None:
        sets = relabel_sets(label_sets, source, target)
        rows = np.flatnonzero([bool(classes) for classes in sets])
        sets = [sets[row] for row in rows.tolist()]
        return SettingRows(rows, single_labels(sets), sets)
    if not np.any(labels >= 0):
        return SettingRows(np.arange(len(labels)), np.full(len(labels), -1, np.int32))
    mapped = target.relabel_from(source)
    relabelled = np.where(labels >= 0, mapped[np.maximum(labels, 0)], -1).astype(np.int32)
    rows = np.flatnonzero(relabelled >= 0)
    return SettingRows(rows, relabelled[rows])
