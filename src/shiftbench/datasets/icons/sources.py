"""Where the icons come from: registry packages, each with one vendor's drawings of one time (``sources.csv``).

The packages are fetched by the ordinary clients and pinned by their hashes. The
images belong to their owners: they are for the user's own experiments, are not part of this project and must not be
passed on where the licence does not allow it. The styles of the group ``open`` have a licence that does.

Archives are read without unpacking them. Nothing is written, and names in an archive never become paths: file names
come from the table of classes. Links, folders and other members are skipped; an archive that is too large when
unpacked is rejected.
"""

from __future__ import annotations

import csv
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib import resources
from pathlib import Path

from shiftbench.datasets.registry_packages import Package
from shiftbench.errors import DatasetError, UnknownNameError

#: Two choices of packages: those of npm and PyPI together, and those that PyPI alone carries (two styles).
FULL, OFFLINE = "full", "offline"


@dataclass(frozen=True)
class IconSource:
    """One package's drawings: a rendition of a style."""

    style: str
    #: Counts the renditions of a style from the oldest, as the original's file names do.
    rendition: int
    #: What the vendor calls these drawings, or the package's version.
    version: str
    package: Package
    #: The folder in the package and the ending of its images; for ``iconify`` the file that holds them all.
    folder: str
    suffix: str
    #: How the package names its images: by ``codepoints``, by ``aliases``, or by words in one file (``iconify``).
    naming: str
    licence: str
    #: Whether the licence lets anyone show and pass on the images.
    is_open: bool
    holder: str
    variants: frozenset[str]
    #: Patterns of names (of subtypes, where the package has codepoints only) that the package has and the style has
    #: not: Microsoft draws no country flags, what is called a wave here is one of the sea.
    not_meant: frozenset[str] = frozenset()

    def means(self, name: str) -> bool:
        """Whether an image of that name is the icon that it seems to be."""
        return not any(fnmatchcase(name, pattern) for pattern in self.not_meant)


@cache
def all_sources() -> tuple[IconSource, ...]:
    text = resources.files("shiftbench.datasets.icons").joinpath("sources.csv").read_text(encoding="utf-8")
    return tuple(_source(row) for row in csv.DictReader(text.splitlines()))


def _source(row: dict[str, str]) -> IconSource:
    return IconSource(
        row["style"],
        int(row["rendition"]),
        row["version"],
        Package(row["registry"], row["package"], row["release"], row["file"], row["sha256"]),
        row["folder"],
        row["suffix"],
        row["naming"],
        row["licence"],
        row["open"] == "yes",
        row["holder"],
        frozenset(row["variants"].split()),
        frozenset(row["not_meant"].split()),
    )


def style_names(*, open_only: bool = False) -> tuple[str, ...]:
    """All styles, or those of which every rendition has an open licence.

    >>> style_names(open_only=True)
    ('google', 'microsoft', 'mozilla', 'openmoji', 'twitter')
    """
    full = [source for source in all_sources() if FULL in source.variants]
    closed = {source.style for source in full if not source.is_open}
    return tuple(dict.fromkeys(s.style for s in full if not (open_only and s.style in closed)))


def choose_sources(styles: str | Iterable[str] = "all") -> tuple[str, tuple[IconSource, ...]]:
    """The variant, and its sources of the styles: ``all``, ``open``, ``offline`` (PyPI only), or names, with commas.

    >>> variant, chosen = choose_sources("google")
    >>> variant, [source.version for source in chosen]
    ('full', ['3.0.0', '4.0.4', '16.0.0'])
    """
    if styles == OFFLINE:
        return OFFLINE, tuple(source for source in all_sources() if OFFLINE in source.variants)
    if isinstance(styles, str):
        groups = {"all": style_names(), "open": style_names(open_only=True)}
        styles = groups.get(styles) or [name.strip() for name in styles.split(",") if name.strip()]
    wanted = set(styles)
    if not wanted:
        raise DatasetError("no style given", expected=f"all, open, offline, or some of {', '.join(style_names())}")
    for name in sorted(wanted - set(style_names())):
        raise UnknownNameError("style of icons", name, ["all", "open", OFFLINE, *style_names()])
    return FULL, tuple(s for s in all_sources() if FULL in s.variants and s.style in wanted)


#: Limits on the size of a member, on their total size, and on their number. The largest package has
#: 8,000 members of 150 MB together.
MAX_MEMBER_BYTES = 16 * 2**20
MAX_TOTAL_BYTES = 2**30
MAX_MEMBERS = 100_000
Wanted = Callable[[str], bool]


def read_members(archive: Path, wanted: Wanted) -> Iterator[tuple[str, bytes]]:
    """Name and bytes of each regular file that is ``wanted``, in the archive's order."""
    reader = _zip_members if zipfile.is_zipfile(archive) else _tar_members
    try:
        yield from reader(archive, wanted)
    except (OSError, EOFError, zipfile.BadZipFile, tarfile.TarError, NotImplementedError, RuntimeError) as error:
        raise DatasetError(
            f"{archive.name} can't be read", found=error, hint="delete it; it is fetched again"
        ) from error


def _tar_members(archive: Path, wanted: Wanted) -> Iterator[tuple[str, bytes]]:
    total = 0
    with tarfile.open(archive, "r|*") as opened:  # a stream: a compressed tar has no index
        for count, entry in enumerate(opened, start=1):
            total += entry.size
            _check_totals(archive, count, total)
            if not entry.isreg() or not wanted(entry.name):
                continue
            _check_member(archive, entry.name, entry.size)
            stream = opened.extractfile(entry)
            if stream is not None:
                yield entry.name, stream.read()


def _zip_members(archive: Path, wanted: Wanted) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(archive) as opened:
        infos = opened.infolist()
        _check_totals(archive, len(infos), sum(info.file_size for info in infos))
        for info in infos:
            if info.is_dir() or not wanted(info.filename):
                continue
            with opened.open(info) as stream:
                data = stream.read(MAX_MEMBER_BYTES + 1)  # the size in the directory may be wrong
            _check_member(archive, info.filename, len(data))
            yield info.filename, data


def _check_totals(archive: Path, members: int, total: int) -> None:
    if members > MAX_MEMBERS or total > MAX_TOTAL_BYTES:
        raise DatasetError(
            f"{archive.name} holds more than a package of icons",
            found=f"{members:,} members, {total:,} bytes",
            expected=f"up to {MAX_MEMBERS:,} members and {MAX_TOTAL_BYTES:,} bytes",
        )


def _check_member(archive: Path, name: str, size: int) -> None:
    if size > MAX_MEMBER_BYTES:
        raise DatasetError(
            f"{name} in {archive.name} is too large for an icon",
            found=f"{size:,} bytes or more",
            expected=f"up to {MAX_MEMBER_BYTES:,}",
        )
