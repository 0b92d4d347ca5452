"""Public tables of results that others keep up to date, read into one shape.

timm publishes one CSV file a test set (``results-imagenet.csv``, ``results-imagenet-r.csv``, ...); CLIP benchmark
publishes one long CSV file of zero-shot results. The testbed's own table is read by ``studies.read_results`` as it
is.
"""

from __future__ import annotations

from collections.abc import Iterable
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
    header, rows = read_rows(path)
    needed = ("model", "img_size", metric)
    if any(name not in header for name in needed):
        raise StudyError(f"{path.name} is no result file of timm", found=listed(header), expected=", ".join(needed))
    name_at, size_at, value_at = (header.index(name) for name in needed)
    names = [str(row[name_at]) for row in rows]
    several = {name for name in names if names.count(name) > 1} if len(set(names)) < len(names) else set()
    column = {}
    for name, row in zip(names, rows, strict=True):
        key = f"{name}@{row[size_at]}" if name in several else name
        if key in column:
            raise StudyError(f"{path.name} has one model and size twice", found=key)
        column[key] = float(str(row[value_at]))
    return column


def read_clip_benchmark(path: str | Path, *, metric: str = "acc1") -> Results:
    """CLIP benchmark's long CSV file (columns ``dataset``, ``model``, ``pretrained``, ``acc1``, ...), zero-shot
    classification only; a model is ``model pretrained``, as in its ``model_fullname``."""
    path = Path(path)
    header, rows = read_rows(path)
    needed = ("dataset", "model", "pretrained", "task", metric)
    if any(name not in header for name in needed):
        raise StudyError(f"{path.name} is no table of CLIP benchmark", found=listed(header), expected=", ".join(needed))
    at = [header.index(name) for name in needed]
    cells: dict[tuple[str, str], float] = {}
    for row in rows:
        dataset, model, weights, task, value = (str(row[i]) for i in at)
        if task != "zeroshot_classification" or not value:
            continue
        key = (f"{model} {weights}", dataset)
        if cells.setdefault(key, float(value)) != float(value):
            raise StudyError(f"{path.name} has two values for one model and data set", found=", ".join(key))
    if not cells:
        raise StudyError(f"{path.name} has no zero-shot classification results")
    models, settings = (tuple(dict.fromkeys(key[i] for key in cells)) for i in (0, 1))
    values = np.array([[cells.get((model, setting), np.nan) for setting in settings] for model in models])
    return Results(models, settings, values, FRACTION)
