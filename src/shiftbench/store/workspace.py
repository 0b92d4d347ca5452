"""The workspace: a folder of files that holds everything runs produce.

workspace.json                                  the format
datasets/<name>-<fingerprint>/images.parquet    ids and labels, once
                             /record.json       label space and description
                             /problems/*.json   pictures that were skipped or converted
spaces/<name>-<fingerprint>.json                label spaces
predictions/<classifier>/<setting>/<key>.parquet
shards/<classifier>/<setting>/<key>/<block>.parquet   blocks of cells that are not complete yet
locks/                                          claims of running processes
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from shiftbench.errors import StoreError
from shiftbench.labels.space import Labels, LabelSpace
from shiftbench.store.atomic import read_json, write_atomically, write_json
from shiftbench.store.prediction_files import canonical_json, read_block, read_spec
from shiftbench.store.predictions import Predictions

FORMAT = 1


@dataclass(frozen=True)
class Cell:
    """One classifier in one setting: the unit that is planned, stored and scored.

    ``spec`` holds all that decides the predictions; its hash ``key`` names the file. So a run with another
    seed, data set or weights never overwrites or mixes with an older one.
    """

    classifier: str
    setting: str
    spec: Mapping[str, Any]

    @property
    def key(self) -> str:
        return hashlib.blake2b(canonical_json(self.spec).encode(), digest_size=6).hexdigest()

    @property
    def relative(self) -> Path:
        return Path(_file_name(self.classifier)) / _file_name(self.setting) / self.key


@dataclass(frozen=True)
class DatasetRecord:
    """What scoring needs of a data set, without the images."""

    name: str
    fingerprint: str
    space: LabelSpace
    ids: list[str]
    labels: Labels


class Workspace:
    """Opened from a path; nothing is kept in memory but small look-up caches."""

    def __init__(self, root: str | Path, *, create: bool = True) -> None:
        self.root = Path(root)
        marker = self.root / "workspace.json"
        if not marker.exists():
            if not create:
                raise StoreError(
                    f"{self.root} is not a workspace",
                    found="no workspace.json in it" if self.root.is_dir() else "no such folder",
                    hint="name the folder that `shiftbench eval --workspace` wrote to",
                )
            if self._holds_other_things():
                raise StoreError(
                    f"{self.root} is not empty and not a workspace; nothing was written",
                    hint="name a new or empty folder",
                )
            write_json(marker, {"format": FORMAT})
        found = read_json(marker).get("format")
        if found != FORMAT:
            raise StoreError("this workspace has another format", found=found, expected=FORMAT)

    def _holds_other_things(self) -> bool:
        """Not counting the marker that another run is about to put in place, or was killed at."""
        entries = [path.name for path in self.root.iterdir()] if self.root.is_dir() else []
        return any(not name.startswith((".workspace.json.", "workspace.json")) for name in entries)

    # -- where things are --------------------------------------------------------------------------------

    def predictions_path(self, cell: Cell) -> Path:
        return (self.root / "predictions" / cell.relative).with_suffix(".parquet")

    def shards_folder(self, cell: Cell) -> Path:
        return self.root / "shards" / cell.relative

    def shard_path(self, cell: Cell, start: int) -> Path:
        return self.shards_folder(cell) / f"{start:09d}.parquet"

    def lock_path(self, name: str) -> Path:
        return self.root / "locks" / f"{_file_name(name)}.lock"

    # -- data sets and label spaces ----------------------------------------------------------------------

    def record_dataset(
        self,
        name: str,
        fingerprint: str,
        space: LabelSpace,
        ids: Iterable[str],
        labels: Labels,
        about: Mapping[str, Any],
    ) -> None:
        """Keep ids and labels once; a second call with the same content writes nothing."""
        folder = self._dataset_folder(name, fingerprint)
        if (folder / "record.json").exists():
            return
        self.record_space(space)
        table = pa.table({"id": pa.array(list(ids), pa.string()), "label": pa.array(labels, pa.int32())})
        write_atomically(
            folder / "images.parquet", lambda temporary: pq.write_table(table, temporary, compression="zstd")
        )
        # Written last: a record without its images can't exist.
        write_json(folder / "record.json", {**about, "space": space_key(space)})

    def record_space(self, space: LabelSpace) -> None:
        path = self.root / "spaces" / f"{_file_name(space_key(space))}.json"
        if not path.exists():
            members = None if space.members is None else [list(group) for group in space.members]
            value = {"name": space.name, "keys": space.keys, "names": space.names, "members": members}
            write_json(path, value)

    def record_problems(self, name: str, fingerprint: str, block: int, problems: list[dict[str, str]]) -> None:
        """Pictures of one block that were skipped or converted."""
        path = self._dataset_folder(name, fingerprint) / "problems" / f"{block:09d}.json"
        if problems:
            write_json(path, problems)

    def problems(self, name: str, fingerprint: str) -> list[dict[str, str]]:
        folder = self._dataset_folder(name, fingerprint) / "problems"
        return [problem for path in sorted(folder.glob("*.json")) for problem in read_json(path)]

    def dataset(self, name: str, fingerprint: str) -> DatasetRecord:
        return _read_dataset(self.root, self._dataset_folder(name, fingerprint), name, fingerprint)

    def space(self, key: str) -> LabelSpace:
        return _read_space(self.root / "spaces" / f"{_file_name(key)}.json")

    def _dataset_folder(self, name: str, fingerprint: str) -> Path:
        return self.root / "datasets" / f"{_file_name(name)}-{fingerprint[:16]}"

    # -- predictions -------------------------------------------------------------------------------------

    def cells(self, classifiers: Iterable[str] = (), settings: Iterable[str] = ()) -> Iterator[Cell]:
        """All complete cells, by name; empty arguments mean all."""
        wanted_classifiers, wanted_settings = set(classifiers), set(settings)
        for path in sorted((self.root / "predictions").glob("*/*/*.parquet")):
            classifier, setting = unquote(path.parent.parent.name), unquote(path.parent.name)
            if wanted_classifiers and classifier not in wanted_classifiers:
                continue
            if wanted_settings and setting not in wanted_settings:
                continue
            yield Cell(classifier, setting, read_spec(path))

    def labels_of(self, spec: Mapping[str, Any]) -> tuple[list[str], Labels, LabelSpace]:
        """Ids, labels and label space of a setting's rows."""
        dataset = spec["dataset"]
        folder = self._dataset_folder(dataset["name"], dataset["fingerprint"])
        return _read_rows(self.root, folder, dataset["name"], dataset["fingerprint"], spec["space"])

    def read(
        self, cell: Cell, *, top_k: int | None = None, confidence: bool = True, scores: bool = True
    ) -> Predictions:
        """The verified predictions of a complete cell; what is not asked for is not read."""
        block = read_block(self.predictions_path(cell), top_k=top_k, confidence=confidence, scores=scores)
        ids, labels, space = self.labels_of(cell.spec)
        return Predictions(
            cell.classifier,
            cell.setting,
            space,
            ids,
            labels,
            block.top,
            block.confidence,
            dict(cell.spec),
            block.scores,
        )


def setting_rows(labels: Labels, source: LabelSpace, target: LabelSpace) -> tuple[np.ndarray[Any, Any], Labels]:
    """Which images of a data set belong to a setting, and their labels in its label space.

    Images whose class the setting lacks are left out (val restricted to the classes of ImageNet-A); a data
    set without any labels is kept whole, with -1.
    """
    if not np.any(labels >= 0):
        return np.arange(len(labels)), np.full(len(labels), -1, np.int32)
    mapped = target.relabel_from(source)
    relabelled = np.where(labels >= 0, mapped[np.maximum(labels, 0)], -1).astype(np.int32)
    rows = np.flatnonzero(relabelled >= 0)
    return rows, relabelled[rows]


def space_key(space: LabelSpace) -> str:
    return f"{space.name}-{space.fingerprint}"


@lru_cache(maxsize=64)
def _read_dataset(root: Path, folder: Path, name: str, fingerprint: str) -> DatasetRecord:
    try:
        about = read_json(folder / "record.json")
        table = pq.read_table(folder / "images.parquet")
    except (OSError, ValueError, pa.ArrowException) as error:
        raise StoreError(f"the record of data set {name!r} can't be read: {error}") from error
    space = _read_space(root / "spaces" / f"{_file_name(about['space'])}.json")
    labels = table.column("label").to_numpy().astype(np.int32)
    return DatasetRecord(name, fingerprint, space, table.column("id").to_pylist(), labels)


@lru_cache(maxsize=64)
def _read_rows(
    root: Path, folder: Path, name: str, fingerprint: str, space: str
) -> tuple[list[str], Labels, LabelSpace]:
    record = _read_dataset(root, folder, name, fingerprint)
    target = _read_space(root / "spaces" / f"{_file_name(space)}.json")
    rows, labels = setting_rows(record.labels, record.space, target)
    if len(rows) == len(record.ids):
        return record.ids, labels, target
    return [record.ids[row] for row in rows], labels, target


@lru_cache(maxsize=256)
def _read_space(path: Path) -> LabelSpace:
    value = read_json(path)
    members = value["members"]
    return LabelSpace(
        value["name"],
        tuple(value["keys"]),
        tuple(value["names"]),
        None if members is None else tuple(tuple(group) for group in members),
    )


def _file_name(name: str) -> str:
    """Any name as one safe path component; reversed by ``unquote``."""
    safe = quote(name, safe=" +,=@")
    return "%2E" + safe[1:] if safe.startswith(".") else safe
