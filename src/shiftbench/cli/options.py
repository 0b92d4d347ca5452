"""Options that several commands share.

Single options are annotated types (``json: Json = False``). Options that belong together are a dataclass whose fields
are the options; a command decorated with ``grouped`` takes one as a parameter (``output: OutputOptions``).
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from shiftbench.cli import complete
from shiftbench.cli.complete import DEFAULT_WORKSPACE as DEFAULT_WORKSPACE
from shiftbench.cli.console import errors
from shiftbench.cli.console import output as stdout
from shiftbench.io.paths import Location, place

if TYPE_CHECKING:
    from shiftbench.jobs.base import Executor
    from shiftbench.jobs.ray_executor import Resources
    from shiftbench.reports.table import Table


def path_or_url(help: str) -> object:
    """An argument that is a path, or a URL in an object store."""
    return typer.Argument(parser=place, metavar="PATH|URL", help=help)


def workspace_option(help: str) -> object:
    return typer.Option("--workspace", "-w", parser=place, metavar="PATH|URL", help=help)


WorkspacePath = Annotated[
    Location, workspace_option("The workspace that `eval` wrote to: a folder, or s3://BUCKET/FOLDER.")
]
ModelNames = Annotated[
    list[str] | None,
    typer.Option(
        "--classifier", "-c", autocompletion=complete.workspace_models, help="Only these models (repeatable)."
    ),
]
SettingNames = Annotated[
    list[str] | None,
    typer.Option(
        "--setting", "-s", autocompletion=complete.workspace_settings, help="Only these settings (repeatable)."
    ),
]
SuiteNames = Annotated[
    str,
    typer.Option(
        *("--suite", "-s"),
        autocompletion=complete.suites,
        help="One or more suites, separated by commas; see `list suites`.",
    ),
]
DataSources = Annotated[
    list[str] | None,
    typer.Option("--data", "-d", help="A folder, file or URL; ROLE=FOLDER for suites of several datasets."),
]
Labels = Annotated[
    str | None,
    typer.Option(
        autocompletion=complete.label_spaces,
        help="Classes of data and models: a name from `list spaces`, a file (classes in order, or a mapping to those "
        "of the model: `data labels`), or `folders` for the dataset's own.",
    ),
]
AllowOutside = Annotated[
    bool, typer.Option("--allow-outside", help="Allow manifests (.csv, .jsonl) to name images outside their folder.")
]
Trust = Annotated[bool, typer.Option("--trust", help="Allow model files that run code when they are loaded.")]
Preprocess = Annotated[
    str | None,
    typer.Option(
        metavar="FILE|KEY=VALUE,...",
        help="What the model was trained with, such as size=32,mean=0.5,std=0.25 (docs/models.md).",
    ),
]
Level = Annotated[float, typer.Option(help="Confidence level.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Do not show progress bars.")]


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """A command for Typer: every parameter annotated with a dataclass becomes that dataclass's options.

    The options stand in the order of the signature, those of a group together. Two groups of one command can't
    have an option of the same name.
    """
    hints = get_type_hints(command, include_extras=True)
    groups = {name: hint for name, hint in hints.items() if is_dataclass(hint) and isinstance(hint, type)}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        parameters += _options(groups[name]) if name in groups else [parameter.replace(annotation=hints[name])]

    @functools.wraps(command)
    def flat(**values: Any) -> None:
        made = {
            name: group(**{field.name: values.pop(field.name) for field in fields(group)})
            for name, group in groups.items()
        }
        command(**made, **values)

    # Typer reads the signature, and would read the wrapped one through __wrapped__.
    del flat.__dict__["__wrapped__"]
    keyword_only = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
    flat.__dict__["__signature__"] = inspect.Signature(keyword_only)
    flat.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return flat


def _options(group: type) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in fields(group)
    ]


@dataclass(frozen=True)
class OutputOptions:
    """Progress and output format."""

    level: Level = 0.95
    json: Json = False
    quiet: Quiet = False


@dataclass(frozen=True)
class TableOptions:
    """How a table is printed, or where it is written."""

    format: Annotated[str, typer.Option("--format", "-f", help="text, md, csv, tex or json.")] = "text"
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write a file: .md, .csv, .tex, .json or .txt.")
    ] = None
    json: Annotated[bool, typer.Option("--json", help="Same as --format json.")] = False

    def show(self, table: Table, workspace: Location | None = None) -> None:
        """Print or write a table; the models of a workspace get their ids and marks."""
        if workspace is not None:
            from shiftbench.api import Run

            table = Run.open(workspace).with_models(table)
        if self.output is not None:
            errors.print(f"written: {table.write(self.output)}", style="dim", highlight=False, soft_wrap=True)
            return
        format = "json" if self.json else self.format
        writers = {
            "md": table.to_markdown,
            "csv": table.to_csv,
            "tex": table.to_latex,
            "json": table.to_json,
        }
        if format == "text":
            stdout.print(table)
        else:
            sys.stdout.write(writers[choice(format, ("text", *writers), "--format")]().rstrip("\n") + "\n")


@dataclass(frozen=True)
class ModelOptions:
    """How models are loaded and run."""

    preprocess: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE|KEY=VALUE,...",
            help="What models were trained with, such as size=32,mean=0.5,std=0.25,colour=bgr, or a TOML or JSON file "
            "(docs/models.md). Once for all models, or once per model.",
        ),
    ] = None
    name: Annotated[list[str] | None, typer.Option(help="Name in tables and reports; once per model.")] = None
    device: Annotated[str, typer.Option(help="Where models run: auto, cpu, cuda, cuda:1, mps.")] = "auto"
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Images per forward pass (default: chosen by the model's loader).")
    ] = None
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="CPU threads per model and worker (default: 1; workers run side by side)."),
    ] = None
    trust: Trust = False

    def options(self) -> dict[str, Any]:
        """As keyword arguments of ``evaluate``."""
        names = ("name", "device", "batch_size", "threads", "trust")
        return {"preprocessing": self.preprocess, **{name: getattr(self, name) for name in names}}


@dataclass(frozen=True)
class SubsetOptions:
    """Which images are evaluated, and the seed of everything random."""

    per_class: Annotated[int | None, typer.Option(help="Evaluate at most N images per class.")] = None
    sample: Annotated[int | None, typer.Option(help="Evaluate a random subset of N images (see --seed).")] = None
    seed: Annotated[int, typer.Option(help="Seed of shifts, subsets and designs.")] = 0
    design: Annotated[
        str,
        typer.Option(
            help="full: every image under every shift; one-pass: every image clean and under one of the shifts, "
            "which estimates the full grid (docs/designs.md)."
        ),
    ] = "full"
    passes: Annotated[int, typer.Option(help="With one-pass: evaluate each image under so many of the shifts.")] = 1
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="TIME|PASSES",
            help="With one-pass: evaluate as many images as a time (60s, 5m) or a number of forward passes per model "
            "(5000) allows.",
        ),
    ] = None
    width: Annotated[
        float | None,
        typer.Option(
            metavar="POINTS",
            help="With one-pass: evaluate as many images as it takes to know mean accuracy to ± so many points, "
            "within the budget; a pilot measures speed and variance.",
        ),
    ] = None

    def options(self) -> dict[str, Any]:
        from shiftbench.settings.roles import Selection

        selection = Selection(self.per_class, self.sample, self.seed)
        names = ("seed", "design", "passes", "budget", "width")
        return {"select": selection, **{name: getattr(self, name) for name in names}}


@dataclass(frozen=True)
class CorruptionOptions:
    """Which corruptions, and where the corrupted images come from."""

    severity: Annotated[str, typer.Option(help="Severities of corruptions: 3, 1-5 or 1,3,5.")] = "1-5"
    corruption: Annotated[
        str, typer.Option(autocompletion=complete.corruptions, help="Only these corruptions, separated by commas.")
    ] = ""
    source: Annotated[
        str,
        typer.Option(
            help="Corrupted images: in-memory, jpeg-85 (in memory, then JPEG), or on-disk (the released files)."
        ),
    ] = "in-memory"
    frost_textures: Annotated[
        str | None, typer.Option(help="Textures for frost: a folder with the five original images, or `procedural`.")
    ] = None

    def options(self) -> dict[str, Any]:
        """As keyword arguments of ``evaluate``."""
        return {
            "severities": parse_severities(self.severity),
            "corruptions": tuple(name for name in self.corruption.split(",") if name),
            "source": choice(self.source, ("in-memory", "jpeg-85", "on-disk"), "--source"),
            "frost_textures": self.frost_textures,
        }


@dataclass(frozen=True)
class ExecutorOptions:
    """Where the work runs."""

    workers: Annotated[
        int | None, typer.Option("--workers", "-j", min=1, help="Number of workers (default: one per core).")
    ] = None
    executor_name: Annotated[
        str,
        typer.Option("--executor", help="threads, processes, or ray (all machines of a Ray cluster, or this one)."),
    ] = "threads"
    address: Annotated[
        str | None,
        typer.Option(help="With ray: HOST:PORT of the cluster, or `auto` (default: start Ray here)."),
    ] = None
    cpus: Annotated[
        float | None, typer.Option(min=0, help="With ray: CPUs (= inference threads) per worker (default: 1).")
    ] = None
    gpus: Annotated[float | None, typer.Option(min=0, help="With ray: GPUs per worker; 0.5 lets two share one.")] = None
    memory: Annotated[float | None, typer.Option(min=0, help="With ray: GB of memory per worker.")] = None
    resources: Annotated[
        list[str] | None,
        typer.Option(
            help="With ray, in eval: resources per worker for models whose name matches a pattern (repeatable, the "
            "first match counts): 'vit_*=gpus:1,cpus:4,memory:16'."
        ),
    ] = None
    reader_cpus: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="With ray, in eval: CPUs of a reader per machine that decodes and shifts images ahead of the workers; "
            "pays off if workers wait for a GPU (default: 0, workers read for themselves).",
        ),
    ] = None

    def executor(self) -> Executor:
        from shiftbench.jobs.executors import local_executor

        name = choice(self.executor_name, ("threads", "processes", "ray"), "--executor")
        if name == "ray":
            from shiftbench.jobs.ray_executor import RayExecutor

            return RayExecutor(
                self.address, workers=self.workers, resources=self._needs(), reader_cpus=self.reader_cpus or 0
            )
        for_ray = ("address", "cpus", "gpus", "memory", "resources", "reader_cpus")
        given = [f"--{own.replace('_', '-')}" for own in for_ray if getattr(self, own) not in (None, [])]
        if given:
            raise typer.BadParameter("requires --executor ray", param_hint=given[0])
        return local_executor(name, self.workers)

    def _needs(self) -> dict[str, Resources]:
        """Resources by name pattern; the last entry is for all other models."""
        from shiftbench.jobs.ray_executor import Resources

        memory = None if self.memory is None else int(self.memory * 1e9)
        common = Resources(1.0 if self.cpus is None else self.cpus, self.gpus or 0.0, memory)
        needs: dict[str, Resources] = {}
        for text in self.resources or ():
            pattern, equals, amounts = text.rpartition("=")
            if not equals:
                raise typer.BadParameter(
                    f"invalid: {text!r}; expected PATTERN=cpus:4,gpus:1,memory:16", param_hint="--resources"
                )
            needs.setdefault(pattern, Resources.parse(amounts, common))
        return {**needs, "*": needs.get("*", common)}

    def options(self) -> dict[str, Any]:
        """For work with threads of its own: an executor only if it is not `threads`."""
        executor = self.executor()
        return {"workers": self.workers} if self.executor_name == "threads" else {"executor": executor}


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


def choice(value: str, allowed: tuple[str, ...], option: str) -> str:
    if value not in allowed:
        raise typer.BadParameter(f"{value!r} is not one of {', '.join(allowed)}", param_hint=option)
    return value


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
