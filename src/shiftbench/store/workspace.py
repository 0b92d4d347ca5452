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
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa

from shiftbench.errors import ResultWarning, StoreError, listed, warn_user
from shiftbench.io.atomic import write_json
from shiftbench.io.locks import file_lock
from shiftbench.io.paths import GoneError, Location, glob_unlinked, inside, is_object, local, place, remove_tree
from shiftbench.jobs.base import Block
from shiftbench.labels.space import Labels, LabelSets, LabelSpace
from shiftbench.store.prediction_files import (
    PredictionBlock,
    ShiftedImage,
    join_shifted_images,
    read_block,
    read_made_by,
    read_shifted_images,
    read_spec,
    write_block,
)
from shiftbench.store.predictions import Predictions, SettingRows, setting_rows
from shiftbench.store.sealed import (
    JSON_FILES,
    TABLES,
    SealedFiles,
    damaged,
    explained,
    file_content,
    read_catalogue,
    write_catalogue,
)
from shiftbench.store.spec import ResultSpec, SettingRecord, canonical_json, spec_key

if TYPE_CHECKING:
    from shiftbench.store.designs import DesignPasses

#: The format that this version writes; format 1 (version 0.1) is read, and upgraded before anything is written.
FORMAT = 2
_METADATA = "metadata.parquet"
_SOURCE = "source.json"
#: The names of the files of results (see ``spec_key``) and of blocks (see ``block_range``). Other names are copies.
_FILE_OF_KEY = re.compile(r"[0-9a-f]{12}\.parquet")
_BLOCK_NAME = re.compile(r"\d+(-\d+)?")


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
        """The hash of the spec, which names the file."""
        return self.spec.key

    @property
    def model_id(self) -> str:
        """``name@hash``: one version of a model, with its weights and preprocessing."""
        return f"{self.name}@{self.spec.classifier.version}"

    @cached_property
    def relative(self) -> PurePosixPath:
        """The path of the result below ``predictions``, without the suffix of the file."""
        return PurePosixPath(_file_name(self.classifier)) / _file_name(self.setting) / self.key


@dataclass(frozen=True)
class PartResult(Result):
    """A setting of the full grid as a design knows it: on the images that met its shift in one of the passes.

    It has no file of its own; ``store.designs`` makes it from the results of the passes.
    """

    passes: DesignPasses = field(kw_only=True, compare=False)
    shift_index: int = field(kw_only=True)  #: The number of its shift among those of the design.
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


class ResultFile(NamedTuple):
    """The file of a complete result, and the names in its path."""

    classifier: str
    setting: str
    path: Location


class SealedFile(NamedTuple):
    """A small file with a digest."""

    path: Location
    is_table: bool


class SettingImages(NamedTuple):
    """The images of a setting: their ids, the label space, and their rows in the dataset with their labels."""

    ids: list[str]
    space: LabelSpace
    used: SettingRows


#: Bytes of predictions that a workspace keeps of what it read last: those of one model in hundreds of settings.
_RECENT_BYTES = 32_000_000


class _RecentBlocks:
    """The predictions that were read last, so that several numbers of one result need one reading.

    A file that was changed since is read again; in an object store, where asking costs a request, nothing is kept.
    """

    def __init__(self) -> None:
        self._blocks: dict[str, _RecentBlock] = {}
        self._bytes = 0
        self._changing = threading.Lock()

    def __reduce__(self) -> tuple[object, ...]:
        """A copy in another process begins without blocks: it reads them if it needs them."""
        return _RecentBlocks, ()

    def read(self, path: Location, key: str, top_k: int | None, confidence: bool, scores: bool) -> PredictionBlock:
        if is_object(path):
            return read_block(path, top_k=top_k, confidence=confidence, scores=scores, key=key)
        stamp = _file_stamp(path)
        name = str(path)
        recent = self._blocks.get(name)
        if recent is not None and recent.serves(stamp, top_k, confidence, scores):
            return replace(recent.block, top=recent.block.top[:, :top_k])
        block = read_block(path, top_k=top_k, confidence=confidence, scores=scores, key=key)
        size = block.top.nbytes + block.confidence.nbytes
        if not scores and size <= _RECENT_BYTES:
            with self._changing:
                self._keep(name, _RecentBlock(stamp, top_k, confidence, block, size))
        return block

    def _keep(self, name: str, recent: _RecentBlock) -> None:
        replaced = self._blocks.pop(name, None)
        if replaced is not None:
            self._bytes -= replaced.size
        self._blocks[name] = recent
        self._bytes += recent.size
        while self._bytes > _RECENT_BYTES:
            oldest = next(iter(self._blocks))
            self._bytes -= self._blocks.pop(oldest).size


#: Inode, time of the last change and size of a file, which tell whether it is the one that was read.
_FileStamp = tuple[int, int, int]


def _file_stamp(path: Location) -> _FileStamp:
    state = local(path).stat()
    return state.st_ino, state.st_mtime_ns, state.st_size


@dataclass(frozen=True)
class _RecentBlock:
    stamp: _FileStamp
    top_k: int | None
    confidence: bool
    block: PredictionBlock
    size: int

    def serves(self, stamp: _FileStamp, top_k: int | None, confidence: bool, scores: bool) -> bool:
        """Whether the file is the same and the columns that are asked for were read."""
        has_classes = self.top_k is None or (top_k is not None and top_k <= self.top_k)
        return stamp == self.stamp and has_classes and not scores and (self.confidence or not confidence)


class _KnownSpec(NamedTuple):
    """The spec in a file, and the state of the file when it was read or written."""

    stamp: _FileStamp
    spec: ResultSpec


class Workspace:
    """Opened from a path or URL; nothing is kept in memory but look-up caches of bounded size.

    Args:
        root: Folder or URL (``s3://bucket/folder``).
        create: Whether a folder that is not there, or empty, becomes a workspace.
        damaged_too: Open it even if workspace.json is damaged or lost, to verify or repair it.

    Raises:
        StoreError: No workspace, or an unsupported format version.
    """

    #: Whether files in it that are no results were reported.
    _noted_strays = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.root}>"

    def __init__(self, root: str | Location, *, create: bool = True, damaged_too: bool = False) -> None:
        self.root = place(root)
        try:
            version = self._read_format()
        except (FileNotFoundError, NotADirectoryError, StoreError) as error:
            has_results = any((self.root / name).is_dir() for name in ("predictions", "datasets", "shards"))
            if damaged_too and (isinstance(error, StoreError) or has_results):
                version = self._guess_format()
            elif isinstance(error, StoreError):
                raise
            else:
                self._create(allowed=create)
                version = FORMAT
        #: Reads and writes its small files, with digests.
        self.files = SealedFiles(self.root, required=version == FORMAT)
        self._marker = self._state()
        self._recent = _RecentBlocks()
        #: By path of a result's file.
        self._known_specs: dict[str, _KnownSpec] = {}
        #: Of results that were read: the version of shiftbench that computed them, by the path of the result.
        self._versions: dict[PurePosixPath, str] = {}
        #: Label spaces that were recorded, under the names that they are kept under.
        self._kept_spaces: dict[LabelSpace, LabelSpace] = {}

    def _guess_format(self) -> int:
        """The format of a workspace whose marker is lost: files with digests are of the present one."""
        for path in self.root.glob("*/*/record.json"):
            if path.is_file() and b'"digest"' in path.read_bytes():
                return FORMAT
        return 1

    @property
    def marker_path(self) -> Location:
        """The file that makes a folder a workspace."""
        return self.root / "workspace.json"

    def _create(self, *, allowed: bool) -> None:
        """Make the folder a workspace; raises StoreError if that is not allowed, or the folder holds other files."""
        # In this order, because another run may make the folder in between, which is not a file then.
        exists = self.root.exists()
        is_folder = self.root.is_dir()
        if not allowed:
            raise StoreError(
                f"{self.root} is not a workspace",
                found=_why_not_a_workspace(is_folder=is_folder, exists=exists),
                hint="name the folder that `shiftbench eval --workspace` wrote to",
            ) from None
        if exists and not is_folder:
            message = f"{self.root} is a file, and a workspace is a folder"
            raise StoreError(message, hint="name a new or empty folder") from None
        if is_folder and self._holds_other_files() and not self.marker_path.exists():
            raise StoreError(
                f"{self.root} is not empty and not a workspace; nothing was written",
                hint="name a new or empty folder; `shiftbench store repair` restores a lost workspace.json",
            ) from None
        self.write_marker(exclusive=True)

    def _holds_other_files(self) -> bool:
        """Whether the folder holds anything but the marker.

        Another run may be about to put the marker in place, may have been killed while it did, or may just have
        written it. So the marker's temporary files do not count either.
        """
        names = [path.name for path in self.root.iterdir()]
        return any(not name.startswith((".workspace.json.", "workspace.json")) for name in names)

    def write_marker(self, *, exclusive: bool = False) -> None:
        """Write workspace.json, as it is in every workspace of this format.

        Runs recognise their workspace by this file, so a run that creates a workspace must not replace the file that
        another run has just written: ``exclusive`` leaves an existing file alone.
        """
        SealedFiles(self.root, required=True).write_json(self.marker_path, {"format": FORMAT}, exclusive=exclusive)
        self._marker = self._state()

    def _read_format(self) -> int:
        with explained(self.marker_path):
            version = json.loads(file_content(self.marker_path))["format"]
            if version not in (1, FORMAT) or isinstance(version, bool | float):
                raise StoreError(
                    "unsupported workspace format version",
                    found=version,
                    expected=f"1 or {FORMAT}",
                    hint="update shiftbench, or run `shiftbench store verify` if workspace.json may be damaged",
                )
            SealedFiles(self.root, required=version == FORMAT).read_json(self.marker_path)
        return int(version)

    def upgrade(self) -> None:
        """Give the files of a workspace of format 1 digests, before anything is written to it.

        Predictions have digests already, and keep their bytes. The marker is written last: as long as it says format
        1, readers accept files with and without digests.
        """
        if self.files.required:
            return
        with file_lock(self.lock_path("upgrade"), wait=True):
            if self._upgraded():
                return
            upgraded_files = SealedFiles(self.root, required=True)
            for path, is_table in self.sealed_files():
                with suppress(StoreError):  # A damaged file stays as it is, and is reported when it is read.
                    if is_table:
                        upgraded_files.write_table(path, self.files.read_table(path))
                    else:
                        upgraded_files.write_json(path, self.files.read_json(path))
            self.write_marker()
            self.files = upgraded_files

    def _upgraded(self) -> bool:
        """Whether another run has upgraded the workspace since this object opened it; then this object follows."""
        with suppress(FileNotFoundError, StoreError):
            if not self.files.required and self._read_format() == FORMAT:
                self.files = SealedFiles(self.root, required=True)
                self._marker = self._state()
                return True
        return False

    def sealed_files(self) -> Iterator[SealedFile]:
        """The small files, and whether each is a table."""
        for pattern in (*JSON_FILES, *TABLES):
            for path in self.glob(pattern):
                yield SealedFile(path, is_table=pattern in TABLES)

    def settings_files(self) -> list[Location]:
        """The files that hold what runs know of their settings."""
        return self.glob("settings/*.json")

    def _state(self) -> tuple[int, int] | None:
        """The identity of the marker's file, which changes when the folder is replaced; None if it is not known."""
        if is_object(self.root):
            return None  # Asking costs a request, and an object store has no folder that could vanish.
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
        # The cached records of settings are not copied: the copy reads them if it needs them.
        state = {key: value for key, value in self.__dict__.items() if key != "_setting_records"}
        return state | {"_known_specs": {}, "_versions": {}}

    # -- where things are --------------------------------------------------------------------------------

    def predictions_path(self, result: Result) -> Location:
        """The file of a complete result."""
        return self._inside((self.root / "predictions" / result.relative).with_suffix(".parquet"))

    def images_path(self, result: Result) -> Location:
        """The file of a result's kept images."""
        return self._inside((self.root / "images" / result.relative).with_suffix(".parquet"))

    def blocks_folder(self, result: Result) -> Location:
        """The folder of an incomplete result's blocks."""
        folder = self.root / "shards" / result.relative
        self._inside(folder / "block")
        return folder

    def block_path(self, result: Result, block: Block) -> Location:
        """The file of a block."""
        return self.blocks_folder(result) / f"{block.name}.parquet"

    def block_folders(self) -> list[Location]:
        """The folders of results that are not complete, or not cleared up."""
        folders = [path for path in self.glob("shards/*/*/*") if path.is_dir()]
        return [folder for folder in folders if self._inside(folder / "block")]

    def lock_path(self, name: str) -> Location:
        """The file that a process locks to claim something."""
        return self._inside(self.root / "locks" / f"{_file_name(name)}.lock")

    def glob(self, pattern: str) -> list[Location]:
        """The sorted files and folders of a pattern; raises LinkedFolderError if one is behind a link to a folder."""
        if is_object(self.root):
            return sorted(self.root.glob(pattern))
        return list(glob_unlinked(self.root, pattern))

    def _inside(self, path: Location) -> Location:
        """The path, if no folder of the workspace on the way is a link: the workspace may be a stranger's."""
        return inside(path, self.root)

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
        with suppress(StoreError):  # The record is missing or damaged, and is written again.
            self.dataset(name, fingerprint)
            return
        columns = {"id": pa.array(list(ids), pa.string()), "label": pa.array(labels, pa.int32())}
        if label_sets is not None:
            columns["labels"] = pa.array([list(classes) for classes in label_sets], pa.list_(pa.int32()))
        self.write_table(folder / "images.parquet", pa.table(columns))
        # The record is written last, so that a record without its images can't exist.
        self.write_json(folder / "record.json", {**about, "space": space_key(recorded_space)})

    def record_metadata(self, name: str, fingerprint: str, columns: Mapping[str, Sequence[object]]) -> None:
        """Keep further columns of a dataset's images, as text, for scores by group.

        They decide no prediction and are not part of the fingerprint, so the columns of the last run replace earlier
        ones.
        """
        if not columns:
            return
        arrays = {}
        for column, values in columns.items():
            arrays[column] = pa.array([_utf8_text(value) for value in values], pa.string())
        table = pa.table(arrays)
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
        if space in self._kept_spaces:
            return self._kept_spaces[space]
        kept = self.known_space(space)
        self._kept_spaces[space] = kept
        with suppress(StoreError):  # The file is missing or damaged, and is written again.
            self.space(space_key(kept))
            return kept
        members = None
        if space.members is not None:
            members = [list(group) for group in space.members]
        value = {"name": kept.name, "keys": space.keys, "names": space.names, "members": members}
        self.write_json(self.space_path(space_key(kept)), value)
        return kept

    def known_space(self, space: LabelSpace) -> LabelSpace:
        """The space under the name that the workspace has for these classes in this order.

        A Parquet file, a folder and a list of classes each give the same classes another name. Under one name, results
        over them are recognised and share a column. Older workspaces may have several names: each is kept.
        """
        if self.space_path(space_key(space)).exists():
            return space
        ending = f"-{space.fingerprint}"
        paths = self.glob(f"spaces/*{ending}.json")
        names = sorted(unquote(path.stem).removesuffix(ending) for path in paths)
        if not names:
            return space
        return replace(space, name=names[0])

    def space_path(self, key: str) -> Location:
        """The file of a label space."""
        return _space_path(self.root, key)

    def record_problems(self, name: str, fingerprint: str, block: Block, problems: list[dict[str, str]]) -> None:
        """Keep the images of one block that were skipped or converted."""
        path = self.dataset_folder(name, fingerprint) / "problems" / f"{block.name}.json"
        if problems:
            self.write_json(path, {"problems": problems})

    def problems(self, name: str, fingerprint: str) -> list[dict[str, str]]:
        """Images of a dataset that were skipped or converted."""
        # A block and a part of the same block state the same images, so problems are collected by image.
        problems: dict[str, dict[str, str]] = {}
        files: list[Location] = sorted((self.dataset_folder(name, fingerprint) / "problems").glob("*.json"))
        for path in files:
            with explained(path):
                problems |= {problem["id"]: problem for problem in self.files.read_json(path)["problems"]}
        return list(problems.values())

    def record_source(self, name: str, fingerprint: str, source: tuple[str, str]) -> None:
        """Keep where the images of a dataset were: its role in the suite, and the path that filled it."""
        if self.source(name, fingerprint) != source:
            role, path = source
            value = {"role": role, "given": path}
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
        path = self._inside(self.root / "settings" / f"{spec_key(canonical_json(value))}.json")
        if records and not _is_intact_settings_file(path):
            self.upgrade()
            write_json(path, value)
        # The cached property is read again when it is asked for next.
        self.__dict__.pop("_setting_records", None)

    def setting_record(self, result: Result) -> SettingRecord:
        """What the run kept of a result's setting; made from the spec where no record was kept."""
        if isinstance(result, PartResult):
            return result.record
        spec = result.spec
        record = self._setting_records.get(spec.setting_key(result.setting))
        if record is None:
            return SettingRecord(member=spec.member(result.setting), shift=spec.shift.description)
        return record

    def designs(self) -> dict[str, list[str]]:
        """By setting: the settings of designs that evaluated it on some of the images."""
        designs: dict[str, list[str]] = {}
        for record in self._setting_records.values():
            for part in record.parts:
                designs.setdefault(part.setting, []).append(str(record.shift["name"]))
        return designs

    @cached_property
    def _setting_records(self) -> dict[str, SettingRecord]:
        """The records of all settings files, by ``ResultSpec.setting_key``."""
        records: dict[str, SettingRecord] = {}
        for file in self.settings_files():
            records |= read_settings(file)
        return records

    def dataset(self, name: str, fingerprint: str) -> DatasetRecord:
        """Ids and labels of a dataset."""
        return _read_dataset(self.files, name, fingerprint)

    def space(self, key: str) -> LabelSpace:
        """A label space by its key."""
        return _read_space(self.files, key)

    def write_json(self, path: Location, value: Mapping[str, object]) -> None:
        """Write a small file with its digest."""
        self.upgrade()
        self.files.write_json(path, value)

    def write_table(self, path: Location, table: pa.Table) -> None:
        """Write a small table with its digest."""
        self.upgrade()
        self.files.write_table(path, table)

    def dataset_folder(self, name: str, fingerprint: str) -> Location:
        """The folder of the records of a dataset."""
        return _dataset_folder(self.root, name, fingerprint)

    # -- predictions -------------------------------------------------------------------------------------

    def results(self, classifiers: Iterable[str] = (), settings: Iterable[str] = ()) -> Iterator[Result]:
        """All complete results, by name; empty arguments mean all."""
        catalogue = read_catalogue(self.files)
        files = list(self.prediction_files(classifiers, settings))
        uncatalogued = [file.path for file in files if file.path.stem not in catalogue]
        with ThreadPoolExecutor() as pool:
            # In an object store every file is a request, so they are requested side by side.
            map_files = pool.map if is_object(self.root) else map
            # Specs are read one by one as results are asked for, in the order of the files.
            specs = iter(map_files(self.spec_in, uncatalogued))
            for file in files:
                key = file.path.stem
                spec = catalogue.get(key)
                if spec is None:
                    spec = next(specs)
                yield Result(file.classifier, file.setting, spec)

    def spec_in(self, path: Location) -> ResultSpec:
        """The spec in the file of a complete result; it is read again only if the file has changed."""
        if is_object(path):
            return read_spec(path)  # Asking whether it has changed costs a request, too.
        stamp = _file_stamp(path)
        known_spec = self._known_specs.get(str(path))
        if known_spec is None or known_spec.stamp != stamp:
            known_spec = _KnownSpec(stamp, read_spec(path))
            self._known_specs[str(path)] = known_spec
        return known_spec.spec

    def prediction_files(self, classifiers: Iterable[str] = (), settings: Iterable[str] = ()) -> Iterator[ResultFile]:
        """The files of the complete results, by name; no file is opened.

        Copies that a cloud drive or a person left under another name are ignored, with a note.
        """
        classifiers = set(classifiers)
        settings = set(settings)
        paths: list[Location] = []
        strays: list[Location] = []
        for classifier_pattern in self._folder_patterns(classifiers):
            for setting_pattern in self._folder_patterns(settings):
                for path in self.glob(f"predictions/{classifier_pattern}/{setting_pattern}/*.parquet"):
                    if _FILE_OF_KEY.fullmatch(path.name):
                        paths.append(path)
                    else:
                        strays.append(path)
        self._note_strays(strays)
        paths.sort()
        for path in paths:
            *_, classifier_folder, setting_folder, _ = path.parts
            classifier = unquote(classifier_folder)
            setting = unquote(setting_folder)
            if classifiers and classifier not in classifiers:
                continue
            if settings and setting not in settings:
                continue
            yield ResultFile(classifier, setting, path)

    def _note_strays(self, paths: Sequence[Location]) -> None:
        """Report files that are no results, once for each workspace that is opened."""
        if not paths or self._noted_strays:
            return
        self._noted_strays = True
        names = listed(sorted(path.name for path in paths), 3)
        text = f"{self.root}: {len(paths)} files in predictions are ignored, because their names are no keys of results"
        warn_user(ResultWarning(f"{text}: {names}. They may be deleted", "stray-files"))

    def _folder_patterns(self, names: Set[str]) -> list[str]:
        """Patterns for the folders of these names; the caller filters by name, as a pattern may match more.

        On a disk each folder is listed by itself. An object store lists them all with a single request.
        """
        if len(names) == 1 or (names and not is_object(self.root)):
            return [_file_name(name) for name in names]
        return ["*"]

    def complete(self, result: Result, blocks: Sequence[PredictionBlock], made_by: str) -> None:
        """Join a result's blocks, all of them and in order, into its one file, then clear them."""
        folder = self.blocks_folder(result)
        # The images are joined first, so that a complete result has its images.
        join_shifted_images(self.files, folder, self.images_path(result))
        path = self.predictions_path(result)
        write_block(path, PredictionBlock.concatenate(blocks), result.spec, made_by)
        if not is_object(path):
            self._known_specs[str(path)] = _KnownSpec(_file_stamp(path), result.spec)
        remove_tree(folder)

    def shifted_images(self, result: Result) -> dict[str, ShiftedImage]:
        """By id: the most confident mistakes as the model saw them, where the shift depends on the model."""
        return {image.id: image for image in read_shifted_images(self.files, self.images_path(result))}

    def write_catalogue(self) -> int:
        """Bring the catalogue up to date; how many results it lists."""
        specs = {result.key: result.spec for result in self.results()}
        # Keys are hashes of the texts, so equal keys mean equal texts.
        if specs.keys() != read_catalogue(self.files).keys():
            self.upgrade()
            write_catalogue(self.files, {key: spec.text for key, spec in specs.items()})
        return len(specs)

    def columns_of(self, spec: ResultSpec, ids: Sequence[str]) -> dict[str, list[str | None]]:
        """The further columns of images of a setting."""
        columns = self.metadata(spec.dataset.name, spec.dataset.fingerprint)
        if not columns:
            return {}
        images = self._images_of(spec)
        row_of = dict(zip(images.ids, images.used.rows.tolist(), strict=True))
        rows = [row_of[image_id] for image_id in ids]
        selected = {}
        for name, values in columns.items():
            selected[name] = [values[row] for row in rows]
        return selected

    def _images_of(self, spec: ResultSpec) -> SettingImages:
        """The images, the label space and the labels that predictions in a setting are compared with."""
        return _read_rows(self.files, spec.dataset.name, spec.dataset.fingerprint, spec.space)

    def read_block(
        self, result: Result, *, top_k: int | None = None, confidence: bool = True, scores: bool = False
    ) -> PredictionBlock:
        """The verified content of a complete result's file; a file that was read before is not read again."""
        block = self._recent.read(self.predictions_path(result), result.key, top_k, confidence, scores)
        self._versions[result.relative] = block.made_by
        return block

    def made_by(self, result: Result) -> str:
        """The version of shiftbench that computed the predictions of a complete result."""
        if result.relative not in self._versions:
            self._versions[result.relative] = read_made_by(self.predictions_path(result))
        return self._versions[result.relative]

    def read(
        self, result: Result, *, top_k: int | None = None, confidence: bool = True, scores: bool = True
    ) -> Predictions:
        """The verified predictions of a complete result; columns that are not asked for are not read."""
        if isinstance(result, PartResult):
            return result.passes.read(self, result, top_k=top_k, confidence=confidence, scores=scores)
        try:
            block = self.read_block(result, top_k=top_k, confidence=confidence, scores=scores)
        except FileNotFoundError as error:
            raise damaged(self.predictions_path(result), "it is missing") from error
        ids, space, used = self._images_of(result.spec)
        if len(block) != len(used.labels):
            counts = f"it has {len(block)} predictions, and its setting {len(used.labels)} images"
            raise damaged(self.predictions_path(result), counts)
        return Predictions(
            classifier=result.title,
            setting=result.setting,
            space=space,
            ids=ids,
            labels=used.labels,
            top=block.top,
            confidence=block.confidence,
            spec=result.spec,
            scores=block.scores,
            label_sets=used.label_sets,
        )


def _why_not_a_workspace(*, is_folder: bool, exists: bool) -> str:
    if is_folder:
        return "no workspace.json in it"
    if exists:
        return "a file, not a folder"
    return "no such folder"


def _utf8_text(value: object) -> str | None:
    """Any value as text that UTF-8 can hold; None stays None."""
    if value is None:
        return None
    return str(value).encode("utf-8", "replace").decode("utf-8")


def space_key(space: LabelSpace) -> str:
    """The name that a label space is kept under; it contains a hash of the classes."""
    return f"{space.name}-{space.fingerprint}"


def _dataset_folder(root: Location, name: str, fingerprint: str) -> Location:
    return root / "datasets" / f"{_file_name(name)}-{fingerprint[:16]}"


def _space_path(root: Location, key: str) -> Location:
    return root / "spaces" / f"{_file_name(key)}.json"


# The caches hold the datasets and label spaces of a large suite. A released benchmark is a hundred datasets with the
# same images, whose ids are kept once.
_CACHED_RECORDS = 512


@lru_cache(maxsize=_CACHED_RECORDS)
def _read_dataset(files: SealedFiles, name: str, fingerprint: str) -> DatasetRecord:
    folder = _dataset_folder(files.root, name, fingerprint)
    try:
        record = files.read_json(folder / "record.json")
        table = files.read_table(folder / "images.parquet")
    except FileNotFoundError as error:
        raise _missing(f"the record of dataset {name!r}", error) from error
    with explained(folder):
        label_sets = None
        if "labels" in table.column_names:
            label_sets = [tuple(classes) for classes in table.column("labels").to_pylist()]
        return DatasetRecord(
            name=name,
            fingerprint=fingerprint,
            space=_read_space(files, record["space"]),
            ids=_kept_ids(tuple(table.column("id").to_pylist())),
            labels=table.column("label").to_numpy().astype(np.int32),
            label_sets=label_sets,
            list_name=record.get("list", ""),
        )


@lru_cache(maxsize=_CACHED_RECORDS)
def _kept_ids(ids: tuple[str, ...]) -> list[str]:
    """The same list for the same ids, which saves memory and lets readers see at once that images are the same."""
    return list(ids)


def _missing(record: str, error: FileNotFoundError) -> StoreError:
    return StoreError(
        f"{record} is missing",
        found=f"no {error.filename}",
        hint="rerun the same eval with the same data: it is recorded again",
    )


@lru_cache(maxsize=_CACHED_RECORDS)
def _read_rows(files: SealedFiles, name: str, fingerprint: str, space: str) -> SettingImages:
    """The images of a dataset that a setting with the label space of this key uses."""
    record = _read_dataset(files, name, fingerprint)
    target = _read_space(files, space)
    used = setting_rows(record.labels, record.space, target, record.label_sets)
    ids = record.ids
    if len(used.rows) < len(record.ids):
        ids = _kept_ids(tuple(record.ids[row] for row in used.rows))
    return SettingImages(ids, target, used)


def read_space(files: SealedFiles, path: Location, key: str) -> LabelSpace:
    """The label space in a file; raises StoreError if the file is missing or damaged."""
    try:
        value = files.read_json(path)
    except FileNotFoundError as error:
        raise _missing(f"the label space {key!r}", error) from error
    with explained(path):
        members = None
        if value["members"] is not None:
            members = tuple(tuple(group) for group in value["members"])
        space = LabelSpace(value["name"], tuple(value["keys"]), tuple(value["names"]), members)
        if space_key(space) != key:
            raise damaged(path, "file content does not match its name")
    return space


@lru_cache(maxsize=_CACHED_RECORDS)
def _read_space(files: SealedFiles, key: str) -> LabelSpace:
    return read_space(files, _space_path(files.root, key), key)


def read_settings(path: Location) -> dict[str, SettingRecord]:
    """The records of settings in a file, by ``ResultSpec.setting_key``; the file's name is the hash of its content."""
    with explained(path):
        value = json.loads(file_content(path))
        if spec_key(canonical_json(value)) != path.stem:
            raise damaged(path, "file content does not match its name")
        return {key: SettingRecord.from_json(record) for key, record in value.items()}


def _is_intact_settings_file(path: Location) -> bool:
    try:
        read_settings(path)
    except (FileNotFoundError, StoreError):
        return False
    return True


def blocks_in(folder: Location) -> list[Location]:
    """The blocks of an unfinished result, in order."""
    return sorted(path for path in folder.glob("[0-9]*.parquet") if _BLOCK_NAME.fullmatch(path.stem))


def block_range(path: Location) -> tuple[int, int | None]:
    """The first image of a block, and the end of its images if it is a part of a block; else None.

    Both are in the name of the file: ``<start>.parquet``, or ``<start>-<stop>.parquet`` for a part.
    """
    start, _, stop = path.stem.partition("-")
    return int(start), int(stop) if stop else None


def _file_name(name: str) -> str:
    """Any name as one safe path component; reversed by ``unquote``."""
    safe = quote(name, safe=" +,=@")
    # A name that begins with a dot would be hidden, or be the folder itself.
    if safe.startswith("."):
        return f"%2E{safe[1:]}"
    return safe
