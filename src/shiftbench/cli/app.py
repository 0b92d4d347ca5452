"""The commands, each imported when it is called."""

from __future__ import annotations

import traceback
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from shiftbench._version import __version__
from shiftbench.cli import explained
from shiftbench.cli.commands import CORE, all_commands, find_command, load_command, plain_app
from shiftbench.errors import naming_options

#: Their exit codes 1 and 2 are verdicts: an error exits with 3.
_VERDICTS = ("gate", "doctor")
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
            from shiftbench.cli.console import errors, titled

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
        if args[0] not in CORE:
            # Only the names matter here: an unknown command gets suggestions from them.
            self.commands = dict.fromkeys(all_commands(), self)
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: object) -> list[str]:
        return list(all_commands())

    def get_command(self, ctx: object, cmd_name: str) -> Any:
        entry = find_command(cmd_name)
        return None if entry is None else load_command(cmd_name, entry)

    def format_commands(self, ctx: object, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.about) for name, entry in all_commands().items()])


app = plain_app(add_completion=True)
app.info.cls = _LazyCommands
app.info.name = "shiftbench"
app.info.no_args_is_help = True


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
