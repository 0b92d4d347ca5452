"""Public tables of results that others keep up to date, read into one shape.

timm publishes one CSV file per test set (``results-imagenet.csv``, ``results-imagenet-r.csv``, ...); CLIP benchmark
publishes one long CSV file of zero-shot results. The testbed's own table is read by ``studies.read_results``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from shiftbench.errors import listed
from shiftbench.studies.base import FRACTION, PERCENT, StudyError
from shiftbench.studies.results import Results, read_rows

_TIMM_PREFIX = "results-"


def read_timm(files: str | Path | Iterable[str | Path], *, metric: str = "top1") -> Results:
    """timm's result files, or the folder that holds them; a setting is a file's name without ``results-``.

    One model at several image sizes is several models, named ``model@size``: they have other accuracies.
    """
    if isinstance(files, str | Path):
        folder = Path(files)
        paths = sorted(folder.glob(f"{_TIMM_PREFIX}*.csv")) if folder.is_dir() else [folder]
    else:
        paths = [Path(file) for file in files]
    if not paths:
        raise StudyError(
            "no result files of timm", found=str(files), expected=f"{_TIMM_PREFIX}imagenet.csv and the like"
        )
    columns = {path.stem.removeprefix(_TIMM_PREFIX): _timm_column(path, metric) for path in paths}
    models = tuple(dict.fromkeys(name for column in columns.values() for name in column))
    values = np.array([[column.get(name, np.nan) for column in columns.values()] for name in models])
    return Results(models, tuple(columns), values, PERCENT)


def _timm_column(path: Path, metric: str) -> dict[str, float]:
    rows = _read(path, ("model", "img_size", metric), "a result file of timm")
    names = [row[0] for row in rows]
    several = {name for name in names if names.count(name) > 1} if len(set(names)) < len(names) else set()
    column = {}
    for name, size, value in rows:
        key = f"{name}@{size}" if name in several else name
        if key in column:
            raise StudyError(f"{path.name} has one model and size twice", found=key)
        column[key] = float(value)
    return column


def read_clip_benchmark(path: str | Path, *, metric: str = "acc1") -> Results:
    """CLIP benchmark's long CSV file (columns ``dataset``, ``model``, ``pretrained``, ``acc1``, ...), zero-shot
    classification only; a model is ``model pretrained``, as in its ``model_fullname``."""
    path = Path(path)
    cells: dict[tuple[str, str], float] = {}
    columns = ("dataset", "model", "pretrained", "task", metric)
    for dataset, model, weights, task, value in _read(path, columns, "a table of CLIP benchmark"):
        if task != "zeroshot_classification" or not value:
            continue
        key = (f"{model} {weights}", dataset)
        if cells.setdefault(key, float(value)) != float(value):
            raise StudyError(f"{path.name} has two values for one model and dataset", found=", ".join(key))
    if not cells:
        raise StudyError(f"{path.name} has no zero-shot classification results")
    models, settings = (tuple(dict.fromkeys(key[i] for key in cells)) for i in (0, 1))
    values = np.array([[cells.get((model, setting), np.nan) for setting in settings] for model in models])
    return Results(models, settings, values, FRACTION)


def _read(path: Path, columns: Sequence[str], kind: str) -> list[tuple[str, ...]]:
    """The rows of a file, these columns only."""
    header, rows = read_rows(path)
    if any(name not in header for name in columns):
        raise StudyError(f"{path.name} is not {kind}", found=listed(header), expected=", ".join(columns))
    at = [header.index(name) for name in columns]
    return [tuple(str(row[i]) for i in at) for row in rows]
