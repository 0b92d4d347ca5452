"""What an experiment found: accuracy without and under shift, effective and relative robustness, verdicts.

A number of a variant is the mean over its seeds. Its interval is over the images, drawn anew for all runs at once;
how much the seeds differ is shown beside it, as a standard deviation. The two are different uncertainties, and a
difference between variants should stand out from both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftbench.api import Run
from shiftbench.hardening.experiments.base import Experiment, PaperClaim
from shiftbench.hardening.experiments.plan import PlannedRun, run_name
from shiftbench.metrics.bootstrap import percentile_interval, resampled_means
from shiftbench.shifts.corruptions.catalogue import CORRUPTIONS, GROUPS
from shiftbench.studies.base import StudyError
from shiftbench.studies.fits import Fit
from shiftbench.studies.hypotheses import Evidence, HitData, Hypothesis, weigh_hypotheses
from shiftbench.studies.image_bootstrap import common_hits, image_bootstrap
from shiftbench.studies.robustness import Effective

#: (runs, images): the share of settings in which an image is answered right.
Hits = NDArray[Any]
RESAMPLES = 2000
ALL = "all"


@dataclass(frozen=True)
class SeedMean:
    """The mean over the seeds, its interval over images, and the standard deviation over the seeds."""

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

    @property
    def verdict(self) -> str:
        """Clear where the images and every seed say the same."""
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
        _evidence(experiment, measured, seeds, level),
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
    return _Measured(names, clean, moved, groups, clean_ids == ids)


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
    draws = resampled_means(hits.mean(axis=0)[:, None].astype(np.float64), resamples=RESAMPLES)
    low, high = percentile_interval(draws, level)
    by_seed = hits.mean(axis=1)
    spread = float(by_seed.std(ddof=1)) if len(by_seed) > 1 else None
    return SeedMean(float(hits.mean()), float(low[0]), float(high[0]), spread)


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
    return Direction(claim, _number(difference, level), int((difference.mean(axis=1) > 0).sum()), seeds)


def _evidence(experiment: Experiment, measured: _Measured, seeds: int, level: float) -> list[Evidence]:
    """Each hypothesis by its pairs, seed by seed, on all shifts together and on each group."""
    pairs: dict[str, list[tuple[str, str]]] = {}
    for variant in experiment.variants:
        if variant.hypothesis:
            made = ((run_name(variant.name, seed), run_name(variant.base, seed)) for seed in range(seeds))
            pairs.setdefault(variant.hypothesis, []).extend(made)
    if not pairs:
        return []

    def by_run(hits: Hits) -> dict[str, Hits]:
        return dict(zip(measured.names, hits, strict=True))

    clean = by_run(measured.clean)
    data = [HitData(name, by_run(hits), clean) for name, hits in {ALL: measured.shifted, **measured.groups}.items()]
    found = weigh_hypotheses([Hypothesis(name, tuple(both)) for name, both in pairs.items()], data, level=level)
    return sorted(found, key=lambda one: list(pairs).index(one.hypothesis))
