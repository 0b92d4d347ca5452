"""Public result tables, downloaded into the cache: the ImageNet testbed's and timm's."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from shiftbench.errors import ShiftbenchError, check_names
from shiftbench.io.cache import cache_folder
from shiftbench.io.downloads import fetch
from shiftbench.io.locks import file_lock

#: A longer file is not one of these tables.
_MOST_BYTES = 100_000_000


@dataclass(frozen=True)
class Source:
    """A set of public files: where they are, and the hashes of the version that this package was tested with."""

    url: str
    #: File name to SHA-256; "" where no version is known.
    files: dict[str, str]
    #: Whether the address belongs to one version for ever, so that a file with another hash is damaged.
    fixed: bool = False


@dataclass(frozen=True)
class Downloaded:
    """One file in the cache."""

    path: Path
    #: Whether it is the version that this package was tested with; None if no version is known.
    verified: bool | None
    #: Whether it was in the cache before.
    already: bool


@cache
def sources() -> dict[str, Source]:
    """The public tables by name."""
    text = files("shiftbench.published").joinpath("data", "downloads.toml").read_text(encoding="utf-8")
    return {name: Source(**entry) for name, entry in tomllib.loads(text).items()}


def download(
    name: str, *, url: str | None = None, again: bool = False, progress: Callable[[str], None] | None = None
) -> list[Downloaded]:
    """The files of a source (see ``sources``) in the cache; a file that is there already is fetched only ``again``.

    ``url`` is the folder of a mirror; ``progress`` is called with the name of each file before it is fetched. A file
    of a fixed version whose hash is another raises an error.
    """
    check_names("public table", [name], sources())
    source = sources()[name]
    folder = cache_folder("baselines", name)
    base_url = (url or source.url).rstrip("/")
    downloaded = []
    with file_lock(folder / ".lock", wait=True):
        for file, tested_digest in source.files.items():
            target = folder / file
            already = target.is_file() and not again
            if not already:
                if progress is not None:
                    progress(file)
                fetch(f"{base_url}/{file}", target, most_bytes=_MOST_BYTES)
            digest = _digest(target)
            if source.fixed and digest != tested_digest:
                hint = "try again with --again; a copy from elsewhere (--from) must be the same file"
                raise ShiftbenchError(
                    f"{target} does not match its hash", found=digest, expected=tested_digest, hint=hint
                )
            verified = digest == tested_digest if tested_digest else None
            downloaded.append(Downloaded(target, verified, already))
    return downloaded


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
