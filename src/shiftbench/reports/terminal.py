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

from rich.box import SIMPLE_HEAD, Box
from rich.console import Console, Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from shiftbench.reports import formatting
from shiftbench.reports.table import Column, Row, Table

_ASCII_HEAD = Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)
_NO_BREAK = "\N{NO-BREAK SPACE}"


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
        shape = _shape(layout, terminal)
        if _width(shape) <= terminal.width:
            return shape
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
    needed = [replace(column, key=column.brief or column.key) for column in table.columns if not column.optional]
    layouts = [_Layout(table, table.columns), _Layout(table, needed)]
    unwrapped = [column for column in needed if column.kind != "text"]
    taken = 0
    for column in unwrapped:
        cells = [len(column.cell(row).whole) for row in table.shown]
        taken += max(len(column.heading), *cells)
    room = (width - taken - _GAP * len(needed)) // max(1, len(needed) - len(unwrapped))
    if room >= _MIN_NAME_WIDTH:
        layouts.append(_Layout(table, needed, room))
    return layouts


def _width(shape: RichTable) -> int:
    return Console(width=10_000).measure(shape).maximum


def _pieces(table: Table, name_width: int, terminal: _Terminal) -> list[RenderableType]:
    """Tables of as many columns as fit, each with the names of the rows; none if a single column is too wide."""
    names, *columns = table.columns
    pieces: list[RenderableType] = []
    while columns:
        shape = None
        n_columns = 0
        while n_columns < len(columns):
            wider = _shape(_Layout(table, [names, *columns[: n_columns + 1]], name_width), terminal)
            if _width(wider) > terminal.width:
                break
            shape = wider
            n_columns += 1
        if shape is None:
            return []
        if pieces:
            pieces.append(Text())
        pieces.append(shape)
        columns = columns[n_columns:]
    return pieces


def _shape(layout: _Layout, terminal: _Terminal) -> RichTable:
    box = _ASCII_HEAD if terminal.ascii_only else SIMPLE_HEAD
    shape = RichTable(box=box, show_edge=False, pad_edge=False, padding=(0, _GAP - 1, 0, 0), header_style="bold")
    for column in layout.columns:
        shape.add_column(
            Text(terminal.clean("\n".join(_heading_lines(layout, column)))),
            justify="left" if column.is_text else "right",
            no_wrap=True,
            vertical="middle" if layout.stacked and column.is_text else "top",
        )
    for row in layout.table.shown:
        shape.add_row(*(_cell_text(layout, column, row, terminal) for column in layout.columns))
    if any(column.n for column in layout.columns):
        shape.add_row("n", *(column.n for column in layout.columns[1:]), style="dim")
    return shape


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


def _cell_text(layout: _Layout, column: Column, row: Row, terminal: _Terminal) -> Text:
    cell = column.cell(row)
    if layout.name_width is not None and column.kind == "text":
        cell = cell._replace(value="\n".join(formatting.wrap_name(cell.value, layout.name_width)))
    text = Text(terminal.clean(cell.shown), style="bold" if cell.bold else "")
    if cell.interval:
        text.append("\n" if layout.stacked else " ")
        text.append(terminal.clean(cell.interval), style="not bold dim")
    return text


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
