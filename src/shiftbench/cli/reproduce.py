"""``shiftbench reproduce``: the papers' numbers, recomputed beside the published ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shiftbench.cli.options import TableOptions, grouped


@grouped
def reproduce_command(
    paper: Annotated[list[str], typer.Argument(metavar="PAPER...", help="000, 001, 002, 003, 004 or all.")],
    testbed: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder with the testbed's public result files: one results*.csv, one models*.csv."
        ),
    ] = None,
    predictions: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder with released predictions: cifar10_and_10.1_predictions*.npz, predictions_top5_*.npz.",
        ),
    ] = None,
    *,
    shown: TableOptions,
) -> None:
    """Recompute a paper's headline numbers beside the published ones.

    Uses the tables built into the package, and public result files and released predictions if their folders are given.
    Every number is marked: it prints the same, rounding explains the difference, it lies in the printed interval, or it
    differs. Numbers that can't be recomputed are listed with what they need.
    """
    from shiftbench.published.reproduce import reproduce
    from shiftbench.reports.reproduction import reproduction_table

    options = "".join(f" --{name} DIR" for name, at in (("testbed", testbed), ("predictions", predictions)) if at)
    command = f"shiftbench reproduce {' '.join(paper)}{options} -f md"
    found = reproduce(paper, testbed=testbed, predictions=predictions)
    shown.show(reproduction_table(found, command=command))
