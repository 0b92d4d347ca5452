"""Corruption error from predictions, with intervals by the image bootstrap shared across settings."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import FloatArray
from shiftbench.datasets.corruption_names import BENCHMARK_CORRUPTIONS
from shiftbench.errors import SettingError
from shiftbench.metrics.base import Score
from shiftbench.metrics.bootstrap import RESAMPLES, percentile_interval, resampled_means
from shiftbench.metrics.corruption import ALEXNET, GROUPS, SEVERITIES, Baseline
from shiftbench.metrics.intervals import clopper_pearson
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

    def entries(self, suite: str, *, by_type: bool = True) -> list[tuple[str, str, Score]]:
        """Entries of a score table: the summary under the suite's name, the types under ``suite.type``."""
        rows = [(self.classifier, suite, score) for score in self.summary()]
        if by_type:
            for kind in (self.ce, self.relative_ce, self.error, self.groups):
                rows += [(self.classifier, f"{suite}.{c}", score) for c, score in kind.items()]
        return rows


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
    errors, drawn_errors = columns.resample(resamples, seed)
    values = _all_values(shape, errors, columns, divisor)
    drawn_values = _all_values(shape, drawn_errors, columns, divisor)
    observed_baseline = divisor.observed(shape, columns, errors)
    clean_error = columns.clean_value(errors, "")
    scores = {}
    for (kind, corruption), (value,) in values.items():
        drawn_low, drawn_high = percentile_interval(drawn_values[kind, corruption], level)
        low = float(drawn_low)
        high = float(drawn_high)
        if low == high and not np.ptp(drawn_values["error", corruption]):
            # Every image has one outcome, so that resampling shows no width.
            error = float(values["error", corruption][0])
            low, high = shape.exact_interval(
                kind, corruption, float(value), error, clean_error, observed_baseline, columns.n, level
            )
        scores[kind, corruption] = Score(
            shape.score_name(kind, corruption, divisor.name),
            float(value),
            low,
            high,
            columns.n,
            level,
            f"image bootstrap, {resamples:,} resamples",
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
        return {
            name: members for name, members in GROUPS.items() if evaluated >= set(members) and name not in evaluated
        }

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
        scale = 1.0
        if kind != "error" and baseline is not None:
            scale = self._mean_factor(kind, corruption, baseline)
        return value - scale * below, value + scale * above

    def _mean_factor(self, kind: str, corruption: str, baseline: Baseline) -> float:
        """By how much a rise of every member's error raises a number; nan if the baseline is not hurt by a member."""
        floor = 0.0
        if kind == "relative CE":
            floor = baseline.clean_error()
        factors = []
        for name in self.members(corruption):
            divisor = baseline.mean(name, self.severities) - floor
            factors.append(1 / divisor if divisor > 0 else math.nan)
        return fmean(factors)


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

    @property
    def n(self) -> int:
        """The least number of images that count in any one setting."""
        return min(int(valid.sum()) for valid in self._valid)

    def resample(self, resamples: int, seed: int) -> tuple[FloatArray, FloatArray]:
        """(1, S) errors and (B, S) errors under the same draws of images."""
        wrong = np.stack(self._wrong, axis=1)
        valid = np.stack(self._valid, axis=1)
        if not valid.any():
            nothing = np.full((1, wrong.shape[1]), np.nan)
            return nothing, nothing
        with np.errstate(invalid="ignore"):
            errors = (wrong & valid).sum(axis=0, keepdims=True) / valid.sum(axis=0, keepdims=True)
        return errors, resampled_means(wrong, valid=valid, resamples=resamples, seed=seed)

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
