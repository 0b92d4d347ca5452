"""Model predictions on frozen sets; refused before a set is frozen.

A set whose makers see model predictions becomes biased towards or against those models. The pool therefore accepts no
predictions, the review pages show none, and only the functions of this module combine models and images.
"""

from __future__ import annotations

from collections.abc import Sequence

from shiftbench.datasets.stored import FileDataset
from shiftbench.io.paths import Location
from shiftbench.runs.results import StoredResults
from shiftbench.store.predictions import Predictions
from shiftbench.testsets.errors import BlindnessError, WorkshopError
from shiftbench.testsets.freeze import verify
from shiftbench.testsets.frozen import FrozenSet, Part
from shiftbench.testsets.pool.entries import entries_dataset, read_entries
from shiftbench.testsets.project import Project
from shiftbench.testsets.revisions import find_revision, revision_images, revisions


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


def all_revisions_dataset(project: Project, set_name: str) -> tuple[FileDataset, dict[str, list[str]]]:
    """All images that were ever in the set, and the image ids of each revision; requires a frozen set."""
    require_frozen(project, set_name, "evaluating a revision")
    images = {str(one.number): revision_images(project, set_name, one.number) for one in revisions(project, set_name)}
    entries = {image.entry: None for found in images.values() for image in found}
    with project.reading() as session:
        rows = read_entries(session, list(entries))
    union = entries_dataset(project, f"{project.configuration.name}-{set_name}-revisions", rows)
    return union, {number: [f"{i.class_key}/{i.digest}{i.suffix}" for i in found] for number, found in images.items()}


def predictions_on(
    project: Project, set_name: str, workspace: str | Location, part: Part = "images", classifiers: Sequence[str] = ()
) -> list[Predictions]:
    """Stored predictions on a frozen set or its references, of the named models or of all."""
    frozen = require_frozen(project, set_name, "showing predictions")
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
