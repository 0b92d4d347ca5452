"""All scores of some results as rows of one shape, and scores and predictions as frames of Arrow, pandas and Polars.

A row without a severity is the mean over the severities of its corruption; without a corruption, the mean over all
corruptions of its family.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from shiftbench.datasets.corruption_names import BENCHMARK_CORRUPTIONS
from shiftbench.errors import SettingError, ShiftbenchError, StoreError, argument, check_integer
from shiftbench.metrics.base import Score
from shiftbench.metrics.corruption import SEVERITIES
from shiftbench.reports.corruption import accuracy_of, corruption_families, flip_entries, perturbation_families
from shiftbench.reports.scores import score_table
from shiftbench.reports.table import Table
from shiftbench.store.export import class_column, long_table

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

    from shiftbench.runs.results import StoredResults
    from shiftbench.store.workspace import Result

#: What of a run a frame holds.
Content = Literal["scores", "predictions"]

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
        ("training_images", pa.int64()),
    ]
)


@dataclass(frozen=True)
class ScoreRow:
    model: str
    #: The name of the setting; for means over settings that of the family.
    setting: str
    score: Score
    family: str | None = None
    #: Or perturbation.
    corruption: str | None = None
    severity: float | None = None

    @property
    def key(self) -> str:
        """``setting/metric``, or ``family/corruption/severity/metric`` without the parts it is a mean over."""
        place = [self.setting]
        if self.family is not None:
            severity = None if self.severity is None else f"{self.severity:g}"
            place = [part for part in (self.family, self.corruption, severity) if part is not None]
        return "/".join([*place, self.score.metric.replace(" ", "_")])


def score_rows(results: StoredResults, metric: str | None = None, *, level: float = 0.95) -> list[ScoreRow]:
    """The score of every result, then the means of every family; frames of sequences only count for flips."""
    workspace = results.workspace
    perturbed = perturbation_families(results)
    frames = {one.setting for family in perturbed.values() for one in family}
    members = {one.setting: workspace.setting_record(one).member for one in results.results}
    rows = []
    for model, setting, score in results.scores(metric, level=level) if metric else results.shown_scores(level=level):
        member = members.get(setting)
        place = () if member is None else (member.family, member.name, member.level)
        if setting not in frames:
            rows.append(ScoreRow(model, setting, score, *place))
    if metric is not None:
        return rows
    rows += _corruption_means(results, level)
    for family in perturbed:
        for model, name, score in flip_entries(results, family, level):
            mean = name == family
            shown = replace(score, metric="flip probability") if mean else score
            rows.append(ScoreRow(model, family, shown, family, None if mean else name))
    return rows


def clean_and_corrupted(results: StoredResults, *, level: float = 0.95) -> Table:
    """One row per model: accuracy without shift, and its mean over corruptions and severities."""
    rows = [row for row in score_rows(results, level=level) if row.corruption is None and row.score.metric == "top1"]
    return score_table([(row.model, row.setting, row.score) for row in rows])


def _corruption_means(results: StoredResults, level: float) -> Iterator[ScoreRow]:
    for family, found in corruption_families(results).items():
        try:
            scored = found.scores(found.divisor(), level=level)
        except SettingError:  # some severities of some corruptions are missing: nothing to average yet
            continue
        for model, scores, _ in scored:
            whole = set(scores.corruptions) == set(BENCHMARK_CORRUPTIONS) and scores.severities == SEVERITIES
            yield ScoreRow(model, family, _accuracy(scores.mean_error), family)
            # Only the mean over the whole benchmark may be called as the published number is.
            for mean, name in ((scores.mce, "mCE"), (scores.relative_mce, "relative mCE")):
                if mean is not None:
                    yield ScoreRow(model, family, replace(mean, metric=name if whole else f"partial {name}"), family)
            for corruption, error in scores.error.items():
                yield ScoreRow(model, family, _accuracy(error), family, corruption)
            for kind, name in ((scores.ce, "CE"), (scores.relative_ce, "relative CE")):
                for corruption, score in kind.items():
                    named = replace(score, metric=name if scores.severities == SEVERITIES else f"partial {name}")
                    yield ScoreRow(model, family, named, family, corruption)


def _accuracy(error: Score) -> Score:
    return replace(accuracy_of(error), metric="top1")


def flat_metrics(rows: Sequence[ScoreRow]) -> dict[str, float]:
    """Key to value; see ``Run.metrics``."""
    several = len({row.model for row in rows}) > 1
    found: dict[str, float] = {}
    for row in rows:
        if math.isnan(row.score.value):
            continue
        key = f"{row.model}/{row.key}" if several else row.key
        if found.setdefault(key, row.score.value) != row.score.value:
            raise StoreError(
                f"two results are called {key!r}",
                found=f"{found[key]:g} and {row.score.value:g}",
                expected="one result per model and setting",
                hint="use a workspace per seed and dataset, or select by Run.open(workspace, models, settings)",
            )
    return found


def scores_to_arrow(results: StoredResults, rows: Iterable[ScoreRow]) -> pa.Table:
    """One row per score. Values are fractions; nan where a number is not defined."""
    facts = results.model_facts()
    seen = {(one.title, one.setting): results.training_images(one) for one in results.results}
    place = ("model", "setting", "family", "corruption", "severity")
    found = [
        {**row.score.as_dict(), **{name: getattr(row, name) for name in place},
         "model_id": facts[row.model]["id"], "assumed": ", ".join(facts[row.model]["assumed"] or ()),
         "training_images": seen.get((row.model, row.setting))}
        for row in rows
    ]  # fmt: skip
    return pa.Table.from_pylist(found, _SCORES)


def predictions_to_arrow(results: StoredResults, top_k: int = 1) -> pa.Table:
    """One row per image, model and setting: the columns of ``store export``, the names of the classes, the place of
    the setting.
    """
    check_integer("top_k", top_k)
    if not results.results:
        raise ShiftbenchError("no results, so no predictions")
    assumed = {title: ", ".join(facts["assumed"] or ()) for title, facts in results.model_facts().items()}
    return pa.concat_tables([_predictions(results, result, top_k, assumed[result.title]) for result in results.results])


def _predictions(results: StoredResults, result: Result, top_k: int, assumed: str) -> pa.Table:
    found = results.workspace.read(result, top_k=top_k, scores=False)
    member = results.workspace.setting_record(result).member

    table = long_table(found, top_k, (), result.model_id, assumed, results.training_images(result))
    columns: dict[str, pa.Array] = dict(zip(["model", "model_id", *table.column_names[2:]], table.columns, strict=True))
    columns["label_name"] = class_column(found.space.names, found.labels)
    for k in range(top_k):
        known = k < found.top.shape[1]
        top = class_column(found.space.names, found.top[:, k]) if known else pa.nulls(len(found), pa.string())
        columns[f"top{k + 1}_name"] = top
    for column, part, kind in (
        ("family", "family", pa.string()), ("corruption", "name", pa.string()), ("severity", "level", pa.float64())
    ):  # fmt: skip
        value = None if member is None else getattr(member, part)
        columns[column] = pa.repeat(pa.scalar(value, kind), len(found))
    return pa.table(columns)


def to_pandas(table: pa.Table) -> pd.DataFrame:
    _import("pandas")
    return table.to_pandas()


def to_polars(table: pa.Table) -> pl.DataFrame:
    frame: pl.DataFrame = _import("polars").from_arrow(table)
    return frame


def _import(package: str) -> Any:
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        raise ShiftbenchError(
            f"data frames of {package} need the package {package!r}, which is not installed",
            hint=f"pip install {package}, or take to_arrow(), which needs nothing more",
        ) from error


def check_content(content: str) -> None:
    if content not in ("scores", "predictions"):
        raise ShiftbenchError(
            "unknown content of a frame", found=content, expected=f"{argument('content', 'scores')} or 'predictions'"
        )
