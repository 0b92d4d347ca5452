"""Logs of training runs as curves, for the report's page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from shiftbench.hardening.errors import TrainingError
from shiftbench.hardening.training.log import LOG, read_log
from shiftbench.reports.page.payload import TrainingCurve

#: What a line counts by, or what says nothing about learning.
_NO_SERIES = ("epoch", "step", "seconds")


def training_curves(folders: Iterable[str | Path]) -> list[TrainingCurve]:
    """One curve a run; a folder that holds runs, such as an experiment's, gives all of theirs."""
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
