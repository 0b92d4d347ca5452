"""The application ``shiftbench``: it finds a command by its name and imports it when it is called."""

from __future__ import annotations

import traceback
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from shiftbench._version import __version__
from shiftbench.cli import explained
from shiftbench.cli.commands import CORE, all_commands, find_command, load_command, plain_app
from shiftbench.errors import naming_options

#: Commands whose exit codes 1 and 2 are verdicts, so that an error of theirs exits with 3.
_COMMANDS_WITH_VERDICT = ("gate", "doctor")
#: Key of the arguments in the context of click, which has no field for them.
_ARGUMENTS = "shiftbench.arguments"


class _LazyCommands(TyperGroup):
    """A group that imports the module of a command only if it is called: `eval` does not pay for `testset`.

    Contexts, formatters and commands are annotated as ``Any``: their classes belong to the click that Typer brings
    with it, which has no public name.
    """

    def main(self, *args: Any, **kwargs: Any) -> object:
        with naming_options():
            return super().main(*args, **kwargs)

    def invoke(self, ctx: Any) -> object:
        # The record of a run states the command that started it.
        from shiftbench.store.run_records import command_line

        token = command_line.set(("shiftbench", *ctx.meta[_ARGUMENTS]))
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort):
            raise
        except Exception as error:
            if ctx.invoked_subcommand not in _COMMANDS_WITH_VERDICT:
                raise
            if "--debug" in ctx.meta[_ARGUMENTS]:
                traceback.print_exc()
            from shiftbench.cli.console import errors, titled

            # Only errors of usage, which click raises, can format themselves.
            format_message = getattr(error, "format_message", None)
            message = format_message() if format_message else explained(error)
            errors.print(titled("error:", message))
            raise typer.Exit(3) from None
        finally:
            command_line.reset(token)

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        ctx.meta[_ARGUMENTS] = list(args)
        # People add --debug at the end of the command that failed, but it is an option of the group: move it there.
        # What follows "--" belongs to another program.
        end = args.index("--") if "--" in args else len(args)
        reordered = [argument for argument in args[:end] if argument != "--debug"]
        if "--debug" in args[:end]:
            reordered.insert(0, "--debug")
        return super().parse_args(ctx, reordered + args[end:])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in CORE:
            # Only the names matter here: an unknown command gets suggestions from them.
            self.commands = dict.fromkeys(all_commands(), self)
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: object) -> list[str]:
        return list(all_commands())

    def get_command(self, ctx: object, cmd_name: str) -> Any:
        entry = find_command(cmd_name)
        if entry is None:
            return None
        return load_command(cmd_name, entry)

    def format_commands(self, ctx: object, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.about) for name, entry in all_commands().items()])


app = plain_app(add_completion=True)
app.info.cls = _LazyCommands
app.info.name = "shiftbench"
app.info.no_args_is_help = True


def _print_version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(__version__)
        raise typer.Exit


@app.callback(
    help="What happens to an image classifier when the data shifts, and is that robustness or just accuracy?",
    epilog="Start with `shiftbench demo`, then `shiftbench eval model.onnx --suite corruptions --data FOLDER`.",
)
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error. May also follow the command.")
    ] = False,
) -> None:
    pass
