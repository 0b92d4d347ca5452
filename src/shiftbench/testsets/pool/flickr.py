"""Flickr's search by its API: the queries of a plan, with the key of your own account.

Each answer is saved as a file, in a folder per class, which ``import`` reads as ``flickr:FOLDER``. A query whose answer
is there is not asked again, so that an interrupted search continues, and a pool can be rebuilt from its answers.
"""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from shiftbench.errors import BadImageError
from shiftbench.extend.io import digest, write_json
from shiftbench.extend.tables import Column, Table
from shiftbench.testsets.errors import WorkshopError
from shiftbench.testsets.pool.downloads import Downloader
from shiftbench.testsets.project import Project

#: The environment variables with the key of the account, and with another address of the API, for tests.
KEY = "SHIFTBENCH_FLICKR_KEY"
ADDRESS = "SHIFTBENCH_FLICKR_API"
_API = "https://api.flickr.com/services/rest/"
#: Addresses that may get the key: with encryption, or on this machine.
_SAFE = re.compile(r"https://.+|http://(localhost|127\.0\.0\.1)(:[0-9]{1,5})?(/.*)?")
#: What an answer says of each photo beyond its id: what a frozen set states about its images, and the files.
_EXTRAS = "license,owner_name,date_taken,date_upload,url_l,url_c,url_z,url_m,url_o"
#: The most photos that Flickr lists on a page.
_PER_PAGE = 500
#: Columns that a plan needs; ``testset queries`` writes all of them.
_NEEDED = ("class", "query", "images")
#: Rows of the table shown in a terminal.
_ROWS_IN_TERMINAL = 30


@dataclass(frozen=True)
class Query:
    """A row of a query plan."""

    class_key: str
    text: str
    images: int
    #: The first and the last day on which an image was taken, and uploaded; "" for no limit.
    taken: tuple[str, str]
    uploaded: tuple[str, str]
    sort: str

    @property
    def parameters(self) -> dict[str, str]:
        """The parameters of flickr.photos.search, without the key and the page."""
        values = {
            "method": "flickr.photos.search",
            "format": "json",
            "nojsoncallback": "1",
            "media": "photos",
            "extras": _EXTRAS,
            "text": self.text,
            "sort": self.sort,
            "per_page": str(min(self.images, _PER_PAGE)),
            "min_taken_date": _moment(self.taken[0], "00:00:00"),
            "max_taken_date": _moment(self.taken[1], "23:59:59"),
            "min_upload_date": _moment(self.uploaded[0], "00:00:00"),
            "max_upload_date": _moment(self.uploaded[1], "23:59:59"),
        }
        return {name: value for name, value in values.items() if value}

    def file(self, folder: Path) -> Path:
        """Where the answer is saved; another limit, order or number of images is another query."""
        name = digest({**self.parameters, "images": str(self.images)})[:16]
        return folder / self.class_key / f"{name}.json"


def _moment(day: str, time: str) -> str:
    """The beginning or end of a day, as the API reads it."""
    return f"{day} {time}" if day else ""


def read_plan(path: Path, project: Project) -> list[Query]:
    """The queries of a plan, as ``testset queries -o FILE.csv`` writes them."""
    try:
        rows = list(csv.DictReader(path.read_text(encoding="utf-8-sig").splitlines()))
    except OSError as error:
        raise WorkshopError(
            f"cannot read {path}", found=error.strerror or str(error), expected="a .csv file"
        ) from error
    queries = []
    for row in rows:
        missing = [name for name in _NEEDED if not row.get(name)]
        if missing or not row["images"].isdigit() or not int(row["images"]):
            raise WorkshopError(
                f"{path.name} is not a query plan",
                found=f"a row with {', '.join(f'{name} {row.get(name)!r}' for name in _NEEDED)}",
                expected="columns class, query and images, as `shiftbench testset queries DIR -o FILE.csv` writes them",
            )
        if row["class"] not in project.space:
            raise WorkshopError(f"{path.name} has a class that the project does not have", found=row["class"])
        queries.append(
            Query(
                class_key=row["class"],
                text=row["query"],
                images=int(row["images"]),
                taken=(row.get("taken_from") or "", row.get("taken_until") or ""),
                uploaded=(row.get("uploaded_from") or "", row.get("uploaded_until") or ""),
                sort=row.get("sort") or "date-posted-asc",
            )
        )
    if not queries:
        raise WorkshopError(f"{path.name} has no queries", expected="a row for each query")
    return queries


@dataclass(frozen=True)
class Searched:
    """What became of a query."""

    query: Query
    #: Photos in its answer, at most as many as were asked for.
    photos: int
    #: How many photos Flickr has for it.
    total: int
    #: The answer was saved by an earlier search.
    saved_before: bool


def search_flickr(
    project: Project, plan: Sequence[Query], folder: Path, *, pause: float | None = None
) -> list[Searched]:
    """Ask Flickr for every query without a saved answer, one request at a time, and save its answers.

    Raises WorkshopError if there is no key, or Flickr refuses it; answers so far are kept.
    """
    key = os.environ.get(KEY, "")
    if not key:
        raise WorkshopError(
            "searching Flickr needs the API key of your account",
            found=f"{KEY} is not set",
            hint=f"set the environment variable {KEY} to your key",
        )
    address = os.environ.get(ADDRESS) or _API
    if not _SAFE.fullmatch(address):
        raise WorkshopError("the key is sent with encryption only", found=address, expected=f"{ADDRESS}=https://...")
    download = Downloader(pause, contact=project.configuration.instructions.contact)
    outcomes = []
    for query in plan:
        path = query.file(folder)
        saved_before = path.is_file()
        if saved_before:
            answer = _saved_answer(path)
        else:
            answer = _ask(download, address, key, query)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json(path, answer)
        photos = answer["photos"]
        outcomes.append(Searched(query, len(photos["photo"]), int(photos["total"]), saved_before))
    return outcomes


def _saved_answer(path: Path) -> Mapping[str, Any]:
    try:
        answer = json.loads(path.read_text(encoding="utf-8"))
        len(answer["photos"]["photo"])
        int(answer["photos"]["total"])
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise WorkshopError(
            f"{path} is not a saved answer", found=str(error), hint="delete the file, and it is asked for again"
        ) from error
    return dict(answer)


def _ask(download: Downloader, address: str, key: str, query: Query) -> dict[str, Any]:
    """The photos of a query, from as many pages as it needs."""
    found: list[Mapping[str, Any]] = []
    total = 0
    page = 1
    last_page = 1
    while page <= last_page and len(found) < query.images:
        photos = _page(download, f"{address}?{urlencode({**query.parameters, 'api_key': key, 'page': page})}", query)
        found += photos["photo"]
        total = int(photos["total"])
        last_page = int(photos["pages"])
        page += 1
    return {
        "class": query.class_key,
        "query": query.text,
        "parameters": query.parameters,
        "photos": {"total": total, "photo": found[: query.images]},
    }


def _page(download: Downloader, url: str, query: Query) -> Mapping[str, Any]:
    """A page of an answer. The address contains the key, so that no error may show it."""
    try:
        text = download(url)
    except BadImageError as error:
        reason = str(error.found)
        raise WorkshopError(
            f"Flickr did not answer the query {query.text!r}",
            found=reason,
            hint="the same command continues where this one ended",
        ) from None
    try:
        answer = json.loads(text)
        if answer["stat"] == "ok":
            photos: Mapping[str, Any] = answer["photos"]
            if isinstance(photos["photo"], list) and int(photos["pages"]) >= 0 and int(photos["total"]) >= 0:
                return photos
        reason = f"{answer['code']}: {answer['message']}"
    except (ValueError, LookupError, TypeError):
        reason = f"{text[:80]!r}"
    raise WorkshopError(
        f"Flickr refused the query {query.text!r}",
        found=reason.replace(os.environ[KEY], "(key)"),
        hint=f"check the key in {KEY}; the same command continues where this one ended",
    )


def search_table(outcomes: Sequence[Searched]) -> Table:
    """How many photos each query gave."""
    rows = [
        {
            "class": outcome.query.class_key,
            "query": outcome.query.text,
            "photos": outcome.photos,
            "asked": outcome.query.images,
            "total": outcome.total,
        }
        for outcome in outcomes
    ]
    columns = [
        Column("class", "class"),
        Column("query", "query"),
        Column("photos", "photos", "count"),
        Column("asked", "asked for", "count"),
        Column("total", "at Flickr", "count"),
    ]
    before = sum(outcome.saved_before for outcome in outcomes)
    photos = sum(outcome.photos for outcome in outcomes)
    lead = [f"queries: {len(rows):,}, of which {before:,} were answered before; photos: {photos:,}"]
    return Table(columns, rows, most=_ROWS_IN_TERMINAL, title="Flickr search", lead=lead)
