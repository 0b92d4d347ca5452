"""Deleting results from a workspace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from shiftbench.errors import StoreError, UnknownNameError, listed
from shiftbench.io.locks import file_lock
from shiftbench.io.paths import Location
from shiftbench.store.models import ModelVersions
from shiftbench.store.prediction_files import read_spec
from shiftbench.store.run_records import Call, ModelRun, is_alive, read_runs, recorded_run
from shiftbench.store.workspace import Result, Workspace, blocks_in


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
    everything = {result.relative: result for result in [*workspace.results(), *_unfinished(workspace)]}
    versions = ModelVersions.of(workspace, everything.values())
    wanted = {one.id for name in models for one in versions.find(name)}
    known = {result.setting for result in everything.values()}
    for setting in settings:
        if setting not in known:
            raise UnknownNameError("setting", setting, sorted(known))
    chosen = [
        result
        for result in map(versions.named, everything.values())
        if (not models or result.model_id in wanted) and (not settings or result.setting in settings)
    ]
    if not chosen:
        raise StoreError(f"no results of {listed(models)} in {listed(settings)}")
    return [removable(workspace, result) for result in chosen]


def _unfinished(workspace: Workspace) -> list[Result]:
    folders = [(folder, blocks_in(folder)) for folder in workspace.block_folders()]
    return [
        Result(unquote(folder.parent.parent.name), unquote(folder.parent.name), read_spec(blocks[0]))
        for folder, blocks in folders
        if blocks
    ]


def removable(workspace: Workspace, result: Result) -> Removable:
    """A result with its files."""
    whole, images = workspace.predictions_path(result), workspace.images_path(result)
    blocks = workspace.blocks_folder(result)
    return Removable(result, (whole, images, *blocks.glob("*")), whole.exists())


def remove_results(workspace: Workspace, found: Sequence[Removable]) -> None:
    """Delete them; refused while a run computes one of them."""
    keys = {one.result.key for one in found}
    for record in read_runs(workspace)[0]:
        used = keys.intersection(key for model in record.models for key in model.results)
        if record.status == "running" and used and is_alive(workspace, record):
            raise StoreError(
                f"a run that started at {record.started} uses {len(used)} of these results",
                hint="wait for it to finish, or stop it",
            )
    by_model: dict[str, list[str]] = {}
    for one in found:
        by_model.setdefault(one.result.model_id, []).append(one.result.key)
    models = [ModelRun(id=model, removed=removed) for model, removed in by_model.items()]
    call = Call("remove", remove_results, {"found": [str(one.result.relative) for one in found]})
    with recorded_run(workspace, call, models):
        for one in found:
            with file_lock(workspace.lock_path(f"complete-{one.result.key}"), wait=True):
                # The predictions first: without them the rest is what an interrupted run leaves.
                workspace.predictions_path(one.result).unlink(missing_ok=True)
                workspace.images_path(one.result).unlink(missing_ok=True)
                workspace.clear_blocks(workspace.blocks_folder(one.result))
        workspace.write_catalogue()
