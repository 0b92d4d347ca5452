"""Tables in a terminal of any width.

A table that is too wide is not cut off. One whose columns all hold the same kind of number is turned (settings down,
models across), then its intervals move under the values, then it is printed in pieces of some columns each. Any other
table loses its optional columns, then its names are wrapped. What still does not fit becomes a list.
"""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.measure import Measurement
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from shiftbench.reports import formatting
from shiftbench.reports.table import Column, Row, Table

_NO_BREAK = "\N{NO-BREAK SPACE}"
_BOLD = Style.parse("bold")
_DIM = Style.parse("not bold dim")
#: Spaces between two columns.
_GAP = 2
#: A heading is broken into lines rather than make its column wider than this, if its cells are narrower.
_MAX_HEADING_WIDTH = 13
#: Names broken into shorter pieces than this can't be read.
_MIN_NAME_WIDTH = 12


@dataclass(frozen=True)
class _Layout:
    """One way to lay out a table."""

    table: Table
    columns: Sequence[Column]
    #: How wide names may be before they are wrapped; None if they are not wrapped.
    name_width: int | None = None
    #: Whether intervals stand under their values.
    stacked: bool = False


@dataclass(frozen=True)
class _Terminal:
    width: int
    ascii_only: bool

    def clean(self, text: str) -> str:
        """The text in the characters that the terminal has."""
        return formatting.ascii_text(text) if self.ascii_only else text

    def wrapped(self, notes: Sequence[str]) -> str:
        # Notes are indented where they run on, so that the next one is seen to begin.
        wrapper = textwrap.TextWrapper(self.width, subsequent_indent="  ", break_on_hyphens=False)
        lines = []
        for note in notes:
            lines += wrapper.wrap(self.clean(note))
        return "\n".join(lines)


def render(table: Table, width: int, *, ascii_only: bool) -> Iterator[RenderableType]:
    """Title, lead, the table, the tables below it, notes, diagrams."""
    terminal = _Terminal(width, ascii_only)
    if table.title:
        yield Text(terminal.clean(table.title), style="bold")
        yield Text()
    if table.lead:
        yield Text(terminal.wrapped(table.lead))
        yield Text()
    if table.shown:
        yield _fitting(table, terminal)
        yield Text()
    for part, following in itertools.zip_longest(table.parts, table.parts[1:]):
        yield from render(part, width, ascii_only=ascii_only)
        if part.notes and (following is not None or table.notes):
            yield Text()
    if table.notes:
        yield Text(terminal.wrapped(table.notes), style="dim")
    for diagram in table.diagrams:
        yield Text()
        yield Text(terminal.clean(diagram.title), style="bold")
        yield Text("\n".join(diagram.draw(width, ascii_only)))
        if diagram.legend:
            yield Text(terminal.clean(diagram.legend), style="dim")


def _fitting(table: Table, terminal: _Terminal) -> RenderableType:
    """The first layout that the terminal is wide enough for."""
    name_width = max(_MIN_NAME_WIDTH, int(0.4 * terminal.width))
    turned = table.transposed() if table.turned else table
    layouts = _turned_layouts(table, turned, name_width) if table.turned else _layouts(table, terminal.width)
    for layout in layouts:
        grid = _fitting_grid(layout, terminal)
        if grid is not None:
            return grid
    narrow = turned if len(table.columns) > len(table.shown) + 1 else table
    if table.turned:
        pieces = _pieces(narrow, name_width, terminal)
        if pieces:
            return Group(*pieces)
    return _listed(narrow, terminal)


def _turned_layouts(table: Table, turned: Table, name_width: int) -> list[_Layout]:
    """As it is or turned, then both with the intervals under the values."""
    return [
        _Layout(table, table.columns, name_width),
        _Layout(turned, turned.columns, name_width),
        _Layout(table, table.columns, name_width, stacked=True),
        _Layout(turned, turned.columns, name_width, stacked=True),
    ]


def _layouts(table: Table, width: int) -> list[_Layout]:
    """In full, then without the optional columns, then with the names wrapped into the room that is left."""
    needed = []
    for column in table.columns:
        if not column.optional:
            needed.append(replace(column, key=column.brief or column.key))
    layouts = [_Layout(table, table.columns), _Layout(table, needed)]
    unwrapped = [column for column in needed if not column.is_name]
    taken = 0
    for column in unwrapped:
        cells = [len(column.cell(row).whole) for row in table.shown]
        taken += max(len(column.heading), *cells)
    room = (width - taken - _GAP * len(needed)) // max(1, len(needed) - len(unwrapped))
    if room >= _MIN_NAME_WIDTH:
        layouts.append(_Layout(table, needed, room))
    return layouts


def _fitting_grid(layout: _Layout, terminal: _Terminal) -> _Grid | None:
    """The table laid out; None as soon as it is known to be wider than the terminal."""
    columns: list[_LaidColumn] = []
    for column in layout.columns:
        columns.append(_laid_column(layout, column, terminal))
        if _total_width(columns) > terminal.width:
            return None
    return _Grid(columns, terminal.ascii_only)


def _pieces(table: Table, name_width: int, terminal: _Terminal) -> list[RenderableType]:
    """Tables of as many columns as fit, each with the names of the rows; none if a single column is too wide."""
    layout = _Layout(table, table.columns, name_width)
    names, *columns = [_laid_column(layout, column, terminal) for column in table.columns]
    pieces: list[RenderableType] = []
    piece = [names]
    for column in columns:
        if _total_width([names, column]) > terminal.width:
            return []
        if _total_width([*piece, column]) > terminal.width:
            pieces += [_Grid(piece, terminal.ascii_only), Text()]
            piece = [names]
        piece.append(column)
    return [*pieces, _Grid(piece, terminal.ascii_only)]


class _CellPart(NamedTuple):
    """A part of a line of a cell."""

    text: str
    style: Style | None


#: The lines of a cell.
_CellLines = list[list[_CellPart]]


@dataclass(frozen=True)
class _LaidColumn:
    """A column as lines of text."""

    heading: list[str]
    cells: list[_CellLines]
    #: The number of images, in a last row.
    n: str
    width: int
    is_left: bool
    is_middle: bool


def _laid_column(layout: _Layout, column: Column, terminal: _Terminal) -> _LaidColumn:
    heading = terminal.clean("\n".join(_heading_lines(layout, column))).split("\n")
    cells = [_cell_lines(layout, column, row, terminal) for row in layout.table.shown]
    widths = [cell_len(line) for line in (*heading, column.n)]
    for lines in cells:
        widths += [_line_width(line) for line in lines]
    return _LaidColumn(
        heading=heading,
        cells=cells,
        n=column.n,
        width=max(widths),
        is_left=column.is_text,
        is_middle=layout.stacked and column.is_text,
    )


def _line_width(line: Sequence[_CellPart]) -> int:
    return sum(cell_len(part.text) for part in line)


def _total_width(columns: Sequence[_LaidColumn]) -> int:
    return sum(column.width for column in columns) + _GAP * (len(columns) - 1)


@dataclass(frozen=True)
class _Grid:
    """Columns side by side, with a rule below the headings.

    rich's own table measures and wraps every cell anew, which takes minutes for tens of thousands of numbers.
    """

    columns: Sequence[_LaidColumn]
    ascii_only: bool

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        width = _total_width(self.columns)
        return Measurement(width, width)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        headings: list[_CellLines] = []
        for column in self.columns:
            headings.append([[_CellPart(line, _BOLD)] for line in column.heading])
        yield from self._row(headings, bottom=True)
        yield Segment(("-" if self.ascii_only else "─") * _total_width(self.columns))
        yield Segment.line()
        for cells in zip(*(column.cells for column in self.columns), strict=True):
            yield from self._row(cells)
        numbers_of_images = [column.n for column in self.columns[1:]]
        if any(numbers_of_images):
            yield from self._row([[[_CellPart(text, _DIM)]] for text in ("n", *numbers_of_images)])

    def _row(self, cells: Sequence[_CellLines], *, bottom: bool = False) -> Iterator[Segment]:
        """The lines of a row; a shorter cell stands at the top, in the middle, or at the bottom."""
        height = max(len(cell) for cell in cells)
        offsets = []
        for column, cell in zip(self.columns, cells, strict=True):
            room = height - len(cell)
            if bottom:
                offsets.append(room)
            else:
                offsets.append(room // 2 if column.is_middle else 0)
        for i in range(height):
            gap = 0
            # Text without a style is collected: rich takes as long for a gap as for a whole line.
            plain = ""
            for column, cell, offset in zip(self.columns, cells, offsets, strict=True):
                line = cell[i - offset] if 0 <= i - offset < len(cell) else []
                room = column.width - _line_width(line)
                if not column.is_left:
                    gap += room
                plain += " " * gap
                for part in line:
                    if part.style is None:
                        plain += part.text
                        continue
                    yield Segment(plain)
                    yield Segment(part.text, part.style)
                    plain = ""
                gap = _GAP
                if column.is_left:
                    gap += room
            yield Segment(plain)
            yield Segment.line()


def _heading_lines(layout: _Layout, column: Column) -> list[str]:
    """The heading of a column; one above numbers is broken so that it makes its column no wider than needed."""
    if not layout.table.turned or column.is_text:
        return [column.heading]
    widths = []
    for row in layout.table.shown:
        cell = column.cell(row)
        if layout.stacked:
            widths += [len(cell.shown), len(cell.interval)]
        else:
            widths.append(len(cell.whole))
    heading_width = max(*widths, _MAX_HEADING_WIDTH)
    lines = []
    for heading in (column.heading, column.subheading):
        if heading:
            lines += formatting.wrap_name(heading, heading_width)
    return lines


def _cell_lines(layout: _Layout, column: Column, row: Row, terminal: _Terminal) -> _CellLines:
    cell = column.cell(row)
    if layout.name_width is not None and column.is_name:
        cell = cell._replace(value="\n".join(formatting.wrap_name(cell.value, layout.name_width)))
    style = _BOLD if cell.bold else None
    lines = [[_CellPart(line, style)] for line in terminal.clean(cell.shown).split("\n")]
    if not cell.interval:
        return lines
    interval = _CellPart(terminal.clean(cell.interval), _DIM)
    if layout.stacked:
        return [*lines, [interval]]
    lines[-1] += [_CellPart(" ", None), interval]
    return lines


def _listed(table: Table, terminal: _Terminal) -> Text:
    """Each row is its name, then its numbers as running text."""
    text = Text()
    names, *columns = table.columns
    for row in table.shown:
        for line in formatting.wrap_name(names.cell(row).whole, terminal.width):
            text.append(terminal.clean(line) + "\n", style="bold")
        # Non-breaking spaces keep a number with its interval and, where there is room, its name.
        numbers = []
        for column in columns:
            cell = column.cell(row).whole
            if column.optional or not cell:
                continue
            heading = f"{column.heading} {column.subheading}".strip()
            number = f"{heading} {cell.replace(' ', _NO_BREAK)}"
            if len(number) <= terminal.width - 3:
                number = number.replace(" ", _NO_BREAK)
            numbers.append(number)
        lines = textwrap.wrap("; ".join(numbers), terminal.width - 2, break_on_hyphens=False, break_long_words=False)
        for line in lines:
            text.append(f"  {terminal.clean(line.replace(_NO_BREAK, ' '))}\n")
    text.rstrip()
    return text
