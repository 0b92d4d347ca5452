"""Predictions that a workspace already holds of some images of a result: what a design made of the full grid, and what
fewer images or passes of a design made of more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from shiftbench.arrays import BoolArray, IntArray
from shiftbench.datasets.base import Dataset
from shiftbench.datasets.subset import Subset, take
from shiftbench.errors import StoreError
from shiftbench.runs.plan import PlannedResult
from shiftbench.shifts.assigned import Assigned
from shiftbench.store.designs import is_designed, members_of, places_of
from shiftbench.store.prediction_files import PredictionBlock
from shiftbench.store.spec import canonical_json
from shiftbench.store.workspace import Result, Workspace


@dataclass(frozen=True)
class KnownRows:
    """Predictions of some rows of the dataset."""

    rows: IntArray  #: Ascending, once joined.
    block: PredictionBlock

    @classmethod
    def joined(cls, parts: Sequence[KnownRows]) -> KnownRows:
        rows, first = np.unique(np.concatenate([one.rows for one in parts]), return_index=True)
        return cls(rows, PredictionBlock.concatenate([one.block for one in parts]).part(first))

    def among(self, rows: IntArray) -> BoolArray:
        return np.isin(rows, self.rows)

    def fill(self, block: PredictionBlock, rows: IntArray) -> None:
        """``block`` holds predictions for ``rows``; those that are known replace what it has."""
        here = self.among(rows)
        block.put(here, self.block.part(np.searchsorted(self.rows, rows[here])))


def known_rows(
    workspace: Workspace, planned: Sequence[PlannedResult], datasets: Mapping[str, Dataset]
) -> Mapping[str, KnownRows]:
    """By the key of a planned result: what the workspace already knows of it."""
    designs = workspace.designs()
    found = {}
    for one in planned:
        settings = (*designs.get(one.result.setting, ()), *(part.setting for part in one.setting.parts))
        names = {one.result.setting, *settings}
        stored = workspace.results([one.result.classifier], names)
        parts = [_known(workspace, one, result, datasets[one.dataset]) for result in stored]
        if known := [part for part in parts if part is not None and len(part.rows)]:
            found[one.result.key] = KnownRows.joined(known)
    return found


def _known(workspace: Workspace, planned: PlannedResult, stored: Result, dataset: Dataset) -> KnownRows | None:
    spec, other = planned.result.spec, stored.spec
    same = ("classifier", "geometry", "space", "source", "metric")
    if spec.shift.seed != other.shift.seed or any(getattr(spec, one) != getattr(other, one) for one in same):
        return None
    row = _rows_of(workspace, dataset, other.dataset.name, other.dataset.fingerprint)
    if row is None:
        return None
    try:
        read = workspace.read(stored, scores=planned.needs.scores)
    except StoreError:  # damaged: computed again
        return None
    if read.top.shape[1] < planned.needs.top_k or (planned.needs.scores and read.scores is None):
        return None
    ids = list(read.ids)
    # The shift that each image is to meet, and the one that it met.
    shift = planned.setting.shift
    wanted = [canonical_json(spec.shift.description)] * len(ids)
    made = [canonical_json(other.shift.description)] * len(ids)
    if isinstance(shift, Assigned):
        members = [canonical_json(member.identity()) for member in shift.members]
        wanted = [members[shift.assignment.places[one]] if one in row else "" for one in ids]
    if is_designed(stored):
        members = [canonical_json(member) for member in members_of(other)]
        made = [members[place] for place in places_of(workspace, stored).tolist()]
    same_shift = [one == another and name in row for one, another, name in zip(wanted, made, ids, strict=True)]
    here = np.flatnonzero(read.readable & np.array(same_shift, bool))
    rows = np.array([row[ids[i]] for i in here.tolist()], np.int64)
    return KnownRows(rows, PredictionBlock(read.top[:, : planned.needs.top_k], read.confidence, read.scores).part(here))


@lru_cache(maxsize=16)
def _rows_of(workspace: Workspace, dataset: Dataset, name: str, fingerprint: str) -> dict[str, int] | None:
    """By id: the rows of the dataset, if the other is a part of it, or of what it is a part of, of equal content."""
    if name != dataset.name:
        return None
    rows = {image_id: row for row, image_id in enumerate(dataset.ids)}
    if fingerprint == dataset.fingerprint:
        return rows
    ids, whole, places = workspace.dataset(name, fingerprint).ids, dataset, rows
    while not all(one in places for one in ids) or take(whole, [places[one] for one in ids]).fingerprint != fingerprint:
        if not isinstance(whole, Subset):
            return None
        whole = whole.base
        places = {image_id: row for row, image_id in enumerate(whole.ids)}
    return rows
