"""A plain table of results: models by settings, from CSV or Parquet, in percent or fractions.

Two shapes are read. Wide: a first column ``model`` (or ``classifier``), then one column for each setting, empty
where a model was not evaluated. Long, as ``shiftbench table --format csv`` writes it: columns ``classifier`` (or
``model``), ``setting``, ``value`` and perhaps ``metric`` and ``n``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from shiftbench.arrays import BoolArray, FloatArray
from shiftbench.errors import UnknownNameError, listed
from shiftbench.studies.base import FRACTION, StudyError, check_unique, count_of, recognise_unit, whole

NAME_COLUMNS = ("model", "classifier")
#: Marks of a missing accuracy.
_MISSING = {"", "-", "–", "na", "n/a", "nan", "none", "null"}


@dataclass(frozen=True)
class Results:
    """Accuracies of models (rows) in settings (columns); nan where a model was not evaluated.

    Attributes:
        models: Names of the models.
        settings: Names of the settings.
        values: (models, settings) accuracies.
        unit: ``"percent"`` or ``"fraction"``.
        sizes: Images behind a setting's accuracies: one number, or one for each model.
        notes: What a reader must know about the numbers.
    """

    models: tuple[str, ...]
    settings: tuple[str, ...]
    values: FloatArray
    unit: str
    sizes: Mapping[str, FloatArray] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def column(self, setting: str) -> FloatArray:
        """One setting, in the order of ``models``."""
        if setting not in self.settings:
            raise UnknownNameError("setting", setting, self.settings)
        return self.values[:, self.settings.index(setting)]

    def of(self, setting: str) -> dict[str, float]:
        """One setting by model, missing cells left out."""
        return {m: float(v) for m, v in zip(self.models, self.column(setting), strict=True) if not np.isnan(v)}

    def size(self, setting: str) -> FloatArray | None:
        """Numbers of images behind a setting's accuracies, if they are known."""
        return self.sizes.get(setting)

    def keep(self, rows: BoolArray) -> Results:
        """Some of the models."""
        sizes = {name: n[rows] if n.ndim else n for name, n in self.sizes.items()}
        models = tuple(name for name, here in zip(self.models, rows, strict=True) if here)
        return replace(self, models=models, values=self.values[rows], sizes=sizes)

    def joined(self, other: Results) -> Results:
        """The same with the models of another table below, in this one's unit; settings that only one has are
        missing for the other's models."""
        check_unique([*self.models, *other.models])
        settings = (*self.settings, *(name for name in other.settings if name not in self.settings))
        factor = whole(self.unit) / whole(other.unit)
        blocks = [_spread(one, settings) * times for one, times in ((self, 1.0), (other, factor))]
        sizes = {}
        for name in settings:
            parts = [np.broadcast_to(one.sizes.get(name, np.asarray(np.nan)), len(one.models)) for one in (self, other)]
            if not np.isnan(np.concatenate(parts)).all():
                sizes[name] = np.concatenate(parts)
        models, notes = (*self.models, *other.models), (*self.notes, *other.notes)
        return Results(models, settings, np.vstack(blocks), self.unit, sizes, notes)

    def with_columns(self, columns: Mapping[str, FloatArray]) -> Results:
        """The same with further settings; one that is there already is replaced."""
        kept = [i for i, name in enumerate(self.settings) if name not in columns]
        values = np.column_stack([self.values[:, kept], *columns.values()])
        return replace(self, settings=(*(self.settings[i] for i in kept), *columns), values=values)


def _spread(table: Results, settings: Sequence[str]) -> FloatArray:
    """A table's values under a longer list of settings, nan where it has none."""
    missing = np.full(len(table.models), np.nan)
    return np.column_stack([table.column(name) if name in table.settings else missing for name in settings])


def read_results(path: str | Path, *, unit: str | None = None, sizes: Mapping[str, float] | None = None) -> Results:
    """A table of results from a .csv or .parquet file.

    Percent or fraction is recognised by one rule for the whole table: a value above 1 means percent; all values
    within [0, 1] mean fractions; columns of both kinds are an error unless ``unit`` is given
    (``base.recognise_unit``). A duplicate model is kept once if its numbers are the same, else it is
    an error. ``sizes`` are the numbers of images by setting.

    Args:
        path: The file.
        unit: ``"percent"`` or ``"fraction"``; default: recognised from the values.
        sizes: Numbers of images by setting.
    """
    path = Path(path)
    header, rows = read_rows(path)
    lowered = [name.strip().lower() for name in header]
    name_at = find_column(lowered, NAME_COLUMNS)
    if name_at is None:
        raise StudyError(
            f"{path.name} has no column with the models' names",
            found=listed(header),
            expected=f"a column {' or '.join(map(repr, NAME_COLUMNS))}",
        )
    if "setting" in lowered and "value" in lowered:
        read = _from_long(path, lowered, rows, name_at)
    else:
        read = _from_wide(path, header, rows, name_at)
    return _checked(read, unit, sizes or {})


def results_from_scores(entries: Iterable[tuple[str, str, object]], *, metric: str | None = None) -> Results:
    """A table from ``Run.scores()``: (classifier, setting, score), fractions, with the scores' own n.

    Scores of one setting that differ in provenance are not directly comparable: a note is added.

    Args:
        entries: (model, setting, score).
        metric: Only scores of this metric.
    """
    cells: dict[tuple[str, str], tuple[float, float]] = {}
    origins: dict[str, set[str]] = {}
    for classifier, setting, score in entries:
        value, n, name = (getattr(score, key) for key in ("value", "n", "metric"))
        if metric is not None and name != metric:
            continue
        if (classifier, setting) in cells:
            raise StudyError(
                f"two scores of {classifier!r} in {setting!r}",
                expected="one number for each classifier and setting",
                hint="name one metric, or use a workspace in which each was evaluated once",
            )
        cells[classifier, setting] = float(value), float(n)
        origins.setdefault(setting, set()).add(str(getattr(score, "provenance", "")))
    mixed = [setting for setting, lines in origins.items() if len(lines) > 1]
    notes = (f"scores of different provenance are compared in {listed(mixed)}",) if mixed else ()
    return replace(_checked(_pivot(cells), FRACTION, {}), notes=notes)


def _pivot(cells: Mapping[tuple[str, str], tuple[float, float]]) -> Results:
    models = tuple(dict.fromkeys(model for model, _ in cells))
    settings = tuple(dict.fromkeys(setting for _, setting in cells))
    values, sizes = np.full((2, len(models), len(settings)), np.nan)
    row, column = {m: i for i, m in enumerate(models)}, {s: i for i, s in enumerate(settings)}
    for (model, setting), (value, n) in cells.items():
        values[row[model], column[setting]], sizes[row[model], column[setting]] = value, n
    known = {s: sizes[:, i] for i, s in enumerate(settings) if not np.isnan(sizes[:, i]).all()}
    return Results(models, settings, values, FRACTION, known)


def _checked(read: Results, unit: str | None, sizes: Mapping[str, float]) -> Results:
    if not read.models or not read.settings:
        raise StudyError("the table of results is empty", expected="models in rows, settings in columns")
    check_unique(read.models)
    found = recognise_unit({name: read.values[:, i] for i, name in enumerate(read.settings)}, unit)
    every = {**read.sizes, **{name: np.asarray(float(n)) for name, n in sizes.items() if name in read.settings}}
    return replace(read, unit=found, sizes=every)


def _from_wide(path: Path, header: Sequence[str], rows: Sequence[Sequence[object]], name_at: int) -> Results:
    settings = tuple(name.strip() for i, name in enumerate(header) if i != name_at)
    if len(set(settings)) != len(settings):
        twice = [name for name in dict.fromkeys(settings) if settings.count(name) > 1]
        raise StudyError(f"{path.name} has a duplicate setting", found=listed(twice))
    seen: dict[str, FloatArray] = {}
    again = []
    for number, row in enumerate(rows, start=2):
        name = str(row[name_at]).strip()
        cells = [cell for i, cell in enumerate(row) if i != name_at]
        values = np.array([read_number(path, number, s, c) for s, c in zip(settings, cells, strict=True)])
        if name in seen:
            if not np.array_equal(seen[name], values, equal_nan=True):
                raise StudyError(
                    f"{path.name} has two different rows for one model",
                    found=f"{name!r}, the second in line {number}",
                    hint="drop or rename one of them",
                )
            again.append(name)
        seen[name] = values
    notes = (f"repeated rows read once: {count_of(len(again), 'model')} ({listed(again)})",) if again else ()
    values = np.array(list(seen.values())).reshape(len(seen), len(settings))
    return Results(tuple(seen), settings, values, FRACTION, notes=notes)


def _from_long(path: Path, header: Sequence[str], rows: Sequence[Sequence[object]], name_at: int) -> Results:
    at = {name: header.index(name) for name in ("setting", "value", "n", "metric") if name in header}
    metrics = {str(row[at["metric"]]) for row in rows} if "metric" in at else set()
    cells: dict[tuple[str, str], tuple[float, float]] = {}
    for number, row in enumerate(rows, start=2):
        setting = str(row[at["setting"]]).strip()
        if len(metrics) > 1:  # top-1 and top-5 of one setting are two columns
            setting = f"{setting}:{row[at['metric']]}"
        value = read_number(path, number, setting, row[at["value"]])
        n = read_number(path, number, "n", row[at["n"]]) if "n" in at else float("nan")
        key = (str(row[name_at]).strip(), setting)
        if key in cells and cells[key] != (value, n):
            raise StudyError(f"{path.name} has two values for one model and setting", found=f"{key[0]}, {key[1]}")
        cells[key] = value, n
    return _pivot(cells)


def read_number(path: Path, line: int, column: str, cell: object) -> float:
    """The number in a cell; nan if it is empty or marked as missing."""
    if cell is None:
        return float("nan")
    if isinstance(cell, int | float):
        return float(cell)
    text = str(cell).strip()
    if text.lower() in _MISSING:
        return float("nan")
    try:
        return float(text.removesuffix("%"))
    except ValueError:
        raise StudyError(
            f"{path.name}, line {line}, column {column!r} is not a number",
            found=repr(text),
            expected="a number, or an empty cell if it is missing",
        ) from None


def find_column(lowered: Sequence[str], names: Sequence[str]) -> int | None:
    """The first of the names that a header in lower case has."""
    return next((lowered.index(name) for name in names if name in lowered), None)


def read_rows(path: Path) -> tuple[list[str], list[list[object]]]:
    """Header and rows of a .parquet file, or of any other file as CSV."""
    import csv

    if not path.is_file():
        raise StudyError(f"no table at {path}", expected="a .csv or .parquet file")
    try:
        header, rows = _parquet_rows(path) if path.suffix.lower() in (".parquet", ".pq") else _csv_rows(path)
    except (OSError, ValueError, csv.Error) as error:  # Arrow's and Unicode's errors are values, too
        raise StudyError(
            f"{path.name} can't be read as a table",
            found=str(error).splitlines()[0],
            expected=".csv (UTF-8) or .parquet",
        ) from error
    if not header:
        raise StudyError(f"{path.name} is empty")
    for number, row in enumerate(rows, start=2):
        if len(row) != len(header):
            raise StudyError(
                f"{path.name}, line {number} and the header differ in length", found=len(row), expected=len(header)
            )
    return header, rows


def _parquet_rows(path: Path) -> tuple[list[str], list[list[object]]]:
    import pyarrow.parquet as parquet

    table = parquet.read_table(path)
    columns = [column.to_pylist() for column in table.columns]
    return list(table.column_names), [list(row) for row in zip(*columns, strict=True)]


def _csv_rows(path: Path) -> tuple[list[str], list[list[object]]]:
    import csv

    # utf-8-sig: spreadsheets put a mark before the first name
    with path.open(newline="", encoding="utf-8-sig") as stream:
        lines: list[list[object]] = [list(line) for line in csv.reader(stream) if line]
    return [str(cell) for cell in lines[0]] if lines else [], lines[1:]
