"""Selection frequencies from a table: for each image the share of people who selected it for its class (004).

Columns: the image's id (``id``, ``image_id``, ``image``, ``filename``, ``file`` or ``path``), and the share itself
(``selection_frequency`` or ``frequency``), or how many people selected it of how many were shown it (``selected`` and
``shown``, ``annotators`` or ``annotations``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import FloatArray
from shiftbench.errors import listed
from shiftbench.studies.base import StudyError, count_of
from shiftbench.studies.results import read_rows

ID_COLUMNS = ("id", "image_id", "image", "filename", "file", "path")
SHARE_COLUMNS = ("selection_frequency", "frequency")
COUNT_COLUMNS = ("shown", "annotators", "annotations")


def read_frequencies(path: str | Path, column: str | None = None) -> dict[str, float]:
    """Image id to selection frequency, from .csv or .parquet; an image whose cell is empty is left out.

    ``column`` names the column of shares where it is called otherwise.
    """
    path = Path(path)
    if not path.is_file():
        raise StudyError(f"no table of selection frequencies at {path}", expected="a .csv or .parquet file")
    header, rows = read_rows(path)
    lowered = [name.strip().lower() for name in header]
    id_at = _first(lowered, ID_COLUMNS)
    if id_at is None:
        raise StudyError(
            f"{path.name} does not name its images",
            found=listed(header),
            expected=f"a column {' or '.join(ID_COLUMNS)}",
        )
    share = _share_of(path, header, lowered, column)
    found: dict[str, float] = {}
    for number, row in enumerate(rows, start=2):
        name, value = str(row[id_at]).strip(), share(number, row)
        if name in found and not (found[name] == value or np.isnan([found[name], value]).all()):
            raise StudyError(f"{path.name} has two frequencies for one image", found=f"{name!r}, line {number}")
        found[name] = value
    return {name: value for name, value in found.items() if not np.isnan(value)}


class _Share:
    """Reads the share of one row, from one column or as a quotient of two."""

    def __init__(self, path: Path, header: Sequence[str], at: int, over: int | None) -> None:
        self.path, self.header, self.at, self.over = path, header, at, over

    def __call__(self, line: int, row: Sequence[object]) -> float:
        value = self._number(line, row, self.at)
        if self.over is not None:
            people = self._number(line, row, self.over)
            value = value / people if people > 0 else float("nan")
        if not np.isnan(value) and not 0.0 <= value <= 1.0:
            raise StudyError(
                f"{self.path.name}, line {line}: no selection frequency",
                found=f"{value:g}",
                expected="a share of people, 0 to 1",
                hint="divide percent by 100",
            )
        return value

    def _number(self, line: int, row: Sequence[object], at: int) -> float:
        cell = row[at]
        text = "" if cell is None else str(cell).strip()
        try:
            return float(text) if text else float("nan")
        except ValueError:
            raise StudyError(
                f"{self.path.name}, line {line}, column {self.header[at]!r} is not a number", found=repr(text)
            ) from None


def _share_of(path: Path, header: Sequence[str], lowered: Sequence[str], column: str | None) -> _Share:
    at = _first(lowered, (column.lower(),) if column else SHARE_COLUMNS)
    if at is not None:
        return _Share(path, header, at, None)
    selected, people = _first(lowered, ("selected",)), _first(lowered, COUNT_COLUMNS)
    if column is None and selected is not None and people is not None:
        return _Share(path, header, selected, people)
    wanted = repr(column) if column else f"{' or '.join(SHARE_COLUMNS)}, or selected and {' or '.join(COUNT_COLUMNS)}"
    raise StudyError(f"{path.name} has no column of selection frequencies", found=listed(header, 8), expected=wanted)


def _first(lowered: Sequence[str], names: Sequence[str]) -> int | None:
    return next((lowered.index(name) for name in names if name in lowered), None)


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
