"""Search the pool for near-duplicates among candidates, references and original datasets; queue them for review."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy import func, select

from shiftbench.classifiers.base import Classifier
from shiftbench.datasets.base import Dataset
from shiftbench.jobs.base import Executor
from shiftbench.testsets.database import CANDIDATE, REFERENCE, NearPair, PoolEntry, Search
from shiftbench.testsets.errors import WorkshopError
from shiftbench.testsets.near_duplicates.find import (
    NEIGHBOURS,
    PLAIN,
    ReviewQueue,
    find_near_duplicates,
    open_any,
    reopenable,
)
from shiftbench.testsets.pool.entries import image_row, pool_dataset
from shiftbench.testsets.pool.images import StoredImage
from shiftbench.testsets.pool.sources import image_bytes
from shiftbench.testsets.project import Project, record

#: The name of the search among candidates and references.
POOL = "the pool"
#: An image of another dataset that resembles a candidate, and its name; its file is kept for the reviewers.
Outsider = tuple[StoredImage, str]


def suspect_near_duplicates(
    project: Project,
    *,
    against: Sequence[str | Dataset] = (),
    by: Sequence[str | Classifier] | None = None,
    k: int | None = None,
    thresholds: Mapping[str, float] | None = None,
    flips: bool = False,
    workers: int | None = None,
    executor: Executor | None = None,
    show: bool = False,
) -> tuple[ReviewQueue, int]:
    """Search the whole pool; returns the pairs, and how many of them are new.

    ``against``: further datasets to compare the candidates with, such as the original training and test sets. They are
    not imported; only the images of suspected pairs are kept, for the reviewers. Datasets of earlier searches are
    searched again, so that later candidates are compared with them too: by the same descriptors, neighbours and
    thresholds unless others are given, and for mirror images if they were before. Descriptors are cached in the
    project's folder. Pairs that were judged before keep their verdict.
    """
    candidates, references = pool_dataset(project, CANDIDATE), pool_dataset(project, REFERENCE)
    if not len(candidates):
        raise WorkshopError("the pool has no candidates", hint="shiftbench testset import DIR SOURCE")
    with project.reading() as session:
        last = session.scalars(select(func.max(PoolEntry.id))).one()
        before = session.scalars(select(Search).order_by(Search.id)).all()
    outside = {_source(one): one if isinstance(one, Dataset) else open_any(one) for one in against}
    # A dataset of an earlier search that has moved is found where it is named now.
    named = {dataset.name for dataset in outside.values()}
    outside |= {row.source: open_any(row.source) for row in before if row.source and row.name not in named}
    past = before[0].options if before else {}  # every search covers the pool, the first of them
    flips, k = flips or any(row.options.get("flips") for row in before), k or past.get("k", NEIGHBOURS)
    thresholds = {**(past.get("thresholds", {}) if by is None else {}), **(thresholds or {})}
    by = past.get("by", PLAIN) if by is None else [_spec(one) for one in by]
    queue = find_near_duplicates(
        candidates,
        [*([references] if len(references) else []), *outside.values()],
        by=by,
        k=k,
        thresholds=thresholds,
        flips=flips,
        near={key: project.configuration.near(key) for key in project.space.keys},
        files=candidates.paths,
        folder=project.folder / "descriptors",
        workers=workers,
        executor=executor,
        show=show,
    )
    entries = {dataset.name: dataset.metadata["entry"] for dataset in (candidates, references)}
    others = {dataset.name: dataset for dataset in outside.values()}
    pairs: list[tuple[int, int | Outsider, Mapping[str, float]]] = []
    for pair in queue.pairs:
        other: int | Outsider
        if pair.target in entries:
            other = entries[pair.target][pair.reference_index]
        else:
            data = image_bytes(others[pair.target], pair.reference_index)
            other = project.images.put(data, pair.reference), f"{pair.target}: {pair.reference}"
        pairs.append((entries[candidates.name][pair.candidate_index], other, pair.values))
    new = add_suspicions(project, pairs)
    options = {
        "by": [one if isinstance(one, str) else one.name for one in by],
        "k": k,
        "thresholds": queue.thresholds,
        "flips": flips,
    }
    searched: list[tuple[str, str | None, str, int]] = [(POOL, None, "", last)]
    searched += [(one.name, source, one.fingerprint, len(one)) for source, one in outside.items()]
    with project.writing() as session:  # up to which entry the candidates were compared with each dataset
        known = {row.name: row for row in session.scalars(select(Search))}
        for name, source, fingerprint, images in searched:
            row = known.get(name) or Search(name=name)
            row.source, row.fingerprint, row.images, row.last_entry = source, fingerprint, images, last
            row.at, row.options = project.now(), options
            session.add(row)
        record(project, session, "search", against=", ".join(name for name, *_ in searched), k=k)
    return queue, new


def _spec(by: str | Classifier) -> str | Classifier:
    """What opens a model again, from any working directory."""
    return reopenable(by) if isinstance(by, str) and by not in (*PLAIN, "ssim") else by


def _source(dataset: str | Dataset) -> str:
    return dataset.name if isinstance(dataset, Dataset) else reopenable(dataset)


def add_suspicions(project: Project, pairs: Iterable[tuple[int, int | Outsider, Mapping[str, float]]]) -> int:
    """Add pairs (candidate entry, other image, distances) for judgement; known pairs keep their state.

    Candidates of open pairs are not sampled. One file with two candidate classes is not a pair, and a file that is both
    a reference and in another dataset is judged once. Returns the number of new pairs.
    """
    added = 0
    with project.writing() as session:
        files = dict(session.execute(select(PoolEntry.id, PoolEntry.image_id)).all())
        query = select(NearPair.entry_id, NearPair.other_id, NearPair.other_image_id)
        known = {(entry, files[other] if other else image) for entry, other, image in session.execute(query)}
        for entry, other, distances in pairs:
            if entry == other:
                raise WorkshopError("an image cannot be a near-duplicate of itself", found=entry)
            row = NearPair(entry_id=entry, distances=dict(distances), state="open")
            if isinstance(other, tuple):
                file, row.other_name = image_row(session, other[0]), other[1]
                row.other_image_id = file
            elif (file := files[other]) == files[entry]:
                continue
            else:
                row.other_id = other
            if (entry, file) not in known:
                known.add((entry, file))
                session.add(row)
                added += 1
        record(project, session, "suspicions", pairs=added)
    return added
