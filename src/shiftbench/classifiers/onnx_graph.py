"""What the file of an ONNX model says without running it: the files that hold its weights, whether it mixes images, and
what was written at its end.

The package onnx is not needed to run a model, so the few messages of its files that matter are read here. Protocol
Buffers write a message as fields, each a key (number and wire type) and a value. All other fields are skipped unread.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from shiftbench.datasets.manifest import leads_outside
from shiftbench.errors import ClassifierError, raising
from shiftbench.io.hashing import digest, file_digest

#: For each message, the numbers of the fields that lead to tensors, and the messages in these fields (onnx.proto).
_FIELDS: Mapping[str, Mapping[int, str]] = {
    "model": {7: "graph", 25: "function"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "function": {7: "node"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {13: "entry"},
}
#: Messages that are nested more deeply are rejected, since they are read by recursion.
_DEEPEST = 100
#: The number of the field with an entry of the model's metadata, and the key of the entry that is ours.
_METADATA = 14
OUR_KEY = "shiftbench"
#: Names of values are shorter than this number of bytes; longer fields of the same number hold something else.
_LONGEST_NAME = 10_000


def onnx_digest(path: Path) -> str:
    """A hash of a model's file and of all files that it reads its weights from.

    A description that was written at the end of the file is left out: it decides no score that other facts do not.
    """
    hashed_parts = [file_digest(path, size=described_from(path))]
    for name in external_files(path):
        hashed_parts += [name, file_digest(path.parent / name)]
    return digest("onnx", *hashed_parts)


def external_files(path: Path) -> list[str]:
    """The files that hold weights of a model, relative to its folder.

    Raises ClassifierError if one of them is missing or lies outside that folder.
    """
    if not path.stat().st_size:
        return []
    with _opened(path) as data:
        names = sorted(set(_locations(data, 0, len(data), "model")))
    for name in names:
        file = path.parent / name
        if leads_outside(name) or not file.is_file():
            raise ClassifierError(
                f"{path.name} reads weights from a file that is not beside it",
                found=name,
                expected=f"an existing file below {path.parent}",
                hint="move the file there, or export the model again",
            )
    return names


def metadata_entry(key: str, value: str) -> bytes:
    """An entry of a model's metadata as a field that may follow the bytes of a file."""
    content = _length_delimited(1, key.encode()) + _length_delimited(2, value.encode())
    return _length_delimited(_METADATA, content)


def _length_delimited(number: int, content: bytes) -> bytes:
    return _encoded_varint(number << 3 | 2) + _encoded_varint(len(content)) + content


def _encoded_varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def described_from(path: Path) -> int | None:
    """Where our entry of the metadata begins if it is the last field of a file; None if there is none at the end."""
    if not path.stat().st_size:
        return None
    with _opened(path) as data:
        entries = _our_entries(data)
        if not entries:
            return None
        value = next((item for item in _fields(data, entries[-1].start, entries[-1].stop) if item.number == 2), None)
        if value is None:
            return None
        field_bytes = metadata_entry(OUR_KEY, data[value.start : value.stop].decode())
        start = len(data) - len(field_bytes)
        return start if data[start:] == field_bytes else None


def is_described(path: Path) -> bool:
    """Whether our entry is anywhere in the metadata of a file."""
    with _opened(path) as data:
        return bool(_our_entries(data))


def _our_entries(data: mmap.mmap) -> list[_Field]:
    entries = (part for part in _fields(data, 0, len(data)) if part.number == _METADATA)
    return [entry for entry in entries if _texts(data, entry).get(1) == OUR_KEY]


@contextmanager
def _opened(path: Path) -> Iterator[mmap.mmap]:
    """The bytes of a file; a ClassifierError if they turn out not to be a complete ONNX file."""
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        problems = (IndexError, ValueError, RecursionError)
        with raising(ClassifierError, f"{path.name} is not a complete ONNX file", *problems):
            yield data


def _locations(data: mmap.mmap, start: int, stop: int, message: str, depth: int = 0) -> Iterator[str]:
    """The values of the entries "location" in a message, which fills the bytes from ``start`` to ``stop``."""
    if depth > _DEEPEST:
        raise ValueError("messages are nested too deeply")
    for part in _fields(data, start, stop):
        inner_message = _FIELDS[message].get(part.number)
        if inner_message == "entry":
            entry = {item.number: data[item.start : item.stop] for item in _fields(data, part.start, part.stop)}
            if entry.get(1) == b"location":
                yield entry.get(2, b"").decode()
        elif inner_message is not None:
            yield from _locations(data, part.start, part.stop, inner_message, depth + 1)


class _Field(NamedTuple):
    """A field of a message: the bytes that its value fills, or the value if it is a number."""

    number: int
    start: int
    stop: int
    value: int = 0


def _fields(data: mmap.mmap, start: int, stop: int) -> Iterator[_Field]:
    """The fields that have a length (texts and messages) and the whole numbers. Fields of fixed size are skipped.

    A number fills no bytes, so that code which expects a message reads an empty one.
    """
    position = start
    while position < stop:
        key, position = _varint(data, position)
        number = key >> 3
        wire_type = key & 7
        if wire_type == 0:  # a number
            value, position = _varint(data, position)
            yield _Field(number, position, position, value)
        elif wire_type == 1:  # eight bytes
            position += 8
        elif wire_type == 5:  # four bytes
            position += 4
        elif wire_type == 2:  # a length and as many bytes
            length, position = _varint(data, position)
            if position + length > stop:
                raise ValueError("a field is longer than its message")
            yield _Field(number, position, position + length)
            position += length
        else:
            raise ValueError(f"unknown wire type {wire_type}")


def _varint(data: mmap.mmap, position: int) -> tuple[int, int]:
    """A number of variable length (seven bits per byte, the lowest first), and the position after it."""
    value = 0
    shift = 0
    while shift < 70:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise ValueError("a number is longer than ten bytes")


# -- operations that mix the images of a batch -------------------------------------------------------------------------

#: Dynamic quantisation takes the range of its numbers over all images of the batch.
_DYNAMIC_QUANTISATION = ("DynamicQuantizeLinear", "DynamicQuantizeMatMul", "DynamicQuantizeLSTM")
#: The outputs of these operations do not depend on the pixels.
_SHAPES = ("Shape", "Size")
#: After these operations, the first axis may be another one than the batch.
_AXIS_CHANGES = (
    "Concat",
    "Einsum",
    "Expand",
    "Gather",
    "GatherElements",
    "GatherND",
    "If",
    "Loop",
    "Reshape",
    "Scan",
    "Slice",
    "Split",
    "Squeeze",
    "Tile",
    "Transpose",
    "Unsqueeze",
)
#: The number of the type int64 in onnx.proto.
_INT64 = 7


def mixes_images(path: Path) -> bool:
    """Whether a graph has an operation that takes a maximum, mean or sum over the images of a batch.

    These are dynamic quantisation, batch normalisation in training mode, and reductions over the first axis as long as
    that is the batch. Other graphs that mix images are recognised by their scores alone.
    """
    with _opened(path) as data:
        for part in _fields(data, 0, len(data)):
            if part.number == 7 and _graph_mixes_images(data, part, set()):
                return True
            if part.number == 25 and _function_mixes_images(data, part):
                return True
    return False


def _function_mixes_images(data: mmap.mmap, function: _Field) -> bool:
    """Whether a function within the file mixes images; all its inputs are taken to depend on the images."""
    for part in _fields(data, function.start, function.stop):
        if part.number == 7 and _node(data, part).always_mixes:
            return True
    return False


@dataclass
class _Node:
    """An operation of a graph, as far as it decides whether images are mixed."""

    operation: str = ""
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    #: The axes in an attribute; None if there is no such attribute.
    axes: list[int] | None = None
    #: Whether no axes mean that nothing is reduced.
    keeps_all_axes: bool = False
    is_in_training: bool = False
    #: The whole numbers in the tensor of a constant.
    constant: list[int] | None = None
    graphs: list[_Field] = field(default_factory=list)

    @property
    def always_mixes(self) -> bool:
        """Whether the operation mixes the images of a batch, whatever its axes."""
        return self.operation in _DYNAMIC_QUANTISATION or self.is_in_training


@dataclass
class _Graph:
    """The operations of a graph in the order in which they are run, and the values that they start with."""

    nodes: list[_Node] = field(default_factory=list)
    inputs: set[str] = field(default_factory=set)
    #: Constants of whole numbers, by name.
    constants: dict[str, list[int]] = field(default_factory=dict)


def _graph_mixes_images(data: mmap.mmap, message: _Field, outer_images: set[str], depth: int = 0) -> bool:
    """Whether an operation of a graph or of its inner graphs mixes images.

    ``outer_images``: names of the values outside an inner graph that depend on the images.
    """
    if depth > _DEEPEST:
        raise ValueError("graphs are nested too deeply")
    graph = _graph(data, message)
    of_images = outer_images | graph.inputs
    # Values whose first axis is the batch. In an inner graph, nothing tells which these are.
    in_batches: set[str] = set() if depth else set(graph.inputs)
    for node in graph.nodes:
        if any(_graph_mixes_images(data, inner, of_images, depth + 1) for inner in node.graphs):
            return True
        if of_images.isdisjoint(node.inputs):
            continue
        if node.always_mixes:
            return True
        if not in_batches.isdisjoint(node.inputs[:1]) and _reduces_batch(node, graph.constants):
            return True
        if node.operation in _SHAPES:
            continue
        of_images.update(node.outputs)
        if node.operation not in _AXIS_CHANGES and not in_batches.isdisjoint(node.inputs):
            in_batches.update(node.outputs)
    return False


def _graph(data: mmap.mmap, message: _Field) -> _Graph:
    """Read a graph, without its weights."""
    graph = _Graph()
    weights: set[str] = set()
    for part in _fields(data, message.start, message.stop):
        if part.number == 1:
            node = _node(data, part)
            graph.nodes.append(node)
            if node.constant is not None and node.outputs:
                graph.constants[node.outputs[0]] = node.constant
        elif part.number == 5:
            weights.add(_texts(data, part).get(8, ""))
            graph.constants.update(_whole_numbers(data, part))
        elif part.number == 11:
            graph.inputs.add(_texts(data, part).get(1, ""))
    # Old files list the weights among the inputs, too.
    graph.inputs -= weights
    return graph


def _reduces_batch(node: _Node, constants: Mapping[str, list[int]]) -> bool:
    """Whether an operation on a batch takes a sum, mean, maximum or the like over its first axis."""
    if not node.operation.startswith("Reduce"):
        return False
    axes = node.axes
    if axes is None and len(node.inputs) > 1 and node.inputs[1]:
        if node.inputs[1] not in constants:
            return False  # The axes are computed when the graph is run.
        axes = constants[node.inputs[1]]
    if not axes:
        return not node.keeps_all_axes
    return 0 in axes


def _node(data: mmap.mmap, message: _Field) -> _Node:
    """Read an operation."""
    node = _Node()
    for part in _fields(data, message.start, message.stop):
        if part.number == 1:
            node.inputs.append(data[part.start : part.stop].decode())
        elif part.number == 2:
            node.outputs.append(data[part.start : part.stop].decode())
        elif part.number == 4:
            node.operation = data[part.start : part.stop].decode()
        elif part.number == 5:
            _read_attribute(data, part, node)
    return node


def _read_attribute(data: mmap.mmap, message: _Field, node: _Node) -> None:
    """Note in a node what one of its attributes says."""
    parts = list(_fields(data, message.start, message.stop))
    name = _texts(data, message).get(1, "")
    number = sum(part.value for part in parts if part.number == 3)
    for part in parts:
        # Fields 6 and 11 hold the graphs of nodes such as If and Loop; writers may leave them empty.
        if part.number in (6, 11) and part.stop > part.start:
            node.graphs.append(part)
    if name == "axes":
        node.axes = _repeated_numbers(data, [part for part in parts if part.number == 8])
    elif name == "training_mode":
        node.is_in_training = number == 1
    elif name == "noop_with_empty_axes":
        node.keeps_all_axes = number == 1
    elif name == "value":
        for part in parts:
            if part.number == 5:
                node.constant = next(iter(_whole_numbers(data, part).values()), None)


def _whole_numbers(data: mmap.mmap, tensor: _Field) -> dict[str, list[int]]:
    """The name of a tensor and its values if they are whole numbers; otherwise nothing."""
    parts = list(_fields(data, tensor.start, tensor.stop))
    if not any(part.number == 2 and part.value == _INT64 for part in parts):
        return {}
    name = _texts(data, tensor).get(8, "")
    for part in parts:
        if part.number == 9 and part.stop > part.start:
            return {name: np.frombuffer(data[part.start : part.stop], "<i8").tolist()}
    return {name: _repeated_numbers(data, [part for part in parts if part.number == 7])}


def _repeated_numbers(data: mmap.mmap, parts: list[_Field]) -> list[int]:
    """The whole numbers of a field that is repeated: one after the other, or packed into one."""
    numbers: list[int] = []
    for part in parts:
        if part.start == part.stop:
            numbers.append(part.value)
        position = part.start
        while position < part.stop:
            value, position = _varint(data, position)
            numbers.append(value)
    return numbers


def _texts(data: mmap.mmap, message: _Field) -> dict[int, str]:
    """The texts in a message, by the number of their field; bytes that are no text are replaced."""
    texts: dict[int, str] = {}
    for part in _fields(data, message.start, message.stop):
        if part.number in (1, 8) and part.stop - part.start < _LONGEST_NAME:
            texts[part.number] = data[part.start : part.stop].decode(errors="replace")
    return texts
