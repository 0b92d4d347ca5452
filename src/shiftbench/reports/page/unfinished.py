"""A workspace as far as a run has come: results that are not complete count with the blocks they have so far."""

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
from shiftbench.store.workspace import Result, Workspace, setting_rows

#: Blocks that are kept between two looks at a growing workspace; a written block never changes.
_KEPT_BLOCKS = 65_536


class GrowingWorkspace(Workspace):
    """Reads like a workspace; nothing is ever written."""

    def __init__(self, root: str | Path) -> None:
        super().__init__(root, create=False)

    def results(self, classifiers: Iterable[str] = (), settings: Iterable[str] = ()) -> Iterator[Result]:
        """Complete results, and those of which at least one block is there."""
        yield from super().results(classifiers, settings)
        yield from self.unfinished(classifiers, settings)

    def unfinished(self, classifiers: Iterable[str] = (), settings: Iterable[str] = ()) -> Iterator[Result]:
        wanted_classifiers, wanted_settings = set(classifiers), set(settings)
        for folder in sorted((self.root / "shards").glob("*/*/*")):
            classifier, setting = unquote(folder.parent.parent.name), unquote(folder.parent.name)
            shards = _shards(folder)
            unwanted = wanted_classifiers and classifier not in wanted_classifiers
            if unwanted or (wanted_settings and setting not in wanted_settings) or not shards:
                continue
            result = Result(classifier, setting, read_spec(shards[0]))
            if not self.predictions_path(result).is_file():
                yield result

    def read(
        self, result: Result, *, top_k: int | None = None, confidence: bool = True, scores: bool = True
    ) -> Predictions:
        """The predictions of a complete result, or those made so far of one that is not."""
        if self.predictions_path(result).is_file():
            return super().read(result, top_k=top_k, confidence=confidence, scores=scores)
        shards = _shards(self.blocks_folder(result))
        if not shards:
            raise StoreError(f"{result.classifier} in {result.setting} is just being completed", hint="look again")
        blocks = [_block(shard, top_k, confidence, scores) for shard in shards]
        return self._so_far(result, [int(shard.stem) for shard in shards], blocks)

    def _so_far(self, result: Result, starts: Sequence[int], blocks: Sequence[PredictionBlock]) -> Predictions:
        """A block is named by where it starts in the data set; its rows are the setting's from there on."""
        record = self.dataset(result.spec.dataset.name, result.spec.dataset.fingerprint)
        space = self.space(result.spec.space)
        used = setting_rows(record.labels, record.space, space, record.label_sets)
        firsts = np.searchsorted(used.rows, starts).tolist()
        rows = [row for first, block in zip(firsts, blocks, strict=True) for row in range(first, first + len(block))]
        joined = PredictionBlock.concatenate(blocks)
        return Predictions(
            result.classifier,
            result.setting,
            space,
            [record.ids[used.rows[row]] for row in rows],
            used.labels[rows],
            joined.top,
            joined.confidence,
            result.spec,
            joined.scores,
            None if used.label_sets is None else [used.label_sets[row] for row in rows],
        )

    def done(self, result: Result) -> int:
        """How many predictions of an unfinished result are there."""
        return sum(len(_block(shard, 1, False, False)) for shard in _shards(self.blocks_folder(result)))


def run_progress(workspace: GrowingWorkspace, results: Sequence[Result]) -> Progress | None:
    """How far a run is that goes on, or was stopped; None where all is complete.

    What a run has not begun with leaves no trace, so the totals are those of the results begun.
    """
    unfinished = [result for result in results if not workspace.predictions_path(result).is_file()]
    if not unfinished:
        return None
    done = sum(workspace.done(result) for result in unfinished)
    total = sum(result.spec.images for result in unfinished)
    complete = len(results) - len(unfinished)
    made = f"{done:,} of {total:,} predictions of the others are made"
    return {
        "cells_done": complete,
        "cells_total": len(results),
        "text": f"{complete} of {len(results)} results are complete; {made}",
    }


def _shards(folder: Path) -> list[Path]:
    return sorted(folder.glob("[0-9]*.parquet"))


@lru_cache(maxsize=_KEPT_BLOCKS)
def _block(path: Path, top_k: int | None, confidence: bool, scores: bool) -> PredictionBlock:
    return read_block(path, top_k=top_k, confidence=confidence, scores=scores)
