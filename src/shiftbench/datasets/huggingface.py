"""Hugging Face data sets on disk, read by pyarrow alone: ``save_to_disk`` folders, Arrow and Parquet files.

Pictures are structs ``{bytes, path}``; class names come from the ``ClassLabel`` that the files describe.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from shiftbench.datasets.arrays import array_labels
from shiftbench.datasets.files import EncodedDataset
from shiftbench.datasets.fingerprint import Opened
from shiftbench.datasets.images import MAX_PIXELS, bad_image
from shiftbench.datasets.kind import DatasetKind, entry_names
from shiftbench.errors import DatasetError
from shiftbench.labels.guard import recognise_names
from shiftbench.labels.space import Labels, LabelSpace

IMAGE_COLUMNS = ("image", "img", "picture", "jpg", "png")
LABEL_COLUMNS = ("label", "labels", "fine_label", "class", "target")
_SHARD = re.compile(r"(?:(.+)-)?\d{5}-of-\d{5}")
#: Row groups kept decoded; reading in order needs one, a few more serve threads that are not quite in step.
_GROUPS = 4


class TableDataset(EncodedDataset):
    """Rows of Arrow or Parquet files; made by ``open_huggingface``."""

    def __init__(
        self,
        name: str,
        space: LabelSpace,
        files: Sequence[Path],
        image: str,
        ids: Sequence[str],
        labels: Labels,
        metadata: Mapping[str, Sequence[Any]],
        max_pixels: int,
    ) -> None:
        self.name, self.space, self.files = name, space, tuple(files)
        self.ids, self.labels = list(ids), labels
        self._image, self._metadata, self._max_pixels = image, dict(metadata), max_pixels
        self._opened = Opened()

    def _bytes(self, index: int) -> bytes:
        import pyarrow as pa

        try:
            with self._opened.lock:
                if self._opened.value is None:
                    self._opened.value = _Rows(self.files, self._image)
            value = self._opened.value.get(index)
        except (OSError, pa.ArrowException) as error:
            raise bad_image(self.ids[index], f"its table can't be read ({error})") from error
        data = value.get("bytes") if isinstance(value, dict) else value
        if not isinstance(data, bytes):
            raise bad_image(self.ids[index], "its bytes are not in the table")
        return data


class _Rows:
    """Random access to one column: Arrow files are mapped, Parquet is read a row group at a time."""

    def __init__(self, files: Sequence[Path], column: str) -> None:
        from threading import Lock

        self._column = column
        self._blocks: list[Any] = []  # a mapped array, or (parquet file, group)
        sizes = []
        for file in files:
            for block, size in _blocks(file, column):
                self._blocks.append(block)
                sizes.append(size)
        self._ends = np.cumsum(sizes)
        self._groups: OrderedDict[int, Any] = OrderedDict()
        self._lock = Lock()

    def get(self, index: int) -> Any:
        number = int(np.searchsorted(self._ends, index, side="right"))
        start = int(self._ends[number - 1]) if number else 0
        block = self._blocks[number]
        values = self._group(number, *block) if isinstance(block, tuple) else block
        return values[index - start].as_py()

    def _group(self, number: int, parquet: Any, group: int) -> Any:
        with self._lock:
            if number not in self._groups:
                self._groups[number] = parquet.read_row_group(group, columns=[self._column]).column(0)
                if len(self._groups) > _GROUPS:
                    self._groups.popitem(last=False)
            self._groups.move_to_end(number)
            return self._groups[number]


def _blocks(file: Path, column: str) -> list[tuple[Any, int]]:
    if file.suffix == ".parquet":
        import pyarrow.parquet as pq

        parquet = pq.ParquetFile(file)
        counts = [parquet.metadata.row_group(g).num_rows for g in range(parquet.metadata.num_row_groups)]
        return [((parquet, group), count) for group, count in enumerate(counts)]
    return [(chunk, len(chunk)) for chunk in _arrow_table(file).column(column).chunks]


def _arrow_table(file: Path) -> Any:
    import pyarrow as pa

    mapped = pa.memory_map(str(file))
    try:
        return pa.ipc.open_stream(mapped).read_all()  # what the datasets library writes
    except pa.ArrowInvalid:
        return pa.ipc.open_file(pa.memory_map(str(file))).read_all()


def open_huggingface(
    path: str | Path,
    *,
    split: str | None = None,
    space: LabelSpace | str | None = None,
    name: str | None = None,
    image: str | None = None,
    label: str | None = None,
    max_pixels: int = MAX_PIXELS,
) -> TableDataset:
    """A ``save_to_disk`` folder, a folder of Parquet files, or one Arrow or Parquet file.

    ``split`` chooses among several; ``image`` and ``label`` name the columns where they can't be told.
    """
    import pyarrow as pa

    path = Path(path)
    split, files = find_tables(path, split)
    name = name or (path.stem if path.is_file() else path.resolve().name)
    try:
        schema = _schema(files[0])
        features = _features(schema, files[0].parent)
        image = image or _image_column(schema, features)
        label = label or _label_column(schema, features)
        others = [f.name for f in schema if f.name not in (image, label) and _is_plain(f.type)]
        table = pa.concat_tables([_columns(file, [label, *others]) for file in files])
    except (OSError, pa.ArrowException, KeyError) as error:
        raise DatasetError(f"{path} can't be read as a table", found=error) from error
    names = features.get(label, {}).get("names")
    target, labels = _labels(table.column(label), names, space, name)
    ids = [f"{split}/{i:06d}" if split else f"{i:06d}" for i in range(len(labels))]
    metadata = {column: table.column(column).to_pylist() for column in others}
    return TableDataset(name, target, files, image, ids, labels, metadata, max_pixels)


def recognise_tables(path: Path) -> str | None:
    if path.suffix in (".parquet", ".arrow") and path.is_file():
        return f"a {path.suffix[1:].capitalize()} file"
    names = set(entry_names(path))
    if "dataset_dict.json" in names or {"state.json", "dataset_info.json"} <= names:
        return "a Hugging Face dataset saved to disk"
    if any(name.endswith(".parquet") for name in [*names, *entry_names(path / "data")]):
        return "a folder of Parquet files"
    return None


KIND = DatasetKind(recognise_tables, open_huggingface)


def find_tables(path: Path, split: str | None) -> tuple[str | None, list[Path]]:
    """The files of one split."""
    if path.is_file():
        return split, [path]
    if (path / "dataset_dict.json").is_file():
        known = [str(s) for s in _json(path / "dataset_dict.json").get("splits", [])]
        split = _choose(path, known, split)
        path = path / split
    if (path / "state.json").is_file():
        return split, _saved_files(path)
    found = sorted(path.glob("*.parquet")) or sorted(path.glob("data/*.parquet")) or sorted(path.glob("*.arrow"))
    if not found:
        raise DatasetError(f"no tables in {path}", expected="state.json of save_to_disk, or .parquet files")
    groups: dict[str, list[Path]] = {}
    for file in found:
        match = _SHARD.fullmatch(file.stem)
        groups.setdefault((match[1] or "") if match else file.stem, []).append(file)
    if split is None and len(groups) > 1 and not any(s in groups for s in ("train", "test", "validation")):
        return None, found  # several files that are no splits: parts of one table
    chosen = _choose(path, list(groups), split)
    return chosen or None, groups[chosen]


def _saved_files(path: Path) -> list[Path]:
    state = _json(path / "state.json")
    if state.get("_indices_data_files") or state.get("_indices_files"):
        raise DatasetError(
            f"{path} is a selection of rows that was not written out",
            hint="flatten_indices() before save_to_disk()",
        )
    # only the names: a folder that was moved must not lead elsewhere
    return [path / Path(str(entry["filename"])).name for entry in state.get("_data_files", [])]


def _choose(path: Path, known: Sequence[str], split: str | None) -> str:
    if split is None and len(known) == 1:
        return known[0]
    if split in known and split is not None:
        return split
    raise DatasetError(
        f"which part of {path}?" if split is None else f"{path} has no part {split!r}",
        found=", ".join(known),
        hint=f"pass split={known[0]!r}" if known else None,
    )


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DatasetError(f"{path} can't be read", found=error) from error
    return value if isinstance(value, dict) else {}


def _schema(file: Path) -> Any:
    if file.suffix == ".parquet":
        import pyarrow.parquet as pq

        return pq.read_schema(file)
    return _arrow_table(file).schema


def _columns(file: Path, columns: list[str]) -> Any:
    if file.suffix == ".parquet":
        import pyarrow.parquet as pq

        return pq.read_table(file, columns=columns, partitioning=None)
    return _arrow_table(file).select(columns)


def _features(schema: Any, folder: Path) -> dict[str, dict[str, Any]]:
    """What the files say of their columns, in the table itself or in ``dataset_info.json`` beside it."""
    stored = (schema.metadata or {}).get(b"huggingface")
    features: Any = None
    if stored:
        try:
            features = json.loads(stored).get("info", {}).get("features")
        except (ValueError, AttributeError):
            features = None
    if not features and (folder / "dataset_info.json").is_file():
        features = _json(folder / "dataset_info.json").get("features")
    if not isinstance(features, dict):
        return {}
    return {column: spec for column, spec in features.items() if isinstance(spec, dict)}


def _image_column(schema: Any, features: Mapping[str, Mapping[str, Any]]) -> str:
    import pyarrow as pa

    declared = [c for c, spec in features.items() if spec.get("_type") == "Image"]
    structs = [f.name for f in schema if pa.types.is_struct(f.type) and f.type.get_field_index("bytes") >= 0]
    binary = [f.name for f in schema if f.name in IMAGE_COLUMNS and _is_binary(f.type)]
    return _only("image", [c for c in (declared or structs or binary) if c in schema.names], schema)


def _label_column(schema: Any, features: Mapping[str, Mapping[str, Any]]) -> str:
    declared = [c for c, spec in features.items() if spec.get("_type") == "ClassLabel" and c in schema.names]
    named = [c for c in LABEL_COLUMNS if c in (declared or schema.names)]
    return _only("label", declared if len(declared) == 1 else named[:1], schema)


def _only(what: str, found: Sequence[str], schema: Any) -> str:
    if len(found) == 1:
        return found[0]
    raise DatasetError(
        f"which column is the {what}?", found=f"columns {', '.join(schema.names)}", hint=f"pass {what}=COLUMN"
    )


def _is_binary(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _is_plain(kind: Any) -> bool:
    """Columns small enough to be kept as metadata."""
    import pyarrow as pa

    tests = (
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_boolean,
        pa.types.is_string,
        pa.types.is_large_string,
    )
    return any(test(kind) for test in tests)


def _labels(
    column: Any, names: Sequence[str] | None, space: LabelSpace | str | None, own: str
) -> tuple[LabelSpace, Labels]:
    if not names:
        values = column.to_pylist()
        text = any(isinstance(v, str) for v in values)
        filled = [("" if text else -1) if v is None else v for v in values]
        return array_labels(np.array(filled), space, own)
    target, index = recognise_names([str(n) for n in names], space, own=own)
    table = np.array([*index, -1], dtype=np.int32)  # the last for "no label", stored as -1 or null
    stored = np.array([-1 if v is None else v for v in column.to_pylist()], dtype=np.int64)
    if len(stored) and (stored.min() < -1 or stored.max() >= len(names)):
        raise DatasetError(
            f"labels of {own!r} lie outside their own class names",
            found=f"{stored.min()} to {stored.max()}",
            expected=f"0 to {len(names) - 1}",
        )
    return target, table[stored]
