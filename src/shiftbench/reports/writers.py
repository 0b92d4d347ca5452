"""Tables as Markdown, HTML, CSV and LaTeX."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from shiftbench.io import html
from shiftbench.reports import formatting

if TYPE_CHECKING:
    from shiftbench.reports.table import CellText, Column, Table

#: In HTML and LaTeX a table of one kind of number with more columns than this is turned, if that makes it narrower.
_WIDE = 6
#: Rows that fit on a page.
_PAGE = 50


def to_markdown(table: Table) -> str:
    """Title, lead, GitHub's pipe table, diagrams, notes, and the tables below."""
    escape = formatting.markdown

    def shown(cell: CellText) -> str:
        value = f"**{escape(cell.value)}**{escape(cell.mark)}" if cell.bold else escape(cell.value) + escape(cell.mark)
        interval = escape(cell.interval)  # its brackets are kept from becoming a link
        if interval and table.turned:
            interval = f"<sub>{interval}</sub>"
        return f"{value} {interval}".rstrip()

    parts = []
    if table.title:
        title = escape(table.title)
        parts.append(f"{'#' * table.heading} {title}\n" if table.heading else f"**{title}**\n")
    if table.lead:
        parts.append("".join(f"{escape(line)}  \n" for line in table.lead))
    if table.command:
        parts.append(f"    {table.command}\n")
    if table.shown:
        headings = [[escape(line) for line in (one.heading, one.subheading) if line] for one in table.columns]
        rows = [[shown(one.cell(row)) for one in table.columns] for row in table.shown]
        if any(column.n for column in table.columns):
            rows.append(["n", *(column.n for column in table.columns[1:])])
        parts.append(markdown_table(list(map("<br>".join, headings)), rows, left=_text_columns(table)))
    parts += [to_markdown(part) for part in table.parts]
    if table.notes:
        parts.append("".join(f"- {escape(note)}\n" for note in table.notes))
    for diagram in table.diagrams:
        parts.append(f"**{escape(diagram.title)}**\n\n```\n" + "\n".join(diagram.draw(80, False)) + "\n```\n")
    return "\n".join(parts)


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """GitHub's pipe table; the first ``left`` columns to the left, numbers to the right."""
    rule = ["---"] * left + ["---:"] * (len(header) - left)
    return "".join(f"| {' | '.join(row)} |\n" for row in [header, rule, *rows])


def to_html(table: Table) -> str:
    """What notebooks show: title, lead, table, the tables below it, notes, diagrams."""

    def heading(column: Column) -> str:
        return html.text(column.heading) + (f"<br>{html.small(column.subheading)}" if column.subheading else "")

    def shown(cell: CellText) -> str:
        value = f"<b>{html.text(cell.value)}</b>" if cell.bold else html.text(cell.value)
        return f"{value}{html.text(cell.mark)}" + (f" {html.small(cell.interval)}" if cell.interval else "")

    parts = [html.title(table.title)] if table.title else []
    parts.append("".join(f"<div>{html.text(line)}</div>" for line in table.lead))
    if table.shown:
        laid_out = _narrower(table)
        rows = [[shown(column.cell(row)) for column in laid_out.columns] for row in laid_out.shown]
        if any(column.n for column in laid_out.columns):
            rows.append([html.small("n"), *(html.small(column.n) for column in laid_out.columns[1:])])
        head = [heading(column) for column in laid_out.columns]
        parts.append(html.table(head, rows, left=_text_columns(laid_out)))
    parts += [to_html(part) for part in table.parts]
    parts.append(html.notes(table.notes))
    for diagram in table.diagrams:
        drawn = "\n".join(diagram.draw(80, False))
        parts.append(f"{html.title(diagram.title)}<pre>{html.text(drawn)}</pre>")
    return "".join(parts)


def to_latex(table: Table) -> str:
    """A ``booktabs`` tabular with its notes below, ready for a table environment; one per part."""
    lines = _tabular(_narrower(table)) if table.shown else []
    notes = [*([table.title] if table.title else []), *table.lead, *table.notes]
    if not table.shown and table.parts:
        notes = table.notes
    lines += [to_latex(part) for part in table.parts]
    lines += [f"\\par{{\\footnotesize {formatting.latex(note)}}}" for note in notes]
    return "\n".join(lines).rstrip("\n") + "\n"


def _tabular(table: Table) -> list[str]:
    escape, left = formatting.latex, _text_columns(table)

    def shown(cell: CellText) -> str:
        value = f"\\textbf{{{escape(cell.value)}}}" if cell.bold else escape(cell.value)
        value += f"$^{{{''.join(formatting.LATEX_MARKS.get(mark, mark) for mark in cell.mark)}}}$" if cell.mark else ""
        interval = escape(cell.interval)
        if interval and table.turned:
            interval = f"{{\\scriptsize {interval}}}"
        return f"{value} {interval}".rstrip()

    def line(row: Sequence[str]) -> str:
        # At the beginning of a row, a bracket or an asterisk would be taken for an option of the line break before.
        return ("{}" if row[0].startswith(("[", "*")) else "") + " & ".join(row) + r" \\"

    header = [[escape(column.heading) for column in table.columns]]
    if any(column.subheading for column in table.columns):
        header.append([escape(column.subheading) for column in table.columns])
    rows = [[shown(one.cell(row)) for one in table.columns] for row in table.shown]
    if any(column.n for column in table.columns):
        rows.append([r"\midrule $n$", *(column.n for column in table.columns[1:])])
    long = len(rows) > _PAGE
    kind = "longtable" if long else "tabular"
    return [
        f"% needs \\usepackage{{booktabs{',longtable' if long else ''}}}",
        f"\\begin{{{kind}}}{{{'l' * left + 'r' * (len(table.columns) - left)}}}",
        "\\toprule",
        *map(line, header),
        "\\midrule",
        *(["\\endhead", "\\bottomrule", "\\endlastfoot"] if long else []),
        *map(line, rows),
        *([] if long else ["\\bottomrule"]),
        f"\\end{{{kind}}}",
    ]


def to_csv(keys: Sequence[str], rows: Sequence[Mapping[str, object]]) -> str:
    def field(value: object) -> str:
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return ""
        if isinstance(value, list | tuple):
            return formatting.csv_text(", ".join(map(str, value)))
        if isinstance(value, float):
            return repr(float(value))
        return str(value) if isinstance(value, int) else formatting.csv_text(str(value))

    return formatting.csv_lines(keys, [[field(row.get(key)) for key in keys] for row in rows])


def plain(fields: Mapping[str, object]) -> dict[str, Any]:
    """The same fields for JSON, which has neither nan nor infinity."""
    return {key: None if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in fields.items()}  # fmt: skip


def _narrower(table: Table) -> Table:
    wide = table.turned and len(table.columns) > max(_WIDE, len(table.shown) + 1)
    return table.transposed() if wide else table


def _text_columns(table: Table) -> int:
    """How many columns at the beginning are text."""
    numbers = [i for i, column in enumerate(table.columns) if not column.is_text]
    return max(numbers[0] if numbers else len(table.columns), 1)
