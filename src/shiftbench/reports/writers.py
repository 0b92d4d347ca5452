"""Tables as Markdown, HTML, CSV and LaTeX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from shiftbench.io import html
from shiftbench.reports import formatting

if TYPE_CHECKING:
    from shiftbench.reports.table import CellText, Column, Table


def to_markdown(table: Table) -> str:
    """Title, lead, GitHub's pipe table, diagrams, notes, and the tables below."""
    escape = formatting.markdown
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
        rows = [
            [_markdown_cell(one.cell(row), small=bool(table.turned)) for one in table.columns] for row in table.shown
        ]
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


#: A table of one kind of number with more columns than this is turned, if that makes it narrower.
_WIDE = 6


def to_html(table: Table) -> str:
    """What notebooks show: title, lead, table, the tables below it, notes, diagrams."""
    parts = [html.title(table.title)] if table.title else []
    parts.append("".join(f"<div>{html.text(line)}</div>" for line in table.lead))
    if table.shown:
        turned = table.turned and len(table.columns) > max(_WIDE, len(table.shown) + 1)
        parts.append(_turned_html(table) if turned else _plain_html(table))
    parts += [to_html(part) for part in table.parts]
    parts.append(html.notes(table.notes))
    parts += [
        f"{html.title(diagram.title)}<pre>{html.text(chr(10).join(diagram.draw(80, False)))}</pre>"
        for diagram in table.diagrams
    ]
    return "".join(parts)


def _plain_html(table: Table) -> str:
    rows = [[_html_cell(column.cell(row)) for column in table.columns] for row in table.shown]
    if any(column.n for column in table.columns):
        rows.append([html.small("n"), *(html.small(column.n) for column in table.columns[1:])])
    return html.table([_html_heading(column) for column in table.columns], rows, left=_text_columns(table))


def _turned_html(table: Table) -> str:
    first, *others = table.columns
    with_n = any(column.n for column in others)
    head = [html.text(table.turned), *(html.text(first.cell(row).shown) for row in table.shown), *["n"] * with_n]
    rows = [
        [
            _html_heading(one).replace("<br>", " "),
            *(_html_cell(one.cell(row)) for row in table.shown),
            *[html.small(one.n)] * with_n,
        ]
        for one in others
    ]
    return html.table(head, rows)


def _html_heading(column: Column) -> str:
    return html.text(column.heading) + (f"<br>{html.small(column.subheading)}" if column.subheading else "")


def _html_cell(cell: CellText) -> str:
    value = f"<b>{html.text(cell.value)}</b>" if cell.bold else html.text(cell.value)
    return f"{value}{html.text(cell.mark)}" + (f" {html.small(cell.interval)}" if cell.interval else "")


def to_latex(table: Table) -> str:
    """A ``booktabs`` tabular with its notes below, ready for a table environment; one per part."""
    lines = _tabular(table) if table.shown else []
    notes = [*([table.title] if table.title else []), *table.lead, *table.notes]
    if not table.shown and table.parts:
        notes = table.notes
    lines += [to_latex(part) for part in table.parts]
    lines += [f"\\par{{\\footnotesize {formatting.latex(note)}}}" for note in notes]
    return "\n".join(lines).rstrip("\n") + "\n"


def _tabular(table: Table) -> list[str]:
    escape, left = formatting.latex, _text_columns(table)
    header = [[escape(column.heading) for column in table.columns]]
    if any(column.subheading for column in table.columns):
        header.append([escape(column.subheading) for column in table.columns])
    rows = [[_latex_cell(one.cell(row), small=bool(table.turned)) for one in table.columns] for row in table.shown]
    if any(column.n for column in table.columns):
        rows.append([r"\midrule $n$", *(column.n for column in table.columns[1:])])
    long = len(rows) > _PAGE
    kind = "longtable" if long else "tabular"
    return [
        f"% needs \\usepackage{{booktabs{',longtable' if long else ''}}}",
        f"\\begin{{{kind}}}{{{'l' * left + 'r' * (len(table.columns) - left)}}}",
        "\\toprule",
        *(" & ".join(row) + r" \\" for row in header),
        "\\midrule",
        *(["\\endhead", "\\bottomrule", "\\endlastfoot"] if long else []),
        *(" & ".join(row) + r" \\" for row in rows),
        *([] if long else ["\\bottomrule"]),
        f"\\end{{{kind}}}",
    ]


def to_csv(keys: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> str:
    return formatting.csv_lines(keys, [[_csv_field(row.get(key)) for key in keys] for row in rows])


def _csv_field(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        return formatting.csv_text(", ".join(map(str, value)))
    if isinstance(value, float):
        return formatting.csv_number(value)
    return str(value) if isinstance(value, int) else formatting.csv_text(str(value))


def plain(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The same fields for JSON, which has neither nan nor infinity."""
    return {k: formatting.json_number(v) if isinstance(v, float) else v for k, v in fields.items()}


def _text_columns(table: Table) -> int:
    """How many columns at the beginning are text."""
    numbers = [i for i, column in enumerate(table.columns) if not column.is_text]
    return max(numbers[0] if numbers else len(table.columns), 1)


def _markdown_cell(cell: CellText, *, small: bool) -> str:
    value, mark = formatting.markdown(cell.value), formatting.markdown(cell.mark)
    value = f"**{value}**{mark}" if cell.bold else value + mark
    # Brackets are kept from becoming a link.
    interval = formatting.markdown(cell.interval)
    if not interval:
        return value
    return f"{value} <sub>{interval}</sub>" if small else f"{value} {interval}"


_LATEX_MARKS = {"†": r"\dagger", "★": r"\star"}
#: Rows that fit on a page.
_PAGE = 50


def _latex_cell(cell: CellText, *, small: bool) -> str:
    value = formatting.latex(cell.value)
    value = f"\\textbf{{{value}}}" if cell.bold else value
    value += f"$^{{{_LATEX_MARKS.get(cell.mark, cell.mark)}}}$" if cell.mark else ""
    if not cell.interval:
        return value
    interval = formatting.latex(cell.interval)
    return f"{value} {{\\scriptsize {interval}}}" if small else f"{value} {interval}"
