"""The log of a run: one JSON line per epoch, and as curves for the report. A line torn by a kill is ignored."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shiftbench.hardening.errors import TrainingError
from shiftbench.io.atomic import write_atomically

if TYPE_CHECKING:
    from shiftbench.reports.page.sections.training import TrainingCurve

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
    write_atomically(folder / LOG, lambda path: path.write_text(text, encoding="utf-8"), durable=False)


# Curves

#: What a line counts by, or what says nothing about learning.
_NO_SERIES = ("epoch", "step", "seconds")


def training_curves(folders: Iterable[str | Path]) -> list[TrainingCurve]:
    """One curve per run; a folder that holds runs, such as an experiment's, gives all of theirs."""
    found = []
    for folder in map(Path, folders):
        runs = [folder] if (folder / LOG).is_file() else sorted(path.parent for path in folder.glob(f"*/{LOG}"))
        if not runs:
            raise TrainingError(f"{folder} holds no log of a training run", expected=f"{LOG}, or folders with one")
        found += [_curve(run.resolve().name, read_log(run)) for run in runs]
    return found


def _curve(name: str, log: Sequence[dict[str, float]]) -> TrainingCurve:
    measures = list(dict.fromkeys(key for line in log for key in line if key not in _NO_SERIES))
    series: dict[str, list[float | None]] = {key: [line.get(key) for line in log] for key in measures}
    return {"name": name, "steps": [line["step"] for line in log], "series": series}
