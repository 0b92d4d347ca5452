"""What an experiment found: accuracy without and under shift, effective and relative robustness, verdicts.

A number of a variant is the mean over its seeds. Its interval is over images and seeds, both taken as random: the
variance is that of the mean over images plus that of the mean over seeds, with Student's t at Satterthwaite's degrees
of freedom. For rho, which is not a mean, they come from the bootstrap over images and from the jackknife over seeds, in
which the line changes, too. With one seed it is over images only, and no verdict is given; nor if the networks are at
chance level.

"Shifted" is the protocol's own metric: accuracy, mCE (as 1 - mCE, so that more is better), mAP or AUPR. Accuracy and
mCE are means over images. The others are not, so their units are the delete-a-group jackknife's pseudo-values, whose
mean is the metric and whose variance is that of the jackknife. Of several parts of an experiment, the mean is taken.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from msgspec import structs
from numpy.typing import NDArray
from scipy import stats

from shiftbench.api import Run
from shiftbench.arrays import BoolArray, FloatArray
from shiftbench.hardening.experiments.base import Experiment, PaperClaim, PlannedRun, run_name
from shiftbench.metrics.arrays import kept_scores
from shiftbench.metrics.corruption import ALEXNET
from shiftbench.metrics.detection import anomaly_scores_of, aupr
from shiftbench.metrics.multilabel import mean_average_precision
from shiftbench.metrics.paired import holm
from shiftbench.shifts.corruptions.catalogue import CORRUPTIONS, GROUPS
from shiftbench.store.predictions import Predictions
from shiftbench.store.spec import ResultSpec
from shiftbench.studies.base import FRACTION, StudyError
from shiftbench.studies.fits import Fit, fit
from shiftbench.studies.hypotheses import Evidence, HitData, Hypothesis, weigh_hypotheses
from shiftbench.studies.image_bootstrap import common_hits, image_bootstrap

#: (runs, images): the share of settings in which an image is answered right; or (runs, pseudo-values).
Hits = NDArray[Any]
#: Groups of images that the jackknife leaves out in turn.
GROUPS_LEFT_OUT = 50
#: A network is above chance level if its interval is above this multiple of it.
CLEAR = 2.0
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
        """As a fraction: with two or three seeds, Student's t reaches beyond what is possible."""
        return replace(self, low=max(self.low, lowest), high=min(self.high, 1.0))

    def complement(self) -> SeedMean:
        """An error from an accuracy, mCE from 1 - mCE."""
        return SeedMean(1 - self.value, 1 - self.high, 1 - self.low, self.spread)


@dataclass(frozen=True)
class VariantResult:
    """Fractions, but for rho and tau, which are differences of them. ``shifted``: by the metric; 1 - mCE for mCE."""

    variant: str
    base: str
    clean: SeedMean
    shifted: SeedMean
    #: Under each group of shifts.
    groups: Mapping[str, SeedMean]
    #: Effective robustness; None where no line could be fitted.
    rho: SeedMean | None
    #: Relative robustness: accuracy under shift minus the base variant's.
    tau: SeedMean | None


@dataclass(frozen=True)
class Direction:
    """A claim of a paper, and what these runs say of it."""

    claim: PaperClaim
    difference: SeedMean
    #: In how many seeds the difference has the paper's sign.
    seeds_for: int
    seeds: int
    #: Whether neither of the two is clearly better than guessing.
    at_chance: bool = False

    @property
    def verdict(self) -> str:
        """Clear where the interval and every seed say the same."""
        if self.seeds == 1:
            return "no verdict: one seed"
        if self.at_chance:
            return "no verdict: at chance level"
        if self.difference.low > 0 and self.seeds_for == self.seeds:
            return "appears"
        return "the opposite appears" if self.difference.high < 0 and not self.seeds_for else "not clear"


@dataclass(frozen=True)
class ExperimentStudy:
    experiment: Experiment
    scale: str
    seeds: int
    runs: Sequence[PlannedRun]
    command: str
    #: What the user set in every recipe.
    changes: tuple[str, ...]
    level: float
    #: Images of the in-distribution and of the shifted side.
    images: tuple[int, int]
    settings: tuple[str, ...]
    variants: list[VariantResult]
    directions: list[Direction]
    evidence: list[Evidence]
    line: Fit | None
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Measured:
    """All runs on the clean side and under shift, by the protocol's metric, and hits under each group of shifts."""

    names: list[str]
    clean: Hits
    shifted: Hits
    groups: dict[str, Hits]
    paired: bool
    #: What an interval must be above, clean and under shift, to be clearly better than guessing.
    floors: tuple[float, float]
    #: Hits under shift; None where single images are not right or wrong.
    hits: Hits | None

    def of(self, hits: Hits, variant: str, seeds: int) -> Hits:
        rows = [self.names.index(run_name(variant, seed)) for seed in range(seeds)]
        return hits[rows]


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
    """All numbers anew from the stored predictions: one ``Run`` per part of the experiment."""
    seeds = len({run.seed for run in runs})
    parts = [_Part(one, [run.name for run in runs if run.part == i]) for i, one in enumerate(evaluated)]
    names = [run_name(run.variant, run.seed) for run in runs if run.part == 0]
    measured = _joined([_measure(names, part, experiment.metric) for part in parts])
    alike: dict[str, list[str]] = {}
    for run in runs:
        if run.seed == run.part == 0:
            same = json.dumps(structs.replace(run.recipe, about="", sources={}).as_dict())
            alike.setdefault(same, []).append(run.variant)
    notes = [f"trained alike at this scale: {', '.join(names)}" for names in alike.values() if len(names) > 1]
    effective, line = _effective(experiment, measured, seeds, level, notes)
    variants = []
    for one in experiment.variants:
        clean, shifted, *groups = (
            measured.of(hits, one.name, seeds) for hits in (measured.clean, measured.shifted, *measured.groups.values())
        )
        tau = _number(shifted - measured.of(measured.shifted, one.base, seeds), level) if one.base else None
        by_group = {name: _number(hits, level).bounded() for name, hits in zip(measured.groups, groups, strict=True)}
        # mCE may be above 1, so that 1 - mCE is below 0.
        under = _number(shifted, level).bounded(-np.inf if experiment.metric == "mCE" else 0.0)
        rho = effective.get(one.name)
        variants.append(VariantResult(one.name, one.base, _number(clean, level).bounded(), under, by_group, rho, tau))
    return ExperimentStudy(
        experiment,
        scale,
        seeds,
        runs,
        command,
        tuple(changes),
        level,
        (sum(one.specs[one.reference].images for one in parts), sum(one.specs[one.shifted[0]].images for one in parts)),
        tuple(setting for part in parts for setting in (part.reference, *part.shifted)),
        variants,
        [_direction(claim, measured, seeds, level) for claim in experiment.claims],
        _evidence(experiment, measured, seeds, level, notes),
        line,
        notes,
    )


class _Part:
    """The results of a part: the in-distribution setting, and those that name it as their reference."""

    def __init__(self, evaluated: Run, names: Sequence[str]) -> None:
        self.evaluated, self.names = evaluated, names
        self.specs: dict[str, ResultSpec] = {result.setting: result.spec for result in evaluated.results}
        self.results = {(result.classifier, result.setting): result for result in evaluated.results}
        self.reference = str(next(spec.reference for spec in self.specs.values() if spec.reference is not None))
        self.shifted = [name for name, spec in self.specs.items() if spec.reference == self.reference]

    def read(self, setting: str, *, confidence: bool = False, scores: bool = False) -> Iterator[Predictions]:
        for name in self.names:
            result = self.results[name, setting]
            yield self.evaluated.workspace.read(result, top_k=1, confidence=confidence, scores=scores)

    def hits(self, settings: Sequence[str], weights: Sequence[float] | None = None) -> tuple[Hits, list[str]]:
        """The mean over the settings of right and wrong, on the images that count in all of them."""
        by_setting = [common_hits(list(self.read(setting))) for setting in settings]
        shared = set(by_setting[0][1]).intersection(*(ids for _, ids in by_setting))
        kept = [hits[:, [one in shared for one in ids]] for hits, ids in by_setting]
        mean = np.mean(kept, axis=0) if weights is None else np.tensordot(weights, 1.0 - np.array(kept), axes=1)
        return mean, [one for one in by_setting[0][1] if one in shared]

    def groups(self) -> dict[str, list[str]]:
        """Corruptions by their kind: noise, blur, weather, digital; nothing where the shifts are no corruptions."""
        found: dict[str, list[str]] = {group: [] for group in GROUPS}
        for setting in self.shifted:
            name = self.specs[setting].shift.corruption
            if name is not None and name in CORRUPTIONS:
                found.setdefault(CORRUPTIONS.get(name).group, []).append(setting)
        return {group: members for group, members in found.items() if members}


def _measure(names: list[str], part: _Part, metric: str) -> _Measured:
    if metric == "mAP":
        clean, floor = _precisions(part, [part.reference])
        shifted, shifted_floor = _precisions(part, part.shifted)
        return _Measured(names, clean, shifted, {}, False, (floor, shifted_floor), None)
    clean, clean_ids = part.hits([part.reference])
    guessing = 1 / len(next(part.read(part.reference)).space)
    if metric == "AUPR":
        shifted, floor = _detected(part)
        return _Measured(names, clean, shifted, {}, False, (CLEAR * guessing, floor), None)
    hits, ids = part.hits(part.shifted)
    groups = {group: part.hits(settings)[0] for group, settings in part.groups().items()}
    found = _Measured(names, clean, hits, groups, clean_ids == ids, (CLEAR * guessing, CLEAR * guessing), hits)
    if metric != "mCE":
        return found
    weights = _corruption_weights(part)
    floor = 1 - sum(weights) * (1 - CLEAR * guessing)
    return replace(found, shifted=1 - part.hits(part.shifted, weights)[0], floors=(CLEAR * guessing, floor))


def _corruption_weights(part: _Part) -> list[float]:
    """What an error in each setting adds to the mCE: 1 / (corruptions * sum over severities of AlexNet's error)."""
    cells = [(part.specs[setting].shift.corruption, part.specs[setting].shift.severity) for setting in part.shifted]
    severities: dict[str, list[float]] = {}
    for corruption, severity in cells:
        severities.setdefault(str(corruption), []).append(float(severity or 0))
    sums = {one: len(levels) * ALEXNET.mean(one, levels) for one, levels in severities.items()}
    return [1 / (len(severities) * sums[str(corruption)]) for corruption, _ in cells]


def _precisions(part: _Part, settings: Sequence[str]) -> tuple[Hits, float]:
    """mAP, the mean over the settings, and that of guessing: the labels' shares, weighted as the classes are."""
    found, guessing = [], []
    for setting in settings:
        rows = []
        for one in part.read(setting, scores=True):
            used = one.readable & one.multi_hot.any(axis=1)
            scores, truth = kept_scores(one)[used], one.multi_hot[used]

            def precision(kept: BoolArray, scores: NDArray[np.float32] = scores, truth: BoolArray = truth) -> float:
                return mean_average_precision(scores[kept], truth[kept])

            rows.append(_jackknifed(precision, len(truth)))
            frequencies = truth.sum(axis=0)
        guessing.append(float((frequencies / frequencies.sum()) @ (frequencies / len(truth))))
        found.append(rows)
    return np.mean(found, axis=0), float(np.mean(guessing))


def _detected(part: _Part) -> tuple[Hits, float]:
    """AUPR of the shifted images against the reference's, by the largest softmax, and the share of the former."""
    rows = []
    sides = (part.read(setting, confidence=True) for setting in (part.reference, part.shifted[0]))
    for inside, outside in zip(*sides, strict=True):
        known = anomaly_scores_of(inside, inside.valid, "max_softmax")
        other = anomaly_scores_of(outside, outside.readable, "max_softmax")

        def area(kept: BoolArray, known: FloatArray = known, other: FloatArray = other) -> float:
            return aupr(known[kept[: len(known)]], other[kept[len(known) :]])

        rows.append(_jackknifed(area, len(known), len(other)))
    return np.array(rows), len(other) / (len(known) + len(other))


def _jackknifed(statistic: Callable[[NDArray[np.bool_]], float], *counts: int) -> NDArray[np.float64]:
    """Pseudo-values of a statistic of the images that are kept; of several sets, a part of each is left out at once."""
    group = np.concatenate([np.arange(count) % GROUPS_LEFT_OUT for count in counts])
    without = np.array([statistic(group != one) for one in range(GROUPS_LEFT_OUT)])
    values: NDArray[np.float64] = statistic(group >= 0) + (GROUPS_LEFT_OUT - 1) * (without.mean() - without)
    return values


def _joined(parts: Sequence[_Measured]) -> _Measured:
    """The mean over parts, which may have different numbers of images: each image by 1 / its part's number."""
    if len(parts) == 1:
        return parts[0]

    def join(which: Sequence[Hits]) -> Hits:
        total = sum(one.shape[1] for one in which)
        return np.concatenate([one * (total / (len(which) * one.shape[1])) for one in which], axis=1)

    hits = [part.hits for part in parts if part.hits is not None]
    return _Measured(
        parts[0].names,
        join([part.clean for part in parts]),
        join([part.shifted for part in parts]),
        {},
        all(part.paired for part in parts),
        (max(part.floors[0] for part in parts), max(part.floors[1] for part in parts)),
        join(hits) if len(hits) == len(parts) else None,
    )


def _number(hits: Hits, level: float) -> SeedMean:
    """Of (seeds, images)."""
    return _seed_mean(float(hits.mean()), hits.mean(axis=1), *_standard_error(hits), level)


def _seed_mean(value: float, by_seed: FloatArray, error: float, freedom: float, level: float) -> SeedMean:
    half = float(stats.t.ppf((1 + level) / 2, freedom)) * error
    return SeedMean(value, value - half, value + half, float(by_seed.std(ddof=1)) if len(by_seed) > 1 else None)


def _standard_error(hits: Hits) -> tuple[float, float]:
    """Of the mean of (seeds, images), both random, and its degrees of freedom; of one seed, over images only."""
    seeds, images = hits.shape
    over_images = float(hits.mean(axis=0).var(ddof=1)) / images
    return _total_error(over_images, images, float(hits.mean(axis=1).var(ddof=1)) / seeds if seeds > 1 else 0.0, seeds)


def _total_error(over_images: float, images: int, over_seeds: float, seeds: int) -> tuple[float, float]:
    """From two variances, with Satterthwaite's degrees of freedom."""
    total = over_images + over_seeds
    if not total:
        return 0.0, 1.0
    return total**0.5, total**2 / (over_seeds**2 / max(seeds - 1, 1) + over_images**2 / (images - 1))


def _effective(
    experiment: Experiment, measured: _Measured, seeds: int, level: float, notes: list[str]
) -> tuple[dict[str, SeedMean], Fit | None]:
    """rho of every variant's mean; the line goes through the runs of the baseline variants."""
    if measured.hits is None:
        notes.append(f"no effective robustness: its line is one of accuracies, and the metric is {experiment.metric}")
        return {}, None
    variants = [variant.name for variant in experiment.variants]
    sides = [[measured.of(hits, name, seeds) for name in variants] for hits in (measured.clean, measured.hits)]
    try:
        found = image_bootstrap(
            *(np.concatenate([*side, [hits.mean(axis=0) for hits in side]]) for side in sides),
            models=[*(run_name(name, seed) for name in variants for seed in range(seeds)), *variants],
            baseline=[run_name(name, seed) for name in experiment.baseline for seed in range(seeds)],
            paired=measured.paired,
            level=level,
        )
        clean, shifted = ([hits.mean(axis=1) for hits in side] for side in sides)
        based = [variants.index(name) for name in experiment.baseline]
        over_seeds = _jackknifed_rho(np.array(clean), np.array(shifted), based)
    except StudyError as error:
        notes.append(f"no effective robustness: {error.message}")
        return {}, None
    notes += [note for note in found.effective.notes if note not in notes]
    rows, images, rhos = found.effective, min(hits[0].shape[1] for hits in sides), dict[str, SeedMean]()
    for name, variance in zip(variants, over_seeds, strict=True):
        row, by_seed = rows[name], np.array([rows[run_name(name, seed)].rho for seed in range(seeds)])
        over_images = ((row.high - row.low) / 2 / float(stats.norm.ppf((1 + level) / 2))) ** 2
        rhos[name] = _seed_mean(row.rho, by_seed, *_total_error(over_images, images, variance, seeds), level)
    return rhos, found.line


def _jackknifed_rho(clean: FloatArray, shifted: FloatArray, baseline: Sequence[int]) -> FloatArray:
    """Each variant's variance of rho over seeds, from (variants, seeds) with each seed left out in turn; 0 for one."""
    seeds = clean.shape[1]
    without = []
    for seed in range(seeds if seeds > 1 else 0):
        x, y = np.delete(clean, seed, axis=1), np.delete(shifted, seed, axis=1)
        line = fit(x[baseline].ravel(), y[baseline].ravel(), unit=FRACTION, resamples=0)
        without.append(y.mean(axis=1) - line.predict(x.mean(axis=1)))
    return (seeds - 1) * np.var(without, axis=0) if without else np.zeros(len(clean))


def _direction(claim: PaperClaim, measured: _Measured, seeds: int, level: float) -> Direction:
    side = 0 if claim.measure == "clean" else 1
    hits = (measured.clean, measured.shifted)[side]
    better, worse = (measured.of(hits, variant, seeds) for variant in (claim.better, claim.worse))
    difference = better - worse
    sure = any(_number(one, level).low > measured.floors[side] for one in (better, worse))
    return Direction(claim, _number(difference, level), int((difference.mean(axis=1) > 0).sum()), seeds, not sure)


def _evidence(
    experiment: Experiment, measured: _Measured, seeds: int, level: float, notes: list[str]
) -> list[Evidence]:
    """Each hypothesis by its pairs, seed by seed, on all shifts together and on each group."""
    pairs: dict[str, list[tuple[str, str]]] = {}
    for variant in experiment.variants:
        if variant.hypothesis:
            both = [(run_name(variant.name, seed), run_name(variant.base, seed)) for seed in range(seeds)]
            pairs.setdefault(variant.hypothesis, []).extend(both)
    if not pairs:
        return []
    clean_means = [_number(measured.of(measured.clean, one.name, seeds), level) for one in experiment.variants]
    reason = None
    if seeds == 1:
        reason = "one seed does not show the chance of training"
    elif measured.hits is None:
        reason = f"they are weighed on accuracies, and the metric is {experiment.metric}"
    elif all(mean.low <= measured.floors[0] for mean in clean_means):
        reason = "all networks are at chance level"
    if reason is not None or measured.hits is None:
        notes.append(f"no verdicts on hypotheses: {reason}")
        return []

    def by_run(hits: Hits) -> dict[str, Hits]:
        return dict(zip(measured.names, hits, strict=True))

    clean = by_run(measured.clean)
    shifts = {ALL: measured.hits, **measured.groups}
    data = [HitData(name, by_run(hits), clean) for name, hits in shifts.items()]
    found = weigh_hypotheses([Hypothesis(name, tuple(own)) for name, own in pairs.items()], data, level=level)
    found.sort(key=lambda one: list(pairs).index(one.hypothesis))
    # Intervals and p-values over images and seeds; what they do not support is no evidence.
    made = []
    for one in found:
        rows = np.array([[measured.names.index(name) for name in pair] for pair in pairs[one.hypothesis]])
        hits = shifts[one.dataset].astype(float)
        # Pairs come variant by variant, each in all seeds: their mean in each seed.
        gains = (hits[rows[:, 0]] - hits[rows[:, 1]]).reshape(-1, seeds, hits.shape[1]).mean(axis=0)
        error, freedom = _standard_error(gains)
        number = _number(gains, level).times(100)
        p = float(2 * stats.t.sf(abs(gains.mean()) / error, freedom)) if error else 1.0
        made.append(replace(one, low=number.low, high=number.high, p=p))
    adjusted = holm([one.p if one.p is not None else np.nan for one in made])
    return [
        replace(one, p_holm=float(p), verdict=one.verdict if p <= 1 - level else "0")
        for one, p in zip(made, adjusted, strict=True)
    ]
