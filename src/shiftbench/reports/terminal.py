"""Tables in a terminal of any width.

A table that is too wide is not cut off. One whose columns all hold the same kind of number is turned (settings down,
models across), then its intervals move under the values, then it is printed in pieces of some columns each. Any other
table loses its optional columns, then its names are wrapped. What still does not fit becomes a list.
"""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from rich.box import SIMPLE_HEAD, Box
from rich.console import Console, Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from shiftbench.reports import formatting
from shiftbench.reports.table import Column, Table

_ASCII_HEAD = Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)
_GAP = 2
#: A heading is broken into lines rather than make its column wider than this, if its cells are narrower.
_HEADING = 13
#: Names broken into shorter pieces than this can't be read.
_LEAST_NAMES = 12


def render(table: Table, width: int, *, ascii_only: bool) -> Iterator[RenderableType]:
    """Title, lead, the table, the tables below it, notes, diagrams."""
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
        yield _fitting(table, width, ascii_only, clean)
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


def _fitting(table: Table, width: int, ascii_only: bool, clean: Callable[[str], str]) -> RenderableType:
    turned, names = table, max(_LEAST_NAMES, int(0.4 * width))
    ways: list[tuple[Table, Sequence[Column], int | None, bool]] = []
    if table.turned:
        turned = table.transposed()
        ways = [(one, one.columns, names, stacked) for stacked in (False, True) for one in (table, turned)]
    else:
        needed = [replace(one, key=one.brief or one.key) for one in table.columns if not one.optional]
        others = [column for column in needed if column.kind != "text"]
        taken = sum(max(len(one.heading), *(len(one.cell(row).whole) for row in table.shown)) for one in others)
        room = (width - taken - _GAP * len(needed)) // max(1, len(needed) - len(others))
        ways = [(table, table.columns, None, False), (table, needed, None, False)]
        ways += [(table, needed, room, False)] if room >= _LEAST_NAMES else []
    for one, columns, names_width, stacked in ways:
        shape = _shape(one, columns, names_width, stacked, ascii_only, clean)
        if _width(shape) <= width:
            return shape
    narrow = turned if len(table.columns) > len(table.shown) + 1 else table
    pieces = _pieces(narrow, names, width, ascii_only, clean) if table.turned else []
    return Group(*pieces) if pieces else _listed(narrow, width, clean)


def _width(shape: RichTable) -> int:
    return Console(width=10_000).measure(shape).maximum


def _pieces(
    table: Table, names: int, width: int, ascii_only: bool, clean: Callable[[str], str]
) -> list[RenderableType]:
    """Tables of as many columns as fit, each with the names of the rows; none if a single column is too wide."""
    first, *others = table.columns
    pieces: list[RenderableType] = []
    while others:
        shape, taken = None, 0
        while taken < len(others):
            wider = _shape(table, [first, *others[: taken + 1]], names, False, ascii_only, clean)
            if _width(wider) > width:
                break
            shape, taken = wider, taken + 1
        if shape is None:
            return []
        pieces += [Text(), shape] if pieces else [shape]
        others = others[taken:]
    return pieces


def _shape(
    table: Table, columns: Sequence[Column], names: int | None, stacked: bool, ascii_only: bool,
    clean: Callable[[str], str],
) -> RichTable:  # fmt: skip
    """``names``: how wide names may be; ``stacked``: intervals under values."""
    box = _ASCII_HEAD if ascii_only else SIMPLE_HEAD
    shape = RichTable(box=box, show_edge=False, pad_edge=False, padding=(0, _GAP - 1, 0, 0), header_style="bold")
    cells = [[column.cell(row) for column in columns] for row in table.shown]
    for index, column in enumerate(columns):
        heading = [column.heading]
        if table.turned and not column.is_text:
            found = [row[index] for row in cells]
            widest = max(max(len(one.shown), len(one.interval)) if stacked else len(one.whole) for one in found)
            parts = [part for part in (column.heading, column.subheading) if part]
            heading = [line for part in parts for line in formatting.wrap_name(part, max(widest, _HEADING))]
        shape.add_column(
            Text(clean("\n".join(heading))),
            justify="left" if column.is_text else "right",
            no_wrap=True,
            vertical="middle" if stacked and column.is_text else "top",
        )
    for row in cells:
        texts = []
        for column, cell in zip(columns, row, strict=True):
            if names is not None and column.kind == "text":
                cell = cell._replace(value="\n".join(formatting.wrap_name(cell.value, names)))
            text = Text(clean(cell.shown), style="bold" if cell.bold else "")
            if cell.interval:
                text.append("\n" if stacked else " ")
                text.append(clean(cell.interval), style="not bold dim")
            texts.append(text)
        shape.add_row(*texts)
    if any(column.n for column in columns):
        shape.add_row("n", *(column.n for column in columns[1:]), style="dim")
    return shape


def _listed(table: Table, width: int, clean: Callable[[str], str]) -> Text:
    """Each row is its name, then its numbers as running text."""
    text = Text()
    first, *others = table.columns
    for row in table.shown:
        for line in formatting.wrap_name(first.cell(row).whole, width):
            text.append(clean(line) + "\n", style="bold")
        # Non-breaking spaces keep a number with its interval and, where there is room, its name.
        whole = [(f"{one.heading} {one.subheading}".strip(), one.cell(row).whole) for one in others if not one.optional]
        parts = [f"{heading} {text.replace(' ', chr(160))}" for heading, text in whole if text]
        parts = [part.replace(" ", "\u00a0") if len(part) <= width - 3 else part for part in parts]
        lines = textwrap.wrap("; ".join(parts), width - 2, break_on_hyphens=False, break_long_words=False)
        text.append("".join(f"  {clean(line.replace(chr(160), ' '))}\n" for line in lines))
    text.rstrip()
    return text
