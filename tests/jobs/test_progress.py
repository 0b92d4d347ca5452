"""Progress bars outside a terminal."""

from __future__ import annotations

import pytest

from shiftbench.jobs.progress import progress_bar


@pytest.mark.parametrize("forced", [False, True])
def test_a_log_has_one_line_per_bar(
    forced: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where CI systems and notebooks force colours, with which Rich takes a file for a terminal."""
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    if forced:
        monkeypatch.setenv("FORCE_COLOR", "1")
    with progress_bar("images", 50) as advance:
        for _ in range(50):
            advance(1)
    log = capsys.readouterr().err
    assert [line.split()[0] for line in log.splitlines() if line.strip()] == ["images"]
    assert "50/50" in log and "\x1b" not in log


def test_an_upper_limit_ends_full(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar("images", 50, at_most=True) as advance:
        advance(7)
    assert "50/50" in capsys.readouterr().err
