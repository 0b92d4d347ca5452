"""The training section: every logged number of training runs over their steps.

The log of a run is a file, ``log.jsonl``: one JSON object per epoch, with the keys ``epoch`` and ``step`` and any
numbers that were measured. Whoever trains a model can write one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from shiftbench.errors import StoreError
from shiftbench.reports.page.sections import Section

if TYPE_CHECKING:
    from shiftbench.reports.page.report_data import ReportData

LOG = "log.jsonl"
#: Keys of a line that count epochs, steps and time, and are not drawn as curves.
COUNTERS = ("epoch", "step", "seconds")


class TrainingCurve(TypedDict):
    """The log of one training run."""

    name: str
    steps: list[float]
    series: dict[str, list[float | None]]


def read_log(folder: str | Path) -> list[dict[str, Any]]:
    """The complete lines of a run's log, in order; a line torn by a kill is ignored, and no file is an empty log."""
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


def training_curves(folders: Iterable[str | Path]) -> list[TrainingCurve]:
    """One curve per run; a folder that holds several runs, such as an experiment's, gives one for each."""
    curves = []
    for folder in map(Path, folders):
        if (folder / LOG).is_file():
            runs = [folder]
        else:
            runs = sorted(path.parent for path in folder.glob(f"*/{LOG}"))
        if not runs:
            raise StoreError(f"{folder} holds no log of a training run", expected=f"{LOG}, or folders with one")
        curves += [_curve(run) for run in runs]
    return curves


def _curve(run: Path) -> TrainingCurve:
    lines = [line for line in read_log(run) if "step" in line]
    measures: dict[str, None] = {}
    for line in lines:
        measures.update(dict.fromkeys(key for key in line if key not in COUNTERS))
    series = {}
    for measure in measures:
        # A measure that is not logged at every step has gaps, so that all series share the steps.
        series[measure] = [line.get(measure) for line in lines]
    return {"name": run.resolve().name, "steps": [line["step"] for line in lines], "series": series}


def curves_with_steps(data: ReportData) -> list[TrainingCurve]:
    return [curve for curve in data.options.training if curve["steps"]]


SECTION = Section("training", curves_with_steps)
