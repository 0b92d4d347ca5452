"""Public tables of results that others keep up to date, read into one shape.

timm publishes one CSV file per test set (``results-imagenet.csv``, ``results-imagenet-r.csv``, ...);
the ImageNet testbed keeps ``robustness_top1s.csv``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from shiftbench.errors import listed
from shiftbench.studies import testbed
from shiftbench.studies.base import PERCENT, StudyError
from shiftbench.studies.models import STANDARD, read_models
from shiftbench.studies.results import Results, read_results, read_rows
from shiftbench.studies.study import Study

_TIMM_PREFIX = "results-"
_TABLES = (".csv", ".parquet", ".pq")


def open_table(
    path: Path,
    models: Path | None = None,
    own: Results | None = None,
    *,
    baseline: str = STANDARD,
    exclude: Sequence[str] = (),
    unit: str | None = None,
    all_models: bool = False,
) -> Study:
    """Published results, and the user's own among them.

    Args:
        path: A table of models by settings, or a folder that holds one: the ImageNet testbed's, recognised by its
            columns, one ``results*`` file, or timm's ``results-<test set>.csv`` files.
        models: Table of the models; default: a ``models*`` file in the folder, or, for the testbed, the package's.
        own: The user's own models; those with a published name get " (own)" behind it.
        baseline: Category of the models that the line is fitted to.
        exclude: Leave models whose name contains one of these out of the fit.
        unit: ``"percent"`` or ``"fraction"``; default: recognised from the values.
        all_models: All models of the testbed's public table, not only the paper's 204.
    """
    results, beside = _read_folder(path, unit) if path.is_dir() else (read_results(path, unit=unit), None)
    table = models or beside
    known = read_models(table) if table is not None else None
    if known is None and testbed.is_testbed(results):
        known = testbed.known_models()
    return Study(testbed.complete(results, own, all_models=all_models), known, baseline=baseline, exclude=exclude)


def _read_folder(folder: Path, unit: str | None) -> tuple[Results, Path | None]:
    """The table of results in a folder, and the table of models beside it."""
    tables = [path for path in sorted(folder.iterdir()) if path.suffix.lower() in _TABLES]
    models = [path for path in tables if path.name.lower().startswith("models")]
    results = [path for path in tables if path.name.lower().startswith("results")]
    if len(models) > 1:
        raise StudyError("several tables of models", found=listed([p.name for p in models]), hint="--models FILE")
    if len(results) != 1:
        results = [path for path in tables if testbed.has_testbed_settings(read_rows(path)[0])] or results
    beside = models[0] if models else None
    if len(results) == 1:
        return read_results(results[0], unit=unit), beside
    if results and all(path.name.startswith(_TIMM_PREFIX) for path in results):
        return read_timm(results), beside
    raise StudyError(
        f"{folder} does not contain exactly one table of results",
        found=listed([path.name for path in results or sorted(folder.iterdir())]) or "nothing",
        expected="the testbed's robustness_top1s.csv, one file results*.csv (models by settings) with or without "
        "one models*.csv, or timm's results-*.csv",
        hint="name the file itself, and the table of models with --models FILE",
    )


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


def _read(path: Path, columns: Sequence[str], kind: str) -> list[tuple[str, ...]]:
    """The rows of a file, these columns only."""
    header, rows = read_rows(path)
    if any(name not in header for name in columns):
        raise StudyError(f"{path.name} is not {kind}", found=listed(header), expected=", ".join(columns))
    at = [header.index(name) for name in columns]
    return [tuple(str(row[i]) for i in at) for row in rows]
