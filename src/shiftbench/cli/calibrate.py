"""``shiftbench calibrate``: calibration errors, from stored predictions."""

from __future__ import annotations

from typing import Annotated

import typer

from shiftbench.cli.options import DEFAULT_WORKSPACE, Level, ModelNames, TableOptions, WorkspacePath, grouped


@grouped
def calibrate_command(
    workspace: WorkspacePath = DEFAULT_WORKSPACE,
    setting: Annotated[
        str | None, typer.Option("--setting", "-s", help="Setting to score (default: the only one).")
    ] = None,
    fit: Annotated[
        str | None, typer.Option("--fit", help="Setting to fit the temperature in, on other images than those scored.")
    ] = None,
    split: Annotated[
        float | None,
        typer.Option("--split", help="Share of the images to fit on, not scored (default: 0.5 without --fit)."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the held-out images.")] = 0,
    diagram: Annotated[bool, typer.Option("--diagram", "-d", help="Also draw reliability diagrams.")] = False,
    classifier: ModelNames = None,
    level: Level = 0.95,
    *,
    shown: TableOptions,
) -> None:
    """Calibration before and after temperature scaling: is a confidence of 60 % right 60 % of the time?

    RMS calibration error (as published, and with its last bin), MAD, ECE, classwise ECE, Brier score and negative
    log-likelihood, of the model as it is and at the temperature with the least log-loss on held-out images. No image is
    both fitted on and scored; an image under another shift counts as the same image. Needs --keep-scores.

    \b
    Examples:
      one half of the images fits, the other is scored
        shiftbench calibrate -w W -s val
      other images fit
        shiftbench calibrate -w W -s imagenet-a --fit val --diagram
      a fifth of the clean images fits, the others are scored under fog
        shiftbench calibrate -w W -s imagenet-c.fog.3 --fit val --split 0.2
    """
    from shiftbench.api import Run

    run = Run.open(workspace, classifier or ())
    shown.show(run.calibration(setting, fit=fit, split=split, seed=seed, diagrams=diagram, level=level))
