"""ImageNet-C as released: ``<corruption>/<severity>/<wnid>/``. Each severity's folder is a dataset of class folders."""

from __future__ import annotations

from shiftbench.datasets.base import Dataset
from shiftbench.datasets.corruption_names import BENCHMARK_CORRUPTIONS, EXTRA_CORRUPTIONS
from shiftbench.datasets.folder import list_classes
from shiftbench.datasets.kind import DataReport, DatasetKind
from shiftbench.errors import DatasetError, listed
from shiftbench.io.paths import Location, place
from shiftbench.labels.space import LabelSpace

SEVERITIES = ("1", "2", "3", "4", "5")
_IMAGES = 50_000


def _corruptions(path: Location) -> list[str]:
    return [name for name in (*BENCHMARK_CORRUPTIONS, *EXTRA_CORRUPTIONS) if (path / name / "1").is_dir()]


def recognise_imagenet_c(path: Location) -> str | None:
    count = len(_corruptions(path)) if path.is_dir() else 0
    return f"{count} corruptions" if count else None


def open_imagenet_c(path: str | Location, *, space: LabelSpace | str | None = None, name: str | None = None) -> Dataset:
    """ImageNet-C: its folders PATH/CORRUPTION/SEVERITY are opened one at a time."""
    example = next(iter(_corruptions(place(path))), "fog")
    raise DatasetError(
        f"{path} is ImageNet-C, which has one dataset per corruption and severity",
        hint=f"open one of them, such as {place(path) / example / '1'}",
    )


def check_imagenet_c(path: Location) -> DataReport:
    """Which corruptions and severities are present, and whether each has all images."""
    known = _corruptions(path)
    report = DataReport(
        str(path),
        "ImageNet-C",
        f"{len(known)} corruptions",
        role="imagenet-c",
        suite="imagenet-c --source on-disk",
        space="imagenet-1k",
        home="Zenodo, record 2235448, archives noise, blur, weather, digital and extra",
    )
    absent = [name for name in BENCHMARK_CORRUPTIONS if name not in known]
    if absent:
        report.missing.append(f"{len(absent)} of the 15 corruptions of mCE: {listed(absent)}")
    extra = [name for name in EXTRA_CORRUPTIONS if name not in known]
    if extra:
        report.notes.append(f"without the extra corruptions {listed(extra)}, which mCE does not need")
    folders = {f"{name}/{severity}": path / name / severity for name in known for severity in SEVERITIES}
    gaps = [key for key, folder in folders.items() if not folder.is_dir()]
    if gaps:
        report.missing.append(f"{len(gaps)} severities: {listed(gaps)}")
    counts = {key: list_classes(folder).images for key, folder in folders.items() if key not in gaps}
    report.images = sum(counts.values())
    short = [f"{key} has {count:,}" for key, count in counts.items() if count != _IMAGES]
    if short:
        report.missing.append(f"{_IMAGES:,} images in each of {len(short)} folders: {listed(short)}")
    return report


KIND = DatasetKind(recognise_imagenet_c, open_imagenet_c, check_imagenet_c, by_url=True)
