"""Which classes of a model the user's own classes may be, as a table whose CSV is a mapping file for ``labels``."""

from __future__ import annotations

from shiftbench.errors import listed
from shiftbench.labels.catalogue import propose_members
from shiftbench.labels.space import LabelSpace
from shiftbench.reports.table import Column, Table

_WHY = {
    "name": "same name",
    "synonym": "synonym",
    "group": "group of a published dataset",
    "ambiguous": "several classes have this name",
    "similar": "similar names",
}


def proposal_table(own: LabelSpace, space: LabelSpace) -> Table:
    """One row per own class.

    Args:
        own: The classes of the data.
        space: The classes of the model.

    Returns:
        A table; ``members`` is empty where the user must decide.
    """
    found = propose_members(own.keys, space)
    rows = [
        {
            "key": one.own,
            "members": "|".join(one.members),
            "count": len(one.members),
            "proposal": listed(one.candidates, 3) or "none found",
            "why": _WHY.get(one.why, ""),
        }
        for one in found
    ]
    undecided = [one.own for one in found if not one.members]
    note = f"to be completed: {listed(undecided)}" if undecided else "every class has members"
    columns = [
        Column("key", "own class"),
        Column("count", "members", "count"),
        Column("proposal", f"classes of {space.name}"),
        Column("why", "why", optional=True),
    ]
    return Table(columns, rows, notes=[note], keys=["key", "members", "proposal", "why"])
