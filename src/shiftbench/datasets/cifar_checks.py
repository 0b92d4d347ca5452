"""CIFAR-10, CIFAR-100, CIFAR-10.1, CIFAR-10.2 and CIFAR-C: is this path one, and is it whole?"""

from __future__ import annotations

from pathlib import Path

from shiftbench.datasets.catalogue import open_dataset
from shiftbench.datasets.cifar import LAYOUTS, Layout, find_layout
from shiftbench.datasets.corruption_names import BENCHMARK_CORRUPTIONS
from shiftbench.datasets.official import DataReport
from shiftbench.datasets.official_checks import array_length, missing_files
from shiftbench.errors import ShiftbenchError, listed

_CIFAR_HOME = "Alex Krizhevsky's page at cs.toronto.edu, the Python or the binary version"
_SIZES = {"v4": 2_021, "v6": 2_000}


def check_cifar(path: Path) -> DataReport | None:
    """The official batches: the test set must be whole; the training set is reported."""
    layout = find_layout(path) or _begun(path)
    if layout is None:
        return None
    title = {"cifar-10": "CIFAR-10", "cifar-100": "CIFAR-100"}[layout.space]
    suite = "cifar" if layout.space == "cifar-10" else "cifar-100"
    seen = f"the {'Python' if layout.kind == 'pickle' else 'binary'} version"
    report = DataReport(str(path), title, seen, layout.space, suite, space=layout.space, home=_CIFAR_HOME)
    report.images_expected = 10_000
    for split in ("test", "train"):
        lacking = missing_files(path, layout.files[split])
        if lacking:
            where = report.missing if split == "test" else report.notes
            where.append(f"the {split} set: no {listed(lacking)}")
    if not report.missing:
        _count(report, path)
    return report


def _begun(path: Path) -> Layout | None:
    """The packing of which some batches are there, though no part is whole."""
    names = {entry.name for entry in path.iterdir() if entry.is_file()} if path.is_dir() else set()
    batches = {name for name in names if name.startswith("data_batch_")}
    return next((layout for layout in LAYOUTS if batches & set(layout.files["train"])), None)


def check_cifar10_1(path: Path) -> DataReport | None:
    """The folder of the four npy files, or one of the data files."""
    folder = path.parent if path.is_file() and path.name.startswith("cifar10.1_") else path
    files = sorted(folder.glob("cifar10.1_v*_data.npy")) if folder.is_dir() else []
    if not files or (path.is_file() and path not in files):
        return None
    report = DataReport(str(path), "CIFAR-10.1", listed([file.name for file in files]), "cifar-10.1", "cifar")
    report.space, report.home = "cifar-10", "GitHub, modestyachts/CIFAR-10.1, folder datasets"
    for version, size in _SIZES.items():
        data, labels = (folder / f"cifar10.1_{version}_{part}.npy" for part in ("data", "labels"))
        if not data.is_file():
            report.missing.append(f"{version}: {data.name}")
            continue
        if not labels.is_file():
            report.missing.append(f"{version}: {labels.name}, the labels of {data.name}")
        count = array_length(data)
        report.images += count or 0
        if count != size:
            report.missing.append(f"{version}: {size:,} images; {data.name} has {count or 'no readable array'}")
    return report


def check_cifar10_2(path: Path) -> DataReport | None:
    file = path / "cifar102_test.npz" if path.is_dir() else path
    if not (file.name.startswith("cifar102_") and file.is_file()):
        return None
    report = DataReport(str(path), "CIFAR-10.2", file.name, "cifar-10.2", "cifar", space="cifar-10")
    report.images_expected = 10_000 if "train" in file.name else 2_000
    report.home = "GitHub, modestyachts/cifar-10.2"
    _count(report, file)
    return report


def check_cifar_c(path: Path) -> DataReport | None:
    """One npy file a corruption, 50,000 images each, and labels.npy."""
    if not path.is_dir() or not (path / "labels.npy").is_file():
        return None
    known = [name for name in BENCHMARK_CORRUPTIONS if (path / f"{name}.npy").is_file()]
    if not known:
        return None
    hundred = "100" in path.resolve().name
    title = "CIFAR-100-C" if hundred else "CIFAR-10-C"
    suite = None if hundred else "cifar-10-c --source on-disk"
    report = DataReport(str(path), title, f"{len(known)} corruptions", title.casefold(), suite)
    report.home = f"Zenodo, {title}"
    absent = [name for name in BENCHMARK_CORRUPTIONS if name not in known]
    if absent:
        report.missing.append(f"{len(absent)} of the 15 corruptions: {listed(absent)}")
    short = {name: array_length(path / f"{name}.npy") for name in (*known, "labels")}
    wrong = [f"{name}.npy has {count or 'no readable array'}" for name, count in short.items() if count != 50_000]
    if wrong:
        report.missing.append(f"50,000 rows in each of {len(wrong)} files: {listed(wrong)}")
    report.images = sum(count or 0 for name, count in short.items() if name != "labels")
    return report


def _count(report: DataReport, path: Path) -> None:
    try:
        dataset = open_dataset(path)
    except ShiftbenchError as error:
        report.missing.append(f"readable files: {error.message}")
        return
    report.images, report.space = len(dataset), dataset.space.name
    report.classes, report.classes_expected = len(set(dataset.labels.tolist())), len(dataset.space)
    if report.images_expected is not None and report.images < report.images_expected:
        absent = report.images_expected - report.images
        report.missing.append(f"{absent:,} of {report.images_expected:,} images")
