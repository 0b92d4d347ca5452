"""Files from the web: downloads that resume, and copies of models and tables in the cache."""

from __future__ import annotations

import hashlib
import json
import urllib.request
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlsplit

from shiftbench.errors import ShiftbenchError, warn_user
from shiftbench.io.cache import cache_folder, local_copy, mark_used, trim_cache
from shiftbench.io.locks import file_lock
from shiftbench.io.paths import SCHEMES, ObjectPath

#: Larger models and tables are not fetched by URL.
MOST_BYTES = 10_000_000_000
_TIMEOUT_SECONDS = 30
#: Bytes that are read from a connection at a time.
_PIECE = 1 << 16
#: Hosts that are this machine, so that nobody can listen in between.
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class DownloadError(ShiftbenchError):
    """A file could not be fetched from its address."""


@dataclass(frozen=True)
class LocalCopy:
    """A copy of a file on this machine."""

    path: Path
    url: str
    sha256: str

    def __str__(self) -> str:
        return f"{without_secrets(self.url)} (SHA-256 {self.sha256})"


def is_web_address(text: object) -> bool:
    """Whether a text is the address of a file on the web."""
    return isinstance(text, str) and text.lower().startswith(("https://", "http://"))


def is_address(text: object) -> bool:
    """Whether a text is the address of a file on the web or in an object store, not a path."""
    stores = tuple(f"{scheme}://" for scheme in SCHEMES)
    return is_web_address(text) or (isinstance(text, str) and text.startswith(stores))


def file_name(url: str) -> str:
    """The name of the file at an address, without a query, which may hold a token."""
    return PurePosixPath(unquote(urlsplit(url).path)).name


def without_secrets(url: str) -> str:
    """An address without user, password and query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def fetched(url: str) -> LocalCopy:
    """A copy of the file at an address in the cache; a file that has not changed is fetched once.

    Raises:
        DownloadError: The address is not encrypted, has no such file, or cannot be reached and was never fetched.
    """
    path = web_copy(url) if is_web_address(url) else _object_copy(url)
    with path.open("rb") as stream:
        sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
    return LocalCopy(path, url, sha256)


def _object_copy(url: str) -> Path:
    location = ObjectPath.parse(url)
    try:
        size = location.stat().st_size
    except FileNotFoundError:
        raise DownloadError(
            f"{url} was not found",
            found=missing_object(location),
            hint="check the spelling, and the endpoint and credentials (docs/workspace.md)",
        ) from None
    if size > MOST_BYTES:
        raise DownloadError(f"{url} is too large to be fetched", found=f"{size:,} bytes", expected=_limit(MOST_BYTES))
    local_copy.cache_clear()  # The object may have changed since it was fetched.
    return local_copy(location)


def missing_object(location: ObjectPath) -> str:
    """Which part of an address in an object store is wrong: the bucket, or what follows it."""
    bucket = location.parents[-1] if location.parents else location
    if not bucket.exists():
        return f"no bucket {bucket.parts[0]!r}"
    return f"nothing in the bucket {bucket.parts[0]!r} whose name is {location.relative_to(bucket)} or begins with it"


def web_copy(url: str) -> Path:
    """The file at a web address, in the cache."""
    _check_address(url)
    name = file_name(url)
    if not name:
        raise DownloadError(
            f"{without_secrets(url)} does not name a file", expected="an address that ends in the name of a file"
        )
    key = hashlib.blake2b(url.encode(), digest_size=12).hexdigest()
    folder = cache_folder("downloads", key)
    target = folder / name
    version_file = folder / "version.json"
    with file_lock(folder / ".lock", wait=True):
        try:
            version = _version(url)
        except DownloadError as error:
            if not target.is_file():
                raise
            warn_user(
                f"{without_secrets(url)} can't be reached ({error.found}); the copy that was fetched before is used"
            )
            return target
        fetched_version = None
        if version_file.is_file():
            fetched_version = json.loads(version_file.read_text(encoding="utf-8"))
        # A server that states nothing about the version may have changed the file.
        is_current = version == fetched_version and any(version.values())
        if not target.is_file() or not is_current:
            version_file.unlink(missing_ok=True)
            trim_cache()
            fetch(url, target)
            version_file.write_text(json.dumps(version), encoding="utf-8", newline="\n")
    mark_used(target)
    return target


def _version(url: str) -> dict[str, str | None]:
    """What tells one version of a file from the next; empty values where the server does not say."""
    names = ("ETag", "Last-Modified", "Content-Length")
    request = urllib.request.Request(url, method="HEAD")
    try:
        with _opened(request) as answer:
            return {name: answer.headers.get(name) for name in names}
    except HTTPError as error:
        if error.code in (HTTPStatus.NOT_FOUND, HTTPStatus.GONE):
            raise DownloadError(
                f"{without_secrets(url)} was not found", found=f"{error.code} {error.reason}"
            ) from error
        return dict.fromkeys(names)  # Signed addresses refuse HEAD requests, so the file itself is requested.
    except (OSError, ValueError) as error:
        reason = error.reason if isinstance(error, URLError) else error
        raise DownloadError(f"{without_secrets(url)} can't be reached", found=str(reason)) from error


def fetch(url: str, target: Path, *, most_bytes: int = MOST_BYTES) -> None:
    """Download a file; an interrupted download is continued if the server still has the same version.

    The bytes go into ``<name>.part`` first. The version is the ETag, which is kept beside that file.

    Raises:
        DownloadError: The address can't be reached, or the file is larger than ``most_bytes``.
    """
    partial = target.with_name(f"{target.name}.part")
    tag = target.with_name(f"{target.name}.etag")
    partial_version = ""
    start = 0
    if tag.exists() and partial.exists():
        partial_version = tag.read_text(encoding="utf-8")
        if partial_version:
            start = partial.stat().st_size
    try:
        if not is_web_address(url):
            raise ValueError("not a web address")
        with _opened(_range_request(url, start, partial_version)) as answer:
            version = answer.headers.get("ETag", "")
            is_resumed = start > 0 and answer.status == HTTPStatus.PARTIAL_CONTENT
            if is_resumed and version != partial_version:
                tag.unlink()
                fetch(url, target, most_bytes=most_bytes)
                return
            # A weak tag does not promise the same bytes, so such a download is never continued.
            is_weak = version.startswith("W/")
            tag.write_text("" if is_weak else version, encoding="utf-8", newline="\n")
            _receive(answer, partial, start if is_resumed else 0, most_bytes)
    except (OSError, ValueError) as error:
        if start and isinstance(error, HTTPError) and error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            # The server has no bytes after those that are here, so the whole file is fetched again.
            tag.unlink()
            fetch(url, target, most_bytes=most_bytes)
            return
        raise DownloadError(
            f"{target.name} could not be downloaded",
            found=f"{without_secrets(url)}: {getattr(error, 'reason', error)}",
            hint=f"rerun the same command when online; it resumes. Or put the file into {target.parent} yourself",
        ) from error
    partial.replace(target)
    tag.unlink()


def _range_request(url: str, start: int, version: str) -> urllib.request.Request:
    """A request for the bytes from ``start`` on, or for the whole file if it is no longer of this version."""
    if start == 0:
        return urllib.request.Request(url)
    return urllib.request.Request(url, headers={"Range": f"bytes={start}-", "If-Range": version})


def _receive(answer: Any, partial: Path, start: int, most_bytes: int) -> None:
    """Append what a server sends to a file that already has ``start`` bytes; raises ValueError if bytes are missing."""
    expected = answer.headers.get("Content-Length")
    if expected is not None and start + int(expected) > most_bytes:
        raise ValueError(f"{start + int(expected):,} bytes, which is {_limit(most_bytes, exceeded=True)}")
    received = 0
    with partial.open("ab" if start else "wb") as file:
        while piece := answer.read(_PIECE):
            received += len(piece)
            if start + received > most_bytes:
                raise ValueError(_limit(most_bytes, exceeded=True))
            file.write(piece)
    if expected is not None and received != int(expected):
        raise ValueError(f"{received:,} of {int(expected):,} bytes arrived")


def _opened(request: urllib.request.Request) -> Any:
    """The answer to a request; raises ValueError if encryption is lost by a redirection."""
    answer = urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS)
    if request.full_url.startswith("https://") and not answer.url.startswith("https://"):
        answer.close()
        raise ValueError(f"redirected to {without_secrets(answer.url)}, without encryption")
    return answer


def _check_address(url: str) -> None:
    """Raise DownloadError for an address with a password, or without encryption, except on this machine."""
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise DownloadError(
            "a URL must not contain a user name or password",
            found=without_secrets(url),
            expected=f"{parts.scheme}://HOST/FILE",
            hint="download the file, and name its path; or use a signed address, whose query is never shown",
        )
    if parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK):
        return
    raise DownloadError(
        f"{without_secrets(url)} is not fetched: others can exchange what is sent without encryption",
        found=f"{parts.scheme}://",
        expected="https://",
        hint="download the file, check it, and name its path",
    )


def _limit(most_bytes: int, *, exceeded: bool = False) -> str:
    return f"{'more than' if exceeded else 'at most'} {most_bytes:,} bytes"
