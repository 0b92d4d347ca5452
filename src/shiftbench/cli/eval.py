"""``shiftbench eval``."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shiftbench.cli.console import errors, output, print_json, stoppable
from shiftbench.cli.options import grouped
from shiftbench.cli.paths import workspace_option
from shiftbench.errors import listed

if TYPE_CHECKING:
    from shiftbench.api import Run
    from shiftbench.classifiers.base import Classifier
    from shiftbench.jobs.base import Executor
    from shiftbench.jobs.ray_executor import Resources


@dataclass(frozen=True)
class Where:
    """Where the work is done."""

    workers: Annotated[int | None, typer.Option("--workers", "-j", min=1, help="Default: one a core.")] = None
    engine: Annotated[
        str, typer.Option(help="threads, processes, or ray: all machines of a Ray cluster, or this one.")
    ] = "threads"
    address: Annotated[
        str | None, typer.Option(help="With ray: HOST:PORT of the cluster, or `auto`. Default: start Ray here.")
    ] = None
    cpus: Annotated[
        float | None, typer.Option(min=0, help="With ray: CPUs a worker takes, and threads. Default: 1.")
    ] = None
    gpus: Annotated[float | None, typer.Option(min=0, help="With ray: GPUs a worker takes; 0.5: two share one.")] = None
    memory: Annotated[float | None, typer.Option(min=0, help="With ray: GB of memory a worker takes.")] = None
    resources: Annotated[
        list[str] | None,
        typer.Option(
            help="With ray, in eval: what workers of some classifiers take instead, by the first pattern of names "
            "that fits: 'vit_*=gpus:1,cpus:4,memory:16'. Can be given several times."
        ),
    ] = None
    reader_cpus: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="With ray, in eval: CPUs of a reader on each machine, which decodes and shifts pictures for workers "
            "there, ahead of them. Pays where workers wait for a GPU. Default: 0, workers read for themselves.",
        ),
    ] = None

    def executor(self) -> Executor:
        from shiftbench.jobs.executors import local_executor

        name = _choice(self.engine, ("threads", "processes", "ray"), "--engine")
        if name == "ray":
            from shiftbench.jobs.ray_executor import RayExecutor

            return RayExecutor(
                self.address, workers=self.workers, resources=self._needs(), reader_cpus=self.reader_cpus or 0
            )
        for_ray = ("address", "cpus", "gpus", "memory", "resources", "reader_cpus")
        given = [f"--{own.replace('_', '-')}" for own in for_ray if getattr(self, own) not in (None, [])]
        if given:
            raise typer.BadParameter("is for --engine ray", param_hint=given[0])
        return local_executor(name, self.workers)

    def _needs(self) -> dict[str, Resources]:
        """By patterns of classifiers' names, ending with what all others take."""
        from shiftbench.jobs.ray_executor import Resources

        memory = None if self.memory is None else int(self.memory * 1e9)
        common = Resources(1.0 if self.cpus is None else self.cpus, self.gpus or 0.0, memory)
        needs: dict[str, Resources] = {}
        for text in self.resources or ():
            pattern, equals, amounts = text.rpartition("=")
            if not equals:
                raise typer.BadParameter(f"{text!r} is not PATTERN=cpus:4,gpus:1,memory:16", param_hint="--resources")
            needs.setdefault(pattern, Resources.parse(amounts, common))
        return {**needs, "*": needs.get("*", common)}

    def options(self) -> dict[str, Any]:
        """For work that has threads of its own: an executor only where another engine is asked for."""
        executor = self.executor()
        return {"workers": self.workers} if self.engine == "threads" else {"executor": executor}


@dataclass(frozen=True)
class Corrupted:
    """Which corruptions, and where the corrupted images come from."""

    severity: Annotated[str, typer.Option(help="Severities of corruptions: 3, 1-5 or 1,3,5.")] = "1-5"
    corruption: Annotated[str, typer.Option(help="Only these corruptions, with commas.")] = ""
    source: Annotated[
        str,
        typer.Option(help="Corrupted images: in-memory, jpeg-85 (in memory, then JPEG), on-disk (released files)."),
    ] = "in-memory"
    frost_textures: Annotated[
        str | None, typer.Option(help="Frost: a folder with the five original pictures, or `procedural`.")
    ] = None

    def options(self) -> dict[str, Any]:
        """In the words of ``evaluate``."""
        return {
            "severities": parse_severities(self.severity),
            "corruptions": tuple(name for name in self.corruption.split(",") if name),
            "source": _choice(self.source, ("in-memory", "jpeg-85", "on-disk"), "--source"),
            "frost_textures": self.frost_textures,
        }


@dataclass(frozen=True)
class Chosen:
    """Which images, and the seed of everything that is drawn."""

    per_class: Annotated[int | None, typer.Option(help="Only so many images of each class.")] = None
    sample: Annotated[int | None, typer.Option(help="Only a seeded sample of so many images.")] = None
    seed: Annotated[int, typer.Option(help="Seed of shifts and samples.")] = 0

    def options(self) -> dict[str, Any]:
        from shiftbench.settings.roles import Selection

        return {"seed": self.seed, "select": Selection(self.per_class, self.sample, self.seed)}


@dataclass(frozen=True)
class Told:
    """What is printed, while it runs and at the end."""

    level: Annotated[float, typer.Option(help="Level of the intervals.")] = 0.95
    json: Annotated[bool, typer.Option("--json", help="Print the scores as JSON.")] = False
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")] = False


WorkspaceFolder = Annotated[Path, workspace_option("Where results are kept: a folder, or s3://BUCKET/FOLDER.")]
DEFAULT_WORKSPACE = Path("shiftbench-workspace")


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
    suite: Annotated[str, typer.Option("--suite", "-s", help="One or more, with commas; see `list suites`.")] = "clean",
    data: Annotated[
        list[str] | None,
        typer.Option("--data", "-d", help="A folder, file or URL, or ROLE=FOLDER for suites of several data sets."),
    ] = None,
    workspace: WorkspaceFolder = DEFAULT_WORKSPACE,
    *,
    corrupted: Corrupted,
    labels: Annotated[
        str | None,
        typer.Option(
            help="Label space of data and classifiers: a name of `list spaces`, a file, or `folders`: the data's own."
        ),
    ] = None,
    defence: Annotated[
        str, typer.Option(help="Input defences before every classifier: clahe, denoise, ten-crop; with commas.")
    ] = "",
    chosen: Chosen,
    where: Where,
    shard: Annotated[
        str | None,
        typer.Option(help="JOB/JOBS, such as 3/8: only this job's blocks, for job arrays. The last job joins all."),
    ] = None,
    keep_scores: Annotated[
        bool, typer.Option("--keep-scores", help="Store all scores, not only the top five classes.")
    ] = False,
    trust: Annotated[
        bool, typer.Option("--trust", help="Allow model files that run code when they are loaded.")
    ] = False,
    told: Told,
) -> None:
    """Evaluate classifiers under the settings of a suite.

    Stopped at any moment, the same command continues where it was; what the workspace already holds is not
    run again.

    \b
    Examples:
      your pictures, as they are
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
      pictures of no known class, for `detect`
        shiftbench eval model.onnx --data unlabelled:textures/ \\
          --labels imagenet-1k
      pictures and results in a bucket (docs/workspace.md)
        shiftbench eval model.onnx --data s3://bucket/photos \\
          --workspace s3://bucket/results
      many machines: a Ray cluster; a SLURM array of eight jobs without one
        shiftbench eval timm:resnet50 --suite imagenet-c --data val/ \\
          --engine ray --address HOST:6379 --gpus 1
        shiftbench eval timm:resnet50 --suite imagenet-c --data val/ \\
          --shard $SLURM_ARRAY_TASK_ID/8
    """
    from shiftbench.api import IncompleteRunError, evaluate

    executor, failed = where.executor(), None
    with stoppable(), kept_warnings() as warned:
        try:
            run = evaluate(
                [_defended(spec, defence, labels, trust) for spec in classifiers],
                suite,
                parse_data(data or []),
                workspace,
                labels=labels,
                **corrupted.options(),
                **chosen.options(),
                executor=executor,
                shard=shard,
                keep_scores=keep_scores,
                trust=trust,
                progress=not told.quiet,
                console=errors,
            )
        except IncompleteRunError as error:
            run, failed = error.run, error
    report_run(run, warned, told.level, as_json=told.json)
    if failed is not None:
        raise failed


@contextmanager
def kept_warnings() -> Iterator[list[str]]:
    """The words of what was warned of inside, to be told once the progress bars are gone."""
    words: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield words
    words += [str(warning.message) for warning in caught if warning.category is UserWarning]


def _defended(spec: str, names: str, labels: str | None, trust: bool) -> Classifier | str:
    """The classifier behind the named defences; as it is named, where there are none."""
    if not names:
        return spec
    from shiftbench.classifiers.defences import with_defences
    from shiftbench.classifiers.loading import load_classifier
    from shiftbench.labels.catalogue import find_label_space

    return with_defences(load_classifier(spec, labels=find_label_space(labels), trust=trust, threads=1), names)


def report_run(run: Run, caught: Sequence[str], level: float, *, as_json: bool) -> None:
    """The table, then an honest account: skipped pictures, warnings, where everything is."""
    from shiftbench.api import SharedRun

    if as_json:
        print_json({**run.summary(level=level), "warnings": list(caught)})
    else:
        for report in run.overview(level=level):
            output.print(report)
            output.print()
    tell_problems(run)
    if isinstance(run, SharedRun):
        errors.print(run.word, highlight=False)
    for warning in caught:
        errors.print(f"[yellow]warning:[/] {warning}", highlight=False)
    for reason in dict.fromkeys(run.left_out.values()):
        names = [name for name, why in run.left_out.items() if why == reason]
        errors.print(f"left out: {listed(names, 8)}: {reason}", style="dim", markup=False, highlight=False)
    errors.print(f"predictions: {run.workspace.root}/predictions", style="dim", highlight=False)


def tell_problems(run: Run, most: int = 10) -> None:
    problems = run.problems()
    for action in ("skipped", "converted"):
        found = [problem for problem in problems if problem["action"] == action]
        if not found:
            continue
        errors.print(f"{len(found)} pictures were {action}:", style="yellow" if action == "skipped" else "dim")
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


def parse_severities(text: str) -> tuple[float, ...]:
    """
    >>> parse_severities("1-3"), parse_severities("1,2.5")
    ((1.0, 2.0, 3.0), (1.0, 2.5))
    """
    try:
        if "-" in text:
            low, high = (int(part) for part in text.split("-"))
            return tuple(float(value) for value in range(low, high + 1))
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not of the form 3, 1-5 or 1,3,5", param_hint="--severity") from None


def _choice(value: str, allowed: tuple[str, ...], option: str) -> str:
    if value not in allowed:
        raise typer.BadParameter(f"{value!r} is not one of {', '.join(allowed)}", param_hint=option)
    return value
