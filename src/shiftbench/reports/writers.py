"""Tables as Markdown, CSV, LaTeX and JSON."""

from __future__ import annotations

from typing import Any

from shiftbench.metrics.base import Score
from shiftbench.reports import formatting
from shiftbench.reports.tables import Cell, Column, ResultTable

RESULT_FIELDS = (
    "classifier", "setting", "metric", "value", "low", "high", "n", "level", "method", "unit", "provenance"
)  # fmt: skip


def markdown_table(header: list[str], rows: list[list[str]], *, left: int = 1) -> str:
    """GitHub's pipe table; the first ``left`` columns to the left, numbers to the right."""
    rule = ["---"] * left + ["---:"] * (len(header) - left)
    return "".join(f"| {' | '.join(row)} |\n" for row in [header, rule, *rows])


def latex_table(header: list[list[str]], rows: list[list[str]], notes: list[str], *, left: int = 1) -> str:
    """A ``booktabs`` tabular with its notes below, ready for a table environment."""
    shape = "l" * left + "r" * (len(header[0]) - left)
    lines = [
        "% needs \\usepackage{booktabs}",
        f"\\begin{{tabular}}{{{shape}}}",
        "\\toprule",
        *(" & ".join(row) + r" \\" for row in header),
        "\\midrule",
        *(" & ".join(row) + r" \\" for row in rows),
        "\\bottomrule",
        "\\end{tabular}",
        *(f"\\par{{\\footnotesize {formatting.latex(note)}}}" for note in notes),
    ]
    return "\n".join(lines) + "\n"


def result_markdown(table: ResultTable) -> str:
    escape = formatting.markdown
    headings = [[escape(line) for line in table.heading(column) if line] for column in table.columns]
    rows = [
        [escape(name), *(_markdown_cell(table.cell(name, column)) for column in table.columns)]
        for name in table.classifiers
    ]
    if table.columns and not table.same_n:
        rows.append(["n", *(formatting.count(table.n(column)) for column in table.columns)])
    caption = f"**{escape(table.caption)}**\n\n" if table.caption else ""
    notes = "".join(f"- {escape(note)}\n" for note in table.notes())
    return caption + markdown_table(["classifier", *map("<br>".join, headings)], rows) + "\n" + notes


def result_csv(table: ResultTable) -> str:
    """One row a score; values are fractions with all their digits."""
    text, number = formatting.csv_text, formatting.csv_number
    rows = [
        [
            *(text(field) for field in (name, column.setting, score.metric)),
            *(number(field) for field in (score.value, score.low, score.high)),
            str(score.n),
            number(score.level),
            *(text(field) for field in (score.method, score.unit, score.provenance)),
        ]
        for name, column, score in _scores(table)
    ]
    return formatting.csv_lines(RESULT_FIELDS, rows)


def result_latex(table: ResultTable) -> str:
    escape = formatting.latex
    headings = [table.heading(column) for column in table.columns]
    header = [["classifier", *(escape(setting) for setting, _ in headings)]]
    if not table.one_metric:
        header.append(["", *(escape(metric) for _, metric in headings)])
    rows = [
        [escape(name), *(_latex_cell(table.cell(name, column)) for column in table.columns)]
        for name in table.classifiers
    ]
    if table.columns and not table.same_n:
        rows.append([r"\midrule $n$", *(formatting.count(table.n(column)) for column in table.columns)])
    notes = [*([table.caption] if table.caption else []), *table.notes()]
    return latex_table(header, rows, notes)


def result_data(table: ResultTable) -> dict[str, Any]:
    scores = [
        {"classifier": name, "setting": column.setting, **plain(score.as_dict())}
        for name, column, score in _scores(table)
    ]
    return {"title": table.title, "scores": scores, "notes": table.notes()}


def _scores(table: ResultTable) -> list[tuple[str, Column, Score]]:
    pairs = [(name, column) for name in table.classifiers for column in table.columns]
    return [(name, column, score) for name, column in pairs if (score := table.score(name, column)) is not None]


def plain(fields: dict[str, Any]) -> dict[str, Any]:
    return {k: formatting.json_number(v) if isinstance(v, float) else v for k, v in fields.items()}


def _markdown_cell(cell: Cell) -> str:
    star = r"\*" if cell.odd_n else ""
    value = f"**{cell.value}**{star}" if cell.bold else cell.value + star
    # Brackets are kept from becoming a link.
    return f"{value} <sub>{formatting.markdown(cell.interval)}</sub>" if cell.interval else value


def _latex_cell(cell: Cell) -> str:
    value = formatting.latex(cell.value)
    value = f"\\textbf{{{value}}}" if cell.bold else value
    value += "$^{*}$" if cell.odd_n else ""
    return f"{value} {{\\scriptsize {formatting.latex(cell.interval)}}}" if cell.interval else value
