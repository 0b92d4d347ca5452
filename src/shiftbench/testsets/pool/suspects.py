"""Search the pool for near-duplicates among candidates, references and original datasets; queue them for review."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import func, select

from shiftbench.classifiers.base import Classifier
from shiftbench.datasets.base import Dataset
from shiftbench.jobs.base import Executor
from shiftbench.testsets.audit import record
from shiftbench.testsets.database.tables import CANDIDATE, REFERENCE, PoolEntry, Search
from shiftbench.testsets.errors import WorkshopError
from shiftbench.testsets.near_duplicates import ReviewQueue, find_near_duplicates
from shiftbench.testsets.near_duplicates.find import NEIGHBOURS, PLAIN, open_any
from shiftbench.testsets.pool.entries import pool_dataset
from shiftbench.testsets.pool.sources import image_bytes
from shiftbench.testsets.project import Project
from shiftbench.testsets.review import Outsider, add_suspicions

#: The name of the search among candidates and references.
POOL = "the pool"


def suspect_near_duplicates(
    project: Project,
    *,
    against: Sequence[str | Dataset] = (),
    by: Sequence[str | Classifier] = PLAIN,
    k: int = NEIGHBOURS,
    thresholds: Mapping[str, float] | None = None,
    flips: bool = False,
    workers: int | None = None,
    executor: Executor | None = None,
    show: bool = False,
) -> tuple[ReviewQueue, int]:
    """Search the whole pool; returns the pairs, and how many of them are new.

    ``against``: further datasets to compare the candidates with, such as the original training and test sets. They are
    not imported; only the images of suspected pairs are kept, for the reviewers. Datasets of earlier searches are
    searched again, so that later candidates are compared with them too. Descriptors are cached in the project's
    folder: after another import only new images are processed. Pairs that were judged before keep their verdict.
    """
    candidates, references = pool_dataset(project, CANDIDATE), pool_dataset(project, REFERENCE)
    if not len(candidates):
        raise WorkshopError("the pool has no candidates", hint="shiftbench testset import DIR SOURCE")
    with project.reading() as session:
        last = session.scalars(select(func.max(PoolEntry.id))).one()
    outside = _original_sets(project, against)
    queue = find_near_duplicates(
        candidates, [*([references] if len(references) else []), *outside.values()], by=by, k=k,
        thresholds=thresholds, flips=flips, folder=project.folder / "descriptors", workers=workers,
        executor=executor, show=show,
    )  # fmt: skip
    entries = {dataset.name: dataset.metadata["entry"] for dataset in (candidates, references)}
    others = {dataset.name: dataset for dataset in outside.values()}
    pairs: list[tuple[int, int | Outsider, Mapping[str, float]]] = []
    for pair in queue.pairs:
        inside, index = entries.get(pair.target), pair.reference_index
        other = _outsider(project, others[pair.target], index) if inside is None else inside[index]
        pairs.append((entries[candidates.name][pair.candidate_index], other, pair.values))
    new = add_suspicions(project, pairs)
    options = {"by": [str(one) for one in by], "k": k, "thresholds": dict(thresholds or {}), "flips": flips}
    _record_searches(project, outside, last, options)
    return queue, new


def _original_sets(project: Project, against: Sequence[str | Dataset]) -> dict[str, Dataset]:
    """Those named now and those of earlier searches, by what opens them."""
    with project.reading() as session:
        before = session.scalars(select(Search.source).where(Search.source.is_not(None)).order_by(Search.id)).all()
    sources = [*before, *against]
    found = {str(getattr(one, "name", one)): one for one in sources if one is not None}
    return {key: one if isinstance(one, Dataset) else open_any(one) for key, one in found.items()}


def _outsider(project: Project, dataset: Dataset, index: int) -> Outsider:
    image_id = dataset.ids[index]
    return Outsider(project.images.put(image_bytes(dataset, index), image_id), f"{dataset.name}: {image_id}")


def _record_searches(project: Project, outside: Mapping[str, Dataset], last: int, options: dict[str, object]) -> None:
    """Up to which entry the candidates were compared with each dataset."""
    with project.writing() as session:
        known = {row.name: row for row in session.scalars(select(Search))}
        found: list[tuple[str, str | None, str, int]] = [(POOL, None, "", last)]
        found += [(one.name, source, one.fingerprint, len(one)) for source, one in outside.items()]
        for name, source, fingerprint, images in found:
            row = known.get(name) or Search(name=name, source=source)
            row.fingerprint, row.images, row.last_entry = fingerprint, images, last
            row.at, row.options = project.now(), options
            session.add(row)
        record(project, session, "search", against=", ".join(name for name, *_ in found), k=options["k"])
