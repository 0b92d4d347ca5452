"""Frozen sets in the layouts that others read: class folders, WebDataset shards, Hugging Face tables."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from shiftbench.datasets.manifest import read_rows
from shiftbench.jobs.blocks import cut
from shiftbench.outputs.packed import SHARD_SIZE, Sample, table_name, write_table, write_tar
from shiftbench.outputs.staging import fill_folder, place_file
from shiftbench.registry import Registry
from shiftbench.testsets.frozen import FrozenSet

Row = Mapping[str, Any]
#: ``function(frozen, folder)`` fills an empty folder.
Exporter = Callable[[FrozenSet, Path], None]
exporters: Registry[Exporter] = Registry("export format")
#: Images per Parquet file.
TABLE_SIZE = 2000
#: Columns of the tables beside image and label.
_COLUMNS = {
    "selection_frequency": "float64",
    "selected": "int32",
    "annotations": "int32",
    "keyword": "string",
    "date": "string",
    "licence": "string",
    "author": "string",
    "url": "string",
    "source": "string",
}


def export(frozen: FrozenSet, format: str, target: str | Path) -> Path:
    """Write a frozen set as ``folder``, ``webdataset`` or ``huggingface``, with its card, into a new folder."""
    target = Path(target)
    write = exporters.get(format)
    frozen.open()  # complete and unchanged, or nothing is passed on

    def fill(folder: Path) -> None:
        write(frozen, folder)
        shutil.copyfile(frozen.folder / "README.md", folder / "README.md")

    fill_folder(target, fill)
    return target


def export_images(frozen: FrozenSet, ids: Sequence[str], target: str | Path) -> Path:
    """Some images of a frozen set, in class folders, in a new folder."""

    def fill(folder: Path) -> None:
        for image in ids:  # the ids of a frozen set are its files
            place_file(frozen.folder / "images" / image, folder / image)

    fill_folder(Path(target), fill)
    return Path(target)


@exporters.register("folder")
def write_folder(frozen: FrozenSet, folder: Path) -> None:
    """Class folders (ImageFolder), the files as they are."""
    shutil.copytree(frozen.folder / "images", folder, dirs_exist_ok=True)
    shutil.copyfile(frozen.folder / "images.jsonl", folder / "images.jsonl")


@exporters.register("webdataset")
def write_shards(frozen: FrozenSet, folder: Path) -> None:
    """WebDataset tar shards of a thousand images, in the set's random order."""
    rows = ordered_rows(frozen)
    for number, part in enumerate(_parts(rows, SHARD_SIZE)):
        write_tar(folder / f"{frozen.set_name}-{number:06d}.tar", (_sample(frozen, row) for row in part))
    (folder / "classes.txt").write_text("".join(f"{key}\n" for key in frozen.space.keys), encoding="utf-8")


@exporters.register("huggingface")
def write_tables(frozen: FrozenSet, folder: Path) -> None:
    """Parquet files for Hugging Face's datasets library, in the set's random order."""
    (folder / "data").mkdir()
    parts = _parts(ordered_rows(frozen), TABLE_SIZE)
    for number, part in enumerate(parts):
        samples = (_sample(frozen, row) for row in part)
        write_table(folder / table_name(number, len(parts)), samples, frozen.space.keys, _COLUMNS)


def ordered_rows(frozen: FrozenSet) -> list[Row]:
    """The manifest in the set's own random order, so that any first part of it is a fair sample."""
    return sorted(read_rows(frozen.folder / "images.jsonl"), key=lambda row: int(row["position"]))


def _parts(rows: Sequence[Row], size: int) -> list[Sequence[Row]]:
    return [rows[block.slice] for block in cut(len(rows), size)] or [rows]


def _sample(frozen: FrozenSet, row: Row) -> Sample:
    path, label = frozen.folder / "images" / row["path"], frozen.space.index(row["label"])
    details = {name: value for name, value in row.items() if name not in ("path", "label", "position")}
    return Sample(path.stem, path.suffix, path.read_bytes(), label, {"label": label, "class": row["label"], **details})
