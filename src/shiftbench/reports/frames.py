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
from shiftbench.metrics.base import Score, SettingScore
from shiftbench.metrics.corruption import SEVERITIES
from shiftbench.reports.corruption import (
    ScoredModel,
    accuracy_of,
    corruption_families,
    flip_entries,
    perturbation_families,
)
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
        ("model", pa.string()),
        ("model_id", pa.string()),
        ("setting", pa.string()),
        ("family", pa.string()),
        ("corruption", pa.string()),
        ("severity", pa.float64()),
        ("metric", pa.string()),
        ("value", pa.float64()),
        ("low", pa.float64()),
        ("high", pa.float64()),
        ("n", pa.int64()),
        ("level", pa.float64()),
        ("unit", pa.string()),
        ("method", pa.string()),
        ("provenance", pa.string()),
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
        if self.family is None:
            parts = [self.setting]
        else:
            parts = [self.family]
            if self.corruption is not None:
                parts.append(self.corruption)
            if self.severity is not None:
                parts.append(f"{self.severity:g}")
        return "/".join([*parts, self.score.metric.replace(" ", "_")])


def score_rows(results: StoredResults, metric: str | None = None, *, level: float = 0.95) -> list[ScoreRow]:
    """The score of every result, then the means of every family; frames of sequences only count for flips."""
    perturbed = perturbation_families(results)
    frames: set[str] = set()
    for family_results in perturbed.values():
        frames.update(result.setting for result in family_results)
    members = {result.setting: results.workspace.setting_record(result).member for result in results.results}
    scores = results.scores(metric, level=level) if metric else results.shown_scores(level=level)
    rows = []
    for model, setting, score in scores:
        if setting in frames:
            continue
        member = members.get(setting)
        if member is None:
            rows.append(ScoreRow(model, setting, score))
        else:
            rows.append(ScoreRow(model, setting, score, member.family, member.name, member.level))
    if metric is not None:
        return rows
    rows += _corruption_means(results, level)
    for family in perturbed:
        for model, name, score in flip_entries(results, family, level):
            if name == family:  # The mean over the perturbations goes by the name of the family.
                mean = replace(score, metric="flip probability")
                rows.append(ScoreRow(model, family, mean, family))
            else:
                rows.append(ScoreRow(model, family, score, family, name))
    return rows


def clean_and_corrupted(results: StoredResults, *, level: float = 0.95) -> Table:
    """One row per model: accuracy without shift, and its mean over corruptions and severities."""
    entries = []
    for row in score_rows(results, level=level):
        if row.corruption is None and row.score.metric == "top1":
            entries.append(SettingScore(row.model, row.setting, row.score))
    return score_table(entries)


def _corruption_means(results: StoredResults, level: float) -> Iterator[ScoreRow]:
    for name, family in corruption_families(results).items():
        try:
            models = family.scores(family.divisor(), level=level)
        except SettingError:  # Some severities of some corruptions are missing: there is nothing to average yet.
            continue
        for model in models:
            yield from _family_rows(model, name)


def _family_rows(model: ScoredModel, family: str) -> Iterator[ScoreRow]:
    """The means of a model over a family, and over the severities of each of its corruptions."""
    scores = model.scores
    all_severities = scores.severities == SEVERITIES
    benchmark = all_severities and set(scores.corruptions) == set(BENCHMARK_CORRUPTIONS)
    yield ScoreRow(model.title, family, _accuracy(scores.mean_error), family)
    # Only the mean over the whole benchmark may be called as the published number is.
    for mean, metric in ((scores.mce, "mCE"), (scores.relative_mce, "relative mCE")):
        if mean is not None:
            named = replace(mean, metric=metric if benchmark else f"partial {metric}")
            yield ScoreRow(model.title, family, named, family)
    for corruption, error in scores.error.items():
        yield ScoreRow(model.title, family, _accuracy(error), family, corruption)
    for by_type, metric in ((scores.ce, "CE"), (scores.relative_ce, "relative CE")):
        for corruption, score in by_type.items():
            named = replace(score, metric=metric if all_severities else f"partial {metric}")
            yield ScoreRow(model.title, family, named, family, corruption)


def _accuracy(error: Score) -> Score:
    return replace(accuracy_of(error), metric="top1")


def flat_metrics(rows: Sequence[ScoreRow]) -> dict[str, float]:
    """Key to value; see ``Run.metrics``."""
    several_models = len({row.model for row in rows}) > 1
    values: dict[str, float] = {}
    for row in rows:
        value = row.score.value
        if math.isnan(value):
            continue
        key = f"{row.model}/{row.key}" if several_models else row.key
        if values.setdefault(key, value) != value:
            raise StoreError(
                f"two results are called {key!r}",
                found=f"{values[key]:g} and {value:g}",
                expected="one result per model and setting",
                hint="use a workspace per seed and dataset, or select by Run.open(workspace, models, settings)",
            )
    return values


def scores_to_arrow(results: StoredResults, rows: Iterable[ScoreRow]) -> pa.Table:
    """One row per score. Values are fractions; nan where a number is not defined."""
    model_facts = results.model_facts()
    training_images = {(result.title, result.setting): results.training_images(result) for result in results.results}
    records = []
    for row in rows:
        facts = model_facts[row.model]
        records.append(
            {
                **row.score.as_dict(),
                "model": row.model,
                "setting": row.setting,
                "family": row.family,
                "corruption": row.corruption,
                "severity": row.severity,
                "model_id": facts.id,
                "assumed": ", ".join(facts.assumed or ()),
                "training_images": training_images.get((row.model, row.setting)),
            }
        )
    return pa.Table.from_pylist(records, _SCORES)


def predictions_to_arrow(results: StoredResults, top_k: int = 1) -> pa.Table:
    """One row per image, model and setting: the columns of ``store export``, the names of the classes, the place of
    the setting.
    """
    check_integer("top_k", top_k)
    if not results.results:
        raise ShiftbenchError("no results, so no predictions")
    facts = results.model_facts()
    tables = []
    for result in results.results:
        assumed = ", ".join(facts[result.title].assumed or ())
        tables.append(_predictions(results, result, top_k, assumed))
    return pa.concat_tables(tables)


def _predictions(results: StoredResults, result: Result, top_k: int, assumed: str) -> pa.Table:
    predictions = results.workspace.read(result, top_k=top_k, scores=False)
    n_images = len(predictions)
    class_names = predictions.space.names

    table = long_table(predictions, top_k, (), result.model_id, assumed, results.training_images(result))
    columns: dict[str, pa.Array] = dict(zip(["model", "model_id", *table.column_names[2:]], table.columns, strict=True))
    columns["label_name"] = class_column(class_names, predictions.labels)
    for k in range(top_k):
        if k < predictions.top.shape[1]:
            columns[f"top{k + 1}_name"] = class_column(class_names, predictions.top[:, k])
        else:
            columns[f"top{k + 1}_name"] = pa.nulls(n_images, pa.string())
    member = results.workspace.setting_record(result).member
    family = corruption = severity = None
    if member is not None:
        family = member.family
        corruption = member.name
        severity = member.level
    columns["family"] = pa.repeat(pa.scalar(family, pa.string()), n_images)
    columns["corruption"] = pa.repeat(pa.scalar(corruption, pa.string()), n_images)
    columns["severity"] = pa.repeat(pa.scalar(severity, pa.float64()), n_images)
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
