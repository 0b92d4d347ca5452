"""Corruption error from predictions, with intervals over images.

Errors, corruption errors and their means are sums of each image's shares of wrong answers: Student's t on the logit
scale. Divided by another model's errors on the same images, they are ratios, and the bootstrap draws images for both.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import FloatArray
from shiftbench.datasets.corruption_names import BENCHMARK_CORRUPTIONS
from shiftbench.errors import SettingError
from shiftbench.metrics.base import Score, SettingScore
from shiftbench.metrics.bootstrap import RESAMPLES, SAME_OUTCOME, percentile_interval, resampled_means
from shiftbench.metrics.corruption import ALEXNET, GROUPS, SEVERITIES, Baseline
from shiftbench.metrics.intervals import (
    Interval,
    clopper_pearson,
    difference_of_shares,
    mean_share_intervals,
)
from shiftbench.metrics.paired import aligned
from shiftbench.store.predictions import Predictions

#: One classifier's predictions by (corruption, severity).
Grid = Mapping[tuple[str, int], Predictions]


@dataclass(frozen=True)
class CorruptionScores:
    """All corruption errors of one classifier, each a score with an interval."""

    classifier: str
    corruptions: tuple[str, ...]
    severities: tuple[float, ...]
    #: Unnormalised: the mean error over severities of each corruption, and over the averaged corruptions.
    error: dict[str, Score]
    mean_error: Score
    ce: dict[str, Score] = field(default_factory=dict)
    mce: Score | None = None
    relative_ce: dict[str, Score] = field(default_factory=dict)
    relative_mce: Score | None = None
    #: Mean error over the benchmark's noises, blurs, weather and digital corruptions, where all of them are there.
    groups: dict[str, Score] = field(default_factory=dict)
    #: Of a design: the mean error over all corruptions at each severity.
    by_severity: dict[float, Score] = field(default_factory=dict)
    #: Of a design: the mean error as the full grid on these images would have it. The intervals of the other scores
    #: are about new images like these.
    on_these_images: Score | None = None

    @classmethod
    def of(cls, classifier: str, shape: GridShape, scores: Mapping[ScoreKey, Score]) -> CorruptionScores:
        """Sort the scores of one grid by their kind."""

        def by_corruption(kind: str) -> dict[str, Score]:
            return {name: scores[kind, name] for name in shape.corruptions if (kind, name) in scores}

        return cls(
            classifier=classifier,
            corruptions=shape.averaged,
            severities=shape.severities,
            error=by_corruption("error"),
            mean_error=scores["error", ""],
            ce=by_corruption("CE"),
            mce=scores.get(("CE", "")),
            relative_ce=by_corruption("relative CE"),
            relative_mce=scores.get(("relative CE", "")),
            groups={group: scores["error", group] for group in shape.groups},
        )

    def summary(self) -> list[Score]:
        """mCE, relative mCE and mean error, as far as they are known."""
        return [score for score in (self.mce, self.relative_mce, self.mean_error) if score is not None]

    def entries(self, suite: str, *, by_type: bool = True) -> list[SettingScore]:
        """Entries of a score table: the summary under the suite's name, the types under ``suite.type``."""
        entries = [SettingScore(self.classifier, suite, score) for score in self.summary()]
        if by_type:
            for scores_by_type in (self.ce, self.relative_ce, self.error, self.groups):
                for corruption, score in scores_by_type.items():
                    entries.append(SettingScore(self.classifier, f"{suite}.{corruption}", score))
        return entries


def corruption_scores(
    grid: Grid,
    clean: Predictions | None = None,
    *,
    baseline: Baseline | Grid | None = ALEXNET,
    baseline_clean: Predictions | None = None,
    corruptions: Sequence[str] | None = None,
    level: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> CorruptionScores:
    """CE, relative CE and error of every corruption in the grid, and their means.

    ``clean`` is needed for the relative errors. ``baseline`` is AlexNet as published, other errors, another
    classifier's grid on the same images (then its errors are resampled with the same draws), or None for
    unnormalised errors only. The means are over ``corruptions``: by default those of the benchmark's fifteen that the
    grid has (``averaged_types``). Only a mean over the whole benchmark is named mCE (``mean_name``).

    Every prediction must be on the same images and be made the same way: released files, corrupted in memory
    and JPEG-85 in memory are never averaged together. Where a design chose which images met which corruption, the
    numbers are estimates of the full grid's (``metrics.designs``).
    """
    shape = GridShape.of(grid, corruptions)
    family = _one_family(grid)
    if any(predictions.spec.shift.designed for predictions in grid.values()):
        from shiftbench.metrics.designs import design_scores  # most grids are full

        return design_scores(
            grid,
            clean,
            shape=shape,
            provenance=family,
            baseline=baseline,
            baseline_clean=baseline_clean,
            level=level,
        )
    columns = _Columns()
    columns.add("", grid, clean)
    if isinstance(baseline, Mapping):
        _check_baseline_grid(baseline, shape, family)
        columns.add("base", baseline, baseline_clean)
    divisor = _Divisor.of(baseline)
    errors = columns.errors()
    values = {key: float(number[0]) for key, number in _all_values(shape, errors, columns, divisor).items()}
    intervals = _student_intervals(shape, columns, values, divisor.published, level)
    if divisor.name and divisor.published is None:
        intervals = _resampled_intervals(shape, columns, divisor, level, resamples, seed) | intervals
    observed_baseline = divisor.observed(shape, columns, errors)
    clean_error = columns.clean_value(errors, "")
    scores = {}
    for (kind, corruption), value in values.items():
        ends = intervals[kind, corruption]
        low, high = ends.interval
        method = ends.method
        if ends.same_outcome:
            error = values["error", corruption]
            low, high = shape.exact_interval(
                kind, corruption, value, error, clean_error, observed_baseline, columns.n, level
            )
            method = SAME_OUTCOME
        scores[kind, corruption] = Score(
            shape.score_name(kind, corruption, divisor.name),
            value,
            low,
            high,
            columns.n,
            level,
            method,
            family + divisor.provenance(kind),
            higher_is_better=False,
        )
    return CorruptionScores.of(_classifier(grid), shape, scores)


def _check_baseline_grid(baseline: Grid, shape: GridShape, family: str) -> None:
    """A grid to divide by must cover every corruption and severity, on the same images and made the same way."""
    missing = shape.missing_settings(baseline)
    if missing:
        raise SettingError(
            f"the baseline {_classifier(baseline)!r} was not evaluated in all settings",
            found=_missing_text(missing),
        )
    shared = {place: predictions for place, predictions in baseline.items() if place[0] in shape.corruptions}
    baseline_family = _one_family(shared)
    if baseline_family != family:
        raise SettingError(
            "the model and its baseline differ in provenance",
            found=f"{family!r} and {baseline_family!r}",
            expected="the same",
        )


def _missing_text(missing: Sequence[str]) -> str:
    text = f"no {', '.join(missing[:6])}"
    if len(missing) > 6:
        text += " ..."
    return text


@dataclass(frozen=True)
class _Divisor:
    """What errors are divided by: published errors, another model's grid in the columns, or nothing."""

    #: The model's name; empty if nothing is divided.
    name: str
    #: Errors that are known; None for another model's grid, whose errors are resampled too.
    published: Baseline | None = None

    @classmethod
    def of(cls, baseline: Baseline | Grid | None) -> _Divisor:
        """What a baseline means: published errors, the predictions of a model, or None for errors as they are."""
        if baseline is None:
            return cls("")
        if isinstance(baseline, Baseline):
            return cls(baseline.name, baseline)
        return cls(_classifier(baseline))

    def provenance(self, kind: str) -> str:
        """What the provenance of a score of this kind adds."""
        if kind == "error" or not self.name:
            return ""
        if self.published is not None and self.published.source:
            return f"; divided by {self.published.source}"
        return f"; divided by {self.name}"

    def observed(self, shape: GridShape, columns: _Columns, errors: FloatArray) -> Baseline | None:
        """The errors as plain numbers: the published ones, or those that the other model made on these images."""
        if self.published is not None or not self.name:
            return self.published
        table = {}
        for corruption in shape.corruptions:
            positions = {severity: columns.index["base", corruption, severity] for severity in shape.severities}
            table[corruption] = {severity: float(errors[0, position]) for severity, position in positions.items()}
        return Baseline("", table, columns.clean_value(errors, "base"))


_KINDS = ("error", "CE", "relative CE")
#: A number's kind and its corruption; "" is the mean over corruptions.
ScoreKey = tuple[str, str]


@dataclass(frozen=True)
class GridShape:
    """Which corruptions at which severities; and which corruptions the means are over."""

    corruptions: tuple[str, ...]
    severities: tuple[float, ...]
    averaged: tuple[str, ...]

    @classmethod
    def of(cls, grid: Collection[tuple[str, float]], averaged: Sequence[str] | None = None) -> GridShape:
        """The shape of a grid, which must have the same severities of every corruption.

        Args:
            grid: The (corruption, severity) pairs that were evaluated.
            averaged: The corruptions that means are over; default: ``averaged_types``.
        """
        if not grid:
            raise SettingError("no corrupted setting to compute corruption error from", expected="at least one")
        present = list(dict.fromkeys(corruption for corruption, _ in grid))
        in_benchmark = [name for name in BENCHMARK_CORRUPTIONS if name in present]
        beyond_benchmark = [name for name in present if name not in in_benchmark]
        corruptions = (*in_benchmark, *beyond_benchmark)
        severities = tuple(sorted({severity for _, severity in grid}))
        if averaged is None:
            averaged = averaged_types(corruptions)
        shape = cls(corruptions, severities, tuple(averaged))
        missing = shape.missing_settings(grid)
        missing += [name for name in averaged if name not in present]
        if missing:
            raise SettingError(
                "corruption error needs the same severities of every corruption",
                found=_missing_text(missing),
                hint="finish the run, or pass only the corruptions and severities that are complete",
            )
        return shape

    def missing_settings(self, grid: Collection[tuple[str, float]]) -> list[str]:
        """The settings of this shape that a grid lacks, such as ``fog.3``."""
        missing = []
        for corruption in self.corruptions:
            absent = [severity for severity in self.severities if (corruption, severity) not in grid]
            missing += [f"{corruption}.{severity:g}" for severity in absent]
        return missing

    @property
    def groups(self) -> dict[str, tuple[str, ...]]:
        """The kinds of corruption whose members are all evaluated."""
        evaluated = set(self.corruptions)
        groups = {}
        for name, members in GROUPS.items():
            # A corruption of the user's own may be called like a kind, which then has no score of its own.
            if evaluated.issuperset(members) and name not in evaluated:
                groups[name] = members
        return groups

    def undivided(self, corruption: str, baseline: Baseline) -> bool:
        """Whether the baseline has no error for a corruption that the means do without, as for style transfer."""
        return corruption not in baseline.errors and corruption not in self.averaged

    def members(self, corruption: str) -> tuple[str, ...]:
        """The corruptions that a number is over: one, those of a group, or for "" those that means are over."""
        if not corruption:
            return self.averaged
        return self.groups.get(corruption, (corruption,))

    def score_name(self, kind: str, corruption: str, against: str) -> str:
        """``corruption`` is "" for the mean over corruptions; ``against`` is what errors are divided by."""
        if corruption and corruption not in self.groups:
            name = f"{kind}{severities_text(self.severities)}"
        else:
            name = mean_name(kind, self.members(corruption), self.severities)
        if kind == "error" or against == ALEXNET.name:
            return name
        return f"{name} vs {against}"

    def exact_interval(
        self,
        kind: str,
        corruption: str,
        value: float,
        error: float,
        clean_error: float | None,
        baseline: Baseline | None,
        n: int,
        level: float,
    ) -> tuple[float, float]:
        """The interval of a number where all n images have the same outcomes, so that resampling shows no width.

        114 of 114 wrong does not mean always wrong: the exact interval of the error is divided as the number is. For a
        rise over the clean error both exact intervals are put together (Zou and Donner 2008).
        """
        low, high = clopper_pearson(error * n, n, level)
        below = error - low
        above = high - error
        if kind == "relative CE" and clean_error is not None:
            clean_low, clean_high = clopper_pearson(clean_error * n, n, level)
            below = math.hypot(below, clean_high - clean_error)
            above = math.hypot(above, clean_error - clean_low)
        scale = fmean(self.factors(kind, corruption, baseline).values())
        return value - scale * below, value + scale * above

    def factors(self, kind: str, corruption: str, baseline: Baseline | None) -> dict[str, float]:
        """By how much a rise of each member's error raises its part of a number; nan if it does not hurt the baseline.

        The number is the mean over its members.
        """
        members = self.members(corruption)
        if kind == "error" or baseline is None:
            return dict.fromkeys(members, 1.0)
        floor = 0.0
        if kind == "relative CE":
            floor = baseline.clean_error()
        factors = {}
        for name in members:
            divisor = baseline.mean(name, self.severities) - floor
            factors[name] = 1 / divisor if divisor > 0 else math.nan
        return factors


def averaged_types(names: Collection[str]) -> tuple[str, ...]:
    """The corruptions that means are over: those of the benchmark's fifteen, or all if none of them is there."""
    return tuple(name for name in names if name in BENCHMARK_CORRUPTIONS) or tuple(names)


#: The usual names of means over the whole benchmark.
_BENCHMARK_MEANS = {"CE": "mCE", "relative CE": "relative mCE"}


def mean_name(kind: str, averaged: Sequence[str], severities: Sequence[float]) -> str:
    """The name of a mean: "mCE" over the whole benchmark only, else "mean CE over 9 types", "mean CE at 1,3,5"."""
    extent = severities_text(severities)
    if set(averaged) != set(BENCHMARK_CORRUPTIONS):
        noun = "type" if len(averaged) == 1 else "types"
        extent = f" over {len(averaged)} {noun}{extent}"
    if kind in _BENCHMARK_MEANS and not extent:
        return _BENCHMARK_MEANS[kind]
    return f"mean {kind}{extent}"


def severities_text(severities: Sequence[float]) -> str:
    """What a name adds if the severities are not the benchmark's five: " at 1,3,5"."""
    if tuple(severities) == SEVERITIES:
        return ""
    return " at " + ",".join(f"{severity:g}" for severity in severities)


class _Columns:
    """Errors of all settings as columns over the same images."""

    def __init__(self) -> None:
        self._first: Predictions | None = None
        self._wrong: list[NDArray[np.bool_]] = []
        self._valid: list[NDArray[np.bool_]] = []
        self.index: dict[tuple[str, str, float], int] = {}

    def add(self, owner: str, grid: Grid, clean: Predictions | None) -> None:
        """Add a model's settings; the clean one has the corruption "" and the severity 0."""
        entries: dict[tuple[str, float], Predictions] = {}
        entries.update(grid.items())
        if clean is not None:
            entries["", 0] = clean
        names = {predictions.classifier for predictions in entries.values()}
        if len(names) > 1:
            raise SettingError("one grid, several models", found=", ".join(sorted(names)), expected="one")
        for (corruption, severity), predictions in entries.items():
            self._first = self._first or predictions
            order = aligned(self._first, predictions)
            self.index[owner, corruption, severity] = len(self._wrong)
            self._wrong.append(predictions.top[order, 0] != predictions.labels[order])
            self._valid.append(predictions.valid[order])

    @cached_property
    def n(self) -> int:
        """The least number of images that count in any one setting; asked for when all settings are added."""
        return min(int(valid.sum()) for valid in self._valid)

    def errors(self) -> FloatArray:
        """(1, S): the error in each setting; nan in one without an image that counts."""
        counts = np.array([valid.sum() for valid in self._valid])
        wrong = np.array([(wrong & valid).sum() for wrong, valid in zip(self._wrong, self._valid, strict=True)])
        return np.where(counts > 0, wrong / np.maximum(counts, 1), np.nan)[None]

    def resample(self, resamples: int, seed: int) -> FloatArray:
        """(B, S): the errors under draws of images that all settings share."""
        wrong = np.stack(self._wrong, axis=1)
        valid = np.stack(self._valid, axis=1)
        if not valid.any():
            return np.full((1, wrong.shape[1]), np.nan)
        return resampled_means(wrong, valid=valid, resamples=resamples, seed=seed)

    def share_of_images(self, weights: Mapping[int, float]) -> tuple[float, FloatArray]:
        """A weighted mean of the errors in some settings, and by how much each image's share of it deviates.

        Args:
            weights: The weight of each setting, by its column; they add up to 1.
        """
        value = 0.0
        deviations = np.zeros(len(self._wrong[0]))
        for position, weight in weights.items():
            valid = self._valid[position]
            count = int(valid.sum())
            error = float(self._wrong[position][valid].mean()) if count else math.nan
            value += weight * error
            # An image counts for more in a setting that misses others, so that its settings keep their weights.
            deviations[valid] += weight * len(valid) / max(count, 1) * (self._wrong[position][valid] - error)
        return value, deviations

    def mean(self, errors: FloatArray, owner: str, corruption: str, severities: Sequence[float]) -> FloatArray:
        """A model's mean error over severities, for each row of the table of errors."""
        positions = [self.index[owner, corruption, severity] for severity in severities]
        return np.asarray(errors[:, positions].mean(axis=1))

    def clean(self, errors: FloatArray, owner: str) -> FloatArray | None:
        """A model's clean error, for each row of the table of errors; None without a clean setting."""
        position = self.index.get((owner, "", 0))
        if position is None:
            return None
        return errors[:, position]

    def clean_value(self, errors: FloatArray, owner: str) -> float | None:
        """The clean error in the first row."""
        column = self.clean(errors, owner)
        if column is None:
            return None
        return float(column[0])


def _all_values(
    shape: GridShape, errors: FloatArray, columns: _Columns, divisor: _Divisor
) -> dict[ScoreKey, FloatArray]:
    """Every number, for each row of the table of errors: one row of observed errors, or one row per resample."""
    values: dict[ScoreKey, FloatArray] = {}
    published = divisor.published
    clean = columns.clean(errors, "")
    base_clean = columns.clean(errors, "base")
    if published is not None and published.clean is not None:
        base_clean = np.asarray(published.clean)
    for corruption in shape.corruptions:
        error = columns.mean(errors, "", corruption, shape.severities)
        values["error", corruption] = error
        if not divisor.name or (published is not None and shape.undivided(corruption, published)):
            continue
        if published is not None:
            base = np.asarray(published.mean(corruption, shape.severities))
        else:
            base = columns.mean(errors, "base", corruption, shape.severities)
        values["CE", corruption] = _ratios(error, base)
        if clean is not None and base_clean is not None:
            values["relative CE", corruption] = _ratios(error - clean, base - base_clean)
    for group, members in shape.groups.items():
        values["error", group] = np.mean([values["error", name] for name in members], axis=0)
    for kind in _KINDS:
        if (kind, shape.averaged[0]) in values:
            values[kind, ""] = np.mean([values[kind, name] for name in shape.averaged], axis=0)
    return values


@dataclass(frozen=True)
class _Ends:
    """An interval, and how it was found."""

    interval: tuple[float, float]
    method: str
    #: Whether all images have the same outcome, so that nothing shows how much others would vary.
    same_outcome: bool


@dataclass(frozen=True)
class _Share:
    """A weighted mean of errors in some settings: for each image, the share of these that it gets wrong."""

    value: float
    #: How far each image's share is from the mean.
    deviations: FloatArray
    interval: Interval

    @classmethod
    def of(cls, columns: _Columns, weights: Mapping[int, float], level: float) -> _Share:
        value, deviations = columns.share_of_images(weights)
        lows, highs = mean_share_intervals(value, float(deviations @ deviations), columns.n, level)
        return cls(value, deviations, Interval(float(lows), float(highs)))

    def ends(self, scale: float) -> _Ends:
        """The interval of the share times a number."""
        ends = (scale * self.interval.low, scale * self.interval.high)
        return _Ends(ends, _STUDENT, not self.deviations.any())

    def ends_above(self, clean: _Share, scale: float) -> _Ends:
        """The interval of the rise over the clean error times a number."""
        squares = float(self.deviations @ self.deviations) * float(clean.deviations @ clean.deviations)
        correlation = 0.0
        if squares > 0:
            correlation = float(self.deviations @ clean.deviations) / math.sqrt(squares)
        low, high = difference_of_shares(self.value, self.interval, clean.value, clean.interval, correlation)
        same_outcome = not self.deviations.any() and not clean.deviations.any()
        return _Ends((scale * low, scale * high), _STUDENT, same_outcome)


_STUDENT = "Student's over images, logit scale"


def _student_intervals(
    shape: GridShape, columns: _Columns, values: Mapping[ScoreKey, float], published: Baseline | None, level: float
) -> dict[ScoreKey, _Ends]:
    """The intervals of the numbers that are weighted sums of errors: divided by known errors, or not divided."""
    clean_position = columns.index.get(("", "", 0))
    clean = None
    if clean_position is not None:
        clean = _Share.of(columns, {clean_position: 1.0}, level)
    intervals = {}
    for (kind, corruption), value in values.items():
        if kind != "error" and published is None:
            continue
        factors = shape.factors(kind, corruption, published)
        total = sum(factors.values())
        if math.isnan(value) or math.isnan(total):
            intervals[kind, corruption] = _Ends((math.nan, math.nan), _STUDENT, same_outcome=False)
            continue
        weights: dict[int, float] = {}
        for name, factor in factors.items():
            for severity in shape.severities:
                weights[columns.index["", name, severity]] = factor / total / len(shape.severities)
        share = _Share.of(columns, weights, level)
        scale = total / len(factors)
        if kind == "relative CE" and clean is not None:
            intervals[kind, corruption] = share.ends_above(clean, scale)
        else:
            intervals[kind, corruption] = share.ends(scale)
    return intervals


def _resampled_intervals(
    shape: GridShape, columns: _Columns, divisor: _Divisor, level: float, resamples: int, seed: int
) -> dict[ScoreKey, _Ends]:
    """Percentiles of draws of images: of errors that are divided by those of another model on the same images."""
    drawn = _all_values(shape, columns.resample(resamples, seed), columns, divisor)
    # The quantiles of all numbers are found at once: one call per number would take longer than the bootstrap.
    lows, highs = percentile_interval(np.stack(list(drawn.values()), axis=1), level)
    intervals = {}
    for (kind, corruption), low, high in zip(drawn, lows.tolist(), highs.tolist(), strict=True):
        same_outcome = low == high and not np.ptp(drawn["error", corruption])
        intervals[kind, corruption] = _Ends((low, high), f"image bootstrap, {resamples:,} resamples", same_outcome)
    return intervals


def _ratios(above: FloatArray, below: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(below > 0, above / below, np.nan))


def _family(predictions: Predictions) -> str:
    """What must agree among the settings of one grid: images, label space, source, seed, generator.

    What differs by nature is left out: the corruption, its severity and parameters, and for released files
    the folder. Runs store it as ``ResultSpec.family``.
    """
    spec = predictions.spec
    if spec.family is not None:
        return spec.family
    facts = [f"{len(predictions)} images over {predictions.space.name} ({len(predictions.space)})"]
    if spec.dataset.values and spec.source != "on-disk":
        facts.insert(0, f"{spec.dataset.name} {spec.dataset.fingerprint[:8]}")
    if spec.source:
        facts.append(str(spec.source))
    shift = spec.shift.values
    facts += [f"{key} {shift[key]}" for key in _GRID_FACTS if key in shift]
    return ", ".join(facts)


#: The entries of a shift's description that must not differ between the settings of one grid.
_GRID_FACTS = ("generator", "version", "seed_scheme", "seed", "then")
#: Those that one corruption has for itself, and that must not differ between its severities.
_CORRUPTION_FACTS = ("frost", "options")


def _variant(predictions: Predictions) -> str:
    """How a corruption was made: which frost images, which options."""
    shift = predictions.spec.shift.values
    facts: list[str] = []
    for key in _CORRUPTION_FACTS:
        value = shift.get(key)
        if isinstance(value, Mapping):
            facts += [f"{name} {setting}" for name, setting in value.items()]
        elif key in shift:
            facts.append(str(value))
    return " ".join(facts)


def _one_family(grid: Grid) -> str:
    """The line that the scores of a grid carry; refuses a grid that was made in several ways."""
    settings_by_family: dict[str, str] = {}
    settings_by_variant: dict[str, dict[str, str]] = {}
    for (corruption, severity), predictions in grid.items():
        setting = f"{corruption}.{severity:g}"
        settings_by_family.setdefault(_family(predictions), setting)
        settings_by_variant.setdefault(corruption, {}).setdefault(_variant(predictions), setting)
    for settings_by_way in (settings_by_family, *settings_by_variant.values()):
        _refuse_several_ways(settings_by_way)
    (family,) = settings_by_family
    facts = [family]
    for corruption, (variant,) in sorted(settings_by_variant.items()):
        if variant:
            facts.append(f"{corruption} {variant}")
    return ", ".join(facts)


def _refuse_several_ways(settings_by_way: Mapping[str, str]) -> None:
    """Raise if settings were made in more than one way; an example of each of two ways is named."""
    if len(settings_by_way) < 2:
        return
    (first_way, first_setting), (second_way, second_setting) = list(settings_by_way.items())[:2]
    raise SettingError(
        "corruption errors of different provenance can't be averaged",
        found=f"{first_setting}: {first_way!r}, but {second_setting}: {second_way!r}",
        expected="all settings made the same way",
        hint="evaluate the missing settings the same way, or compute two separate tables",
    )


def _classifier(grid: Grid) -> str:
    return next(iter(grid.values())).classifier
