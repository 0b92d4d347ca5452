"""Consoles fit the terminal of the moment, and print text as it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shiftbench.cli.console import errors, output
from shiftbench.cli.report import show_written
from shiftbench.errors import visible
from shiftbench.reports.page.write import ReportSummary
from tests.commands import call
from tests.faults.attempts import evaluating, start


@pytest.mark.parametrize("columns", ["40", "80", "200"])
def test_columns_decides_whatever_was_known_before(columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "_width", 77)
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", columns)
    assert output.width == errors.width == output.options.max_width == int(columns)


def test_nonsense_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "wide")
    assert errors.width > 0


def test_brackets_in_names_are_text(tmp_path: Path) -> None:
    """Rich would take [a] or [attacks] for markup."""
    (tmp_path / "photos [a]").mkdir()
    result = call("data", "check", tmp_path / "photos [a]", columns=300)
    assert "photos [a]" in result.stdout
    assert "shiftbench[attacks]" in call("list", "suites", columns=300).stdout


def test_many_notes_of_a_report_do_not_scroll_the_terminal_away(capsys: pytest.CaptureFixture[str]) -> None:
    """A fault that 200 models share printed 200 notes."""
    for count, shown in ((12, 12), (200, 13)):
        notes = [f"labels of model {number} look permuted" for number in range(count)]
        show_written(ReportSummary("r.html", 9, 200, 40, 0, 0, 0, 0, notes))
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == shown
    assert lines[-1] == "note: 188 more on the page, under Warnings"


@pytest.mark.parametrize("character", ["\x1b", "\x9b", "\u202e"])
def test_a_terminal_obeys_no_name(
    character: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The name of a file could clear a warning, or turn the digits behind it around."""
    monkeypatch.chdir(tmp_path)
    start(tmp_path)
    name = f"net{character}[2K19"
    call(*evaluating("--name", name, "--quiet"))
    for words in (("table",), ("table", "--json"), ("table", "--format", "csv"), ("history",)):
        result = call(*words, "-w", "w")
        assert result.exit_code == 0
        assert "19" in result.stdout
        assert character not in result.stdout + result.stderr
    [score] = json.loads(call("table", "-w", "w", "--json").stdout)["scores"]
    assert score["classifier"] == name
    errors.print(name)
    assert visible(name) in capsys.readouterr().err
    assert character not in visible(name)


def test_lines_and_tabs_stay_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    output.print("a\nb é 漢")
    assert capsys.readouterr().out == "a\nb é 漢\n"
