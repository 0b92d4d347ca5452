"""What the metadata of a LiteRT file state: mean and std of the input, and a file of class names.

The metadata are a flatbuffer of their own inside the file (metadata_schema.fbs of TensorFlow Lite); the files that they
name are in a zip archive at the end of the file.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from shiftbench.classifiers.description import Description, read_description
from shiftbench.errors import ClassifierError, raising, required

if TYPE_CHECKING:
    from flatbuffers.table import Table

#: Name of the metadata in the model's own list, and the identifier that their buffer begins with.
_METADATA_NAME = b"TFLITE_METADATA"
_IDENTIFIER = b"M001"
#: The largest file of class names that is read.
_MAX_LABELS_BYTES = 1 << 22

# Numbers of the fields and values that are read, in the order of the schema.
_MODEL_SUBGRAPHS = 3
_SUBGRAPH_INPUTS = 2
_SUBGRAPH_OUTPUTS = 3
_TENSOR_PROCESS_UNITS = 4
_TENSOR_FILES = 6
_UNIT_KIND = 0
_UNIT_OPTIONS = 1
_NORMALISATION_KIND = 1
_NORMALISATION_MEAN = 0
_NORMALISATION_STD = 1
_FILE_NAME = 0
_FILE_KIND = 2
_CLASS_NAMES_KIND = 2


def read_metadata(path: Path) -> tuple[Description, list[str]]:
    """The stated preprocessing and the class names of a file; both are empty if it has no metadata."""
    with raising(ClassifierError, f"the metadata of {path.name} cannot be read", Exception):
        metadata = _metadata_table(path)
        if metadata is None:
            return Description(), []
        subgraph = _tables(metadata, _MODEL_SUBGRAPHS)[0]
        stated: dict[str, object] = {}
        for tensor in _tables(subgraph, _SUBGRAPH_INPUTS)[:1]:
            stated = _stated_normalisation(tensor)
        names: list[str] = []
        for tensor in _tables(subgraph, _SUBGRAPH_OUTPUTS)[:1]:
            names = _class_names(path, tensor)
    return read_description(stated, f"the metadata of {path.name}"), names


def _metadata_table(path: Path) -> Table | None:
    schema = required(
        "ai_edge_litert.schema_py_generated", "litert", "running a LiteRT model", package="ai-edge-litert"
    )
    model = schema.Model.GetRootAsModel(path.read_bytes(), 0)
    for i in range(model.MetadataLength()):
        entry = model.Metadata(i)
        if entry.Name() == _METADATA_NAME:
            content = model.Buffers(entry.Buffer()).DataAsNumpy().tobytes()
            return _root(content)
    return None


def _root(content: bytes) -> Table | None:
    from flatbuffers import encode, number_types, table

    if content[4:8] != _IDENTIFIER:
        return None
    offset = encode.Get(number_types.UOffsetTFlags.packer_type, content, 0)
    return table.Table(content, offset)


def _offset(of: Table, field: int) -> int:
    """Where a field is, relative to its table; 0 if it is not set."""
    return int(of.Offset(4 + 2 * field))


def _tables(of: Table, field: int) -> list[Table]:
    """The tables in a field that is a list of tables."""
    return [_table_at(of, position) for position in _positions(of, field)]


def _table_at(of: Table, position: int) -> Table:
    from flatbuffers import table

    return table.Table(of.Bytes, of.Indirect(position))


def _positions(of: Table, field: int) -> Iterator[int]:
    """The positions of the entries of a list; all lists that are read here have entries of four bytes."""
    offset = _offset(of, field)
    if offset:
        start = of.Vector(offset)
        for i in range(of.VectorLen(offset)):
            yield start + 4 * i


def _small_number(of: Table, field: int) -> int:
    from flatbuffers import number_types

    offset = _offset(of, field)
    if not offset:
        return 0
    return int(of.Get(number_types.Uint8Flags, of.Pos + offset))


def _floats(of: Table, field: int) -> list[float]:
    from flatbuffers import number_types

    return [float(of.Get(number_types.Float32Flags, position)) for position in _positions(of, field)]


def _stated_normalisation(tensor: Table) -> dict[str, object]:
    """Mean and std of the input, for pixels from 0 to 255; empty if they are not stated."""
    for unit in _tables(tensor, _TENSOR_PROCESS_UNITS):
        if _small_number(unit, _UNIT_KIND) != _NORMALISATION_KIND:
            continue
        options = _table_at(unit, unit.Pos + _offset(unit, _UNIT_OPTIONS))
        mean = _floats(options, _NORMALISATION_MEAN)
        std = _floats(options, _NORMALISATION_STD)
        if mean and std:
            return {"mean": mean, "std": std, "scale": 1.0}
    return {}


def _class_names(path: Path, tensor: Table) -> list[str]:
    """The lines of the file of class names that belongs to an output; empty if there is none."""
    for file in _tables(tensor, _TENSOR_FILES):
        if _small_number(file, _FILE_KIND) != _CLASS_NAMES_KIND:
            continue
        name = file.String(file.Pos + _offset(file, _FILE_NAME)).decode()
        with zipfile.ZipFile(path) as archive:
            if archive.getinfo(name).file_size <= _MAX_LABELS_BYTES:
                return archive.read(name).decode().splitlines()
    return []
