"""Import images into the pool; each image once, even if the import is interrupted and repeated."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Literal

from rich.console import Console
from sqlalchemy import insert, select, tuple_
from sqlalchemy.orm import Session

from shiftbench.datasets.base import Dataset
from shiftbench.errors import BadImageError
from shiftbench.io.locks import file_lock
from shiftbench.jobs.progress import progress_bar
from shiftbench.jobs.threads import worker_count
from shiftbench.testsets.audit import record
from shiftbench.testsets.database.tables import Image, PoolEntry
from shiftbench.testsets.pool.entries import image_row
from shiftbench.testsets.pool.images import StoredImage
from shiftbench.testsets.pool.sources import Offer, SourceImages, check_columns, clean, day, known_details, open_source
from shiftbench.testsets.project import Project

EntryRole = Literal["candidate", "reference"]
#: Images per commit: what a killed import has to repeat at most.
_BATCH = 128


@dataclass
class ImportSummary:
    """The result of importing one source."""

    source: str
    role: str
    new: int = 0
    #: Images that the pool already had in this role and class.
    known: int = 0
    #: (image id, reason)
    refused: list[tuple[str, str]] = field(default_factory=list)

    @property
    def offered(self) -> int:
        return self.new + self.known + len(self.refused)


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
    console: Console | None = None,
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
        progress_bar(f"{role}s", supply.count or 0, show=progress and bool(supply.count), console=console) as advance,
    ):
        for batch in _batches(supply.offers):
            _import_batch(project, _in_time(batch, since, until, done), supply, done, pool)
            advance(len(batch))
    with project.writing() as session:
        record(
            project, session, "import", source=done.source, role=role, new=done.new, known=done.known,
            refused=len(done.refused),
        )  # fmt: skip
    return done


def _batches(offers: Iterator[Offer]) -> Iterator[list[Offer]]:
    while batch := list(itertools.islice(offers, _BATCH)):
        yield batch


def _in_time(batch: list[Offer], since: date | None, until: date | None, done: ImportSummary) -> list[Offer]:
    if since is None and until is None:
        return batch
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
    wanted = [offer for offer in batch if _has_class(project, offer, done)]
    if supply.stable:
        wanted = _unfetched(project, wanted, done)
    for offer in wanted:
        check_columns(offer.details)
    # Files first: every row in the database has its image on disk.
    stored = list(pool.map(lambda offer: _store(project, offer), wanted))
    good: list[tuple[Offer, StoredImage]] = []
    for offer, result in zip(wanted, stored, strict=True):
        if isinstance(result, StoredImage):
            good.append((offer, result))
        else:
            done.refused.append((offer.id, result))
    if good:
        with project.writing() as session:
            _add_entries(project, session, good, supply, done)


def _has_class(project: Project, offer: Offer, done: ImportSummary) -> bool:
    if offer.class_key is not None and offer.class_key in project.space:
        return True
    done.refused.append((offer.id, f"unknown class {offer.class_key!r}" if offer.class_key else "no class"))
    return False


def _unfetched(project: Project, batch: Sequence[Offer], done: ImportSummary) -> list[Offer]:
    """Images of this source that the pool does not have yet; the others need not be fetched."""
    with project.reading() as session:
        here = select(PoolEntry.source_id, PoolEntry.class_key).where(
            PoolEntry.source == done.source, PoolEntry.role == done.role
        )
        found = session.execute(here.where(PoolEntry.source_id.in_([clean(offer.id) for offer in batch])))
        known = {(source_id, key) for source_id, key in found}
    new = [offer for offer in batch if (clean(offer.id), offer.class_key) not in known]
    done.known += len(batch) - len(new)
    return new


def _store(project: Project, offer: Offer) -> StoredImage | str:
    """The stored image, or the reason why it is refused."""
    try:
        data = offer.data if isinstance(offer.data, bytes) else offer.data()
        return project.images.put(data, offer.id)
    except BadImageError as error:
        return str(error.found or error.message)


def _add_entries(
    project: Project,
    session: Session,
    good: Sequence[tuple[Offer, StoredImage]],
    supply: SourceImages,
    done: ImportSummary,
) -> None:
    image_ids = _image_ids(session, [stored for _, stored in good])
    pairs = [(image_ids[stored.digest], offer.class_key) for offer, stored in good]
    listed = tuple_(PoolEntry.image_id, PoolEntry.class_key).in_(set(pairs))
    found = session.execute(select(PoolEntry.image_id, PoolEntry.class_key).where(PoolEntry.role == done.role, listed))
    known = {(image_id, key) for image_id, key in found}
    rows: dict[tuple[int, str | None], dict[str, object]] = {}
    for pair, (offer, _) in zip(pairs, good, strict=True):
        if pair in known or pair in rows:
            done.known += 1
        else:
            rows[pair] = _row(project, offer, pair[0], supply, done)
    if rows:
        session.execute(insert(PoolEntry), list(rows.values()))
    done.new += len(rows)


def _image_ids(session: Session, images: Sequence[StoredImage]) -> dict[str, int]:
    unique = {image.digest: image for image in images}
    found = session.execute(select(Image.digest, Image.id).where(Image.digest.in_(unique)))
    ids: dict[str, int] = dict(found.all())
    return ids | {digest: image_row(session, unique[digest]) for digest in unique.keys() - ids.keys()}


def _row(project: Project, offer: Offer, image_id: int, supply: SourceImages, done: ImportSummary) -> dict[str, object]:
    known, extra = known_details(clean(offer.details))
    named = known.pop("source")
    return {
        "role": done.role,
        "image_id": image_id,
        "class_key": offer.class_key,
        # a plug-in's images are identified by the plug-in's own name
        "source": done.source if named is None or supply.stable else named,
        "source_id": clean(offer.id),
        **known,
        "extra": extra,
        "imported_at": project.now(),
    }
