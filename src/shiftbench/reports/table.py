"""One kind of table for all numbers: shown in a terminal, written as Markdown, CSV, LaTeX or JSON."""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, is_dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol

import msgspec
import numpy as np

from shiftbench.errors import ShiftbenchError
from shiftbench.grouping import by_key
from shiftbench.io import html
from shiftbench.io.atomic import write_bytes
from shiftbench.reports import formatting, writers

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

#: What a table holds of a row, by the keys of its columns.
Row = Mapping[str, object]


class Record(Protocol):
    """A row as the code that computes it sees it: a dataclass, whose fields are the keys of JSON and CSV."""

    __dataclass_fields__: ClassVar[dict[str, Field[object]]]


def keys_of(record: type[Record]) -> list[str]:
    """The keys of rows that are such records, in their order."""
    return [declared.name for declared in fields(record)]


def as_row(record: Row | Record) -> Row:
    """The row of a record; its values stay as they are, so that cells keep their types."""
    if not is_dataclass(record):
        assert isinstance(record, Mapping)
        return record
    return {name: getattr(record, name) for name in keys_of(type(record))}


@dataclass(frozen=True)
class Number:
    """A number with its interval: one cell of a table."""

    value: float | None
    low: float | None = None
    high: float | None = None
    #: Decimals; default: those of its column.
    places: int | None = None
    bold: bool = False
    #: Stands behind the value and refers to a note, such as an asterisk.
    mark: str = ""


class Name(NamedTuple):
    text: str
    mark: str


class CellText(NamedTuple):
    value: str
    interval: str = ""
    bold: bool = False
    mark: str = ""

    @property
    def shown(self) -> str:
        return self.value + self.mark

    @property
    def whole(self) -> str:
        return f"{self.shown} {self.interval}".rstrip()


@dataclass(frozen=True)
class Column:
    """A key of the rows, and how its values are shown.

    >>> share = Column("share", "%", "number", ("low", "high"), places=1, times=100)
    >>> share.cell({"share": 0.5, "low": 0.4, "high": 0.6}).whole
    '50.0 [40.0, 60.0]'
    >>> share.cell({"share": Number(0.5, bold=True)}).whole
    '50.0'
    """

    key: str
    heading: str
    #: "model" is the title of a model, "word" text that is never wrapped, "points" are signed numbers, "rank" signed
    #: whole numbers.
    kind: Literal["text", "model", "word", "number", "points", "count", "rank", "p"] = "text"
    #: Keys of the ends of the interval, unless the rows hold a ``Number``.
    ends: tuple[str, str] | None = None
    places: int = 2
    #: Factor of shown values: 100 for fractions.
    times: float = 1.0
    #: Left out first if the terminal is narrow.
    optional: bool = False
    #: A second line of the heading.
    subheading: str = ""
    #: Number of images, shown in a last row.
    n: str = ""
    #: Key of a shorter text, shown where optional columns are left out.
    brief: str = ""
    #: What the keys of a model's id and facts begin with, which ``with_models`` adds to CSV and JSON; None if another
    #: column of the row has the same model.
    facts: str | None = ""

    @property
    def is_name(self) -> bool:
        """Whether the cells are names, which are wrapped where a line is too short for them."""
        return self.kind in ("text", "model")

    @property
    def is_text(self) -> bool:
        return self.is_name or self.kind == "word"

    def cell(self, row: Row) -> CellText:
        value = row.get(self.key)
        if isinstance(value, CellText):
            return value
        if isinstance(value, Name):
            return CellText(self._plain(value.text), mark=value.mark)
        if self.kind not in ("number", "points") or isinstance(value, str):
            return CellText(self._plain(value))
        if isinstance(value, Number):
            return self._number(value)
        if self.ends is None:
            return self._number(Number(_number_in(value)))
        low_key, high_key = self.ends
        low = _number_in(row.get(low_key))
        high = _number_in(row.get(high_key))
        return self._number(Number(_number_in(value), low, high))

    def _number(self, number: Number) -> CellText:
        places = self.places if number.places is None else number.places
        signed = self.kind == "points"
        interval = ""
        if number.low is not None and number.high is not None:
            low = float(number.low) * self.times
            high = float(number.high) * self.times
            interval = formatting.interval(low, high, places, "", signed=signed)
        value = formatting.MISSING
        if number.value is not None:
            value = formatting.number(float(number.value) * self.times, places, "", signed=signed)
        return CellText(value, interval, number.bold, number.mark)

    def _plain(self, value: object) -> str:
        if value == "" or (value is None and self.is_text):
            return ""
        if value is None:
            return formatting.MISSING
        if self.kind in ("p", "rank", "count"):
            number = _number_in(value)
            assert number is not None
            return self._plain_number(number)
        return formatting.one_line(str(value))

    def _plain_number(self, number: float) -> str:
        if self.kind == "p":
            return formatting.p_value(number)
        if self.kind == "rank":
            return f"{int(number):+d}" if int(number) else "0"
        return formatting.count(int(number))


def _number_in(value: object) -> float | None:
    """A number of a row; None where it has none. A text is not read as a number, but refused."""
    if value is None or isinstance(value, float | int):
        return value
    if isinstance(value, np.number):
        return float(value)
    raise TypeError(f"a cell of numbers holds {value!r}")


def columns_of(table: str, *, times: float = 100.0, **headings: str) -> list[Column]:
    """The columns of a table as ``columns.csv`` declares them; those in % are shown ``times`` their values.

    >>> [column.heading for column in columns_of("interventions", group="family")][:3]
    ['shift', 'family', 'models']
    """
    columns = []
    for row in _declared()[table]:
        # An empty field means the default of ``Column``.
        declared: dict[str, object] = {key: row[key] for key in ("key", "kind", "places", "brief", "facts") if row[key]}
        declared["heading"] = headings.get(row["key"], row["heading"])
        declared["times"] = times if row["unit"] == "%" else 1.0
        declared["ends"] = row["ends"].split() or None
        declared["optional"] = bool(row["optional"])
        if declared.get("facts") == "none":
            declared["facts"] = None
        columns.append(msgspec.convert(declared, Column, strict=False))
    return columns


@lru_cache(maxsize=1)
def _declared() -> dict[str, list[dict[str, str]]]:
    with Path(__file__).with_name("columns.csv").open(encoding="utf-8", newline="") as file:
        return by_key((row["table"], row) for row in csv.DictReader(file))


def _one_model() -> dict[str, str]:
    return {"model": ""}


@dataclass(frozen=True)
class ModelRecords:
    """Records in the JSON of a table that name models, in the fields ``models``.

    ``models`` maps each such field to what the keys of the model's id and facts begin with.
    """

    rows: Sequence[Row] | Sequence[Record]
    models: Mapping[str, str] = field(default_factory=_one_model)

    @property
    def as_rows(self) -> list[dict[str, object]]:
        return [dict(as_row(row)) for row in self.rows]


@dataclass(frozen=True)
class Diagram:
    title: str
    #: From the width and whether only ASCII can be shown to lines.
    draw: Callable[[int, bool], list[str]]
    #: Follows the drawing in a terminal.
    legend: str = ""


def interval_chart(
    values: Sequence[tuple[str, Number | None]],
    width: int,
    ascii_only: bool,
    marks: Sequence[float | None] = (),
) -> list[str]:
    """A line per name: its value and interval, and a mark where there is one, on one scale.

    >>> print("\\n".join(interval_chart([("a", Number(0.5, 0.4, 0.6)), ("b", Number(0.6, 0.5, 0.7))], 29, False)))
    a  ├─────●─────┤       50.0
    b        ├─────●─────┤ 60.0
    """
    positions: list[float] = []
    for _, number in values:
        if number is not None and number.low is not None and number.high is not None:
            positions += [float(number.low), float(number.high)]
    if not positions:
        return []
    positions += [mark for mark in marks if mark is not None]
    name_width = max(len(name) for name, _ in values)
    scale = _ChartScale(min(positions), max(positions), cells=max(width - name_width - 2 - 7, 10))
    lines = []
    for (name, number), mark in itertools.zip_longest(values, marks):
        if number is None or number.value is None:
            lines.append(f"{name:<{name_width}}  {formatting.MISSING}")
            continue
        bar = _chart_bar(number, mark, scale, ascii_only)
        lines.append(f"{name:<{name_width}}  {bar} {formatting.number(number.value, 1)}")
    if ascii_only:
        return [formatting.ascii_text(line) for line in lines]
    return lines


class _ChartScale(NamedTuple):
    """The values at the first and the last cell of a chart's bars."""

    low: float
    high: float
    cells: int

    def cell(self, value: float) -> int:
        return round((value - self.low) / ((self.high - self.low) or 1) * (self.cells - 1))


def _chart_bar(number: Number, mark: float | None, scale: _ChartScale, ascii_only: bool) -> str:
    left, line, dot, right, diamond = "|-*|o" if ascii_only else "├─●┤◇"
    bar = [" "] * scale.cells
    if number.low is not None and number.high is not None:
        start = scale.cell(float(number.low))
        stop = scale.cell(float(number.high))
        bar[start : stop + 1] = line * (stop + 1 - start)
        bar[start] = left
        bar[stop] = right
    assert number.value is not None
    bar[scale.cell(float(number.value))] = dot
    if mark is not None:
        bar[scale.cell(mark)] = diamond
    return "".join(bar)


class Table:
    """Rows under columns, with a title, a lead and notes; printed by ``console.print(table)``.

    ``rows`` are the records that CSV and JSON hold in full: dataclasses, or mappings where the keys depend on the data.
    ``shown`` is what people see of them, at most ``most``. ``data`` is the JSON where it holds more than the rows;
    records in it that name models are ``ModelRecords``. ``parts`` are tables below this one, under its title.

    >>> columns = [Column("model", "model", "model"), Column("rho", "rho", "points")]
    >>> table = Table(columns, [{"model": "a", "rho": 1.25}])
    >>> print(table.to_text(40))
    model    rho
    ────────────
    a      +1.25
    <BLANKLINE>
    """

    def __init__(
        self,
        columns: Sequence[Column],
        rows: Sequence[Row] | Sequence[Record],
        *,
        shown: Sequence[Row] | Sequence[Record] | None = None,
        most: int | None = None,
        title: str = "",
        lead: Sequence[str] = (),
        notes: Sequence[str] = (),
        remarks: Sequence[str] = (),
        parts: Sequence[Table] = (),
        diagrams: Sequence[Diagram] = (),
        data: Mapping[str, object] | None = None,
        keys: Sequence[str] | None = None,
        turned: str = "",
        heading: int = 0,
        command: str = "",
    ) -> None:
        self.columns = list(columns)
        # Who reads a value by its key knows its type.
        self.rows: list[Mapping[str, Any]] = [as_row(row) for row in rows]
        self.shown: list[Mapping[str, Any]] = self.rows
        if shown is not None:
            self.shown = [as_row(row) for row in shown]
        self.title = title
        self.lead = list(lead)
        self.notes = [*notes, *remarks]
        if most is not None and len(self.shown) > most:
            self.shown = self.shown[:most]
            self.notes.insert(0, f"first {most} of {len(self.rows):,} rows; write a .csv or .json file for all")
        #: The notes that a figure of the same numbers needs, too.
        self.remarks = list(remarks)
        self.parts = list(parts)
        self.diagrams = list(diagrams)
        self.data = None if data is None else dict(data)
        #: Columns of the CSV file, where they are not those that people see.
        self.keys = keys
        #: What the columns are, if all hold the same kind of number: then rows and columns can change places.
        self.turned = turned
        #: Level of the title in Markdown; 0: bold text.
        self.heading = heading
        #: The command that wrote the table, which Markdown shows, too.
        self.command = command

    def transposed(self) -> Table:
        """The table with rows and columns changed: each column but the first becomes a row."""
        first, *value_columns = self.columns
        columns = [Column("name", self.turned)]
        columns += [Column(str(i), first.cell(row).shown, "number") for i, row in enumerate(self.shown)]
        if any(column.n for column in value_columns):
            columns.append(Column("n", "n", "count"))
        rows = []
        for column in value_columns:
            cells = {str(i): column.cell(row) for i, row in enumerate(self.shown)}
            name = f"{column.heading} {column.subheading}".strip()
            rows.append({"name": name, "n": CellText(column.n), **cells})
        return Table(columns, rows, turned="name")

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        from shiftbench.reports.terminal import render

        yield from render(self, options.max_width, ascii_only=options.ascii_only)

    def to_text(self, width: int = 100, *, ascii_only: bool = False) -> str:
        """What a terminal of that width shows, without colours."""
        from rich.console import Console, Group

        from shiftbench.reports.terminal import render

        console = Console(width=width, file=io.StringIO(), color_system=None, legacy_windows=False)
        with console.capture() as capture:
            console.print(Group(*render(self, width, ascii_only=ascii_only)))
        return "\n".join(line.rstrip() for line in capture.get().splitlines()).strip("\n") + "\n"

    def __str__(self) -> str:
        return self.to_text()

    def __repr__(self) -> str:
        tables = [table for table in (self, *self.parts) if table.shown]
        titles = [self.title, *(table.title for table in tables)]
        title = next(filter(None, titles), "")
        rows = sum(len(table.shown) for table in tables)
        columns = max((len(table.columns) for table in tables), default=0)
        return f"<Table {title!r}: {rows} rows, {columns} columns>"

    def _repr_html_(self) -> str:
        return html.block(self.to_html())

    def to_html(self) -> str:
        """The table as a part of a page of ``shiftbench.extend.html``: with title, lead, notes and the tables below."""
        return writers.to_html(self)

    def to_markdown(self, path: str | Path | None = None) -> str:
        """The table in Markdown; also written to ``path``, if there is one."""
        return _written(writers.to_markdown(self), path)

    def to_csv(self, path: str | Path | None = None) -> str:
        """All rows with all digits, in the unit of the results; also written to ``path``, if there is one."""
        return _written(writers.to_csv(self.csv_keys, self.rows), path)

    @property
    def model_keys(self) -> dict[str, str]:
        """The fields of the rows that hold models, as ``ModelRecords`` take them."""
        prefixes = {}
        for column in self.columns:
            if column.kind == "model" and column.facts is not None:
                prefixes[column.key] = column.facts
        return prefixes

    @property
    def csv_keys(self) -> list[str]:
        if self.keys is not None:
            return list(self.keys)
        keys = []
        for column in self.columns:
            keys += [column.key, *(column.ends or ())]
        return keys

    def to_latex(self, path: str | Path | None = None) -> str:
        """For the package ``booktabs``; also written to ``path``, if there is one."""
        return _written(writers.to_latex(self), path)

    def as_data(self) -> dict[str, Any]:
        """All numbers as JSON-able data; None where a number is not defined."""
        if self.data is None:
            return {"title": self.title, "rows": [dict(row) for row in self.rows], "notes": self.notes}
        values: dict[str, object] = {}
        for key, value in self.data.items():
            values[key] = value.as_rows if isinstance(value, ModelRecords) else value
        return values

    def to_json(self, path: str | Path | None = None) -> str:
        """All numbers as JSON; also written to ``path``, if there is one."""
        return _written(json.dumps(self.as_data(), indent=1, ensure_ascii=False, allow_nan=False) + "\n", path)

    def write(self, path: str | Path) -> Path:
        """Write a file in the format given by its suffix: .md, .csv, .tex, .json or .txt."""
        path = Path(path)
        formats: dict[str, Callable[[], str]] = {
            ".md": self.to_markdown,
            ".csv": self.to_csv,
            ".tex": self.to_latex,
            ".json": self.to_json,
            ".txt": self.to_text,
        }
        if path.suffix.lower() not in formats:
            raise ShiftbenchError(
                "unknown table format", found=path.name, expected=f"a file name that ends in {', '.join(formats)}"
            )
        write_bytes(path, formats[path.suffix.lower()]().encode())
        return path


def _written(text: str, path: str | Path | None) -> str:
    if path is not None:
        Path(path).write_text(text, encoding="utf-8", newline="\n")
    return text
