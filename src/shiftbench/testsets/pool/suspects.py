"""Search the pool for near-duplicates among candidates, references and original datasets; queue them for review."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from sqlalchemy import func, select

from shiftbench import Classifier, Dataset
from shiftbench.extend.datasets import FileDataset
from shiftbench.jobs import Executor
from shiftbench.testsets.database import CANDIDATE, REFERENCE, NearPair, PoolEntry, Search
from shiftbench.testsets.errors import WorkshopError
from shiftbench.testsets.locks import alone
from shiftbench.testsets.near_duplicates.find import (
    NEIGHBOURS,
    PLAIN,
    ReviewQueue,
    find_near_duplicates,
    open_any,
    reopenable,
)
from shiftbench.testsets.pool.entries import entries_dataset, image_row, pool_dataset
from shiftbench.testsets.pool.images import StoredImage
from shiftbench.testsets.pool.sources import image_bytes
from shiftbench.testsets.project import Project, record

#: The name of the search among candidates and references.
POOL = "the pool"


@dataclass(frozen=True)
class Outsider:
    """An image of another dataset that resembles a candidate; its file is kept for the reviewers."""

    image: StoredImage
    #: Its dataset and its id there.
    name: str


@dataclass(frozen=True)
class Suspicion:
    """A candidate, the pool entry or the outside image that it resembles, and their distances."""

    #: The id of a pool entry.
    candidate: int
    #: The id of another pool entry, or an image that is not in the pool.
    other: int | Outsider
    #: By metric.
    distances: Mapping[str, float]


@dataclass(frozen=True)
class _SearchOptions:
    """How near-duplicates are searched for; kept for the next search."""

    #: Descriptors of the neighbour search.
    by: Sequence[str | Classifier]
    #: Neighbours per candidate and descriptor.
    k: int
    #: By metric; the defaults of the search for others.
    thresholds: Mapping[str, float]
    #: Whether mirror images are searched for.
    flips: bool


class FoundSuspects(NamedTuple):
    """The pairs that a search found, and how many of them were not queued before."""

    queue: ReviewQueue
    new: int


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
) -> FoundSuspects:
    """Search the pool for near-duplicates, and queue the pairs for review.

    If candidates were imported since an earlier search in the same way, only these are compared, with everything.

    ``against``: further datasets to compare the candidates with, such as the original training and test sets. They are
    not imported; only the images of suspected pairs are kept, for the reviewers. Datasets of earlier searches are
    searched again, so that later candidates are compared with them too: by the same descriptors, neighbours and
    thresholds unless others are given, and for mirror images if they were before. Descriptors are cached in the
    project's folder. Pairs that were judged before keep their verdict.
    """
    with alone(project, "dedupe", lock="search"):
        return _search_pool(
            project,
            against=against,
            by=by,
            k=k,
            thresholds=thresholds,
            flips=flips,
            workers=workers,
            executor=executor,
            show=show,
        )


def _search_pool(
    project: Project,
    *,
    against: Sequence[str | Dataset],
    by: Sequence[str | Classifier] | None,
    k: int | None,
    thresholds: Mapping[str, float] | None,
    flips: bool,
    workers: int | None,
    executor: Executor | None,
    show: bool,
) -> FoundSuspects:
    """As :func:`suspect_near_duplicates`, while nobody else searches."""
    candidates = pool_dataset(project, CANDIDATE)
    references = pool_dataset(project, REFERENCE)
    if not len(candidates):
        raise WorkshopError("the pool has no candidates", hint="shiftbench testset import DIR SOURCE")
    with project.reading() as session:
        # Entries that are imported during the search are not covered by it.
        last_entry = session.scalars(select(func.max(PoolEntry.id))).one()
        earlier = session.scalars(select(Search).order_by(Search.id)).all()
    outside = _outside_datasets(against, earlier)
    options = _search_options(earlier, by, k, thresholds, flips)
    batches = _comparable_batches(earlier, options, outside, references)
    searched, compared = _divided(project, candidates, batches)
    targets: list[Dataset] = [*outside.values(), *compared]
    if len(references):
        targets.insert(0, references)
    queue = find_near_duplicates(
        searched,
        targets,
        by=options.by,
        k=options.k,
        thresholds=options.thresholds,
        flips=options.flips,
        near={key: project.configuration.near(key) for key in project.space.keys},
        files=searched.paths,
        folder=project.folder / "descriptors",
        workers=workers,
        executor=executor,
        show=show,
    )
    pool = [searched, *compared, references]
    new = add_suspicions(project, _suspicions(project, queue, pool, outside.values()))
    if not batches or last_entry > batches[-1]:
        batches = [*batches, last_entry]
    _record_search(project, outside, last_entry, replace(options, thresholds=queue.thresholds), batches)
    return FoundSuspects(queue, new)


def _comparable_batches(
    earlier: Sequence[Search], options: _SearchOptions, outside: Mapping[str, Dataset], references: Dataset
) -> list[int]:
    """The last entry of each earlier search, if candidates up to there need not be compared again; otherwise nothing.

    They must have been compared with the same references and datasets, in the same way.
    """
    if not earlier:
        return []
    past = earlier[0].options
    same_way = (list(options.by), options.k, options.flips) == (past["by"], past["k"], past["flips"])
    same_limits = dict(options.thresholds) == past["thresholds"]
    fingerprints = {search.fingerprint for search in earlier if search.source}
    same_data = fingerprints == {dataset.fingerprint for dataset in outside.values()}
    batches: list[int] = past.get("batches", [])
    old_references = not batches or max(references.metadata["entry"], default=0) <= batches[-1]
    return batches if same_way and same_limits and same_data and old_references else []


def _divided(
    project: Project, candidates: FileDataset, batches: Sequence[int]
) -> tuple[FileDataset, list[FileDataset]]:
    """The candidates to search for, and those of each earlier search, which they are compared with.

    A batch is a dataset of its own, whose descriptors are cached: the next import does not change it.
    """
    if not batches or max(candidates.metadata["entry"]) <= batches[-1]:
        return candidates, []
    with project.reading() as session:
        entries = session.scalars(select(PoolEntry).where(PoolEntry.role == CANDIDATE).order_by(PoolEntry.id)).all()
    parts = []
    for number, (start, stop) in enumerate(itertools.pairwise([0, *batches])):
        batch = [entry for entry in entries if start < entry.id <= stop]
        if batch:
            parts.append(entries_dataset(project, f"{candidates.name}, import {number + 1}", batch))
    new = [entry for entry in entries if entry.id > batches[-1]]
    return entries_dataset(project, candidates.name, new), parts


def _outside_datasets(against: Sequence[str | Dataset], earlier: Sequence[Search]) -> dict[str, Dataset]:
    """The datasets that are named now, and those of earlier searches, by what opens them."""
    outside = {}
    for dataset in against:
        if isinstance(dataset, Dataset):
            outside[dataset.name] = dataset
        else:
            outside[reopenable(dataset)] = open_any(dataset)
    # A dataset of an earlier search that has moved is found where it is named now.
    names = {dataset.name for dataset in outside.values()}
    for search in earlier:
        if search.source and search.name not in names:
            outside[search.source] = open_any(search.source)
    return outside


def _search_options(
    earlier: Sequence[Search],
    by: Sequence[str | Classifier] | None,
    k: int | None,
    thresholds: Mapping[str, float] | None,
    flips: bool,
) -> _SearchOptions:
    """The given options; for those that are not given, the options of earlier searches."""
    # Every search covers the pool, so the first row has the options of the last search.
    past = earlier[0].options if earlier else {}
    descriptors: Sequence[str | Classifier]
    if by is None:
        descriptors = past.get("by", PLAIN)
        past_thresholds = past.get("thresholds", {})
    else:
        descriptors = [_spec(spec) for spec in by]
        past_thresholds = {}
    return _SearchOptions(
        by=descriptors,
        k=k or past.get("k", NEIGHBOURS),
        thresholds={**past_thresholds, **(thresholds or {})},
        flips=flips or any(search.options.get("flips") for search in earlier),
    )


def _suspicions(
    project: Project,
    queue: ReviewQueue,
    pool: Sequence[Dataset],
    outside: Iterable[Dataset],
) -> list[Suspicion]:
    """The pairs of a search as pool entries; the files of outside images are stored.

    The first dataset of ``pool`` has the candidates that were searched for.
    """
    entries = {dataset.name: dataset.metadata["entry"] for dataset in pool}
    outside_by_name = {dataset.name: dataset for dataset in outside}
    suspicions = []
    for pair in queue.pairs:
        other: int | Outsider
        if pair.target in entries:
            other = entries[pair.target][pair.reference_index]
        else:
            data = image_bytes(outside_by_name[pair.target], pair.reference_index)
            other = Outsider(project.images.put(data, pair.reference), f"{pair.target}: {pair.reference}")
        suspicions.append(Suspicion(entries[pool[0].name][pair.candidate_index], other, pair.values))
    return suspicions


def _record_search(
    project: Project,
    outside: Mapping[str, Dataset],
    last_entry: int,
    options: _SearchOptions,
    batches: Sequence[int],
) -> None:
    """Record up to which entry the candidates were compared with the pool and with each dataset, and how."""
    stored_options = {
        "by": [spec if isinstance(spec, str) else spec.name for spec in options.by],
        "k": options.k,
        "thresholds": options.thresholds,
        "flips": options.flips,
        "batches": list(batches),
    }
    searches = [Search(name=POOL, source=None, fingerprint="", images=last_entry)]
    for source, dataset in outside.items():
        searches.append(Search(name=dataset.name, source=source, fingerprint=dataset.fingerprint, images=len(dataset)))
    with project.writing() as session:
        rows = {row.name: row for row in session.scalars(select(Search))}
        for search in searches:
            row = rows.get(search.name, search)
            row.source = search.source
            row.fingerprint = search.fingerprint
            row.images = search.images
            row.last_entry = last_entry
            row.at = project.now()
            row.options = stored_options
            session.add(row)
        names = ", ".join(search.name for search in searches)
        record(project, session, "search", against=names, k=options.k)


def _spec(by: str | Classifier) -> str | Classifier:
    """What opens a model again, from any working directory."""
    return reopenable(by) if isinstance(by, str) and by not in (*PLAIN, "ssim") else by


def add_suspicions(project: Project, suspicions: Iterable[Suspicion]) -> int:
    """Add pairs for judgement; known pairs keep their state.

    Candidates of open pairs are not sampled. One file with two candidate classes is not a pair, and a file that is both
    a reference and in another dataset is judged once. Returns the number of new pairs.
    """
    added = 0
    with project.writing() as session:
        image_of_entry = dict(session.execute(select(PoolEntry.id, PoolEntry.image_id)).all())
        query = select(NearPair.entry_id, NearPair.other_id, NearPair.other_image_id)
        # (candidate entry, image that it resembles) of the pairs in the database
        recorded = set()
        for entry, other_entry, other_image in session.execute(query):
            recorded.add((entry, image_of_entry[other_entry] if other_entry else other_image))
        for suspicion in suspicions:
            candidate = suspicion.candidate
            other = suspicion.other
            if candidate == other:
                raise WorkshopError("an image cannot be a near-duplicate of itself", found=candidate)
            pair = NearPair(entry_id=candidate, distances=dict(suspicion.distances), state="open")
            if isinstance(other, Outsider):
                image = image_row(session, other.image)
                pair.other_image_id = image
                pair.other_name = other.name
            else:
                image = image_of_entry[other]
                pair.other_id = other
                if image == image_of_entry[candidate]:
                    continue
            if (candidate, image) not in recorded:
                recorded.add((candidate, image))
                session.add(pair)
                added += 1
        record(project, session, "suspicions", pairs=added)
    return added
