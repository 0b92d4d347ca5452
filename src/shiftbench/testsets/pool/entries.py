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

from shiftbench.datasets.base import Dataset
from shiftbench.datasets.stored import FileDataset
from shiftbench.errors import BadImageError
from shiftbench.io.locks import file_lock
from shiftbench.jobs.progress import progress_bar
from shiftbench.jobs.threads import worker_count
from shiftbench.testsets.database import CANDIDATE, REFERENCE, Image, Mark, PoolEntry
from shiftbench.testsets.pool.images import MAX_PIXELS, StoredImage
from shiftbench.testsets.pool.sources import Offer, SourceImages, check_columns, clean, day, known_details, open_source
from shiftbench.testsets.project import Project, record

EntryRole = Literal["candidate", "reference"]
#: Images per commit, which a killed import has to repeat at most. Databases limit the parameters of a query.
_BATCH, _AT_ONCE = 128, 500


@dataclass
class ImportSummary:
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
    done = ImportSummary(clean(name or supply.name), role)
    with (
        # One import at a time: two could add the same image.
        file_lock(project.folder / "import.lock", wait=True),
        ThreadPoolExecutor(worker_count(workers)) as pool,
        progress_bar(f"{role}s", supply.count or 0, show=progress and bool(supply.count)) as advance,
    ):
        while batch := list(itertools.islice(supply.offers, _BATCH)):
            wanted = batch if since is None and until is None else _in_time(batch, since, until, done)
            _import_batch(project, wanted, supply, done, pool)
            advance(len(batch))
    counts = {"new": done.new, "known": done.known, "refused": len(done.refused)}
    with project.writing() as session:
        record(project, session, "import", source=done.source, role=role, **counts)
    return done


def _in_time(batch: Sequence[Offer], since: date | None, until: date | None, done: ImportSummary) -> list[Offer]:
    wanted = []
    for offer in batch:
        days = [day(known_details(offer.details)[0]["date"])]
        days += [day(offer.details[name]) for name in ("uploaded", "date_upload") if offer.details.get(name)]
        if None in days:
            done.refused.append((offer.id, "no date"))
        elif all((since or date.min) <= one <= (until or date.max) for one in days if one):
            wanted.append(offer)
        else:
            done.refused.append((offer.id, f"dated {', '.join(str(one) for one in days)}"))
    return wanted


def _import_batch(
    project: Project, batch: Sequence[Offer], supply: SourceImages, done: ImportSummary, pool: ThreadPoolExecutor
) -> None:
    wanted = []
    for offer in batch:
        if offer.class_key is not None and offer.class_key in project.space:
            wanted.append(offer)
        else:
            done.refused.append((offer.id, f"unknown class {offer.class_key!r}" if offer.class_key else "no class"))
    if supply.stable:  # images of this source that the pool already has need not be fetched
        here = select(PoolEntry.source_id, PoolEntry.class_key)
        here = here.where(PoolEntry.source == done.source, PoolEntry.role == done.role)
        with project.reading() as session:
            found = session.execute(here.where(PoolEntry.source_id.in_([clean(offer.id) for offer in wanted])))
            known = {(source_id, key) for source_id, key in found}
        new = [offer for offer in wanted if (clean(offer.id), offer.class_key) not in known]
        done.known += len(wanted) - len(new)
        wanted = new
    for offer in wanted:
        check_columns(offer.details)

    def store(offer: Offer) -> StoredImage | str:
        """The stored image, or the reason why it is refused."""
        try:
            data = offer.data if isinstance(offer.data, bytes) else offer.data()
            return project.images.put(data, offer.id)
        except BadImageError as error:
            return str(error.found or error.message)

    # Files first: every row in the database has its image on disk.
    stored = list(zip(wanted, pool.map(store, wanted), strict=True))
    done.refused += [(offer.id, why) for offer, why in stored if isinstance(why, str)]
    good = [(offer, image) for offer, image in stored if isinstance(image, StoredImage)]
    if good:
        with project.writing() as session:
            _add_entries(project, session, good, supply, done)


def _add_entries(
    project: Project,
    session: Session,
    good: Sequence[tuple[Offer, StoredImage]],
    supply: SourceImages,
    done: ImportSummary,
) -> None:
    pairs = [(image_row(session, stored), offer.class_key) for offer, stored in good]
    listed = tuple_(PoolEntry.image_id, PoolEntry.class_key).in_(set(pairs))
    found = session.execute(select(PoolEntry.image_id, PoolEntry.class_key).where(PoolEntry.role == done.role, listed))
    known = {(image_id, key) for image_id, key in found}
    rows: dict[tuple[int, str | None], dict[str, object]] = {}
    for pair, (offer, _) in zip(pairs, good, strict=True):
        if pair in known or pair in rows:
            done.known += 1
            continue
        details, extra = known_details(clean(offer.details))
        named = details.pop("source")
        # a plug-in's images are identified by the plug-in's own name
        source = done.source if named is None or supply.stable else named
        rows[pair] = {
            "role": done.role,
            "image_id": pair[0],
            "class_key": offer.class_key,
            "source": source,
            "source_id": clean(offer.id),
            **details,
            "extra": extra,
            "imported_at": project.now(),
        }
    if rows:
        session.execute(insert(PoolEntry), list(rows.values()))
    done.new += len(rows)


def image_row(session: Session, stored: StoredImage) -> int:
    """The id of an image's row, which is added if it is new."""
    found = session.scalars(select(Image.id).where(Image.digest == stored.digest)).first()
    if found is not None:
        return found
    row = Image(**vars(stored))
    session.add(row)
    session.flush()
    return row.id


def read_entries(session: Session, numbers: Sequence[int]) -> list[PoolEntry]:
    found: dict[int, PoolEntry] = {}
    for start in range(0, len(numbers), _AT_ONCE):
        block = numbers[start : start + _AT_ONCE]
        found.update({entry.id: entry for entry in session.scalars(select(PoolEntry).where(PoolEntry.id.in_(block)))})
    return [found[number] for number in numbers]


def pool_dataset(project: Project, role: str) -> FileDataset:
    """All candidates or all references; ``metadata["entry"]`` is the entry id of each image.

    For comparing images with each other. Models must not be evaluated on candidates before the set is frozen.
    """
    with project.reading() as session:
        entries = session.scalars(select(PoolEntry).where(PoolEntry.role == role).order_by(PoolEntry.id)).all()
    return entries_dataset(project, f"{project.configuration.name}-{role}s", entries)


def entries_dataset(project: Project, name: str, entries: Sequence[PoolEntry]) -> FileDataset:
    """Sorted by class and digest, with the image ids of the frozen set."""
    space, root = project.space, project.images.originals
    ordered = sorted(entries, key=lambda entry: (space.index(entry.class_key), entry.image.digest))
    paths = [project.images.original(entry.image.digest, entry.image.suffix) for entry in ordered]
    return FileDataset(
        name,
        space,
        root,
        [str(path.relative_to(root)) for path in paths],
        [space.index(entry.class_key) for entry in ordered],
        ids=[f"{entry.class_key}/{entry.image.digest}{entry.image.suffix}" for entry in ordered],
        metadata={"entry": [entry.id for entry in ordered], "keyword": [entry.keyword for entry in ordered]},
        max_pixels=MAX_PIXELS,
    )


@dataclass(frozen=True)
class PoolCount:
    class_key: str
    candidates: int
    references: int
    marked: int


def pool_counts(project: Project) -> list[PoolCount]:
    marked = exists().where(Mark.entry_id == PoolEntry.id, Mark.withdrawn_at.is_(None))
    key, role = PoolEntry.class_key, PoolEntry.role
    with project.reading() as session:
        counts = {(k, r): n for k, r, n in session.execute(select(key, role, func.count()).group_by(key, role))}
        gone = dict(session.execute(select(key, func.count()).where(marked).group_by(key)).all())
    return [
        PoolCount(one, counts.get((one, CANDIDATE), 0), counts.get((one, REFERENCE), 0), gone.get(one, 0))
        for one in project.space.keys
    ]
