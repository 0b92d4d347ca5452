"""What an experiment found: accuracy without and under shift, effective and relative robustness, verdicts.

A number of a variant is the mean over its seeds. Its interval is over images and seeds, both taken as random: the
variance is that of the mean over images (by bootstrap, drawn anew for all runs at once) plus that of the mean over
seeds, with Student's t at Satterthwaite's degrees of freedom. With one seed it is over images only, and no verdict is
given; nor where the networks compared are at chance level.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from shiftbench.api import Run
from shiftbench.hardening.experiments.base import Experiment, PaperClaim
from shiftbench.hardening.experiments.plan import PlannedRun, run_name
from shiftbench.metrics.bootstrap import percentile_interval, resampled_means
from shiftbench.metrics.paired import holm
from shiftbench.shifts.corruptions.catalogue import CORRUPTIONS, GROUPS
from shiftbench.studies.base import StudyError
from shiftbench.studies.fits import Fit
from shiftbench.studies.hypotheses import Evidence, HitData, Hypothesis, weigh_hypotheses
from shiftbench.studies.image_bootstrap import common_hits, image_bootstrap
from shiftbench.studies.robustness import Effective

#: (runs, images): the share of settings in which an image is answered right.
Hits = NDArray[Any]
RESAMPLES = 2000
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


@dataclass(frozen=True)
class VariantResult:
    """Fractions, but for rho and tau, which are differences of them."""

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
    """Hits of all runs on the clean side, under shift, and under each group of shifts."""

    names: list[str]
    clean: Hits
    shifted: Hits
    groups: dict[str, Hits]
    paired: bool
    #: Accuracy of guessing.
    chance: float

    def of(self, hits: Hits, variant: str, seeds: int) -> Hits:
        rows = [self.names.index(run_name(variant, seed)) for seed in range(seeds)]
        return hits[rows]


def study_runs(
    experiment: Experiment,
    scale: str,
    runs: Sequence[PlannedRun],
    evaluated: Run,
    *,
    command: str = "",
    changes: Sequence[str] = (),
    level: float = 0.95,
) -> ExperimentStudy:
    """All numbers anew from the stored predictions."""
    seeds = len({run.seed for run in runs})
    reference, shifted = _sides(evaluated)
    measured = _measure([run.name for run in runs], evaluated, reference, shifted)
    notes: list[str] = []
    rho, line = _effective(experiment, measured, seeds, level, notes)
    return ExperimentStudy(
        experiment,
        scale,
        seeds,
        runs,
        command,
        tuple(changes),
        level,
        (measured.clean.shape[1], measured.shifted.shape[1]),
        (reference, *shifted),
        [_variant(one.name, one.base, measured, seeds, rho, level) for one in experiment.variants],
        [_direction(claim, measured, seeds, level) for claim in experiment.claims],
        _evidence(experiment, measured, seeds, level, notes),
        line,
        notes,
    )


def _sides(evaluated: Run) -> tuple[str, list[str]]:
    """The in-distribution setting, and those that name it as their reference."""
    references = {result.setting: result.spec.reference for result in evaluated.results}
    clean = next(iter(one for one in references.values() if one is not None))
    return str(clean), [setting for setting, reference in references.items() if reference == clean]


def _measure(names: list[str], evaluated: Run, reference: str, shifted: Sequence[str]) -> _Measured:
    clean, clean_ids = _hits(names, evaluated, [reference])
    moved, ids = _hits(names, evaluated, shifted)
    groups = {}
    for group, settings in _groups(shifted).items():
        groups[group], _ = _hits(names, evaluated, settings)
    answered = next(result for result in evaluated.results if result.setting == reference)
    classes = len(evaluated.workspace.read(answered, top_k=1, confidence=False, scores=False).space)
    return _Measured(names, clean, moved, groups, clean_ids == ids, 1 / classes)


def _groups(settings: Sequence[str]) -> dict[str, list[str]]:
    """Corruptions by their kind: noise, blur, weather, digital; nothing where the shifts are no corruptions."""
    found: dict[str, list[str]] = {group: [] for group in GROUPS}
    for setting in settings:
        name = setting.split(".")[-2] if setting.count(".") > 1 else ""
        if name in CORRUPTIONS:
            found.setdefault(CORRUPTIONS.get(name).group, []).append(setting)
    return {group: members for group, members in found.items() if members}


def _hits(names: Sequence[str], evaluated: Run, settings: Sequence[str]) -> tuple[Hits, list[str]]:
    """The mean over the settings of right and wrong, on the images that count in all of them."""
    results = {(result.classifier, result.setting): result for result in evaluated.results}
    by_setting = []
    for setting in settings:
        found = [
            evaluated.workspace.read(results[name, setting], top_k=1, confidence=False, scores=False) for name in names
        ]
        by_setting.append(common_hits(found))
    shared = set(by_setting[0][1]).intersection(*(ids for _, ids in by_setting))
    kept = [hits[:, [one in shared for one in ids]] for hits, ids in by_setting]
    return np.mean(kept, axis=0), [one for one in by_setting[0][1] if one in shared]


def _variant(
    name: str, base: str, measured: _Measured, seeds: int, rho: Mapping[str, Effective], level: float
) -> VariantResult:
    def number(hits: Hits) -> SeedMean:
        return _number(measured.of(hits, name, seeds), level)

    tau = None
    if base:
        own, other = (measured.of(measured.shifted, which, seeds) for which in (name, base))
        tau = _number(own - other, level)
    return VariantResult(
        name,
        base,
        number(measured.clean),
        number(measured.shifted),
        {group: number(hits) for group, hits in measured.groups.items()},
        _rho(name, seeds, rho),
        tau,
    )


def _number(hits: Hits, level: float) -> SeedMean:
    """Of (seeds, images)."""
    value, by_seed = float(hits.mean()), hits.mean(axis=1)
    if len(by_seed) == 1:
        draws = resampled_means(hits.mean(axis=0)[:, None].astype(np.float64), resamples=RESAMPLES)
        low, high = percentile_interval(draws, level)
        return SeedMean(value, float(low[0]), float(high[0]), None)
    error, freedom = _standard_error(hits)
    half = float(stats.t.ppf((1 + level) / 2, freedom)) * error
    return SeedMean(value, value - half, value + half, float(by_seed.std(ddof=1)))


def _standard_error(hits: Hits) -> tuple[float, float]:
    """Of the mean of (seeds, images), both random, and its degrees of freedom."""
    seeds, images = hits.shape
    over_images = float(hits.mean(axis=0).var(ddof=1)) / images
    over_seeds = float(hits.mean(axis=1).var(ddof=1)) / seeds
    total = over_images + over_seeds
    if not total:
        return 0.0, 1.0
    return total**0.5, total**2 / (over_seeds**2 / (seeds - 1) + over_images**2 / (images - 1))


def _rho(name: str, seeds: int, rows: Mapping[str, Effective]) -> SeedMean | None:
    if name not in rows:
        return None
    row = rows[name]
    by_seed = np.array([rows[run_name(name, seed)].rho for seed in range(seeds)])
    return SeedMean(row.rho, row.low, row.high, float(by_seed.std(ddof=1)) if seeds > 1 else None)


def _effective(
    experiment: Experiment, measured: _Measured, seeds: int, level: float, notes: list[str]
) -> tuple[dict[str, Effective], Fit | None]:
    """rho of every run and of every variant's mean; the line goes through the runs of the baseline variants."""
    variants = [variant.name for variant in experiment.variants]
    names = [*measured.names, *variants]
    sides = [
        np.vstack([hits, *(measured.of(hits, name, seeds).mean(axis=0) for name in variants)])
        for hits in (measured.clean, measured.shifted)
    ]
    line_runs = [run_name(name, seed) for name in experiment.baseline for seed in range(seeds)]
    try:
        found = image_bootstrap(
            sides[0], sides[1], models=names, baseline=line_runs, paired=measured.paired, level=level
        )
    except StudyError as error:
        notes.append(f"no effective robustness: {error.message}")
        return {}, None
    notes += [note for note in found.effective.notes if note not in notes]
    return {row.model: row for row in found.effective.rows}, found.line


def _direction(claim: PaperClaim, measured: _Measured, seeds: int, level: float) -> Direction:
    def measure(variant: str) -> tuple[Hits, Hits]:
        return measured.of(measured.clean, variant, seeds), measured.of(measured.shifted, variant, seeds)

    better, worse = measure(claim.better), measure(claim.worse)
    side = 0 if claim.measure == "clean" else 1
    difference = better[side] - worse[side]
    sure = any(_number(one[side], level).low > CLEAR * measured.chance for one in (better, worse))
    return Direction(claim, _number(difference, level), int((difference.mean(axis=1) > 0).sum()), seeds, not sure)


def _evidence(
    experiment: Experiment, measured: _Measured, seeds: int, level: float, notes: list[str]
) -> list[Evidence]:
    """Each hypothesis by its pairs, seed by seed, on all shifts together and on each group."""
    pairs: dict[str, list[tuple[str, str]]] = {}
    for variant in experiment.variants:
        if variant.hypothesis:
            made = ((run_name(variant.name, seed), run_name(variant.base, seed)) for seed in range(seeds))
            pairs.setdefault(variant.hypothesis, []).extend(made)
    if not pairs:
        return []
    if seeds == 1:
        notes.append("no verdicts on hypotheses: one seed says nothing of the chance of training")
        return []
    if all(_number(measured.of(measured.clean, variant.name, seeds), level).low <= CLEAR * measured.chance
           for variant in experiment.variants):  # fmt: skip
        notes.append("no verdicts on hypotheses: all networks are at chance level")
        return []

    def by_run(hits: Hits) -> dict[str, Hits]:
        return dict(zip(measured.names, hits, strict=True))

    clean = by_run(measured.clean)
    data = [HitData(name, by_run(hits), clean) for name, hits in {ALL: measured.shifted, **measured.groups}.items()]
    found = weigh_hypotheses([Hypothesis(name, tuple(both)) for name, both in pairs.items()], data, level=level)
    found.sort(key=lambda one: list(pairs).index(one.hypothesis))
    return _over_seeds(found, {ALL: measured.shifted, **measured.groups}, pairs, measured, seeds, level)


def _over_seeds(
    found: Sequence[Evidence],
    hits: Mapping[str, Hits],
    pairs: Mapping[str, Sequence[tuple[str, str]]],
    measured: _Measured,
    seeds: int,
    level: float,
) -> list[Evidence]:
    """Intervals and p-values over images and seeds; what they do not support is no evidence."""
    made = []
    for one in found:
        rows = np.array([[measured.names.index(name) for name in pair] for pair in pairs[one.hypothesis]])
        # Pairs come variant by variant, each in all seeds: their mean in each seed.
        gains = (hits[one.dataset][rows[:, 0]].astype(float) - hits[one.dataset][rows[:, 1]]).reshape(
            -1, seeds, hits[one.dataset].shape[1]
        ).mean(axis=0)  # fmt: skip
        error, freedom = _standard_error(gains)
        number = _number(gains, level).times(100)
        p = float(2 * stats.t.sf(abs(gains.mean()) / error, freedom)) if error else 1.0
        made.append(replace(one, low=number.low, high=number.high, p=p))
    adjusted = holm([one.p if one.p is not None else np.nan for one in made])
    return [
        replace(one, p_holm=float(p), verdict=one.verdict if p <= 1 - level else "0")
        for one, p in zip(made, adjusted, strict=True)
    ]
