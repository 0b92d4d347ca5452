"""What an ONNX model consists of: its file, and the files beside it that hold large weights.

The package onnx is not needed to run a model, so the few messages on the way to a tensor are read here: Protocol
Buffers write a message as fields, each a key (number and wire type) and a value. All other fields are skipped unread.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping
from pathlib import Path

from shiftbench.errors import ClassifierError
from shiftbench.io.hashing import digest, file_digest

#: By message: the numbers of the fields on the way to tensors, with their messages (onnx.proto).
_FIELDS: Mapping[str, Mapping[int, str]] = {
    "model": {7: "graph", 25: "function"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "function": {7: "node"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {13: "entry"},
}
_DEEPEST = 100


def onnx_digest(path: Path) -> str:
    """A hash of a model's file and of all files that it reads its weights from."""
    beside = [value for name in external_files(path) for value in (name, file_digest(path.parent / name))]
    return digest("onnx", file_digest(path), *beside)


def external_files(path: Path) -> list[str]:
    """The files that hold weights of a model, relative to its folder; an error if one is outside or missing."""
    with path.open("rb") as stream:
        if not path.stat().st_size:
            return []
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                names = sorted(set(_locations(data, 0, len(data), "model")))
            except (IndexError, ValueError, RecursionError) as error:
                raise ClassifierError(f"{path.name} is not a complete ONNX file", found=str(error)) from error
    for name in names:
        file = path.parent / name
        if not file.resolve().is_relative_to(path.parent.resolve()) or not file.is_file():
            raise ClassifierError(
                f"{path.name} reads weights from a file that is not beside it",
                found=name,
                expected=f"an existing file below {path.parent}",
                hint="move the file there, or export the model again",
            )
    return names


def _locations(data: mmap.mmap, start: int, stop: int, message: str, depth: int = 0) -> Iterator[str]:
    """The values of the entries "location" below a message."""
    if depth > _DEEPEST:
        raise ValueError("messages are nested too deeply")
    for number, first, last in _fields(data, start, stop):
        inside = _FIELDS[message].get(number)
        if inside == "entry":
            entry = {key: data[a:b] for key, a, b in _fields(data, first, last)}
            if entry.get(1) == b"location":
                yield entry.get(2, b"").decode()
        elif inside is not None:
            yield from _locations(data, first, last, inside, depth + 1)


def _fields(data: mmap.mmap, place: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """(number, start, end) of the fields that have a length: texts and messages."""
    while place < stop:
        key, place = _varint(data, place)
        wire = key & 7
        if wire == 0:
            _, place = _varint(data, place)
        elif wire in (1, 5):
            place += 8 if wire == 1 else 4
        elif wire == 2:
            length, place = _varint(data, place)
            if place + length > stop:
                raise ValueError("a field is longer than its message")
            yield key >> 3, place, place + length
            place += length
        else:
            raise ValueError(f"unknown wire type {wire}")


def _varint(data: mmap.mmap, place: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
        shift += 7
    raise ValueError("a number is longer than ten bytes")
