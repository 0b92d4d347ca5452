"""``shiftbench eval``."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shiftbench.cli import complete
from shiftbench.cli.configuration import changes_since, with_configuration
from shiftbench.cli.console import errors, output, print_json, stoppable, titled
from shiftbench.cli.options import (
    DEFAULT_WORKSPACE,
    AllowOutside,
    CorruptionOptions,
    DataSources,
    ExecutorOptions,
    Labels,
    ModelOptions,
    OutputOptions,
    SubsetOptions,
    SuiteNames,
    WorkspacePath,
    grouped,
    parse_data,
)
from shiftbench.errors import ResultWarning, listed

if TYPE_CHECKING:
    from shiftbench.api import Run
    from shiftbench.runs.dry_run import DryRun

#: Settings that a dry run names.
_LISTED = 10


@grouped
def evaluate_command(
    context: typer.Context,
    classifiers: Annotated[
        list[str] | None,
        typer.Argument(
            help="timm:NAME, torchvision:NAME, hf:FOLDER, model.onnx, model.pt2, model.py:factory, predictions.csv, "
            "demo:efficientnet-lite0 ...",
            show_default=False,
            autocompletion=complete.models,
        ),
    ] = None,
    suite: SuiteNames = "clean",
    data: DataSources = None,
    workspace: WorkspacePath = DEFAULT_WORKSPACE,
    *,
    labels: Labels = None,
    allow_outside: AllowOutside = False,
    models: ModelOptions,
    defence: Annotated[
        str, typer.Option(help="Input defences before every model: clahe, denoise, ten-crop; separated by commas.")
    ] = "",
    corruptions: CorruptionOptions,
    subset: SubsetOptions,
    executor: ExecutorOptions,
    shard: Annotated[
        str | None,
        typer.Option(
            help="JOB/JOBS, such as 3/8: compute only this job's blocks, for job arrays; the last job joins all."
        ),
    ] = None,
    rebalance: Annotated[
        bool,
        typer.Option("--rebalance", help="With --shard: then also compute blocks that other jobs have not begun."),
    ] = False,
    detach: Annotated[
        bool, typer.Option("--detach", help="Run without this terminal; see `shiftbench jobs list | attach | cancel`.")
    ] = False,
    wait: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Seconds to wait for blocks that another run computes before computing them, too (default: no limit).",
        ),
    ] = None,
    keep_scores: Annotated[
        bool, typer.Option("--keep-scores", help="Store all scores, not only the top five classes.")
    ] = False,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="Exit with code 3 if there are warnings: permuted labels, chance level, assumed preprocessing, "
            "skipped images. Results are printed and stored all the same.",
        ),
    ] = False,
    config: Annotated[
        Path | None,
        typer.Option(
            help="Take what is not given here from a file: TOML with the arguments of `evaluate`, or the record of an "
            "earlier run, WORKSPACE/runs/ID.json, which is repeated exactly."
        ),
    ] = None,
    plan: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Only print settings, images, forward passes and the estimated time; nothing is written."
        ),
    ] = False,
    shown: OutputOptions,
) -> None:
    """Evaluate models under the settings of a suite.

    Interrupted at any moment, the same command resumes; results that the workspace already holds are not computed
    again.

    \b
    Examples:
      your images, as they are
        shiftbench eval model.onnx --data photos/
      your own network and what it was trained with (docs/models.md)
        shiftbench eval model.onnx --data photos/ \\
          --preprocess size=32,mean=0.49,0.48,0.45,std=0.25
      ImageNet-C, made in memory
        shiftbench eval timm:resnet50 model.onnx --suite imagenet-c --data val/
      an estimate of it from two forward passes per image (docs/designs.md)
        shiftbench eval model.onnx --suite imagenet-c --data val/ --design one-pass
      ImageNet-C, the released files
        shiftbench eval model.onnx --suite imagenet-c --source on-disk --data ImageNet-C/
      DeepFashion Remixed; a table of your own, split by factors (`data factors`)
        shiftbench eval model.onnx --suite deepfashion-remixed \\
          --data DeepFashion2/ --labels deepfashion2-13
        shiftbench eval model.onnx --suite factors:shops.toml \\
          --data shops.csv --labels folders
      images of no known class, for `detect`
        shiftbench eval model.onnx --data unlabelled:textures/ \\
          --labels imagenet-1k
      images and results in a bucket (docs/workspace.md)
        shiftbench eval model.onnx --data s3://bucket/photos \\
          --workspace s3://bucket/results
      many machines: a Ray cluster; a SLURM array of eight jobs without one
        shiftbench eval timm:resnet50 --suite imagenet-c --data val/ \\
          --executor ray --address HOST:6379 --gpus 1
        shiftbench eval timm:resnet50 --suite imagenet-c --data val/ \\
          --shard $SLURM_ARRAY_TASK_ID/8
      without this terminal (`shiftbench jobs attach`); a job array written for you
        shiftbench eval model.onnx --suite imagenet-c --data val/ --detach
        shiftbench launch slurm --jobs 8 -- model.onnx --data val/
      an earlier run again, with another model
        shiftbench eval new.onnx --config shiftbench-workspace/runs/ID.json
    """
    if detach:
        start_detached(as_json=shown.json)
        return
    from shiftbench.api import IncompleteRunError, StrictRunError, dry_run, evaluate

    arguments, record = with_configuration(
        config,
        context,
        {
            "classifiers": classifiers,
            "suite": suite,
            "data": parse_data(data or []),
            "workspace": workspace,
            "labels": labels,
            "allow_outside": allow_outside,
            **corruptions.options(),
            **subset.options(),
            "defences": defence,
            **models.options(),
            "executor": executor.executor(),
            "shard": shard,
            "rebalance": rebalance,
            "wait": wait,
            "keep_scores": keep_scores,
            "strict": strict,
        },
    )
    if not arguments["classifiers"]:
        raise typer.BadParameter("name at least one model", param_hint="CLASSIFIERS")
    if plan:
        print_plan(dry_run(**arguments), as_json=shown.json)
        return
    failed: IncompleteRunError | StrictRunError | None = None
    with stoppable(), kept_warnings() as warned:
        try:
            run = evaluate(**arguments, progress=not shown.quiet, console=errors)
        except (IncompleteRunError, StrictRunError) as error:
            run, failed = error.run, error
    if record is not None:
        warned += changes_since(record, run.results)
    if isinstance(failed, StrictRunError):
        warned += [one for one in failed.warnings if one.code != "assumed-preprocessing"]  # loading warned of it
    report_run(run, warned, shown.level, as_json=shown.json)
    if isinstance(failed, StrictRunError):
        errors.print(titled("error:", failed.message))
        raise typer.Exit(3)
    if failed is not None:
        raise failed


def start_detached(*, as_json: bool) -> None:
    """Start the present command again, without its terminal."""
    from shiftbench.cli.jobs import describe
    from shiftbench.jobs.detached import start_job
    from shiftbench.store.run_records import command_line

    job = start_job([word for word in command_line.get()[1:] if word != "--detach"])
    if as_json:
        print_json(describe(job))
    else:
        output.print(f"{job.id} is running; show its output: shiftbench jobs attach {job.id}")


def print_plan(plan: DryRun, *, as_json: bool) -> None:
    if as_json:
        print_json(plan.as_dict())
        return
    for one in plan.settings[:_LISTED]:
        output.print(f"{one.name}: {one.images:,} images" + (f", {one.done} done" if one.done else ""))
    if len(plan.settings) > _LISTED:
        output.print(f"... and {len(plan.settings) - _LISTED} more settings (--json lists all)", style="dim")
    output.print(f"\n{plan}")


@contextmanager
def kept_warnings() -> Iterator[list[Warning]]:
    """Collects our warnings issued inside, once each, to be printed when the progress bars are gone."""
    kept: list[Warning] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield kept
    ours = [one.message for one in caught if one.category in (UserWarning, ResultWarning)]
    kept += {str(one): one for one in ours if isinstance(one, Warning)}.values()


def warning_data(found: Sequence[Warning]) -> list[dict[str, str]]:
    """Warnings as JSON-able data; those of other packages have no code."""
    return [{"code": getattr(one, "code", "other"), "message": str(one)} for one in found]


def print_warnings(found: Sequence[Warning]) -> None:
    for one in found:
        note = isinstance(one, ResultWarning) and one.is_note
        errors.print(titled("note:", one, "bold") if note else titled("warning:", one, "yellow"))


def report_run(run: Run, caught: Sequence[Warning], level: float, *, as_json: bool) -> None:
    """The tables, skipped images, warnings, settings left out; last the summary and what to run next."""
    from shiftbench.api import SharedRun
    from shiftbench.reports.summary import summarise
    from shiftbench.store.run_records import command_line

    summary = summarise(run, level=level, command=command_line.get())
    if as_json:
        print_json({**run.summary(level=level), "summary": summary.as_dict(), "warnings": warning_data(caught)})
    else:
        for report in run.overview(level=level):
            output.print(report)
            output.print()
    print_problems(run)
    if isinstance(run, SharedRun):
        errors.print(run.word, highlight=False)
    # Skipped images are listed above.
    print_warnings([one for one in caught if getattr(one, "code", None) != "skipped-images"])
    for reason in dict.fromkeys(run.left_out.values()):
        names = [name for name, why in run.left_out.items() if why == reason]
        errors.print(f"left out: {listed(names, 8)}: {reason}", style="dim", markup=False, highlight=False)
    errors.print(f"predictions: {run.workspace.root}/predictions", style="dim", highlight=False)
    if not as_json:
        output.print(summary.to_text(min(output.width, 80)), markup=False, highlight=False, soft_wrap=True)


def print_problems(run: Run, most: int = 10) -> None:
    problems = run.problems()
    for action in ("skipped", "converted"):
        found = [problem for problem in problems if problem["action"] == action]
        if not found:
            continue
        errors.print(f"{len(found)} images were {action}:", style="yellow" if action == "skipped" else "dim")
        for problem in found[:most]:
            errors.print(f"  {problem['id']}: {problem['why']}", style="dim", markup=False, highlight=False)
        if len(found) > most:
            errors.print(f"  ... and {len(found) - most} more (--json lists all)", style="dim")
