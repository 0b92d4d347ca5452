"""Model predictions on frozen sets; refused before a set is frozen.

A set whose makers see model predictions becomes biased towards or against those models. The pool therefore accepts no
predictions, the review pages show none, and only the functions of this module combine models and images.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from shiftbench.datasets.files import FileDataset
from shiftbench.io.paths import Location
from shiftbench.runs.results import StoredResults
from shiftbench.store.predictions import Predictions
from shiftbench.studies.reproducibility import FrequencyBin, accuracy_by_frequency
from shiftbench.testsets.errors import BlindnessError, WorkshopError
from shiftbench.testsets.freeze import verify
from shiftbench.testsets.frozen import FrozenSet, Part
from shiftbench.testsets.pool.entries import entries_dataset, read_entries
from shiftbench.testsets.project import Project
from shiftbench.testsets.revisions import find_revision, revision_images, revisions


@dataclass(frozen=True)
class PredictedImage:
    """An image of a frozen set, its selection frequency, and which models were right."""

    id: str
    class_key: str
    frequency: float | None
    right: Mapping[str, bool]


def require_frozen(project: Project, set_name: str, purpose: str) -> FrozenSet:
    """The frozen set; BlindnessError if it is not frozen yet."""
    latest = find_revision(project, set_name)
    if latest.frozen_at is None:
        raise BlindnessError(
            f"{purpose} requires a frozen set, and {set_name!r} is not frozen",
            found=f"revision {latest.number}, still under review",
            hint=f"shiftbench testset freeze DIR --set {set_name}",
        )
    return verify(project, set_name)


def revision_dataset(project: Project, set_name: str, number: int) -> FileDataset:
    """The images of a revision, to measure the effect of the review; requires a frozen set."""
    return _dataset_of(project, set_name, [number], f"revision-{number}")


def all_revisions_dataset(project: Project, set_name: str) -> tuple[FileDataset, dict[str, list[str]]]:
    """All images that were ever in the set, and the image ids of each revision; requires a frozen set."""
    numbers = [revision.number for revision in revisions(project, set_name)]
    union = _dataset_of(project, set_name, numbers, "revisions")
    images = {str(number): revision_images(project, set_name, number) for number in numbers}
    return union, {number: [f"{i.class_key}/{i.digest}{i.suffix}" for i in found] for number, found in images.items()}


def _dataset_of(project: Project, set_name: str, numbers: Sequence[int], what: str) -> FileDataset:
    require_frozen(project, set_name, "evaluating a revision")
    chosen = {image.entry: None for number in numbers for image in revision_images(project, set_name, number)}
    with project.reading() as session:
        entries = read_entries(session, list(chosen))
    return entries_dataset(project, f"{project.configuration.name}-{set_name}-{what}", entries)


def predictions_on(
    project: Project,
    set_name: str,
    workspace: str | Location,
    part: Part = "images",
    classifiers: Sequence[str] = (),
) -> list[Predictions]:
    """Stored predictions on a frozen set or its references, of the named models or of all."""
    return _predictions(project, require_frozen(project, set_name, "showing predictions"), workspace, part, classifiers)


def _predictions(
    project: Project,
    frozen: FrozenSet,
    workspace: str | Location,
    part: Part = "images",
    classifiers: Sequence[str] = (),
) -> list[Predictions]:
    # Sets of one project that share their references also share the setting.
    names = [frozen.name] if part == "images" else [frozen.part_name(part), f"{frozen.project}-reference"]
    run = StoredResults.open(workspace, classifiers)
    results = [result for result in run.results if result.setting in names]
    if not results:
        raise WorkshopError(
            f"no predictions on {frozen.part_name(part)!r} in the workspace {workspace}",
            hint=f"shiftbench eval MODEL --suite testset:{project.folder} -w {workspace}",
        )
    expected = frozen.fingerprint if part == "images" else frozen.reference_fingerprint
    for result in results:
        if result.spec.dataset.fingerprint != expected:
            raise WorkshopError(
                f"the predictions of {result.title!r} were made on other images than those of {frozen.name!r}"
            )
    return [run.workspace.read(result) for result in results]


def predictions_of(project: Project, set_name: str, workspace: str | Location) -> list[PredictedImage]:
    """The images of a frozen set, and which models of a workspace classify each correctly."""
    frozen = require_frozen(project, set_name, "showing predictions")
    right: dict[str, dict[str, bool]] = {}
    for found in _predictions(project, frozen, workspace):
        ids = np.asarray(found.ids, dtype=object)[found.valid]
        for image_id, hit in zip(ids, found.correct.tolist(), strict=True):
            right.setdefault(image_id, {})[found.classifier] = hit
    dataset = frozen.open()
    shares = dataset.metadata["selection_frequency"]
    keys = [dataset.space.keys[label] for label in dataset.labels.tolist()]
    return [
        PredictedImage(image_id, key, share, right.get(image_id, {}))
        for image_id, key, share in zip(dataset.ids, keys, shares, strict=True)
    ]


def frequency_accuracy(project: Project, set_name: str, workspace: str | Location) -> list[FrequencyBin]:
    """Accuracy by selection frequency (004, appendix C.4.7), over all models."""
    images = predictions_of(project, set_name, workspace)
    names = sorted({name for image in images for name in image.right})
    whole = [
        (image.frequency, [image.right[name] for name in names])
        for image in images
        if image.frequency is not None and len(image.right) == len(names)
    ]
    if not whole:
        raise WorkshopError("no image has both a selection frequency and predictions")
    return accuracy_by_frequency(np.array([hits for _, hits in whole]).T, [frequency for frequency, _ in whole])
