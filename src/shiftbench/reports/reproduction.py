"""Published numbers beside recomputed ones: one block a paper, one paragraph a claim."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shiftbench.errors import listed
from shiftbench.published.reproduce import MARKS, TITLES, Checked, Comparison
from shiftbench.published.reproduce.base import ABSENT, DIFFERS, SAME, Group, needed
from shiftbench.reports import formatting
from shiftbench.reports.base import Report
from shiftbench.studies.base import count_of

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

_GAP = 2
_INDENT = 2
#: A column of names narrower than this is put on lines of its own instead.
_LEAST_NAME = 18
_STYLES = {"same": "green", "rounding": "green", "interval": "yellow", "differs": "bold red"}
_HEADINGS = ("", "recomputed", "published", "differ.", "mark")
#: So many published numbers are quoted of a claim that can't be recomputed, and so many models of one that differs.
_QUOTED = 4
_FOLDERS = (
    " The folders hold the testbed's public result files (one results\\*.csv, one models\\*.csv) and 004's released "
    "predictions; without them the tables in the package are all that is compared."
)


@dataclass(frozen=True)
class Line:
    """One row as text; values and intervals apart, so that a narrow terminal can stack them."""

    name: str
    recomputed: str
    recomputed_interval: str
    published: str
    published_interval: str
    difference: str
    mark: str

    @property
    def cells(self) -> tuple[str, str, str, str, str]:
        return (
            self.name,
            f"{self.recomputed} {self.recomputed_interval}".rstrip(),
            f"{self.published} {self.published_interval}".rstrip(),
            self.difference,
            shown_mark(self.mark),
        )


def shown_mark(mark: str) -> str:
    """What differs must be seen without colours, too."""
    return mark.upper() if mark == DIFFERS else mark


class Reproduction(Report):
    """What ``shiftbench reproduce`` prints.

    >>> from shiftbench.published.reproduce import reproduce
    >>> print("\\n".join(Reproduction(reproduce("002")).to_text(80).splitlines()[4:8]))
    table 1: mCE is the mean of fifteen corruption errors
      from the CE columns, printed without decimals
      AlexNet                  100.0      100.0     0.00  same
      SqueezeNet               104.5      104.4    +0.07  rounding
    """

    def __init__(self, checked: Sequence[Checked], *, command: str = "") -> None:
        self.checked, self.command = list(checked), command
        self.papers = list(dict.fromkeys(one.claim.paper for one in checked))

    def of(self, paper: str) -> list[Checked]:
        return [one for one in self.checked if one.claim.paper == paper]

    def counts(self, paper: str | None = None) -> dict[str, int]:
        """Numbers by mark."""
        chosen = self.checked if paper is None else self.of(paper)
        return {mark: sum(one.counts[mark] for one in chosen) for mark in MARKS}

    def renderables(self, width: int, *, ascii_only: bool) -> Iterator[RenderableType]:
        from rich.text import Text

        from shiftbench.reports.terminal import cleaner, note_lines

        clean = cleaner(ascii_only)
        for paper in self.papers:
            yield Text("\n".join(_wrapped(clean(f"{paper}: {TITLES[paper]}"), width, "")), style="bold")
            yield Text("\n".join(_wrapped(_counted(self.counts(paper)), width, "")), style="dim")
            yield Text()
            yield from _block(self.of(paper), width, ascii_only=ascii_only)
        yield note_lines(self.notes, width, ascii_only=ascii_only)

    @property
    def notes(self) -> list[str]:
        marks = [f"{shown_mark(mark)}: {meaning}" for mark, meaning in MARKS.items() if self.counts()[mark]]
        counted = ["k of n: so many of a table's numbers print the same; differ.: the largest of all"]
        return [*marks, *(counted if any(one.groups for one in self.checked) else [])]

    def to_markdown(self) -> str:
        escape = formatting.markdown
        parts = ["# Published numbers, recomputed\n"]
        if self.command:
            parts.append(f"Written by `{self.command}`.{_FOLDERS if ' DIR' in self.command else ''}\n")
        parts.append("".join(f"- {escape(note)}\n" for note in self.notes))
        for paper in self.papers:
            parts.append(f"## {paper}: {escape(TITLES[paper])}\n")
            parts.append(f"{_counted(self.counts(paper)).replace('comparisons', 'Comparisons')}.\n")
            parts += [_claim_markdown(one) for one in self.of(paper)]
        return "\n".join(parts)

    def to_latex(self) -> str:
        from shiftbench.reports.writers import latex_table

        header = [[formatting.latex(heading) for heading in ("claim", *_HEADINGS)]]
        rows = [
            [formatting.latex(cell) for cell in (f"{one.claim.paper}, {one.claim.place}", *line.cells)]
            for one in self.checked
            for line in lines_of(one)
        ]
        return latex_table(header, rows, self.notes, left=2)

    def to_csv(self) -> str:
        """Every number, those of counted tables too; fractions where the unit is %."""
        header: list[str] = []
        rows = []
        for one in self.checked:
            for row in one.rows:
                data = {"paper": one.claim.paper, "place": one.claim.place, "claim": one.claim.what, **row.as_dict(),
                        "recomputed_from": one.claim.source}  # fmt: skip
                header = list(data)
                rows.append([_csv_field(value) for value in data.values()])
        return formatting.csv_lines(header, rows)

    def as_data(self) -> dict[str, Any]:
        return {
            "marks": dict(MARKS),
            "counts": self.counts(),
            "papers": [
                {
                    "paper": paper,
                    "title": TITLES[paper],
                    "counts": self.counts(paper),
                    "claims": [one.as_dict() for one in self.of(paper)],
                }
                for paper in self.papers
            ],
        }


def lines_of(one: Checked) -> list[Line]:
    """The rows that people see: what was recomputed, counted tables as one row a table."""
    groups = one.groups
    if groups:
        return [_group_line(group) for group in groups if group.compared]
    return [_line(row) for row in one.rows if row.found is not None]


def remarks_of(one: Checked) -> list[str]:
    """What is said under a claim: numbers that differ in counted tables, what is missing, how to read it."""
    remarks = []
    differing = [row for group in one.groups for row in group.compared if row.mark == DIFFERS]
    if differing:
        names = [f"{row.name} ({_number(row, row.difference or 0.0, extra=1, signed=True)})" for row in differing]
        remarks.append(f"differing: {listed(names, _QUOTED)}")
    if one.claim.remark and len(lines_of(one)):
        remarks.append(one.claim.remark)
    for what, waiting in needed(one.rows).items():
        printed = [f"{row.name}: {_number(row, row.printed.value)}" for row in waiting]
        more = [f"and {len(printed) - _QUOTED} more"] if len(printed) > _QUOTED else []
        remarks.append(f"{ABSENT} ({count_of(len(waiting), 'number')}): it takes {what}")
        remarks.append(f"printed: {'; '.join([*printed[:_QUOTED], *more])}")
    return remarks


def _line(row: Comparison) -> Line:
    found, printed = row.found, row.printed
    assert found is not None and row.difference is not None
    return Line(
        row.name,
        # An exact half rounds either way: what prints as the published number is shown as it.
        _number(row, printed.value if row.mark == SAME else found.value),
        _interval(row, found.low, found.high),
        _number(row, printed.value),
        _interval(row, printed.low, printed.high),
        _number(row, row.difference, extra=1, signed=True),
        row.mark,
    )


def _group_line(group: Group) -> Line:
    worst, n = group.worst, len(group.compared)
    difference = _number(worst, worst.difference or 0.0, extra=1, signed=True)
    return Line(group.name, f"{group.same} of {n}", "", f"{n}", "", difference, worst.mark)


def _number(row: Comparison, value: float, *, extra: int = 0, signed: bool = False) -> str:
    """With the digits that the paper prints; a percentage without its sign."""
    unit, rounding = row.printed.unit, row.printed.rounding
    times = 100.0 if unit == "%" else 1.0
    if not rounding:
        return formatting.number(value, 0, "", signed=signed)
    places = max(0, round(-math.log10(2 * rounding * times)))
    return formatting.number(value * times, places + extra, "", signed=signed)


def _interval(row: Comparison, low: float | None, high: float | None) -> str:
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        return ""
    return f"[{_number(row, low)}, {_number(row, high)}]"


def _counted(counts: dict[str, int]) -> str:
    return "comparisons: " + ", ".join(f"{formatting.count(n)} {shown_mark(mark)}" for mark, n in counts.items() if n)


def _block(checked: Sequence[Checked], width: int, *, ascii_only: bool) -> Iterator[Text]:
    """The claims of one paper, all on the same columns."""
    from rich.text import Text

    from shiftbench.reports.terminal import cleaner

    clean = cleaner(ascii_only)
    lines = [line for one in checked for line in lines_of(one)]
    widths, stacked = _widths(lines, width)
    if lines:
        yield Text(_row_text(_HEADINGS, widths).rstrip(), style="bold")
    for one in checked:
        yield Text("\n".join(_wrapped(clean(f"{one.claim.place}: {one.claim.what}"), width, "")), style="bold")
        if lines_of(one):
            yield Text("\n".join(_wrapped(clean(f"from {one.claim.source}"), width)), style="dim")
        for line in lines_of(one):
            yield _shown(line, widths, stacked, width, clean(line.name))
        for remark in remarks_of(one):
            yield Text("\n".join(_wrapped(clean(remark), width)), style="dim")
        yield Text()


def _widths(lines: Sequence[Line], width: int) -> tuple[list[int], bool]:
    """Widths of the columns, and whether intervals stand below their values; a first width of 0 puts the names on
    lines of their own."""
    names = max((len(line.name) for line in lines), default=0)
    for stacked in (False, True):
        columns = [[heading, *(_cell(line, i, stacked) for line in lines)] for i, heading in enumerate(_HEADINGS)]
        numbers = [max(map(len, column)) for column in columns[1:]]
        # Intervals that stand below stick out to the left by their own length.
        if stacked:
            for i, ends in enumerate(("recomputed_interval", "published_interval")):
                numbers[i] = max([numbers[i], *(len(getattr(line, ends)) for line in lines)])
        room = width - _INDENT - sum(numbers) - _GAP * len(numbers)
        if room >= min(names, 2 * _LEAST_NAME if not stacked else _LEAST_NAME):
            return [min(room, max(names, _LEAST_NAME)), *numbers], stacked
    return [0, *numbers], True


def _cell(line: Line, index: int, stacked: bool) -> str:
    if stacked and index in (1, 2):
        return line.recomputed if index == 1 else line.published
    return line.cells[index]


def _row_text(cells: Sequence[str], widths: Sequence[int]) -> str:
    """Name to the left, numbers to the right, the mark to the left."""
    name = [cells[0].ljust(widths[0])] if widths[0] else []
    numbers = [cell.rjust(size) for cell, size in zip(cells[1:4], widths[1:4], strict=True)]
    return " " * _INDENT + (" " * _GAP).join([*name, *numbers, cells[4].ljust(widths[4])])


def _shown(line: Line, widths: Sequence[int], stacked: bool, width: int, name: str) -> Text:
    from rich.text import Text

    pieces = formatting.wrap_name(name, widths[0] or width - _INDENT)
    text = Text()
    if not widths[0]:
        text.append("".join(f"{' ' * _INDENT}{piece}\n" for piece in pieces))
        pieces = [""]
    cells = [pieces[0], *(_cell(line, i, stacked) for i in (1, 2, 3))]
    text.append(_row_text([*cells, ""], [*widths[:4], 0]))
    text.append(shown_mark(line.mark), style=_STYLES.get(line.mark, ""))
    below = [line.recomputed_interval, line.published_interval] if stacked else ["", ""]
    for i, piece in enumerate([*pieces[1:], *([""] if len(pieces) == 1 and any(below) else [])]):
        ends = below if i == 0 else ["", ""]
        text.append("\n" + _row_text([piece, *ends, "", ""], widths).rstrip(), style="dim" if not piece else "")
    return text


def _wrapped(text: str, width: int, indent: str = " " * _INDENT) -> list[str]:
    # A percent sign stays with its number.
    text = text.replace(" %", "\u00a0%")
    lines = textwrap.wrap(text, width, initial_indent=indent, subsequent_indent="    ", break_on_hyphens=False)
    return [line.replace("\u00a0", " ") for line in lines]


def _claim_markdown(one: Checked) -> str:
    from shiftbench.reports.writers import markdown_table

    escape = formatting.markdown
    parts = [f"### {escape(one.claim.place[:1].upper() + one.claim.place[1:])}: {escape(one.claim.what)}\n"]
    lines = lines_of(one)
    if lines:
        parts.append(f"From {escape(one.claim.source)}.\n")
        rows = [[escape(cell) for cell in line.cells] for line in lines]
        parts.append(markdown_table([" ", *_HEADINGS[1:3], "difference", "mark"], rows))
    remarks = remarks_of(one)
    return "\n".join([*parts, *(["".join(f"- {escape(remark)}\n" for remark in remarks)] if remarks else [])])


def _csv_field(value: object) -> str:
    if value is None:
        return ""
    return formatting.csv_number(value) if isinstance(value, float) else formatting.csv_text(str(value))
