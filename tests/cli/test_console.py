"""Consoles fit the terminal of the moment."""

from __future__ import annotations

import pytest

from shiftbench.cli.console import errors, output


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
