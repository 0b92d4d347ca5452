"""A plain table of results: models by settings, from CSV or Parquet, in percent or fractions.

Two shapes are read. Wide: a first column ``model`` (or ``classifier``), then one column for each setting, empty
where a model was not evaluated. Long, as ``shiftbench table --format csv`` writes it: columns ``classifier`` (or
``model``), ``setting``, ``value`` and perhaps ``metric`` and ``n``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress, product
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from shiftbench.arrays import BoolArray, FloatArray
from shiftbench.errors import check_names, listed
from shiftbench.grouping import repeated
from shiftbench.io.parquet import read_parquet
from shiftbench.studies.base import FRACTION, PERCENT, StudyError, check_unique, left_out, recognise_unit, whole

if TYPE_CHECKING:
    from shiftbench.metrics.base import SettingScore

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
        other_values = other._values_in(settings) * (whole(self.unit) / whole(other.unit))
        sizes = {}
        for name in settings:
            counts = np.concatenate([self._sizes_by_model(name), other._sizes_by_model(name)])
            if not np.isnan(counts).all():
                sizes[name] = counts
        return Results(
            models=(*self.models, *other.models),
            settings=settings,
            values=np.vstack([self._values_in(settings), other_values]),
            unit=self.unit,
            sizes=sizes,
            notes=(*self.notes, *other.notes),
            apart={**self.apart, **other.apart},
        )

    def _values_in(self, settings: Sequence[str]) -> FloatArray:
        """(models, settings) accuracies; nan in settings that this table does not have."""
        values = np.full((len(self.models), len(settings)), np.nan)
        for column, name in enumerate(settings):
            if name in self.settings:
                values[:, column] = self.column(name)
        return values

    def _sizes_by_model(self, setting: str) -> FloatArray:
        return np.broadcast_to(self.sizes.get(setting, np.asarray(np.nan)), len(self.models))

    def with_own(self, own: Results) -> Results:
        """The same with the user's own models below.

        Names that are taken get " (own)" behind them: those of models, and those of settings in which own results are
        on another number of images than any of these. A setting's size, where it is one for all models, is the test
        set's: own results of unknown size have it, too.
        """
        sizes_of_settings = {name: n for name, n in self.sizes.items() if n.ndim == 0}
        shared = {name: n for name, n in sizes_of_settings.items() if name in own.settings}
        names = tuple(own_name(name) if name in self.models else name for name in own.models)
        own = replace(own, models=names, sizes={**shared, **own.sizes})
        for setting in own.sizes:
            if setting not in self.sizes:
                continue
            published_sizes = np.unique(self.sizes[setting])
            own_sizes = own._sizes_by_model(setting)
            is_known = ~np.isnan(own_sizes)
            differ = is_known & ~np.array([same_images(n, published_sizes) for n in own_sizes], bool)
            if differ.any():
                expected = " or ".join(f"{n:,.0f}" for n in published_sizes if not np.isnan(n))
                own = own.set_apart(setting, differ, f"on {own_sizes[differ][0]:,.0f} images, not {expected}")
        return self.joined(own)

    def set_apart(self, setting: str, rows: BoolArray, why: str) -> Results:
        """The same with the results of these models in a setting of their own: they are another measurement."""
        apart = own_name(setting)
        column = self.column(setting)
        column_apart = self.column(apart) if apart in self.settings else np.nan
        moved = self.with_columns(
            {setting: np.where(rows, np.nan, column), apart: np.where(rows, column, column_apart)}
        )
        unknown = np.asarray(np.nan)
        size_apart = np.where(rows, self.sizes.get(setting, unknown), self.sizes.get(apart, unknown))
        return replace(
            moved,
            sizes={**moved.sizes, apart: size_apart},
            apart={**self.apart, setting: why},
            notes=(*self.notes, f"{setting}: own results are kept apart, as {apart}: {why}"),
        )

    def with_columns(self, columns: Mapping[str, FloatArray]) -> Results:
        """The same with further settings; one that is there already is replaced."""
        kept = [i for i, name in enumerate(self.settings) if name not in columns]
        values = np.column_stack([self.values[:, kept], *columns.values()])
        return replace(self, settings=(*(self.settings[i] for i in kept), *columns), values=values)


def own_name(name: str) -> str:
    """What an own model or setting is called where its name is taken."""
    return f"{name} (own)"


def same_images(n: float, sizes: Iterable[float]) -> bool:
    """Whether n images may be a test set of one of these sizes; one image in a thousand may have been unreadable."""
    return any(abs(n - size) <= size / 1000 for size in sizes)


#: A number is compared with at least this many others of its column, all of which are above this many percent.
_FEWEST_OTHERS = 3
_SMALL_PERCENT = 5


class _Cell(NamedTuple):
    """An accuracy, and the number of images behind it; nan if that is not known."""

    value: float
    n: float


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
    if {"setting", "value"} <= set(table.lowered):
        results = _from_long(table)
        accuracy_columns = [table.lowered.index("value")]
    else:
        results = _from_wide(table)
        name_at = table.find(NAME_COLUMNS)
        accuracy_columns = [i for i in range(len(table.header)) if i != name_at]
    signs = table.percent_signs(accuracy_columns)
    if unit is None and signs == {True}:
        unit = PERCENT
    results = _checked(results, unit, sizes or {})
    if True in signs and results.unit == FRACTION:  # 0.7% is percent, even if no number of the table is above 1
        raise StudyError(f"{table.name} has percent signs at some of its fractions", expected="accuracies in one unit")
    return results


def results_from_scores(entries: Iterable[SettingScore], *, metric: str | None = None) -> Results:
    """A table from ``Run.scores()``: fractions, with the scores' own n.

    Scores of one setting that differ in provenance are not directly comparable: a note is added.

    Args:
        entries: The scores of models in settings.
        metric: Only scores of this metric.
    """
    cells: dict[tuple[str, str], _Cell] = {}
    origins: dict[str, set[str]] = {}
    for model, setting, score in entries:
        if metric is not None and score.metric != metric:
            continue
        if (model, setting) in cells:
            raise StudyError(
                f"two scores of {model!r} in {setting!r}",
                expected="one number for each model and setting",
                hint="name one metric, or use a workspace in which each was evaluated once",
            )
        cells[model, setting] = _Cell(float(score.value), float(score.n))
        origins.setdefault(setting, set()).add(score.provenance)
    mixed = [setting for setting, provenances in origins.items() if len(provenances) > 1]
    results = _checked(_pivot(cells), FRACTION, {})
    if mixed:
        results = replace(results, notes=(f"scores of different provenance are compared in {listed(mixed)}",))
    return results


def _pivot(cells: Mapping[tuple[str, str], _Cell]) -> Results:
    """A table from cells by (model, setting), as fractions; rows and columns in the order of the cells."""
    rows: dict[str, int] = {}
    columns: dict[str, int] = {}
    for model, setting in cells:
        rows.setdefault(model, len(rows))
        columns.setdefault(setting, len(columns))
    values = np.full((len(rows), len(columns)), np.nan)
    sizes = np.full((len(rows), len(columns)), np.nan)
    for (model, setting), cell in cells.items():
        values[rows[model], columns[setting]] = cell.value
        sizes[rows[model], columns[setting]] = cell.n
    sizes_by_setting = {}
    for setting, i in columns.items():
        if not np.isnan(sizes[:, i]).all():
            sizes_by_setting[setting] = sizes[:, i]
    return Results(tuple(rows), tuple(columns), values, FRACTION, sizes_by_setting)


def _checked(results: Results, unit: str | None, sizes: Mapping[str, float]) -> Results:
    """The results in the unit that is given or recognised, with further sizes.

    Columns or models in different units are an error. A model with a single accuracy above 0 shows no unit: its
    percent may happen to be below 1.
    """
    if not results.models or not results.settings:
        raise StudyError("the table of results is empty", expected="models in rows, settings in columns")
    check_unique(results.models)
    table_unit = recognise_unit({name: results.values[:, i] for i, name in enumerate(results.settings)}, unit)
    rows = {}
    for model, row in zip(results.models, results.values, strict=True):
        if (row > 0).sum() > 1:
            rows[model] = row
    recognise_unit(rows, unit)
    given_sizes = {name: np.asarray(float(n)) for name, n in sizes.items() if name in results.settings}
    notes = results.notes
    if table_unit == PERCENT:
        notes += tuple(_possible_fractions(results))
    return replace(results, unit=table_unit, sizes={**results.sizes, **given_sizes}, notes=notes)


def _possible_fractions(results: Results) -> list[str]:
    """A note on numbers of a table in percent that are below 1 and fit the others of their column as fractions.

    A model that fails on a setting may have less than 1 %, so the numbers are read as they are.
    """
    suspects: list[str] = []
    for column, setting in enumerate(results.settings):
        values = results.values[:, column]
        larger_values = values[values > 1]
        if len(larger_values) < _FEWEST_OTHERS:
            continue
        lowest = larger_values.min()
        if lowest <= _SMALL_PERCENT:
            continue
        for model, value in zip(results.models, values, strict=True):
            if 0 < value < 1 and lowest <= 100 * value <= larger_values.max():
                suspects.append(f"{model} in {setting} ({value:g})")
    if not suspects:
        return []
    text = "read as percent, but may be meant as fractions, since the others of their columns are far above"
    return [f"{text}: {listed(suspects, 4)}"]


def _from_wide(table: TableFile) -> Results:
    """A table with a row per model and a column per setting."""
    name_at = table.column("of model names", NAME_COLUMNS)
    settings = tuple(name.strip() for i, name in enumerate(table.header) if i != name_at)
    if duplicates := repeated(settings):
        raise StudyError(f"{table.name} has a duplicate setting", found=listed(duplicates))
    rows: dict[str, FloatArray] = {}
    repeated_rows = []
    for line, row in enumerate(table.rows, start=2):
        name = str(row[name_at]).strip()
        values = np.array([table.number(line, i) for i in range(len(row)) if i != name_at])
        if name in rows:
            if not np.array_equal(rows[name], values, equal_nan=True):
                raise StudyError(
                    f"{table.name} has two different rows for one model",
                    found=f"{name!r}, the second in line {line}",
                    hint="drop or rename one of them",
                )
            repeated_rows.append(name)
        rows[name] = values
    # A table without rows has the right number of columns all the same.
    values = np.array(list(rows.values())).reshape(len(rows), len(settings))
    notes = left_out("repeated rows read once", repeated_rows)
    return Results(tuple(rows), settings, values, FRACTION, notes=tuple(notes))


def _from_long(table: TableFile) -> Results:
    """A table with a row per model and setting; a column ``metric`` makes several columns of a setting."""
    name_at = table.column("of model names", NAME_COLUMNS)
    setting_at = table.lowered.index("setting")
    value_at = table.lowered.index("value")
    n_at = table.find(["n"])
    metric_at = table.find(["metric"])
    several_metrics = metric_at is not None and len({str(row[metric_at]) for row in table.rows}) > 1
    cells: dict[tuple[str, str], _Cell] = {}
    for line, row in enumerate(table.rows, start=2):
        model = str(row[name_at]).strip()
        setting = str(row[setting_at]).strip()
        if several_metrics and metric_at is not None:  # top-1 and top-5 of one setting are two columns
            setting = f"{setting}:{row[metric_at]}"
        n = float("nan") if n_at is None else table.number(line, n_at)
        cell = _Cell(table.number(line, value_at), n)
        earlier = cells.setdefault((model, setting), cell)
        if earlier is not cell and not np.array_equal(earlier, cell, equal_nan=True):
            raise StudyError(f"{table.name} has two values for one model and setting", found=f"{model}, {setting}")
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
            lines = _parquet_lines(path) if path.suffix.lower() in (".parquet", ".pq") else _csv_lines(path)
        except (OSError, ValueError, csv.Error) as error:  # Arrow's and Unicode's errors are ValueErrors, too
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
        """The header in lower case."""
        return [name.strip().lower() for name in self.header]

    def find(self, names: Sequence[str]) -> int | None:
        """Position of the first of the names that the header has, whatever its case."""
        titles = self.lowered
        return next((titles.index(name) for name in names if name in titles), None)

    def column(self, description: str, names: Sequence[str]) -> int:
        """Position of the first of the names that the header has; an error with the description if it has none."""
        position = self.find(names)
        if position is None:
            expected = f"a column {' or '.join(map(repr, filter(None, names)))}"
            raise StudyError(f"{self.name} has no column {description}", found=listed(self.header), expected=expected)
        return position

    def percent_signs(self, columns: Sequence[int]) -> set[bool]:
        """Whether the numbers in these columns end in %; both if some do and others do not."""
        signs = set()
        for row, column in product(self.rows, columns):
            cell = str(row[column]).strip()
            if cell.lower() not in _MISSING:
                signs.add(cell.endswith("%"))
        return signs

    def number(self, line: int, column: int) -> float:
        """The number in a cell; nan if it is empty or marked as missing. The header is line 1."""
        cell = self.rows[line - 2][column]
        if isinstance(cell, int | float):
            return float(cell)
        text = "" if cell is None else str(cell).strip()
        if text.lower() in _MISSING:
            return float("nan")
        try:
            return float(text.removesuffix("%"))
        except ValueError:
            raise StudyError(
                f"{self.name}, line {line}, column {self.header[column]!r} is not a number",
                found=repr(text),
                expected="a number, or an empty cell if it is missing",
            ) from None


def _parquet_lines(path: Path) -> list[Sequence[object]]:
    table = read_parquet(path)
    columns = [column.to_pylist() for column in table.columns]
    return [table.column_names, *zip(*columns, strict=True)]


def _csv_lines(path: Path) -> list[Sequence[object]]:
    import csv

    # utf-8-sig: spreadsheets put a mark before the first name
    with path.open(newline="", encoding="utf-8-sig") as stream:
        return [line for line in csv.reader(stream) if line]
