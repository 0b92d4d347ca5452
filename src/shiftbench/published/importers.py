"""Public tables of results that others keep up to date, read into one shape.

timm publishes one CSV file per test set (``results-imagenet.csv``, ``results-imagenet-r.csv``, ...);
the ImageNet testbed keeps ``robustness_top1s.csv``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
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
    results, table = read_tables(path, unit, models)
    known = read_models(table) if table else None
    if testbed.is_testbed(results):
        known = Models({**testbed.known_models(), **(known or {})})
    return Study(testbed.complete(results, own, all_models=all_models), known, baseline=baseline, exclude=exclude)


def read_tables(folder: Path, unit: str | None = None, models: Path | None = None) -> tuple[Results, Path | None]:
    """The table of results in a folder (or itself), and the table of models: the given one, else that beside it."""
    if not folder.is_dir():
        return read_results(folder, unit=unit), models
    tables = [path for path in sorted(folder.iterdir()) if path.suffix.lower() in _TABLES]
    beside = [path for path in tables if path.name.lower().startswith("models")]
    results = [path for path in tables if path.name.lower().startswith("results")]
    if models is None and len(beside) > 1:
        names = listed([path.name for path in beside])
        raise StudyError("several tables of models", found=names, hint="--models FILE")
    if models is None and beside:
        models = beside[0]
    if len(results) != 1:
        results = [path for path in tables if testbed.has_testbed_settings(TableFile.read(path).header)] or results
    if len(results) == 1:
        return read_results(results[0], unit=unit), models
    if results and all(path.name.startswith(_TIMM_PREFIX) for path in results):
        return read_timm(results), models
    raise StudyError(
        f"{folder} does not contain exactly one table of results",
        found=listed([path.name for path in results or sorted(folder.iterdir())]) or "nothing",
        expected="the testbed's robustness_top1s.csv, one file results*.csv (models by settings) with or without "
        "one models*.csv, or timm's results-*.csv",
        hint="name the file itself, and the table of models with --models FILE",
    )


def read_timm(files: Sequence[Path]) -> Results:
    """timm's result files; a setting is a file's name without ``results-``.

    One model at several image sizes is several models, named ``model@size``: they have other accuracies.
    """
    columns: dict[str, dict[str, float]] = {}
    for file in files:
        table = TableFile.read(file)
        wanted = ("model", "img_size", "top1")
        if any(name not in table.header for name in wanted):
            raise StudyError(
                f"{file.name} is not a result file of timm", found=listed(table.header), expected=", ".join(wanted)
            )
        at = [table.header.index(name) for name in wanted]
        rows = [[str(row[i]) for i in at] for row in table.rows]
        sizes = Counter(name for name, _, _ in rows)
        column = columns[file.stem.removeprefix(_TIMM_PREFIX)] = {}
        for name, size, value in rows:
            key = f"{name}@{size}" if sizes[name] > 1 else name
            if key in column:
                raise StudyError(f"{file.name} has one model and size twice", found=key)
            column[key] = float(value)
    models = tuple(dict.fromkeys(name for column in columns.values() for name in column))
    values = np.array([[column.get(name, np.nan) for column in columns.values()] for name in models])
    return Results(models, tuple(columns), values, PERCENT)
