"""Results of designs in a workspace: which image had which shift, and the estimated settings of the full grid."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np

from shiftbench.arrays import IntArray
from shiftbench.errors import StoreError
from shiftbench.grouping import by_key
from shiftbench.settings.base import DesignPart
from shiftbench.shifts.assigned import ShiftAssignment
from shiftbench.store.predictions import Predictions
from shiftbench.store.spec import ResultSpec, SettingRecord, ShiftRecord
from shiftbench.store.workspace import PartResult, Result, Workspace


def is_designed(result: Result) -> bool:
    """Whether each image met one of several shifts."""
    return result.spec.shift.kind == "assigned"


def assignment_of(result: Result) -> ShiftAssignment:
    stored = result.spec.shift.values.get("assignment")
    if not isinstance(stored, dict):
        raise StoreError(f"{result.setting!r} has no assignment of images to shifts")
    return ShiftAssignment(**stored)


def members_of(spec: ResultSpec) -> Sequence[Any]:
    """The descriptions of the shifts of a design."""
    members = spec.shift.values.get("members")
    return members if isinstance(members, list | tuple) else ()


def places_of(workspace: Workspace, result: Result) -> IntArray:
    """The number of the shift that each image of the result met, in the order of its predictions."""
    own = result.spec.dataset
    places = _places(workspace, own.name, own.fingerprint, assignment_of(result), len(members_of(result.spec)))
    ids = workspace.read(result, top_k=1, confidence=False, scores=False).ids
    return np.array([places[one] for one in ids], np.int64)


@lru_cache(maxsize=16)
def _places(workspace: Workspace, name: str, fingerprint: str, own: ShiftAssignment, shifts: int) -> dict[str, int]:
    record = workspace.dataset(name, fingerprint)
    return dict(own.over(record.ids, record.labels, shifts).places)


@dataclass(frozen=True, eq=False)
class DesignPasses:
    """The passes of one model under a design, read once for all shifts."""

    results: tuple[Result, ...]
    _read: dict[tuple[int | None, bool], list[tuple[Predictions, IntArray]]] = field(default_factory=dict)

    @property
    def shifts(self) -> int:
        return len(members_of(self.results[0].spec))

    def read(
        self, workspace: Workspace, part: PartResult, *, top_k: int | None, confidence: bool, scores: bool
    ) -> Predictions:
        """The predictions of the images that met a shift, in the order of the dataset."""
        wanted: dict[str, Any] = {"top_k": top_k, "confidence": confidence, "scores": scores}
        passes = self._read.get((top_k, confidence)) if not scores else None
        if passes is None:
            passes = [(workspace.read(one, **wanted), places_of(workspace, one)) for one in self.results]
            if not scores:  # those of all classes are too large to keep
                self._read[top_k, confidence] = passes
        found = [(predictions, np.flatnonzero(places == part.place)) for predictions, places in passes]
        order = np.argsort(np.concatenate([rows for _, rows in found]), kind="stable")

        def joined(name: str) -> Any:
            return np.concatenate([getattr(one, name)[rows] for one, rows in found])[order]

        first = passes[0][0]
        ids = [one.ids[row] for one, rows in found for row in rows.tolist()]
        return replace(
            first,
            classifier=part.title,
            setting=part.setting,
            ids=[ids[i] for i in order.tolist()],
            labels=joined("labels"),
            top=joined("top"),
            confidence=joined("confidence"),
            spec=part.spec,
            scores=joined("scores") if first.scores is not None else None,
        )


def with_parts(workspace: Workspace, results: Iterable[Result]) -> list[Result]:
    """The results of designs replaced by the settings that they estimate; what was evaluated in full comes first.

    So tables, figures and reports of a design are those of the full grid, each number on fewer images.
    """
    given = list(results)
    groups = by_key((_design_key(result), result) for result in filter(is_designed, given))
    full = {_measured(one.classifier, one.setting, one.spec) for one in given} if groups else set()
    found: list[Result] = []
    for result in given:
        if not is_designed(result):
            found.append(result)
        elif own := groups.pop(_design_key(result), None):
            parts = _parts(workspace, sorted(own, key=lambda one: assignment_of(one).turn))
            found += [one for one in parts if _measured(one.classifier, one.setting, one.spec) not in full]
    return found


def _design_key(result: Result) -> tuple[str, str]:
    """What the passes of one model under one design share."""
    spec = result.spec
    values = {key: value for key, value in spec.shift.values.items() if key != "assignment"}
    own = replace(spec, shift=ShiftRecord({**values, "design": assignment_of(result).seed}), provenance="", family=None)
    return result.classifier, own.key


def _measured(classifier: str, setting: str, spec: ResultSpec) -> tuple[object, ...]:
    return classifier, setting, spec.classifier, spec.dataset, spec.space, spec.shift.seed


def part_specs(first: Result, parts: Sequence[DesignPart], passes: int) -> list[ResultSpec]:
    """Of each shift of a design, from the result of the first of its passes."""
    members, seed = members_of(first.spec), first.spec.shift.seed
    assignment = {**assignment_of(first).describe(), "passes": passes, "shifts": len(members)}
    shifts = [ShiftRecord({**member, "seed": seed, "assignment": assignment}) for member in members]
    return [
        replace(first.spec, shift=shift, provenance=f"{part.setting}; {first.spec.family}; {shift.design}")
        for part, shift in zip(parts, shifts, strict=False)
    ]


def _parts(workspace: Workspace, own: Sequence[Result]) -> list[Result]:
    first, passes, record = own[0], DesignPasses(tuple(own)), workspace.setting_record(own[0])
    made: Any = record.shift.get("members", ())
    found: list[Result] = []
    for place, (part, spec) in enumerate(zip(record.parts, part_specs(first, record.parts, len(own)), strict=True)):
        about = SettingRecord(record.note, part.member, made[place])
        own_names = (first.classifier, part.setting, spec, first.name, first.title)
        found.append(PartResult(*own_names, passes=passes, place=place, record=about))
    return found or list(own)
