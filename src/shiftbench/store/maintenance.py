"""Maintenance of a workspace: statistics, verification, repair, compaction, and deletion of results."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote

import pyarrow.parquet as pq

from shiftbench.errors import StoreError, explain
from shiftbench.grouping import by_key
from shiftbench.io.locks import file_lock
from shiftbench.io.paths import Location, UnreachableError, UnwritableError, local, relative, remove_tree
from shiftbench.jobs.progress import Advance
from shiftbench.store import run_records
from shiftbench.store.models import ModelVersions
from shiftbench.store.prediction_files import read_block, read_made_by, read_spec
from shiftbench.store.sealed import damaged
from shiftbench.store.spec import ResultSpec
from shiftbench.store.workspace import Result, Workspace, block_range, blocks_in, read_settings, read_space

#: A writer is done with its temporary file, or dead, after this many seconds.
_ABANDONED = 3600


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
        each = self.bytes / self.predictions if self.predictions else None
        return {**asdict(self), "bytes_per_prediction": each}


def workspace_stats(workspace: Workspace) -> Stats:
    """Counted from names, sizes and specs; no prediction is read."""
    results = list(workspace.results())
    files = {path for _, _, path in workspace.prediction_files()}
    folders = [folder for folder in workspace.block_folders() if _file_of(workspace, folder) not in files]
    records = [path.parent for path in (workspace.root / "datasets").glob("*/record.json")]
    named = [folder.name.rpartition("-") for folder in records]
    problems = [one for name, _, fingerprint in named for one in workspace.problems(unquote(name), fingerprint)]
    images = 0
    for folder in records:
        with (folder / "images.parquet").open("rb") as file:
            images += int(pq.ParquetFile(file).metadata.num_rows)
    return Stats(
        classifiers=len({(result.classifier, result.spec.classifier.version) for result in results}),
        settings=len({result.setting for result in results}),
        results=len(results),
        predictions=sum(result.spec.images for result in results),
        bytes=sum(path.stat().st_size for path in files),
        unfinished_results=len(folders),
        unfinished_blocks=sum(len(blocks_in(folder)) for folder in folders),
        datasets=len(records),
        images=images,
        skipped_images=sum(problem["action"] == "skipped" for problem in problems),
    )


def _file_of(workspace: Workspace, folder: Location) -> Location:
    """Where the predictions lie once these blocks are joined."""
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
        why = None
        try:
            if path.exists() and not path.is_file():
                why = "it is not a file"
            else:
                _check_file(workspace, path)
        except FileNotFoundError:
            # Joined or replaced while this went on; the marker is never.
            why = "it is missing" if path == workspace.marker_path else None
        except UnreachableError:
            raise  # says nothing about the file
        except Exception as error:  # whatever a damaged file makes its reader do, the other files are checked
            why = error.message if isinstance(error, StoreError) else explain(error)
        advance(1)
        return None if why is None else Damage(relative(path, workspace.root).as_posix(), why)

    with ThreadPoolExecutor() as pool:
        yield from (found for found in pool.map(check, _files(workspace)) if found is not None)
    needed: set[Location] = set()
    for _, _, path in workspace.prediction_files():
        try:
            needed.update(_used(workspace, read_spec(path)))
        except (FileNotFoundError, StoreError):
            continue
    lost = sorted(relative(path, workspace.root).as_posix() for path in needed if not path.exists())
    yield from (Damage(name, "it is missing, and results need it") for name in lost)


def file_count(workspace: Workspace) -> int:
    """How many files ``verify`` reads."""
    return len(_files(workspace))


def _files(workspace: Workspace) -> list[Location]:
    blocks = [block for folder in workspace.block_folders() for block in blocks_in(folder)]
    small = [*(path for path, _ in workspace.sealed_files()), *workspace.settings_files()]
    return [workspace.marker_path, *(path for _, _, path in workspace.prediction_files()), *blocks, *small]


def _check_file(workspace: Workspace, path: Location) -> None:
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
    elif kind not in ("predictions", "shards") or path.suffix != ".parquet":
        workspace.files.read_table(path)
    else:
        whole, spec = kind == "predictions", read_spec(path)
        rows = len(read_block(path, scores=True, key=path.stem if whole else path.parent.name))
        if whole and rows != spec.images:
            raise damaged(path, f"it has {rows} predictions, and its setting {spec.images} images")
        try:
            images = len(workspace.dataset(spec.dataset.name, spec.dataset.fingerprint).ids)
        except StoreError:
            return  # the damage of other files
        if images < rows:
            raise damaged(path, "it has more predictions than its dataset images")


def _used(workspace: Workspace, spec: ResultSpec) -> tuple[Location, ...]:
    """Records of the dataset and the label space that a result needs."""
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
    known = {one.file for one in damage}
    lost = [Path(one.file).stem for one in damage if one.file.startswith("predictions")]
    for _, _, path in workspace.prediction_files():
        if relative(path, workspace.root).as_posix() not in known:
            used = _used(workspace, read_spec(path))
            lost += [path.stem] * any(relative(one, workspace.root).as_posix() in known for one in used)
    commands = run_records.RunHistory(run_records.read_runs(workspace)[0]).commands(lost)
    if not dry_run:
        for path in (workspace.root / one.file for one in damage):
            if path.is_dir():
                remove_tree(path)
            else:
                path.unlink(missing_ok=True)
        if workspace.marker_path.name in known:
            workspace.write_marker()
    return Repair(list(damage), lost, commands)


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
    joined = removed = 0
    for folder in workspace.block_folders():
        files = blocks_in(folder)
        if _file_of(workspace, folder).exists() or not files:
            removed += len(files)
            remove_tree(folder)
        else:
            joined += _join(workspace, folder, files)
    temporary = _remove_temporary(workspace.root)
    # Images of results that are neither complete nor under way.
    for path in (workspace.root / "images").glob("*/*/*.parquet"):
        below = relative(path, workspace.root / "images")
        blocks = (workspace.root / "shards" / below).with_suffix("")
        if not blocks.is_dir() and not (workspace.root / "predictions" / below).exists():
            path.unlink(missing_ok=True)
            temporary += 1
    return Compaction(joined, removed, temporary, run_records.clear_locks(workspace), workspace.write_catalogue())


def _join(workspace: Workspace, folder: Location, files: Sequence[Location]) -> bool:
    """Make the result's file of its blocks; False where some are missing or damaged."""
    try:
        result = _unfinished(folder, files)
        with file_lock(workspace.lock_path(f"complete-{result.key}"), wait=True):
            blocks, ranges = [read_block(file, scores=True) for file in files], [block_range(file) for file in files]
            # No two blocks overlap: all are whole, or parts that follow each other.
            whole = {stop for _, stop in ranges} == {None}
            in_a_row = whole or all(stop == start for (_, stop), (start, _) in pairwise(ranges))
            if sum(map(len, blocks)) != result.spec.images or not in_a_row:
                return False
            workspace.complete(result, blocks, read_made_by(files[0]))
    except UnwritableError:
        raise
    except (StoreError, FileNotFoundError):
        # A run is just joining or clearing them, or must compute the damaged one anew.
        return False
    return True


def _unfinished(folder: Location, blocks: Sequence[Location]) -> Result:
    return Result(unquote(folder.parent.parent.name), unquote(folder.parent.name), read_spec(blocks[0]))


def _remove_temporary(root: Location) -> int:
    """Remove the temporary files of killed writers.

    Clocks may jump, so files from the future count as old, too. Times are those of the file system, whose clock may
    differ from this machine's.
    """
    left: list[Location] = list(root.rglob(".*.tmp"))
    if not left:
        return 0
    now, removed = time.time(), 0
    try:
        with tempfile.NamedTemporaryFile(dir=local(root), prefix=".clock.") as probe:
            now = Path(probe.name).stat().st_mtime
    except (OSError, StoreError):  # read-only, or an object store
        pass
    for path in left:
        try:
            old = abs(now - path.stat().st_mtime) > _ABANDONED
        except FileNotFoundError:
            continue  # it has just been put in its place
        if old:
            path.unlink(missing_ok=True)
            removed += 1
    return removed


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
    folders = [(folder, blocks_in(folder)) for folder in workspace.block_folders()]
    unfinished = [_unfinished(folder, blocks) for folder, blocks in folders if blocks]
    everything = {result.relative: result for result in [*workspace.results(), *unfinished]}
    versions = ModelVersions.of(workspace, everything.values())
    chosen = versions.select(everything.values(), models, settings)
    return [removable(workspace, versions.named(result)) for result in chosen]


def removable(workspace: Workspace, result: Result) -> Removable:
    """A result with its files."""
    whole, images = workspace.predictions_path(result), workspace.images_path(result)
    return Removable(result, (whole, images, *workspace.blocks_folder(result).glob("*")), whole.exists())


def remove_results(workspace: Workspace, found: Sequence[Removable]) -> None:
    """Delete them; refused while a run computes one of them."""
    keys = {one.result.key for one in found}
    for record in run_records.read_runs(workspace)[0]:
        used = keys.intersection(key for model in record.models for key in model.results)
        if record.status == "running" and used and run_records.is_alive(workspace, record):
            raise StoreError(
                f"a run that started at {record.started} uses {len(used)} of these results",
                hint="wait for it to finish, or stop it",
            )
    by_model = by_key((one.result.model_id, one.result.key) for one in found)
    models = [run_records.ModelRun(id=model, removed=removed) for model, removed in by_model.items()]
    call = run_records.Call("remove", remove_results, {"found": [str(one.result.relative) for one in found]})
    with run_records.recorded_run(workspace, call, models):
        for one in found:
            with file_lock(workspace.lock_path(f"complete-{one.result.key}"), wait=True):
                # The predictions first: without them the rest is what an interrupted run leaves.
                workspace.predictions_path(one.result).unlink(missing_ok=True)
                workspace.images_path(one.result).unlink(missing_ok=True)
                remove_tree(workspace.blocks_folder(one.result))
        workspace.write_catalogue()
