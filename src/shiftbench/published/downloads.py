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

_MOST_BYTES = 100_000_000


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
                fetch(f"{(url or source.url).rstrip('/')}/{file}", target, most_bytes=_MOST_BYTES)
            digest = _digest(target)
            if source.fixed and digest != known:
                hint = "try again with --again; a copy from elsewhere (--from) must be the same file"
                raise ShiftbenchError(f"{target} does not match its hash", found=digest, expected=known, hint=hint)
            found.append(Downloaded(target, digest == known if known else None, already))
    return found


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
