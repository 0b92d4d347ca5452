"""``shiftbench reproduce``: the papers' numbers, recomputed beside the published ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shiftbench.cli.table import Format, Output, show_report


def reproduce_command(
    paper: Annotated[list[str], typer.Argument(metavar="PAPER...", help="000, 001, 002, 003, 004 or all.")],
    testbed: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="A folder with the testbed's public result files: one results*.csv, one models*.csv."
        ),
    ] = None,
    predictions: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="A folder with released predictions: cifar10_and_10.1_predictions*.npz, predictions_top5_*.npz.",
        ),
    ] = None,
    format: Format = "text",
    file: Output = None,
    json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
) -> None:
    """A paper's headline numbers, recomputed beside the published ones.

    From the tables built into the package, and from public result files and released predictions where a folder
    with them is given. Every number is marked: it prints the same, rounding explains the difference, it lies in the
    printed interval, or it differs. What can't be recomputed is listed with what it would take.
    """
    from shiftbench.published.reproduce import reproduce
    from shiftbench.reports.reproduction import reproduction_table

    options = "".join(f" --{name} DIR" for name, at in (("testbed", testbed), ("predictions", predictions)) if at)
    command = f"shiftbench reproduce {' '.join(paper)}{options} -f md"
    found = reproduce(paper, testbed=testbed, predictions=predictions)
    show_report(reproduction_table(found, command=command), "json" if json else format, file)
