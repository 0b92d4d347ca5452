"""Read images from a package's archive, one after the other, without unpacking it.

Nothing is written here, and names in the archive never become paths: file names come from the table of classes. Links,
folders and other members are skipped; an archive that is too large when unpacked is rejected.
"""

from __future__ import annotations

import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

from shiftbench.errors import DatasetError

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
