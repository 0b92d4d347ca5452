"""Is a folder Icons-50, and is it whole?"""

from __future__ import annotations

from pathlib import Path

from shiftbench.datasets.icons.opening import open_icons, seen_icons
from shiftbench.datasets.icons.record import RECORD, read_record
from shiftbench.datasets.official import DataReport
from shiftbench.errors import ShiftbenchError, listed

#: Of the original.
_IMAGES = 10_000


def check_icons(path: Path) -> DataReport | None:
    """The original has 10,000 icons; a rebuilt set what its record tells."""
    seen = seen_icons(path) if path.exists() else None
    if seen is None:
        return None
    report = DataReport(str(path), "Icons-50", seen, role="icons", suite="icons-style", classes_expected=50)
    report.home = "GitHub, hendrycks/robustness, which links the archive; or rebuild it: shiftbench data icons FOLDER"
    try:
        dataset = open_icons(path)
        report.images_expected = _recorded(path) if (path / RECORD).is_file() else _IMAGES
    except ShiftbenchError as error:
        report.missing.append(f"{error.message} ({error.found})" if error.found else error.message)
        return report
    present = set(dataset.labels.tolist())
    absent = [key for i, key in enumerate(dataset.space.keys) if i not in present]
    report.images, report.classes, report.space = len(dataset), len(present), dataset.space.name
    if absent:
        report.missing.append(f"{len(absent)} of 50 classes: {listed(absent)}")
    report.notes.append(f"styles: {listed(sorted(set(dataset.metadata['style'])), most=12)}")
    lost = [image_id for image_id in dataset.ids if path.is_dir() and not (path / image_id).is_file()]
    if lost:
        report.missing.append(f"{len(lost):,} of the listed icons: {listed(lost, most=3)}")
    if report.images < report.images_expected:
        report.missing.append(f"{report.images_expected - report.images:,} of {report.images_expected:,} images")
    return report


def _recorded(folder: Path) -> int:
    return sum(int(about["images"]) for about in read_record(folder)["styles"].values())
