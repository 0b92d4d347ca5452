"""Studies as tables: for a terminal of any width, Markdown, CSV, LaTeX and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shiftbench.reports import formatting
from shiftbench.reports.base import Report

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

_GAP = 2
#: Names broken into shorter pieces than this can't be read.
_LEAST_NAME = 12


@dataclass(frozen=True)
class Field:
    """One column: a key of the rows and how its values are shown."""

    key: str
    heading: str
    #: "text", "number", "points" (signed), "count", "rank" (signed whole number) or "p".
    kind: str = "text"
    #: Keys of the ends of its interval.
    ends: tuple[str, str] | None = None
    places: int = 2
    #: Values are shown times this: 100 for fractions.
    times: float = 1.0
    #: Left out first where the terminal is narrow.
    optional: bool = False

    def text(self, row: Mapping[str, Any]) -> str:
        value = row.get(self.key)
        if value is None or value == "":
            return "" if self.kind == "text" else formatting.MISSING
        if self.kind in ("number", "points"):
            return formatting.number(float(value) * self.times, self.places, "", signed=self.kind == "points")
        if self.kind == "p":
            return formatting.p_value(float(value))
        if self.kind == "rank":
            return f"{int(value):+d}" if int(value) else "0"
        return formatting.count(int(value)) if self.kind == "count" else formatting.one_line(str(value))

    def interval(self, row: Mapping[str, Any]) -> str:
        if self.ends is None or any(row.get(end) is None for end in self.ends):
            return ""
        low, high = (float(row[end]) * self.times for end in self.ends)
        return formatting.interval(low, high, self.places, "", signed=self.kind == "points")

    def whole(self, row: Mapping[str, Any]) -> str:
        return f"{self.text(row)} {self.interval(row)}".rstrip()


class StudyTable(Report):
    """Rows of a study under a few lines that say what was found.

    >>> table = StudyTable([Field("model", "model"), Field("rho", "rho", "points")], [{"model": "a", "rho": 1.25}])
    >>> print(table.to_text(40))
    model    rho
    ────────────
    a      +1.25
    <BLANKLINE>
    """

    def __init__(
        self,
        fields: Sequence[Field],
        rows: Sequence[Mapping[str, Any]],
        *,
        shown: Sequence[Mapping[str, Any]] | None = None,
        title: str = "",
        lead: Sequence[str] = (),
        notes: Sequence[str] = (),
        data: dict[str, Any] | None = None,
    ) -> None:
        #: ``shown`` is what people see of the rows; CSV and JSON have all.
        self.fields, self.rows = list(fields), list(rows)
        self.shown = self.rows if shown is None else list(shown)
        self.title, self.lead, self.notes, self.data = title, list(lead), list(notes), data

    def renderables(self, width: int, *, ascii_only: bool) -> Iterator[RenderableType]:
        from rich.text import Text

        from shiftbench.reports.terminal import cleaner, note_lines

        clean = cleaner(ascii_only)
        if self.title:
            yield Text(clean(self.title), style="bold")
            yield Text()
        if self.lead:
            yield Text(note_lines(self.lead, width, ascii_only=ascii_only).plain)
            yield Text()
        if self.shown:
            yield self._shape(width, ascii_only=ascii_only)
            yield Text()
        if self.notes:
            yield note_lines(self.notes, width, ascii_only=ascii_only)

    def _shape(self, width: int, *, ascii_only: bool) -> RenderableType:
        """All columns, or the needed ones, or these with long names broken, or a list: the first that fits."""
        from rich.console import Console

        measure = Console(width=10_000)
        needed = [field for field in self.fields if not field.optional]
        for fields, names in ((self.fields, None), (needed, None), (needed, self._name_width(needed, width))):
            if names is not None and names < _LEAST_NAME:
                continue
            table = self._table(fields, names, ascii_only=ascii_only)
            if measure.measure(table).maximum <= width:
                return table
        return self._listed(width, ascii_only=ascii_only)

    def _name_width(self, fields: Sequence[Field], width: int) -> int:
        """What is left for each column of names, beside the numbers."""
        numbers = [field for field in fields if field.kind != "text"]
        taken = sum(max(len(field.heading), *(len(field.whole(row)) for row in self.shown)) for field in numbers)
        return (width - taken - _GAP * len(fields)) // max(1, len(fields) - len(numbers))

    def _table(self, fields: Sequence[Field], names: int | None, *, ascii_only: bool) -> Table:
        from rich.box import SIMPLE_HEAD, Box
        from rich.table import Table
        from rich.text import Text

        from shiftbench.reports.terminal import cleaner

        clean = cleaner(ascii_only)
        plain = Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)
        shape = Table(
            box=plain if ascii_only else SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, _GAP - 1, 0, 0),
            header_style="bold",
        )  # fmt: skip
        for field in fields:
            shape.add_column(clean(field.heading), justify="left" if field.kind == "text" else "right", no_wrap=True)
        for row in self.shown:
            cells = []
            for field in fields:
                shown, interval = field.text(row), field.interval(row)
                if names is not None and field.kind == "text":
                    shown = "\n".join(formatting.wrap_name(shown, names))
                text = Text(clean(shown))
                cells.append(text.append(f" {interval}", style="dim") if interval else text)
            shape.add_row(*cells)
        return shape

    def _listed(self, width: int, *, ascii_only: bool) -> RenderableType:
        """A row is its name, then its numbers as running text."""
        import textwrap

        from rich.text import Text

        from shiftbench.reports.terminal import cleaner

        clean, text = cleaner(ascii_only), Text()
        for row in self.shown:
            for line in formatting.wrap_name(self.fields[0].whole(row), width):
                text.append(clean(line) + "\n", style="bold")
            # Non-breaking spaces keep a number with its name and its interval.
            parts = [
                f"{field.heading} {field.whole(row)}".replace(" ", "\u00a0")
                for field in self.fields[1:]
                if not field.optional and field.whole(row)
            ]
            lines = textwrap.wrap("; ".join(parts), width - 2, break_on_hyphens=False, break_long_words=False)
            text.append("".join(f"  {clean(line.replace(chr(160), ' '))}\n" for line in lines))
        text.rstrip()
        return text

    def to_markdown(self) -> str:
        from shiftbench.reports.writers import markdown_table

        escape = formatting.markdown
        parts = [f"**{escape(self.title)}**\n"] if self.title else []
        parts += ["".join(f"{escape(line)}  \n" for line in self.lead)] if self.lead else []
        if self.shown:
            rows = [[escape(field.whole(row)) for field in self.fields] for row in self.shown]
            parts.append(markdown_table([escape(field.heading) for field in self.fields], rows, left=self._left))
        parts += ["".join(f"- {escape(note)}\n" for note in self.notes)] if self.notes else []
        return "\n".join(parts)

    def to_latex(self) -> str:
        from shiftbench.reports.writers import latex_table

        escape = formatting.latex
        rows = [[escape(field.whole(row)) for field in self.fields] for row in self.shown]
        notes = [*([self.title] if self.title else []), *self.lead, *self.notes]
        return latex_table([[escape(field.heading) for field in self.fields]], rows, notes, left=self._left)

    def to_csv(self) -> str:
        """One row a model, all digits, in the unit of the results."""
        keys: list[str] = []
        for field in self.fields:
            keys += [field.key, *(field.ends or ())]
        rows = [[_csv_field(row.get(key)) for key in keys] for row in self.rows]
        return formatting.csv_lines(keys, rows)

    def as_data(self) -> dict[str, Any]:
        if self.data is not None:
            return self.data
        return {"title": self.title, "rows": [dict(row) for row in self.rows], "notes": self.notes}

    @property
    def _left(self) -> int:
        """How many columns at the beginning are text."""
        count = 0
        for field in self.fields:
            if field.kind != "text":
                break
            count += 1
        return max(count, 1)


def _csv_field(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return formatting.csv_number(value)
    return str(value) if isinstance(value, int) else formatting.csv_text(str(value))
