"""Maintenance of a workspace: statistics, verification, repair, compaction, and deletion of results."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote

import pyarrow.parquet as pq

from shiftbench.errors import StoreError, explain
from shiftbench.grouping import by_key
from shiftbench.io.locks import file_lock
from shiftbench.io.paths import (
    Location,
    UnreachableError,
    UnwritableError,
    inside,
    is_linked_folder,
    linked_folders,
    local,
    relative,
    remove_tree,
)
from shiftbench.jobs.progress import Advance
from shiftbench.store import run_records
from shiftbench.store.models import ModelVersions
from shiftbench.store.prediction_files import read_block, read_made_by, read_spec
from shiftbench.store.sealed import check_is_file, damaged
from shiftbench.store.spec import ResultSpec
from shiftbench.store.unchecked import remove_unchecked_blocks
from shiftbench.store.workspace import Result, Workspace, block_range, blocks_in, read_settings, read_space

#: After this many seconds a writer has finished with its temporary file, or is dead.
_ABANDONED_SECONDS = 3600


@dataclass(frozen=True)
class Stats:
    """What a workspace holds."""

    classifiers: int
    settings: int
    results: int
    predictions: int
    bytes: int
    unfinished_results: int
    unfinished_blocks: int
    datasets: int
    images: int
    skipped_images: int

    def as_dict(self) -> dict[str, object]:
        bytes_per_prediction = self.bytes / self.predictions if self.predictions else None
        return {**asdict(self), "bytes_per_prediction": bytes_per_prediction}


def workspace_stats(workspace: Workspace) -> Stats:
    """Count what a workspace holds from names, sizes and specs; no prediction is read."""
    results = list(workspace.results())
    files = {file.path for file in workspace.prediction_files()}
    # Blocks of a result that has its file already are leftovers, not an unfinished result.
    unfinished = [folder for folder in workspace.block_folders() if _file_of(workspace, folder) not in files]
    dataset_folders = [path.parent for path in workspace.glob("datasets/*/record.json")]
    images = 0
    skipped_images = 0
    for folder in dataset_folders:
        check_is_file(folder / "images.parquet")
        with (folder / "images.parquet").open("rb") as table:
            images += int(pq.ParquetFile(table).metadata.num_rows)
        name, _, fingerprint = folder.name.rpartition("-")
        for problem in workspace.problems(unquote(name), fingerprint):
            if problem["action"] == "skipped":
                skipped_images += 1
    return Stats(
        classifiers=len({(result.classifier, result.spec.classifier.version) for result in results}),
        settings=len({result.setting for result in results}),
        results=len(results),
        predictions=sum(result.spec.images for result in results),
        bytes=sum(path.stat().st_size for path in files),
        unfinished_results=len(unfinished),
        unfinished_blocks=sum(len(blocks_in(folder)) for folder in unfinished),
        datasets=len(dataset_folders),
        images=images,
        skipped_images=skipped_images,
    )


def _file_of(workspace: Workspace, folder: Location) -> Location:
    """The file that holds the predictions once the blocks of this folder are joined."""
    below = relative(folder, workspace.root / "shards")
    return workspace.root / "predictions" / below.parent / f"{below.name}.parquet"


@dataclass(frozen=True)
class Damage:
    """A damaged file, by its name within the workspace."""

    file: str
    why: str


def verify(workspace: Workspace, advance: Advance = lambda count: None) -> Iterator[Damage]:
    """Read every file against its digest, and predictions against their spec and dataset; yields what is wrong."""

    def check(path: Location) -> Damage | None:
        reason = _reason_of_damage(workspace, path)
        advance(1)
        return None if reason is None else Damage(_relative_name(workspace, path), reason)

    with ThreadPoolExecutor() as pool:
        for damage in pool.map(check, _files(workspace)):
            if damage is not None:
                yield damage
    for name in _missing_records(workspace):
        yield Damage(name, "it is missing, and results need it")


def _reason_of_damage(workspace: Workspace, path: Location) -> str | None:
    """What is wrong with a file or a link; None if it is intact."""
    try:
        if is_linked_folder(path):
            return "it is a link to a folder; the other files are verified when it is gone"
        if path.exists() and not path.is_file():
            return "it is not a file"
        _check_file(workspace, path)
    except FileNotFoundError:
        # Other files may be joined or replaced by a running eval meanwhile, but the marker never is.
        return "it is missing" if path == workspace.marker_path else None
    except UnreachableError:
        raise  # A failed connection says nothing about the file.
    except Exception as error:  # Whatever a damaged file makes its reader raise, the other files are checked.
        return error.message if isinstance(error, StoreError) else explain(error)
    return None


def _missing_records(workspace: Workspace) -> list[str]:
    """The records of datasets and label spaces that results need and that do not exist."""
    if linked_folders(workspace.root):
        return []
    records: set[Location] = set()
    for file in workspace.prediction_files():
        try:
            records.update(_needed_records(workspace, read_spec(file.path)))
        except (FileNotFoundError, StoreError):
            continue
    return sorted(_relative_name(workspace, path) for path in records if not path.exists())


def _relative_name(workspace: Workspace, path: Location) -> str:
    """The name of a file within the workspace, as ``Damage`` states it."""
    return relative(path, workspace.root).as_posix()


def file_count(workspace: Workspace) -> int:
    """How many files ``verify`` reads."""
    return len(_files(workspace))


def _files(workspace: Workspace) -> list[Location]:
    """The files to verify; where folders are links, only these links, as what is behind them is not ours to judge."""
    links = linked_folders(workspace.root)
    if links:
        return [*links]
    files = [workspace.marker_path]
    files += [file.path for file in workspace.prediction_files()]
    for folder in workspace.block_folders():
        files += blocks_in(folder)
    files += [file.path for file in workspace.sealed_files()]
    files += workspace.settings_files()
    return files


def _check_file(workspace: Workspace, path: Location) -> None:
    """Read a file with the reader of its kind; raises whatever that raises for a damaged one."""
    kind = relative(path, workspace.root).parts[0]
    if kind == "settings":
        read_settings(path)
    elif kind == "spaces":
        read_space(workspace.files, path, unquote(path.stem))
    elif kind == "runs":
        if run_records.read_run(workspace, path) is None:
            raise damaged(path, "it is not a record of a run")
    elif path.suffix == ".json":
        workspace.files.read_json(path)
    elif kind in ("predictions", "shards") and path.suffix == ".parquet":
        _check_predictions(workspace, path, is_complete=kind == "predictions")
    else:
        workspace.files.read_table(path)


def _check_predictions(workspace: Workspace, path: Location, *, is_complete: bool) -> None:
    """Check the file of a complete result, or of a block, against its spec and its dataset."""
    spec = read_spec(path)
    key = path.stem if is_complete else path.parent.name
    rows = len(read_block(path, scores=True, key=key))
    if is_complete and rows != spec.images:
        raise damaged(path, f"it has {rows} predictions, and its setting {spec.images} images")
    try:
        images = len(workspace.dataset(spec.dataset.name, spec.dataset.fingerprint).ids)
    except StoreError:
        return  # The record of the dataset is damaged, which is reported for its own file.
    if images < rows:
        raise damaged(path, "it has more predictions than its dataset images")


def _needed_records(workspace: Workspace, spec: ResultSpec) -> tuple[Location, ...]:
    """The records of the dataset and the label space that a result needs."""
    folder = workspace.dataset_folder(spec.dataset.name, spec.dataset.fingerprint)
    return folder / "record.json", folder / "images.parquet", workspace.space_path(spec.space)


@dataclass(frozen=True)
class Repair:
    """What a repair did, and what is left to do."""

    removed: list[Damage]
    results: list[str]  #: Results that the next eval computes, or records, again.
    commands: list[str]  #: Commands or calls that do that, as far as runs were recorded.


def repair(workspace: Workspace, damage: Sequence[Damage], *, dry_run: bool = False) -> Repair:
    """Remove damaged files, keep all others, and write workspace.json anew where it is damaged.

    What is removed can be made again: predictions, labels and label spaces by the same eval, the catalogue by
    ``compact``. Damaged names and records of runs are lost.
    """
    damaged_files = {entry.file for entry in damage}
    if linked_folders(workspace.root):
        # Links alone are removed now. What else is damaged, and which results need it, is known when they are gone.
        if not dry_run:
            _remove_damaged(workspace, damage)
        return Repair(list(damage), [], [])
    lost = [Path(entry.file).stem for entry in damage if entry.file.startswith("predictions")]
    for file in workspace.prediction_files():
        if _relative_name(workspace, file.path) in damaged_files:
            continue
        records = _needed_records(workspace, read_spec(file.path))
        if any(_relative_name(workspace, path) in damaged_files for path in records):
            lost.append(file.path.stem)
    commands = run_records.RunHistory(run_records.read_runs(workspace)[0]).commands(lost)
    if not dry_run:
        _remove_damaged(workspace, damage)
    return Repair(list(damage), lost, commands)


def _remove_damaged(workspace: Workspace, damage: Sequence[Damage]) -> None:
    for entry in damage:
        path = inside(workspace.root / entry.file, workspace.root)
        if path.is_dir():
            remove_tree(path)
        else:
            path.unlink(missing_ok=True)
    if any(entry.file == workspace.marker_path.name for entry in damage):
        workspace.write_marker()


@dataclass(frozen=True)
class Compaction:
    """What clearing up did."""

    joined: int
    removed_blocks: int
    removed_temporary: int
    removed_locks: int
    catalogued: int


def compact(workspace: Workspace) -> Compaction:
    """Join complete results, remove leftovers, and write the catalogue; safe during a running eval."""
    joined = 0
    remove_unchecked_blocks(workspace)
    removed_blocks = 0
    for folder in workspace.block_folders():
        files = blocks_in(folder)
        if _file_of(workspace, folder).exists() or not files:
            removed_blocks += len(files)
            remove_tree(folder)
        elif _join(workspace, folder, files):
            joined += 1
    return Compaction(
        joined=joined,
        removed_blocks=removed_blocks,
        removed_temporary=_remove_temporary(workspace.root) + _remove_abandoned_images(workspace),
        removed_locks=run_records.clear_locks(workspace),
        catalogued=workspace.write_catalogue(),
    )


def _remove_abandoned_images(workspace: Workspace) -> int:
    """Remove the kept images of results that are neither complete nor under way; returns the number of files."""
    removed = 0
    for path in workspace.glob("images/*/*/*.parquet"):
        below = relative(path, workspace.root / "images")
        blocks = (workspace.root / "shards" / below).with_suffix("")
        if not blocks.is_dir() and not (workspace.root / "predictions" / below).exists():
            path.unlink(missing_ok=True)
            removed += 1
    return removed


def _join(workspace: Workspace, folder: Location, files: Sequence[Location]) -> bool:
    """Join the blocks of a result into its file; returns False where some are missing or damaged."""
    try:
        result = _unfinished(folder, files)
        with file_lock(workspace.lock_path(f"complete-{result.key}"), wait=True):
            blocks = [read_block(file, scores=True) for file in files]
            rows = sum(len(block) for block in blocks)
            if rows != result.spec.images or not _follow_each_other(files):
                return False
            workspace.complete(result, blocks, read_made_by(files[0]))
    except UnwritableError:
        raise
    except (StoreError, FileNotFoundError):
        # A run is joining or clearing them at this moment, or has to compute the damaged one again.
        return False
    return True


def _follow_each_other(files: Sequence[Location]) -> bool:
    """Whether no two blocks overlap: all of them are whole, or all are parts that follow each other."""
    ranges = [block_range(file) for file in files]
    if all(stop is None for _, stop in ranges):
        return True
    return all(stop == next_start for (_, stop), (next_start, _) in pairwise(ranges))


def _unfinished(folder: Location, blocks: Sequence[Location]) -> Result:
    """The result that a folder of blocks belongs to."""
    return Result(unquote(folder.parent.parent.name), unquote(folder.parent.name), read_spec(blocks[0]))


def _remove_temporary(root: Location) -> int:
    """Remove the temporary files of killed writers.

    Clocks may jump, so files from the future count as old, too. Times are those of the file system, whose clock may
    differ from this machine's.
    """
    files: list[Location] = list(root.rglob(".*.tmp"))
    if not files:
        return 0
    now = _file_system_time(root)
    removed = 0
    for path in files:
        try:
            age = abs(now - path.stat().st_mtime)
        except FileNotFoundError:
            continue  # Its writer has just renamed it.
        if age > _ABANDONED_SECONDS:
            path.unlink(missing_ok=True)
            removed += 1
    return removed


def _file_system_time(root: Location) -> float:
    """The time by the clock of the file system; this machine's time where no file can be written to ask it."""
    try:
        with tempfile.NamedTemporaryFile(dir=local(root), prefix=".clock.") as probe:
            return Path(probe.name).stat().st_mtime
    except (OSError, StoreError):  # The folder is read-only, or an object store.
        return time.time()


# -- deleting results ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Removable:
    """A result, complete or not, and its files."""

    result: Result
    files: tuple[Location, ...]
    complete: bool

    @property
    def bytes(self) -> int:
        return sum(file.stat().st_size for file in self.files if file.exists())


def find_to_remove(workspace: Workspace, models: Sequence[str], settings: Sequence[str]) -> list[Removable]:
    """The results of these models (names or ids) in these settings; an empty argument means all."""
    unfinished = []
    for folder in workspace.block_folders():
        blocks = blocks_in(folder)
        if blocks:
            unfinished.append(_unfinished(folder, blocks))
    results = {result.relative: result for result in [*workspace.results(), *unfinished]}
    versions = ModelVersions.of(workspace, results.values())
    selected = versions.select(results.values(), models, settings)
    return [removable(workspace, versions.named(result)) for result in selected]


def removable(workspace: Workspace, result: Result) -> Removable:
    """A result with its files."""
    predictions = workspace.predictions_path(result)
    images = workspace.images_path(result)
    blocks = workspace.blocks_folder(result).glob("*")
    return Removable(result, (predictions, images, *blocks), predictions.exists())


def remove_results(workspace: Workspace, found: Sequence[Removable]) -> None:
    """Delete results; raises StoreError while a run computes one of them.

    The record of the deletion states the results under the name of the argument, which therefore stays ``found``.
    """
    results = [entry.result for entry in found]
    _refuse_if_used(workspace, {result.key for result in results})
    by_model = by_key((result.model_id, result.key) for result in results)
    models = [run_records.ModelRun(id=model, removed=keys) for model, keys in by_model.items()]
    call = run_records.Call("remove", remove_results, {"found": [str(result.relative) for result in results]})
    with run_records.recorded_run(workspace, call, models):
        for result in results:
            with file_lock(workspace.lock_path(f"complete-{result.key}"), wait=True):
                # The predictions go first: what remains without them is like the files of an interrupted run.
                workspace.predictions_path(result).unlink(missing_ok=True)
                workspace.images_path(result).unlink(missing_ok=True)
                remove_tree(workspace.blocks_folder(result))
        workspace.write_catalogue()


def _refuse_if_used(workspace: Workspace, keys: Set[str]) -> None:
    """Raise StoreError if a run that still goes on uses one of these results."""
    for record in run_records.read_runs(workspace)[0]:
        if record.status != "running":
            continue
        used: set[str] = set()
        for model in record.models:
            used |= keys & set(model.results)
        if used and run_records.is_alive(workspace, record.id):
            raise StoreError(
                f"a run that started at {record.started} uses {len(used)} of these results",
                hint="wait for it to finish, or stop it",
            )
