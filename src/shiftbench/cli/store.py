"""``shiftbench store``: what a workspace holds and who made it; verify, repair, compact, export, rename, remove."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

import shiftbench as sb
from shiftbench.cli.console import note, output, print_json, show
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
    from shiftbench.store.maintenance import Damage

app = Commands("Look after a workspace: statistics, log of runs, verify, repair, compact, export, rename, remove.")

DryRun = Annotated[bool, "Only list what would be removed."]


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

    found = workspace_stats(where.open())
    each = f" ({found.bytes / found.predictions:.2f} bytes per prediction)" if found.predictions else ""
    lines = {
        "results": f"{found.results:,} ({found.classifiers:,} models, {found.settings:,} settings)",
        "predictions": f"{found.predictions:,}",
        "on disk": f"{found.bytes / 1e6:,.1f} MB{each}",
        "images": f"{found.images:,} in {found.datasets:,} datasets; {found.skipped_images:,} could not be read",
    }
    if found.unfinished_results:
        blocks = f"{found.unfinished_results:,} results, with {found.unfinished_blocks:,} blocks so far"
        lines["unfinished"] = f"{blocks}; rerun the same eval to finish them"
    show(found.as_dict(), "\n".join(f"{title + ':':<13}{text}" for title, text in lines.items()), as_json=where.json)


@app.command("verify")
def verify_command(where: StoreOptions, quiet: Quiet = False) -> None:
    """Check every file against its digest: predictions, labels, label spaces, records.

    Lists files that are truncated, edited, swapped or missing, and exits with 1 if there are any. `shiftbench store
    repair` removes them; rerunning the same eval computes them again.
    """
    _, count, damaged = _verify(where, quiet)
    lines = [*(f"{one.file}: {one.why}" for one in damaged), f"{count:,} files, {len(damaged):,} damaged"]
    show({"files": count, "damaged": [asdict(one) for one in damaged]}, "\n".join(lines), as_json=where.json)
    if damaged:
        raise typer.Exit(1)


def _verify(where: StoreOptions, quiet: bool) -> tuple[sb.Workspace, int, list[Damage]]:
    from shiftbench.jobs.progress import progress_bar
    from shiftbench.store.maintenance import file_count, verify

    store = where.open(damaged_too=True)
    count = file_count(store)
    with progress_bar("files", count, show=not quiet) as advance:
        return store, count, list(verify(store, advance))


@app.command("repair")
def repair_command(where: StoreOptions, dry_run: DryRun = False, quiet: Quiet = False) -> None:
    """Remove damaged files, so that the rest of the workspace can be used.

    Verifies every file first. Intact files are kept, and a damaged workspace.json is restored. Afterwards rerun the
    commands that are listed: they compute only what is missing.
    """
    from shiftbench.store.maintenance import repair

    store, count, damage = _verify(where, quiet)
    done = repair(store, damage, dry_run=dry_run)
    lines = [f"{one.file}: {one.why}" for one in done.removed]
    lines.append(f"{'would remove' if dry_run else 'removed'}: {len(done.removed):,} of {count:,} files")
    if done.results:
        lines.append(f"to do:   rerun the same eval to complete {len(done.results):,} results")
    lines += [f"  {command}" for command in done.commands]
    show({"files": count, "dry_run": dry_run, **asdict(done)}, "\n".join(lines), as_json=where.json)


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
        rows = export_table(run.workspace, file, run.results, top_k=top, images=image or (), advance=advance)
    if json:
        print_json({"file": str(file), "rows": rows})
    else:
        note(f"written: {file}, {rows:,} rows")


@app.command("log")
def log_command(
    stored: WorkspaceOptions,
    last: Annotated[int | None, "-n", {"min": 1}, "Only the last N runs."] = None,
    *,
    shown: TableOptions,
) -> None:
    """List the runs that wrote to a workspace, by date: command or call, models, results, versions.

    Runs of version 0.1 are not recorded. `--json` has every record in full.
    """
    from shiftbench.reports.models import run_log

    shown.show(run_log(stored.run(), last=last, of_models=bool(stored.classifier)))


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
    rename_model(run.workspace, version, name, {one.name for one in run.models})
    new = f"{name}@{version.record.version}"
    show({"before": version.id, "after": new}, f"{version.id} is now {new}", as_json=json)


@app.command("remove")
def remove_command(
    models: Annotated[list[str] | None, typer.Argument(help="Names or ids (name@hash) of models.")] = None,
    workspace: WorkspacePath = DEFAULT_WORKSPACE,
    setting: SettingNames = None,
    dry_run: DryRun = False,
    yes: Annotated[bool, "-y", "Do not ask."] = False,
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
    found = find_to_remove(store, models or (), setting or ())
    size = sum(one.bytes for one in found)
    if not json:
        for one in found:
            state = f"{one.result.spec.images:,} predictions" if one.complete else "not complete"
            output.print(f"{one.result.model_id} in {one.result.setting}: {state}")
    summary = f"{len(found):,} result{'' if len(found) == 1 else 's'}, {size / 1e6:,.1f} MB"
    if not dry_run and not yes and not typer.confirm(f"Remove {summary}?", err=True):
        raise typer.Exit(1)
    if not dry_run:
        remove_results(store, found)
    listed = [{"id": one.result.model_id, "setting": one.result.setting, "key": one.result.key} for one in found]
    text = f"{'would remove' if dry_run else 'removed'}: {summary}"
    show({"removed": not dry_run, "results": listed, "bytes": size}, text, as_json=json)
