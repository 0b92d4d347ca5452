"""Results of designs in a workspace: which image had which shift, and the estimated settings of the full grid."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple

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
    """The assignment of images to shifts that a result was computed with; raises StoreError if it has none."""
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
    dataset = result.spec.dataset
    shift_count = len(members_of(result.spec))
    places = _places(workspace, dataset.name, dataset.fingerprint, assignment_of(result), shift_count)
    ids = workspace.read(result, top_k=1, confidence=False, scores=False).ids
    return np.array([places[image_id] for image_id in ids], np.int64)


@lru_cache(maxsize=16)
def _places(
    workspace: Workspace, name: str, fingerprint: str, assignment: ShiftAssignment, shift_count: int
) -> dict[str, int]:
    """The number of the shift that each image of a dataset met, by id."""
    record = workspace.dataset(name, fingerprint)
    return dict(assignment.over(record.ids, record.labels, shift_count).places)


class _ReadPass(NamedTuple):
    """The predictions of one pass, and the number of the shift that each of its images met."""

    predictions: Predictions
    places: IntArray


@dataclass(frozen=True, eq=False)
class DesignPasses:
    """The passes of one model under a design, read once for all shifts."""

    results: tuple[Result, ...]
    #: The passes that were read, by ``top_k`` and ``confidence``.
    _cache: dict[tuple[int | None, bool], list[_ReadPass]] = field(default_factory=dict)

    @property
    def shifts(self) -> int:
        """The number of shifts of the design."""
        return len(members_of(self.results[0].spec))

    def read(
        self, workspace: Workspace, part: PartResult, *, top_k: int | None, confidence: bool, scores: bool
    ) -> Predictions:
        """The predictions of the images that met a shift, in the order of the dataset."""
        passes = self._read_passes(workspace, top_k=top_k, confidence=confidence, scores=scores)
        rows_by_pass = [np.flatnonzero(read_pass.places == part.shift_index) for read_pass in passes]
        order = np.argsort(np.concatenate(rows_by_pass), kind="stable")

        def joined(name: str) -> Any:
            columns = []
            for read_pass, rows in zip(passes, rows_by_pass, strict=True):
                columns.append(getattr(read_pass.predictions, name)[rows])
            return np.concatenate(columns)[order]

        ids: list[str] = []
        for read_pass, rows in zip(passes, rows_by_pass, strict=True):
            ids += [read_pass.predictions.ids[row] for row in rows.tolist()]
        first = passes[0].predictions
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

    def _read_passes(
        self, workspace: Workspace, *, top_k: int | None, confidence: bool, scores: bool
    ) -> list[_ReadPass]:
        # The scores of all classes are too large to keep, so passes with scores are read again for every shift.
        if not scores and (top_k, confidence) in self._cache:
            return self._cache[top_k, confidence]
        passes = []
        for result in self.results:
            predictions = workspace.read(result, top_k=top_k, confidence=confidence, scores=scores)
            passes.append(_ReadPass(predictions, places_of(workspace, result)))
        if not scores:
            self._cache[top_k, confidence] = passes
        return passes


def with_parts(workspace: Workspace, results: Iterable[Result]) -> list[Result]:
    """The results of designs replaced by the settings that they estimate; what was evaluated in full comes first.

    So tables, figures and reports of a design are those of the full grid, each number on fewer images.
    """
    results = list(results)
    designs = by_key((_design_key(result), result) for result in filter(is_designed, results))
    if not designs:
        return results
    measured = {_measured(result) for result in results}
    expanded: list[Result] = []
    for result in results:
        if not is_designed(result):
            expanded.append(result)
            continue
        # All passes of a design are replaced at the first one; the later ones find their design gone.
        passes = designs.pop(_design_key(result), None)
        if passes is not None:
            passes.sort(key=lambda design_pass: assignment_of(design_pass).turn)
            expanded += [part for part in _parts(workspace, passes) if _measured(part) not in measured]
    return expanded


def _design_key(result: Result) -> tuple[str, str]:
    """What the passes of one model under one design share."""
    spec = result.spec
    values = {key: value for key, value in spec.shift.values.items() if key != "assignment"}
    shift = ShiftRecord({**values, "design": assignment_of(result).seed})
    shared = replace(spec, shift=shift, provenance="", family=None)
    return result.classifier, shared.key


def _measured(result: Result) -> tuple[object, ...]:
    """What a result measures: an estimate is left out where a full evaluation measures the same."""
    spec = result.spec
    return result.classifier, result.setting, spec.classifier, spec.dataset, spec.space, spec.shift.seed


def part_specs(first: Result, parts: Sequence[DesignPart], passes: int) -> list[ResultSpec]:
    """The specs of the shifts of a design, from the result of the first of its passes."""
    members = members_of(first.spec)
    assignment = {**assignment_of(first).describe(), "passes": passes, "shifts": len(members)}
    specs = []
    for part, member in zip(parts, members, strict=False):
        shift = ShiftRecord({**member, "seed": first.spec.shift.seed, "assignment": assignment})
        provenance = f"{part.setting}; {first.spec.family}; {shift.design}"
        specs.append(replace(first.spec, shift=shift, provenance=provenance))
    return specs


def _parts(workspace: Workspace, results: Sequence[Result]) -> list[Result]:
    """The settings that a design estimates, each as a result; the passes if no record lists its settings.

    Args:
        workspace: The workspace that holds the passes.
        results: All passes of one model under one design, in their order.
    """
    first = results[0]
    passes = DesignPasses(tuple(results))
    record = workspace.setting_record(first)
    shifts: Any = record.shift.get("members", ())
    specs = part_specs(first, record.parts, len(results))
    parts: list[Result] = []
    for index, (part, spec) in enumerate(zip(record.parts, specs, strict=True)):
        parts.append(
            PartResult(
                first.classifier,
                part.setting,
                spec,
                first.name,
                first.title,
                passes=passes,
                shift_index=index,
                record=SettingRecord(record.note, part.member, shifts[index]),
            )
        )
    return parts or list(results)
