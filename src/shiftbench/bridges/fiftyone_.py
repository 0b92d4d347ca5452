"""FiftyOne: its samples as data of an evaluation, and predictions as fields of its samples.

Both directions take a dataset of FiftyOne, a view, or a list of samples; those of a dataset are saved.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol, cast

from shiftbench import Predictions
from shiftbench.datasets import Dataset
from shiftbench.errors import DatasetError
from shiftbench.extend.datasets import FileDataset, find_label_space, recognise_names
from shiftbench.extend.errors import required
from shiftbench.labels import LabelSpace


class FiftyOneSample(Protocol):
    """An image of FiftyOne, with fields by name."""

    @property
    def filepath(self) -> str: ...
    def has_field(self, name: str, /) -> bool: ...
    def get_field(self, name: str, /) -> object: ...
    def __setitem__(self, name: str, value: object, /) -> None: ...


class FiftyOneSamples(Protocol):
    """A dataset, a view, or a list of samples."""

    def __iter__(self) -> Iterator[FiftyOneSample]: ...


def from_fiftyone(
    samples: FiftyOneSamples,
    *,
    field: str = "ground_truth",
    labels: Sequence[str] | LabelSpace | str | None = None,
    name: str | None = None,
) -> Dataset:
    """Samples of FiftyOne as data of an evaluation.

    Args:
        samples: A dataset, a view, or a list of samples; their images are files.
        field: The field with the true class, a ``Classification``.
        labels: The names of the classes in the order of the model, or a label space; default: those of the field,
            sorted.
        name: The name that tables and provenance show; default: that of the dataset.

    Returns:
        The dataset, for ``evaluate(..., data=...)``.

    Raises:
        DatasetError: A sample has no class in this field, or there are none.
    """
    present = list(samples)
    if not present:
        raise DatasetError("there are no samples")
    names: list[str] = []
    for sample in present:
        value = sample.get_field(field) if sample.has_field(field) else None
        label = getattr(value, "label", None)
        if not isinstance(label, str):
            raise DatasetError(
                f"a sample has no class in the field {field!r}", found=sample.filepath, expected="a Classification"
            )
        names.append(label)
    title = name or str(getattr(samples, "name", None) or "fiftyone")
    classes = sorted(set(names))
    space, positions = recognise_names(classes, find_label_space(labels), own=title)
    number = dict(zip(classes, positions, strict=True))
    root, paths = _relative_paths(present)
    return FileDataset(title, space, root, paths, [number[label] for label in names])


def to_fiftyone(predictions: Predictions, samples: FiftyOneSamples, *, field: str | None = None) -> int:
    """Put predictions into a field of the samples that ``from_fiftyone`` made the data of.

    Args:
        predictions: The predictions of one result: ``run.predictions(...)``.
        samples: The samples, as they were given to ``from_fiftyone``.
        field: The name of the field; default: model and setting.

    Returns:
        The number of samples that got a class; images that could not be read get none.

    Raises:
        DatasetError: The predictions are of other images.
    """
    fiftyone = required("fiftyone", "fiftyone", "predictions in FiftyOne", "fiftyone")
    field_name = field or re.sub(r"\W", "_", f"{predictions.classifier}_{predictions.setting}")
    _, paths = _relative_paths(list(samples))
    rows = {image_id: row for row, image_id in enumerate(predictions.ids)}
    missing = [path for path in paths if path not in rows]
    if missing:
        raise DatasetError(
            "the predictions are not of these samples",
            found=f"{len(missing)} of {len(paths)} samples without a prediction, such as {missing[0]}",
        )
    changed = 0
    for sample, path in zip(_saved_later(samples), paths, strict=True):
        row = rows[path]
        if predictions.readable[row]:
            confidence = float(predictions.confidence[row])
            sample[field_name] = fiftyone.Classification(
                label=predictions.predicted_name(row), confidence=None if math.isnan(confidence) else confidence
            )
            changed += 1
    return changed


def _relative_paths(samples: Sequence[FiftyOneSample]) -> tuple[Path, list[str]]:
    """The folder that all images share, and their paths below it."""
    files = [Path(sample.filepath) for sample in samples]
    root = Path(os.path.commonpath([file.parent for file in files]))
    return root, [file.relative_to(root).as_posix() for file in files]


def _saved_later(samples: FiftyOneSamples) -> Iterator[FiftyOneSample]:
    """The samples; those of a dataset or view are saved when they have been changed."""
    iterate = getattr(samples, "iter_samples", None)
    if iterate is None:
        return iter(samples)
    return cast("Iterator[FiftyOneSample]", iterate(autosave=True))
