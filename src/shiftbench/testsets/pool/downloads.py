"""Images from the web: saved Flickr searches, iNaturalist exports, and lists of URLs (docs/test-set-candidates.md).

PATH is a file, or a folder of files and of class folders. A class is the ``class`` or ``label`` of a record or of a
whole answer, the name of an observed species, or the class folder that a file is in. Known images are not fetched
again, so an interrupted import continues. Hosts are asked for one image at a time.
"""

from __future__ import annotations

import csv
import json
import os
import string
import threading
import time
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from email.utils import mktime_tz, parsedate_tz
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urljoin, urlsplit

from shiftbench import __version__
from shiftbench.datasets.images import bad_image
from shiftbench.testsets.errors import WorkshopError
from shiftbench.testsets.pool.images import MAX_BYTES
from shiftbench.testsets.pool.sources import Offer, image_sources

if TYPE_CHECKING:
    from shiftbench.testsets.project import Project

Record = Mapping[str, Any]
#: The environment variable with the seconds between two requests to the same host.
PAUSE = "SHIFTBENCH_DOWNLOAD_PAUSE"
_SECONDS, _TRIES, _LONGEST_WAIT, _REDIRECTS = 60, 4, 300.0, 5
_MOVED, _BUSY = (301, 302, 303, 307, 308), (429, 500, 502, 503, 504)
_CLASS_FIELDS = ("class", "label", "class_key", "wnid")
_IMAGE_FIELDS = ("image_url", "url")
#: Flickr's sizes, beginning with 1,024 pixels; the original may be much larger.
_FLICKR_SIZES = ("url_l", "url_c", "url_z", "url_m", "url_o")
_FLICKR_LICENCES = (
    "All rights reserved",
    "CC BY-NC-SA 2.0",
    "CC BY-NC 2.0",
    "CC BY-NC-ND 2.0",
    "CC BY 2.0",
    "CC BY-SA 2.0",
    "CC BY-ND 2.0",
    "No known copyright restrictions",
    "United States Government work",
    "CC0 1.0",
    "Public Domain Mark 1.0",
)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """The downloader follows redirects itself, so that it waits for the other host, too."""


class Downloader:
    """Fetches images politely: one request per host at a time, with a pause, and longer pauses when asked to.

    Args:
        pause: Seconds between two requests to the same host (default: 1, or $SHIFTBENCH_DOWNLOAD_PAUSE).
        contact: Whom the owner of a host can write to; sent with every request.
        sleep: Waits for some seconds.
    """

    def __init__(
        self, pause: float | None = None, contact: str = "", sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._pause = float(os.environ.get(PAUSE, "1")) if pause is None else pause
        self._sleep = sleep
        self._agent = f"shiftbench/{__version__}" + (f" ({contact})" if contact.isascii() and contact else "")
        self._opener = urllib.request.build_opener(_NoRedirects)
        self._locks: dict[str, threading.Lock] = defaultdict(threading.Lock)
        self._next: dict[str, float] = defaultdict(float)  # when the host may be asked again

    def __call__(self, url: str) -> bytes:
        """The bytes of an image; BadImageError with the reason if it cannot be fetched."""
        target = url
        try:
            for _ in range(_REDIRECTS):
                found = self._asked(target)
                if isinstance(found, bytes):
                    return found
                target = urljoin(target, found)
        except (OSError, ValueError, HTTPException) as error:
            raise bad_image(url, str(getattr(error, "reason", error))) from error
        raise bad_image(url, "too many redirects")

    def _asked(self, url: str) -> bytes | str:
        """What is at an address, or the address that it redirects to; a busy host is asked again."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https"):
            raise ValueError("not an http or https address")
        if parts.path.endswith("/photo_unavailable.png"):  # Flickr's image for deleted ones
            raise ValueError("no longer available")
        path, query = (quote(part, safe=string.punctuation) for part in (parts.path, parts.query))
        address, host = parts._replace(path=path, query=query).geturl(), f"{parts.hostname}:{parts.port}"
        with self._locks[host]:
            for attempt in range(_TRIES):
                wait = max(0.0, self._next[host] - time.monotonic())
                if wait > _LONGEST_WAIT:
                    raise ValueError(f"the host asks to wait for {wait:.0f} s: import it again later")
                self._sleep(wait)
                pause = 0.0
                try:
                    return self._fetch(address)
                except urllib.error.HTTPError as error:
                    if error.code in _MOVED and error.headers.get("Location"):
                        return str(error.headers["Location"])
                    if error.code in _BUSY:
                        pause = _wished(error.headers.get("Retry-After", "")) or 2.0**attempt
                    if not pause or attempt == _TRIES - 1:
                        raise ValueError(f"HTTP {error.code}") from error
                except (OSError, ValueError, HTTPException):
                    pause = 2.0**attempt
                    if attempt == _TRIES - 1:
                        raise
                finally:
                    self._next[host] = time.monotonic() + max(pause, self._pause)
        raise AssertionError("every attempt returns or raises")

    def _fetch(self, url: str) -> bytes:
        request, data = urllib.request.Request(url, headers={"User-Agent": self._agent}), bytearray()
        end = time.monotonic() + _LONGEST_WAIT
        with self._opener.open(request, timeout=_SECONDS) as answer:
            while len(data) <= MAX_BYTES and (part := answer.read1(MAX_BYTES + 1 - len(data))):
                data += part
                if time.monotonic() > end:
                    raise bad_image(url, f"incomplete after {_LONGEST_WAIT:.0f} s")
            expected = answer.headers.get("Content-Length", "")
        if expected.isdigit() and len(data) < min(int(expected), MAX_BYTES + 1):
            raise ValueError(f"{len(data):,} of {int(expected):,} bytes arrived")
        return bytes(data)


def _wished(retry_after: str) -> float:
    """The seconds that a host asks for, as a number or a date; 0 if it asks for none."""
    if retry_after.isdigit():
        return float(retry_after)
    when = parsedate_tz(retry_after)
    return max(0.0, mktime_tz(when) - time.time()) if when else 0.0


@image_sources.register("urls")
def urls(target: str, project: Project) -> Iterator[Offer]:
    """Images by URL: urls:FILE (.csv, .tsv, .jsonl, .json or .txt)."""

    def read(record: Record) -> tuple[str, str, Record]:
        url = next((str(record[field]) for field in _IMAGE_FIELDS if record.get(field)), "")
        return str(record.get("id") or url), url, record

    return _offers(target, project, read)


@image_sources.register("flickr")
def flickr(target: str, project: Project) -> Iterator[Offer]:
    """Images of saved answers of Flickr's search: flickr:FILE.json."""

    def read(record: Record) -> tuple[str, str, Record]:
        number, owner, uploaded = (str(record.get(field, "")) for field in ("id", "owner", "dateupload"))
        licence = str(record.get("license", ""))
        known = licence.isdigit() and int(licence) < len(_FLICKR_LICENCES)
        url = next((str(record[size]) for size in _FLICKR_SIZES if record.get(size)), "")
        if not url and record.get("secret"):
            url = f"https://live.staticflickr.com/{record['server']}/{number}_{record['secret']}.jpg"
        details = {
            "date": record.get("datetaken"),
            "uploaded": datetime.fromtimestamp(int(uploaded), UTC).isoformat() if uploaded.isdigit() else uploaded,
            "licence": _FLICKR_LICENCES[int(licence)] if known else licence and f"Flickr licence {licence}",
            "author": record.get("ownername") or owner,
            "url": f"https://www.flickr.com/photos/{owner}/{number}" if owner else None,
            "query": record.get("query"),
            "title": record.get("title"),
        }
        return number, url, details

    return _offers(target, project, read)


@image_sources.register("inaturalist")
def inaturalist(target: str, project: Project) -> Iterator[Offer]:
    """Images of an export of iNaturalist observations: inaturalist:FILE.csv."""

    def read(record: Record) -> tuple[str, str, Record]:
        details = {
            "date": record.get("observed_on"),
            "licence": record.get("license") or "All rights reserved",
            "author": record.get("user_name") or record.get("user_login"),
            "url": record.get("url"),
            "keyword": record.get("scientific_name"),
        }
        return str(record.get("id", "")), str(record.get("image_url") or ""), details

    return _offers(target, project, read, ("scientific_name", "common_name"))


def _offers(
    target: str,
    project: Project,
    read: Callable[[Record], tuple[str, str, Record]],
    names: tuple[str, ...] = (),
) -> Iterator[Offer]:
    """``read`` gives the id, the address and the metadata of a record; ``names`` are further fields with a class."""
    download = Downloader(contact=project.configuration.instructions.contact)
    classes = {word.lower(): one.key for one in project.configuration.classes for word in (one.title, one.key)}
    for record in _records(Path(target), project):
        number, url, details = read(record)
        wanted = [str(record.get(field) or "").lower() for field in (*_CLASS_FIELDS, *names)]
        key = next((classes[word] for word in wanted if word in classes), None)
        yield Offer(number or url, partial(download, url), key, {**details, "image_url": url})


def _records(path: Path, project: Project) -> Iterator[Record]:
    if path.is_dir():
        for below in sorted(path.iterdir()):
            folder = {"class": below.name} if below.is_dir() and below.name in project.space else {}
            yield from ({**folder, **record} for record in _records(below, project))
        return
    try:
        text = path.read_text(encoding="utf-8-sig")
        readers: dict[str, Callable[[], Iterator[Record]]] = {
            ".txt": lambda: ({"url": line.strip()} for line in text.splitlines() if line.strip()),
            ".csv": lambda: iter(csv.DictReader(text.splitlines())),
            ".tsv": lambda: iter(csv.DictReader(text.splitlines(), delimiter="\t")),
            ".jsonl": lambda: (json.loads(line) for line in text.splitlines() if line.strip()),
            ".json": lambda: _documents(json.loads(text.strip().removeprefix("jsonFlickrApi(").removesuffix(")"))),
        }
        if path.suffix.lower() not in readers:
            raise WorkshopError(f"cannot read {path}", found=path.suffix or "no suffix", expected=" ".join(readers))
        yield from readers[path.suffix.lower()]()
    except (OSError, ValueError) as error:
        raise WorkshopError(f"cannot read {path}", found=str(error), expected="a list of images") from error


def _documents(value: object) -> Iterator[Record]:
    """The records of a list, or of one or several answers ``{"photos": {"photo": [...]}, "class": ..., "query": ...}``;
    what an answer states applies to its records."""
    if isinstance(value, list):
        for one in value:
            yield from _documents(one)
    elif isinstance(value, Mapping) and isinstance(value.get("photos"), Mapping):
        common = {key: value[key] for key in ("class", "query") if key in value}
        yield from ({**common, **photo} for photo in value["photos"].get("photo", ()))
    elif isinstance(value, Mapping):
        yield value
    else:
        raise ValueError(f"expected an object, found {type(value).__name__}")
