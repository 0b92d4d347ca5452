"""Search the pool for near-duplicates among candidates and references, and queue them for review."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shiftbench.classifiers.base import Classifier
from shiftbench.jobs.base import Executor
from shiftbench.testsets.database.tables import CANDIDATE, REFERENCE
from shiftbench.testsets.errors import WorkshopError
from shiftbench.testsets.near_duplicates import ReviewQueue, find_near_duplicates
from shiftbench.testsets.near_duplicates.find import NEIGHBOURS, PLAIN
from shiftbench.testsets.pool.entries import pool_dataset
from shiftbench.testsets.project import Project
from shiftbench.testsets.review import add_suspicions


def suspect_near_duplicates(
    project: Project,
    *,
    by: Sequence[str | Classifier] = PLAIN,
    k: int = NEIGHBOURS,
    thresholds: Mapping[str, float] | None = None,
    flips: bool = False,
    workers: int | None = None,
    executor: Executor | None = None,
    show: bool = False,
) -> tuple[ReviewQueue, int]:
    """Search the whole pool; returns the pairs, and how many of them are new.

    Descriptors are cached in the project's folder, so that after another import only new images are processed. Pairs
    that were judged before keep their verdict.
    """
    candidates, references = pool_dataset(project, CANDIDATE), pool_dataset(project, REFERENCE)
    if not len(candidates):
        raise WorkshopError("the pool has no candidates", hint="shiftbench testset import DIR SOURCE")
    queue = find_near_duplicates(
        candidates, [references] if len(references) else [], by=by, k=k, thresholds=thresholds, flips=flips,
        folder=project.folder / "descriptors", workers=workers, executor=executor, show=show,
    )  # fmt: skip
    entries = {dataset.name: dataset.metadata["entry"] for dataset in (candidates, references)}
    own = entries[candidates.name]
    new = add_suspicions(
        project,
        [(own[pair.candidate_index], entries[pair.target][pair.reference_index], pair.values) for pair in queue.pairs],
    )
    return queue, new
