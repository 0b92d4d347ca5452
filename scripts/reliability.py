"""Writes the scoreboard of docs/reliability.md from the counts of the last soak: ``make soak`` runs it.

The tests marked ``reliability(group)`` count what they tried (tests/conftest.py). A soak that was run in parts, or of
which tests were run again, has several files of counts: ``python scripts/reliability.py FILE...`` merges them. The line
below the table names date and version, and all tests that failed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[1] / "docs" / "reliability.md"
_BEGIN, _END = "<!-- scoreboard -->", "<!-- end of scoreboard -->"
#: Group of the tests, and what is tried.
GROUPS = {
    "kills": "SIGKILL at random moments; the same command continues to the same bytes",
    "injected faults": "the n-th open, write, fsync, rename or unlink fails (EIO, ENOSPC) or kills the process",
    "bit flips": "one bit of a file of a workspace",
    "damaged workspaces": "files truncated, emptied, replaced by other JSON or by folders; then repaired",
    "bad inputs": "images, models, predictions, archives and output devices that are broken or hostile",
    "silent-wrong attempts": "edited labels, copied predictions, exchanged files: a number that would be wrong",
    "page attacks": "requests and texts against the report, the viewer and the annotation server",
}


@dataclass(frozen=True)
class Counts:
    """What one or several runs counted; of a test that was run more than once, the last run."""

    dates: list[str]
    versions: list[str]
    interrupted: bool  #: One of them was.
    tests: dict[str, dict[str, Any]]  #: By id: outcome, group and tries.

    @classmethod
    def read(cls, files: Iterable[Path]) -> Counts:
        runs = [json.loads(file.read_text()) for file in files]
        dates, versions = (sorted({run[key] for run in runs}) for key in ("date", "version"))
        tests = {test: found for run in runs for test, found in run["tests"].items()}
        return cls(dates, versions, any(run["interrupted"] for run in runs), tests)

    def of(self, outcome: str) -> list[str]:
        return sorted(test for test, found in self.tests.items() if found["outcome"] == outcome)

    def tries(self, group: str, *outcomes: str) -> int:
        own = [one for one in self.tests.values() if one.get("group") == group and one["outcome"] in outcomes]
        return sum(int(one["tries"]) for one in own)


def scoreboard(counts: Counts) -> str:
    lines = ["| group | what is tried | tried | survived |", "|---|---|---|---|"]
    for group, about in GROUPS.items():
        tried = counts.tries(group, "passed", "failed")
        numbers = f"{tried:,} | {counts.tries(group, 'passed'):,}" if tried else "not run | "
        lines.append(f"| {group} | {about} | {numbers} |")
    return "\n".join(lines)


def footer(counts: Counts) -> str:
    """When, with which version, and how the tests ended."""
    passed, failed, skipped = map(counts.of, ("passed", "failed", "skipped"))
    when = " to ".join(dict.fromkeys([counts.dates[0], counts.dates[-1]]))
    text = f"{when}, version {' and '.join(counts.versions)}: {len(passed):,} tests passed, {len(failed):,} failed, "
    text += f"{len(skipped):,} were skipped."
    if counts.interrupted:
        text += " **Interrupted**: tests are missing from the counts."
    return "\n".join([text, *(["", "Failed:", "", *(f"- `{test}`" for test in failed)] if failed else [])])


def main(files: Iterable[Path], page: Path = PAGE) -> None:
    counts = Counts.read(files)
    before, rest = page.read_text(encoding="utf-8").split(_BEGIN)
    board = f"{_BEGIN}\n\n{scoreboard(counts)}\n\n{footer(counts)}\n\n{_END}"
    page.write_text(before + board + rest.split(_END)[1], encoding="utf-8")


if __name__ == "__main__":
    main(map(Path, sys.argv[1:]))
