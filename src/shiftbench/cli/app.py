"""The commands, each imported when it is called."""

from __future__ import annotations

import importlib
import traceback
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command, get_group

from shiftbench._version import __version__
from shiftbench.cli import explained
from shiftbench.cli.console import errors, titled
from shiftbench.cli.options import Command, grouped
from shiftbench.errors import naming_options

#: Their exit codes 1 and 2 are verdicts: an error exits with 3.
_VERDICTS = ("gate", "doctor")
#: Command: module of this package, what it defines there, and the line of `shiftbench --help`.
COMMANDS = {
    "eval": ("eval", "evaluate_command", "Evaluate models under the settings of a suite."),
    "import": ("eval", "import_command", "Import predictions made elsewhere into a workspace."),
    "table": ("tables", "table_command", "Scores of a workspace, with intervals."),
    "compare": ("tables", "compare_command", "Compare models image by image."),
    "history": ("tables", "history_command", "The versions of a model over time."),
    "gate": ("gate", "app", "Is a new model worse than its predecessor? A verdict for CI, with exit codes."),
    "groups": ("tables", "groups_command", "Accuracy by group, and of the worst group."),
    "detect": ("tables", "detect_command", "Out-of-distribution detection: AUPR, AUROC, FPR95."),
    "calibrate": ("tables", "calibrate_command", "Calibration, before and after temperature scaling."),
    "images-needed": ("tables", "images_needed_command", "How many images an interval of a given width needs."),
    "study": ("study", "app", "Is it robustness, or just accuracy? Fits, gaps, correlations, hypotheses."),
    "figure": ("figure", "app", "Figures for papers: SVG, PDF or PNG."),
    "report": ("report", "report_command", "Write everything about a workspace into one HTML file."),
    "serve": ("report", "serve_command", "Serve the report, live while a run goes on."),
    "baselines": ("published", "app", "Public result tables to compare with: download them."),
    "reproduce": ("published", "reproduce_command", "Recompute a paper's numbers beside the published ones."),
    "corrupt": ("corrupt", "corrupt_command", "Write corrupted copies of a dataset."),
    "preview": ("corrupt", "preview_command", "Show all corruptions and severities of one image."),
    "list": ("list", "list_command", "List suites, settings, corruptions, metrics, models, datasets, label spaces."),
    "describe": ("models", "describe_command", "What is known about a model, and where each fact comes from."),
    "doctor": ("models", "doctor_command", "Find wrong preprocessing or labels; compare an export with its original."),
    "check": ("models", "check_app", "Check that a classifier, dataset or attack keeps its contract."),
    "data": ("data", "app", "Inspect and check datasets; assemble icons."),
    "store": ("store", "app", "Inspect, verify, compact and export a workspace."),
    "jobs": ("jobs", "app", "Runs without a terminal (eval --detach): list, attach, cancel."),
    "launch": ("jobs", "launch", "An evaluation as an array of jobs: SLURM, Kubernetes."),
    "testset": ("testset", "app", "Build a new test set: candidates, annotators, review, sampling."),
    "harden": ("harden", "app", "Train more robust models; augment datasets."),
    "experiment": ("harden", "experiment_command", "Train the variants of an experiment, and compare them."),
    "demo": ("eval", "demo_command", "Four real models on 114 real photographs."),
}  # fmt: skip


_ARGUMENTS = "shiftbench.arguments"


class _LazyCommands(TyperGroup):
    """Imports the module of a command only if it is called: `eval` does not pay for `testset`.

    Context, formatter and command are classes of the click that Typer brings with it, under no public name.
    """

    def main(self, *args: Any, **kwargs: Any) -> object:
        with naming_options():
            return super().main(*args, **kwargs)

    def invoke(self, ctx: Any) -> object:
        # For the record of a run.
        from shiftbench.store.run_records import command_line

        token = command_line.set(("shiftbench", *ctx.meta[_ARGUMENTS]))
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort):
            raise
        except Exception as error:
            if ctx.invoked_subcommand not in _VERDICTS:
                raise
            if "--debug" in ctx.meta[_ARGUMENTS]:
                traceback.print_exc()
            usage = getattr(error, "format_message", None)
            errors.print(titled("error:", usage() if usage else explained(error)))
            raise typer.Exit(3) from None
        finally:
            command_line.reset(token)

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        ctx.meta[_ARGUMENTS] = list(args)
        # Where people add it: at the end of the command that failed.
        end = args.index("--") if "--" in args else len(args)
        before = [one for one in args[:end] if one != "--debug"]
        return super().parse_args(ctx, ["--debug"] * (len(before) < end) + before + args[end:])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        self.commands = dict.fromkeys(COMMANDS, self)  # their names alone matter: suggestions for an unknown one
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: object) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: object, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        module, name, _ = COMMANDS[cmd_name]
        found = getattr(importlib.import_module(f"shiftbench.cli.{module}"), name)
        parent = _app()
        if isinstance(found, typer.Typer):
            parent.add_typer(found, name=cmd_name)
            return get_group(parent).commands[cmd_name]
        parent.command(cmd_name, cls=Command)(grouped(found))
        return get_command(parent)

    def format_commands(self, ctx: object, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, about) for name, (_, _, about) in COMMANDS.items()])


def _app(*, add_completion: bool = False) -> typer.Typer:
    return typer.Typer(
        # Plain help: it stays legible in a narrow terminal, and answers at once.
        rich_markup_mode=None,
        add_completion=add_completion,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )


app = _app(add_completion=True)
app.info.cls, app.info.name, app.info.no_args_is_help = _LazyCommands, "shiftbench", True


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback(
    help="What happens to an image classifier when the data shifts, and is that robustness or just accuracy?",
    epilog="Start with `shiftbench demo`, then `shiftbench eval model.onnx --suite corruptions --data FOLDER`.",
)
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error. May also follow the command.")
    ] = False,
) -> None:
    pass
