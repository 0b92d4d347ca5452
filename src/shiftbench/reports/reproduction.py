"""Published numbers beside recomputed ones: one table per claim, under the paper that makes it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from shiftbench.errors import listed
from shiftbench.grouping import by_key
from shiftbench.published.reproduce import MARKS, TITLES, Checked, CheckedNumber
from shiftbench.published.reproduce.base import ABSENT, DIFFERS, KINDS, SAME, needed
from shiftbench.reports import formatting
from shiftbench.reports.table import Number, Row, Table, columns_of
from shiftbench.studies.base import count_of

#: Published numbers that are quoted of a claim that can't be recomputed, and models of one that differs.
_QUOTED = 4
_FOLDERS = (
    "the folders hold the testbed's public table (robustness_top1s.csv) and 004's released predictions; without them "
    "only the tables in the package are compared"
)


def reproduction_table(checked: Sequence[Checked], *, command: str = "", revisions: Sequence[Row] = ()) -> Table:
    """What ``shiftbench reproduce`` prints; ``revisions`` are those of ``released_revisions``.

    >>> from shiftbench.published.reproduce import reproduce
    >>> print("\\n".join(reproduction_table(reproduce("002")).to_text(80).splitlines()[13:16]))
                recomputed  published  difference  mark
    ───────────────────────────────────────────────────────
    SqueezeNet       104.5      104.4       +0.07  rounding
    """
    papers = by_key((one.claim.paper, one) for one in checked)
    counts = _counts(checked)
    notes = [f"{shown_mark(mark)}: {meaning}" for mark, meaning in MARKS.items() if counts[mark]]
    if any(one.groups for one in checked):
        notes.append("k of n: k of the n numbers of a table print the same; difference: the largest of all")
    if " DIR" in command:
        notes.append(_FOLDERS)
    rows = [
        {"paper": one.claim.paper, "place": one.claim.place, "claim": one.claim.what, **row.as_dict(),
         "kind": one.claim.kind, "recomputed_from": one.claim.source}
        for one in checked for row in one.rows
    ]  # fmt: skip
    parts, data = [], []
    for paper, found in papers.items():
        lead = []
        for kind, meaning in KINDS.items():  # agreement of printed numbers is no evidence about models
            of_kind = _counts([one for one in found if one.claim.kind == kind])
            counted = ", ".join(f"{formatting.count(n)} {shown_mark(mark)}" for mark, n in of_kind.items() if n)
            lead += [f"{meaning[:1].upper()}{meaning[1:]}: {counted}"] if counted else []
        claims = [_claim_table(one) for one in found]
        parts.append(
            Table(columns_of("reproduction"), (), title=f"{paper}: {TITLES[paper]}", lead=lead, parts=claims, heading=2)
        )
        as_data = [one.as_dict() for one in found]
        data.append({"paper": paper, "title": TITLES[paper], "counts": _counts(found), "claims": as_data})
    if revisions:
        title = "004, figures 7 and 8: accuracy on the revisions of ImageNetV2, from released predictions"
        parts.append(Table(columns_of("revisions"), list(revisions), title=title, heading=2))
    return Table(
        columns_of("reproduction"),
        rows,
        shown=[],
        keys=list(rows[0]) if rows else [],
        title="Published numbers, recomputed",
        notes=notes,
        parts=parts,
        data={
            "marks": dict(MARKS),
            "kinds": dict(KINDS),
            "counts": counts,
            "by_kind": {kind: _counts([one for one in checked if one.claim.kind == kind]) for kind in KINDS},
            "papers": data,
            **({"revisions": list(revisions)} if revisions else {}),
        },
        heading=1,
        command=command,
    )


def _counts(checked: Sequence[Checked]) -> dict[str, int]:
    return {mark: sum(one.counts[mark] for one in checked) for mark in MARKS}


def shown_mark(mark: str) -> str:
    """What differs must be seen without colours, too."""
    return mark.upper() if mark == DIFFERS else mark


def _claim_table(one: Checked) -> Table:
    """What was recomputed; tables of many numbers as one row per table."""
    claim, shown, remarks = one.claim, list[Row](), list[str]()
    for group in (group for group in one.groups if group.compared):
        worst, n = group.worst, len(group.compared)
        shown.append({"name": group.name, "recomputed": f"{group.same} of {n}", "published": f"{n}",
                      "difference": _difference(worst), "mark": shown_mark(worst.mark)})  # fmt: skip
    for row in one.rows if not one.groups else ():
        if row.found is not None:
            # An exact half rounds either way: what prints as the published number is shown as it.
            value = row.printed.value if row.mark == SAME else row.found.value
            recomputed = _number(row, value, row.found.low, row.found.high)
            shown.append({"name": row.name, "recomputed": recomputed, "published": _published(row),
                          "difference": _difference(row), "mark": shown_mark(row.mark)})  # fmt: skip
    differing = [row for group in one.groups for row in group.compared if row.mark == DIFFERS]
    if differing:
        names = [
            f"{row.name} ({columns_of('reproduction')[3].cell({'difference': _difference(row)}).whole})"
            for row in differing
        ]
        remarks.append(f"differing: {listed(names, _QUOTED)}")
    if claim.remark and shown:
        remarks.append(claim.remark)
    for what, waiting in needed(one.rows).items():
        printed = [
            f"{row.name}: {columns_of('reproduction')[2].cell({'published': _published(row)}).value}" for row in waiting
        ]
        more = [f"and {len(printed) - _QUOTED} more"] if len(printed) > _QUOTED else []
        remarks.append(f"{ABSENT} ({count_of(len(waiting), 'number')}): needs {what}")
        remarks.append(f"printed: {'; '.join([*printed[:_QUOTED], *more])}")
    title, lead = f"{claim.place[:1].upper()}{claim.place[1:]}: {claim.what}", [f"From {claim.source}"] if shown else []
    return Table(columns_of("reproduction"), shown, title=title, lead=lead, notes=remarks, heading=3)


def _published(row: CheckedNumber) -> Number:
    return _number(row, row.printed.value, row.printed.low, row.printed.high)


def _difference(row: CheckedNumber) -> Number:
    shown = _number(row, row.difference or 0.0)
    return Number(shown.value, places=(shown.places or 0) + (1 if row.printed.rounding else 0))


def _number(row: CheckedNumber, value: float, low: float | None = None, high: float | None = None) -> Number:
    """With the digits that the paper prints; a percentage without its sign."""
    rounding = row.printed.rounding
    times = 100.0 if row.printed.unit == "%" and rounding else 1.0
    places = max(0, round(-math.log10(2 * rounding * times))) if rounding else 0
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        return Number(value * times, places=places)
    return Number(value * times, low * times, high * times, places)
