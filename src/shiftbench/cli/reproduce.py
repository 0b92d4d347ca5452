"""``shiftbench reproduce``: the papers' numbers, recomputed beside the published ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shiftbench.cli.options import TableOptions, grouped, workspace_option
from shiftbench.io.paths import Location


@grouped
def reproduce_command(
    paper: Annotated[list[str], typer.Argument(metavar="PAPER...", help="000, 001, 002, 003, 004 or all.")],
    testbed: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="The testbed's public table of results (robustness_top1s.csv), or its folder."
        ),
    ] = None,
    predictions: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder with released predictions: cifar10_and_10.1_predictions*.npz, predictions_top5_*.npz.",
        ),
    ] = None,
    workspace: Annotated[
        Location | None,
        workspace_option("Workspace with the networks' predictions: every printed number that they give is compared."),
    ] = None,
    models: Annotated[
        Path | None,
        typer.Option(
            "--models",
            "-m",
            help="With --workspace: table with the columns printed and model (and paper, if needed): a network as the "
            "paper prints it, and the workspace's name for it.",
        ),
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Exit with code 1 if a number differs.")] = False,
    *,
    shown: TableOptions,
) -> None:
    """Recompute a paper's headline numbers beside the published ones.

    Uses the tables built into the package, and public result files and released predictions if their folders are given.
    Every number is marked: it prints the same, rounding explains the difference, it lies in the printed interval, or it
    differs. Four kinds are counted apart: from predictions (yours in --workspace, or released ones), from public
    results, identities between printed numbers, and marks by a rule of ours. Numbers that can't be recomputed are
    listed with what they need.

    \b
    shiftbench reproduce 002
    shiftbench reproduce 000 003 --workspace W --models map.csv --check
    """
    from shiftbench.published.reproduce import reproduce
    from shiftbench.published.reproduce.base import DIFFERS
    from shiftbench.reports.reproduction import reproduction_table

    options = "".join(f" --{name} DIR" for name, at in (("testbed", testbed), ("predictions", predictions)) if at)
    command = f"shiftbench reproduce {' '.join(paper)}{options} -f md"
    found = reproduce(paper, testbed=testbed, predictions=predictions, workspace=workspace, models=models)
    shown.show(reproduction_table(found, command=command))
    if check and any(one.counts[DIFFERS] for one in found):
        raise typer.Exit(1)
