"""``shiftbench store``: what a workspace holds, whether it is whole, clearing up, and a table for other tools."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from shiftbench.cli.console import errors, output, print_json
from shiftbench.cli.paths import place_argument
from shiftbench.cli.table import Classifiers
from shiftbench.cli.table import Workspace as WorkspaceFolder

app = typer.Typer(no_args_is_help=True, help="Look after a workspace: what it holds, whether it is whole, export.")

Folder = Annotated[Path, place_argument("The folder that `eval` wrote to.")]
Json = Annotated[bool, typer.Option("--json", help="As JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")]
_DEFAULT = Path("shiftbench-workspace")


@app.command("stats")
def stats_command(workspace: Folder = _DEFAULT, json: Json = False) -> None:
    """Count classifiers, settings, predictions and bytes. No prediction is read."""
    from shiftbench.store.maintenance import workspace_stats
    from shiftbench.store.workspace import Workspace

    found = workspace_stats(Workspace(workspace, create=False))
    if json:
        print_json(found.as_dict())
        return
    each = f" ({found.bytes / found.predictions:.2f} bytes a prediction)" if found.predictions else ""
    lines = [
        ("results", f"{found.cells:,} ({found.classifiers:,} classifiers, {found.settings:,} settings)"),
        ("predictions", f"{found.predictions:,}"),
        ("on disk", f"{found.bytes / 1e6:,.1f} MB{each}"),
        ("images", f"{found.images:,} in {found.datasets:,} data sets; {found.skipped_images:,} could not be read"),
    ]
    if found.unfinished_cells:
        blocks = f"{found.unfinished_cells:,} results, with {found.unfinished_blocks:,} blocks so far"
        lines.append(("unfinished", f"{blocks}; the same eval continues them"))
    for title, text in lines:
        output.print(f"{title + ':':<13}{text}", highlight=False, markup=False)


@app.command("verify")
def verify_command(workspace: Folder = _DEFAULT, json: Json = False, quiet: Quiet = False) -> None:
    """Read every prediction against the digest that was written with it.

    Names the files that were torn, edited or exchanged; ends with 1 if there are any. The same eval computes
    them anew.
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
def compact_command(workspace: Folder = _DEFAULT, json: Json = False) -> None:
    """Join results whose blocks are all there, clear up after killed runs, and write the catalogue.

    The catalogue lists all results in one file, so that tables of a large workspace start at once. Nothing that
    counts is removed, and a running eval is not disturbed.
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
    file: Annotated[Path, place_argument("The table: .csv or .parquet.")],
    workspace: WorkspaceFolder = _DEFAULT,
    classifier: Classifiers = None,
    setting: Annotated[list[str] | None, typer.Option("--setting", "-s", help="Only these settings.")] = None,
    image: Annotated[list[str] | None, typer.Option("--image", "-i", help="Only images of these ids.")] = None,
    top: Annotated[int, typer.Option(min=1, help="So many of the best classes of each image.")] = 1,
    quiet: Quiet = False,
) -> None:
    """Write predictions as one long table: a row an image, classifier and setting.

    \b
    Examples:
      everything, for pandas, R or DuckDB
        shiftbench store export all.parquet
      what every classifier said about one picture
        shiftbench store export one.csv --image n01440764/x.JPEG --top 5
    """
    from shiftbench.errors import StoreError
    from shiftbench.jobs.progress import progress_bar
    from shiftbench.store.export import export_table
    from shiftbench.store.workspace import Workspace

    store = Workspace(workspace, create=False)
    cells = list(store.cells(classifier or (), setting or ()))
    if not cells:
        raise StoreError("there is nothing to export", hint="`shiftbench table` shows which results there are")
    with progress_bar("results", len(cells), show=not quiet, console=errors) as advance:
        rows = export_table(store, file, cells, top_k=top, images=image or (), advance=advance)
    errors.print(f"written: {file}, {rows:,} rows", style="dim", highlight=False)
