"""Writes the scoreboard of docs/reliability.md from the counts of the last soak: ``make soak`` runs it.

The tests marked ``reliability(group)`` count what they tried (tests/conftest.py). A soak that was run in parts has a
file of counts for each: ``python scripts/reliability.py FILE...`` adds them up.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

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


def scoreboard(counts: Mapping[str, Mapping[str, int]]) -> str:
    lines = ["| group | what is tried | tried | survived |", "|---|---|---|---|"]
    for group, about in GROUPS.items():
        found = counts.get(group)
        numbers = f"{found['tried']:,} | {found['survived']:,}" if found else "not run | "
        lines.append(f"| {group} | {about} | {numbers} |")
    return "\n".join(lines)


def added(files: Iterable[Path]) -> dict[str, Counter[str]]:
    total: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for file in files:
        for group, counts in json.loads(file.read_text()).items():
            total[group] += Counter(counts)
    return total


def main(counts: Iterable[Path]) -> None:
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(_BEGIN)
    board = scoreboard(added(counts))
    PAGE.write_text(f"{before}{_BEGIN}\n\n{board}\n\n{_END}{rest.split(_END)[1]}", encoding="utf-8")


if __name__ == "__main__":
    main(map(Path, sys.argv[1:]))
