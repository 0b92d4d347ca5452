"""``shiftbench store``: what a workspace holds and who made it; verify, repair, compact, export, rename, remove."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

import shiftbench as sb
from shiftbench.cli.console import confirm_removal, errors, note, output, print_json, show
from shiftbench.cli.options import (
    DEFAULT_WORKSPACE,
    Commands,
    Json,
    Quiet,
    SettingNames,
    TableOptions,
    WorkspaceOptions,
    WorkspacePath,
    path_or_url,
)
from shiftbench.io.paths import Location, place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shiftbench.store.maintenance import Damage, Removable

app = Commands("Look after a workspace: statistics, log of runs, verify, repair, compact, export, rename, remove.")

DryRun = Annotated[bool, "Only list what would be removed."]
Yes = Annotated[bool, "-y", "Do not ask."]


@dataclass(frozen=True)
class StoreOptions:
    """A workspace, which may also be named without -w."""

    folder: Annotated[Location | None, typer.Argument(parser=place, hidden=True)] = None
    workspace: WorkspacePath = DEFAULT_WORKSPACE
    json: Json = False

    def open(self, *, damaged_too: bool = False) -> sb.Workspace:
        return sb.Workspace(self.folder or self.workspace, create=False, damaged_too=damaged_too)


@app.command("stats")
def stats_command(where: StoreOptions) -> None:
    """Count models, settings, predictions and bytes, without reading predictions."""
    from shiftbench.store.maintenance import workspace_stats

    stats = workspace_stats(where.open())
    size = f"{stats.bytes / 1e6:,.1f} MB"
    if stats.predictions:
        size += f" ({stats.bytes / stats.predictions:.2f} bytes per prediction)"
    lines = {
        "results": f"{stats.results:,} ({stats.classifiers:,} models, {stats.settings:,} settings)",
        "predictions": f"{stats.predictions:,}",
        "on disk": size,
        "images": f"{stats.images:,} in {stats.datasets:,} datasets; {stats.skipped_images:,} could not be read",
    }
    if stats.unfinished_results:
        blocks = f"{stats.unfinished_results:,} results, with {stats.unfinished_blocks:,} blocks so far"
        lines["unfinished"] = f"{blocks}; rerun the same eval to finish them"
    text = "\n".join(f"{title + ':':<13}{line}" for title, line in lines.items())
    show(stats.as_dict(), text, as_json=where.json)


@app.command("verify")
def verify_command(where: StoreOptions, quiet: Quiet = False) -> None:
    """Check every file against its digest: predictions, labels, label spaces, records.

    Lists files that are truncated, edited, swapped or missing, and exits with 1 if there are any. `shiftbench store
    repair` removes them; rerunning the same eval computes them again.
    """
    verified = _verify(where, quiet)
    lines = _damage_lines(verified.damage)
    lines.append(f"{verified.files:,} files, {len(verified.damage):,} damaged")
    damaged = [asdict(file) for file in verified.damage]
    show({"files": verified.files, "damaged": damaged}, "\n".join(lines), as_json=where.json)
    if damaged:
        raise typer.Exit(1)


def _damage_lines(damage: Sequence[Damage]) -> list[str]:
    return [f"{damaged.file}: {damaged.why}" for damaged in damage]


class _Verified(NamedTuple):
    """A workspace whose files were checked."""

    workspace: sb.Workspace
    files: int
    damage: list[Damage]


def _verify(where: StoreOptions, quiet: bool) -> _Verified:
    """Check all files of a workspace."""
    from shiftbench.jobs.progress import progress_bar
    from shiftbench.store.maintenance import file_count, verify

    store = where.open(damaged_too=True)
    count = file_count(store)
    with progress_bar("files", count, show=not quiet) as advance:
        return _Verified(store, count, list(verify(store, advance)))


@app.command("repair")
def repair_command(where: StoreOptions, dry_run: DryRun = False, yes: Yes = False, quiet: Quiet = False) -> None:
    """Remove damaged files, so that the rest of the workspace can be used.

    Verifies every file first, lists the damaged ones, and asks before it removes them; without a terminal it needs
    --yes. Intact files are kept, and a damaged workspace.json is restored. Links to folders are removed without what
    they point to. Afterwards rerun the commands that are listed: they compute only what is missing.

    \b
    Examples:
      see what would be removed
        shiftbench store repair --dry-run
      remove it without a question, in a script
        shiftbench store repair --yes
    """
    from shiftbench.store.maintenance import repair

    store, count, damage = _verify(where, quiet)
    lines = _damage_lines(damage)
    if damage and not dry_run and not yes:
        for line in lines:
            errors.print(line, soft_wrap=True)
        files = "1 file" if len(damage) == 1 else f"{len(damage):,} files"
        confirm_removal(f"Remove {files}?")
    done = repair(store, damage, dry_run=dry_run)
    lines.append(f"{_removed(dry_run)}: {len(done.removed):,} of {count:,} files")
    if done.results:
        lines.append(f"to do:   rerun the same eval to complete {len(done.results):,} results")
    lines += [f"  {command}" for command in done.commands]
    show({"files": count, "dry_run": dry_run, **asdict(done)}, "\n".join(lines), as_json=where.json)


def _removed(dry_run: bool) -> str:
    """The title of what is removed."""
    return "would remove" if dry_run else "removed"


@app.command("compact")
def compact_command(where: StoreOptions) -> None:
    """Join complete blocks, clean up after killed runs, and write the catalogue.

    The catalogue lists all results in one file, so that tables of a large workspace open quickly. No result is
    removed, and a running eval is not disturbed.
    """
    from shiftbench.store.maintenance import compact

    done = compact(where.open())
    removed = (
        f"{done.removed_blocks:,} blocks, {done.removed_temporary:,} temporary files, {done.removed_locks:,} locks"
    )
    text = f"joined:      {done.joined:,} results\nremoved:     {removed}\ncatalogue:   {done.catalogued:,} results"
    show(asdict(done), text, as_json=where.json)


@app.command("export")
def export_command(
    file: Annotated[Location, path_or_url("The table: .csv or .parquet.")],
    stored: WorkspaceOptions,
    setting: SettingNames = None,
    image: Annotated[list[str] | None, "-i", "Only these image ids (repeatable)."] = None,
    top: Annotated[int, {"min": 1}, "Number of top classes per image."] = 1,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write predictions as one long table: one row per image, model and setting.

    \b
    Examples:
      everything, for pandas, R or DuckDB
        shiftbench store export all.parquet
      the predictions of every model for one image
        shiftbench store export one.csv --image n01440764/x.JPEG --top 5
    """
    from shiftbench.jobs.progress import progress_bar
    from shiftbench.store.export import export_table
    from shiftbench.store.models import NoResultsError

    run = stored.run(setting)
    if not run.results:
        raise NoResultsError("the workspace holds no results yet")
    with progress_bar("results", len(run.results), show=not quiet) as advance:
        rows = export_table(
            run.workspace,
            file,
            run.results,
            top_k=top,
            images=image or (),
            assumed_facts=run.assumed_facts(),
            advance=advance,
        )
    if json:
        print_json({"file": str(file), "rows": rows})
    else:
        note(f"written: {file}, {rows:,} rows")


@app.command("log")
def log_command(
    stored: WorkspaceOptions,
    last: Annotated[int | None, "-n", {"min": 1}, "Only the last N runs."] = None,
    *,
    table_options: TableOptions,
) -> None:
    """List the runs that wrote to a workspace, by date: command or call, models, results, versions.

    Runs of version 0.1 are not recorded. `--json` has every record in full.
    """
    from shiftbench.reports.models import run_log

    table_options.show(run_log(stored.run(), last=last, of_models=bool(stored.classifier)))


@app.command("rename")
def rename_command(
    model: Annotated[str, typer.Argument(help="Name or id (name@hash) of a model.")],
    name: Annotated[str, typer.Argument(help="New name.")],
    workspace: WorkspacePath = DEFAULT_WORKSPACE,
    json: Json = False,
) -> None:
    """Give a model, or one version of it, another name in tables and reports.

    The stored predictions are not touched; later runs of the same version appear under the new name, too.
    """
    from shiftbench.runs.results import StoredResults
    from shiftbench.store.models import rename_model

    run = StoredResults.open(workspace)
    version = run.find_model(model)
    rename_model(run.workspace, version, name, {existing.name for existing in run.models})
    new_id = f"{name}@{version.record.version}"
    show({"before": version.id, "after": new_id}, f"{version.id} is now {new_id}", as_json=json)


@app.command("remove")
def remove_command(
    models: Annotated[list[str] | None, typer.Argument(help="Names or ids (name@hash) of models.")] = None,
    workspace: WorkspacePath = DEFAULT_WORKSPACE,
    setting: SettingNames = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Delete results, with their unfinished blocks and stored images.

    A name stands for all its versions, an id for one. Without models, the settings are removed for all of them.

    \b
    Examples:
      the version with the wrong preprocessing
        shiftbench store remove small@5451c0ab
      one setting of all models
        shiftbench store remove -s photos-c.fog.3 --dry-run
    """
    from shiftbench.store.maintenance import find_to_remove, remove_results

    if not models and not setting:
        raise typer.BadParameter("name models, or settings with --setting", param_hint="MODELS")
    store = sb.Workspace(workspace, create=False)
    removals = find_to_remove(store, models or (), setting or ())
    size = sum(removal.bytes for removal in removals)
    if not json:
        _list_removals(removals)
    results = "1 result" if len(removals) == 1 else f"{len(removals):,} results"
    summary = f"{results}, {size / 1e6:,.1f} MB"
    if not dry_run and not yes:
        confirm_removal(f"Remove {summary}?")
    if not dry_run:
        remove_results(store, removals)
    data = []
    for removal in removals:
        result = removal.result
        data.append({"id": result.model_id, "setting": result.setting, "key": result.key})
    text = f"{_removed(dry_run)}: {summary}"
    show({"removed": not dry_run, "results": data, "bytes": size}, text, as_json=json)


def _list_removals(removals: Sequence[Removable]) -> None:
    """Print the results that will be removed."""
    for removal in removals:
        state = f"{removal.result.spec.images:,} predictions" if removal.complete else "not complete"
        output.print(f"{removal.result.model_id} in {removal.result.setting}: {state}")
