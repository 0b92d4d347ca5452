"""``shiftbench experiment``: train a grid of recipes, evaluate it, study it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shiftbench.cli.console import errors, output, print_json, stoppable
from shiftbench.cli.eval import kept_warnings, parse_data
from shiftbench.cli.extras import needing
from shiftbench.cli.options import ExecutorOptions, grouped


@grouped
@needing("hardening", "an experiment")
def experiment_command(
    name: Annotated[str, typer.Argument(help="icons-style, icons-subtype, cifar-corruptions, size or self-attention.")],
    scale: Annotated[
        str, typer.Option(help="tiny (does it run?), small (a processor, minutes), paper (as published).")
    ] = "small",
    seeds: Annotated[int | None, typer.Option(min=1, help="Runs of every variant. Default: as the scale says.")] = None,
    data: Annotated[
        list[str] | None, typer.Option("--data", "-d", help="A folder, or ROLE=FOLDER: icons=icons/ for the icons.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where the runs are kept. Default: experiments/NAME-SCALE.")
    ] = None,
    workspace: Annotated[
        Path | None, typer.Option("--workspace", "-w", help="Where predictions are kept. Default: OUT/workspace.")
    ] = None,
    change: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a key of every recipe.")
    ] = None,
    *,
    where: ExecutorOptions,
    level: Annotated[float, typer.Option(help="Level of the intervals.")] = 0.95,
    markdown: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the tables as Markdown, too.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bars.")] = False,
) -> None:
    """Train the variants of an experiment, evaluate each on its suite, and say what they are worth.

    It ends in tables: accuracy without and under shift, effective and relative robustness of every intervention, with
    intervals over images and the spread over seeds; verdicts on the papers' hypotheses. Stopped at any moment, the
    same command continues. As many runs are trained at a time as there are workers, a core each, in processes or on
    the machines of a Ray cluster; the numbers are the same.

    \b
    Examples:
      shiftbench experiment cifar-corruptions
      shiftbench experiment icons-style --data icons=icons/ --seeds 3
      shiftbench experiment size --set train.epochs=30 --markdown size.md
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
            level=level,
            progress=not quiet,
            console=errors,
            command=_command(name, scale, seeds, data, change),
        )
    for warning in dict.fromkeys(warned):
        errors.print(f"[yellow]warning:[/] {warning}", highlight=False)
    report = experiment_table(study)
    if markdown is not None:
        errors.print(f"written: {report.write(markdown)}", style="dim", highlight=False, soft_wrap=True)
    if json:
        print_json(report.as_data())
    else:
        output.print(report)
    errors.print(f"runs: {study.runs[0].folder.parent}", style="dim", highlight=False, soft_wrap=True)


def _command(name: str, scale: str, seeds: int | None, data: list[str] | None, change: list[str] | None) -> str:
    """What gives these tables again, without the places of somebody's disk."""
    words = ["shiftbench experiment", name, f"--scale {scale}"]
    words += [f"--seeds {seeds}"] if seeds is not None else []
    words += [f"--data {one.partition('=')[0]}=FOLDER" if "=" in one else "--data FOLDER" for one in data or []]
    words += [f"--set {one}" for one in change or []]
    return " ".join(words)
