"""Archives of published datasets that were not unpacked or are incomplete. Members are counted, none is extracted."""

from __future__ import annotations

import re
import tarfile
import zipfile
import zlib
from itertools import islice

from shiftbench.datasets.base import Dataset
from shiftbench.datasets.folder import EXTENSIONS
from shiftbench.datasets.kind import DataReport, DatasetKind
from shiftbench.datasets.official import official_datasets
from shiftbench.errors import DatasetError
from shiftbench.io.paths import Location, place
from shiftbench.labels.space import AskedSpace

_SUFFIXES = (".tar.gz", ".tgz", ".tar", ".zip")
#: Archives of other layouts than class folders, by name: title, role, where it comes from.
_OTHERS = {
    r"objectnet.*": ("ObjectNet", "objectnet", "objectnet.dev, a zip file whose password is on the download page"),
    r"cifar-10-(python|binary)": ("CIFAR-10", "cifar-10", "Alex Krizhevsky's page at cs.toronto.edu"),
    r"cifar-100-(python|binary)": ("CIFAR-100", "cifar-100", "Alex Krizhevsky's page at cs.toronto.edu"),
    r"cifar-10-c": ("CIFAR-10-C", "cifar-10-c", "Zenodo, CIFAR-10-C"),
    r"noise|blur|weather|digital|extra": ("ImageNet-C", "imagenet-c", "Zenodo, record 2235448"),
}
_BLOCK = 512
_DAMAGED = (tarfile.TarError, EOFError, zlib.error, OSError)


def recognise_archive(path: Location) -> str | None:
    suffix, known = _suffix(path), _published(path)
    if known is None or not path.is_file() or (suffix != ".zip" and _is_shard(path)):
        return None
    return f"an archive, {suffix[1:]}"


def open_archive(path: str | Location, *, space: AskedSpace = None, name: str | None = None) -> Dataset:
    """The archive of a published dataset, which has to be unpacked first."""
    path = place(path)
    raise DatasetError(f"{path.name} is an archive", expected="the unpacked folder", hint=_command(path))


def check_archive(path: Location) -> DataReport | None:
    """Whether the archive is complete; it has to be unpacked in any case."""
    known = _published(path)
    if known is None:
        return None
    title, role, home = known
    suffix = _suffix(path)
    images, cut_off = _zip_contents(path) if suffix == ".zip" else _tar_contents(path)
    report = DataReport(str(path), title, f"an archive, {suffix[1:]}", role, images=images, home=home)
    if cut_off:
        report.missing.append(f"the rest of the archive: {cut_off}; download it again")
    else:
        report.missing.append(f"the folder: the archive is not unpacked; {_command(path)}, then name the folder")
    return report


KIND = DatasetKind(recognise_archive, open_archive, check_archive)


def _suffix(path: Location) -> str:
    return next((ending for ending in _SUFFIXES if path.name.casefold().endswith(ending)), "")


def _command(path: Location) -> str:
    return f"unzip {path.name}" if _suffix(path) == ".zip" else f"tar -xf {path.name}"


def _published(path: Location) -> tuple[str, str, str] | None:
    name = path.name.casefold().removesuffix(_suffix(path)).replace("_", "-")
    for candidate in official_datasets():
        if re.fullmatch(candidate.named, name):
            return candidate.title, candidate.role, candidate.home
    return next((about for pattern, about in _OTHERS.items() if re.fullmatch(pattern, name)), None)


def _is_shard(path: Location) -> bool:
    """Whether the first members are WebDataset samples, in a shard that happens to have the name of an archive."""
    try:
        with path.open("rb") as file, tarfile.open(fileobj=file) as archive:
            return any(member.name.endswith((".cls", ".json")) for member in islice(archive, 16))
    except _DAMAGED:
        return False


def _tar_contents(path: Location) -> tuple[int, str | None]:
    """The number of images, and where the archive ends if it is cut off."""
    images, last = 0, "no file at all"
    try:
        with path.open("rb") as file, tarfile.open(fileobj=file) as archive:
            for member in archive:
                images += member.isfile() and member.name.lower().endswith(EXTENSIONS)
                last = member.name
            if path.suffix.casefold() == ".tar" and path.stat().st_size < archive.offset + _BLOCK:
                return images, f"it ends after {last}"  # an empty block marks the end of a tar file
    except _DAMAGED:
        return images, f"it ends inside or after {last}"
    return images, None


def _zip_contents(path: Location) -> tuple[int, str | None]:
    """A zip file has its table of contents at the end: without it the file was cut off."""
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            return sum(name.lower().endswith(EXTENSIONS) for name in archive.namelist()), None
    except (zipfile.BadZipFile, OSError):
        return 0, "its table of contents at the end is missing"
