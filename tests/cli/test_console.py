"""Consoles fit the terminal of the moment, and print text as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from shiftbench.cli.console import errors, output
from tests.commands import call


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
