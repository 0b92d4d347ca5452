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
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import mktime_tz, parsedate_tz
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urljoin, urlsplit

from shiftbench import __version__
from shiftbench.extend.datasets import bad_image
from shiftbench.testsets.errors import WorkshopError
from shiftbench.testsets.pool.images import MAX_BYTES
from shiftbench.testsets.pool.sources import Offer, image_sources

if TYPE_CHECKING:
    from shiftbench.testsets.project import Project

#: A line of a list, or an object of a JSON document.
Record = Mapping[str, Any]
#: The environment variable with the seconds between two requests to the same host.
PAUSE = "SHIFTBENCH_DOWNLOAD_PAUSE"
#: Seconds until a connection without data is given up.
_TIMEOUT = 60
#: Attempts per address.
_ATTEMPTS = 4
#: Seconds that a host may ask to wait, or that an image may take.
_LONGEST_WAIT = 300.0
#: Redirects that are followed.
_MAX_REDIRECTS = 5
#: HTTP status codes of redirects, and those after which it is worth asking again.
_REDIRECTED = (301, 302, 303, 307, 308)
_BUSY = (429, 500, 502, 503, 504)
#: Fields of a record that may hold the class, and the address of the image; the first that is not empty counts.
_CLASS_FIELDS = ("class", "label", "class_key", "wnid")
_IMAGE_FIELDS = ("image_url", "url")
#: Flickr's sizes, beginning with 1,024 pixels; the original may be much larger.
_FLICKR_SIZES = ("url_l", "url_c", "url_z", "url_m", "url_o")
#: Flickr's licences by number.
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
        self._agent = f"shiftbench/{__version__}"
        if contact and contact.isascii():
            self._agent += f" ({contact})"
        self._opener = urllib.request.build_opener(_NoRedirects)
        self._locks: dict[str, threading.Lock] = defaultdict(threading.Lock)
        #: When each host may be asked again.
        self._next: dict[str, float] = defaultdict(float)

    def __call__(self, url: str) -> bytes:
        """The bytes of an image; BadImageError with the reason if it cannot be fetched."""
        address = url
        try:
            for _ in range(_MAX_REDIRECTS):
                answer = self._asked(address)
                if isinstance(answer, bytes):
                    return answer
                address = urljoin(address, answer)
        except (OSError, ValueError, HTTPException) as error:
            raise bad_image(url, str(getattr(error, "reason", error))) from error
        raise bad_image(url, "too many redirects")

    def _asked(self, url: str) -> bytes | str:
        """What is at an address, or the address that it redirects to; a busy host is asked again."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https"):
            raise ValueError("not an http or https address")
        if parts.path.endswith("/photo_unavailable.png"):  # Flickr shows this image for deleted ones.
            raise ValueError("no longer available")
        path = quote(parts.path, safe=string.punctuation)
        query = quote(parts.query, safe=string.punctuation)
        address = parts._replace(path=path, query=query).geturl()
        host = f"{parts.hostname}:{parts.port}"
        with self._locks[host]:
            for attempt in range(_ATTEMPTS):
                answer = self._attempt(address, host, attempt)
                if answer is not None:
                    return answer
        raise AssertionError("the last attempt returns or raises")

    def _attempt(self, address: str, host: str, attempt: int) -> bytes | str | None:
        """As :meth:`_asked`, once; None if it is worth asking again. The last attempt raises instead."""
        wait = max(0.0, self._next[host] - time.monotonic())
        if wait > _LONGEST_WAIT:
            raise ValueError(f"the host asks to wait for {wait:.0f} s: import it again later")
        self._sleep(wait)
        last = attempt == _ATTEMPTS - 1
        pause = 0.0
        try:
            return self._fetch(address)
        except urllib.error.HTTPError as error:
            if error.code in _REDIRECTED and error.headers.get("Location"):
                return str(error.headers["Location"])
            if error.code in _BUSY:
                pause = _seconds_to_wait(error.headers.get("Retry-After", "")) or 2.0**attempt
            if last or not pause:
                raise ValueError(f"HTTP {error.code}") from error
        except (OSError, ValueError, HTTPException):
            pause = 2.0**attempt
            if last:
                raise
        finally:
            self._next[host] = time.monotonic() + max(pause, self._pause)
        return None

    def _fetch(self, url: str) -> bytes:
        """The body of an answer; raises if it is incomplete, or takes too long. Stops above ``MAX_BYTES``."""
        request = urllib.request.Request(url, headers={"User-Agent": self._agent})
        data = bytearray()
        end = time.monotonic() + _LONGEST_WAIT
        with self._opener.open(request, timeout=_TIMEOUT) as answer:
            while len(data) <= MAX_BYTES and (chunk := answer.read1(MAX_BYTES + 1 - len(data))):
                data += chunk
                if time.monotonic() > end:
                    raise bad_image(url, f"incomplete after {_LONGEST_WAIT:.0f} s")
            length = answer.headers.get("Content-Length", "")
        if length.isdigit() and len(data) < min(int(length), MAX_BYTES + 1):
            raise ValueError(f"{len(data):,} of {int(length):,} bytes arrived")
        return bytes(data)


def _seconds_to_wait(retry_after: str) -> float:
    """The seconds that a host asks for, as a number or a date; 0 if it asks for none."""
    if retry_after.isdigit():
        return float(retry_after)
    moment = parsedate_tz(retry_after)
    if moment is None:
        return 0.0
    return max(0.0, mktime_tz(moment) - time.time())


@dataclass(frozen=True)
class _WebImage:
    """What a record says about an image."""

    #: What identifies it at its source; may be empty.
    id: str
    #: The address of the file.
    url: str
    #: Metadata, by the names of ``sources.COLUMNS`` or any other.
    details: Record


@image_sources.register("urls")
def urls(target: str, project: Project) -> Iterator[Offer]:
    """Images by URL: urls:FILE (.csv, .tsv, .jsonl, .json or .txt)."""
    return _offers(target, project, _listed_image)


def _listed_image(record: Record) -> _WebImage:
    url = _first_value(record, _IMAGE_FIELDS)
    return _WebImage(str(record.get("id") or url), url, record)


def _first_value(record: Record, fields: Iterable[str]) -> str:
    """The value of the first of these fields that is not empty, or ""."""
    for field in fields:
        if record.get(field):
            return str(record[field])
    return ""


@image_sources.register("flickr")
def flickr(target: str, project: Project) -> Iterator[Offer]:
    """Images of saved answers of Flickr's search: flickr:FILE.json."""
    return _offers(target, project, _flickr_image)


def _flickr_image(record: Record) -> _WebImage:
    photo = str(record.get("id", ""))
    owner = str(record.get("owner", ""))
    url = _first_value(record, _FLICKR_SIZES)
    if not url and record.get("secret"):
        url = f"https://live.staticflickr.com/{record['server']}/{photo}_{record['secret']}.jpg"
    uploaded = str(record.get("dateupload", ""))
    if uploaded.isdigit():
        uploaded = datetime.fromtimestamp(int(uploaded), UTC).isoformat()
    details = {
        "date": record.get("datetaken"),
        "uploaded": uploaded,
        "licence": _flickr_licence(str(record.get("license", ""))),
        "author": record.get("ownername") or owner,
        "url": f"https://www.flickr.com/photos/{owner}/{photo}" if owner else None,
        "query": record.get("query"),
        "title": record.get("title"),
    }
    return _WebImage(photo, url, details)


def _flickr_licence(number: str) -> str:
    """The name of a licence by Flickr's number; "" if a record states none."""
    if not number:
        return ""
    if number.isdigit() and int(number) < len(_FLICKR_LICENCES):
        return _FLICKR_LICENCES[int(number)]
    return f"Flickr licence {number}"


@image_sources.register("inaturalist")
def inaturalist(target: str, project: Project) -> Iterator[Offer]:
    """Images of an export of iNaturalist observations: inaturalist:FILE.csv."""
    return _offers(target, project, _observed_image, ("scientific_name", "common_name"))


def _observed_image(record: Record) -> _WebImage:
    details = {
        "date": record.get("observed_on"),
        "licence": record.get("license") or "All rights reserved",
        "author": record.get("user_name") or record.get("user_login"),
        "url": record.get("url"),
        "keyword": record.get("scientific_name"),
    }
    return _WebImage(str(record.get("id", "")), str(record.get("image_url") or ""), details)


def _offers(
    target: str,
    project: Project,
    read: Callable[[Record], _WebImage],
    names: tuple[str, ...] = (),
) -> Iterator[Offer]:
    """The images of all records; ``names`` are further fields with a class."""
    download = Downloader(contact=project.configuration.instructions.contact)
    class_by_word = {}
    for definition in project.configuration.classes:
        class_by_word[definition.title.lower()] = definition.key
        class_by_word[definition.key.lower()] = definition.key
    for record in _records(Path(target), project):
        image = read(record)
        class_key = None
        for field in (*_CLASS_FIELDS, *names):
            class_key = class_by_word.get(str(record.get(field) or "").lower())
            if class_key is not None:
                break
        details = {**image.details, "image_url": image.url}
        yield Offer(image.id or image.url, partial(download, image.url), class_key, details)


def _records(path: Path, project: Project) -> Iterator[Record]:
    """The records of a file, or of all files below a folder; the name of a class folder is the class of its records."""
    if path.is_dir():
        for child in sorted(path.iterdir()):
            common = {"class": child.name} if child.is_dir() and child.name in project.space else {}
            for record in _records(child, project):
                yield {**common, **record}
        return
    suffix = path.suffix.lower()
    try:
        text = path.read_text(encoding="utf-8-sig")
        if suffix not in _READERS:
            raise WorkshopError(f"cannot read {path}", found=path.suffix or "no suffix", expected=" ".join(_READERS))
        yield from _READERS[suffix](text)
    except (OSError, ValueError) as error:
        raise WorkshopError(f"cannot read {path}", found=str(error), expected="a list of images") from error


def _url_lines(text: str) -> Iterator[Record]:
    return ({"url": line.strip()} for line in text.splitlines() if line.strip())


def _comma_separated(text: str) -> Iterator[Record]:
    return iter(csv.DictReader(text.splitlines()))


def _tab_separated(text: str) -> Iterator[Record]:
    return iter(csv.DictReader(text.splitlines(), delimiter="\t"))


def _json_lines(text: str) -> Iterator[Record]:
    return (json.loads(line) for line in text.splitlines() if line.strip())


def _json_document(text: str) -> Iterator[Record]:
    """Flickr's answers are wrapped in a function call unless the caller asked for plain JSON."""
    return _documents(json.loads(text.strip().removeprefix("jsonFlickrApi(").removesuffix(")")))


#: What reads the records of a file, by its suffix.
_READERS: dict[str, Callable[[str], Iterator[Record]]] = {
    ".txt": _url_lines,
    ".csv": _comma_separated,
    ".tsv": _tab_separated,
    ".jsonl": _json_lines,
    ".json": _json_document,
}


def _documents(value: object) -> Iterator[Record]:
    """The records of a list, or of one or several answers ``{"photos": {"photo": [...]}, "class": ..., "query": ...}``;
    what an answer states applies to its records."""
    if isinstance(value, list):
        for item in value:
            yield from _documents(item)
    elif isinstance(value, Mapping) and isinstance(value.get("photos"), Mapping):
        common = {key: value[key] for key in ("class", "query") if key in value}
        for photo in value["photos"].get("photo", ()):
            yield {**common, **photo}
    elif isinstance(value, Mapping):
        yield value
    else:
        raise ValueError(f"expected an object, found {type(value).__name__}")
