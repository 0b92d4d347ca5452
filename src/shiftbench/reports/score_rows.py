"""All scores of some results as rows of one shape: what data frames and loggers get.

A row without a severity is the mean over the severities of its corruption; without a corruption, the mean over all
corruptions of its family.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from shiftbench.datasets.corruption_names import BENCHMARK_CORRUPTIONS
from shiftbench.errors import SettingError, StoreError
from shiftbench.metrics.base import Score
from shiftbench.metrics.corruption import ALEXNET, SEVERITIES
from shiftbench.metrics.corruption_scores import CorruptionScores
from shiftbench.reports.corruption import all_corruption_scores, corruption_families, over_imagenet
from shiftbench.reports.perturbation import flip_entries, perturbation_families
from shiftbench.settings.base import Member

if TYPE_CHECKING:
    from shiftbench.runs.results import StoredResults


@dataclass(frozen=True)
class ScoreRow:
    """One score and what it is of."""

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
    rows = _single_rows(results, metric, level)
    if metric is None:
        rows += [*_corruption_rows(results, level), *_flip_rows(results, level)]
    return rows


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


def _single_rows(results: StoredResults, metric: str | None, level: float) -> list[ScoreRow]:
    frames = {
        one.setting for family in perturbation_families(results.workspace, results.results).values() for one in family
    }
    places = {one.setting: results.workspace.setting_record(one).member for one in results.results}
    scores = results.scores(metric, level=level) if metric else results.shown_scores(level=level)
    return [_row(*entry, places.get(entry[1])) for entry in scores if entry[1] not in frames]


def _row(model: str, setting: str, score: Score, member: Member | None) -> ScoreRow:
    if member is None:
        return ScoreRow(model, setting, score)
    return ScoreRow(model, setting, score, member.family, member.name, member.level)


def _corruption_rows(results: StoredResults, level: float) -> Iterator[ScoreRow]:
    for family, settings in corruption_families(results.workspace, results.results).items():
        members = [result for result in results.results if result.setting in settings.values()]
        divisor = ALEXNET if over_imagenet(results.workspace, members) else None
        clean = members[0].spec.reference
        try:
            found = all_corruption_scores(results.workspace, results.results, family, clean, divisor, level)
        except SettingError:  # some severities of some corruptions are missing: nothing to average yet
            continue
        for model, scores, _ in found:
            yield from _means(model, family, scores)


def _means(model: str, family: str, scores: CorruptionScores) -> Iterator[ScoreRow]:
    whole = set(scores.corruptions) == set(BENCHMARK_CORRUPTIONS) and scores.severities == SEVERITIES
    yield ScoreRow(model, family, _accuracy(scores.mean_error), family)
    # Only the mean over the whole benchmark may be called as the published number is.
    for score, name in ((scores.mce, "mCE"), (scores.relative_mce, "relative mCE")):
        if score is not None:
            yield ScoreRow(model, family, replace(score, metric=name if whole else f"partial {name}"), family)
    for corruption, error in scores.error.items():
        yield ScoreRow(model, family, _accuracy(error), family, corruption)
    for kind, name in ((scores.ce, "CE"), (scores.relative_ce, "relative CE")):
        for corruption, score in kind.items():
            named = replace(score, metric=name if scores.severities == SEVERITIES else f"partial {name}")
            yield ScoreRow(model, family, named, family, corruption)


def _accuracy(error: Score) -> Score:
    value, low, high = 1 - error.value, 1 - error.high, 1 - error.low
    return replace(error, metric="top1", value=value, low=low, high=high, higher_is_better=True)


def _flip_rows(results: StoredResults, level: float) -> Iterator[ScoreRow]:
    for family in perturbation_families(results.workspace, results.results):
        for model, name, score in flip_entries(results.workspace, results.results, family, level):
            if name == family:
                yield ScoreRow(model, family, replace(score, metric="flip probability"), family)
            else:
                yield ScoreRow(model, family, score, family, name)
