"""``shiftbench table``, ``compare`` and ``images-needed``: numbers from predictions that are already there."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shiftbench.cli.console import errors, output, print_json
from shiftbench.cli.options import workspace_option

if TYPE_CHECKING:
    from shiftbench.reports.table import Table

Workspace = Annotated[Path, workspace_option("The folder that `eval` wrote to.")]
Classifiers = Annotated[list[str] | None, typer.Option("--classifier", "-c", help="Only these classifiers.")]
Level = Annotated[float, typer.Option(help="Level of the intervals.")]
Format = Annotated[str, typer.Option("--format", "-f", help="text, md, csv, tex or json.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="A file: .md, .csv, .tex, .json or .txt.")]
_DEFAULT = Path("shiftbench-workspace")


def table_command(
    workspace: Workspace = _DEFAULT,
    metric: Annotated[
        str | None, typer.Option("--metric", "-m", help="One or more, with commas; see `list metrics`.")
    ] = None,
    classifier: Classifiers = None,
    setting: Annotated[list[str] | None, typer.Option("--setting", "-s", help="Only these settings.")] = None,
    mce: Annotated[
        bool, typer.Option("--mce", help="Corruption errors: mCE, relative mCE, and the CE of every type.")
    ] = False,
    baseline: Annotated[
        str | None, typer.Option(help="With --mce: divide by this classifier instead of the published AlexNet.")
    ] = None,
    level: Level = 0.95,
    format: Format = "text",
    file: Output = None,
    json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
) -> None:
    """Scores of a workspace, with intervals.

    No model is run: every number is computed from stored predictions.
    """
    from shiftbench.api import Run

    run = Run.open(workspace, classifier or (), setting or ())
    table = run.corruption_table(baseline=baseline, level=level) if mce else run.table(metric, level=level)
    show_report(table, "json" if json else format, file)


def compare_command(
    workspace: Workspace = _DEFAULT,
    setting: Annotated[str | None, typer.Option("--setting", "-s", help="Default: the first one.")] = None,
    classifier: Classifiers = None,
    level: Level = 0.95,
    format: Format = "text",
    file: Output = None,
    json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
) -> None:
    """Classifiers against each other, image by image.

    Exact McNemar test on the same images, corrected by Holm for the number of pairs, and the paired bootstrap
    interval of the difference.
    """
    from shiftbench.api import Run

    run = Run.open(workspace, classifier or (), [setting] if setting else ())
    show_report(run.compare(setting, level=level), "json" if json else format, file)


def images_needed_command(
    half_width: Annotated[float, typer.Argument(help="Wished half-width of the interval, in points: 1 is ±1 %.")],
    accuracy: Annotated[float, typer.Option(help="Expected accuracy in percent; 50 is the worst case.")] = 50.0,
    level: Level = 0.95,
    json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """How many images give an interval as narrow as wished."""
    from shiftbench.metrics.intervals import images_needed

    n = images_needed(half_width / 100, accuracy=accuracy / 100, level=level)
    if json:
        print_json({"images": n, "half_width": half_width, "accuracy": accuracy, "level": level})
    else:
        output.print(f"{n:,} images for {accuracy:g} % ± {half_width:g} points at level {level:g}")


def show_report(table: Table, format: str, file: Path | None) -> None:
    """Print a table in a format, or write it to a file."""
    if file is not None:
        errors.print(f"written: {table.write(file)}", style="dim", highlight=False, soft_wrap=True)
        return
    writers = {"md": table.to_markdown, "csv": table.to_csv, "tex": table.to_latex, "json": table.to_json}
    if format == "text":
        output.print(table)
    elif format in writers:
        sys.stdout.write(writers[format]().rstrip("\n") + "\n")
    else:
        raise typer.BadParameter(f"{format!r} is not one of text, {', '.join(writers)}", param_hint="--format")
