"""Models and the set, once it is frozen; before, this refuses.

A set whose makers see what models say about its images comes to depend on these models: they would keep what the
models get right, or wrong, without meaning to. So the pool takes no predictions in, the review shows none, and
these functions are the only ones of the workshop that bring models and images together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shiftbench.datasets.files import FileDataset
from shiftbench.runs.results import StoredResults
from shiftbench.store.predictions import Predictions
from shiftbench.studies.reproducibility import FrequencyBin, accuracy_by_frequency
from shiftbench.testsets.errors import BlindnessError, WorkshopError
from shiftbench.testsets.freeze import verify
from shiftbench.testsets.frozen import FrozenSet, Part
from shiftbench.testsets.pool.datasets import entries_dataset
from shiftbench.testsets.pool.entries import read_entries
from shiftbench.testsets.project import Project
from shiftbench.testsets.revisions import find_revision, revision_images, revisions


@dataclass(frozen=True)
class PredictedImage:
    """An image of a frozen set, how many annotators selected it, and which classifiers were right."""

    id: str
    class_key: str
    frequency: float | None
    right: Mapping[str, bool]


def require_frozen(project: Project, set_name: str, purpose: str) -> FrozenSet:
    """The frozen set, or BlindnessError with what was refused."""
    latest = find_revision(project, set_name)
    if latest.frozen_at is None:
        raise BlindnessError(
            f"{purpose} is refused: the set {set_name!r} is not frozen",
            found=f"revision {latest.number}, still open to review",
            hint=f"shiftbench testset freeze DIR --set {set_name}; a frozen set can't be changed after looking",
        )
    return verify(project, set_name)


def revision_dataset(project: Project, set_name: str, number: int) -> FileDataset:
    """The images of any revision, to measure what the review changed; only once the last one is frozen."""
    return _dataset_of(project, set_name, [number], f"revision-{number}")


def all_revisions_dataset(project: Project, set_name: str) -> tuple[FileDataset, dict[str, list[str]]]:
    """Every image that was ever in the set, and the ids of each revision by its number; once the last one is frozen."""
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
    workspace: str | Path,
    part: Part = "images",
    classifiers: Sequence[str] = (),
) -> list[Predictions]:
    """What the classifiers of a workspace said about a frozen set, or about its reference; without names, all."""
    return _predictions(project, require_frozen(project, set_name, "showing predictions"), workspace, part, classifiers)


def _predictions(
    project: Project, frozen: FrozenSet, workspace: str | Path, part: Part = "images", classifiers: Sequence[str] = ()
) -> list[Predictions]:
    # Sets of one project that share their references share the setting, too.
    names = [frozen.name] if part == "images" else [frozen.part_name(part), f"{frozen.project}-reference"]
    run = StoredResults.open(workspace, classifiers, names)
    if not run.results:
        raise WorkshopError(
            f"the workspace {workspace} has no predictions on {frozen.part_name(part)!r}",
            hint=f"shiftbench eval MODEL --suite testset:{project.folder} -w {workspace}",
        )
    expected = frozen.fingerprint if part == "images" else frozen.reference_fingerprint
    for result in run.results:
        if result.spec.dataset.fingerprint != expected:
            raise WorkshopError(f"the predictions of {result.classifier!r} are of other images than {frozen.name!r}")
    return [run.workspace.read(result) for result in run.results]


def predictions_of(project: Project, set_name: str, workspace: str | Path) -> list[PredictedImage]:
    """The images of a frozen set, and which classifiers of a workspace were right about each."""
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


def frequency_accuracy(project: Project, set_name: str, workspace: str | Path) -> list[FrequencyBin]:
    """Accuracy by how many annotators selected an image (004, appendix C.4.7), over all classifiers."""
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
