"""Tables of images: Parquet and Arrow files, and Hugging Face datasets that ``save_to_disk`` wrote.

All are read by pyarrow, row by row: the ``datasets`` library would first copy Parquet files into a cache. A folder that
``save_to_disk`` wrote is opened by the library (extra ``huggingface``), which knows its files, splits and features.
Images are structs ``{bytes, path}`` or bytes; class names come from the ``ClassLabel`` feature of the label column.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from shiftbench.datasets.arrays import array_labels
from shiftbench.datasets.base import DatasetKind, StorageGroups, entry_names
from shiftbench.datasets.images import bad_image
from shiftbench.datasets.stored import EncodedDataset, Opened
from shiftbench.errors import DatasetError, listed, raising, required
from shiftbench.grouping import by_key
from shiftbench.io.parquet import open_parquet, read_parquet, read_row_group
from shiftbench.io.paths import Location, is_object
from shiftbench.labels.guard import recognise_names
from shiftbench.labels.space import AskedSpace, Labels, LabelSpace

if TYPE_CHECKING:
    import pyarrow as pa

IMAGE_COLUMNS = ("image", "img", "picture", "jpg", "png")
LABEL_COLUMNS = ("label", "labels", "fine_label", "class", "target")
#: Usual names of splits, the one to train on first.
_USUAL_SPLITS = ("train", "validation", "test")
_SHARD = re.compile(r"(?:(.+)-)?\d{5}-of-\d{5}")
#: Row groups kept decoded, at least: reading in order needs one, a few more serve threads that are out of step.
_MIN_GROUPS = 4
#: If row groups are small, so many of them are kept that they have this many images: shuffled images of small groups
#: come from many.
_KEPT_IMAGES = 4096
#: Column to its feature, as the library describes it: ``{"_type": "ClassLabel", "names": [...]}``.
Features = Mapping[str, Mapping[str, Any]]


class TableDataset(EncodedDataset):
    """Images in the column ``image`` of Parquet or Arrow files, which are parts of one table."""

    def __init__(
        self,
        name: str,
        space: LabelSpace,
        files: Sequence[Path],
        image: str,
        ids: Sequence[str],
        labels: Labels,
        metadata: Mapping[str, Sequence[Any]],
    ) -> None:
        self.name = name
        self.space = space
        self.files = tuple(files)
        self.ids = list(ids)
        self.labels = labels
        self.metadata = dict(metadata)
        self._image = image
        self._opened = Opened()

    def _bytes(self, index: int) -> bytes:
        import pyarrow as pa

        try:
            value = self._rows().get(index)
        except (OSError, pa.ArrowException) as error:
            raise bad_image(self.ids[index], f"its table can't be read ({error})") from error
        data = value.get("bytes") if isinstance(value, dict) else value
        if not isinstance(data, bytes):
            raise bad_image(self.ids[index], "its bytes are not in the table")
        return data

    def storage_groups(self) -> StorageGroups | None:
        return self._rows().groups()

    def _rows(self) -> _Rows:
        with self._opened.lock:
            if self._opened.value is None:
                self._opened.value = _Rows(self.files, self._image)
            rows: _Rows = self._opened.value
        return rows


class _Rows:
    """Random access to one column: Arrow files are memory-mapped, Parquet is read one row group at a time."""

    def __init__(self, files: Sequence[Path], column: str) -> None:
        #: Mapped arrays, or Parquet files with their names and the number of a row group.
        self._blocks: list[Any] = []
        sizes: list[int] = []
        for file in files:
            if file.suffix == ".parquet":
                # A value that is repeated is kept once, however often: 500 bytes may stand for 20,000 images.
                parquet = open_parquet(file)
                for group in range(parquet.metadata.num_row_groups):
                    self._blocks.append((parquet, file.name, group))
                    sizes.append(parquet.metadata.row_group(group).num_rows)
            else:
                chunks = _arrow_table(file).column(column).chunks
                self._blocks += chunks
                sizes += map(len, chunks)
        self._sizes = sizes
        self._ends = np.cumsum(sizes)
        mean_size = max(1.0, float(np.mean(sizes or [1])))
        self._kept = max(_MIN_GROUPS, round(_KEPT_IMAGES / mean_size))
        self._group = lru_cache(self._kept)(partial(read_row_group, column=column))
        self._lock = Lock()

    def groups(self) -> StorageGroups | None:
        """The row groups; None for Arrow files, any row of which is read by itself."""
        if not all(isinstance(block, tuple) for block in self._blocks):
            return None
        return StorageGroups(np.repeat(np.arange(len(self._sizes)), self._sizes), self._kept)

    def get(self, index: int) -> Any:
        number = int(np.searchsorted(self._ends, index, side="right"))
        start = int(self._ends[number - 1]) if number else 0
        row = index - start
        block = self._blocks[number]
        if isinstance(block, tuple):
            with self._lock:
                block = self._group(*block)
        return block[row].as_py()


def _arrow_table(file: Path) -> pa.Table:
    import pyarrow as pa

    try:
        return pa.ipc.open_stream(pa.memory_map(str(file))).read_all()  # what the datasets library writes
    except pa.ArrowInvalid:
        return pa.ipc.open_file(pa.memory_map(str(file))).read_all()


class SplitTables(NamedTuple):
    """One split of a dataset of tables."""

    #: None if the dataset has no splits.
    split: str | None
    files: list[Path]
    #: What the library knows about the columns; empty where it was not asked.
    features: Features


def _open_saved(path: Path, split: str | None) -> SplitTables:
    """The files of a folder that ``save_to_disk`` wrote, found by the library, which runs no code of the dataset."""
    datasets = required("datasets", "huggingface", "a Hugging Face dataset saved to disk")
    # The library raises many kinds of errors for damaged files.
    with raising(DatasetError, f"{path} is not a readable Hugging Face dataset", Exception):
        loaded = datasets.load_from_disk(str(path), keep_in_memory=False)
    if isinstance(loaded, datasets.DatasetDict):
        split = _choose(path, list(loaded), split)
        loaded = loaded[split]
    files = [Path(file["filename"]) for file in loaded.cache_files]
    outside = [file for file in files if not file.resolve().is_relative_to(path.resolve())]
    if outside:
        raise DatasetError(f"{path} refers to a file outside its folder", found=outside[0])
    return SplitTables(split, files, loaded.features.to_dict())


def recognise_tables(path: Location) -> str | None:
    if path.suffix in (".parquet", ".arrow") and path.is_file():
        return f"a {path.suffix[1:].capitalize()} file"
    if _is_saved(path):
        return "a Hugging Face dataset saved to disk"
    if any(name.endswith(".parquet") for name in [*entry_names(path), *entry_names(path / "data")]):
        return "a folder of Parquet files"
    return None


def _is_saved(path: Location) -> bool:
    saved = {"state.json", "dataset_info.json"}
    return (path / "dataset_dict.json").is_file() or all((path / file).is_file() for file in saved)


def open_huggingface(
    path: str | Path,
    *,
    split: str | None = None,
    space: AskedSpace = None,
    name: str | None = None,
    image: str | None = None,
    label: str | None = None,
) -> TableDataset:
    """Parquet or Arrow files, or a Hugging Face dataset saved to disk.

    ``split`` chooses among several; ``image`` and ``label`` name the columns where they are ambiguous.
    """
    import pyarrow as pa

    path = Path(path)
    split, files, features = find_tables(path, split)
    if not name:
        name = path.stem if path.is_file() else path.resolve().name
    with raising(DatasetError, f"{path} can't be read as a table", OSError, pa.ArrowException, KeyError):
        schemas = [_schema(file) for file in files]
        features = features or _features(schemas[0])
        image, label = _columns(schemas[0], features, image, label)
        metadata_columns = _small_columns(schemas[0], besides=(image, label))
        table = pa.concat_tables([_read_columns(file, [label, *metadata_columns]) for file in files])
    names = features.get(label, {}).get("names")
    _check_same_classes(files, schemas, label, names)
    target, labels = _labels(table.column(label), names, space, name)
    prefix = f"{split}/" if split else ""
    ids = [f"{prefix}{i:06d}" for i in range(len(labels))]
    metadata = {column: table.column(column).to_pylist() for column in metadata_columns}
    dataset = TableDataset(name, target, files, image, ids, labels, metadata)
    dataset.remarks = _missing_shards(files)
    return dataset


def _schema(file: Path) -> pa.Schema:
    import pyarrow.parquet as pq

    if file.suffix == ".parquet":
        return pq.read_schema(file.absolute())
    return _arrow_table(file).schema


def _read_columns(file: Path, columns: Sequence[str]) -> pa.Table:
    if file.suffix == ".parquet":
        return read_parquet(file, columns)
    return _arrow_table(file).select(list(columns))


def _small_columns(schema: pa.Schema, besides: Sequence[str]) -> list[str]:
    """Columns of numbers and texts, which are small enough to be kept as metadata."""
    from pyarrow import types

    def is_small(kind: pa.DataType) -> bool:
        number = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
        return bool(number or types.is_string(kind) or types.is_large_string(kind))

    return [column.name for column in schema if column.name not in besides and is_small(column.type)]


def _check_same_classes(
    files: Sequence[Path], schemas: Sequence[pa.Schema], label: str, names: Sequence[str] | None
) -> None:
    """Refuse files that number the classes otherwise than the first one, which declares ``names``."""
    for file, schema in zip(files[1:], schemas[1:], strict=True):
        declared = _features(schema).get(label, {}).get("names", names)
        if declared != names:
            raise DatasetError(
                f"{file.name} and {files[0].name} number the classes differently",
                found=listed(declared),
                expected=listed(names or ("no names",)),
            )


def _missing_shards(files: Sequence[Path]) -> list[str]:
    """A remark if the names of the files (test-00000-of-00003) say that there are more of them."""
    totals = [int(file.stem[-5:]) for file in files if _SHARD.fullmatch(file.stem)]
    missing = max(totals, default=0) - len(files)
    if missing <= 0:
        return []
    return [f"{missing} files are missing: the name {files[0].name} says how many there are"]


KIND = DatasetKind(recognise_tables, open_huggingface)


def find_tables(path: Path, split: str | None) -> SplitTables:
    """The tables of one split.

    ``path`` may name a split itself: ``FOLDER/test``, whether or not that is a folder on the disk.
    """
    if not path.exists() and split is None:
        return find_tables(path.parent, path.name)
    if path.is_file():
        return SplitTables(split, [path], {})
    if _is_saved(path):
        return _open_saved(path, split)
    groups = _table_groups(path)
    if not groups:
        raise DatasetError(f"no tables in {path}", expected=".parquet files, or a folder that save_to_disk wrote")
    if split is None and len(groups) > 1 and not _are_splits(groups):
        every_file = sorted(chain.from_iterable(groups.values()))
        # Several files that are not splits are parts of one table.
        return SplitTables(None, every_file, {})
    split = _choose(path, list(groups), split)
    return SplitTables(split or None, groups[split], {})


def _table_groups(path: Path) -> dict[str, list[Path]]:
    """The tables of a folder by split: ``test`` for ``test-00000-of-00002.parquet`` and its sister."""
    files = sorted(path.glob("*.parquet")) or sorted(path.glob("data/*.parquet")) or sorted(path.glob("*.arrow"))
    return by_key((_split_of(file), file) for file in files)


def _split_of(file: Path) -> str:
    """The split that a table's name states, empty for ``00000-of-00002.parquet``; else the name itself."""
    match = _SHARD.fullmatch(file.stem)
    if match is None:
        return file.stem
    return match[1] or ""


def _are_splits(groups: Iterable[str]) -> bool:
    return any(name in groups for name in _USUAL_SPLITS)


def split_names(path: Location) -> list[str]:
    """The splits of a folder of tables that are not folders on the disk."""
    if is_object(path) or _is_saved(path):
        return []
    groups = _table_groups(Path(path))
    if not _are_splits(groups):
        return []
    return list(groups)


def _preferred_split(names: Sequence[str]) -> str:
    """The split that models are most often evaluated on."""
    return next((name for name in ("test", "validation", "val", "valid") if name in names), names[0])


def _choose(path: Path, splits: Sequence[str], split: str | None) -> str:
    """The split that was asked for, or the only one; a DatasetError is raised if that is not one of the splits."""
    if split is None and len(splits) == 1:
        return splits[0]
    if split is not None and split in splits:
        return split
    if split is None:
        message = f"{path} has several splits"
    else:
        message = f"{path} has no split {split!r}"
    hint = None
    if splits:
        hint = f"open one split: {path / _preferred_split(splits)}"
    raise DatasetError(message, found=", ".join(splits), hint=hint)


def _features(schema: pa.Schema) -> Features:
    """What the datasets library has stored about the columns; empty for tables that it did not write."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        return {column: spec for column, spec in features.items() if isinstance(spec, dict)}
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError):
        return {}


def _columns(schema: pa.Schema, features: Features, image: str | None, label: str | None) -> tuple[str, str]:
    """The columns of the images and of the labels, as named or declared, else by their types and names."""
    from pyarrow import types

    structs = []
    binary = []
    for column in schema:
        if types.is_struct(column.type) and column.type.get_field_index("bytes") >= 0:
            structs.append(column.name)
        elif types.is_binary(column.type) or types.is_large_binary(column.type):
            binary.append(column.name)
    images = _of_type(schema, features, "Image") or structs or [name for name in binary if name in IMAGE_COLUMNS]
    classes = _of_type(schema, features, "ClassLabel")
    labels = classes
    if len(classes) != 1:
        labels = [name for name in LABEL_COLUMNS if name in (classes or schema.names)][:1]
    return _only_column("image", image, images, schema), _only_column("label", label, labels, schema)


def _of_type(schema: pa.Schema, features: Features, kind: str) -> list[str]:
    """Columns that are declared to be of this kind."""
    return [name for name in schema.names if features.get(name, {}).get("_type") == kind]


def _only_column(role: str, name: str | None, candidates: Sequence[str], schema: pa.Schema) -> str:
    """The column of the images or labels: the one that the user names, or the only candidate."""
    if name is not None:
        return name
    if len(candidates) != 1:
        columns = f"columns {', '.join(schema.names)}"
        raise DatasetError(f"the {role} column is ambiguous", found=columns, hint=f"pass {role}=COLUMN")
    return candidates[0]


def _labels(
    column: pa.ChunkedArray, names: Sequence[str] | None, space: AskedSpace, dataset: str
) -> tuple[LabelSpace, Labels]:
    """The label space and the labels of a column, whose classes are ``names`` or, without names, its values."""
    import pyarrow as pa

    values = column.to_pylist()
    if not names:
        unlabelled = "" if any(isinstance(value, str) for value in values) else -1
        filled = [unlabelled if value is None else value for value in values]
        return array_labels(np.array(filled), space, dataset)
    if not (pa.types.is_integer(column.type) or pa.types.is_null(column.type)):
        raise DatasetError(
            f"the labels of {dataset!r} are not positions in its list of class names",
            found=f"a column of {column.type}",
            expected="one integer per image",
        )
    target, index = recognise_names([str(name) for name in names], space, own=dataset)
    table = np.array([*index, -1], dtype=np.int32)  # the last for "no label", stored as -1 or null
    stored = np.array([-1 if value is None else value for value in values], dtype=np.int64)
    if len(stored) and (stored.min() < -1 or stored.max() >= len(names)):
        raise DatasetError(
            f"labels of {dataset!r} are outside the range of their class names",
            found=f"{stored.min()} to {stored.max()}",
            expected=f"0 to {len(names) - 1}",
        )
    return target, table[stored]
