"""Keywords of pool images: sub-classes whose distribution a new set matches, as in CIFAR-10.1 (004 appendix B.1).

`data/cifar_10_keywords.csv` holds table 6 of 004: the 25 most common keywords of each class of CIFAR-10, and their
shares in percent of CIFAR-10 and of CIFAR-10.1.
"""

from __future__ import annotations

import csv
from collections import Counter
from dataclasses import dataclass
from importlib import resources

from sqlalchemy import func, select

from shiftbench.datasets.base import Dataset
from shiftbench.errors import BadImageError
from shiftbench.io.hashing import digest
from shiftbench.reports.table import Column, Table
from shiftbench.testsets.database import CANDIDATE, REFERENCE, PoolEntry
from shiftbench.testsets.errors import WorkshopError
from shiftbench.testsets.pool.entries import pool_dataset, read_entries
from shiftbench.testsets.project import Project, record

_SHOWN = 60


@dataclass(frozen=True)
class KeywordsLabelled:
    images: int
    labelled: int


def label_keywords(project: Project, source: Dataset) -> KeywordsLabelled:
    """Give pool images without a keyword that of the image of ``source`` with the same pixels."""
    if "keyword" not in source.metadata:
        raise WorkshopError(
            f"{source.name} has no keywords", found=", ".join(source.metadata) or "no columns", expected="keyword"
        )
    keywords = dict(zip(_pixel_digests(source, range(len(source))), source.metadata["keyword"], strict=True))
    keywords.pop(None, None)
    images, found = 0, {}
    for role in (CANDIDATE, REFERENCE):
        pool = pool_dataset(project, role)
        missing = [i for i, keyword in enumerate(pool.metadata["keyword"]) if not keyword]
        images += len(missing)
        for i, pixels in zip(missing, _pixel_digests(pool, missing), strict=True):
            if keywords.get(pixels):
                found[pool.metadata["entry"][i]] = str(keywords[pixels])
    with project.writing() as session:
        for entry in read_entries(session, list(found)):
            entry.keyword = found[entry.id]
        record(project, session, "keywords", source=source.name, labelled=len(found), without=images - len(found))
    return KeywordsLabelled(images, len(found))


def _pixel_digests(dataset: Dataset, indices: range | list[int]) -> list[str | None]:
    """None for unreadable images."""
    found: list[str | None] = []
    for index in indices:
        try:
            pixels = dataset.read(index).pixels
            found.append(digest(list(pixels.shape), pixels.tobytes()))
        except BadImageError:
            found.append(None)
    return found


def keyword_table(project: Project) -> Table:
    """The keywords of the references by class, with their shares of all references, and those of table 6 of 004."""
    text = resources.files("shiftbench.testsets").joinpath("data/cifar_10_keywords.csv").read_text(encoding="utf-8")
    printed = {(row["class"], row["keyword"]): row for row in csv.DictReader(text.splitlines())}
    query = select(PoolEntry.role, PoolEntry.class_key, PoolEntry.keyword, func.count())
    with project.reading() as session:
        grouped = query.group_by(PoolEntry.role, PoolEntry.class_key, PoolEntry.keyword)
        counts = {(role, key, word or ""): count for role, key, word, count in session.execute(grouped)}
    references = Counter({(key, word): n for (role, key, word), n in counts.items() if role == REFERENCE})
    whole = references.total()
    rows = []
    for key in project.space.keys:
        own = sorted((word for cls, word in references if cls == key), key=lambda word: (-references[key, word], word))
        for word in own:
            known = printed.get((key, word), {})
            row = {"class": key, "keyword": word, "references": references[key, word]}
            row["share"] = references[key, word] / whole
            row["candidates"] = counts.get((CANDIDATE, key, word), 0)
            row |= {name: float(known[name]) if known else None for name in ("cifar_10", "cifar_10_1")}
            rows.append(row)
    named = sum(count for (_, word), count in references.items() if word)
    columns = [
        Column("class", "class"), Column("keyword", "keyword"), Column("references", "references", "count"),
        Column("share", "share %", "number", times=100), Column("candidates", "candidates", "count"),
        Column("cifar_10", "CIFAR-10 %", "number", optional=True),
        Column("cifar_10_1", "CIFAR-10.1 %", "number", optional=True),
    ]  # fmt: skip
    lead = [f"{named:,} of {whole:,} references have a keyword"]
    notes = ["CIFAR-10 and CIFAR-10.1: printed in table 6 of paper 004, of all images"]
    return Table(columns, rows, most=_SHOWN, title="Keywords", lead=lead, notes=notes)
