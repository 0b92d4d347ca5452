"""What a path is: one of the official test sets, a folder of several, or a data set of the user's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from shiftbench.datasets import cifar_checks, official_checks
from shiftbench.datasets.archives import check_archive
from shiftbench.datasets.catalogue import describe_path
from shiftbench.datasets.deepfashion2_check import check_deepfashion2
from shiftbench.datasets.icons.check import check_icons
from shiftbench.datasets.official import DataReport
from shiftbench.errors import DatasetError
from shiftbench.io.paths import place

#: Folders within folders that are looked into for one data set.
_DEEPEST = 3
Check = Callable[[Path], DataReport | None]
#: The special before the general, as for openers.
_CHECKS: tuple[Check, ...] = (
    check_archive,
    cifar_checks.check_cifar,
    cifar_checks.check_cifar10_1,
    cifar_checks.check_cifar10_2,
    cifar_checks.check_cifar_c,
    official_checks.check_videos,
    official_checks.check_imagenet_c,
    official_checks.check_objectnet,
    official_checks.check_unsorted_val,
    check_icons,
    check_deepfashion2,
    official_checks.check_class_folders,
)


def inspect_data(path: str | Path) -> DataReport:
    """Recognise what lies at a path and hold it against what belongs there, without decoding a picture."""
    root = place(path)
    if not root.exists():
        raise DatasetError(f"there is nothing at {root}", hint="name a folder or file that exists")
    packed = [report for report in map(check_archive, _inside(root)) if report is not None]
    found = _official(root) if packed else _found(root, _DEEPEST)
    if found is not None:
        return found
    # No data set itself: perhaps its folders are.
    parts = [part for part in (_found(folder, _DEEPEST) for folder in _folders(root)) if part is not None]
    # An archive that was unpacked beside itself has done its work.
    parts += [one for one in packed if not any((part.what or "").startswith(one.what or "-") for part in parts)]
    return DataReport(str(root), None, f"a folder of {len(parts)} data sets", parts=parts) if parts else _own(root)


def _found(path: Path, depth: int) -> DataReport | None:
    """A whole or broken official set, a usable one of the user's own, or one below folders that hold nothing else."""
    report = _official(path)
    if report is None:
        own = _own(path)
        report = None if own.missing else own
    folders = _folders(path)
    if report is not None or not depth or len(folders) != 1:
        return report
    below = _found(folders[0], depth - 1)
    if below is not None and below.path == str(folders[0]):
        below.notes.insert(0, f"it lies below the folder you named: say {below.path}")
    return below


def _official(path: Path) -> DataReport | None:
    for check in _CHECKS:
        report = check(path)
        if report is not None:
            return report
    return None


def _inside(path: Path) -> list[Path]:
    return sorted(entry for entry in path.iterdir() if not entry.name.startswith(".")) if path.is_dir() else []


def _folders(path: Path) -> list[Path]:
    return [entry for entry in _inside(path) if entry.is_dir()]


def _own(path: Path) -> DataReport:
    """A data set of the user's own, or something that is none; then the reason is what is missing."""
    about = describe_path(path)
    report = DataReport(str(path), None, about.seen if about.kind else "no data set")
    report.images, report.classes, report.space = about.images, about.classes, about.space
    report.notes, report.missing = list(about.notes), list(about.problems)
    if about.kind and not about.problems:
        report.role, report.suite = "data", "clean"
    return report
