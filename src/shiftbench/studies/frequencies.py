"""Accuracy by selection frequency, the share of people who selected an image for its class (004 appendix C.4.7).

The frequencies are read from a table with a column of image ids (``id``, ``image_id``, ``image``, ``filename``,
``file`` or ``path``) and one of shares (``selection_frequency`` or ``frequency``), or two of counts: people who
selected the image (``selected``) and were shown it (``shown``, ``annotators`` or ``annotations``).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shiftbench.arrays import FloatArray
from shiftbench.errors import listed
from shiftbench.metrics.intervals import clopper_pearson
from shiftbench.store.predictions import Predictions
from shiftbench.studies.base import StudyError, check_unique, count_of
from shiftbench.studies.image_bootstrap import common_hits
from shiftbench.studies.results import find_column, read_number, read_rows

#: The bins of selection frequency in 004.
FREQUENCY_EDGES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
ID_COLUMNS = ("id", "image_id", "image", "filename", "file", "path")
SHARE_COLUMNS = ("selection_frequency", "frequency")
COUNT_COLUMNS = ("shown", "annotators", "annotations")


def read_frequencies(path: str | Path, column: str | None = None) -> dict[str, float]:
    """Image id to selection frequency, from .csv or .parquet; an image with an empty cell is left out.

    ``column`` names the column of shares if it has another name.
    """
    path = Path(path)
    header, rows = read_rows(path)
    lowered = [name.strip().lower() for name in header]
    id_at = find_column(lowered, ID_COLUMNS)
    if id_at is None:
        raise StudyError(
            f"{path.name} has no column of image ids",
            found=listed(header),
            expected=f"a column {' or '.join(ID_COLUMNS)}",
        )
    at, over = _share_columns(path, lowered, column)
    found: dict[str, float] = {}
    for line, row in enumerate(rows, start=2):
        name = str(row[id_at]).strip()
        value = read_number(path, line, header[at], row[at])
        if over is not None:
            people = read_number(path, line, header[over], row[over])
            value = value / people if people > 0 else float("nan")
        if not np.isnan(value) and not 0.0 <= value <= 1.0:
            raise StudyError(
                f"{path.name}, line {line}: invalid selection frequency",
                found=f"{value:g}",
                expected="a share of people, 0 to 1",
                hint="divide percent by 100",
            )
        if name in found and not (found[name] == value or np.isnan([found[name], value]).all()):
            raise StudyError(f"{path.name} has two frequencies for one image", found=f"{name!r}, line {line}")
        found[name] = value
    return {name: value for name, value in found.items() if not np.isnan(value)}


def _share_columns(path: Path, lowered: Sequence[str], column: str | None) -> tuple[int, int | None]:
    """The column of shares, or those of the counts whose quotient is the share."""
    at = find_column(lowered, (column.lower(),) if column else SHARE_COLUMNS)
    if at is not None:
        return at, None
    selected, people = find_column(lowered, ("selected",)), find_column(lowered, COUNT_COLUMNS)
    if column is None and selected is not None and people is not None:
        return selected, people
    wanted = repr(column) if column else f"{' or '.join(SHARE_COLUMNS)}, or selected and {' or '.join(COUNT_COLUMNS)}"
    raise StudyError(f"{path.name} has no column of selection frequencies", found=listed(lowered, 8), expected=wanted)


def matched_frequencies(
    frequencies: Mapping[str, float], ids: Sequence[str]
) -> tuple[NDArray[np.bool_], FloatArray, list[str]]:
    """Which of the images have a frequency, these frequencies in their order, and notes on what does not match.

    >>> here, shares, notes = matched_frequencies({"a": 0.7, "z": 1.0}, ["a", "b"])
    >>> here.tolist(), shares.tolist(), notes
    ([True, False], [0.7], ['1 image has no selection frequency and is left out'])
    """
    here = np.array([name in frequencies for name in ids], dtype=np.bool_)
    if not here.any():
        raise StudyError(
            "no image of the setting has a selection frequency",
            found=f"images {listed(ids, 3)}; frequencies of {listed(list(frequencies), 3) or 'none'}",
            expected="the same ids in both",
        )
    lost = int((~here).sum())
    verb = "has no selection frequency and is" if lost == 1 else "have no selection frequency and are"
    notes = [f"{count_of(lost, 'image')} {verb} left out"] if lost else []
    return here, np.array([frequencies[name] for name in ids if name in frequencies]), notes


@dataclass(frozen=True)
class FrequencyBin:
    """Images selected by a share of people in [low_edge, high_edge), the last bin closed."""

    low_edge: float
    high_edge: float
    images: int
    #: Mean over the models; None where the bin is empty.
    accuracy: float | None
    low: float | None
    high: float | None


def accuracy_by_frequency(
    hits: ArrayLike, frequency: ArrayLike, *, edges: Sequence[float] = FREQUENCY_EDGES, level: float = 0.95
) -> list[FrequencyBin]:
    """Accuracy in bins of selection frequency; ``hits`` is (images,) or (models, images).

    For one model the interval is Clopper-Pearson. For many it is the same of the mean accuracy on that many
    images: the models see the same images, so more models do not make it narrower.

    >>> bins = accuracy_by_frequency([1, 0, 1, 1], [0.1, 0.3, 0.9, 1.0])
    >>> [(b.images, b.accuracy) for b in bins]
    [(1, 1.0), (1, 0.0), (0, None), (0, None), (2, 1.0)]
    """
    matrix = np.atleast_2d(np.asarray(hits, dtype=np.float64))
    shares = np.asarray(frequency, dtype=np.float64)
    if matrix.shape[1] != len(shares):
        raise StudyError("one selection frequency for each image", found=f"{len(shares)} for {matrix.shape[1]} images")
    if not ((shares >= 0) & (shares <= 1)).all():
        raise StudyError("selection frequencies are shares of people", expected="0 to 1, none missing")
    limits = np.asarray(edges, dtype=np.float64)
    place = np.minimum(np.searchsorted(limits, shares, side="right") - 1, len(limits) - 2)
    bins = []
    for i, (low_edge, high_edge) in enumerate(itertools.pairwise(limits)):
        here = place == i
        n = int(here.sum())
        if not n:
            bins.append(FrequencyBin(float(low_edge), float(high_edge), 0, None, None, None))
            continue
        accuracy = float(matrix[:, here].mean())
        ends = clopper_pearson(accuracy * n, n, level)
        bins.append(FrequencyBin(float(low_edge), float(high_edge), n, accuracy, ends.low, ends.high))
    return bins


@dataclass(frozen=True)
class BinnedAccuracies:
    """The bins of every model, on the same images, and of their mean."""

    by_model: dict[str, list[FrequencyBin]]
    mean: list[FrequencyBin]
    notes: tuple[str, ...] = ()

    def with_mean(self) -> list[tuple[str, list[FrequencyBin]]]:
        """(name, bins), the mean of several models first."""
        several = len(self.by_model) > 1
        rows = [(f"mean of {count_of(len(self.by_model), 'model')}", self.mean)] if several else []
        return [*rows, *self.by_model.items()]


def bins_of(
    predictions: Sequence[Predictions],
    frequencies: Mapping[str, float],
    *,
    edges: Sequence[float] = FREQUENCY_EDGES,
    level: float = 0.95,
) -> BinnedAccuracies:
    """Of predictions in one setting, on the images that count for all of them and have a frequency."""
    _check_edges(edges)
    names = [one.classifier for one in predictions]
    check_unique(names)
    hits, ids = common_hits(predictions)
    here, shares, notes = matched_frequencies(frequencies, ids)
    hits = hits[:, here]
    by_model = {
        name: accuracy_by_frequency(row, shares, edges=edges, level=level)
        for name, row in zip(names, hits, strict=True)
    }
    return BinnedAccuracies(by_model, accuracy_by_frequency(hits, shares, edges=edges, level=level), tuple(notes))


def _check_edges(edges: Sequence[float]) -> None:
    rising = all(low < high for low, high in itertools.pairwise(edges))
    if len(edges) < 2 or not rising or edges[0] != 0.0 or edges[-1] != 1.0:
        raise StudyError(
            "invalid bins of selection frequency",
            found=", ".join(f"{edge:g}" for edge in edges),
            expected="edges increasing from 0 to 1, such as 0, 0.2, 0.4, 0.6, 0.8, 1",
        )
