"""Tables in a terminal of any width.

A table that is too wide is not cut off. One whose columns all hold the same kind of number is turned (settings down,
models across), its intervals move under the values, and it is split into groups of columns: the shortest layout that
fits is taken. Any other table loses its optional columns, then its names are wrapped, then it becomes a list.
"""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD, Box
from rich.table import Table as RichTable
from rich.text import Text

from shiftbench.reports import formatting
from shiftbench.reports.table import CellText, Table

if TYPE_CHECKING:
    from rich.console import RenderableType

_ASCII_HEAD = Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)
_GAP = 2
#: A heading is broken into lines rather than make its column wider than this, if its cells are narrower.
_HEADING = 13
#: Names broken into shorter pieces than this can't be read.
_LEAST_NAMES = 12
#: A split is worth avoiding even at the price of this many lines.
_JUMP = 10


def render(table: Table, width: int, *, ascii_only: bool) -> Iterator[RenderableType]:
    """Title, lead, the table in one or several pieces, the tables below it, notes, diagrams."""
    clean = formatting.ascii_text if ascii_only else str
    # Notes are indented where they run on, so that the next one is seen to begin.
    wrapper = textwrap.TextWrapper(width, subsequent_indent="  ", break_on_hyphens=False)

    def wrapped(notes: Sequence[str]) -> str:
        return "\n".join(line for note in notes for line in wrapper.wrap(clean(note)))

    if table.title:
        yield Text(clean(table.title), style="bold")
        yield Text()
    if table.lead:
        yield Text(wrapped(table.lead))
        yield Text()
    if table.shown:
        for shape in (_matrix if table.turned else _records)(table, width, ascii_only):
            yield shape
            yield Text()
    for part, following in itertools.zip_longest(table.parts, table.parts[1:]):
        yield from render(part, width, ascii_only=ascii_only)
        if part.notes and (following is not None or table.notes):
            yield Text()
    if table.notes:
        yield Text(wrapped(table.notes), style="dim")
    for diagram in table.diagrams:
        yield Text()
        yield Text(clean(diagram.title), style="bold")
        yield Text("\n".join(diagram.draw(width, ascii_only)))
        if diagram.legend:
            yield Text(clean(diagram.legend), style="dim")


def _plain_table(ascii_only: bool) -> RichTable:
    box = _ASCII_HEAD if ascii_only else SIMPLE_HEAD
    return RichTable(box=box, show_edge=False, pad_edge=False, padding=(0, _GAP - 1, 0, 0), header_style="bold")


def _cell_text(cell: CellText, clean: Callable[[str], str], *, stacked: bool = False) -> Text:
    text = Text(clean(cell.shown), style="bold" if cell.bold else "")
    if cell.interval:
        text.append("\n" if stacked else " ")
        text.append(clean(cell.interval), style="not bold dim")
    return text


def _records(table: Table, width: int, ascii_only: bool) -> Iterator[RenderableType]:
    """A table whose columns are of different kinds.

    All columns, or the needed ones, or these with long names wrapped, or a list: the first that fits.
    """
    from rich.console import Console

    clean, measure = formatting.ascii_text if ascii_only else str, Console(width=10_000)
    needed = [replace(one, key=one.brief or one.key) for one in table.columns if not one.optional]
    others = [column for column in needed if column.kind != "text"]
    taken = sum(max(len(one.heading), *(len(one.cell(row).whole) for row in table.shown)) for one in others)
    room = (width - taken - _GAP * len(needed)) // max(1, len(needed) - len(others))
    for columns, names in ((table.columns, None), (needed, None), (needed, room)):
        if names is not None and names < _LEAST_NAMES:
            continue
        shape = _plain_table(ascii_only)
        for column in columns:
            shape.add_column(clean(column.heading), justify="left" if column.is_text else "right", no_wrap=True)
        for row in table.shown:
            cells = [column.cell(row) for column in columns]
            if names is not None:
                cells = [
                    cell._replace(value="\n".join(formatting.wrap_name(cell.value, names)))
                    if column.kind == "text"
                    else cell
                    for column, cell in zip(columns, cells, strict=True)
                ]
            shape.add_row(*(_cell_text(cell, clean) for cell in cells))
        if measure.measure(shape).maximum <= width:
            yield shape
            return
    yield _listed(table, width, clean)


def _listed(table: Table, width: int, clean: Callable[[str], str]) -> Text:
    """Each row is its name, then its numbers as running text."""
    text = Text()
    first, *others = table.columns
    for row in table.shown:
        for line in formatting.wrap_name(first.cell(row).whole, width):
            text.append(clean(line) + "\n", style="bold")
        # Non-breaking spaces keep a number with its name and its interval.
        whole = [(one.heading, one.cell(row).whole) for one in others if not one.optional]
        parts = [f"{heading} {text}" for heading, text in whole if text]
        parts = [part.replace(" ", "\u00a0") if len(part) <= width - 3 else part for part in parts]
        lines = textwrap.wrap("; ".join(parts), width - 2, break_on_hyphens=False, break_long_words=False)
        text.append("".join(f"  {clean(line.replace(chr(160), ' '))}\n" for line in lines))
    text.rstrip()
    return text


@dataclass(frozen=True)
class _Grid:
    """A table whose columns all hold the same kind of number, without a layout yet: headings and cells."""

    corner: str
    rows: list[str]
    headings: list[tuple[str, str]]
    cells: list[list[CellText]]
    #: The numbers of images of the settings, when they differ: for each row, or for each column.
    row_n: list[str] | None = None
    column_n: list[str] | None = None

    def turned(self, corner: str) -> _Grid:
        rows = [" ".join(part for part in heading if part) for heading in self.headings]
        cells = [list(column) for column in zip(*self.cells, strict=True)]
        return _Grid(corner, rows, [(name, "") for name in self.rows], cells, row_n=self.column_n)

    def heading_lines(self, index: int, cells: int) -> list[str]:
        width = max(cells, _HEADING)
        return [line for part in self.headings[index] if part for line in formatting.wrap_name(part, width)]

    def column_width(self, index: int, stacked: bool) -> int:
        column = [row[index] for row in self.cells]
        widths = [max(len(one.shown), len(one.interval)) if stacked else len(one.whole) for one in column]
        cells = max(*widths, len(self.column_n[index]) if self.column_n else 0)
        return max(cells, *(len(line) for line in self.heading_lines(index, cells)))


@dataclass(frozen=True)
class _GridLayout:
    """One way to print a grid: stacked or inline cells, and groups of columns that fit."""

    grid: _Grid
    stacked: bool
    names: int
    groups: list[list[int]]
    fits: bool

    @staticmethod
    def of(grid: _Grid, width: int, stacked: bool) -> _GridLayout:
        longest = max(len(name) for name in [grid.corner, *grid.rows])
        names = min(longest, max(_LEAST_NAMES, int(width * 0.4)))
        taken = names + (max(map(len, grid.row_n)) + _GAP if grid.row_n else 0)
        widths = [grid.column_width(index, stacked) + _GAP for index in range(len(grid.headings))]
        return _GridLayout(grid, stacked, names, _groups(widths, width - taken), fits=taken + max(widths) <= width)

    @property
    def lines(self) -> int:
        """How long the printed table is; a split one also costs the reader the jump."""
        per_row = 2 if self.stacked else 1
        per_group = 3 + per_row * len(self.grid.rows) + (self.grid.column_n is not None)
        return len(self.groups) * per_group + _JUMP * (len(self.groups) - 1)


def _groups(widths: list[int], room: int) -> list[list[int]]:
    """Columns in as few groups as the room allows, evened out: 3 + 3 reads better than 5 + 1."""
    greedy: list[list[int]] = [[]]
    for index, width in enumerate(widths):
        if greedy[-1] and sum(widths[i] for i in greedy[-1]) + width > room:
            greedy.append([])
        greedy[-1].append(index)
    bounds = [round(i * len(widths) / len(greedy)) for i in range(len(greedy) + 1)]
    even = [list(range(start, stop)) for start, stop in itertools.pairwise(bounds)]
    return even if all(sum(widths[i] for i in group) <= room for group in even) else greedy


def _matrix(table: Table, width: int, ascii_only: bool) -> Iterator[RenderableType]:
    """The plain layout if it fits in one piece; else the shortest that fits, turned or stacked or split."""
    first, *others = table.columns
    grid = _Grid(
        first.heading,
        [first.cell(row).shown for row in table.shown],
        [(column.heading, column.subheading) for column in others],
        [[column.cell(row) for column in others] for row in table.shown],
        column_n=[column.n for column in others] if any(column.n for column in others) else None,
    )
    layout = _GridLayout.of(grid, width, False)
    if not layout.fits or len(layout.groups) > 1:
        turned = grid.turned(table.turned)
        ways = [(grid, True), (turned, False), (turned, True)]
        layouts = [layout, *(_GridLayout.of(one, width, stacked) for one, stacked in ways)]
        layout = min(layouts, key=lambda one: (not one.fits, one.lines))
    for group in layout.groups:
        yield _piece(layout, group, ascii_only=ascii_only)


def _piece(layout: _GridLayout, group: list[int], *, ascii_only: bool) -> RichTable:
    """One group of columns."""
    grid, clean = layout.grid, formatting.ascii_text if ascii_only else str
    shape = _plain_table(ascii_only)
    shape.add_column(Text(clean(grid.corner)), width=layout.names, vertical="middle" if layout.stacked else "top")
    if grid.row_n:
        shape.add_column("n", justify="right", style="dim", no_wrap=True)
    for index in group:
        width = grid.column_width(index, layout.stacked)
        lines = grid.heading_lines(index, width)
        shape.add_column(Text(clean("\n".join(lines))), justify="right", no_wrap=True, min_width=width)
    for number, name in enumerate(grid.rows):
        shown = Text(clean("\n".join(formatting.wrap_name(name, layout.names))))
        cells = [_cell_text(grid.cells[number][index], clean, stacked=layout.stacked) for index in group]
        shape.add_row(shown, *([grid.row_n[number]] if grid.row_n else []), *cells)
    if grid.column_n:
        shape.add_row("n", *(grid.column_n[index] for index in group), style="dim")
    return shape
