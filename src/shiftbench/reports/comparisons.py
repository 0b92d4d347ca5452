"""Models against each other on the same images, as a table."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist, fmean
from typing import NamedTuple

from shiftbench.errors import StoreError, UnknownNameError, listed
from shiftbench.grouping import by_key
from shiftbench.metrics import paired
from shiftbench.metrics.base import Score, SettingScore
from shiftbench.metrics.corruption_scores import Grid
from shiftbench.metrics.designs import compare_grids
from shiftbench.metrics.paired import Comparison
from shiftbench.reports import formatting
from shiftbench.reports.corruption import FamilyResults, corruption_families
from shiftbench.reports.models import design_notes, with_models
from shiftbench.reports.table import ModelRecords, Number, Table, columns_of, keys_of
from shiftbench.runs.results import StoredResults, mean_scores
from shiftbench.settings.base import SettingMean
from shiftbench.store.predictions import Predictions
from shiftbench.store.workspace import Result
from shiftbench.studies.base import finite_or_none

#: The fields that hold models, and what the keys of their ids begin with.
_MODELS = {"first": "first_", "second": "second_"}
#: The notes of a table name at most this many lines of provenance.
_MAX_PROVENANCE_NOTES = 6


@dataclass(frozen=True)
class _ComparisonRow:
    """A pair of models, as JSON and CSV have it; None where a number is not defined."""

    setting: str
    first: str
    second: str
    n: int
    first_accuracy: float | None
    second_accuracy: float | None
    only_first: int | None
    only_second: int | None
    difference: float | None
    low: float | None
    high: float | None
    p: float | None
    p_holm: float | None
    #: The name of the better one; empty if the test does not decide.
    better: str
    level: float
    provenance: str
    metric: str

    @classmethod
    def of(cls, comparison: Comparison) -> _ComparisonRow:
        return cls(
            setting=comparison.setting,
            first=comparison.first,
            second=comparison.second,
            n=comparison.n,
            first_accuracy=finite_or_none(comparison.first_accuracy),
            second_accuracy=finite_or_none(comparison.second_accuracy),
            only_first=comparison.only_first,
            only_second=comparison.only_second,
            difference=finite_or_none(comparison.difference),
            low=finite_or_none(comparison.low),
            high=finite_or_none(comparison.high),
            p=finite_or_none(comparison.p),
            p_holm=finite_or_none(comparison.p_holm),
            better=comparison.verdict,
            level=comparison.level,
            provenance=comparison.provenance,
            metric=comparison.metric,
        )


@dataclass(frozen=True)
class _ShownComparison:
    """What people see of a pair of models."""

    first: str
    second: str
    first_accuracy: Number
    second_accuracy: Number
    only_first: int | None
    only_second: int | None
    difference: Number
    p: float
    p_holm: float
    better: str
    #: The better one as "first" or "second", where its name is too long.
    which: str


@dataclass(frozen=True)
class _Contestants:
    """The results of one workspace that are compared with each other and with those of other workspaces."""

    run: StoredResults
    results: Sequence[Result]
    #: The family that the results belong to; None if they are in one setting.
    family: FamilyResults | None


class _StoredResult(NamedTuple):
    """A result, and the workspace that it is read from."""

    run: StoredResults
    result: Result


def compare_all(predictions: Iterable[Predictions], *, level: float = 0.95) -> Table:
    return comparison_table(paired.compare_all(predictions, level=level))


def compare_family(family: str, grids: Iterable[Grid], notes: Sequence[str], *, level: float = 0.95) -> Table:
    """Every pair of models in mean accuracy over a family of corrupted settings, or as a design estimates it."""
    pairs = itertools.combinations(grids, 2)
    comparisons = paired.corrected([compare_grids(family, first, second, level=level) for first, second in pairs])
    explanation = [
        "difference: first minus second in mean accuracy over corruptions and severities, "
        f"{formatting.level_text(level)} interval: Student's over images, paired",
        f"p: Student's test of the paired differences; p (Holm): corrected for {len(comparisons)} comparisons",
        "in a wide terminal and in --json also: predictions that only the first, only the second gets right",
        *notes,
    ]
    return comparison_table(comparisons, explanation=explanation)


def compare_mean(run: StoredResults, mean: SettingMean, *, level: float = 0.95) -> Table:
    """Every pair of models that have all settings of a mean, such as the eight shifts of DeepFashion Remixed."""
    scores: list[SettingScore] = []
    by_pair: dict[str, list[Comparison]] = {}
    image_ids: dict[str, frozenset[str]] = {}
    for setting in mean.settings:
        predictions = [run.workspace.read(result) for result in run.results if result.setting == setting]
        image_ids[setting] = frozenset[str]().union(*(prediction.ids for prediction in predictions))
        for comparison in paired.compare_all(predictions, level=level):
            pair = f"{comparison.first} | {comparison.second}"
            by_pair.setdefault(pair, []).append(comparison)
            scores.append(SettingScore(pair, setting, _difference_score(comparison, level)))
    comparisons = []
    for pair, _, score in mean_scores(mean, scores, image_ids):
        comparisons.append(_mean_comparison(mean, by_pair[pair], score, level))
    explanation = [
        f"difference: first minus second in the mean over {len(mean.settings)} settings, "
        f"{formatting.level_text(level)} interval: those of the settings put together, correlated by shared images",
        f"p: normal law with the spread of that interval; p (Holm): corrected for {len(comparisons)} comparisons",
    ]
    return comparison_table(paired.corrected(comparisons), explanation=explanation)


def _difference_score(comparison: Comparison, level: float) -> Score:
    return Score(
        comparison.metric,
        comparison.difference,
        comparison.low,
        comparison.high,
        comparison.n,
        level=level,
    )


def _mean_comparison(
    mean: SettingMean, comparisons: Sequence[Comparison], difference: Score, level: float
) -> Comparison:
    """Two models in the mean over settings, from their comparisons in each setting and the mean difference."""
    standard_error = (difference.high - difference.low) / (2 * NormalDist().inv_cdf((1 + level) / 2))
    return replace(
        comparisons[0],
        setting=mean.name,
        n=difference.n,
        first_accuracy=fmean(comparison.first_accuracy for comparison in comparisons),
        second_accuracy=fmean(comparison.second_accuracy for comparison in comparisons),
        only_first=None,
        only_second=None,
        difference=difference.value,
        low=difference.low,
        high=difference.high,
        p=paired.normal_p(difference.value, standard_error),
        provenance=difference.provenance,
    )


def compare_runs(
    runs: Sequence[StoredResults], setting: str | None = None, models: Sequence[str] = (), *, level: float = 0.95
) -> Table:
    """Models (names or ids) of one or several workspaces in a setting, a family, or, of one workspace, a mean over
    settings; by default all models, in the first setting that the workspaces share.

    Of results on several sets of images, those that most models have are compared. A name that several of the
    workspaces have gets its workspace.
    """
    name = setting or _first_shared_setting(runs)
    mean = _mean_called(runs[0], name)
    if mean is not None and len(runs) == 1:
        return with_models(compare_mean(runs[0], mean, level=level), runs[0])
    candidates = _results_called(runs, name)
    contestants = _only_models(candidates, models)
    # A title is unique or not among all models, also those that are not compared.
    titles: list[str] = []
    for candidate in candidates:
        titles += {result.title for result in candidate.results}
    if all(contestant.family is not None for contestant in contestants):
        table = _compare_families(name, contestants, titles, level)
    else:
        table = _compare_in_setting(contestants, titles, level)
    for run in runs:
        table = with_models(table, run)
    return table


def _first_shared_setting(runs: Sequence[StoredResults]) -> str:
    for setting in runs[0].settings:
        if all(setting in run.settings for run in runs):
            return setting
    raise StoreError("no setting that all of the workspaces have", found=listed(runs[0].settings) or "no results")


def _mean_called(run: StoredResults, name: str) -> SettingMean | None:
    for result in run.results:
        mean = run.workspace.setting_record(result).mean
        if mean is not None and mean.name == name:
            return mean
    return None


def _results_called(runs: Sequence[StoredResults], name: str) -> list[_Contestants]:
    """The results of every run in a family of that name, if all runs have it, otherwise in a setting of that name."""
    families = [corruption_families(run).get(name) for run in runs]
    if None in families:
        return [_Contestants(run, run.of_setting(name), family=None) for run in runs]
    contestants = []
    for run, family in zip(runs, families, strict=True):
        assert family is not None
        contestants.append(_Contestants(run, family.members, family))
    return contestants


def _only_models(candidates: Sequence[_Contestants], models: Sequence[str]) -> list[_Contestants]:
    """The results of these models; of all models if none is named."""
    title_of: dict[str, str] = {}
    for candidate in candidates:
        for result in candidate.results:
            title_of |= dict.fromkeys((result.title, result.name, result.model_id), result.title)
    for model in models:
        if model not in title_of:
            raise UnknownNameError("model", model, dict.fromkeys(title_of.values()))
    if not models:
        return list(candidates)
    contestants = []
    for candidate in candidates:
        results = [result for result in candidate.results if {result.title, result.name, result.model_id} & set(models)]
        contestants.append(replace(candidate, results=results))
    return contestants


def _compare_families(name: str, contestants: Sequence[_Contestants], titles: Sequence[str], level: float) -> Table:
    grids: list[Grid] = []
    results: list[Result] = []
    for contestant in contestants:
        assert contestant.family is not None
        family = replace(contestant.family, members=contestant.results)
        for grid in family.grids().values():
            grids.append(
                {cell: _titled(prediction, contestant.run, titles) for cell, prediction in grid.items()},
            )
        results += contestant.results
    return compare_family(name, grids, design_notes(results), level=level)


def _compare_in_setting(contestants: Sequence[_Contestants], titles: Sequence[str], level: float) -> Table:
    """The results on the images that most models share; a note names the others."""
    by_images: dict[str, list[_StoredResult]] = {}
    for contestant in contestants:
        for result in contestant.results:
            by_images.setdefault(result.spec.provenance, []).append(_StoredResult(contestant.run, result))
    # Among a sample and a full run of the same setting: as many models as possible, then as many images.
    compared = max(by_images.values(), key=lambda group: (len(group), group[0].result.spec.images), default=[])
    if len(compared) < 2:
        # No two models share their images: the comparison of all of them says how they differ.
        compared = list(itertools.chain.from_iterable(by_images.values()))
    predictions = [_titled(run.workspace.read(result), run, titles) for run, result in compared]
    table = compare_all(predictions, level=level)
    for provenance, group in by_images.items():
        if group[0] not in compared:
            left_out = [entry.result.title for entry in group]
            table.notes.append(f"left out: {listed(left_out)} on {provenance}")
    return table


def _titled(predictions: Predictions, run: StoredResults, titles: Sequence[str]) -> Predictions:
    """The predictions under a title that also names the workspace if several workspaces have the same title."""
    title = predictions.classifier
    if titles.count(title) != 1:
        title = f"{title} ({run.workspace.root})"
    return replace(predictions, classifier=title)


def comparison_table(comparisons: Sequence[Comparison], *, explanation: Sequence[str] | None = None) -> Table:
    """One row per pair. The p-values are read as one family: pass them through ``paired.corrected`` first.

    ``explanation`` says what the difference and the p-value are, if they are not McNemar's.
    """
    rows = [_ComparisonRow.of(comparison) for comparison in comparisons]
    notes: list[str] = []
    if comparisons:
        notes += _pair_explanation(comparisons) if explanation is None else explanation
    provenances = dict.fromkeys(comparison.provenance for comparison in comparisons if comparison.provenance)
    for provenance in list(provenances)[:_MAX_PROVENANCE_NOTES]:
        notes.append(f"provenance: {formatting.provenance(provenance)}")
    by_setting = by_key((comparison.setting, comparison) for comparison in comparisons)
    lead = [] if comparisons else ["nothing to compare: at least two models are needed"]
    return Table(
        columns_of("comparisons"),
        rows,
        shown=[],
        keys=keys_of(_ComparisonRow),
        lead=lead,
        notes=notes,
        parts=[_setting_table(setting, group) for setting, group in by_setting.items()],
        data={"title": "", "comparisons": ModelRecords(rows, _MODELS), "notes": notes},
    )


def _pair_explanation(comparisons: Sequence[Comparison]) -> list[str]:
    levels = " and ".join(dict.fromkeys(formatting.level_text(comparison.level) for comparison in comparisons))
    by_image = any(comparison.only_first is not None for comparison in comparisons)
    test = "normal law with the spread of the paired bootstrap"
    method = "by paired bootstrap of the images"
    if by_image:
        test = "exact McNemar"
        method = "by score and exact test, which excludes 0 where McNemar's test rejects without correction"
    explanation = [
        f"difference: first minus second, {levels} interval {method}",
        f"p: {test}; p (Holm): corrected for {len(comparisons)} comparisons; better: at that level after correction",
    ]
    if by_image:
        explanation.append(
            "in a wide terminal and in --json also: images that only the first, only the second gets right"
        )
    return explanation


def _setting_table(setting: str, comparisons: Sequence[Comparison]) -> Table:
    sizes = sorted({comparison.n for comparison in comparisons})
    n = formatting.count(sizes[0])
    if len(sizes) > 1:
        n += f" to {formatting.count(sizes[-1])}"
    metric = {"top1": "top-1"}.get(comparisons[0].metric, comparisons[0].metric)
    return Table(
        columns_of("comparisons"),
        [_shown(comparison) for comparison in comparisons],
        title=f"{setting} · {metric}, points · n = {n}",
    )


def _shown(comparison: Comparison) -> _ShownComparison:
    places = formatting.digits(comparison.n)
    winner = comparison.verdict
    if not winner:
        which = formatting.MISSING
    elif winner == comparison.first:
        which = "first"
    else:
        which = "second"
    return _ShownComparison(
        first=comparison.first,
        second=comparison.second,
        first_accuracy=Number(comparison.first_accuracy, places=places),
        second_accuracy=Number(comparison.second_accuracy, places=places),
        only_first=comparison.only_first,
        only_second=comparison.only_second,
        difference=Number(comparison.difference, comparison.low, comparison.high, places, bold=bool(winner)),
        p=comparison.p,
        p_holm=comparison.p_holm,
        better=winner or "undecided",
        which=which,
    )
