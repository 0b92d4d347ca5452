"""Public result tables, downloaded into the cache: the ImageNet testbed's and timm's."""

from __future__ import annotations

import hashlib
import tomllib
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from importlib.resources import files
from pathlib import Path
from urllib.error import HTTPError

from shiftbench.errors import ShiftbenchError, check_names
from shiftbench.io.cache import cache_folder
from shiftbench.io.locks import file_lock

_MOST_BYTES = 100_000_000
_SECONDS = 30
_PIECE = 1 << 16


@dataclass(frozen=True)
class Source:
    """A set of public files: where they are, and the hashes of the version that this package was tested with."""

    url: str
    #: File name to SHA-256; "" where no version is known.
    files: dict[str, str]
    #: Whether the address is of one version for ever, so that a file with another hash is damaged.
    fixed: bool = False


@dataclass(frozen=True)
class Downloaded:
    """One file in the cache."""

    path: Path
    #: Whether it is the version that this package was tested with; None if no version is known.
    verified: bool | None
    already: bool


@cache
def sources() -> dict[str, Source]:
    text = files("shiftbench.published").joinpath("data", "downloads.toml").read_text(encoding="utf-8")
    return {name: Source(**one) for name, one in tomllib.loads(text).items()}


def download(
    name: str, *, url: str | None = None, again: bool = False, progress: Callable[[str], None] | None = None
) -> list[Downloaded]:
    """The files of a source (see ``sources``) in the cache; those that are there are fetched only ``again``.

    ``url`` is the folder of a mirror; ``progress`` is called with the name of each file before it is fetched.
    """
    check_names("public table", [name], sources())
    source = sources()[name]
    folder = cache_folder("baselines", name)
    found = []
    with file_lock(folder / ".lock", wait=True):
        for file, known in source.files.items():
            target = folder / file
            already = target.is_file() and not again
            if not already:
                if progress is not None:
                    progress(file)
                _fetch(f"{(url or source.url).rstrip('/')}/{file}", target)
            digest = _digest(target)
            if source.fixed and digest != known:
                hint = "try again with --again; a copy from elsewhere (--from) must be the same file"
                raise ShiftbenchError(f"{target} does not match its hash", found=digest, expected=known, hint=hint)
            found.append(Downloaded(target, digest == known if known else None, already))
    return found


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _fetch(url: str, target: Path) -> None:
    """Into ``.part`` first; what an interrupted download left there is continued if its ETag, kept beside it, is still
    the server's: otherwise it is of another version."""
    part, tag = (target.with_name(f"{target.name}.{suffix}") for suffix in ("part", "etag"))
    left = tag.read_text(encoding="utf-8") if tag.exists() and part.exists() else ""
    start = part.stat().st_size if left else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={start}-", "If-Range": left} if start else {})
    try:
        if not url.startswith(("https://", "http://")):
            raise ValueError(f"unsupported address {url}")
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
            version = answer.headers.get("ETag", "")
            resumed = start > 0 and answer.status == HTTPStatus.PARTIAL_CONTENT
            if resumed and version != left:
                tag.unlink()
                _fetch(url, target)
                return
            # A weak tag does not stand for the same bytes.
            tag.write_text("" if version.startswith("W/") else version, encoding="utf-8")
            received, expected = 0, answer.headers.get("Content-Length")
            with part.open("ab" if resumed else "wb") as file:
                while piece := answer.read(_PIECE):
                    received += len(piece)
                    if received + (start if resumed else 0) > _MOST_BYTES:
                        raise ValueError(f"more than {_MOST_BYTES:,} bytes")
                    file.write(piece)
            if expected is not None and received != int(expected):
                raise ValueError(f"{received:,} of {int(expected):,} bytes arrived")
    except (OSError, ValueError) as error:
        if start and isinstance(error, HTTPError) and error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            tag.unlink()  # nothing is left to send: it is a whole file
            _fetch(url, target)
            return
        raise ShiftbenchError(
            f"{target.name} could not be downloaded",
            found=f"{url}: {getattr(error, 'reason', error)}",
            hint=f"rerun the same command when online; it resumes. Or put the file into {target.parent} yourself",
        ) from error
    part.replace(target)
    tag.unlink()
