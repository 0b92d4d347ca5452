"""``shiftbench eval``."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shiftbench.cli.console import errors, output, print_json, stoppable
from shiftbench.cli.options import (
    DEFAULT_WORKSPACE,
    CorruptionOptions,
    ExecutorOptions,
    Labels,
    ModelOptions,
    OutputOptions,
    SubsetOptions,
    WorkspacePath,
    grouped,
)
from shiftbench.errors import listed

if TYPE_CHECKING:
    from shiftbench.api import Run
    from shiftbench.classifiers.base import Classifier


@grouped
def evaluate_command(
    classifiers: Annotated[
        list[str],
        typer.Argument(
            help="timm:NAME, torchvision:NAME, hf:FOLDER, model.onnx, model.pt2, model.py:factory, predictions.csv, "
            "demo:efficientnet-lite0 ...",
            show_default=False,
        ),
    ],
    suite: Annotated[
        str, typer.Option("--suite", "-s", help="One or more suites, separated by commas; see `list suites`.")
    ] = "clean",
    data: Annotated[
        list[str] | None,
        typer.Option("--data", "-d", help="A folder, file or URL; ROLE=FOLDER for suites of several datasets."),
    ] = None,
    workspace: WorkspacePath = DEFAULT_WORKSPACE,
    *,
    labels: Labels = None,
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
    keep_scores: Annotated[
        bool, typer.Option("--keep-scores", help="Store all scores, not only the top five classes.")
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
      ImageNet-C, made in memory
        shiftbench eval timm:resnet50 model.onnx --suite imagenet-c --data val/
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
    """
    from shiftbench.api import IncompleteRunError, evaluate

    chosen, failed = executor.executor(), None
    loading: dict[str, Any] = {"trust": models.trust, "device": models.device, "batch_size": models.batch_size}
    with stoppable(), kept_warnings() as warned:
        try:
            run = evaluate(
                [_defended(spec, defence, labels, threads=models.threads or 1, **loading) for spec in classifiers],
                suite,
                parse_data(data or []),
                workspace,
                labels=labels,
                **corruptions.options(),
                **subset.options(),
                **loading,
                threads=models.threads,
                executor=chosen,
                shard=shard,
                keep_scores=keep_scores,
                progress=not shown.quiet,
                console=errors,
            )
        except IncompleteRunError as error:
            run, failed = error.run, error
    report_run(run, warned, shown.level, as_json=shown.json)
    if failed is not None:
        raise failed


@contextmanager
def kept_warnings() -> Iterator[list[str]]:
    """Collects the warnings issued inside, to be printed once the progress bars are gone."""
    words: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield words
    words += [str(warning.message) for warning in caught if warning.category is UserWarning]


def _defended(spec: str, names: str, labels: str | None, **loading: Any) -> Classifier | str:
    """The model behind the named defences; without defences, its name."""
    if not names:
        return spec
    from shiftbench.classifiers.defences import with_defences
    from shiftbench.classifiers.loading import load_classifier
    from shiftbench.labels.catalogue import find_label_space

    return with_defences(load_classifier(spec, labels=find_label_space(labels), **loading), names)


def report_run(run: Run, caught: Sequence[str], level: float, *, as_json: bool) -> None:
    """The tables, then skipped images, warnings, settings left out, and where everything is stored."""
    from shiftbench.api import SharedRun

    if as_json:
        print_json({**run.summary(level=level), "warnings": list(caught)})
    else:
        for report in run.overview(level=level):
            output.print(report)
            output.print()
    print_problems(run)
    if isinstance(run, SharedRun):
        errors.print(run.word, highlight=False)
    for warning in caught:
        errors.print(f"[yellow]warning:[/] {warning}", highlight=False)
    for reason in dict.fromkeys(run.left_out.values()):
        names = [name for name, why in run.left_out.items() if why == reason]
        errors.print(f"left out: {listed(names, 8)}: {reason}", style="dim", markup=False, highlight=False)
    errors.print(f"predictions: {run.workspace.root}/predictions", style="dim", highlight=False)


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


def parse_data(values: Sequence[str]) -> str | dict[str, str] | None:
    """``FOLDER`` or several ``ROLE=FOLDER``."""
    if not values:
        return None
    if len(values) == 1 and ("=" not in values[0] or Path(values[0]).exists()):
        return values[0]
    pairs = dict(value.split("=", 1) for value in values if "=" in value)
    if len(pairs) != len(values):
        raise typer.BadParameter("several --data need the form ROLE=FOLDER, each role once")
    return pairs
