"""Tables in a terminal of any width.

A table that is too wide is not cut off: it is turned (settings down, classifiers across), its intervals move
under the values, and it is split into groups of columns, whichever makes the shortest table that fits.
"""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD, Box
from rich.table import Table
from rich.text import Text

from shiftbench.reports import formatting
from shiftbench.reports.tables import Cell, ResultTable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from shiftbench.metrics.paired import Comparison
    from shiftbench.reports.comparisons import ComparisonTable

_ASCII_HEAD = Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)
_GAP = 2
#: A heading is broken into lines rather than make its column wider than this, if its cells are narrower.
_HEADING = 13
_LEAST_NAMES = 12
#: A split is worth avoiding even at the price of this many lines.
_JUMP = 10


@dataclass(frozen=True)
class Grid:
    """A table without a shape yet: headings and cells, to be laid out in the width there is."""

    corner: str
    rows: list[str]
    headings: list[tuple[str, str]]
    cells: list[list[Cell]]
    #: For each row the n of its images, when the rows are settings and differ in it.
    row_n: list[str] | None = None
    #: For each column its n, when the columns are settings and differ in it.
    column_n: list[str] | None = None

    def turned(self) -> Grid:
        return Grid(
            "setting",
            [" ".join(part for part in heading if part) for heading in self.headings],
            [(name, "") for name in self.rows],
            [list(column) for column in zip(*self.cells, strict=True)],
            row_n=self.column_n,
        )


@dataclass(frozen=True)
class Layout:
    """One way to print a grid: stacked or inline cells, and groups of columns that fit."""

    grid: Grid
    stacked: bool
    names: int
    groups: list[list[int]]
    fits: bool

    @property
    def lines(self) -> int:
        """How long the printed table is; a split one also costs the reader the jump."""
        a_row = 2 if self.stacked else 1
        a_group = 3 + a_row * len(self.grid.rows) + (self.grid.column_n is not None)
        return len(self.groups) * a_group + _JUMP * (len(self.groups) - 1)


def result_table(table: ResultTable, width: int, *, ascii_only: bool) -> Iterator[RenderableType]:
    """The caption, the table in one or several pieces, and the notes."""
    if not table.columns:
        yield Text("no results yet", style="dim")
        return
    clean = cleaner(ascii_only)
    layout = best_layout(_grid(table), width)
    if table.caption:
        yield Text(clean(table.caption), style="bold")
        yield Text()
    for group in layout.groups:
        yield _piece(layout, group, ascii_only=ascii_only)
        yield Text()
    yield note_lines(table.notes(), width, ascii_only=ascii_only)


def comparison_table(table: ComparisonTable, width: int, *, ascii_only: bool) -> Iterator[RenderableType]:
    """One table a setting where it fits, else two or three lines a pair."""
    clean = cleaner(ascii_only)
    if not table.comparisons:
        yield Text("nothing to compare: at least two classifiers are needed", style="dim")
        return
    if table.title:
        yield Text(clean(table.title), style="bold")
        yield Text()
    for setting in table.settings:
        yield Text(clean(table.heading(setting)), style="bold")
        yield Text()
        shapes = (_comparisons(table, setting, brief=brief, ascii_only=ascii_only) for brief in (False, True))
        fitting = (shape for shape in shapes if _natural_width(shape) <= width)
        yield next(fitting, None) or _listed_comparisons(table, table.of(setting), clean)
        yield Text()
    yield note_lines(table.notes(), width, ascii_only=ascii_only)


def _comparisons(table: ComparisonTable, setting: str, *, brief: bool, ascii_only: bool) -> Table:
    """A row a pair; the brief one leaves out what can be had from the other formats."""
    clean = cleaner(ascii_only)
    shape = _plain_table(ascii_only)
    for title in ("first", "second"):
        shape.add_column(title, no_wrap=True)
    full = ("1st", "2nd", "difference", "only 1st", "only 2nd", "p", "p (Holm)")
    for title in ("difference", "p (Holm)") if brief else full:
        shape.add_column(title, justify="right", no_wrap=True)
    shape.add_column("better", no_wrap=True)
    for one in table.of(setting):
        first, second, difference, interval, only_first, only_second, p, p_holm, verdict = map(clean, table.cells(one))
        shown = _with_interval(difference, interval, bold=bool(one.verdict))
        if brief:
            verdict = clean(_which(one))
        better = Text(verdict, style="bold" if one.verdict else "dim")
        row = (shown, p_holm) if brief else (first, second, shown, only_first, only_second, p, p_holm)
        shape.add_row(clean(one.first), clean(one.second), *row, better)
    return shape


def _which(one: Comparison) -> str:
    if not one.verdict:
        return formatting.MISSING
    return "first" if one.verdict == one.first else "second"


def _listed_comparisons(table: ComparisonTable, comparisons: list[Comparison], clean: Callable[[str], str]) -> Text:
    text = Text()
    for one in comparisons:
        _, _, difference, interval, only_first, only_second, p, p_holm, verdict = map(clean, table.cells(one))
        text.append(f"{clean(one.first)} - {clean(one.second)}\n")
        text.append("  ").append_text(_with_interval(difference, interval, bold=bool(one.verdict)))
        text.append(f"  ({only_first} : {only_second})\n", style="dim")
        text.append(f"  p {p}, Holm {p_holm}: ")
        text.append(f"{verdict}{' better' if one.verdict else ''}\n", style="bold" if one.verdict else "dim")
    text.rstrip()
    return text


def _with_interval(value: str, interval: str, *, bold: bool) -> Text:
    text = Text(value, style="bold" if bold else "")
    return text.append(f" {interval}", style="not bold dim") if interval else text


def _natural_width(table: Table) -> int:
    from rich.console import Console

    return Console(width=10_000).measure(table).maximum


def note_lines(notes: list[str], width: int, *, ascii_only: bool) -> Text:
    """The notes, indented where they run on, so that the next one is seen to begin."""
    clean = cleaner(ascii_only)
    wrapper = textwrap.TextWrapper(width, subsequent_indent="  ", break_on_hyphens=False)
    lines = [line for note in notes for line in wrapper.wrap(clean(note))]
    return Text("\n".join(lines), style="dim")


def cleaner(ascii_only: bool) -> Callable[[str], str]:
    return formatting.ascii_text if ascii_only else str


def best_layout(grid: Grid, width: int) -> Layout:
    """The plain layout if it fits in one piece; else the shortest that fits, turned or stacked or split."""
    plain = _layout(grid, width, stacked=False)
    if plain.fits and len(plain.groups) == 1:
        return plain
    turned = grid.turned()
    layouts = [
        plain,
        _layout(grid, width, stacked=True),
        _layout(turned, width, stacked=False),
        _layout(turned, width, stacked=True),
    ]
    return min(layouts, key=lambda layout: (not layout.fits, layout.lines))


def _grid(table: ResultTable) -> Grid:
    cells = [[table.cell(name, column) for column in table.columns] for name in table.classifiers]
    column_n = None if table.same_n else [formatting.count(table.n(column)) for column in table.columns]
    headings = [table.heading(column) for column in table.columns]
    return Grid("classifier", table.classifiers, headings, cells, column_n=column_n)


def _layout(grid: Grid, width: int, stacked: bool) -> Layout:
    longest = max(len(name) for name in [grid.corner, *grid.rows])
    names = min(longest, max(_LEAST_NAMES, int(width * 0.4)))
    taken = names + (max(map(len, grid.row_n)) + _GAP if grid.row_n else 0)
    widths = [_column_width(grid, index, stacked) for index in range(len(grid.headings))]
    groups = _groups(widths, width - taken)
    return Layout(grid, stacked, names, groups, fits=taken + max(widths) + _GAP <= width)


def _groups(widths: list[int], room: int) -> list[list[int]]:
    """Columns in as few groups as the room allows, evened out: 3 + 3 reads better than 5 + 1."""
    greedy: list[list[int]] = [[]]
    for index in range(len(widths)):
        if greedy[-1] and _taken(widths, [*greedy[-1], index]) > room:
            greedy.append([])
        greedy[-1].append(index)
    bounds = [round(i * len(widths) / len(greedy)) for i in range(len(greedy) + 1)]
    even = [list(range(start, stop)) for start, stop in itertools.pairwise(bounds)]
    return even if all(_taken(widths, group) <= room for group in even) else greedy


def _taken(widths: list[int], group: list[int]) -> int:
    return sum(widths[index] + _GAP for index in group)


def _column_width(grid: Grid, index: int, stacked: bool) -> int:
    cells = max(_cell_width(row[index], stacked) for row in grid.cells)
    if grid.column_n:
        cells = max(cells, len(grid.column_n[index]))
    return max(cells, *(len(line) for line in _heading_lines(grid.headings[index], cells)))


def _cell_width(cell: Cell, stacked: bool) -> int:
    if stacked:
        return max(len(cell.shown), len(cell.interval))
    return len(cell.shown) + (1 + len(cell.interval) if cell.interval else 0)


def _heading_lines(heading: tuple[str, str], cells: int) -> list[str]:
    width = max(cells, _HEADING)
    return [line for part in heading if part for line in formatting.wrap_name(part, width)]


def _piece(layout: Layout, group: list[int], *, ascii_only: bool) -> Table:
    """One group of columns as a Rich table."""
    grid = layout.grid
    clean = cleaner(ascii_only)
    table = _plain_table(ascii_only)
    table.add_column(Text(clean(grid.corner)), width=layout.names, vertical="middle" if layout.stacked else "top")
    if grid.row_n:
        table.add_column("n", justify="right", style="dim", no_wrap=True)
    for index in group:
        width = _column_width(grid, index, layout.stacked)
        lines = _heading_lines(grid.headings[index], max(width, _HEADING))
        table.add_column(Text(clean("\n".join(lines))), justify="right", no_wrap=True, min_width=width)
    for number, name in enumerate(grid.rows):
        shown = Text(clean("\n".join(formatting.wrap_name(name, layout.names))))
        cells = [_cell_text(grid.cells[number][index], layout.stacked, clean) for index in group]
        table.add_row(shown, *([grid.row_n[number]] if grid.row_n else []), *cells)
    if grid.column_n:
        table.add_row("n", *(grid.column_n[index] for index in group), style="dim")
    return table


def _plain_table(ascii_only: bool) -> Table:
    return Table(
        box=_ASCII_HEAD if ascii_only else SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, _GAP - 1, 0, 0),
        header_style="bold",
    )


def _cell_text(cell: Cell, stacked: bool, clean: Callable[[str], str]) -> Text:
    text = Text(clean(cell.shown), style="bold" if cell.bold else "")
    if cell.interval:
        text.append("\n" if stacked else " ")
        text.append(clean(cell.interval), style="not bold dim")
    return text
