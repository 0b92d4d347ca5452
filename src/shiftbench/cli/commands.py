"""Which commands there are: those of the core, and those that other packages bring.

A package brings commands by an entry point of the group ``shiftbench.commands``, whose value is a table like ``CORE``
(plain pairs will do). The name "mine" is a command of its own, "data mine" one in the group `shiftbench data`. The
table is read for `shiftbench --help`, so the module that holds it should import nothing else.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import typer
from typer.core import TyperGroup
from typer.main import get_command, get_group

from shiftbench.errors import ShiftbenchError

COMMAND_GROUP = "shiftbench.commands"


class CommandEntry(NamedTuple):
    """A command that is imported only when it is called.

    Args:
        target: A Typer application or a function with Typer's annotations, as ``"my_package.commands:app"``.
        about: The line of `shiftbench --help`.
    """

    target: str
    about: str


CORE: Mapping[str, CommandEntry] = {
    "eval": CommandEntry("shiftbench.cli.eval:evaluate_command", "Evaluate models under the settings of a suite."),
    "import": CommandEntry("shiftbench.cli.eval:import_command", "Import predictions made elsewhere into a workspace."),
    "table": CommandEntry("shiftbench.cli.tables:table_command", "Scores of a workspace, with intervals."),
    "compare": CommandEntry("shiftbench.cli.tables:compare_command", "Compare models image by image."),
    "history": CommandEntry("shiftbench.cli.tables:history_command", "The versions of a model over time."),
    "gate": CommandEntry(
        "shiftbench.cli.gate:app", "Is a new model worse than its predecessor? A verdict for CI, with exit codes."
    ),
    "groups": CommandEntry("shiftbench.cli.tables:groups_command", "Accuracy by group, and of the worst group."),
    "detect": CommandEntry(
        "shiftbench.cli.tables:detect_command", "Out-of-distribution detection: AUPR, AUROC, FPR95."
    ),
    "calibrate": CommandEntry(
        "shiftbench.cli.tables:calibrate_command", "Calibration, before and after temperature scaling."
    ),
    "images-needed": CommandEntry(
        "shiftbench.cli.tables:images_needed_command",
        "How many images an interval, or a comparison, needs.",
    ),
    "study": CommandEntry(
        "shiftbench.cli.study:app", "Is it robustness, or just accuracy? Fits, gaps, correlations, hypotheses."
    ),
    "figure": CommandEntry("shiftbench.cli.figure:app", "Figures for papers: SVG, PDF or PNG."),
    "report": CommandEntry(
        "shiftbench.cli.report:report_command", "Write everything about a workspace into one HTML file."
    ),
    "serve": CommandEntry("shiftbench.cli.report:serve_command", "Serve the report, live while a run goes on."),
    "baselines": CommandEntry("shiftbench.cli.published:app", "Public result tables to compare with: download them."),
    "reproduce": CommandEntry(
        "shiftbench.cli.published:reproduce_command", "Recompute a paper's numbers beside the published ones."
    ),
    "corrupt": CommandEntry("shiftbench.cli.corrupt:corrupt_command", "Write corrupted copies of a dataset."),
    "preview": CommandEntry(
        "shiftbench.cli.corrupt:preview_command", "Show all corruptions and severities of one image."
    ),
    "list": CommandEntry(
        "shiftbench.cli.list:list_command",
        "List suites, settings, corruptions, metrics, models, datasets, label spaces.",
    ),
    "describe": CommandEntry(
        "shiftbench.cli.models:describe_command", "What is known about a model, and where each fact comes from."
    ),
    "doctor": CommandEntry(
        "shiftbench.cli.models:doctor_command",
        "Find wrong preprocessing or labels; compare an export with its original.",
    ),
    "check": CommandEntry(
        "shiftbench.cli.check:app", "Check that a corruption, metric, dataset, suite, ... keeps its contract."
    ),
    "data": CommandEntry("shiftbench.cli.data:app", "Inspect and check datasets; assemble icons."),
    "store": CommandEntry("shiftbench.cli.store:app", "Inspect, verify, compact and export a workspace."),
    "cache": CommandEntry("shiftbench.cli.cache:app", "What the cache folder holds: list it, clear it."),
    "jobs": CommandEntry("shiftbench.cli.jobs:app", "Runs without a terminal (eval --detach): list, attach, cancel."),
    "launch": CommandEntry("shiftbench.cli.jobs:launch", "An evaluation as an array of jobs: SLURM, Kubernetes."),
    "demo": CommandEntry("shiftbench.cli.eval:demo_command", "Four real models on 114 real photographs."),
}
#: The first command to try ends the list, after those of plug-ins.
_LISTED_LAST = "demo"


@functools.cache
def plugin_commands() -> Mapping[str, CommandEntry]:
    """Commands that installed packages bring. A table that cannot be loaded is named on stderr, and left out."""
    # Imported here: it takes longer than anything else that `shiftbench eval` imports to find a command.
    import importlib.metadata

    entries: dict[str, CommandEntry] = {}
    for point in importlib.metadata.entry_points(group=COMMAND_GROUP):
        try:
            table = {name: CommandEntry(*entry) for name, entry in point.load().items()}
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            typer.echo(f"warning: the commands of the plug-in {point.name!r} cannot be loaded ({reason})", err=True)
            continue
        for name, entry in table.items():
            entries.setdefault(name, entry)
    return entries


def all_commands() -> dict[str, CommandEntry]:
    """All commands that `shiftbench --help` lists, in its order. The core's names cannot be replaced."""
    commands = dict(CORE)
    for name, entry in plugin_commands().items():
        # A name of two words belongs to a group, whose own help lists it.
        if " " not in name:
            commands.setdefault(name, entry)
    commands[_LISTED_LAST] = commands.pop(_LISTED_LAST)
    return commands


def find_command(name: str) -> CommandEntry | None:
    """The entry of a command; plug-ins are searched only for names that the core does not have."""
    return CORE.get(name) or all_commands().get(name)


def subcommands(group: str) -> dict[str, CommandEntry]:
    """Commands that plug-ins add to a group of commands, by their names in the group."""
    entries = {}
    for path, entry in plugin_commands().items():
        parent, _, name = path.rpartition(" ")
        if parent == group:
            entries[name] = entry
    return entries


def load_command(path: str, entry: CommandEntry) -> Any:
    """Import a command, as click takes it. The path of a command in a group is "data duplicates"."""
    module, _, attribute = entry.target.partition(":")
    try:
        command = getattr(importlib.import_module(module), attribute)
    except Exception as error:
        if path in CORE or isinstance(error, ShiftbenchError):
            raise
        raise ShiftbenchError(
            f"the command {path!r} cannot be loaded from {entry.target}",
            found=f"{type(error).__name__}: {error}",
            hint="update or uninstall the package that brings it; --debug shows where it fails",
        ) from error
    _, _, name = path.rpartition(" ")
    parent = plain_app()
    if isinstance(command, typer.Typer):
        parent.add_typer(command, name=name)
        group = get_group(parent).commands[name]
        _open(group, path)
        return group
    from shiftbench.cli.options import Command, grouped

    parent.command(name, cls=Command)(grouped(command))
    return get_command(parent)


def plain_app(*, add_completion: bool = False) -> typer.Typer:
    """An application with plain help, which stays legible in a narrow terminal and is shown at once."""
    return typer.Typer(
        rich_markup_mode=None,
        add_completion=add_completion,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )


class OpenGroup(TyperGroup):
    """A group of commands that plug-ins can add to.

    The context and the formatter belong to the click that Typer uses, which has no public name in all versions.
    """

    #: The names of the groups around it and of this one: "testset follow-up".
    path = ""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(dict.fromkeys([*super().list_commands(ctx), *subcommands(self.path)]))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        if command is None and cmd_name in subcommands(self.path):
            command = load_command(f"{self.path} {cmd_name}", subcommands(self.path)[cmd_name])
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the commands; those of plug-ins are not imported for it."""
        lines = {name: command.get_short_help_str() for name, command in self.commands.items() if not command.hidden}
        for name, entry in subcommands(self.path).items():
            lines.setdefault(name, entry.about)
        with formatter.section("Commands"):
            formatter.write_dl(list(lines.items()))


class DefaultGroup(OpenGroup):
    """`GROUP ARGUMENT ...` is `GROUP run ARGUMENT ...`, and the help of the group is that of its command `run`."""

    default_command = "run"

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        is_named = args and (args[0] in self.list_commands(ctx) or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if is_named else [self.default_command, *args])

    def format_help(self, ctx: Any, formatter: Any) -> None:
        command = self.commands[self.default_command]
        # The group's place in the usage line: `shiftbench gate [OPTIONS] CANDIDATE`, without `run`.
        command_context = command.context_class(command, info_name=ctx.info_name, parent=ctx.parent)
        command.format_help(command_context, formatter)
        self.format_commands(ctx, formatter)


def _open(command: Any, path: str) -> None:
    """Tell a group, and those inside it, which names plug-ins use for them."""
    if isinstance(command, OpenGroup):
        command.path = path
        for name, child in command.commands.items():
            _open(child, f"{path} {name}")
