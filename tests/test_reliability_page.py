"""scripts/reliability.py: the scoreboard of docs/reliability.md, from counts of complete, failed and stopped soaks."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from scripts import reliability

from tests import conftest


def report(test: str, group: str | None, outcome: str = "passed", tries: int | None = None) -> Any:
    known = [("reliability", group)] * (group is not None) + [("tries", tries)] * (tries is not None)
    return SimpleNamespace(nodeid=test, user_properties=known, passed=outcome == "passed")


@pytest.fixture
def counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a run that was stopped: a test fails after its fixtures, one in them, one in its clean-up."""
    monkeypatch.setenv("SHIFTBENCH_COUNTS", str(tmp_path / "counts.json"))
    stats = {
        "passed": [report("t1", "kills", tries=7), report("t2", None), report("t3", "bad images")],
        "failed": [report("t4", "kills", "failed")],
        "error": [report("t3", "bad images", "failed"), report("t5", "bit flips", "failed")],
        "skipped": [report("t6", "kills", "skipped")],
    }
    conftest._write_counts(stats, True)
    return tmp_path / "counts.json"


def written(tmp_path: Path, *files: Path) -> str:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{reliability._BEGIN}\nlast year\n{reliability._END}\nafter\n")
    for _ in range(2):
        reliability.main(files, page)
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "last year" not in text
    return text


def test_failures_count_as_tried_and_not_survived(counts: Path, tmp_path: Path) -> None:
    text = written(tmp_path, counts)
    assert "| 8 | 7 | 20" in text and text.count("| 1 | 0 | 20") == 2
    assert "2 tests passed, 3 failed, 1 were skipped" in text and "Interrupted" in text
    assert [line for line in text.splitlines() if line.startswith("- ")] == ["- `t3`", "- `t4`", "- `t5`"]


def test_tests_that_are_run_again_replace_those_that_failed(
    counts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHIFTBENCH_COUNTS", str(tmp_path / "again.json"))
    conftest._write_counts({"passed": [report("t4", "kills", tries=5), report("t3", "bad images")]}, False)
    text = written(tmp_path, counts, tmp_path / "again.json")
    assert "| 12 | 12 | 20" in text and "4 tests passed, 1 failed" in text and "Interrupted" in text


def test_groups_that_were_not_run_keep_their_rows(counts: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    rows = "| bombs | small files | 1,234 | 1,233 | 2001-02-03 |\n| kills | x | 99 | 99 | 2001-02-03 |"
    page.write_text(f"{reliability._BEGIN}\n{rows}\n| power cuts | x | not run |  |  |\n{reliability._END}\n")
    reliability.main([counts], page)
    board = reliability.kept_rows(page.read_text())
    assert board["bombs"] == "1,234 | 1,233 | 2001-02-03"
    assert board["kills"].startswith("8 | 7 | 20") and "2001" not in board["kills"]
    assert "power cuts" not in board


def test_every_marked_group_is_on_the_page() -> None:
    """A group that the page does not know would be counted nowhere."""
    tests = Path(__file__).parent
    marked: set[str] = set()
    for file in tests.rglob("test_*.py"):
        marked.update(re.findall(r"mark\.reliability\(\"([^\"]+)\"\)", file.read_text(encoding="utf-8")))
    assert marked == set(reliability.GROUPS)
