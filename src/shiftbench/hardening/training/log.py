"""The log of a run: one JSON line an epoch. A line that a kill tore is passed over."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from shiftbench.io.atomic import write_atomically

LOG = "log.jsonl"


def read_log(folder: str | Path) -> list[dict[str, Any]]:
    """The whole lines, in order."""
    path = Path(folder) / LOG
    if not path.is_file():
        return []
    lines = []
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict) and isinstance(line.get("epoch"), int):
            lines.append(line)
    return lines


def write_log(folder: Path, lines: list[dict[str, Any]]) -> None:
    """All lines anew: short, and whole at any moment."""
    text = "".join(json.dumps(line) + "\n" for line in lines)
    write_atomically(folder / LOG, lambda path: _write(path, text), durable=False)


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
