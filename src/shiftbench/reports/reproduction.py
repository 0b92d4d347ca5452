"""Published numbers beside recomputed ones: one table per claim, under the paper that makes it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from shiftbench.errors import listed
from shiftbench.grouping import by_key
from shiftbench.published.reproduce import MARKS, TITLES, Checked, CheckedNumber, Recomputed
from shiftbench.published.reproduce.base import ABSENT, DIFFERS, KINDS, SAME, needed
from shiftbench.reports import formatting
from shiftbench.reports.table import Number, Row, Table, columns_of
from shiftbench.studies.base import count_of

#: Published numbers that are quoted of a claim that can't be recomputed, and models of one that differs.
_MAX_QUOTED = 4
_FOLDERS = (
    "the folders hold the testbed's public table (robustness_top1s.csv) and 004's released predictions; without them "
    "only the tables in the package are compared"
)


def reproduction_table(
    checked: Sequence[Checked], *, command: str = "", revisions: Sequence[Row] = (), annotated: Sequence[Row] = ()
) -> Table:
    """What ``shiftbench reproduce`` prints.

    ``revisions`` and ``annotated`` are the rows of ``released_revisions`` and ``released_annotated``.

    >>> from shiftbench.published.reproduce import reproduce
    >>> print("\\n".join(reproduction_table(reproduce("002")).to_text(80).splitlines()[13:16]))
                recomputed  published  difference  mark
    ───────────────────────────────────────────────────────
    SqueezeNet       104.5      104.4       +0.07  rounding
    """
    counts = _counts(checked)
    by_paper = by_key((check.claim.paper, check) for check in checked)
    parts = [_paper_table(paper, checks) for paper, checks in by_paper.items()]
    data: dict[str, object] = {
        "marks": dict(MARKS),
        "kinds": dict(KINDS),
        "counts": counts,
        "by_kind": {kind: _counts(_of_kind(checked, kind)) for kind in KINDS},
        "papers": [_paper_data(paper, checks) for paper, checks in by_paper.items()],
    }
    if revisions:
        title = "004, figures 7 and 8: accuracy on the revisions of ImageNetV2, from released predictions"
        parts.append(Table(columns_of("revisions"), list(revisions), title=title, heading=2))
        data["revisions"] = list(revisions)
    if annotated:
        title = "004, figure 16: accuracy on the annotated original images, from released predictions"
        note = "the figure divides these images by selection frequency, which this release does not have"
        parts.append(Table(columns_of("annotated"), list(annotated), title=title, notes=[note], heading=2))
        data["annotated"] = list(annotated)
    rows = _rows(checked)
    return Table(
        columns_of("reproduction"),
        rows,
        shown=[],
        keys=list(rows[0]) if rows else [],
        title="Published numbers, recomputed",
        notes=_notes(checked, counts, command),
        parts=parts,
        data=data,
        heading=1,
        command=command,
    )


def _rows(checked: Sequence[Checked]) -> list[Row]:
    """All numbers of all claims."""
    rows: list[Row] = []
    for check in checked:
        claim = check.claim
        for row in check.rows:
            rows.append(
                {
                    "paper": claim.paper,
                    "place": claim.place,
                    "claim": claim.what,
                    **row.as_dict(),
                    "kind": claim.kind,
                    "recomputed_from": claim.source,
                }
            )
    return rows


def _notes(checked: Sequence[Checked], counts: Mapping[str, int], command: str) -> list[str]:
    notes = [f"{shown_mark(mark)}: {meaning}" for mark, meaning in MARKS.items() if counts[mark]]
    if any(check.groups for check in checked):
        notes.append("k of n: k of the n numbers of a table print the same; difference: the largest of all")
    if " DIR" in command:
        notes.append(_FOLDERS)
    return notes


def _paper_table(paper: str, checked: Sequence[Checked]) -> Table:
    lead = []
    # Each kind has its own line: that printed numbers agree is no evidence about models.
    for kind, meaning in KINDS.items():
        counts = []
        for mark, n in _counts(_of_kind(checked, kind)).items():
            if n > 0:
                counts.append(f"{formatting.count(n)} {shown_mark(mark)}")
        if counts:
            lead.append(f"{_capitalised(meaning)}: {', '.join(counts)}")
    return Table(
        columns_of("reproduction"),
        (),
        title=f"{paper}: {TITLES[paper]}",
        lead=lead,
        parts=[_claim_table(check) for check in checked],
        heading=2,
    )


def _paper_data(paper: str, checked: Sequence[Checked]) -> dict[str, object]:
    claims = [check.as_dict() for check in checked]
    return {"paper": paper, "title": TITLES[paper], "counts": _counts(checked), "claims": claims}


def _of_kind(checked: Sequence[Checked], kind: str) -> list[Checked]:
    return [check for check in checked if check.claim.kind == kind]


def _capitalised(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def _counts(checked: Sequence[Checked]) -> dict[str, int]:
    total = dict.fromkeys(MARKS, 0)
    for check in checked:
        for mark in MARKS:
            total[mark] += check.counts[mark]
    return total


def shown_mark(mark: str) -> str:
    """What differs must be seen without colours, too."""
    return mark.upper() if mark == DIFFERS else mark


def _claim_table(check: Checked) -> Table:
    """What was recomputed; tables of many numbers as one row per table."""
    claim = check.claim
    shown_rows = _group_rows(check) if check.groups else _number_rows(check)
    remarks = []
    differing = []
    for group in check.groups:
        differing += [f"{row.name} ({_difference_text(row)})" for row in group.compared if row.mark == DIFFERS]
    if differing:
        remarks.append(f"differing: {listed(differing, _MAX_QUOTED)}")
    if claim.remark and shown_rows:
        remarks.append(claim.remark)
    for requirement, waiting in needed(check.rows).items():
        printed = [f"{row.name}: {_published_text(row)}" for row in waiting]
        if len(printed) > _MAX_QUOTED:
            printed = [*printed[:_MAX_QUOTED], f"and {len(printed) - _MAX_QUOTED} more"]
        remarks.append(f"{ABSENT} ({count_of(len(waiting), 'number')}): needs {requirement}")
        remarks.append(f"printed: {'; '.join(printed)}")
    columns = columns_of("reproduction")
    if not any(row.get("expected") for row in shown_rows):
        columns = [column for column in columns if column.key != "expected"]
    return Table(
        columns,
        shown_rows,
        title=f"{_capitalised(claim.place)}: {claim.what}",
        lead=[f"From {claim.source}"] if shown_rows else [],
        notes=remarks,
        heading=3,
    )


def _group_rows(check: Checked) -> list[Row]:
    """One row for each table of many numbers of which some were recomputed."""
    rows: list[Row] = []
    for group in check.groups:
        n = len(group.compared)
        if n:
            rows.append(
                {
                    "name": group.name,
                    "recomputed": f"{group.same} of {n}",
                    "published": f"{n}",
                    "difference": _difference(group.worst),
                    "mark": shown_mark(group.worst.mark),
                }
            )
    return rows


def _number_rows(check: Checked) -> list[Row]:
    """One row for each number that was recomputed."""
    rows: list[Row] = []
    for row in check.rows:
        if row.found is not None:
            rows.append(
                {
                    "name": row.name,
                    "recomputed": _recomputed(row, row.found),
                    "published": _published(row),
                    "difference": _difference(row),
                    "mark": shown_mark(row.mark),
                    "expected": row.expected,
                }
            )
    return rows


def _published_text(row: CheckedNumber) -> str:
    return columns_of("reproduction")[2].cell({"published": _published(row)}).value


def _difference_text(row: CheckedNumber) -> str:
    return columns_of("reproduction")[3].cell({"difference": _difference(row)}).whole


def _recomputed(row: CheckedNumber, found: Recomputed) -> Number:
    if row.printed.relation:
        # A bound has fewer digits than it takes to see on which side of it the number is.
        number = _number(row, found.value)
        return Number(number.value, places=(number.places or 0) + 1)
    # An exact half rounds either way: what prints as the published number is shown as it.
    value = row.printed.value if row.mark == SAME else found.value
    return _number(row, value, found.low, found.high)


def _published(row: CheckedNumber) -> Number | str:
    number = _number(row, row.printed.value, row.printed.low, row.printed.high)
    if row.printed.relation:
        return f"{row.printed.relation} {number.value:.{number.places or 0}f}"
    return number


def _difference(row: CheckedNumber) -> Number:
    """The difference with one more digit than the paper prints."""
    number = _number(row, row.difference or 0.0)
    places = number.places or 0
    if row.printed.rounding:
        places += 1
    return Number(number.value, places=places)


def _number(row: CheckedNumber, value: float, low: float | None = None, high: float | None = None) -> Number:
    """With the digits that the paper prints; a percentage without its sign."""
    rounding = row.printed.rounding
    times = 100.0 if row.printed.unit == "%" and rounding else 1.0
    places = max(0, round(-math.log10(2 * rounding * times))) if rounding else 0
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        return Number(value * times, places=places)
    return Number(value * times, low * times, high * times, places)
