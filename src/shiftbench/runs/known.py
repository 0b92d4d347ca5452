"""Predictions that a design already made, so that a later run of the full grid does not make them again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from shiftbench.arrays import BoolArray, IntArray
from shiftbench.errors import StoreError
from shiftbench.runs.plan import PlannedResult
from shiftbench.store.designs import is_designed, places_of
from shiftbench.store.prediction_files import PredictionBlock
from shiftbench.store.spec import canonical_json
from shiftbench.store.workspace import Result, Workspace


@dataclass(frozen=True)
class KnownRows:
    """Predictions of some rows of the dataset."""

    #: Ascending.
    rows: IntArray
    block: PredictionBlock

    def among(self, rows: IntArray) -> BoolArray:
        return np.isin(rows, self.rows)

    def fill(self, block: PredictionBlock, rows: IntArray) -> PredictionBlock:
        """``block`` holds predictions for ``rows``; those that are known replace what it has."""
        here = self.among(rows)
        source = np.searchsorted(self.rows, rows[here])
        top, confidence = block.top.copy(), block.confidence.copy()
        top[here], confidence[here] = self.block.top[source, : top.shape[1]], self.block.confidence[source]
        scores = block.scores
        if scores is not None and self.block.scores is not None:
            scores = scores.copy()
            scores[here] = self.block.scores[source]
        return PredictionBlock(top, confidence, scores)


def known_rows(workspace: Workspace, planned: Sequence[PlannedResult]) -> Mapping[str, KnownRows]:
    """By the key of a planned result: what designs in the workspace already know of it."""
    designs = workspace.designs()
    found = {}
    for one in planned:
        names = designs.get(one.result.setting, ())
        for result in workspace.results([one.result.classifier], names) if names else ():
            known = _known(workspace, one, result)
            if known is not None:
                found[one.result.key] = known
    return found


def _known(workspace: Workspace, planned: PlannedResult, designed: Result) -> KnownRows | None:
    if not is_designed(designed):
        return None
    spec, other = planned.result.spec, designed.spec
    same = ("classifier", "dataset", "geometry", "space", "source", "metric")
    members = other.shift.values.get("members")
    if any(getattr(spec, name) != getattr(other, name) for name in same) or not isinstance(members, list | tuple):
        return None
    own = canonical_json(spec.shift.description)
    place = next((i for i, member in enumerate(members) if canonical_json(member) == own), None)
    if place is None or spec.shift.seed != other.shift.seed:
        return None
    try:
        read = workspace.read(designed, scores=planned.needs.scores)
    except StoreError:  # damaged: computed again
        return None
    if read.top.shape[1] < planned.needs.top_k or (planned.needs.scores and read.scores is None):
        return None
    here = (places_of(workspace, designed) == place) & read.readable
    scores = None if read.scores is None else read.scores[here]
    return KnownRows(planned.rows[here], PredictionBlock(read.top[here], read.confidence[here], scores))
