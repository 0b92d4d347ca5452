"""Keywords of pool images: sub-classes whose distribution a new set matches, as in CIFAR-10.1 (004 appendix B.1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from sqlalchemy import func, select

from shiftbench import Dataset, label_space
from shiftbench.errors import BadImageError
from shiftbench.extend.io import digest
from shiftbench.extend.studies import published
from shiftbench.extend.tables import Column, Table
from shiftbench.testsets.accounts import REVIEWERS, find_by_id, permit
from shiftbench.testsets.database import CANDIDATE, REFERENCE, PoolEntry, repeated_after_deadlock
from shiftbench.testsets.errors import WorkshopError
from shiftbench.testsets.locks import alone
from shiftbench.testsets.pool.entries import pool_dataset, read_entries
from shiftbench.testsets.project import Project, record

#: Rows of the table shown in a terminal.
_ROWS_IN_TERMINAL = 60


def label_keywords(project: Project, source: Dataset) -> tuple[int, int]:
    """Give pool images without a keyword that of the image of ``source`` with the same pixels.

    Returns how many images had none, and how many of them got one.
    """
    if "keyword" not in source.metadata:
        raise WorkshopError(
            f"{source.name} has no keywords", found=", ".join(source.metadata) or "no columns", expected="keyword"
        )
    source_digests = _pixel_digests(source, range(len(source)))
    keyword_of_pixels = dict(zip(source_digests, source.metadata["keyword"], strict=True))
    # Unreadable images of the source have no digest, and must not lend their keyword to unreadable images of the pool.
    keyword_of_pixels.pop(None, None)
    missing_count = 0
    keyword_of_entry: dict[int, str] = {}
    for role in (CANDIDATE, REFERENCE):
        pool = pool_dataset(project, role)
        missing = [i for i, keyword in enumerate(pool.metadata["keyword"]) if not keyword]
        missing_count += len(missing)
        for i, pixels in zip(missing, _pixel_digests(pool, missing), strict=True):
            keyword = keyword_of_pixels.get(pixels)
            if keyword:
                keyword_of_entry[pool.metadata["entry"][i]] = str(keyword)
    labelled = len(keyword_of_entry)
    # Whoever samples meanwhile must not meet half of the keywords.
    with alone(project, "keywords"), project.writing() as session:
        for entry in read_entries(session, list(keyword_of_entry)):
            entry.keyword = keyword_of_entry[entry.id]
        record(project, session, "keywords", source=source.name, labelled=labelled, without=missing_count - labelled)
    return missing_count, labelled


def _pixel_digests(dataset: Dataset, indices: range | list[int]) -> list[str | None]:
    """A digest of the decoded pixels of each image; None for unreadable images."""
    digests: list[str | None] = []
    for index in indices:
        try:
            pixels = dataset.read(index).pixels
            digests.append(digest(list(pixels.shape), pixels.tobytes()))
        except BadImageError:
            digests.append(None)
    return digests


def keyword_counts(project: Project, classes: Collection[str] | None = None) -> dict[tuple[str, str], Counter[str]]:
    """How many images of each role have a keyword ("" for none), by class and keyword."""
    columns = (PoolEntry.class_key, func.coalesce(PoolEntry.keyword, ""), PoolEntry.role)
    query = select(*columns, func.count()).group_by(*columns)
    if classes is not None:
        query = query.where(PoolEntry.class_key.in_(classes))
    counts: dict[tuple[str, str], Counter[str]] = {}
    with project.reading() as session:
        for key, keyword, role, count in session.execute(query):
            counts.setdefault((key, keyword), Counter())[role] = count
    return counts


def keyword_images(project: Project, class_key: str, word: str, *, first: int, limit: int) -> list[PoolEntry]:
    """Some images of a class with that keyword ("" for none), references before candidates."""
    query = select(PoolEntry).where(PoolEntry.class_key == class_key, func.coalesce(PoolEntry.keyword, "") == word)
    query = query.order_by(PoolEntry.role.desc(), PoolEntry.id).offset(first).limit(limit)
    with project.reading() as session:
        return list(session.scalars(query))


@repeated_after_deadlock
def set_keyword(project: Project, entries: Sequence[int], keyword: str, *, by: int | None = None) -> None:
    """Set the keyword of these images, or remove it ("")."""
    word = " ".join(keyword.split())
    if len(word) > 80 or not word.isprintable():
        raise WorkshopError("invalid keyword", found=repr(keyword[:90]), expected="at most 80 printable characters")
    with project.writing() as session:
        permit(session, by, REVIEWERS)
        # In the order of their ids, as everywhere that several are locked, to rule out deadlocks.
        for entry in sorted(entries):
            find_by_id(session, PoolEntry, entry, "pool entry").keyword = word or None
        record(project, session, "keyword", by=by, keyword=word, entries=list(entries))


def printed_keywords() -> dict[tuple[str, str], dict[str, float]]:
    """Table 6 of 004, shares of CIFAR-10 and CIFAR-10.1 by class and keyword."""
    shares: dict[tuple[str, str], dict[str, float]] = {}
    for key in label_space("cifar-10").keys:
        for row in published("004", f"6, {key}"):
            shares.setdefault((key, row.model), {})[row.setting] = row.value
    return shares


def keyword_table(project: Project) -> Table:
    """The keywords of the references by class, with their shares of all references, and those of table 6 of 004."""
    # Keywords without references are left out, because the shares are those of the references.
    printed = printed_keywords()
    counts = keyword_counts(project)
    references = Counter({pair: roles[REFERENCE] for pair, roles in counts.items() if roles[REFERENCE]})
    total = references.total()
    rows = []
    for key in project.space.keys:
        keywords = [keyword for class_key, keyword in references if class_key == key]
        keywords.sort(key=lambda keyword: (-references[key, keyword], keyword))
        for keyword in keywords:
            printed_shares = printed.get((key, keyword), {})
            rows.append(
                {
                    "class": key,
                    "keyword": keyword,
                    "references": references[key, keyword],
                    "share": references[key, keyword] / total,
                    "candidates": counts[key, keyword][CANDIDATE],
                    "cifar-10": printed_shares.get("cifar-10"),
                    "cifar-10.1-v4": printed_shares.get("cifar-10.1-v4"),
                }
            )
    with_keyword = sum(count for (_, keyword), count in references.items() if keyword)
    columns = [
        Column("class", "class"),
        Column("keyword", "keyword"),
        Column("references", "references", "count"),
        Column("share", "share %", "number", times=100),
        Column("candidates", "candidates", "count"),
        Column("cifar-10", "CIFAR-10 %", "number", times=100, optional=True),
        Column("cifar-10.1-v4", "CIFAR-10.1 %", "number", times=100, optional=True),
    ]
    lead = [f"{with_keyword:,} of {total:,} references have a keyword"]
    notes = ["CIFAR-10 and CIFAR-10.1: printed in table 6 of paper 004, of all images"]
    return Table(columns, rows, most=_ROWS_IN_TERMINAL, title="Keywords", lead=lead, notes=notes)
