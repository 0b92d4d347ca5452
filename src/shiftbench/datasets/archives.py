"""Official archives that were not unpacked, or arrived in part. Members are counted, nothing is extracted."""

from __future__ import annotations

import re
import tarfile
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

from shiftbench.datasets.folder import EXTENSIONS
from shiftbench.datasets.official import OFFICIAL, DataReport

_SUFFIXES = (".tar.gz", ".tgz", ".tar", ".zip")
#: Archives of what is no tree of class folders, by name: title, role, where it comes from.
_OTHERS = {
    r"objectnet.*": ("ObjectNet", "objectnet", "objectnet.dev, a zip file whose password is on the download page"),
    r"cifar-10-(python|binary)": ("CIFAR-10", "cifar-10", "Alex Krizhevsky's page at cs.toronto.edu"),
    r"cifar-100-(python|binary)": ("CIFAR-100", "cifar-100", "Alex Krizhevsky's page at cs.toronto.edu"),
    r"cifar-10-c": ("CIFAR-10-C", "cifar-10-c", "Zenodo, CIFAR-10-C"),
    r"noise|blur|weather|digital|extra": ("ImageNet-C", "imagenet-c", "Zenodo, record 2235448"),
}
_BLOCK = 512


@dataclass(frozen=True)
class _Contents:
    pictures: int
    #: In words, where the file ends before the archive does.
    cut_off: str | None = None


def check_archive(path: Path) -> DataReport | None:
    """An official archive by its name: it has to be unpacked, and to be whole."""
    suffix = next((ending for ending in _SUFFIXES if path.name.casefold().endswith(ending)), None)
    if suffix is None or not path.is_file():
        return None
    name = path.name.casefold().removesuffix(suffix).replace("_", "-")
    known = _official(name)
    if known is None:
        return None
    title, role, home = known
    contents = _zip_contents(path) if suffix == ".zip" else _tar_contents(path)
    if contents is None:
        return None
    report = DataReport(str(path), title, f"an archive, {suffix[1:]}", role, images=contents.pictures, home=home)
    if contents.cut_off:
        report.missing.append(f"the rest of the archive: {contents.cut_off}; get it again")
    else:
        command = f"unzip {path.name}" if suffix == ".zip" else f"tar -xf {path.name}"
        report.missing.append(f"the folder: the archive is not unpacked; {command}, then name the folder")
    return report


def _official(name: str) -> tuple[str, str, str] | None:
    for candidate in OFFICIAL:
        if re.fullmatch(candidate.named, name):
            return candidate.title, candidate.role, candidate.home
    return next((about for pattern, about in _OTHERS.items() if re.fullmatch(pattern, name)), None)


def _tar_contents(path: Path) -> _Contents | None:
    """Member by member; None for a shard of samples, which happens to have an official name."""
    pictures, last = 0, "no file at all"
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                if member.name.endswith(".cls"):
                    return None
                pictures += member.isfile() and member.name.lower().endswith(EXTENSIONS)
                last = member.name
            if path.suffix.casefold() == ".tar" and path.stat().st_size < archive.offset + _BLOCK:
                return _Contents(pictures, f"it ends after {last}")  # an empty block marks a tar file's end
    except (tarfile.TarError, EOFError, zlib.error, OSError):
        return _Contents(pictures, f"it ends inside or after {last}")
    return _Contents(pictures)


def _zip_contents(path: Path) -> _Contents:
    """A zip file has its table at the end: without it the file was cut off."""
    try:
        with zipfile.ZipFile(path) as archive:
            return _Contents(sum(name.lower().endswith(EXTENSIONS) for name in archive.namelist()))
    except (zipfile.BadZipFile, OSError):
        return _Contents(0, "its table of contents, which stands at the end, is not there")
