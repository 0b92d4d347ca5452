"""How commands declare their options, and the options that several of them share.

``Annotated[str, "-s", "Help."]`` is an option that is called like the parameter, with that help and ``-s`` for short;
a dict before the help holds further arguments of ``typer.Option``: ``Annotated[int, {"min": 1}, "Help."]``.
Options that belong together are a dataclass whose fields are the options; a command takes one as a parameter
(``table_options: TableOptions``). The class attribute ``panel`` is the heading of the options that the class declares,
in the help of commands with many options; ``{"panel": "Ray"}`` gives one to a single option.
"""

from __future__ import annotations

import copy
import functools
import inspect
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, get_args, get_origin, get_type_hints
from urllib.parse import unquote

import typer
from typer.core import TyperCommand
from typer.models import OptionInfo, ParameterInfo

import shiftbench as sb
from shiftbench.cli.commands import OpenGroup
from shiftbench.cli.console import note, write_text
from shiftbench.cli.console import output as stdout
from shiftbench.io.paths import Location, place

if TYPE_CHECKING:
    from shiftbench.jobs.base import Executor
    from shiftbench.jobs.ray_executor import Resources
    from shiftbench.reports.table import Table
    from shiftbench.store.predictions import Predictions

DEFAULT_WORKSPACE = Path("shiftbench-workspace")
#: Options that only `--executor ray` takes.
_RAY_OPTIONS = ("address", "cpus", "gpus", "memory", "resources", "reader_cpus")
#: Heading of options that belong to no panel.
_PLAIN_PANEL = "Options"
#: Commands with at most this many options show them under one heading.
_MOST_UNGROUPED = 11
#: What help shows for the value of an option; Typer would show Python's types.
_METAVARS: dict[object, str] = {str: "TEXT", int: "N", float: "NUMBER", Path: "PATH"}


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """A command for Typer: dataclasses among its parameters become options, and so do plain help texts.

    The options stand in the order of the signature, those of a group together. Two groups of one command can't
    have an option of the same name.
    """
    hints = get_type_hints(command, include_extras=True)
    groups = {name: hint for name, hint in hints.items() if is_dataclass(hint) and isinstance(hint, type)}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name in groups:
            parameters += _group_parameters(groups[name])
        else:
            parameters.append(_parameter(name, hints[name], parameter.default))

    @functools.wraps(command)
    def flat(**values: object) -> None:
        arguments = {}
        for name, group in groups.items():
            arguments[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        command(**arguments, **values)

    # Typer reads the signature, and would read the wrapped one through __wrapped__.
    del flat.__dict__["__wrapped__"]
    flat.__dict__["__signature__"] = inspect.Signature(parameters)
    flat.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return flat


def _group_parameters(group: type[Any]) -> list[inspect.Parameter]:
    """The options of a dataclass, each under the panel of the class that declares it first.

    A subclass that only gives an option another default leaves it under its heading.
    """
    hints = get_type_hints(group, include_extras=True)
    parameters = []
    for field in fields(group):
        default = inspect.Parameter.empty if field.default is MISSING else field.default
        declaring = next(base for base in reversed(group.__mro__) if field.name in inspect.get_annotations(base))
        panel = declaring.__dict__.get("panel", "")
        parameters.append(_parameter(field.name, hints[field.name], default, panel))
    return parameters


def _parameter(name: str, hint: object, default: object, panel: str = "") -> inspect.Parameter:
    """A parameter of a command, annotated as Typer takes it: with all flags, a name for its value, and its panel."""
    if get_origin(hint) is Annotated:
        value_type, *metadata = get_args(hint)
        info = _parameter_info(metadata, panel)
        if isinstance(info, OptionInfo):
            _complete_option(info, name, value_type)
        elif info is not None:  # an argument
            info.metavar = info.metavar or name.upper()
        if info is not None:
            # A parser may return several types, which Typer would not understand; it only has to read a text.
            hint = Annotated[str if info.parser else value_type, info]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)


def _parameter_info(metadata: Sequence[object], panel: str) -> ParameterInfo | None:
    """What an annotation declares in Typer's terms, in our short form, or not at all: then None.

    ``panel`` is the heading if the annotation does not name one.
    """
    first = metadata[0]
    *declarations, help_text = metadata
    if isinstance(first, ParameterInfo):
        # Several parameters may share an annotation, and each completes its own copy.
        info = copy.copy(first)
    elif isinstance(help_text, str):
        flags = [item for item in declarations if isinstance(item, str)]
        settings = {}
        for item in declarations:
            if isinstance(item, dict):
                settings = dict(item)
        panel = settings.pop("panel", panel)
        info = typer.Option(*flags, help=help_text, **settings)
    else:
        return None
    if isinstance(info, OptionInfo):
        info.rich_help_panel = panel or None
    return info


def _complete_option(option: OptionInfo, name: str, value_type: object) -> None:
    """Add the flag that is named like the parameter, if there is no long one, and the name of the value in help."""
    flags = list(option.param_decls or ())
    if isinstance(option.default, str):
        # Typer takes the first flag for a default value.
        flags.insert(0, option.default)
    if not any(flag.startswith("--") for flag in flags):
        flags.insert(0, f"--{name.replace('_', '-')}")
    option.default = ...
    option.param_decls = tuple(flags)
    option.metavar = option.metavar or _METAVARS.get(_scalar(value_type))


def _scalar(value_type: object) -> object:
    """The type of a single value: ``str`` of ``list[str] | None``."""
    inner_types = get_args(value_type)
    if inner_types:
        return _scalar(inner_types[0])
    return value_type


#: A context, parameter or formatter of click; Typer brings a copy of its own, without types.
_OfClick = Any


class HelpEntry(NamedTuple):
    """A parameter of a command, and its line of help: the name with its value, and the text."""

    parameter: _OfClick
    line: tuple[str, str]


class Command(TyperCommand):
    """A command that refuses a second value of an option which takes one: click would keep the last, silently.

    Its help names arguments as click does, ``FOLDER`` and ``[MODELS]...``; Typer would add braces and Python's types.
    Options stand under the headings of their panels if there are many, and long examples are broken as a shell
    allows it.
    """

    def _help_entries(self, ctx: _OfClick, kind: str) -> list[HelpEntry]:
        """The arguments or options that are not hidden; ``kind`` is "argument" or "option"."""
        entries = []
        for parameter in self.get_params(ctx):
            if parameter.param_type_name == kind:
                line = parameter.get_help_record(ctx)
                if line:
                    entries.append(HelpEntry(parameter, line))
        return entries

    def collect_usage_pieces(self, ctx: _OfClick) -> list[str]:
        arguments = [_usage(entry.parameter) for entry in self._help_entries(ctx, "argument")]
        return ["[OPTIONS]", *arguments]

    def get_short_help_str(self, limit: int = 0) -> str:
        # The limit is too large to matter: click would end the sentence in "...".
        return super().get_short_help_str(1000)

    def format_help_text(self, ctx: _OfClick, formatter: _OfClick) -> None:
        unbroken = self.help
        try:
            self.help = _with_broken_examples(unbroken or "", formatter.width)
            super().format_help_text(ctx, formatter)
        finally:
            self.help = unbroken

    def format_options(self, ctx: _OfClick, formatter: _OfClick) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for argument, (_, text) in self._help_entries(ctx, "argument"):
            sections.setdefault("Arguments", []).append((argument.metavar, text))
        for title, options in self.option_panels(ctx).items():
            sections[title] = [option.line for option in options]
        for title, lines in sections.items():
            with formatter.section(title):
                formatter.write_dl(lines, col_max=min(26, formatter.width // 3))

    def option_panels(self, ctx: _OfClick) -> dict[str, list[HelpEntry]]:
        """The options and their lines of help, by heading; all under one heading if they are few."""
        options = self._help_entries(ctx, "option")
        if len(options) <= _MOST_UNGROUPED:
            return {_PLAIN_PANEL: options}
        panels: dict[str, list[HelpEntry]] = {}
        for option in options:
            panel = option.parameter.rich_help_panel or _PLAIN_PANEL
            panels.setdefault(panel, []).append(option)
        return panels

    def parse_args(self, ctx: _OfClick, args: list[str]) -> list[str]:
        # The parser returns the values, the remaining arguments, and the parameters in the order they were given.
        parameters: list[_OfClick] = self.make_parser(ctx).parse_args(args=list(args))[2]
        for option, times in Counter(parameters).items():
            if times > 1 and not (option.multiple or option.is_flag or ctx.resilient_parsing):
                raise typer.BadParameter(f"given {times} times, expected once", ctx=ctx, param=option)
        return super().parse_args(ctx, args)


def _usage(argument: _OfClick) -> str:
    """An argument in the line of usage: in brackets if it is optional, with dots if it takes several values."""
    name = str(argument.metavar)
    if not argument.required:
        name = f"[{name}]"
    if argument.nargs != 1:
        name += "..."
    return name


def _with_broken_examples(text: str, width: int) -> str:
    """Help in which commands that are wider than the terminal go on in the next line, as a shell reads them."""
    joined = re.sub(r" \\\n\s*", " ", text)
    return "\n".join(_broken_example(line, width) for line in joined.splitlines())


def _broken_example(line: str, width: int) -> str:
    """A line of help, broken before an option if it is a command that is wider than ``width``.

    >>> print(_broken_example("  shiftbench corrupt val/ val-c/ --executor ray", 36))
      shiftbench corrupt val/ val-c/ \\
        --executor ray
    """
    match = re.match(r"(\s*)shiftbench ", line)
    # The formatter indents help by two, and the mark of a broken line takes two.
    if match is None or len(line) + 2 <= width:
        return line
    indent = match[1]
    # An option stays with its value: the wrapper does not break at a no-break space.
    unbroken = re.sub(r"( -[-\w]+) (?!-)", "\\1\u00a0", line.strip())
    pieces = textwrap.wrap(
        unbroken,
        width - 4,
        initial_indent=indent,
        subsequent_indent=indent + "  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return " \\\n".join(pieces).replace("\u00a0", " ")


class Commands(typer.Typer):
    """A group of commands with plain help: it stays legible in a narrow terminal, and answers at once."""

    def __init__(self, help: str, cls: type[OpenGroup] = OpenGroup) -> None:
        first, _, _ = help.partition("\n")
        super().__init__(help=help, short_help=first, no_args_is_help=True, rich_markup_mode=None, cls=cls)

    def command(self, name: str | None = None, **options: Any) -> Callable[[Any], Any]:
        add = super().command(name, cls=Command, **options)
        return lambda function: add(grouped(function))


# Shell completion. Nothing here opens a file or imports a framework: the shell waits for every answer.


def _complete_name(incomplete: str, names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if name.startswith(incomplete))


def _complete_last_name(incomplete: str, names: Iterable[str]) -> list[str]:
    """Complete the last of several names that are separated by commas."""
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in _complete_name(last, names)]


def complete_suites(incomplete: str) -> list[str]:
    from shiftbench.settings.base import suites

    return _complete_last_name(incomplete, suites.names())


def complete_corruptions(incomplete: str) -> list[str]:
    return _complete_last_name(incomplete, sb.corruptions("registered"))


def complete_models(incomplete: str) -> list[str]:
    """Complete schemes such as ``timm:``; for everything else the shell completes files."""
    from shiftbench.classifiers.loading import classifier_loaders

    # Loaders of files are named by the suffix that they read.
    schemes = [f"{name}:" for name in classifier_loaders.names() if not name.startswith(".")]
    return _complete_name(incomplete, schemes)


def _complete_label_spaces(incomplete: str) -> list[str]:
    from shiftbench.labels.catalogue import FOLDERS, label_spaces

    return _complete_name(incomplete, [FOLDERS, *label_spaces.names()])


def complete_workspace_models(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete models that have results in the workspace of the command."""
    return _complete_name(incomplete, {unquote(folder.parent.name) for folder in _prediction_folders(ctx)})


def _complete_workspace_settings(ctx: typer.Context, incomplete: str) -> list[str]:
    return _complete_name(incomplete, {unquote(folder.name) for folder in _prediction_folders(ctx)})


def _prediction_folders(ctx: typer.Context) -> list[Path]:
    """The folders MODEL/SETTING of the command's workspace; none of one in a bucket, which would answer too slowly."""
    root = ctx.params.get("workspace") or DEFAULT_WORKSPACE
    if not isinstance(root, Path):
        return []
    return list(root.glob("predictions/*/*"))


def path_or_url(help: str) -> object:
    """An argument that is a path, or a URL in an object store."""
    return typer.Argument(parser=place, help=help)


def workspace_option(help: str) -> object:
    """The option ``--workspace``, with a help text of the command's own."""
    return typer.Option("--workspace", "-w", parser=place, metavar="PATH|URL", help=help)


WorkspaceOption = workspace_option("Workspace with the results: a folder, or s3://BUCKET/FOLDER.")
WorkspacePath = Annotated[Location, WorkspaceOption]
ModelNames = Annotated[
    list[str] | None,
    "--classifier",
    "-c",
    {"autocompletion": complete_workspace_models},
    "Only these models (repeatable).",
]
SettingNames = Annotated[
    list[str] | None,
    "--setting",
    "-s",
    {"autocompletion": _complete_workspace_settings},
    "Only these settings (repeatable).",
]
Labels = Annotated[
    str | None,
    {"autocompletion": _complete_label_spaces},
    "Classes of data and models: a name from `list spaces`, a file (classes in order, or a mapping to those "
    "of the model: `data labels`), or `folders` for the dataset's own.",
]
SuiteNames = Annotated[
    str, "-s", {"autocompletion": complete_suites}, "One or more suites, separated by commas; see `list suites`."
]
AllowOutside = Annotated[bool, "Allow manifests (.csv, .jsonl) to name images outside their folder."]
Trust = Annotated[bool, "--trust", "Allow model files that run code when they are loaded."]
Preprocess = Annotated[
    str | None,
    {"metavar": "FILE|KEY=VALUE,..."},
    "How the model was trained, such as size=32,mean=0.5,std=0.25 (docs/models.md), or a TOML or JSON file.",
]
Model = Annotated[
    str, typer.Argument(help="As for `shiftbench eval`.", show_default=False, autocompletion=complete_models)
]
Level = Annotated[float, "Confidence level."]
Seed = Annotated[int, "Random seed; the same seed gives the same pixels on every machine."]
Json = Annotated[bool, "--json", "Print the result as JSON."]
Split = Annotated[
    str | None, {"panel": "Data"}, "Which split of data that has several: test, validation, train; as FOLDER/SPLIT."
]
Limit = Annotated[
    int | None, "--sample", "--limit", {"panel": "Data", "min": 1}, "Use a random subset of at most N images."
]
Quiet = Annotated[bool, "--quiet", "-q", "Do not show progress bars."]


@dataclass(frozen=True)
class OutputOptions:
    """Progress and output format."""

    panel: ClassVar[str] = "Output"
    level: Level = 0.95
    json: Json = False
    quiet: Quiet = False


@dataclass(frozen=True)
class TableOptions:
    """How a table is printed, or where it is written."""

    panel: ClassVar[str] = "Output"
    format: Annotated[str, "-f", "text, md, csv, tex or json."] = "text"
    output: Annotated[Path | None, "-o", "Write a file: .md, .csv, .tex, .json or .txt."] = None
    json: Annotated[bool, "Same as --format json."] = False

    def show(self, table: Table, workspace: Location | None = None) -> None:
        """Print or write a table; the models of a workspace get their ids and marks."""
        if workspace is not None:
            table = sb.Run.open(workspace).with_models(table)
        if self.output is not None:
            note(f"written: {table.write(self.output)}")
            return
        format = "json" if self.json else self.format
        if format == "text":
            stdout.print(table)
            return
        writers = {"md": table.to_markdown, "csv": table.to_csv, "tex": table.to_latex, "json": table.to_json}
        write = writers[choice(format, ("text", *writers), "--format")]
        write_text(write(), is_json=format == "json")


@dataclass(frozen=True, kw_only=True)
class WorkspaceOptions:
    """Models of a workspace."""

    panel: ClassVar[str] = "Results"
    workspace: WorkspacePath = DEFAULT_WORKSPACE
    classifier: ModelNames = None

    def run(self, settings: Sequence[str] | None = None) -> sb.Run:
        return sb.Run.open(self.workspace, self.classifier or (), settings or ())

    def predictions(self, setting: str) -> list[Predictions]:
        run = self.run([setting])
        return [run.workspace.read(result) for result in run.results]


@dataclass(frozen=True, kw_only=True)
class StoredOptions(WorkspaceOptions):
    """Models of a workspace, and the level of their intervals."""

    panel: ClassVar[str] = "Results"
    level: Level = 0.95


@dataclass(frozen=True)
class ModelOptions:
    """How models are loaded and run."""

    panel: ClassVar[str] = "Models"
    preprocessing: Annotated[
        list[str] | None,
        "--preprocess",
        {"metavar": "FILE|KEY=VALUE,..."},
        "How models were trained, such as size=32,mean=0.5,std=0.25 (docs/models.md), or a TOML or JSON file. Once "
        "for all models, or once per model.",
    ] = None
    name: Annotated[list[str] | None, "Name in tables and reports; once per model."] = None
    device: Annotated[str, "Where models run: auto, cpu, cuda, cuda:1, mps."] = "auto"
    batch_size: Annotated[
        int | None, {"min": 1}, "Images per forward pass (default: chosen by the model's loader)."
    ] = None
    threads: Annotated[
        int | None, {"min": 1}, "CPU threads per model and worker (default: 1; workers run side by side)."
    ] = None
    trust: Trust = False
    stateful: Annotated[
        bool,
        "The models change while they run or mix the images of a batch, on purpose (test-time adaptation): images in "
        "random order, and a reset before each setting.",
    ] = False

    def loading(self) -> dict[str, Any]:
        """As keyword arguments of ``load_classifiers``."""
        return {field.name: getattr(self, field.name) for field in fields(ModelOptions)}


@dataclass(frozen=True)
class WorkerOptions:
    """How many workers there are, and of which kind."""

    panel: ClassVar[str] = "Execution"
    workers: Annotated[int | None, "-j", {"min": 1}, "Number of workers (default: one per core)."] = None
    executor_name: Annotated[
        str, "--executor", "threads, processes, or ray (all machines of a Ray cluster, or this one)."
    ] = "threads"


@dataclass(frozen=True)
class ExecutorOptions(WorkerOptions):
    """Where the work runs: on this machine, or on a Ray cluster."""

    panel: ClassVar[str] = "Ray"
    address: Annotated[str | None, "With ray: HOST:PORT of the cluster, or `auto` (default: start Ray here)."] = None
    cpus: Annotated[float | None, {"min": 0}, "With ray: CPUs (= inference threads) per worker (default: 1)."] = None
    gpus: Annotated[float | None, {"min": 0}, "With ray: GPUs per worker; 0.5 lets two share one."] = None
    memory: Annotated[float | None, {"min": 0}, "With ray: GB of memory per worker."] = None

    def executor(self) -> Executor:
        from shiftbench.jobs.executors import find_executor

        if self.executor_name == "ray":
            from shiftbench.jobs.ray_executor import RayExecutor

            return RayExecutor(self.address, workers=self.workers, **self._ray())
        for name, value in vars(self).items():
            if name in _RAY_OPTIONS and value not in (None, []):
                flag = f"--{name.replace('_', '-')}"
                raise typer.BadParameter("requires --executor ray", param_hint=flag)
        return find_executor(self.executor_name, self.workers)

    def _ray(self) -> dict[str, Any]:
        """The arguments of ``RayExecutor`` that depend on the models: the resources of all workers."""
        return {"resources": {"*": self._common_resources()}}

    def _common_resources(self) -> Resources:
        from shiftbench.jobs.ray_executor import Resources

        cpus = 1.0 if self.cpus is None else self.cpus
        memory = None if self.memory is None else int(self.memory * 1e9)
        return Resources(cpus, self.gpus or 0.0, memory)

    def options(self) -> dict[str, Any]:
        """As keyword arguments of work that has threads of its own: an executor only if it is not `threads`."""
        executor = self.executor()
        if self.executor_name == "threads":
            return {"workers": self.workers}
        return {"executor": executor}


@dataclass(frozen=True)
class EvaluationExecutorOptions(ExecutorOptions):
    """Where models run: on a cluster, those of different size on different workers."""

    panel: ClassVar[str] = "Ray"
    resources: Annotated[
        list[str] | None,
        "With ray: resources per worker for models whose name matches a pattern (repeatable, the first match counts): "
        "'vit_*=gpus:1,cpus:4,memory:16'.",
    ] = None
    reader_cpus: Annotated[
        int | None,
        {"min": 0},
        "With ray: CPUs of a reader per machine that decodes and shifts images ahead of the workers; "
        "pays off if workers wait for a GPU (default: 0, workers read for themselves).",
    ] = None

    def _ray(self) -> dict[str, Any]:
        """Resources by name pattern; the last entry is for all other models."""
        from shiftbench.jobs.ray_executor import Resources

        common = self._common_resources()
        needs: dict[str, Resources] = {}
        for text in self.resources or ():
            pattern, equals, amounts = text.rpartition("=")
            if not equals:
                raise typer.BadParameter(
                    f"invalid: {text!r}; expected PATTERN=cpus:4,gpus:1,memory:16", param_hint="--resources"
                )
            if pattern in needs:
                raise typer.BadParameter(f"{pattern!r} is given twice", param_hint="--resources")
            needs[pattern] = Resources.parse(amounts, common)
        return {"resources": {**needs, "*": needs.get("*", common)}, "reader_cpus": self.reader_cpus or 0}


@dataclass(frozen=True)
class DataOptions:
    """What is evaluated, and where the results go."""

    panel: ClassVar[str] = "Data"
    suite: SuiteNames = "clean"
    data: Annotated[list[str] | None, "-d", "A folder, file or URL; ROLE=FOLDER for suites of several datasets."] = None
    split: Split = None
    workspace: WorkspacePath = DEFAULT_WORKSPACE
    labels: Labels = None
    per_class: Annotated[int | None, "Evaluate at most N images per class."] = None
    sample: Limit = None
    subset: Annotated[
        str | None,
        {"metavar": "LIST"},
        "testbed-10percent: of ImageNet's validation images, corrupted or not, the ImageNet testbed's list; "
        "in testbed-213 for corruptions and attacks only.",
    ] = None
    allow_outside: AllowOutside = False


@dataclass(frozen=True)
class TextureOptions:
    """Files that frost and style_transfer need."""

    panel: ClassVar[str] = "Shifts"
    frost_textures: Annotated[
        str | None, {"show_default": False}, "Frost textures: a folder with the five original images, or `procedural`."
    ] = None
    style_network: Annotated[
        Path | None,
        {"show_default": False, "resolve_path": True},
        "For style_transfer: AdaIN weights, from `harden augment` or the published decoder.",
    ] = None
    styles: Annotated[
        Path | None,
        {"show_default": "those the network remembers", "resolve_path": True},
        "For style_transfer: a folder of paintings.",
    ] = None


@dataclass(frozen=True)
class CorruptionOptions:
    """Which corruptions, and the seed of everything random."""

    panel: ClassVar[str] = "Shifts"
    severities: Annotated[str, "--severity", "Severities of corruptions: 3, 1-5 or 1,3,5."] = "1-5"
    corruptions: Annotated[
        str, "--corruption", {"autocompletion": complete_corruptions}, "Only these corruptions, separated by commas."
    ] = ""
    source: Annotated[
        str, "Corrupted images: in-memory, jpeg-85 (in memory, then JPEG), or on-disk (the released files)."
    ] = "in-memory"
    seed: Annotated[int, "Seed of shifts, subsets and designs."] = 0


@dataclass(frozen=True)
class DesignOptions:
    """Which images are evaluated under which shifts."""

    panel: ClassVar[str] = "Design"
    design: Annotated[
        str,
        "full: every image under every shift; one-pass: every image clean and under one of the shifts, which estimates "
        "the full grid (docs/designs.md).",
    ] = "full"
    passes: Annotated[int, "With one-pass: number of shifts that each image is evaluated under."] = 1
    budget: Annotated[
        str | None,
        {"metavar": "TIME|PASSES"},
        "With one-pass: evaluate as many images as a time (60s, 5m) or a number of forward passes per model "
        "(5000) allows.",
    ] = None
    width: Annotated[
        float | None,
        {"metavar": "POINTS"},
        "With one-pass: evaluate as many images as it takes to know mean accuracy to ± N points, "
        "within the budget; a pilot measures speed and variance.",
    ] = None


@dataclass(frozen=True)
class EvaluationOptions(
    EvaluationExecutorOptions, DesignOptions, TextureOptions, CorruptionOptions, ModelOptions, DataOptions
):
    """Everything that decides the results of an evaluation."""

    strict: Annotated[
        bool,
        "Exit with code 3 if there are warnings: permuted labels, chance level, assumed preprocessing, skipped images. "
        "Results are printed and stored all the same.",
    ] = False

    def arguments(self) -> dict[str, Any]:
        """As keyword arguments of ``evaluate``: the options of the same name, some of them parsed."""
        from shiftbench.api import argument_names

        names = argument_names()
        arguments = {name: value for name, value in vars(self).items() if name in names}
        arguments["data"] = parse_data(self.data or [])
        arguments["severities"] = parse_severities(self.severities)
        arguments["corruptions"] = tuple(name for name in self.corruptions.split(",") if name)
        arguments["source"] = choice(self.source, ("in-memory", "jpeg-85", "on-disk"), "--source")
        arguments["select"] = sb.Selection(self.per_class, self.sample, self.seed, subset=self.subset)
        arguments["executor"] = self.executor()
        # The executor has its own number of workers; evaluate refuses both.
        arguments["workers"] = None
        return arguments


def parse_severities(text: str) -> tuple[float, ...]:
    """The severities of a range or a list.

    >>> parse_severities("1-3"), parse_severities("1,2.5")
    ((1.0, 2.0, 3.0), (1.0, 2.5))
    """
    try:
        if "-" in text:
            low, high = map(int, text.split("-"))
            return tuple(float(value) for value in range(low, high + 1))
        return tuple(map(float, text.split(",")))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not of the form 3, 1-5 or 1,3,5", param_hint="--severity") from None


def choice(value: str, allowed: Sequence[str], option: str) -> str:
    """The value; it is an error of usage that names the option if the value is not allowed."""
    if value not in allowed:
        raise typer.BadParameter(f"{value!r} is not one of {', '.join(allowed)}", param_hint=option)
    return value


def parse_data(values: Sequence[str]) -> str | dict[str, str] | None:
    """The values of ``--data``: one ``FOLDER``, or several ``ROLE=FOLDER``, which become a dict; None without values.

    A single value that contains "=" is a folder if there is one of that name.
    """
    if not values:
        return None
    if len(values) == 1 and ("=" not in values[0] or Path(values[0]).exists()):
        return values[0]
    pairs = dict(value.split("=", 1) for value in values if "=" in value)
    if len(pairs) != len(values):
        raise typer.BadParameter("several --data need the form ROLE=FOLDER, each role once")
    return pairs
