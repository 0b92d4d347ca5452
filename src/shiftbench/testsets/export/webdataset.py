"""WebDataset shards: ``key.jpg``, ``key.cls`` with the class's index, ``key.json`` with all that is known."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

from shiftbench.testsets.export.base import exporters
from shiftbench.testsets.export.records import Record, read_records
from shiftbench.testsets.frozen import FrozenSet

SHARD_SIZE = 1000


@exporters.register("webdataset")
def write_shards(frozen: FrozenSet, folder: Path) -> None:
    """WebDataset tar shards of a thousand pictures, in the set's random order."""
    records = read_records(frozen)
    count = max(1, -(-len(records) // SHARD_SIZE))
    for number in range(count):
        with tarfile.open(folder / f"{frozen.set_name}-{number:06d}.tar", "w", format=tarfile.GNU_FORMAT) as archive:
            for record in records[number * SHARD_SIZE : (number + 1) * SHARD_SIZE]:
                _add_sample(archive, record)
    (folder / "classes.txt").write_text("".join(f"{key}\n" for key in frozen.space.keys), encoding="utf-8")


def _add_sample(archive: tarfile.TarFile, record: Record) -> None:
    key = record.path.stem
    described: dict[str, Any] = {"label": record.label, "class": record.class_key, **record.details}
    _add(archive, f"{key}{record.path.suffix}", record.path.read_bytes())
    _add(archive, f"{key}.cls", str(record.label).encode())
    _add(archive, f"{key}.json", json.dumps(described, ensure_ascii=False, sort_keys=True).encode())


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    """A member without date or owner, so that equal content gives equal bytes."""
    member = tarfile.TarInfo(name)
    member.size, member.mode, member.mtime = len(data), 0o644, 0
    archive.addfile(member, io.BytesIO(data))
