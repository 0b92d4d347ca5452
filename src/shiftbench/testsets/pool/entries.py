"""Entries of the pool: imported (each image once, even if the import is interrupted), read, counted, as datasets."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Literal

from sqlalchemy import exists, func, insert, select, tuple_
from sqlalchemy.orm import Session

from shiftbench import Dataset
from shiftbench.errors import BadImageError
from shiftbench.extend.datasets import FileDataset
from shiftbench.extend.jobs import worker_count
from shiftbench.jobs import progress_bar
from shiftbench.testsets.database import CANDIDATE, REFERENCE, Image, Mark, PoolEntry, counts_digest
from shiftbench.testsets.locks import alone
from shiftbench.testsets.pool.images import MAX_PIXELS, StoredImage
from shiftbench.testsets.pool.sources import Offer, SourceImages, check_columns, clean, day, known_details, open_source
from shiftbench.testsets.project import Project, record

EntryRole = Literal["candidate", "reference"]


#: Images per commit, which a killed import has to repeat at most.
_IMPORT_BATCH = 128
#: Databases limit the parameters of a query.
_IDS_PER_QUERY = 500


@dataclass
class ImportSummary:
    """How many images of a source were added, were already in the pool, or were refused."""

    source: str
    role: str
    new: int = 0
    #: Images that the pool already had in this role and class.
    known: int = 0
    #: (image id, reason)
    refused: list[tuple[str, str]] = field(default_factory=list)


def import_images(
    project: Project,
    source: str | Path | Dataset,
    role: EntryRole = "candidate",
    *,
    class_key: str | None = None,
    name: str | None = None,
    since: date | None = None,
    until: date | None = None,
    workers: int | None = None,
    progress: bool = False,
) -> ImportSummary:
    """Add all images of a source to the pool, as candidates or references.

    Images that the pool already has are skipped, so an interrupted import can simply be repeated. Broken images are
    listed in the result, and the import continues. With ``since`` or ``until``, so are images that were not taken and
    uploaded within these days, or whose date is not known; they are not fetched.
    """
    supply = open_source(project, source, class_key=class_key)
    summary = ImportSummary(clean(name or supply.name), role)
    with (
        # Two imports could add the same image.
        alone(project, f"import of {summary.source}", lock="import"),
        ThreadPoolExecutor(worker_count(workers)) as threads,
        progress_bar(f"{role}s", supply.count or 0, show=progress and bool(supply.count)) as advance,
    ):
        while batch := list(itertools.islice(supply.offers, _IMPORT_BATCH)):
            offers = batch
            if since is not None or until is not None:
                offers = _in_time(batch, since or date.min, until or date.max, summary)
            _import_batch(project, offers, supply, summary, threads)
            advance(len(batch))
    counts = {"new": summary.new, "known": summary.known, "refused": len(summary.refused)}
    with project.writing() as session:
        record(project, session, "import", source=summary.source, role=role, **counts)
    return summary


def _in_time(batch: Sequence[Offer], since: date, until: date, summary: ImportSummary) -> list[Offer]:
    """The offers that were taken and uploaded within these days; the others are refused."""
    in_time = []
    for offer in batch:
        columns, _ = known_details(offer.details)
        days = [day(columns["date"])]
        days += [day(offer.details[name]) for name in ("uploaded", "date_upload") if offer.details.get(name)]
        if None in days:
            summary.refused.append((offer.id, "no date"))
        elif all(since <= moment <= until for moment in days if moment):
            in_time.append(offer)
        else:
            summary.refused.append((offer.id, f"dated {', '.join(str(moment) for moment in days)}"))
    return in_time


def _import_batch(
    project: Project, batch: Sequence[Offer], supply: SourceImages, summary: ImportSummary, threads: ThreadPoolExecutor
) -> None:
    """Fetch and store the images of a batch that are new, and add their entries."""
    offers = _of_known_classes(project, batch, summary)
    if supply.stable:
        offers = _not_in_pool(project, offers, summary)
    for offer in offers:
        check_columns(offer.details)

    def store(offer: Offer) -> StoredImage | str:
        """The stored image, or the reason why it is refused."""
        try:
            data = offer.data if isinstance(offer.data, bytes) else offer.data()
            return project.images.put(data, offer.id)
        except BadImageError as error:
            return str(error.found or error.message)

    # The files are written first, so that every row in the database has its image on disk.
    stored_offers = []
    for offer, stored in zip(offers, threads.map(store, offers), strict=True):
        if isinstance(stored, StoredImage):
            stored_offers.append((offer, stored))
        else:
            summary.refused.append((offer.id, stored))
    if stored_offers:
        with project.writing() as session:
            _add_entries(project, session, stored_offers, supply, summary)


def _of_known_classes(project: Project, batch: Sequence[Offer], summary: ImportSummary) -> list[Offer]:
    """The offers with a class of the project; the others are refused."""
    offers = []
    for offer in batch:
        if offer.class_key is not None and offer.class_key in project.space:
            offers.append(offer)
        else:
            reason = f"unknown class {offer.class_key!r}" if offer.class_key else "no class"
            summary.refused.append((offer.id, reason))
    return offers


def _not_in_pool(project: Project, offers: Sequence[Offer], summary: ImportSummary) -> list[Offer]:
    """The offers whose ids the pool does not have from this source; the others need not be fetched."""
    query = select(PoolEntry.source_id, PoolEntry.class_key)
    query = query.where(PoolEntry.source == summary.source, PoolEntry.role == summary.role)
    query = query.where(PoolEntry.source_id.in_([clean(offer.id) for offer in offers]))
    with project.reading() as session:
        in_pool = {(source_id, class_key) for source_id, class_key in session.execute(query)}
    new = [offer for offer in offers if (clean(offer.id), offer.class_key) not in in_pool]
    summary.known += len(offers) - len(new)
    return new


def _add_entries(
    project: Project,
    session: Session,
    stored_offers: Sequence[tuple[Offer, StoredImage]],
    supply: SourceImages,
    summary: ImportSummary,
) -> None:
    """Add an entry for every stored image that the pool does not have in this role and class."""
    pairs = [(image_row(session, stored), offer.class_key) for offer, stored in stored_offers]
    query = select(PoolEntry.image_id, PoolEntry.class_key).where(PoolEntry.role == summary.role)
    query = query.where(tuple_(PoolEntry.image_id, PoolEntry.class_key).in_(set(pairs)))
    in_pool = {(image_id, class_key) for image_id, class_key in session.execute(query)}
    rows: dict[tuple[int, str | None], dict[str, object]] = {}
    for pair, (offer, stored) in zip(pairs, stored_offers, strict=True):
        if pair in in_pool or pair in rows:
            summary.known += 1
            continue
        details, extra = known_details(clean(offer.details))
        stated_source = details.pop("source")
        # The images of a plug-in are found again under its name, whatever they state.
        use_stated = stated_source is not None and not supply.stable
        image_id, class_key = pair
        rows[pair] = {
            "role": summary.role,
            "image_id": image_id,
            "class_key": class_key,
            "source": stated_source if use_stated else summary.source,
            "source_id": clean(offer.id),
            **details,
            "extra": extra,
            "imported_at": project.now(),
            "digest": counts_digest(summary.role, str(class_key), stored.file_name, selected=0, annotations=0),
        }
    if rows:
        session.execute(insert(PoolEntry), list(rows.values()))
    summary.new += len(rows)


def image_row(session: Session, stored: StoredImage) -> int:
    """The id of an image's row, which is added if it is new."""
    image_id = session.scalars(select(Image.id).where(Image.digest == stored.digest)).first()
    if image_id is not None:
        return image_id
    row = Image(**vars(stored))
    session.add(row)
    session.flush()
    return row.id


def read_entries(session: Session, numbers: Sequence[int]) -> list[PoolEntry]:
    """The entries with these ids, in this order."""
    by_id: dict[int, PoolEntry] = {}
    for start in range(0, len(numbers), _IDS_PER_QUERY):
        block = numbers[start : start + _IDS_PER_QUERY]
        for entry in session.scalars(select(PoolEntry).where(PoolEntry.id.in_(block))):
            by_id[entry.id] = entry
    return [by_id[number] for number in numbers]


def pool_dataset(project: Project, role: str) -> FileDataset:
    """All candidates or all references; ``metadata["entry"]`` is the entry id of each image.

    For comparing images with each other. Models must not be evaluated on candidates before the set is frozen.
    """
    with project.reading() as session:
        entries = session.scalars(select(PoolEntry).where(PoolEntry.role == role).order_by(PoolEntry.id)).all()
    return entries_dataset(project, f"{project.configuration.name}-{role}s", entries)


def entries_dataset(project: Project, name: str, entries: Sequence[PoolEntry]) -> FileDataset:
    """Sorted by class and digest, with the image ids of the frozen set."""
    space = project.space
    root = project.images.originals
    ordered = sorted(entries, key=lambda entry: (space.index(entry.class_key), entry.image.digest))
    paths = [project.images.original(entry.image.digest, entry.image.suffix) for entry in ordered]
    relative_paths = [path.relative_to(root).as_posix() for path in paths]
    labels = [space.index(entry.class_key) for entry in ordered]
    return FileDataset(
        name,
        space,
        root,
        relative_paths,
        labels,
        ids=[f"{entry.class_key}/{entry.image.digest}{entry.image.suffix}" for entry in ordered],
        metadata={"entry": [entry.id for entry in ordered], "keyword": [entry.keyword for entry in ordered]},
        max_pixels=MAX_PIXELS,
    )


@dataclass(frozen=True)
class PoolCount:
    """The images of a class in the pool, and how many of them a reviewer marked."""

    class_key: str
    candidates: int
    references: int
    marked: int


def pool_counts(project: Project) -> list[PoolCount]:
    """The counts of every class, in the order of the classes."""
    class_key = PoolEntry.class_key
    role = PoolEntry.role
    is_marked = exists().where(Mark.entry_id == PoolEntry.id, Mark.withdrawn_at.is_(None))
    counts: dict[tuple[str, str], int] = {}
    with project.reading() as session:
        for key, entry_role, count in session.execute(select(class_key, role, func.count()).group_by(class_key, role)):
            counts[key, entry_role] = count
        marked = dict(session.execute(select(class_key, func.count()).where(is_marked).group_by(class_key)).all())
    pool = []
    for key in project.space.keys:
        candidates = counts.get((key, CANDIDATE), 0)
        references = counts.get((key, REFERENCE), 0)
        pool.append(PoolCount(key, candidates, references, marked.get(key, 0)))
    return pool
