"""Finding the images that a file of predictions names in the dataset that they were made on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import PurePosixPath

import numpy as np

from shiftbench.classifiers.recorded_files import MISSING, Answers, PredictionFile, Truth, class_indices, unnamed
from shiftbench.datasets.base import Dataset
from shiftbench.errors import ClassifierError, argument
from shiftbench.labels.space import LabelSpace

#: Under the whole name, else the file's name, else that without its ending.
_NAMINGS: dict[str, Callable[[str], str]] = {
    "id": str,
    "file name": lambda name: PurePosixPath(name).name,
    "file name without ending": lambda name: PurePosixPath(name).stem,
}


class Matching:
    """The names in files as names in a dataset; the first naming under which any is found counts for all."""

    def __init__(self, dataset: Dataset, *, in_order: bool = False, allow_unknown: bool = False) -> None:
        self.dataset, self.in_order, self.allow_unknown = dataset, in_order, allow_unknown
        #: How images were found: "id", "file name", ..., or "order".
        self.rule = "id"
        #: Models with predictions for images that the dataset lacks, and how many.
        self.unknown: dict[str, int] = {}
        self._known: dict[str, str] = {}
        self._last: tuple[Sequence[str], list[str]] | None = None

    def ids_of(self, answers: Answers, file: PredictionFile) -> Sequence[str]:
        """The dataset's own names of a model's images."""
        if answers.ids is None:
            return self._by_order(answers, file)
        names = self.translate(answers.ids)
        own = set(self._known.values())
        strange = [name for name in names if name not in own]
        if strange and not self.allow_unknown:
            raise ClassifierError(
                f"{file.source} has predictions of {answers.model} for {len(strange)} images that "
                f"{self.dataset.name!r} lacks",
                found=f"ids such as {', '.join(strange[:3])}",
                expected=f"ids such as {', '.join(list(self.dataset.ids)[:3])}",
                hint=f"name the images as the dataset does; {argument('allow_unknown', True)} leaves the others out",
            )
        if strange:
            self.unknown[answers.model] = len(strange)
        return names

    def translate(self, ids: Sequence[str]) -> list[str]:
        """Each name as the dataset has it; a name that it lacks stays as it is."""
        # The models of one file share one list of ids.
        if self._last is None or self._last[0] is not ids:
            if not self._known:
                self._choose(ids)
            naming = _NAMINGS[self.rule]
            self._last = ids, [self._known.get(naming(name), name) for name in ids]
        return self._last[1]

    def _choose(self, ids: Sequence[str]) -> None:
        for rule, naming in _NAMINGS.items():
            known = {naming(image): image for image in self.dataset.ids}
            # A name that two images share says of neither which one it is.
            if len(known) == len(self.dataset) and any(naming(name) in known for name in ids):
                self.rule, self._known = rule, known
                return
        self._known = {image: image for image in self.dataset.ids}

    def _by_order(self, answers: Answers, file: PredictionFile) -> Sequence[str]:
        if not self.in_order:
            raise unnamed(
                file.source, file.titles, f"{argument('in_order', True)}, if row i is the i-th image of the dataset"
            )
        if len(answers) != len(self.dataset):
            raise ClassifierError(
                f"{file.source} can't be taken in order",
                found=f"{len(answers)} predictions of {answers.model}",
                expected=f"{len(self.dataset)}, one for each image of {self.dataset.name!r}",
            )
        self.rule = "order"
        return self.dataset.ids


def check_agreement(truth: Truth, dataset: Dataset, space: LabelSpace) -> None:
    """Labels beside the predictions must be those of the dataset: else the two count classes differently."""
    if truth.ids is None:
        return
    row = {image: i for i, image in enumerate(dataset.ids)}
    to_dataset = np.append(dataset.space.relabel_from(space), MISSING)
    true_labels = to_dataset[class_indices(truth.labels, space, truth.source)].tolist()
    shared = [
        (name, label)
        for name, label in zip(Matching(dataset).translate(truth.ids), true_labels, strict=True)
        if name in row
    ]
    differing = [(name, label) for name, label in shared if label != dataset.labels[row[name]]]
    if differing:
        name, label = differing[0]
        keys = (*dataset.space.keys, "no class of it")
        raise ClassifierError(
            f"the labels in {truth.source} are not those of {dataset.name!r} "
            f"for {len(differing)} of {len(shared)} images",
            found=f"{name}: {keys[label]} in the file, {keys[dataset.labels[row[name]]]} in the dataset",
            hint=f"one of the two has its classes in another order; name the file's label space: {argument('labels')}",
        )
