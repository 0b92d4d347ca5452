"""What a design left in a workspace: which images met which shift."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from shiftbench.arrays import IntArray
from shiftbench.errors import StoreError
from shiftbench.shifts.assigned import ShiftAssignment
from shiftbench.store.workspace import Result, Workspace


def is_designed(result: Result) -> bool:
    """Whether each image met one of several shifts."""
    return result.spec.shift.kind == "assigned"


def assignment_of(result: Result) -> ShiftAssignment:
    stored = result.spec.shift.values.get("assignment")
    if not isinstance(stored, dict):
        raise StoreError(f"{result.setting!r} has no assignment of images to shifts")
    return ShiftAssignment(**stored)


def shift_count(result: Result) -> int:
    members = result.spec.shift.values.get("members")
    return len(members) if isinstance(members, list | tuple) else 0


def places_of(workspace: Workspace, result: Result) -> IntArray:
    """The number of the shift that each image of the result met, in the order of its predictions."""
    own = result.spec.dataset
    places = _places(workspace, own.name, own.fingerprint, assignment_of(result), shift_count(result))
    ids = workspace.read(result, top_k=1, confidence=False, scores=False).ids
    return np.array([places[one] for one in ids], np.int64)


@lru_cache(maxsize=16)
def _places(
    workspace: Workspace, name: str, fingerprint: str, assignment: ShiftAssignment, shifts: int
) -> dict[str, int]:
    record = workspace.dataset(name, fingerprint)
    return dict(assignment.over(record.ids, record.labels, shifts).places)
