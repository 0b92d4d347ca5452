"""Tables as Markdown, HTML, CSV and LaTeX."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from shiftbench.io import html
from shiftbench.reports import formatting

if TYPE_CHECKING:
    from shiftbench.reports.table import CellText, Column, Row, Table

#: In HTML and LaTeX a table of one kind of number with more columns than this is turned, if that makes it narrower.
_MAX_COLUMNS = 6
#: Rows that fit on a page.
_MAX_PAGE_ROWS = 50


def to_markdown(table: Table) -> str:
    """Title, lead, GitHub's pipe table, diagrams, notes, and the tables below."""
    escape = formatting.markdown
    blocks = []
    if table.title:
        title = escape(table.title)
        blocks.append(f"{'#' * table.heading} {title}\n" if table.heading else f"**{title}**\n")
    if table.lead:
        blocks.append("".join(f"{escape(line)}  \n" for line in table.lead))
    if table.command:
        blocks.append(f"    {table.command}\n")
    if table.shown:
        header = [_markdown_heading(column) for column in table.columns]
        rows = _cell_texts(table, lambda cell: _markdown_cell(cell, small_interval=bool(table.turned)))
        if any(column.n for column in table.columns):
            rows.append(["n", *(column.n for column in table.columns[1:])])
        blocks.append(markdown_table(header, rows, left=_text_columns(table)))
    blocks += [to_markdown(part) for part in table.parts]
    if table.notes:
        blocks.append("".join(f"- {escape(note)}\n" for note in table.notes))
    for diagram in table.diagrams:
        blocks.append(f"**{escape(diagram.title)}**\n\n```\n" + "\n".join(diagram.draw(80, False)) + "\n```\n")
    return "\n".join(blocks)


def _cell_texts(table: Table, write: Callable[[CellText], str]) -> list[list[str]]:
    """The rows that people see, as texts of one format."""
    return [_row_texts(table, row, write) for row in table.shown]


def _row_texts(table: Table, row: Row, write: Callable[[CellText], str]) -> list[str]:
    return [write(column.cell(row)) for column in table.columns]


def _markdown_heading(column: Column) -> str:
    heading = formatting.markdown(column.heading)
    subheading = formatting.markdown(column.subheading)
    return "<br>".join(line for line in (heading, subheading) if line)


def _markdown_cell(cell: CellText, *, small_interval: bool) -> str:
    escape = formatting.markdown
    value = f"**{escape(cell.value)}**" if cell.bold else escape(cell.value)
    interval = escape(cell.interval)  # Escaping keeps its brackets from becoming a link.
    if interval and small_interval:
        interval = f"<sub>{interval}</sub>"
    return f"{value}{escape(cell.mark)} {interval}".rstrip()


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """GitHub's pipe table; the first ``left`` columns to the left, numbers to the right."""
    rule = ["---"] * left + ["---:"] * (len(header) - left)
    return "".join(f"| {' | '.join(row)} |\n" for row in [header, rule, *rows])


def to_html(table: Table) -> str:
    """What notebooks show: title, lead, table, the tables below it, notes, diagrams."""
    blocks = [html.title(table.title)] if table.title else []
    blocks.append("".join(f"<div>{html.text(line)}</div>" for line in table.lead))
    if table.shown:
        laid_out = _narrower(table)
        rows = _cell_texts(laid_out, _html_cell)
        if any(column.n for column in laid_out.columns):
            rows.append([html.small("n"), *(html.small(column.n) for column in laid_out.columns[1:])])
        header = [_html_heading(column) for column in laid_out.columns]
        blocks.append(html.table(header, rows, left=_text_columns(laid_out)))
    blocks += [to_html(part) for part in table.parts]
    blocks.append(html.notes(table.notes))
    for diagram in table.diagrams:
        drawing = "\n".join(diagram.draw(80, False))
        blocks.append(f"{html.title(diagram.title)}<pre>{html.text(drawing)}</pre>")
    return "".join(blocks)


def _html_heading(column: Column) -> str:
    heading = html.text(column.heading)
    if column.subheading:
        heading += f"<br>{html.small(column.subheading)}"
    return heading


def _html_cell(cell: CellText) -> str:
    value = html.text(cell.value)
    if cell.bold:
        value = f"<b>{value}</b>"
    value += html.text(cell.mark)
    if cell.interval:
        value += f" {html.small(cell.interval)}"
    return value


def to_latex(table: Table) -> str:
    """A ``booktabs`` tabular with its notes below, ready for a table environment; one per part."""
    lines = _tabular(_narrower(table)) if table.shown else []
    lines += [to_latex(part) for part in table.parts]
    notes = [*table.lead, *table.notes]
    if table.title:
        notes.insert(0, table.title)
    if not table.shown and table.parts:
        # The title and the lead of a table that only joins others would stand below all of them.
        notes = table.notes
    lines += [f"\\par{{\\footnotesize {formatting.latex(note)}}}" for note in notes]
    return "\n".join(lines).rstrip("\n") + "\n"


def _tabular(table: Table) -> list[str]:
    """The lines of the table itself; a long one is a ``longtable``, which LaTeX breaks between pages."""
    header = [[formatting.latex(column.heading) for column in table.columns]]
    if any(column.subheading for column in table.columns):
        header.append([formatting.latex(column.subheading) for column in table.columns])
    rows = _cell_texts(table, lambda cell: _latex_cell(cell, small_interval=bool(table.turned)))
    if any(column.n for column in table.columns):
        rows.append([r"\midrule $n$", *(column.n for column in table.columns[1:])])
    text_columns = _text_columns(table)
    alignment = "l" * text_columns + "r" * (len(table.columns) - text_columns)
    if len(rows) > _MAX_PAGE_ROWS:
        return [
            "% needs \\usepackage{booktabs,longtable}",
            f"\\begin{{longtable}}{{{alignment}}}",
            "\\toprule",
            *map(_latex_line, header),
            "\\midrule",
            "\\endhead",
            "\\bottomrule",
            "\\endlastfoot",
            *map(_latex_line, rows),
            "\\end{longtable}",
        ]
    return [
        "% needs \\usepackage{booktabs}",
        f"\\begin{{tabular}}{{{alignment}}}",
        "\\toprule",
        *map(_latex_line, header),
        "\\midrule",
        *map(_latex_line, rows),
        "\\bottomrule",
        "\\end{tabular}",
    ]


def _latex_cell(cell: CellText, *, small_interval: bool) -> str:
    value = formatting.latex(cell.value)
    if cell.bold:
        value = f"\\textbf{{{value}}}"
    if cell.mark:
        marks = "".join(formatting.LATEX_MARKS.get(mark, mark) for mark in cell.mark)
        value += f"$^{{{marks}}}$"
    interval = formatting.latex(cell.interval)
    if interval and small_interval:
        interval = f"{{\\scriptsize {interval}}}"
    return f"{value} {interval}".rstrip()


def _latex_line(cells: Sequence[str]) -> str:
    line = " & ".join(cells) + r" \\"
    # At the beginning of a row, a bracket or an asterisk would be taken for an option of the line break before.
    if cells[0].startswith(("[", "*")):
        return "{}" + line
    return line


def to_csv(keys: Sequence[str], rows: Sequence[Mapping[str, object]]) -> str:
    lines = []
    for row in rows:
        lines.append([_csv_field(row.get(key)) for key in keys])
    return formatting.csv_lines(keys, lines)


def _csv_field(value: object) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, list | tuple):
        return formatting.csv_text(", ".join(map(str, value)))
    if isinstance(value, float):
        return repr(float(value))
    if isinstance(value, int):
        return str(value)
    return formatting.csv_text(str(value))


def plain(fields: Mapping[str, object]) -> dict[str, Any]:
    """The same fields for JSON, which has neither nan nor infinity."""
    return {key: _json_value(value) for key, value in fields.items()}


def _json_value(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _narrower(table: Table) -> Table:
    """The table, turned if it is wide and turning makes it narrower."""
    if table.turned and len(table.columns) > max(_MAX_COLUMNS, len(table.shown) + 1):
        return table.transposed()
    return table


def _text_columns(table: Table) -> int:
    """How many columns at the beginning are text."""
    numbers = [i for i, column in enumerate(table.columns) if not column.is_text]
    return max(numbers[0] if numbers else len(table.columns), 1)
