"""``shiftbench store``: statistics, verification, compaction and export of a workspace."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from shiftbench.cli.console import errors, output, print_json
from shiftbench.cli.options import (
    DEFAULT_WORKSPACE,
    Json,
    ModelNames,
    Quiet,
    SettingNames,
    WorkspacePath,
    path_or_url,
)
from shiftbench.io.paths import Location

app = typer.Typer(no_args_is_help=True, help="Inspect, verify, compact and export a workspace.")

Folder = Annotated[Location, path_or_url("The folder that `eval` wrote to.")]


@app.command("stats")
def stats_command(workspace: Folder = DEFAULT_WORKSPACE, json: Json = False) -> None:
    """Count models, settings, predictions and bytes, without reading predictions."""
    from shiftbench.store.maintenance import workspace_stats
    from shiftbench.store.workspace import Workspace

    found = workspace_stats(Workspace(workspace, create=False))
    if json:
        print_json(found.as_dict())
        return
    each = f" ({found.bytes / found.predictions:.2f} bytes per prediction)" if found.predictions else ""
    lines = [
        ("results", f"{found.results:,} ({found.classifiers:,} models, {found.settings:,} settings)"),
        ("predictions", f"{found.predictions:,}"),
        ("on disk", f"{found.bytes / 1e6:,.1f} MB{each}"),
        ("images", f"{found.images:,} in {found.datasets:,} datasets; {found.skipped_images:,} could not be read"),
    ]
    if found.unfinished_results:
        blocks = f"{found.unfinished_results:,} results, with {found.unfinished_blocks:,} blocks so far"
        lines.append(("unfinished", f"{blocks}; rerun the same eval to finish them"))
    for title, text in lines:
        output.print(f"{title + ':':<13}{text}", highlight=False, markup=False)


@app.command("verify")
def verify_command(workspace: Folder = DEFAULT_WORKSPACE, json: Json = False, quiet: Quiet = False) -> None:
    """Check every stored prediction against its digest.

    Lists files that are truncated, edited or swapped, and exits with 1 if there are any. Rerunning the same eval
    computes them again.
    """
    from shiftbench.jobs.progress import progress_bar
    from shiftbench.store.maintenance import file_count, verify
    from shiftbench.store.workspace import Workspace

    store = Workspace(workspace, create=False)
    count = file_count(store)
    with progress_bar("files", count, show=not quiet, console=errors) as advance:
        damaged = list(verify(store, advance))
    if json:
        print_json({"files": count, "damaged": [asdict(one) for one in damaged]})
    else:
        for one in damaged:
            output.print(f"{one.file}: {one.why}", highlight=False, markup=False, soft_wrap=True)
        output.print(f"{count:,} files, {len(damaged):,} damaged", highlight=False)
    if damaged:
        raise typer.Exit(1)


@app.command("compact")
def compact_command(workspace: Folder = DEFAULT_WORKSPACE, json: Json = False) -> None:
    """Join complete blocks, clean up after killed runs, and write the catalogue.

    The catalogue lists all results in one file, so that tables of a large workspace open quickly. No result is
    removed, and a running eval is not disturbed.
    """
    from shiftbench.store.maintenance import compact
    from shiftbench.store.workspace import Workspace

    done = compact(Workspace(workspace, create=False))
    if json:
        print_json(asdict(done))
        return
    removed = (
        f"{done.removed_blocks:,} blocks, {done.removed_temporary:,} temporary files, {done.removed_locks:,} locks"
    )
    output.print(f"joined:      {done.joined:,} results", highlight=False)
    output.print(f"removed:     {removed}", highlight=False)
    output.print(f"catalogue:   {done.catalogued:,} results", highlight=False)


@app.command("export")
def export_command(
    file: Annotated[Location, path_or_url("The table: .csv or .parquet.")],
    workspace: WorkspacePath = DEFAULT_WORKSPACE,
    classifier: ModelNames = None,
    setting: SettingNames = None,
    image: Annotated[list[str] | None, typer.Option("--image", "-i", help="Only these image ids (repeatable).")] = None,
    top: Annotated[int, typer.Option(min=1, help="Number of top classes per image.")] = 1,
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
    from shiftbench.errors import StoreError
    from shiftbench.jobs.progress import progress_bar
    from shiftbench.store.export import export_table
    from shiftbench.store.workspace import Workspace

    store = Workspace(workspace, create=False)
    results = list(store.results(classifier or (), setting or ()))
    if not results:
        raise StoreError("no results match", hint="`shiftbench table` lists the results")
    with progress_bar("results", len(results), show=not quiet, console=errors) as advance:
        rows = export_table(store, file, results, top_k=top, images=image or (), advance=advance)
    errors.print(f"written: {file}, {rows:,} rows", style="dim", highlight=False)
