"""``shiftbench experiment``: train a grid of recipes, evaluate it, study it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shiftbench.cli.console import errors, output, print_json, stoppable
from shiftbench.cli.eval import kept_warnings, print_warnings
from shiftbench.cli.extras import needing
from shiftbench.cli.options import ExecutorOptions, OutputOptions, grouped, parse_data


@grouped
@needing("hardening", "an experiment")
def experiment_command(
    name: Annotated[
        str,
        typer.Argument(
            help="cifar-corruptions, enhancements, icons-style, icons-subtype, icons-version, many-faces, "
            "natural-adversarial, self-attention, size, subtypes, or a TOML file."
        ),
    ],
    scale: Annotated[
        str,
        typer.Option(help="tiny (a smoke test), small (minutes on a CPU) or paper (as published); some have more."),
    ] = "small",
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Training runs per variant (default: as in the scale).")
    ] = None,
    data: Annotated[
        list[str] | None, typer.Option("--data", "-d", help="Dataset, as FOLDER or ROLE=FOLDER: icons=icons/.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder of the runs (default: experiments/NAME-SCALE).")
    ] = None,
    workspace: Annotated[
        Path | None, typer.Option("--workspace", "-w", help="Workspace of the predictions (default: OUT/workspace).")
    ] = None,
    change: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a key of every recipe (repeatable).")
    ] = None,
    *,
    where: ExecutorOptions,
    shown: OutputOptions,
    markdown: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write the tables as Markdown.")] = None,
) -> None:
    """Train the variants of an experiment, evaluate each on its suite, and compare them.

    Prints tables: accuracy without and under shift, effective and relative robustness of every intervention, with
    confidence intervals over images and the spread over seeds, and verdicts on the papers' hypotheses. After an
    interruption, rerun the same command: it resumes. Each worker trains one run on one core, in processes or on a Ray
    cluster; the numbers do not depend on the workers.

    \b
    Examples:
      shiftbench experiment cifar-corruptions
      shiftbench experiment icons-style --data icons=icons/ --seeds 3
      shiftbench experiment size --set train.epochs=30 --markdown size.md
      shiftbench experiment many-faces --scale paper-c --data imagenet-train=DIR --data imagenet-val=DIR
      shiftbench experiment my.toml --scale small
    """
    from shiftbench.hardening.experiments.report import experiment_table
    from shiftbench.hardening.experiments.run import run_experiment

    with stoppable(), kept_warnings() as warned:
        study = run_experiment(
            name,
            scale=scale,
            seeds=seeds,
            data=parse_data(data or []),
            out=out,
            workspace=workspace,
            changes=change or [],
            executor=where.executor(),
            level=shown.level,
            progress=not shown.quiet,
            console=errors,
            command=_command(name, scale, seeds, data, change),
        )
    print_warnings(warned)
    report = experiment_table(study)
    if markdown is not None:
        errors.print(f"written: {report.write(markdown)}", style="dim", highlight=False, soft_wrap=True)
    if shown.json:
        print_json(report.as_data())
    else:
        output.print(report)
    errors.print(f"runs: {study.runs[0].folder.parent}", style="dim", highlight=False, soft_wrap=True)


def _command(name: str, scale: str, seeds: int | None, data: list[str] | None, change: list[str] | None) -> str:
    """The command that reproduces these tables, without local paths."""
    words = ["shiftbench experiment", name, f"--scale {scale}"]
    words += [f"--seeds {seeds}"] if seeds is not None else []
    words += [f"--data {one.partition('=')[0]}=FOLDER" if "=" in one else "--data FOLDER" for one in data or []]
    words += [f"--set {one}" for one in change or []]
    return " ".join(words)
