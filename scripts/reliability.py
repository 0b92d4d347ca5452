"""Write the scoreboard of docs/reliability.md from the counts of the last soak: ``make soak`` runs it.

The tests marked ``reliability(group)`` count what they tried (tests/conftest.py). A soak that was run in parts, or of
which tests were run again, has several files of counts: ``python scripts/reliability.py FILE...`` merges them. A group
of which no test is in these files keeps its row, with the dates on which it was run. The line below the table names
date and version of this soak, and all tests that failed.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[1] / "docs" / "reliability.md"
_BEGIN = "<!-- scoreboard -->"
_END = "<!-- end of scoreboard -->"
#: Group of the tests, and what is tried.
GROUPS = {
    "kills": "SIGKILL at random moments; the same command continues to the same bytes",
    "injected faults": "the n-th open, read, write, fsync, rename, unlink, mkdir, link or listing of a folder fails "
    "(EIO, ENOSPC) or kills the process; counted only if the shim reports that it happened",
    "power cuts": "the process ends at a rename; what was not forced to the disk becomes zeros, half, empty or nothing",
    "bit flips": "one bit of a file of a workspace",
    "damaged workspaces": "files truncated, emptied, replaced by other JSON or by folders; then repaired",
    "bad images": "files of images that are cut, damaged, too large, or something else",
    "bad models": "files of models that are damaged, or contain code or paths",
    "bad archives": "zip files, shards and arrays with links, devices, pickles, or members outside their folder",
    "bombs": "small files that expand to much: archives, arrays, tables, nested texts",
    "links in workspaces": "links to the reader's files in a stranger's workspace, then commands that write or remove",
    "output devices": "full devices and folders in place of files as output",
    "silent-wrong attempts": "predictions, labels, lists, images, models and results that are cut, doubled, exchanged "
    "or of another version: a number that would be wrong",
    "page attacks": "requests and texts against the report, the viewer and the annotation server; roles are asserted "
    "for every answer",
}


@dataclass(frozen=True)
class Counts:
    """What one or several runs counted; of a test that was run more than once, the last run."""

    dates: list[str]
    versions: list[str]
    #: Whether one of the runs was interrupted.
    interrupted: bool
    #: Outcome, group, tries and date of every test, by its id.
    tests: dict[str, dict[str, Any]]

    @classmethod
    def read(cls, files: Iterable[Path]) -> Counts:
        runs = [json.loads(file.read_text()) for file in files]
        tests: dict[str, dict[str, Any]] = {}
        for run in runs:
            for test, record in run["tests"].items():
                tests[test] = {**record, "date": run["date"]}
        return cls(
            dates=sorted({run["date"] for run in runs}),
            versions=sorted({run["version"] for run in runs}),
            interrupted=any(run["interrupted"] for run in runs),
            tests=tests,
        )

    def with_outcome(self, outcome: str) -> list[str]:
        """The ids of the tests that passed, failed or were skipped."""
        return sorted(test for test, record in self.tests.items() if record["outcome"] == outcome)

    def tries(self, group: str, *outcomes: str) -> int:
        """How much the tests of a group tried that ended in one of the outcomes."""
        total = 0
        for record in self.tests.values():
            if record.get("group") == group and record["outcome"] in outcomes:
                total += int(record["tries"])
        return total

    def dates_of(self, group: str) -> str:
        """When the tests of a group were run: a date, or the first and the last."""
        return period(record["date"] for record in self.tests.values() if record.get("group") == group)


def period(dates: Iterable[str]) -> str:
    """The first and the last date; one date if they are the same."""
    ordered = sorted(dates)
    return " to ".join(dict.fromkeys([ordered[0], ordered[-1]]))


def kept_rows(board: str) -> dict[str, str]:
    """What a scoreboard states about each group that was run: the cells after the description."""
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \| ([\d,]+ \| [\d,]+ \| [^|]+) \|$", board, re.MULTILINE)
    return dict(rows)


def scoreboard(counts: Counts, earlier: str = "") -> str:
    """The table of all groups; those that the counts do not contain as in an ``earlier`` table."""
    lines = ["| group | what is tried | tried | survived | run on |", "|---|---|---|---|---|"]
    earlier_rows = kept_rows(earlier)
    for group, description in GROUPS.items():
        tried = counts.tries(group, "passed", "failed")
        survived = counts.tries(group, "passed")
        if tried:
            cells = f"{tried:,} | {survived:,} | {counts.dates_of(group)}"
        else:
            cells = earlier_rows.get(group, "not run |  | ")
        lines.append(f"| {group} | {description} | {cells} |")
    return "\n".join(lines)


def footer(counts: Counts) -> str:
    """When and with which version the tests were run, how many ended how, and which failed."""
    passed = counts.with_outcome("passed")
    failed = counts.with_outcome("failed")
    skipped = counts.with_outcome("skipped")
    text = f"The last run: {period(counts.dates)}, version {' and '.join(counts.versions)}: "
    text += f"{len(passed):,} tests passed, {len(failed):,} failed, {len(skipped):,} were skipped."
    if counts.interrupted:
        text += " **Interrupted**: tests are missing from the counts."
    lines = [text]
    if failed:
        lines += ["", "Failed:", ""]
        lines += [f"- `{test}`" for test in failed]
    return "\n".join(lines)


def main(files: Iterable[Path], page: Path = PAGE) -> None:
    counts = Counts.read(files)
    # A page without both marks, once each, is an error.
    before, board_and_after = page.read_text(encoding="utf-8").split(_BEGIN)
    earlier, after = board_and_after.split(_END)
    board = f"{_BEGIN}\n\n{scoreboard(counts, earlier)}\n\n{footer(counts)}\n\n{_END}"
    page.write_text(before + board + after, encoding="utf-8")


if __name__ == "__main__":
    main(map(Path, sys.argv[1:]))
