"""A plain table of results: models by settings, from CSV or Parquet, in percent or fractions.

Two shapes are read. Wide: a first column ``model`` (or ``classifier``), then one column for each setting, empty
where a model was not evaluated. Long, as ``shiftbench table --format csv`` writes it: columns ``classifier`` (or
``model``), ``setting``, ``value`` and perhaps ``metric`` and ``n``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from pathlib import Path

import numpy as np

from shiftbench.arrays import BoolArray, FloatArray
from shiftbench.errors import check_names, listed
from shiftbench.studies.base import FRACTION, PERCENT, StudyError, check_unique, left_out, recognise_unit, whole

#: pandas writes the names of rows as a column without a name.
NAME_COLUMNS = ("model", "classifier", "")
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
        apart: Settings with own results that are another measurement, so in ``NAME (own)``, and the reason.
    """

    models: tuple[str, ...]
    settings: tuple[str, ...]
    values: FloatArray
    unit: str
    sizes: Mapping[str, FloatArray] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    apart: Mapping[str, str] = field(default_factory=dict)

    def column(self, setting: str) -> FloatArray:
        """One setting, in the order of ``models``."""
        check_names("setting", [setting], self.settings)
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
        return replace(self, models=tuple(compress(self.models, rows)), values=self.values[rows], sizes=sizes)

    def joined(self, other: Results) -> Results:
        """The same with the models of another table below, in this one's unit.

        Settings that only one has are missing for the other's models.
        """
        check_unique([*self.models, *other.models])
        settings = tuple(dict.fromkeys([*self.settings, *other.settings]))
        blocks = []
        for one, times in ((self, 1.0), (other, whole(self.unit) / whole(other.unit))):
            lacking = np.full(len(one.models), np.nan)
            columns = [one.column(name) if name in one.settings else lacking for name in settings]
            blocks.append(np.column_stack(columns) * times)
        sizes = {}
        for name in settings:
            parts = [np.broadcast_to(one.sizes.get(name, np.asarray(np.nan)), len(one.models)) for one in (self, other)]
            if not np.isnan(np.concatenate(parts)).all():
                sizes[name] = np.concatenate(parts)
        models, notes = (*self.models, *other.models), (*self.notes, *other.notes)
        return Results(models, settings, np.vstack(blocks), self.unit, sizes, notes, {**self.apart, **other.apart})

    def with_own(self, own: Results) -> Results:
        """The same with the user's own models below.

        Names that are taken get " (own)" behind them: those of models, and those of settings in which own results are
        on another number of images than any of these. A setting's size, where it is one for all models, is the test
        set's: own results of unknown size have it, too.
        """
        shared = {name: n for name, n in self.sizes.items() if n.ndim == 0 and name in own.settings}
        names = tuple(own_name(name) if name in self.models else name for name in own.models)
        own = replace(own, models=names, sizes={**shared, **own.sizes})
        for setting in (name for name in own.sizes if name in self.sizes):
            theirs, mine = np.unique(self.sizes[setting]), np.broadcast_to(own.sizes[setting], len(own.models))
            others = np.array([not same_images(n, theirs) and not np.isnan(n) for n in mine])
            if others.any():
                expected = " or ".join(f"{n:,.0f}" for n in theirs if not np.isnan(n))
                own = own.set_apart(setting, others, f"on {mine[others][0]:,.0f} images, not {expected}")
        return self.joined(own)

    def set_apart(self, setting: str, rows: BoolArray, why: str) -> Results:
        """The same with the results of these models in a setting of their own: they are another measurement."""
        column, apart = self.column(setting), own_name(setting)
        there = self.column(apart) if apart in self.settings else np.nan
        found = self.with_columns({setting: np.where(rows, np.nan, column), apart: np.where(rows, column, there)})
        sizes = [self.sizes.get(name, np.asarray(np.nan)) for name in (setting, apart)]
        return replace(
            found, sizes={**found.sizes, apart: np.where(rows, *sizes)}, apart={**self.apart, setting: why},
            notes=(*self.notes, f"{setting}: own results are kept apart, as {apart}: {why}"),
        )  # fmt: skip

    def with_columns(self, columns: Mapping[str, FloatArray]) -> Results:
        """The same with further settings; one that is there already is replaced."""
        kept = [i for i, name in enumerate(self.settings) if name not in columns]
        values = np.column_stack([self.values[:, kept], *columns.values()])
        return replace(self, settings=(*(self.settings[i] for i in kept), *columns), values=values)


def own_name(name: str) -> str:
    """What an own model or setting is called where its name is taken."""
    return f"{name} (own)"


def same_images(n: float, known: Iterable[float]) -> bool:
    """Whether n images may be one of these test sets; up to one image in a thousand may have been unreadable."""
    return any(abs(n - other) <= other / 1000 for other in known)


def read_results(path: str | Path, *, unit: str | None = None, sizes: Mapping[str, float] | None = None) -> Results:
    """A table of results from a .csv or .parquet file.

    Percent or fraction is recognised by one rule for the whole table: a value above 1, or percent signs, mean percent;
    all values within [0, 1] mean fractions; columns or models of both kinds are an error unless ``unit`` is given
    (``base.recognise_unit``). A duplicate model is kept once if its numbers are the same, else it is
    an error. ``sizes`` are the numbers of images by setting.

    Args:
        path: The file.
        unit: ``"percent"`` or ``"fraction"``; default: recognised from the values.
        sizes: Numbers of images by setting.
    """
    table = TableFile.read(path)
    long = {"setting", "value"} <= set(table.lowered)
    read = _from_long(table) if long else _from_wide(table)
    names, value = table.find(NAME_COLUMNS), table.find(["value"])
    signs = table.percent_signs([i for i in range(len(table.header)) if (i == value if long else i != names)])
    found = _checked(read, unit or (PERCENT if signs == {True} else None), sizes or {})
    if True in signs and found.unit == FRACTION:  # 0.7% is percent, even if no number of the table is above 1
        raise StudyError(f"{table.name} has percent signs at some of its fractions", expected="accuracies in one unit")
    return found


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
                expected="one number for each model and setting",
                hint="name one metric, or use a workspace in which each was evaluated once",
            )
        cells[classifier, setting] = float(value), float(n)
        origins.setdefault(setting, set()).add(str(getattr(score, "provenance", "")))
    mixed = [setting for setting, lines in origins.items() if len(lines) > 1]
    notes = (f"scores of different provenance are compared in {listed(mixed)}",) if mixed else ()
    return replace(_checked(_pivot(cells), FRACTION, {}), notes=notes)


def _pivot(cells: Mapping[tuple[str, str], tuple[float, float]]) -> Results:
    models, settings = (tuple(dict.fromkeys(names)) for names in zip(*cells, strict=True)) if cells else ((), ())
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
    recognise_unit({name: row for name, row in zip(read.models, read.values, strict=True) if (row > 0).sum() > 1}, unit)
    every = {**read.sizes, **{name: np.asarray(float(n)) for name, n in sizes.items() if name in read.settings}}
    return replace(read, unit=found, sizes=every)


def _from_wide(table: TableFile) -> Results:
    name_at = table.column("of model names", NAME_COLUMNS)
    settings = tuple(name.strip() for i, name in enumerate(table.header) if i != name_at)
    if twice := [name for name in dict.fromkeys(settings) if settings.count(name) > 1]:
        raise StudyError(f"{table.name} has a duplicate setting", found=listed(twice))
    seen: dict[str, FloatArray] = {}
    again = []
    for line, row in enumerate(table.rows, start=2):
        name = str(row[name_at]).strip()
        values = np.array([table.number(line, i) for i in range(len(row)) if i != name_at])
        if name in seen:
            if not np.array_equal(seen[name], values, equal_nan=True):
                raise StudyError(
                    f"{table.name} has two different rows for one model",
                    found=f"{name!r}, the second in line {line}",
                    hint="drop or rename one of them",
                )
            again.append(name)
        seen[name] = values
    values = np.array(list(seen.values())).reshape(len(seen), len(settings))
    return Results(tuple(seen), settings, values, FRACTION, notes=tuple(left_out("repeated rows read once", again)))


def _from_long(table: TableFile) -> Results:
    name_at, setting_at = table.column("of model names", NAME_COLUMNS), table.lowered.index("setting")
    value_at, (n_at, metric_at) = table.lowered.index("value"), (table.find(["n"]), table.find(["metric"]))
    several = metric_at is not None and len({str(row[metric_at]) for row in table.rows}) > 1
    cells: dict[tuple[str, str], tuple[float, float]] = {}
    for line, row in enumerate(table.rows, start=2):
        setting = str(row[setting_at]).strip()
        if several and metric_at is not None:  # top-1 and top-5 of one setting are two columns
            setting = f"{setting}:{row[metric_at]}"
        found = table.number(line, value_at), float("nan") if n_at is None else table.number(line, n_at)
        key = (str(row[name_at]).strip(), setting)
        if cells.setdefault(key, found) != found:
            raise StudyError(f"{table.name} has two values for one model and setting", found=f"{key[0]}, {key[1]}")
    return _pivot(cells)


@dataclass(frozen=True)
class TableFile:
    """A .parquet file, or any other as CSV: a header, and rows of the same length."""

    name: str
    header: list[str]
    rows: list[Sequence[object]]

    @classmethod
    def read(cls, path: str | Path) -> TableFile:
        import csv

        path = Path(path)
        if not path.is_file():
            raise StudyError(f"no table at {path}", expected="a .csv or .parquet file")
        try:
            if path.suffix.lower() in (".parquet", ".pq"):
                from pyarrow.parquet import read_table

                table = read_table(path)
                lines = [table.column_names, *zip(*(column.to_pylist() for column in table.columns), strict=True)]
            else:  # utf-8-sig: spreadsheets put a mark before the first name
                with path.open(newline="", encoding="utf-8-sig") as stream:
                    lines = [line for line in csv.reader(stream) if line]
        except (OSError, ValueError, csv.Error) as error:  # Arrow's and Unicode's errors are values, too
            raise StudyError(
                f"{path.name} can't be read as a table",
                found=str(error).splitlines()[0],
                expected=".csv (UTF-8) or .parquet",
            ) from error
        if not lines or not lines[0]:
            raise StudyError(f"{path.name} is empty")
        for line, row in enumerate(lines, start=1):
            if len(row) != len(lines[0]):
                wrong = f"{path.name}, line {line} and the header differ in length"
                raise StudyError(wrong, found=len(row), expected=len(lines[0]))
        return cls(path.name, [str(cell) for cell in lines[0]], lines[1:])

    @property
    def lowered(self) -> list[str]:
        return [name.strip().lower() for name in self.header]

    def find(self, names: Sequence[str]) -> int | None:
        """Place of the first of the names that the header has, whatever its case."""
        return next((self.lowered.index(name) for name in names if name in self.lowered), None)

    def column(self, what: str, names: Sequence[str]) -> int:
        at = self.find(names)
        if at is None:
            expected = f"a column {' or '.join(map(repr, filter(None, names)))}"
            raise StudyError(f"{self.name} has no column {what}", found=listed(self.header), expected=expected)
        return at

    def percent_signs(self, columns: Sequence[int]) -> set[bool]:
        """Whether the numbers in these columns end in %; both if some do and others do not."""
        cells = (str(row[i]).strip() for row in self.rows for i in columns)
        return {cell.endswith("%") for cell in cells if cell.lower() not in _MISSING}

    def number(self, line: int, at: int) -> float:
        """The number in a cell; nan if it is empty or marked as missing. The header is line 1."""
        cell = self.rows[line - 2][at]
        if isinstance(cell, int | float):
            return float(cell)
        text = "" if cell is None else str(cell).strip()
        if text.lower() in _MISSING:
            return float("nan")
        try:
            return float(text.removesuffix("%"))
        except ValueError:
            raise StudyError(
                f"{self.name}, line {line}, column {self.header[at]!r} is not a number",
                found=repr(text),
                expected="a number, or an empty cell if it is missing",
            ) from None
