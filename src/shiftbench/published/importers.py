"""Public tables of results that others keep up to date, read into one shape.

timm publishes one CSV file per test set (``results-imagenet.csv``, ``results-imagenet-r.csv``, ...);
the ImageNet testbed keeps ``robustness_top1s.csv``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import numpy as np

from shiftbench.errors import listed
from shiftbench.studies import testbed
from shiftbench.studies.base import PERCENT, StudyError
from shiftbench.studies.models import STANDARD, Models, read_models
from shiftbench.studies.results import Results, TableFile, read_results
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

    ``path`` is a table of models by settings, or a folder that holds one: the ImageNet testbed's, recognised by its
    columns, one ``results*`` file, or timm's ``results-<test set>.csv`` files. ``models`` is the table of the models;
    default: a ``models*`` file in the folder. The testbed's own models need no row in it. Own models with a published
    name get " (own)" behind it. ``all_models`` keeps all of the testbed's public table, not only the paper's 204.
    """
    results, models_path = read_tables(path, unit, models)
    models_table = read_models(models_path) if models_path else None
    if testbed.is_testbed(results):
        models_table = Models({**testbed.known_models(), **(models_table or {})})
    results = testbed.complete(results, own, all_models=all_models)
    return Study(results, models_table, baseline=baseline, exclude=exclude)


def read_tables(folder: Path, unit: str | None = None, models: Path | None = None) -> tuple[Results, Path | None]:
    """The results in a folder or a file, and the path of the table of models: ``models``, else that in the folder."""
    if not folder.is_dir():
        return read_results(folder, unit=unit), models
    tables = [path for path in sorted(folder.iterdir()) if path.suffix.lower() in _TABLES]
    if models is None:
        models = _models_table(tables)
    results = _result_tables(tables)
    if len(results) == 1:
        return read_results(results[0], unit=unit), models
    if results and all(path.name.startswith(_TIMM_PREFIX) for path in results):
        return read_timm(results), models
    candidates = results or sorted(folder.iterdir())
    raise StudyError(
        f"{folder} does not contain exactly one table of results",
        found=listed([path.name for path in candidates]) or "nothing",
        expected="the testbed's robustness_top1s.csv, one file results*.csv (models by settings) with or without "
        "one models*.csv, or timm's results-*.csv",
        hint="name the file itself, and the table of models with --models FILE",
    )


def _starting_with(prefix: str, tables: Sequence[Path]) -> list[Path]:
    return [path for path in tables if path.name.lower().startswith(prefix)]


def _result_tables(tables: Sequence[Path]) -> list[Path]:
    """A single file ``results*``, else the tables with the testbed's settings, else all files ``results*``."""
    results = _starting_with("results", tables)
    if len(results) == 1:
        return results
    testbed_tables = [path for path in tables if testbed.has_testbed_settings(TableFile.read(path).header)]
    return testbed_tables or results


def _models_table(tables: Sequence[Path]) -> Path | None:
    """The one table of models among the tables of a folder, if there is any."""
    candidates = _starting_with("models", tables)
    if len(candidates) > 1:
        names = listed([path.name for path in candidates])
        raise StudyError("several tables of models", found=names, hint="--models FILE")
    return candidates[0] if candidates else None


def read_timm(files: Sequence[Path]) -> Results:
    """timm's result files; a setting is a file's name without ``results-``.

    One model at several image sizes is several models, named ``model@size``: they have other accuracies.
    """
    columns = {file.stem.removeprefix(_TIMM_PREFIX): _read_timm_file(file) for file in files}
    models = tuple(dict.fromkeys(chain.from_iterable(columns.values())))
    values = np.full((len(models), len(columns)), np.nan)
    for i, model in enumerate(models):
        for j, column in enumerate(columns.values()):
            values[i, j] = column.get(model, np.nan)
    return Results(models, tuple(columns), values, PERCENT)


def _read_timm_file(file: Path) -> dict[str, float]:
    """Top-1 accuracy by model, in percent."""
    table = TableFile.read(file)
    expected = ("model", "img_size", "top1")
    if any(name not in table.header for name in expected):
        raise StudyError(
            f"{file.name} is not a result file of timm", found=listed(table.header), expected=", ".join(expected)
        )
    model_at, size_at, top1_at = (table.header.index(name) for name in expected)
    sizes_of_model = Counter(str(row[model_at]) for row in table.rows)
    accuracies: dict[str, float] = {}
    for row in table.rows:
        model = str(row[model_at])
        if sizes_of_model[model] > 1:
            model = f"{model}@{row[size_at]}"
        if model in accuracies:
            raise StudyError(f"{file.name} has one model and size twice", found=model)
        accuracies[model] = float(str(row[top1_at]))
    return accuracies
