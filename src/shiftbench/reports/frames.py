"""Scores and predictions as Arrow tables, and from there as data frames of pandas and Polars."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shiftbench.errors import ShiftbenchError, argument
from shiftbench.reports.score_rows import ScoreRow
from shiftbench.reports.table import Number
from shiftbench.store.export import long_table

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

    from shiftbench.runs.results import StoredResults
    from shiftbench.store.predictions import Predictions
    from shiftbench.store.workspace import Result

#: What of a run a frame holds.
Content = Literal["scores", "predictions"]
T = TypeVar("T")

_SCORES = pa.schema(
    [
        *((name, pa.string()) for name in ("model", "model_id", "setting", "family", "corruption")),
        ("severity", pa.float64()),
        ("metric", pa.string()),
        *((name, pa.float64()) for name in ("value", "low", "high")),
        ("n", pa.int64()),
        ("level", pa.float64()),
        *((name, pa.string()) for name in ("unit", "method", "provenance")),
        ("higher_is_better", pa.bool_()),
        ("passes", pa.int64()),
        ("assumed", pa.string()),
    ]
)


def scores_to_arrow(results: StoredResults, rows: Iterable[ScoreRow]) -> pa.Table:
    """One row per score. Values are fractions; nan where a number is not defined."""
    facts = results.model_facts()
    return pa.Table.from_pylist(
        [{**_score(row), "model_id": facts[row.model]["id"], "assumed": _assumed(results, row.model)} for row in rows],
        _SCORES,
    )


def _assumed(results: StoredResults, title: str) -> str:
    """Facts about a model that nobody gave and no file states."""
    return ", ".join(results.model_facts()[title]["assumed"] or ())


def _score(row: ScoreRow) -> dict[str, object]:
    place = {name: getattr(row, name) for name in ("model", "setting", "family", "corruption", "severity")}
    return {**row.score.as_dict(), **place}


def predictions_to_arrow(results: StoredResults, top_k: int = 1) -> pa.Table:
    """One row per image, model and setting: the columns of ``store export``, the names of the classes, the place of
    the setting.
    """
    if not results.results:
        raise ShiftbenchError("no results, so no predictions")
    return pa.concat_tables([_predictions(results, result, top_k) for result in results.results])


def _predictions(results: StoredResults, result: Result, top_k: int) -> pa.Table:
    found = results.workspace.read(result, top_k=top_k, scores=False)
    member = results.workspace.setting_record(result).member
    place = (member.family, member.name, member.level) if member is not None else (None, None, None)
    table = long_table(found, top_k, model_id=result.model_id, assumed=_assumed(results, result.title))
    columns: dict[str, pa.Array] = dict(zip(["model", "model_id", *table.column_names[2:]], table.columns, strict=True))
    columns["label_name"] = _names(found, found.labels)
    for k in range(top_k):
        known = k < found.top.shape[1]
        columns[f"top{k + 1}_name"] = _names(found, found.top[:, k]) if known else pa.nulls(len(found), pa.string())
    for name, value, kind in zip(
        ("family", "corruption", "severity"), place, (pa.string(), pa.string(), pa.float64()), strict=True
    ):
        columns[name] = pa.repeat(pa.scalar(value, kind), len(found))
    return pa.table(columns)


def _names(found: Predictions, classes: NDArray[np.int32]) -> pa.Array:
    return pa.array(found.space.names, pa.string()).take(pa.array(classes, mask=classes < 0))


def rows_to_arrow(keys: Sequence[str], rows: Sequence[Mapping[str, object]]) -> pa.Table:
    """The rows of a table; a column of several kinds of values becomes text."""
    return pa.table({key: _column([_plain(row.get(key)) for row in rows]) for key in keys})


def _plain(value: object) -> object:
    return value.value if isinstance(value, Number) else value


def _column(values: Sequence[object]) -> pa.Array:
    try:
        return pa.array(values)
    except pa.ArrowException:
        return pa.array([None if value is None else str(value) for value in values])


def to_pandas(table: pa.Table) -> pd.DataFrame:
    try:
        import pandas  # noqa: F401
    except ModuleNotFoundError as error:
        raise _missing("pandas") from error
    return table.to_pandas()


def to_polars(table: pa.Table) -> pl.DataFrame:
    try:
        import polars
    except ModuleNotFoundError as error:
        raise _missing("polars") from error
    found = polars.from_arrow(table)
    assert isinstance(found, polars.DataFrame)
    return found


def _missing(package: str) -> ShiftbenchError:
    return ShiftbenchError(
        f"data frames of {package} need the package {package!r}, which is not installed",
        hint=f"pip install {package}, or take to_arrow(), which needs nothing more",
    )


def check_content(content: str) -> None:
    if content not in ("scores", "predictions"):
        raise ShiftbenchError(
            "unknown content of a frame", found=content, expected=f"{argument('content', 'scores')} or 'predictions'"
        )
