"""The workspace: a folder of files that holds everything runs produce.

workspace.json                                  the format
datasets/<name>-<fingerprint>/images.parquet    ids and labels, once
                             /metadata.parquet  further columns of the images, as the last run knew them
                             /record.json       label space and description
                             /source.json       where the images were, as the last run knew
                             /problems/*.json   images that were skipped or converted
spaces/<name>-<fingerprint>.json                label spaces
settings/<hash>.json                            notes, families and shift records of a run's settings
predictions/<classifier>/<setting>/<key>.parquet
images/<classifier>/<setting>/<key>.parquet     a few images as the model saw them; may be deleted
shards/<classifier>/<setting>/<key>/<block>.parquet   blocks of results that are not complete yet
catalogue.parquet                               the specs of many results at once; may be deleted
locks/                                          claims of running processes

Every file has a digest that is checked when it is read: see ``sealed`` and ``prediction_files``. The names of files in
settings/ are the hashes of their content.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import product
from pathlib import PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa

from shiftbench.errors import StoreError
from shiftbench.grouping import by_key
from shiftbench.io.atomic import write_json
from shiftbench.io.locks import file_lock
from shiftbench.io.paths import GoneError, Location, is_object, local, place, remove_tree
from shiftbench.jobs.base import Block
from shiftbench.labels.space import Labels, LabelSets, LabelSpace
from shiftbench.store.prediction_files import (
    PredictionBlock,
    ShiftedImage,
    join_shifted_images,
    read_block,
    read_shifted_images,
    read_spec,
    write_block,
)
from shiftbench.store.predictions import Predictions, SettingRows, setting_rows
from shiftbench.store.sealed import JSON_FILES, TABLES, SealedFiles, damaged, explained, read_catalogue, write_catalogue
from shiftbench.store.spec import ResultSpec, SettingRecord, canonical_json, spec_key

if TYPE_CHECKING:
    from shiftbench.store.designs import DesignPasses

FORMAT = 2
_METADATA, _SOURCE = "metadata.parquet", "source.json"


@dataclass(frozen=True)
class Result:
    """One classifier in one setting: the unit that is planned, stored and scored.

    ``spec`` holds all that decides the predictions; its hash ``key`` names the file. So a run with another
    seed, dataset or weights never overwrites or mixes with an older one.
    """

    classifier: str  #: The name that the model was evaluated under: that of its folder.
    setting: str
    spec: ResultSpec
    #: What the model is called now, and in tables: its id where the workspace holds several versions of that name.
    name: str = field(default="", compare=False)
    title: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name or self.classifier)
        object.__setattr__(self, "title", self.title or self.name)

    @property
    def key(self) -> str:
        return self.spec.key

    @property
    def model_id(self) -> str:
        """``name@hash``: one version of a model, with its weights and preprocessing."""
        return f"{self.name}@{self.spec.classifier.version}"

    @cached_property
    def relative(self) -> PurePosixPath:
        return PurePosixPath(_file_name(self.classifier)) / _file_name(self.setting) / self.key


@dataclass(frozen=True)
class PartResult(Result):
    """A setting of the full grid as a design knows it: on the images that met its shift in one of the passes.

    It has no file of its own; ``store.designs`` makes it from the results of the passes.
    """

    passes: DesignPasses = field(kw_only=True, compare=False)
    place: int = field(kw_only=True)  #: The number of its shift.
    record: SettingRecord = field(kw_only=True, compare=False)

    @cached_property
    def relative(self) -> PurePosixPath:
        return self.passes.results[0].relative


@dataclass(frozen=True)
class DatasetRecord:
    """What scoring needs of a dataset, without the images."""

    name: str
    fingerprint: str
    space: LabelSpace
    ids: list[str]
    labels: Labels
    label_sets: LabelSets | None = None  #: All classes of each image, where images may have several.
    list_name: str = ""  #: Of a published list of images: its name.


class Workspace:
    """Opened from a path or URL; nothing is kept in memory but small look-up caches.

    Args:
        root: Folder or URL (``s3://bucket/folder``).
        create: Whether a folder that is not there, or empty, becomes a workspace.
        damaged_too: Open it even if workspace.json is damaged or lost, to verify or repair it.

    Raises:
        StoreError: No workspace, or an unsupported format version.
    """

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.root}>"

    def __init__(self, root: str | Location, *, create: bool = True, damaged_too: bool = False) -> None:
        self.root = place(root)
        try:
            version = self._read_format()
        except (FileNotFoundError, NotADirectoryError, StoreError) as error:
            known = any((self.root / name).is_dir() for name in ("predictions", "datasets", "shards"))
            if damaged_too and (isinstance(error, StoreError) or known):
                # Of a workspace whose marker is lost: files with digests are of this format.
                records = (path.read_bytes() for path in self.root.glob("*/*/record.json") if path.is_file())
                version = FORMAT if any(b'"digest"' in record for record in records) else 1
            elif isinstance(error, StoreError):
                raise
            else:
                self._create(allowed=create)
                version = FORMAT
        #: Reads and writes its small files, with digests.
        self.files = SealedFiles(self.root, required=version == FORMAT)
        self._marker = self._state()
        #: Label spaces that were recorded, under the names that they are kept under.
        self._kept_spaces: dict[LabelSpace, LabelSpace] = {}

    @property
    def marker_path(self) -> Location:
        """The file that makes a folder a workspace."""
        return self.root / "workspace.json"

    def _create(self, *, allowed: bool) -> None:
        is_folder, exists = self.root.is_dir(), self.root.exists()
        if not allowed:
            there = "a file, not a folder" if exists else "no such folder"
            raise StoreError(
                f"{self.root} is not a workspace",
                found="no workspace.json in it" if is_folder else there,
                hint="name the folder that `shiftbench eval --workspace` wrote to",
            ) from None
        if exists and not is_folder:
            message = f"{self.root} is a file, and a workspace is a folder"
            raise StoreError(message, hint="name a new or empty folder") from None
        # Not counting the marker that another run is about to put in place, was killed at, or has just written.
        entries = [path.name for path in self.root.iterdir()] if is_folder else []
        others = any(not name.startswith((".workspace.json.", "workspace.json")) for name in entries)
        if others and not self.marker_path.exists():
            raise StoreError(
                f"{self.root} is not empty and not a workspace; nothing was written",
                hint="name a new or empty folder; `shiftbench store repair` restores a lost workspace.json",
            ) from None
        self.write_marker(exclusive=True)

    def write_marker(self, *, exclusive: bool = False) -> None:
        """Write workspace.json, as it is in every workspace of this format.

        Runs recognise their workspace by this file: one that creates it must not exchange another run's.
        """
        SealedFiles(self.root, required=True).write_json(self.marker_path, {"format": FORMAT}, exclusive=exclusive)
        self._marker = self._state()

    def _read_format(self) -> int:
        with explained(self.marker_path):
            found = json.loads(self.marker_path.read_bytes())["format"]
            if found not in (1, FORMAT) or isinstance(found, bool | float):
                raise StoreError(
                    "unsupported workspace format version", found=found, expected=f"1 or {FORMAT}",
                    hint="update shiftbench, or run `shiftbench store verify` if workspace.json may be damaged",
                )  # fmt: skip
            SealedFiles(self.root, required=found == FORMAT).read_json(self.marker_path)
        return int(found)

    def upgrade(self) -> None:
        """Give the files of a workspace of format 1 digests, before anything is written to it.

        Predictions have digests already, and keep their bytes. The marker comes last: until then readers take both.
        """
        if self.files.required:
            return
        with file_lock(self.lock_path("upgrade"), wait=True):
            if not self._upgraded():
                new = SealedFiles(self.root, required=True)
                for path, is_table in self.sealed_files():
                    with suppress(StoreError):  # a damaged one stays, and is reported when it is read
                        if is_table:
                            new.write_table(path, self.files.read_table(path))
                        else:
                            new.write_json(path, self.files.read_json(path))
                self.write_marker()
                self.files = new

    def _upgraded(self) -> bool:
        """Whether another run has upgraded the workspace since it was opened here; then it is used as upgraded."""
        with suppress(FileNotFoundError, StoreError):
            if not self.files.required and self._read_format() == FORMAT:
                self.files, self._marker = SealedFiles(self.root, required=True), self._state()
                return True
        return False

    def sealed_files(self) -> Iterator[tuple[Location, bool]]:
        """The small files, and whether each is a table."""
        for is_table, patterns in enumerate((JSON_FILES, TABLES)):
            for pattern in patterns:
                found: list[Location] = sorted(self.root.glob(pattern))
                yield from ((path, bool(is_table)) for path in found)

    def settings_files(self) -> list[Location]:
        """The files that hold what runs know of their settings."""
        return sorted((self.root / "settings").glob("*.json"))

    def _state(self) -> tuple[int, int] | None:
        if is_object(self.root):
            return None  # asking costs a request, and objects have no folder to vanish
        try:
            state = local(self.marker_path).stat()
        except OSError:
            return None
        return state.st_ino, state.st_mtime_ns

    def check_present(self) -> None:
        """Raise GoneError if the folder was deleted or replaced since it was opened; call it before writing."""
        if self._state() != self._marker and not self._upgraded():
            raise GoneError(self.root)

    def __getstate__(self) -> dict[str, object]:
        return {key: value for key, value in self.__dict__.items() if key != "_setting_records"}

    # -- where things are --------------------------------------------------------------------------------

    def predictions_path(self, result: Result) -> Location:
        """The file of a complete result."""
        return (self.root / "predictions" / result.relative).with_suffix(".parquet")

    def images_path(self, result: Result) -> Location:
        """The file of a result's kept images."""
        return (self.root / "images" / result.relative).with_suffix(".parquet")

    def blocks_folder(self, result: Result) -> Location:
        """The folder of an incomplete result's blocks."""
        return self.root / "shards" / result.relative

    def block_path(self, result: Result, block: Block) -> Location:
        """The file of a block."""
        return self.blocks_folder(result) / f"{block.name}.parquet"

    def block_folders(self) -> list[Location]:
        """The folders of results that are not complete, or not cleared up."""
        return sorted(path for path in (self.root / "shards").glob("*/*/*") if path.is_dir())

    def lock_path(self, name: str) -> Location:
        """The file that a process locks to claim something."""
        return self.root / "locks" / f"{_file_name(name)}.lock"

    # -- datasets and label spaces ----------------------------------------------------------------------

    def record_dataset(
        self,
        name: str,
        fingerprint: str,
        space: LabelSpace,
        ids: Iterable[str],
        labels: Labels,
        about: Mapping[str, object],
        label_sets: LabelSets | None = None,
    ) -> None:
        """Keep ids and labels once; a second call with the same content writes nothing."""
        folder = self.dataset_folder(name, fingerprint)
        recorded_space = self.record_space(space)
        with suppress(StoreError):  # none, or a damaged one
            self.dataset(name, fingerprint)
            return
        columns = {"id": pa.array(list(ids), pa.string()), "label": pa.array(labels, pa.int32())}
        if label_sets is not None:
            columns["labels"] = pa.array([list(own) for own in label_sets], pa.list_(pa.int32()))
        self.write_table(folder / "images.parquet", pa.table(columns))
        # Written last: a record without its images can't exist.
        self.write_json(folder / "record.json", {**about, "space": space_key(recorded_space)})

    def record_metadata(self, name: str, fingerprint: str, columns: Mapping[str, Sequence[object]]) -> None:
        """Keep further columns of a dataset's images, as text, for scores by group.

        They decide no prediction and are not part of the fingerprint: the last run that knew any is right.
        """
        if not columns:
            return

        def text(value: object) -> str | None:
            """Any value as text that UTF-8 can hold."""
            return None if value is None else str(value).encode("utf-8", "replace").decode("utf-8")

        table = pa.table({column: pa.array(map(text, values), pa.string()) for column, values in columns.items()})
        path = self.dataset_folder(name, fingerprint) / _METADATA
        with suppress(FileNotFoundError, StoreError):
            if self.files.read_table(path).equals(table):
                return
        self.write_table(path, table)

    def metadata(self, name: str, fingerprint: str) -> dict[str, list[str | None]]:
        """The further columns of a dataset's images, in the order of its ids; none in older workspaces."""
        path = self.dataset_folder(name, fingerprint) / _METADATA
        try:
            columns: dict[str, list[str | None]] = self.files.read_table(path).to_pydict()
        except FileNotFoundError:
            return {}
        return columns

    def record_space(self, space: LabelSpace) -> LabelSpace:
        """Keep a label space once; returns it under the name that it is kept under."""
        known = self._kept_spaces.get(space)
        if known is not None:
            return known
        known = self._kept_spaces[space] = self.known_space(space)
        with suppress(StoreError):  # none, or a damaged one
            self.space(space_key(known))
            return known
        members = None if space.members is None else [list(group) for group in space.members]
        value = {"name": known.name, "keys": space.keys, "names": space.names, "members": members}
        self.write_json(self.space_path(space_key(known)), value)
        return known

    def known_space(self, space: LabelSpace) -> LabelSpace:
        """The space under the name that the workspace has for these classes in this order.

        A Parquet file, a folder and a list of classes each call the same classes otherwise. Under one name, results
        over them are found again and share a column. Older workspaces may have several names: each is kept.
        """
        if self.space_path(space_key(space)).exists():
            return space
        ending = f"-{space.fingerprint}"
        names = sorted(
            unquote(path.stem).removesuffix(ending) for path in (self.root / "spaces").glob(f"*{ending}.json")
        )
        return replace(space, name=names[0]) if names else space

    def space_path(self, key: str) -> Location:
        """The file of a label space."""
        return self.root / "spaces" / f"{_file_name(key)}.json"

    def record_problems(self, name: str, fingerprint: str, block: Block, problems: list[dict[str, str]]) -> None:
        """Images of one block that were skipped or converted."""
        path = self.dataset_folder(name, fingerprint) / "problems" / f"{block.name}.json"
        if problems:
            self.write_json(path, {"problems": problems})

    def problems(self, name: str, fingerprint: str) -> list[dict[str, str]]:
        """Images of a dataset that were skipped or converted."""
        found: dict[str, dict[str, str]] = {}  # by image: a block and a part of it name the same ones
        files: list[Location] = sorted((self.dataset_folder(name, fingerprint) / "problems").glob("*.json"))
        for path in files:
            with explained(path):
                found |= {problem["id"]: problem for problem in self.files.read_json(path)["problems"]}
        return list(found.values())

    def record_source(self, name: str, fingerprint: str, source: tuple[str, str]) -> None:
        """Keep where the images of a dataset were: its role in the suite, and the path that filled it."""
        if self.source(name, fingerprint) != source:
            value = {"role": source[0], "given": source[1]}
            self.write_json(self.dataset_folder(name, fingerprint) / _SOURCE, value)

    def source(self, name: str, fingerprint: str) -> tuple[str, str] | None:
        """(role, path) of the last run that knew; None in older workspaces."""
        try:
            value = self.files.read_json(self.dataset_folder(name, fingerprint) / _SOURCE)
            return str(value["role"]), str(value["given"])
        except (OSError, KeyError, StoreError):
            return None

    def record_settings(self, records: Mapping[str, SettingRecord]) -> None:
        """Keep what a run knows of its settings, by ``ResultSpec.setting_key``: one file per suite and options."""
        value = {key: records[key].to_json() for key in sorted(records)}
        path = self.root / "settings" / f"{spec_key(canonical_json(value))}.json"
        with suppress(FileNotFoundError, StoreError):
            read_settings(path)
            records = {}
        if records:
            self.upgrade()
            write_json(path, value)
        self.__dict__.pop("_setting_records", None)

    def setting_record(self, result: Result) -> SettingRecord:
        """What the run kept of a result's setting; as much as the spec tells where it kept nothing."""
        if isinstance(result, PartResult):
            return result.record
        known = self._setting_records.get(result.spec.setting_key(result.setting))
        shift = result.spec.shift.description
        return known or SettingRecord(member=result.spec.member(result.setting), shift=shift)

    def designs(self) -> dict[str, list[str]]:
        """By setting: the settings of designs that evaluated it on some of the images."""
        records = self._setting_records.values()
        return by_key((part.setting, str(record.shift["name"])) for record in records for part in record.parts)

    @cached_property
    def _setting_records(self) -> dict[str, SettingRecord]:
        return {key: record for file in self.settings_files() for key, record in read_settings(file).items()}

    def dataset(self, name: str, fingerprint: str) -> DatasetRecord:
        """Ids and labels of a dataset."""
        return _read_dataset(self.files, self.dataset_folder(name, fingerprint), name, fingerprint)

    def space(self, key: str) -> LabelSpace:
        """A label space by its key."""
        return _read_space(self.files, self.space_path(key), key)

    def write_json(self, path: Location, value: Mapping[str, object]) -> None:
        """Write a small file with its digest."""
        self.upgrade()
        self.files.write_json(path, value)

    def write_table(self, path: Location, table: pa.Table) -> None:
        """Write a small table with its digest."""
        self.upgrade()
        self.files.write_table(path, table)

    def dataset_folder(self, name: str, fingerprint: str) -> Location:
        """The folder of what is kept of a dataset."""
        return self.root / "datasets" / f"{_file_name(name)}-{fingerprint[:16]}"

    # -- predictions -------------------------------------------------------------------------------------

    def results(self, classifiers: Iterable[str] = (), settings: Iterable[str] = ()) -> Iterator[Result]:
        """All complete results, by name; empty arguments mean all."""
        known = read_catalogue(self.files)
        files = list(self.prediction_files(classifiers, settings))
        with ThreadPoolExecutor() as pool:
            # In an object store each is a request, and they are waited for side by side.
            each = pool.map if is_object(self.root) else map
            opened = iter(each(read_spec, [path for _, _, path in files if path.stem not in known]))
            for classifier, setting, path in files:
                text = known.get(path.stem)
                spec = next(opened) if text is None else ResultSpec.from_json(json.loads(text))
                yield Result(classifier, setting, spec)

    def prediction_files(
        self, classifiers: Iterable[str] = (), settings: Iterable[str] = ()
    ) -> Iterator[tuple[str, str, Location]]:
        """(classifier, setting, file) of the complete results, by name; no file is opened."""
        wanted = [set(classifiers), set(settings)]
        # On a disk the folders of these names; in an object store several are picked from a single listing.
        each = [len(names) == 1 or (names and not is_object(self.root)) for names in wanted]
        patterns = product(*(map(_file_name, names) if one else ["*"] for names, one in zip(wanted, each, strict=True)))
        folder = self.root / "predictions"
        for path in sorted(path for by, under in patterns for path in folder.glob(f"{by}/{under}/*.parquet")):
            classifier, setting = map(unquote, path.parts[-3:-1])
            if classifier in (wanted[0] or {classifier}) and setting in (wanted[1] or {setting}):
                yield classifier, setting, path

    def complete(self, result: Result, blocks: Sequence[PredictionBlock], made_by: str) -> None:
        """Join a result's blocks, all of them and in order, into its one file, then clear them."""
        folder = self.blocks_folder(result)
        # First, so that a complete result has its images.
        join_shifted_images(self.files, folder, self.images_path(result))
        write_block(self.predictions_path(result), PredictionBlock.concatenate(blocks), result.spec, made_by)
        remove_tree(folder)

    def shifted_images(self, result: Result) -> dict[str, ShiftedImage]:
        """By id: the most confident mistakes as the model saw them, where the shift depends on the model."""
        return {image.id: image for image in read_shifted_images(self.files, self.images_path(result))}

    def write_catalogue(self) -> int:
        """Bring the catalogue up to date; how many results it lists."""
        specs = {result.key: result.spec.text for result in self.results()}
        if specs != read_catalogue(self.files):
            self.upgrade()
            write_catalogue(self.files, specs)
        return len(specs)

    def columns_of(self, spec: ResultSpec, ids: Sequence[str]) -> dict[str, list[str | None]]:
        """The further columns of images of a setting."""
        columns = self.metadata(spec.dataset.name, spec.dataset.fingerprint)
        if not columns:
            return {}
        known, _, used = self._images_of(spec)
        row = dict(zip(known, used.rows.tolist(), strict=True))
        return {name: [values[row[one]] for one in ids] for name, values in columns.items()}

    def _images_of(self, spec: ResultSpec) -> tuple[list[str], LabelSpace, SettingRows]:
        """The ids, the label space and the labels that predictions in a setting are held against."""
        name, fingerprint = spec.dataset.name, spec.dataset.fingerprint
        return _read_rows(self.files, self.dataset_folder(name, fingerprint), name, fingerprint, self.space(spec.space))

    def read(
        self, result: Result, *, top_k: int | None = None, confidence: bool = True, scores: bool = True
    ) -> Predictions:
        """The verified predictions of a complete result; what is not asked for is not read."""
        if isinstance(result, PartResult):
            return result.passes.read(self, result, top_k=top_k, confidence=confidence, scores=scores)
        path = self.predictions_path(result)
        try:
            block = read_block(path, top_k=top_k, confidence=confidence, scores=scores, key=result.key)
        except FileNotFoundError as error:
            raise damaged(path, "it is missing") from error
        ids, space, used = self._images_of(result.spec)
        if len(block) != len(used.labels):
            raise damaged(path, f"it has {len(block)} predictions, and its setting {len(used.labels)} images")
        about = (result.title, result.setting, space, ids, used.labels)
        return Predictions(*about, block.top, block.confidence, result.spec, block.scores, used.label_sets)


def space_key(space: LabelSpace) -> str:
    return f"{space.name}-{space.fingerprint}"


@lru_cache(maxsize=64)
def _read_dataset(files: SealedFiles, folder: Location, name: str, fingerprint: str) -> DatasetRecord:
    try:
        about = files.read_json(folder / "record.json")
        table = files.read_table(folder / "images.parquet")
    except FileNotFoundError as error:
        raise _missing(f"the record of dataset {name!r}", error) from error
    with explained(folder):
        space = _read_space(files, files.root / "spaces" / f"{_file_name(about['space'])}.json", about["space"])
        labels = table.column("label").to_numpy().astype(np.int32)
        sets = [tuple(own) for own in table.column("labels").to_pylist()] if "labels" in table.column_names else None
        ids = table.column("id").to_pylist()
        return DatasetRecord(name, fingerprint, space, ids, labels, sets, about.get("list", ""))


def _missing(what: str, error: FileNotFoundError) -> StoreError:
    return StoreError(
        f"{what} is missing",
        found=f"no {error.filename}",
        hint="rerun the same eval with the same data: it is recorded again",
    )


@lru_cache(maxsize=64)
def _read_rows(
    files: SealedFiles, folder: Location, name: str, fingerprint: str, target: LabelSpace
) -> tuple[list[str], LabelSpace, SettingRows]:
    record = _read_dataset(files, folder, name, fingerprint)
    used = setting_rows(record.labels, record.space, target, record.label_sets)
    whole = len(used.rows) == len(record.ids)
    return record.ids if whole else [record.ids[row] for row in used.rows], target, used


def read_space(files: SealedFiles, path: Location, key: str) -> LabelSpace:
    try:
        value = files.read_json(path)
    except FileNotFoundError as error:
        raise _missing(f"the label space {key!r}", error) from error
    with explained(path):
        names, members = (tuple(value["keys"]), tuple(value["names"])), value["members"]
        groups = None if members is None else tuple(tuple(group) for group in members)
        space = LabelSpace(value["name"], *names, groups)
        if space_key(space) != key:
            raise damaged(path, "file content does not match its name")
    return space


_read_space = lru_cache(maxsize=256)(read_space)


def read_settings(path: Location) -> dict[str, SettingRecord]:
    """What runs know of their settings. The file's name is the hash of its content."""
    with explained(path):
        value = json.loads(path.read_bytes())
        if spec_key(canonical_json(value)) != path.stem:
            raise damaged(path, "file content does not match its name")
        return {key: SettingRecord.from_json(record) for key, record in value.items()}


def blocks_in(folder: Location) -> list[Location]:
    """The blocks of an unfinished result, in order."""
    return sorted(folder.glob("[0-9]*.parquet"))


def block_range(path: Location) -> tuple[int, int | None]:
    """Where a block begins, and where it ends if it is a part of a block: their names are numbers of images."""
    start, _, stop = path.stem.partition("-")
    return int(start), int(stop) if stop else None


def _file_name(name: str) -> str:
    """Any name as one safe path component; reversed by ``unquote``."""
    safe = quote(name, safe=" +,=@")
    return "%2E" + safe[1:] if safe.startswith(".") else safe
