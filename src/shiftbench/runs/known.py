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
from shiftbench.store.spec import ResultSpec, canonical_json
from shiftbench.store.workspace import Result, Workspace


@dataclass(frozen=True)
class KnownRows:
    """Predictions of some rows of the dataset."""

    rows: IntArray  #: Ascending, in what ``joined`` returns.
    block: PredictionBlock

    @classmethod
    def joined(cls, parts: Sequence[KnownRows]) -> KnownRows:
        """All parts together; of a row that several parts have, the first prediction counts."""
        rows, first = np.unique(np.concatenate([part.rows for part in parts]), return_index=True)
        return cls(rows, PredictionBlock.concatenate([part.block for part in parts]).part(first))

    def among(self, rows: IntArray) -> BoolArray:
        """For each of these rows, whether its prediction is known."""
        return np.isin(rows, self.rows)

    def fill(self, block: PredictionBlock, rows: IntArray) -> None:
        """``block`` holds predictions for ``rows``; those that are known replace what it has."""
        is_known = self.among(rows)
        block.put(is_known, self.block.part(np.searchsorted(self.rows, rows[is_known])))


def known_rows(
    workspace: Workspace, planned: Sequence[PlannedResult], datasets: Mapping[str, Dataset]
) -> Mapping[str, KnownRows]:
    """By the key of a planned result: what the workspace already knows of it."""
    designs = workspace.designs()
    known_by_key: dict[str, KnownRows] = {}
    for result in planned:
        settings = {result.result.setting}
        settings.update(designs.get(result.result.setting, ()))
        settings.update(part.setting for part in result.setting.parts)
        parts: list[KnownRows] = []
        for stored in workspace.results([result.result.classifier], settings):
            part = _rows_in(workspace, stored, result, datasets[result.dataset])
            if part is not None and len(part.rows):
                parts.append(part)
        if parts:
            known_by_key[result.result.key] = KnownRows.joined(parts)
    return known_by_key


def _rows_in(workspace: Workspace, stored: Result, planned: PlannedResult, dataset: Dataset) -> KnownRows | None:
    """The predictions of a stored result that are also those of a planned one; None if it can't have any."""
    if not _is_comparable(planned.result.spec, stored.spec):
        return None
    row_of_id = _rows_by_id(workspace, dataset, stored.spec.dataset.name, stored.spec.dataset.fingerprint)
    if row_of_id is None:
        return None
    needs = planned.needs
    try:
        predictions = workspace.read(stored, scores=needs.scores)
    except StoreError:  # damaged: computed again
        return None
    if predictions.top.shape[1] < needs.top_k or (needs.scores and predictions.scores is None):
        return None
    ids = list(predictions.ids)
    planned_shifts = _planned_shifts(planned, ids, row_of_id)
    stored_shifts = _stored_shifts(workspace, stored, len(ids))
    is_same = np.zeros(len(ids), bool)
    for i, image_id in enumerate(ids):
        is_same[i] = image_id in row_of_id and planned_shifts[i] == stored_shifts[i]
    positions = np.flatnonzero(predictions.readable & is_same)
    rows = np.array([row_of_id[ids[i]] for i in positions.tolist()], np.int64)
    block = PredictionBlock(predictions.top[:, : needs.top_k], predictions.confidence, predictions.scores)
    return KnownRows(rows, block.part(positions))


def _is_comparable(first: ResultSpec, second: ResultSpec) -> bool:
    """Whether two results differ at most in their images and shifts."""
    if first.shift.seed != second.shift.seed:
        return False
    fields = ("classifier", "geometry", "space", "source", "metric")
    return all(getattr(first, field) == getattr(second, field) for field in fields)


def _planned_shifts(planned: PlannedResult, ids: Sequence[str], row_of_id: Mapping[str, int]) -> list[str]:
    """The shift, as JSON, that each image is to meet; empty for images that are not in the dataset."""
    shift = planned.setting.shift
    if not isinstance(shift, Assigned):
        return [canonical_json(planned.result.spec.shift.description)] * len(ids)
    members = [canonical_json(member.identity()) for member in shift.members]
    shifts = []
    for image_id in ids:
        if image_id in row_of_id:
            shifts.append(members[shift.assignment.places[image_id]])
        else:
            shifts.append("")
    return shifts


def _stored_shifts(workspace: Workspace, stored: Result, images: int) -> list[str]:
    """The shift, as JSON, that each image of a stored result met."""
    if not is_designed(stored):
        return [canonical_json(stored.spec.shift.description)] * images
    members = [canonical_json(member) for member in members_of(stored.spec)]
    return [members[index] for index in places_of(workspace, stored).tolist()]


@lru_cache(maxsize=16)
def _rows_by_id(workspace: Workspace, dataset: Dataset, name: str, fingerprint: str) -> dict[str, int] | None:
    """By id: the rows of the dataset, if the stored one of this name and fingerprint shares its images.

    That is so if the images of the stored one, taken from the dataset or from what it is a subset of, have the same
    fingerprint. Otherwise the ids may name other images, and None is returned.
    """
    if name != dataset.name:
        return None
    rows = _rows_of_ids(dataset)
    if fingerprint == dataset.fingerprint:
        return rows
    ids = workspace.dataset(name, fingerprint).ids
    larger = dataset
    while not _contains(larger, ids, fingerprint):
        if not isinstance(larger, Subset):
            return None
        larger = larger.base
    return rows


def _rows_of_ids(dataset: Dataset) -> dict[str, int]:
    return {image_id: row for row, image_id in enumerate(dataset.ids)}


def _contains(dataset: Dataset, ids: Sequence[str], fingerprint: str) -> bool:
    """Whether the dataset has images of these ids, and together they have this fingerprint."""
    rows = _rows_of_ids(dataset)
    if any(image_id not in rows for image_id in ids):
        return False
    return take(dataset, [rows[image_id] for image_id in ids]).fingerprint == fingerprint
