"""Groups of options: one dataclass in a command's signature, several options on the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
import typer.main
from typer.testing import CliRunner

from shiftbench.classifiers.description import parse_description
from shiftbench.cli import app as cli
from shiftbench.cli.commands import all_commands
from shiftbench.cli.options import EvaluationExecutorOptions, grouped
from shiftbench.errors import ShiftbenchError
from shiftbench.hardening.commands import _each_key_once, _parse_options
from shiftbench.testsets.commands.options import parse_options
from tests.commands import output

seen: list[object] = []


@dataclass(frozen=True)
class Size:
    width: Annotated[int, typer.Option("--width", "-w", help="How wide.")]
    unit: Annotated[str, typer.Option(help="Of what.")] = "cm"


app = typer.Typer(rich_markup_mode=None)


@app.command("draw")
@grouped
def draw(ctx: typer.Context, name: str, size: Size, loud: bool = False) -> None:
    """Draws something."""
    seen.append((ctx.info_name, name, size, loud))


def test_a_group_is_filled_from_its_options() -> None:
    result = CliRunner().invoke(app, ["box", "-w", "3", "--loud"])
    assert result.exit_code == 0, result.output
    assert seen[-1] == ("draw", "box", Size(3, "cm"), True)


def test_help_and_errors_are_those_of_plain_options() -> None:
    shown = CliRunner().invoke(app, ["--help"]).output
    assert "Draws something." in shown and "How wide." in shown and "[default: cm]" in shown
    missing = CliRunner().invoke(app, ["box"])
    assert missing.exit_code == 2 and "--width" in missing.output


def test_an_option_for_one_value_is_refused_twice(tmp_path: Path) -> None:
    """Click keeps the last one silently: `history -w A -w B` would be about B alone."""
    for words in (
        ["history", "-w", "A", "--workspace", "B"],
        ["figure", "scatter", "-w", "A", "-w", "B"],
        ["eval", "m.onnx", "--design", "full", "--design", "one-pass"],
    ):
        result = CliRunner().invoke(cli.app, words)
        assert result.exit_code == 2 and "given 2 times, expected once" in " ".join(result.output.split())
        assert words[-2] in result.output or "--workspace" in result.output
    words = ["eval", "m.onnx", "-w", str(tmp_path / "w"), "--quiet", "--quiet", "--name", "a", "--name", "b"]
    result = CliRunner().invoke(cli.app, words)
    assert "expected once" not in result.output


def test_values_are_named_by_what_people_type() -> None:
    shown = output("eval", "--help")
    assert "--suite TEXT" in shown and "--batch-size N" in shown and "--config PATH" in shown
    assert [line for line in shown.partition("Options:")[2].splitlines() if "<" in line] == []


def test_help_of_all_commands_shows_plain_names_and_whole_sentences() -> None:
    """No `{FOLDER}`, no `MODELS <list[str]>`, and no summary that ends in "..."; in a narrow terminal as well."""
    root: Any = typer.main.get_command(cli.app)
    for name in all_commands():
        command = root.get_command(None, name)
        for path, leaf in _leaves(command, name):
            shown = output(*path.split(), "--help", columns=60)
            used = shown.partition("Arguments:")[0]
            listed = shown.partition("Options:")[0].partition("Arguments:")[2]
            assert "{" not in used.partition("\n\n")[0] and "<" not in listed, shown
            arguments = [param for param in leaf.params if param.param_type_name == "argument" and not param.hidden]
            assert all(argument.metavar in listed for argument in arguments), shown
        if path != name:
            assert "..." not in output(*name.split(), "--help", columns=60).partition("Commands:")[2]


def test_arguments_that_commands_share_keep_their_own_names() -> None:
    for arguments, name in ((("describe",), "MODEL"), (("gate", "pin"), "MODEL"), (("corrupt",), "DESTINATION")):
        assert name in output(*arguments, "--help").splitlines()[0].split()


def test_every_command_is_listed_by_its_own_first_line() -> None:
    """The overview is written out so that it needs no import; it must not drift from the commands."""
    from shiftbench.cli.app import app as shiftbench

    for name in all_commands():
        result = CliRunner().invoke(shiftbench, [name, "--help"])
        assert result.exit_code == 0 and f"{name} [OPTIONS]" in result.output, result.output


#: A server that prints its address, and the output of another command.
WITHOUT_JSON = {"serve", "jobs attach"}


def test_commands_print_json_and_name_workspaces_alike() -> None:
    root: Any = typer.main.get_command(cli.app)
    for name in all_commands():
        for path, command in _leaves(root.get_command(None, name), name):
            options = {word for parameter in command.params for word in parameter.opts}
            assert "--json" in options or path in WITHOUT_JSON, path
            assert ("--workspace" in options) == ("-w" in options), path
            assert "\\b" not in command.help, f"{path}: an escaped mark of verbatim text"


def _leaves(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    if not hasattr(command, "list_commands"):
        yield path, command
        return
    for name in command.list_commands(None):
        yield from _leaves(command.get_command(None, name), f"{path} {name}")


def test_a_key_is_given_once() -> None:
    """The last one would win silently, or the first one."""
    refused: list[tuple[type[Exception], Callable[[], object]]] = [
        (typer.BadParameter, lambda: _each_key_once(["train.epochs=3", "train.epochs = 4"])),
        (ShiftbenchError, lambda: parse_description("size=32,mean=0.5,size=64")),
        (typer.BadParameter, lambda: parse_options(["threshold=0.6", "threshold=0.7"])),
        (typer.BadParameter, lambda: parse_options(["overrides.nail=0.6", "overrides.nail=0.7"])),
        (typer.BadParameter, lambda: _parse_options(["severity=1", "severity=2"])),
        (typer.BadParameter, EvaluationExecutorOptions(resources=["eff*=cpus:1", "eff*=cpus:2"])._ray),
    ]
    for error, call in refused:
        with pytest.raises(error):
            call()


def _help_of_commands(columns: int) -> Iterator[tuple[str, Any, str]]:
    """Every command with its help in a terminal of that width."""
    root: Any = typer.main.get_command(cli.app)
    for name in all_commands():
        for path, command in _leaves(root.get_command(None, name), name):
            yield path, command, output(*path.split(), "--help", columns=columns)


def test_help_of_all_commands_fits_eighty_columns() -> None:
    wide = []
    for path, _, shown in _help_of_commands(80):
        wide += [f"{path}: {line}" for line in shown.splitlines() if len(line) > 80]
    assert wide == []


def test_options_of_large_commands_stand_under_headings() -> None:
    context: Any = typer.main.get_command(cli.app).context_class
    for path, command, shown in _help_of_commands(80):
        panels = command.option_panels(context(command))
        count = sum(map(len, panels.values()))
        assert count <= 11 or len(panels) > 1, path
        assert max(map(len, panels.values())) <= 11, path
        assert all(f"\n{heading}:\n" in shown for heading in panels), path


def test_headings_of_eval_are_what_options_are_for() -> None:
    shown = output("eval", "--help", columns=80)
    headings = [line[:-1] for line in shown.splitlines() if line.endswith(":") and not line.startswith(" ")]
    expected = ["Arguments", "Data", "Models", "Shifts", "Design", "Execution", "Ray", "Options", "Output"]
    assert headings == expected
    assert "--address" in shown.partition("Ray:")[2].partition("Options:")[0]


def test_examples_are_broken_where_a_shell_allows_it() -> None:
    shown = output("corrupt", "--help", columns=60)
    joined = " ".join(shown.replace("\\\n", " ").split())
    assert "shiftbench corrupt val/ val-s/ -c style_transfer --style-network decoder.pth" in joined


def test_listings_have_the_names_that_people_type() -> None:
    assert output("list", "models") == output("list", "classifiers")
    assert output("list", "label-spaces") == output("list", "spaces")


@pytest.mark.parametrize(
    "words", ["corrupt", "check dataset", "doctor", "eval", "harden finetune", "harden train", "study colours"]
)
def test_commands_that_read_images_take_a_split_and_a_limit(words: str) -> None:
    """They are declared once, so that one command's option is another's."""
    assert {"--split", "--limit", "--sample"} <= _flags(words)


@pytest.mark.parametrize("words", ["data check", "data labels", "describe", "import"])
def test_commands_that_only_open_a_dataset_take_a_split(words: str) -> None:
    assert "--split" in _flags(words)


def _flags(words: str) -> set[str]:
    """The options of a command, such as "harden train"."""
    command: Any = typer.main.get_command(cli.app)
    for word in words.split():
        command = command.get_command(None, word)
    flags: set[str] = set()
    for parameter in command.params:
        flags.update(parameter.opts)
    return flags
