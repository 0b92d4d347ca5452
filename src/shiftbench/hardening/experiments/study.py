"""What an experiment found: accuracy without and under shift, effective and relative robustness, verdicts.

A number of a variant is the mean over its seeds. Its interval is over images and seeds, both taken as random: the
variance is that of the mean over images plus that of the mean over seeds, from the seeds of all variants together, with
Student's t at Satterthwaite's degrees of freedom. rho is not a mean, so its two variances come from the bootstrap over
images and from the jackknife over seeds, in which the line changes, too. With one seed the interval is over images
only, and no verdict is given; neither is one given if the networks are at chance level. The p-values of hypotheses have
the degrees of freedom of the seeds, as do those of directions; both are corrected for their number.

"Shifted" is the protocol's own metric: accuracy, mCE (as 1 - mCE, so that more is better), mAP or AUPR. Accuracy and
mCE are means over images. The others are not, so their units are the delete-a-group jackknife's pseudo-values, whose
mean is the metric and whose variance is that of the jackknife. The parts of an experiment are averaged.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np
from msgspec import structs
from numpy.typing import NDArray
from scipy import stats

from shiftbench import Predictions, Run
from shiftbench.extend.metrics import ALEXNET, anomaly_scores_of, holm, kept_scores
from shiftbench.extend.settings import ResultSpec
from shiftbench.extend.shifts import CORRUPTIONS
from shiftbench.extend.studies import (
    Evidence,
    HitData,
    Hypothesis,
    common_hits,
    image_bootstrap,
    weigh_hypotheses,
)
from shiftbench.extend.types import FloatArray
from shiftbench.hardening.experiments.base import Experiment, PaperClaim, PlannedRun, Variant, run_name
from shiftbench.metrics import aupr, mean_average_precision
from shiftbench.studies import Fit, StudyError, fit

#: (runs, images): the share of settings in which an image is classified correctly; or (runs, pseudo-values).
Hits = NDArray[Any]
#: Number of groups of images that the jackknife leaves out in turn.
GROUPS_LEFT_OUT = 50
#: Kinds of corruptions, in the order of the papers; others follow.
_GROUPS = ("noise", "blur", "weather", "digital")
#: A network is above chance level if its whole interval is above the accuracy that has this multiple of the odds of
#: guessing. Odds, since twice the accuracy of guessing between two classes would be 100 %.
CLEAR_ODDS = 2.0
#: The name of all shifts together, beside the groups of shifts.
ALL = "all"


@dataclass(frozen=True)
class SeedMean:
    """The mean over the seeds, its interval over images and seeds, and the standard deviation over the seeds."""

    value: float
    low: float
    high: float
    spread: float | None

    def times(self, factor: float) -> SeedMean:
        spread = None if self.spread is None else self.spread * factor
        return SeedMean(self.value * factor, self.low * factor, self.high * factor, spread)

    def bounded(self, lowest: float = 0.0) -> SeedMean:
        """Cut the interval to what is possible: with two or three seeds, Student's t reaches beyond it."""
        return replace(self, low=max(self.low, lowest), high=min(self.high, 1.0))

    def complement(self) -> SeedMean:
        """The error that belongs to an accuracy, or the mCE that belongs to 1 - mCE."""
        return SeedMean(1 - self.value, 1 - self.high, 1 - self.low, self.spread)


@dataclass(frozen=True)
class VariantResult:
    """Numbers are fractions; rho and tau are differences of fractions. ``shifted`` is 1 - mCE if the metric is mCE."""

    variant: str
    base: str
    clean: SeedMean
    shifted: SeedMean
    #: Accuracy under each group of shifts.
    groups: Mapping[str, SeedMean]
    #: Effective robustness; None where no line could be fitted.
    rho: SeedMean | None
    #: Relative robustness: accuracy under shift minus the base variant's.
    tau: SeedMean | None


@dataclass(frozen=True)
class Direction:
    """A claim of a paper, and what these runs say about it."""

    claim: PaperClaim
    difference: SeedMean
    #: The number of seeds in which the difference has the paper's sign.
    seeds_for: int
    seeds: int
    #: Student's t test of the difference, with the degrees of freedom of the seeds; nan with one seed.
    p: float = math.nan
    #: The same, corrected for the number of the experiment's directions; nan where no verdict is possible.
    p_holm: float = math.nan
    level: float = 0.95
    #: Neither of the two variants is clearly better than guessing.
    at_chance: bool = False

    @property
    def verdict(self) -> str:
        """The verdict is clear only if the interval, every seed and the corrected p-value agree."""
        if self.seeds == 1:
            return "no verdict: one seed"
        if self.at_chance:
            return "no verdict: at chance level"
        if not self.p_holm <= 1 - self.level:
            return "not clear"
        if self.difference.low > 0 and self.seeds_for == self.seeds:
            return "appears"
        if self.difference.high < 0 and self.seeds_for == 0:
            return "the opposite appears"
        return "not clear"


@dataclass(frozen=True)
class ExperimentStudy:
    """All numbers of an experiment, for its tables and its page."""

    experiment: Experiment
    scale: str
    seeds: int
    runs: Sequence[PlannedRun]
    command: str
    #: Changes that the user made to every recipe.
    changes: tuple[str, ...]
    level: float
    #: Number of images on the in-distribution side and on the shifted side.
    images: tuple[int, int]
    settings: tuple[str, ...]
    variants: list[VariantResult]
    directions: list[Direction]
    evidence: list[Evidence]
    line: Fit | None
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class SeedVariance:
    """The variance of a run's mean over seeds, with its degrees of freedom."""

    value: float
    freedom: float


@dataclass(frozen=True)
class _Measured:
    """All runs without and under shift, by the protocol's metric, and their hits under each group of shifts."""

    names: list[str]
    clean: Hits
    shifted: Hits
    groups: dict[str, Hits]
    paired: bool
    #: An interval of the number without shift that lies above this is clearly better than guessing.
    clean_floor: float
    #: The same of the number under shift.
    shifted_floor: float
    #: Hits under shift; None if a single image cannot be right or wrong, as in mAP and AUPR.
    hits: Hits | None

    def of(self, hits: Hits, variant: str, seeds: int) -> Hits:
        """The rows of a variant's runs, seed by seed."""
        rows = [self.names.index(run_name(variant, seed)) for seed in range(seeds)]
        return hits[rows]

    def seed_variance(self, hits: Hits, variants: Sequence[str], seeds: int) -> SeedVariance | None:
        """The variance of a run's mean over seeds, from all variants together; None with one seed or one variant.

        Two seeds of one variant may agree by chance, and say next to nothing about how far seeds differ. All variants
        are trained alike, so that their variances are pooled.
        """
        if seeds < 2 or len(variants) < 2:
            return None
        variances = [float(rows.mean(axis=1).var(ddof=1)) for rows in self.of_all(hits, variants, seeds)]
        return SeedVariance(float(np.mean(variances)), len(variances) * (seeds - 1))

    def of_all(self, hits: Hits, variants: Sequence[str], seeds: int) -> list[Hits]:
        """The rows of each variant's runs."""
        return [self.of(hits, variant, seeds) for variant in variants]


def study_runs(
    experiment: Experiment,
    scale: str,
    runs: Sequence[PlannedRun],
    evaluated: Sequence[Run],
    *,
    command: str = "",
    changes: Sequence[str] = (),
    level: float = 0.95,
) -> ExperimentStudy:
    """All numbers, computed from the stored predictions. ``evaluated`` has one ``Run`` per part of the experiment."""
    seeds = len({run.seed for run in runs})
    parts = []
    for number, evaluation in enumerate(evaluated):
        parts.append(_Part(evaluation, [run.name for run in runs if run.part == number]))
    names = [run_name(run.variant, run.seed) for run in runs if run.part == 0]
    measured = _joined([_measure(names, part, experiment.metric) for part in parts])
    settings: list[str] = []
    for part in parts:
        settings += [part.reference, *part.shifted]
    clean_images = sum(part.specs[part.reference].images for part in parts)
    shifted_images = sum(part.specs[part.shifted[0]].images for part in parts)
    # Notes are shown in this order: equal recipes, effective robustness, hypotheses.
    notes = _equal_recipes(runs)
    effective, line = _effective(experiment, measured, seeds, level, notes)
    evidence = _evidence(experiment, measured, seeds, level, notes)
    variants = []
    for variant in experiment.variants:
        variants.append(_variant_result(variant, experiment, measured, seeds, level, effective.get(variant.name)))
    return ExperimentStudy(
        experiment=experiment,
        scale=scale,
        seeds=seeds,
        runs=runs,
        command=command,
        changes=tuple(changes),
        level=level,
        images=(clean_images, shifted_images),
        settings=tuple(settings),
        variants=variants,
        directions=_directions(experiment, measured, seeds, level),
        evidence=evidence,
        line=line,
        notes=notes,
    )


def _equal_recipes(runs: Sequence[PlannedRun]) -> list[str]:
    """A note for each group of variants whose recipes do not differ at this scale."""
    variants_by_recipe: dict[str, list[str]] = {}
    for run in runs:
        if run.seed == 0 and run.part == 0:
            recipe = json.dumps(structs.replace(run.recipe, about="", sources={}).as_dict())
            variants_by_recipe.setdefault(recipe, []).append(run.variant)
    notes = []
    for variants in variants_by_recipe.values():
        if len(variants) > 1:
            notes.append(f"trained alike at this scale: {', '.join(variants)}")
    return notes


def _variant_result(
    variant: Variant,
    experiment: Experiment,
    measured: _Measured,
    seeds: int,
    level: float,
    rho: SeedMean | None,
) -> VariantResult:
    clean = measured.of(measured.clean, variant.name, seeds)
    shifted = measured.of(measured.shifted, variant.name, seeds)
    names = [other.name for other in experiment.variants]
    groups = {}
    for group, hits in measured.groups.items():
        of_seeds = measured.seed_variance(hits, names, seeds)
        groups[group] = _number(measured.of(hits, variant.name, seeds), level, of_seeds).bounded()
    of_seeds = measured.seed_variance(measured.shifted, names, seeds)
    tau = None
    if variant.base:
        gain = shifted - measured.of(measured.shifted, variant.base, seeds)
        tau = _number(gain, level, of_seeds, variants=2)
    # mCE may be above 1, so that 1 - mCE is below 0.
    lowest = -np.inf if experiment.metric == "mCE" else 0.0
    return VariantResult(
        variant=variant.name,
        base=variant.base,
        clean=_number(clean, level, measured.seed_variance(measured.clean, names, seeds)).bounded(),
        shifted=_number(shifted, level, of_seeds).bounded(lowest),
        groups=groups,
        rho=rho,
        tau=tau,
    )


class _Part:
    """The results of a part: the in-distribution setting, and the settings that name it as their reference."""

    def __init__(self, evaluated: Run, names: Sequence[str]) -> None:
        self.evaluated = evaluated
        self.names = names
        self.specs: dict[str, ResultSpec] = {result.setting: result.spec for result in evaluated.results}
        self.results = {(result.classifier, result.setting): result for result in evaluated.results}
        # All shifted settings of a part have one reference, which was checked before the training.
        references = [spec.reference for spec in self.specs.values() if spec.reference is not None]
        self.reference = references[0]
        self.shifted = [name for name, spec in self.specs.items() if spec.reference == self.reference]

    def read(self, setting: str, *, confidence: bool = False, scores: bool = False) -> Iterator[Predictions]:
        """The predictions of every run in a setting."""
        for name in self.names:
            result = self.results[name, setting]
            yield self.evaluated.workspace.read(result, top_k=1, confidence=confidence, scores=scores)

    def hits(self, settings: Sequence[str], weights: Sequence[float] | None = None) -> tuple[Hits, list[str]]:
        """The mean over the settings of right and wrong, on the images that count in all of them, and the images' ids.

        Settings without a common image, such as photographs of several countries, stand side by side, and each counts
        alike. With ``weights``, it is the weighted sum over the settings of the errors.
        """
        by_setting = [common_hits(list(self.read(setting))) for setting in settings]
        first_ids = by_setting[0][1]
        shared = set(first_ids).intersection(*(ids for _, ids in by_setting))
        if not shared and weights is None:
            all_ids = [image_id for _, ids in by_setting for image_id in ids]
            return _side_by_side([hits for hits, _ in by_setting]), all_ids
        kept = []
        for hits, ids in by_setting:
            columns = [image_id in shared for image_id in ids]
            kept.append(hits[:, columns])
        if weights is None:
            mean: Hits = np.mean(kept, axis=0)
        else:
            mean = np.tensordot(weights, 1.0 - np.array(kept), axes=1)
        return mean, [image_id for image_id in first_ids if image_id in shared]

    def groups(self) -> dict[str, list[str]]:
        """Corruptions by their kind: noise, blur, weather, digital; empty if the shifts are not corruptions."""
        groups: dict[str, list[str]] = {group: [] for group in _GROUPS}
        for setting in self.shifted:
            name = self.specs[setting].shift.corruption
            if name is not None and name in CORRUPTIONS:
                groups.setdefault(CORRUPTIONS.get(name).group, []).append(setting)
        return {group: members for group, members in groups.items() if members}


def _measure(names: list[str], part: _Part, metric: str) -> _Measured:
    """The rows of all runs in one part, with the level of guessing that belongs to the metric."""
    if metric == "mAP":
        clean, floor = _precisions(part, [part.reference])
        shifted, shifted_floor = _precisions(part, part.shifted)
        return _Measured(names, clean, shifted, {}, False, floor, shifted_floor, None)
    clean, clean_ids = part.hits([part.reference])
    clear_accuracy = _clear_accuracy(len(next(part.read(part.reference)).space))
    if metric == "AUPR":
        shifted, floor = _detected(part)
        return _Measured(names, clean, shifted, {}, False, clear_accuracy, floor, None)
    hits, ids = part.hits(part.shifted)
    groups = {group: part.hits(settings)[0] for group, settings in part.groups().items()}
    measured = _Measured(names, clean, hits, groups, clean_ids == ids, clear_accuracy, clear_accuracy, hits)
    if metric != "mCE":
        return measured
    weights = _corruption_weights(part)
    floor = 1 - sum(weights) * (1 - clear_accuracy)
    shifted = 1 - part.hits(part.shifted, weights)[0]
    return replace(measured, shifted=shifted, clean_floor=clear_accuracy, shifted_floor=floor)


def _clear_accuracy(classes: int) -> float:
    """An accuracy that is clearly better than guessing.

    >>> [round(_clear_accuracy(classes), 3) for classes in (2, 3, 10, 1000)]
    [0.667, 0.5, 0.182, 0.002]
    """
    if classes == 1:
        return 1.0
    odds = CLEAR_ODDS / (classes - 1)
    return odds / (1 + odds)


def _corruption_weights(part: _Part) -> list[float]:
    """The mCE that an error in each setting adds: 1 / (corruptions * sum over severities of AlexNet's error)."""
    shifts = [part.specs[setting].shift for setting in part.shifted]
    severities: dict[str, list[float]] = {}
    for shift in shifts:
        severities.setdefault(str(shift.corruption), []).append(float(shift.severity or 0))
    sums = {}
    for corruption, levels in severities.items():
        sums[corruption] = len(levels) * ALEXNET.mean(corruption, levels)
    return [1 / (len(severities) * sums[str(shift.corruption)]) for shift in shifts]


def _precisions(part: _Part, settings: Sequence[str]) -> tuple[Hits, float]:
    """mAP, the mean over the settings, and the mAP of guessing: the labels' shares, weighted as the classes are."""
    values = []
    guessing = []
    for setting in settings:
        rows = []
        for predictions in part.read(setting, scores=True):
            used = predictions.readable & predictions.multi_hot.any(axis=1)
            scores = kept_scores(predictions)[used]
            truth = predictions.multi_hot[used]

            # The arrays are bound as defaults, because the loop assigns these names again.
            def precision(
                kept: NDArray[np.bool_], scores: NDArray[np.float32] = scores, truth: NDArray[np.bool_] = truth
            ) -> float:
                return mean_average_precision(scores[kept], truth[kept])

            rows.append(_jackknifed(precision, len(truth)))
            frequencies = truth.sum(axis=0)
        guessing.append(float((frequencies / frequencies.sum()) @ (frequencies / len(truth))))
        values.append(rows)
    return np.mean(values, axis=0), float(np.mean(guessing))


def _detected(part: _Part) -> tuple[Hits, float]:
    """AUPR of the shifted images against the reference's, by the largest softmax, and the share of shifted images."""
    rows = []
    reference = part.read(part.reference, confidence=True)
    shifted = part.read(part.shifted[0], confidence=True)
    for inside, outside in zip(reference, shifted, strict=True):
        inside_scores = anomaly_scores_of(inside, inside.valid, "max_softmax")
        outside_scores = anomaly_scores_of(outside, outside.readable, "max_softmax")

        # The arrays are bound as defaults, because the loop assigns these names again.
        def area(
            kept: NDArray[np.bool_],
            inside_scores: FloatArray = inside_scores,
            outside_scores: FloatArray = outside_scores,
        ) -> float:
            count = len(inside_scores)
            return aupr(inside_scores[kept[:count]], outside_scores[kept[count:]])

        rows.append(_jackknifed(area, len(inside_scores), len(outside_scores)))
    return np.array(rows), len(outside_scores) / (len(inside_scores) + len(outside_scores))


def _jackknifed(statistic: Callable[[NDArray[np.bool_]], float], *counts: int) -> NDArray[np.float64]:
    """Pseudo-values of a statistic of the images that are kept.

    ``counts`` are the sizes of the sets of images, which follow each other; each group takes images from all of them.
    """
    group = np.concatenate([np.arange(count) % GROUPS_LEFT_OUT for count in counts])
    without = np.array([statistic(group != number) for number in range(GROUPS_LEFT_OUT)])
    values: NDArray[np.float64] = statistic(group >= 0) + (GROUPS_LEFT_OUT - 1) * (without.mean() - without)
    return values


def _joined(parts: Sequence[_Measured]) -> _Measured:
    """The mean over parts. An image counts 1 / its part's number of images, since parts may differ in size."""
    if len(parts) == 1:
        return parts[0]

    hits = [part.hits for part in parts if part.hits is not None]
    return _Measured(
        names=parts[0].names,
        clean=_side_by_side([part.clean for part in parts]),
        shifted=_side_by_side([part.shifted for part in parts]),
        groups={},
        paired=all(part.paired for part in parts),
        clean_floor=max(part.clean_floor for part in parts),
        shifted_floor=max(part.shifted_floor for part in parts),
        hits=_side_by_side(hits) if len(hits) == len(parts) else None,
    )


def _side_by_side(hits_of_parts: Sequence[Hits]) -> Hits:
    """Hits on different images, whose mean is the mean of the parts' means."""
    total = sum(hits.shape[1] for hits in hits_of_parts)
    weighted = [hits * (total / (len(hits_of_parts) * hits.shape[1])) for hits in hits_of_parts]
    return np.concatenate(weighted, axis=1)


def _number(hits: Hits, level: float, of_seeds: SeedVariance | None = None, variants: int = 1) -> SeedMean:
    """The mean of (seeds, images), with its interval.

    Args:
        hits: The outcomes, or their difference between two variants.
        level: Confidence level of the interval.
        of_seeds: The variance over seeds from all variants; default: from these seeds alone.
        variants: Number of variants whose runs the outcomes are of.
    """
    if of_seeds is None:
        error, freedom = _standard_error(hits)
    else:
        error, freedom = _pooled_error(hits, of_seeds, variants)
    return _seed_mean(float(hits.mean()), hits.mean(axis=1), error, freedom, level)


def _seed_mean(value: float, by_seed: FloatArray, error: float, freedom: float, level: float) -> SeedMean:
    half = float(stats.t.ppf((1 + level) / 2, freedom)) * error
    spread = float(by_seed.std(ddof=1)) if len(by_seed) > 1 else None
    return SeedMean(value, value - half, value + half, spread)


def _standard_error(hits: Hits) -> tuple[float, float]:
    """The standard error of the mean of (seeds, images) and its degrees of freedom; with one seed, over images only."""
    seeds, images = hits.shape
    over_images = float(hits.mean(axis=0).var(ddof=1)) / images
    over_seeds = 0.0
    if seeds > 1:
        over_seeds = float(hits.mean(axis=1).var(ddof=1)) / seeds
    return _total_error(over_images, images, over_seeds, seeds - 1)


def _pooled_error(hits: Hits, of_seeds: SeedVariance, variants: int) -> tuple[float, float]:
    """The standard error of the mean of (seeds, images), with the variance over seeds from all variants."""
    seeds, images = hits.shape
    over_images = float(hits.mean(axis=0).var(ddof=1)) / images
    return _total_error(over_images, images, variants * of_seeds.value / seeds, of_seeds.freedom)


def _total_error(over_images: float, images: int, over_seeds: float, freedom_of_seeds: float) -> tuple[float, float]:
    """The standard error from two variances, with Satterthwaite's degrees of freedom."""
    total = over_images + over_seeds
    if not total:
        return 0.0, 1.0
    freedom = total**2 / (over_seeds**2 / max(freedom_of_seeds, 1) + over_images**2 / (images - 1))
    return total**0.5, freedom


def _effective(
    experiment: Experiment, measured: _Measured, seeds: int, level: float, notes: list[str]
) -> tuple[dict[str, SeedMean], Fit | None]:
    """rho of every variant's mean; the line goes through the runs of the baseline variants.

    There is no rho and no line, but a note, if the metric is not an accuracy or no line can be fitted.
    """
    if measured.hits is None:
        notes.append(f"no effective robustness: its line is one of accuracies, and the metric is {experiment.metric}")
        return {}, None
    variants = [variant.name for variant in experiment.variants]
    clean = measured.of_all(measured.clean, variants, seeds)
    shifted = measured.of_all(measured.hits, variants, seeds)
    try:
        bootstrapped = image_bootstrap(
            _runs_and_means(clean),
            _runs_and_means(shifted),
            models=[*_run_names(variants, seeds), *variants],
            baseline=_run_names(experiment.baseline, seeds),
            paired=measured.paired,
            level=level,
        )
        over_seeds = _jackknifed_rho(
            np.array([hits.mean(axis=1) for hits in clean]),
            np.array([hits.mean(axis=1) for hits in shifted]),
            baseline=[variants.index(name) for name in experiment.baseline],
        )
    except StudyError as error:
        notes.append(f"no effective robustness: {error.message}")
        return {}, None
    rows = bootstrapped.effective
    notes += [note for note in rows.notes if note not in notes]
    images = min(clean[0].shape[1], shifted[0].shape[1])
    # The bootstrap's interval is taken as normal, so that its half-width gives the standard error over images.
    normal_half_width = float(stats.norm.ppf((1 + level) / 2))
    rhos = {}
    for name, variance in zip(variants, over_seeds, strict=True):
        row = rows[name]
        by_seed = np.array([rows[run_name(name, seed)].rho for seed in range(seeds)])
        over_images = ((row.high - row.low) / 2 / normal_half_width) ** 2
        total_error, freedom = _total_error(over_images, images, variance, seeds - 1)
        rhos[name] = _seed_mean(row.rho, by_seed, total_error, freedom, level)
    return rhos, bootstrapped.line


def _run_names(variants: Sequence[str], seeds: int) -> list[str]:
    """The runs of the variants, variant by variant."""
    return [run_name(variant, seed) for variant, seed in product(variants, range(seeds))]


def _runs_and_means(by_variant: Sequence[Hits]) -> Hits:
    """The rows of all runs, variant by variant, and then each variant's mean over its runs."""
    means = [hits.mean(axis=0) for hits in by_variant]
    return np.concatenate([*by_variant, means])


def _jackknifed_rho(clean: FloatArray, shifted: FloatArray, baseline: Sequence[int]) -> FloatArray:
    """Each variant's variance of rho over seeds, from (variants, seeds) with each seed left out in turn; 0 for one."""
    seeds = clean.shape[1]
    if seeds == 1:
        return np.zeros(len(clean))
    without = []
    for seed in range(seeds):
        x = np.delete(clean, seed, axis=1)
        y = np.delete(shifted, seed, axis=1)
        line = fit(x[baseline].ravel(), y[baseline].ravel(), unit="fraction", resamples=0)
        without.append(y.mean(axis=1) - line.predict(x.mean(axis=1)))
    return np.asarray((seeds - 1) * np.var(without, axis=0))


def _directions(experiment: Experiment, measured: _Measured, seeds: int, level: float) -> list[Direction]:
    """The claims of the papers, with p-values that are corrected for the number of those that can get a verdict."""
    directions = [_direction(claim, experiment, measured, seeds, level) for claim in experiment.claims]
    p_values = [math.nan if direction.at_chance else direction.p for direction in directions]
    corrected = []
    for direction, p in zip(directions, holm(p_values), strict=True):
        corrected.append(replace(direction, p_holm=float(p)))
    return corrected


def _direction(claim: PaperClaim, experiment: Experiment, measured: _Measured, seeds: int, level: float) -> Direction:
    if claim.measure == "clean":
        hits = measured.clean
        floor = measured.clean_floor
    else:
        hits = measured.shifted
        floor = measured.shifted_floor
    better = measured.of(hits, claim.better, seeds)
    worse = measured.of(hits, claim.worse, seeds)
    difference = better - worse
    of_seeds = measured.seed_variance(hits, [variant.name for variant in experiment.variants], seeds)
    above_chance = any(_number(side, level, of_seeds).low > floor for side in (better, worse))
    return Direction(
        claim,
        _number(difference, level, of_seeds, variants=2),
        seeds_for=int((difference.mean(axis=1) > 0).sum()),
        seeds=seeds,
        p=_pooled_p_value(difference, of_seeds),
        level=level,
        at_chance=not above_chance,
    )


def _evidence(
    experiment: Experiment, measured: _Measured, seeds: int, level: float, notes: list[str]
) -> list[Evidence]:
    """Each hypothesis by its pairs, seed by seed, on all shifts together and on each group.

    There is no evidence, but a note, if the experiment cannot decide about hypotheses.
    """
    pairs = _hypothesis_pairs(experiment, seeds)
    if not pairs:
        return []
    reason = _no_verdicts(experiment, measured, seeds, level)
    if reason is not None or measured.hits is None:
        notes.append(f"no verdicts on hypotheses: {reason}")
        return []

    def by_run(hits: Hits) -> dict[str, Hits]:
        return dict(zip(measured.names, hits, strict=True))

    clean = by_run(measured.clean)
    shifts = {ALL: measured.hits, **measured.groups}
    data = [HitData(name, by_run(hits), clean) for name, hits in shifts.items()]
    hypotheses = [Hypothesis(name, tuple(runs)) for name, runs in pairs.items()]
    evidence = weigh_hypotheses(hypotheses, data, level=level)
    evidence.sort(key=lambda row: list(pairs).index(row.hypothesis))
    with_seeds = []
    for row in evidence:
        hits = shifts[row.dataset]
        with_seeds.append(_over_images_and_seeds(row, pairs[row.hypothesis], measured.names, hits, seeds, level))
    corrected_p_values = holm([np.nan if row.p is None else row.p for row in with_seeds])
    corrected = []
    for row, p in zip(with_seeds, corrected_p_values, strict=True):
        # A verdict that the corrected p-value does not support is withdrawn; so is one without a p-value, which is nan.
        verdict = row.verdict if p <= 1 - level else "0"
        corrected.append(replace(row, p_holm=float(p), verdict=verdict))
    return corrected


def _hypothesis_pairs(experiment: Experiment, seeds: int) -> dict[str, list[tuple[str, str]]]:
    """The runs that each hypothesis compares: (variant, base), variant by variant, each in all seeds."""
    pairs: dict[str, list[tuple[str, str]]] = {}
    for variant in experiment.variants:
        if variant.hypothesis:
            for seed in range(seeds):
                pair = (run_name(variant.name, seed), run_name(variant.base, seed))
                pairs.setdefault(variant.hypothesis, []).append(pair)
    return pairs


def _no_verdicts(experiment: Experiment, measured: _Measured, seeds: int, level: float) -> str | None:
    """The reason why no verdict can be given on hypotheses; None if verdicts can be given."""
    if seeds == 1:
        return "one seed does not show the chance of training"
    if measured.hits is None:
        return f"they are weighed on accuracies, and the metric is {experiment.metric}"
    variants = [variant.name for variant in experiment.variants]
    clean = measured.of_all(measured.clean, variants, seeds)
    if all(_number(hits, level).low <= measured.clean_floor for hits in clean):
        return "all networks are at chance level"
    return None


def _over_images_and_seeds(
    evidence: Evidence, pairs: Sequence[tuple[str, str]], names: list[str], hits: Hits, seeds: int, level: float
) -> Evidence:
    """The evidence with an interval and a p-value over images and seeds, in place of those over images."""
    hits = hits.astype(float)
    variant_rows = [names.index(variant) for variant, _ in pairs]
    base_rows = [names.index(base) for _, base in pairs]
    # Pairs come variant by variant, each in all seeds, so that the first axis is the one of variants.
    gains = (hits[variant_rows] - hits[base_rows]).reshape(-1, seeds, hits.shape[1]).mean(axis=0)
    number = _number(gains, level).times(100)
    return replace(evidence, low=number.low, high=number.high, p=_p_value(gains))


def _p_value(gains: Hits) -> float:
    """Student's t test of the mean of (seeds, images), with as many degrees of freedom as the seeds support.

    Satterthwaite's degrees of freedom serve the intervals well. Estimated from few seeds, however, they are large where
    the seeds happen to agree, and p-values far below 0.05, which Holm's correction needs, came out too small.
    """
    error, _ = _standard_error(gains)
    if not error:
        return 1.0
    return float(2 * stats.t.sf(abs(gains.mean()) / error, len(gains) - 1))


def _pooled_p_value(difference: Hits, of_seeds: SeedVariance | None) -> float:
    """Student's t test of the difference between two variants, (seeds, images); nan with one seed.

    The degrees of freedom are those of the variance over seeds, from all variants together.
    """
    if of_seeds is None:
        return math.nan
    error, _ = _pooled_error(difference, of_seeds, variants=2)
    if not error:
        return 1.0
    return float(2 * stats.t.sf(abs(difference.mean()) / error, of_seeds.freedom))
