"""Test sets on disk: frozen sets as class folders, WebDataset shards or Hugging Face tables; shortlists for review."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shiftbench.datasets.manifest import read_rows
from shiftbench.errors import StoreError
from shiftbench.io.atomic import write_atomically
from shiftbench.jobs.blocks import cut
from shiftbench.outputs.packed import SHARD_SIZE, PackedSample, table_name, write_table, write_tar
from shiftbench.outputs.staging import fill_folder, place_file
from shiftbench.registry import Registry
from shiftbench.testsets.frozen import FrozenSet

if TYPE_CHECKING:
    from shiftbench.testsets.filtration.shortlist import Filtration
    from shiftbench.testsets.pool.sources import Offer

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


def _sample(frozen: FrozenSet, row: Row) -> PackedSample:
    path, label = frozen.folder / "images" / row["path"], frozen.space.index(row["label"])
    details = {name: value for name, value in row.items() if name not in ("path", "label", "position")}
    return PackedSample(
        path.stem, path.suffix, path.read_bytes(), label, {"label": label, "class": row["label"], **details}
    )


def write_shortlist(filtration: Filtration, folder: str | Path) -> Path:
    """What a filtration leaves, in a new folder; returns that of the images.

    ``images/<class>/...`` are the shortlisted images as they came: this folder is imported, and has no predictions.
    ``funnel.json`` counts what each step left. ``review.csv`` lists the models' predictions for the report, not for
    reviewers.
    """
    from shiftbench.testsets.pool.sources import dataset_offers

    folder = Path(folder)
    images = folder / "images"
    if images.exists():
        raise StoreError(f"{folder} already holds a shortlist", hint="choose a new folder, or delete this one")
    images.mkdir(parents=True)
    for number, offer in enumerate(dataset_offers(filtration.subset())):
        _write_offer(images / (offer.class_key or "unlabelled") / _file_name(number, offer.id), offer)
    filtration.review_list().write(folder / "review.csv")
    filtration.funnel.write(folder / "funnel.json")
    return images


def _write_offer(path: Path, offer: Offer) -> None:
    data = offer.data() if callable(offer.data) else offer.data
    write_atomically(path, lambda temporary: temporary.write_bytes(data), durable=False)


def _file_name(number: int, image_id: str) -> str:
    """The last part of the id, made safe; the number keeps two of the same name apart.

    >>> _file_name(7, "cat/../my cat.jpg"), _file_name(7, "cifar/00012")
    ('000007-my_cat.jpg', '000007-00012.png')
    """
    last = re.sub(r"[^A-Za-z0-9._-]", "_", image_id.rsplit("/", 1)[-1]).lstrip(".")
    return f"{number:06d}-{last}" if Path(last).suffix else f"{number:06d}-{last}.png"
