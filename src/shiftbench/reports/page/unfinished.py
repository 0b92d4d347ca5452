"""A workspace as far as a run has come: cells that are not complete count with the blocks they have so far."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from urllib.parse import unquote

import numpy as np

from shiftbench.errors import StoreError
from shiftbench.reports.page.payload import Progress
from shiftbench.store.prediction_files import PredictionBlock, read_block, read_spec
from shiftbench.store.predictions import Predictions
from shiftbench.store.workspace import Cell, Workspace, setting_rows

#: Blocks that are kept between two looks at a growing workspace; a written block never changes.
_KEPT_BLOCKS = 65_536


class GrowingWorkspace(Workspace):
    """Reads like a workspace; nothing is ever written."""

    def __init__(self, root: str | Path) -> None:
        super().__init__(root, create=False)

    def cells(self, classifiers: Iterable[str] = (), settings: Iterable[str] = ()) -> Iterator[Cell]:
        """Complete cells, and those of which at least one block is there."""
        yield from super().cells(classifiers, settings)
        yield from self.unfinished(classifiers, settings)

    def unfinished(self, classifiers: Iterable[str] = (), settings: Iterable[str] = ()) -> Iterator[Cell]:
        wanted_classifiers, wanted_settings = set(classifiers), set(settings)
        for folder in sorted((self.root / "shards").glob("*/*/*")):
            classifier, setting = unquote(folder.parent.parent.name), unquote(folder.parent.name)
            shards = _shards(folder)
            unwanted = wanted_classifiers and classifier not in wanted_classifiers
            if unwanted or (wanted_settings and setting not in wanted_settings) or not shards:
                continue
            cell = Cell(classifier, setting, read_spec(shards[0]))
            if not self.predictions_path(cell).is_file():
                yield cell

    def read(
        self, cell: Cell, *, top_k: int | None = None, confidence: bool = True, scores: bool = True
    ) -> Predictions:
        """The predictions of a complete cell, or those made so far of one that is not."""
        if self.predictions_path(cell).is_file():
            return super().read(cell, top_k=top_k, confidence=confidence, scores=scores)
        shards = _shards(self.shards_folder(cell))
        if not shards:
            raise StoreError(f"{cell.classifier} in {cell.setting} is just being completed", hint="look again")
        blocks = [_block(shard, top_k, confidence, scores) for shard in shards]
        return self._so_far(cell, [int(shard.stem) for shard in shards], blocks)

    def _so_far(self, cell: Cell, starts: Sequence[int], blocks: Sequence[PredictionBlock]) -> Predictions:
        """A block is named by where it starts in the data set; its rows are the setting's from there on."""
        record = self.dataset(cell.spec["dataset"]["name"], cell.spec["dataset"]["fingerprint"])
        space = self.space(cell.spec["space"])
        used = setting_rows(record.labels, record.space, space, record.label_sets)
        firsts = np.searchsorted(used.rows, starts).tolist()
        rows = [row for first, block in zip(firsts, blocks, strict=True) for row in range(first, first + len(block))]
        joined = PredictionBlock.concatenate(blocks)
        return Predictions(
            cell.classifier,
            cell.setting,
            space,
            [record.ids[used.rows[row]] for row in rows],
            used.labels[rows],
            joined.top,
            joined.confidence,
            dict(cell.spec),
            joined.scores,
            None if used.label_sets is None else [used.label_sets[row] for row in rows],
        )

    def done(self, cell: Cell) -> int:
        """How many predictions of an unfinished cell are there."""
        return sum(len(_block(shard, 1, False, False)) for shard in _shards(self.shards_folder(cell)))


def run_progress(workspace: GrowingWorkspace, cells: Sequence[Cell]) -> Progress | None:
    """How far a run is that goes on, or was stopped; None where all is complete.

    What a run has not begun with leaves no trace, so the totals are those of the cells begun.
    """
    unfinished = [cell for cell in cells if not workspace.predictions_path(cell).is_file()]
    if not unfinished:
        return None
    done = sum(workspace.done(cell) for cell in unfinished)
    total = sum(int(cell.spec["images"]) for cell in unfinished)
    complete = len(cells) - len(unfinished)
    made = f"{done:,} of {total:,} predictions of the others are made"
    return {
        "cells_done": complete,
        "cells_total": len(cells),
        "text": f"{complete} of {len(cells)} results are complete; {made}",
    }


def _shards(folder: Path) -> list[Path]:
    return sorted(folder.glob("[0-9]*.parquet"))


@lru_cache(maxsize=_KEPT_BLOCKS)
def _block(path: Path, top_k: int | None, confidence: bool, scores: bool) -> PredictionBlock:
    return read_block(path, top_k=top_k, confidence=confidence, scores=scores)
