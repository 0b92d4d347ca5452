"""What a path is: one of the official test sets, a folder of several, or a data set of the user's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from shiftbench.datasets import cifar_checks, official_checks
from shiftbench.datasets.catalogue import describe_path
from shiftbench.datasets.official import DataReport
from shiftbench.errors import DatasetError

Check = Callable[[Path], DataReport | None]
#: The special before the general, as for openers.
_CHECKS: tuple[Check, ...] = (
    cifar_checks.check_cifar,
    cifar_checks.check_cifar10_1,
    cifar_checks.check_cifar10_2,
    cifar_checks.check_cifar_c,
    official_checks.check_videos,
    official_checks.check_imagenet_c,
    official_checks.check_objectnet,
    official_checks.check_unsorted_val,
    official_checks.check_class_folders,
)


def inspect_data(path: str | Path) -> DataReport:
    """Recognise what lies at a path and hold it against what belongs there, without decoding a picture."""
    place = Path(path)
    if not place.exists():
        raise DatasetError(f"there is nothing at {place}", hint="name a folder or file that exists")
    found = _official(place) or _own(place)
    if found.what is None and found.missing:
        # No data set itself: perhaps its folders are.
        parts = [part for part in map(_part, _inside(place)) if part is not None]
        if parts:
            return DataReport(str(place), None, f"a folder of {len(parts)} data sets", parts=parts)
    return found


def _official(path: Path) -> DataReport | None:
    for check in _CHECKS:
        report = check(path)
        if report is not None:
            return report
    return None


def _inside(path: Path) -> list[Path]:
    if not path.is_dir():
        return []
    return sorted(entry for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith("."))


def _part(path: Path) -> DataReport | None:
    """A data set inside a folder; what is none is passed over."""
    report = _official(path)
    if report is None:
        report = _own(path)
        return None if report.missing else report
    return report


def _own(path: Path) -> DataReport:
    """A data set of the user's own, or something that is none; then the reason is what is missing."""
    about = describe_path(path)
    report = DataReport(str(path), None, about.seen if about.kind else "no data set")
    report.images, report.classes, report.space = about.images, about.classes, about.space
    report.notes, report.missing = list(about.notes), list(about.problems)
    if about.kind and not about.problems:
        report.role, report.suite = "data", "clean"
    return report
