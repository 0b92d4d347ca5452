"""Looking after a workspace: what it holds, whether every byte is as it was written, and clearing up."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq

from shiftbench.errors import StoreError, explain
from shiftbench.io.locks import file_lock
from shiftbench.io.paths import Location, UnreachableError, UnwritableError, local, remove_tree
from shiftbench.jobs.progress import Advance
from shiftbench.store.prediction_files import read_block, read_made_by, read_spec
from shiftbench.store.run_records import RunHistory, clear_locks, read_run, read_runs
from shiftbench.store.sealed import damaged
from shiftbench.store.workspace import Result, Workspace, block_range, blocks_in, read_settings, read_space

#: A writer is done with its temporary file, or dead, after so many seconds.
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

    def as_dict(self) -> dict[str, Any]:
        each = self.bytes / self.predictions if self.predictions else None
        return {**asdict(self), "bytes_per_prediction": each}


@dataclass(frozen=True)
class Damage:
    """A file that is not as it was written."""

    #: Within the workspace.
    file: str
    why: str


@dataclass(frozen=True)
class Compaction:
    """What clearing up did."""

    joined: int
    removed_blocks: int
    removed_temporary: int
    removed_locks: int
    catalogued: int


def workspace_stats(workspace: Workspace) -> Stats:
    """Counted from names, sizes and specs; no prediction is read."""
    results = list(workspace.results())
    files = {path for _, _, path in workspace.prediction_files()}
    folders = [folder for folder in workspace.block_folders() if _file_of(workspace, folder) not in files]
    records = [path.parent for path in (workspace.root / "datasets").glob("*/record.json")]
    problems = [problem for folder in records for problem in workspace.problems_in(folder)]
    return Stats(
        classifiers=len({result.classifier for result in results}),
        settings=len({result.setting for result in results}),
        results=len(results),
        predictions=sum(result.spec.images for result in results),
        bytes=sum(path.stat().st_size for path in files),
        unfinished_results=len(folders),
        unfinished_blocks=sum(len(blocks_in(folder)) for folder in folders),
        datasets=len(records),
        images=sum(_rows(folder / "images.parquet") for folder in records),
        skipped_images=sum(problem["action"] == "skipped" for problem in problems),
    )


def verify(workspace: Workspace, advance: Advance = lambda count: None) -> Iterator[Damage]:
    """Read every file against its digest, and predictions against their spec and dataset; yields what is wrong."""

    def check(path: Location) -> Damage | None:
        why = _wrong_with(workspace, path)
        advance(1)
        return None if why is None else Damage(str(path.relative_to(workspace.root)), why)

    with ThreadPoolExecutor() as pool:
        yield from (found for found in pool.map(check, _files(workspace)) if found is not None)
    yield from (Damage(name, "it is missing, and results need it") for name in sorted(_missing(workspace)))


def file_count(workspace: Workspace) -> int:
    """How many files ``verify`` reads."""
    return len(_files(workspace))


def _files(workspace: Workspace) -> list[Location]:
    blocks = [block for folder in workspace.block_folders() for block in blocks_in(folder)]
    small = [*(path for path, _ in workspace.sealed_files()), *workspace.settings_files()]
    return [workspace.marker_path, *(path for _, _, path in workspace.prediction_files()), *blocks, *small]


def _wrong_with(workspace: Workspace, path: Location) -> str | None:
    try:
        if path.exists() and not path.is_file():
            return "it is not a file"
        _check_file(workspace, path)
    except FileNotFoundError:
        # Joined or replaced while this went on; the marker is never.
        return "it is missing" if path == workspace.marker_path else None
    except UnreachableError:
        raise  # says nothing about the file
    except Exception as error:  # whatever a damaged file makes its reader do, the other files are checked
        return error.message if isinstance(error, StoreError) else explain(error)
    return None


def _check_file(workspace: Workspace, path: Location) -> None:
    relative = path.relative_to(workspace.root)
    kind = relative.parts[0]
    if kind == "settings":
        read_settings(path)
    elif kind == "spaces":
        read_space(workspace.files, path, unquote(path.stem))
    elif kind == "runs":
        if read_run(workspace, path) is None:
            raise damaged(path, "it is not a record of a run")
    elif path.suffix == ".json":
        workspace.files.read_json(path)
    elif kind in ("predictions", "shards") and path.suffix == ".parquet":
        _check_predictions(workspace, path, whole=kind == "predictions")
    else:
        workspace.files.read_table(path)


def _check_predictions(workspace: Workspace, path: Location, *, whole: bool) -> None:
    spec = read_spec(path)
    rows = len(read_block(path, scores=True, key=path.stem if whole else path.parent.name))
    if whole and rows != spec.images:
        raise damaged(path, f"it has {rows} predictions, and its setting {spec.images} images")
    try:
        images = len(workspace.dataset(spec.dataset.name, spec.dataset.fingerprint).ids)
    except StoreError:
        return  # the damage of other files
    if images < rows:
        raise damaged(path, "it has more predictions than its dataset images")


def _missing(workspace: Workspace) -> set[str]:
    """Records of datasets and label spaces that results need, and that are not there."""
    needed: set[Location] = set()
    for _, _, path in workspace.prediction_files():
        try:
            spec = read_spec(path)
        except (FileNotFoundError, StoreError):
            continue
        folder = workspace.dataset_folder(spec.dataset.name, spec.dataset.fingerprint)
        needed |= {folder / "record.json", folder / "images.parquet", workspace.space_path(spec.space)}
    return {str(path.relative_to(workspace.root)) for path in needed if not path.exists()}


@dataclass(frozen=True)
class Repair:
    """What a repair did, and what is left to do."""

    removed: list[Damage]
    #: Results that the next eval computes, or records, again.
    results: list[str]
    #: Commands or calls that do that, as far as runs were recorded.
    commands: list[str]


def repair(workspace: Workspace, damage: Sequence[Damage], *, dry_run: bool = False) -> Repair:
    """Remove damaged files, keep all others, and write workspace.json anew where it is damaged.

    What is removed can be made again: predictions, labels and label spaces by the same eval, the catalogue by
    ``compact``. Damaged names and records of runs are lost.
    """
    known = {one.file for one in damage}
    lost = [Path(one.file).stem for one in damage if one.file.startswith("predictions")]
    for _, _, path in workspace.prediction_files():
        if str(path.relative_to(workspace.root)) in known:
            continue
        spec = read_spec(path)
        folder = workspace.dataset_folder(spec.dataset.name, spec.dataset.fingerprint)
        used = (folder / "record.json", folder / "images.parquet", workspace.space_path(spec.space))
        lost += [path.stem] * any(str(one.relative_to(workspace.root)) in known for one in used)
    commands = RunHistory(read_runs(workspace)[0]).commands(lost)
    if not dry_run:
        for one in damage:
            _remove(workspace.root / one.file)
        if workspace.marker_path.name in known:
            workspace.write_marker()
    return Repair(list(damage), lost, commands)


def _remove(path: Location) -> None:
    if path.is_dir():
        remove_tree(path)
    else:
        path.unlink(missing_ok=True)


def compact(workspace: Workspace) -> Compaction:
    """Join what is whole, remove what nobody needs any more, and write the catalogue; safe beside a running eval."""
    joined = removed = 0
    for folder in workspace.block_folders():
        files = blocks_in(folder)
        if _file_of(workspace, folder).exists() or not files:
            removed += len(files)
            workspace.clear_blocks(folder)
        else:
            joined += _join(workspace, folder, files)
    temporary = _remove_temporary(workspace.root) + _remove_images(workspace)
    return Compaction(joined, removed, temporary, clear_locks(workspace), workspace.write_catalogue())


def _join(workspace: Workspace, folder: Location, files: Sequence[Location]) -> bool:
    """Make the result's file of its blocks; False where some are missing or damaged."""
    try:
        result = Result(unquote(folder.parent.parent.name), unquote(folder.parent.name), read_spec(files[0]))
        with file_lock(workspace.lock_path(f"complete-{result.key}"), wait=True):
            blocks = [read_block(file, scores=True) for file in files]
            if sum(map(len, blocks)) != result.spec.images or not _in_a_row([block_range(file) for file in files]):
                return False
            workspace.complete(result, blocks, read_made_by(files[0]))
    except UnwritableError:
        raise
    except (StoreError, FileNotFoundError):
        # A run is just joining or clearing them, or must compute the damaged one anew.
        return False
    return True


def _in_a_row(ranges: Sequence[tuple[int, int | None]]) -> bool:
    """Whether no two blocks overlap: all are whole, or parts that follow each other."""
    stops = {stop for _, stop in ranges}
    return stops == {None} or all(stop == start for (_, stop), (start, _) in pairwise(ranges))


def _remove_temporary(root: Location) -> int:
    """What writers left that were killed.

    A clock may jump, so that a file from the future is as old as one from the past: who writes now writes about now.
    """
    left = list(root.rglob(".*.tmp"))
    now = _clock_of(root) if left else 0.0
    old = [path for path in left if abs(now - _changed(path, now)) > _ABANDONED]
    for path in old:
        path.unlink(missing_ok=True)
    return len(old)


def _remove_images(workspace: Workspace) -> int:
    """Images of results that are neither complete nor under way."""
    left = 0
    for path in (workspace.root / "images").glob("*/*/*.parquet"):
        relative = path.relative_to(workspace.root / "images")
        blocks = (workspace.root / "shards" / relative).with_suffix("")
        if not blocks.is_dir() and not (workspace.root / "predictions" / relative).exists():
            path.unlink(missing_ok=True)
            left += 1
    return left


def _changed(path: Location, now: float) -> float:
    """When a file was last written; now, where it has just been put in its place."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return now


def _clock_of(root: Location) -> float:
    """The time as the workspace's file system has it, which on a shared one need not be this machine's."""
    try:
        with tempfile.NamedTemporaryFile(dir=local(root), prefix=".clock.") as probe:
            return Path(probe.name).stat().st_mtime
    except (OSError, StoreError):  # read-only, or an object store
        return time.time()


def _rows(table: Location) -> int:
    with table.open("rb") as file:
        return int(pq.ParquetFile(file).metadata.num_rows)


def _file_of(workspace: Workspace, folder: Location) -> Location:
    """Where the predictions lie once these blocks are joined."""
    relative = folder.relative_to(workspace.root / "shards")
    return workspace.root / "predictions" / relative.parent / f"{relative.name}.parquet"
