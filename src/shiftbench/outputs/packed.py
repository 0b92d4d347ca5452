"""Many images per file: WebDataset shards and Hugging Face tables.

A block of images is decoded once; each variant of it is one file, written atomically. A killed run loses only its
unfinished files, a few seconds of work.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from shiftbench.arrays import Pixels
from shiftbench.errors import check_integer
from shiftbench.jobs.base import cut
from shiftbench.jobs.threads import on_threads
from shiftbench.outputs.layouts import Layout, Variants, Writer, keep_skipped

#: Images per file.
SHARD_SIZE = 1000
#: Decoded images of a block are kept up to this number of bytes; the others are decoded again for each variant.
_KEEP_BYTES = 1 << 30


@dataclass(frozen=True)
class PackedSample:
    """An image file with its class, -1 if there is none, and what else is known about it."""

    key: str
    suffix: str
    image: bytes
    label: int
    details: Mapping[str, Any] = field(default_factory=dict)


class Packed(Layout):
    """``shard_size`` images per file and variant: WebDataset shards, or Hugging Face tables if there are ``classes``.

    ``<variant>/000000.tar`` of ``key.jpg`` and ``key.cls``, or ``<variant>/data/test-00000-of-00001.parquet``.
    """

    threads_inside = True

    def __init__(
        self,
        variants: Variants,
        folder: Path,
        keys: Sequence[str],
        shard_size: int = SHARD_SIZE,
        classes: Sequence[str] | None = None,
    ) -> None:
        super().__init__(variants, folder)
        check_integer("shard_size", shard_size)
        self.unit_images = shard_size
        self._keys = keys
        self._classes = classes
        self.parts = [range(block.start, block.stop) for block in cut(len(variants.source), shard_size)]

    def missing(self, unit: int) -> Sequence[int]:
        variants = range(len(self.variants.names))
        return [variant for variant in variants if not self.is_as_written(self._file(variant, unit))]

    def write(self, unit: int, writer: Writer) -> None:
        indices = self.parts[unit]
        decoded = _DecodedImages(self.variants, writer)
        loaded = on_threads(decoded.load, indices, writer.threads)
        usable = [index for index, is_usable in zip(indices, loaded, strict=True) if is_usable]
        keep_skipped(self.folder, unit, writer)

        def write_variant(variant: int) -> None:
            samples = self._samples(variant, usable, decoded)
            self.put(writer, self._file(variant, unit), partial(self._pack, samples))
            writer.wrote(len(usable))
            writer.advance(len(indices) - len(usable))

        on_threads(write_variant, self.missing(unit), writer.threads)

    def _samples(self, variant: int, indices: Sequence[int], decoded: _DecodedImages) -> Iterator[PackedSample]:
        """One variant of these source images."""
        source = self.variants.source
        encoding = self.variants.encoding
        for index in indices:
            pixels = self.variants.make(variant, decoded.get(index), source.ids[index])
            label = int(source.labels[index])
            yield PackedSample(self._keys[index], f".{encoding.ending}", encoding(pixels), label)

    def _pack(self, samples: Iterable[PackedSample], path: Path) -> None:
        if self._classes is None:
            write_tar(path, samples)
        else:
            write_table(path, samples, self._classes)

    def _file(self, variant: int, unit: int) -> str:
        name = f"{unit:06d}.tar" if self._classes is None else table_name(unit, len(self.units))
        return f"{self.variants.names[variant]}/{name}"


class _DecodedImages:
    """The source images of a unit, kept in memory as far as they fit."""

    def __init__(self, variants: Variants, writer: Writer) -> None:
        self._variants = variants
        self._writer = writer
        self._images: dict[int, Pixels] = {}
        self._free_bytes = _KEEP_BYTES

    def load(self, index: int) -> bool:
        """Decode an image, and keep it if it fits; returns whether it can be used."""
        pixels = self._writer.read(self._variants, index)
        if pixels is None:
            return False
        # Two threads may exceed the limit together, which is acceptable.
        if pixels.nbytes <= self._free_bytes:
            self._free_bytes -= pixels.nbytes
            self._images[index] = pixels
        return True

    def get(self, index: int) -> Pixels:
        """A usable image, decoded again if it was not kept."""
        if index in self._images:
            return self._images[index]
        return self._variants.read(index)


def write_tar(path: Path, samples: Iterable[PackedSample]) -> None:
    """Write a WebDataset shard: ``key.jpg``, ``key.cls`` with the index of the class, ``key.json`` with the details.

    Members have no date or owner, so that equal content gives equal bytes.
    """
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as archive:
        for sample in samples:
            members = {sample.suffix: sample.image}
            if sample.label >= 0:
                members[".cls"] = str(sample.label).encode()
            if sample.details:
                members[".json"] = json.dumps(sample.details, ensure_ascii=False, sort_keys=True).encode()
            for suffix, data in members.items():
                member = tarfile.TarInfo(f"{sample.key}{suffix}")
                member.size = len(data)
                member.mode = 0o644
                member.mtime = 0
                archive.addfile(member, io.BytesIO(data))


def table_name(number: int, count: int) -> str:
    """The name of a file of a Hugging Face dataset."""
    return f"data/test-{number:05d}-of-{count:05d}.parquet"


def write_table(
    path: Path, samples: Iterable[PackedSample], classes: Sequence[str], columns: Mapping[str, str] | None = None
) -> None:
    """Write Parquet that ``datasets.load_dataset(FOLDER)`` opens.

    ``columns`` are further columns, made of the details of samples: name to type.
    """
    import pyarrow as pa
    from pyarrow import parquet

    rows = list(samples)
    columns = columns or {}
    files = [{"bytes": row.image, "path": f"{row.key}{row.suffix}"} for row in rows]
    values: dict[str, object] = {
        "image": pa.array(files, type=pa.struct([("bytes", pa.binary()), ("path", pa.string())])),
        "label": pa.array([row.label for row in rows], type=pa.int64()),
    }
    for name, kind in columns.items():
        values[name] = pa.array([row.details.get(name) for row in rows], type=pa.type_for_alias(kind))
    features: dict[str, object] = {
        "image": {"_type": "Image"},
        "label": {"names": list(classes), "_type": "ClassLabel"},
    }
    for name, kind in columns.items():
        features[name] = {"dtype": kind, "_type": "Value"}
    table = pa.table(values).replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    # Row groups are small, so that a reader of one image need not decode all of them.
    parquet.write_table(table, path, row_group_size=100)
