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
    def of(cls, classifier: str, shape: GridShape, found: Mapping[ScoreKey, Score]) -> CorruptionScores:
        by_kind = {kind: {c: found[kind, c] for c in shape.corruptions if (kind, c) in found} for kind in _KINDS}
        return cls(
            classifier=classifier, corruptions=shape.averaged, severities=shape.severities, error=by_kind["error"],
            mean_error=found["error", ""], ce=by_kind["CE"], mce=found.get(("CE", "")),
            relative_ce=by_kind["relative CE"], relative_mce=found.get(("relative CE", "")),
            groups={group: found["error", group] for group in shape.groups},
        )  # fmt: skip

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
    name = _one_family(grid)
    if any(one.spec.shift.designed for one in grid.values()):
        from shiftbench.metrics.designs import design_scores  # most grids are full

        return design_scores(
            grid, clean, shape=shape, provenance=name, baseline=baseline, baseline_clean=baseline_clean, level=level
        )
    columns = _Columns()
    columns.add("", grid, clean)
    fixed = baseline if isinstance(baseline, Baseline) else None
    if baseline is not None and fixed is None:
        assert isinstance(baseline, Mapping)
        missing = [f"{c}.{s:g}" for c in shape.corruptions for s in shape.severities if (c, s) not in baseline]
        if missing:
            raise SettingError(
                f"the baseline {_classifier(baseline)!r} was not evaluated in all settings",
                found=f"no {', '.join(missing[:6])}" + (" ..." if len(missing) > 6 else ""),
            )
        other = _one_family({key: one for key, one in baseline.items() if key[0] in shape.corruptions})
        if other != name:
            found = f"{name!r} and {other!r}"
            raise SettingError("the model and its baseline differ in provenance", found=found, expected="the same")
        columns.add("base", baseline, baseline_clean)
    errors, draws = columns.resample(resamples, seed)
    against = fixed.name if fixed else (_classifier(baseline) if baseline else "")
    normaliser = f"; divided by {(fixed.source or fixed.name) if fixed else against}" if against else ""
    point, drawn = (_all_values(shape, table, columns, fixed, against) for table in (errors, draws))
    base, clean_error = fixed, columns.clean(errors, "")
    if against and base is None:  # the other classifier's errors as they were observed
        where, there = columns.index, columns.clean(errors, "base")
        table = {c: {s: float(errors[0, where["base", c, s]]) for s in shape.severities} for c in shape.corruptions}
        base = Baseline("", table, None if there is None else float(there[0]))
    scores = {}
    for (kind, corruption), values in point.items():
        value = float(values[0])
        low, high = (float(end) for end in percentile_interval(drawn[kind, corruption], level))
        if low == high and not np.ptp(drawn["error", corruption]):
            usual = None if clean_error is None else float(clean_error[0])
            error = float(point["error", corruption][0])
            low, high = shape.exact(kind, corruption, value, error, usual, base, columns.n, level)
        provenance = name + ("" if kind == "error" else normaliser)
        scores[kind, corruption] = Score(
            shape.score_name(kind, corruption, against), value, low, high, columns.n, level,
            f"image bootstrap, {resamples:,} resamples", provenance, higher_is_better=False,
        )  # fmt: skip
    return CorruptionScores.of(_classifier(grid), shape, scores)


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
    def of(cls, grid: Collection[tuple[str, float]], wanted: Sequence[str] | None = None) -> GridShape:
        if not grid:
            raise SettingError("no corrupted setting to compute corruption error from", expected="at least one")
        present = list(dict.fromkeys(corruption for corruption, _ in grid))
        known = [c for c in BENCHMARK_CORRUPTIONS if c in present]
        corruptions = tuple(known + [c for c in present if c not in known])
        severities = tuple(sorted({severity for _, severity in grid}))
        missing = [f"{c}.{s:g}" for c in corruptions for s in severities if (c, s) not in grid]
        if wanted is not None:
            missing += [c for c in wanted if c not in present]
        if missing:
            raise SettingError(
                "corruption error needs the same severities of every corruption",
                found=f"no {', '.join(missing[:6])}" + (" ..." if len(missing) > 6 else ""),
                hint="finish the run, or pass only the corruptions and severities that are complete",
            )
        return cls(corruptions, severities, averaged_types(corruptions) if wanted is None else tuple(wanted))

    @property
    def groups(self) -> dict[str, tuple[str, ...]]:
        """The kinds of corruption whose members are all there."""
        there = set(self.corruptions)
        return {name: members for name, members in GROUPS.items() if there >= set(members) and name not in there}

    def undivided(self, corruption: str, baseline: Baseline) -> bool:
        """Whether the baseline has no error for a corruption that the means do without, as for style transfer."""
        return corruption not in baseline.errors and corruption not in self.averaged

    def members(self, corruption: str) -> tuple[str, ...]:
        """The corruptions that a number is over: one, those of a group, or for "" those that means are over."""
        return self.groups.get(corruption, (corruption,)) if corruption else self.averaged

    def score_name(self, kind: str, corruption: str, against: str) -> str:
        """``corruption`` is "" for the mean over corruptions; ``against`` is what errors are divided by."""
        if corruption and corruption not in self.groups:
            name = f"{kind}{severities_text(self.severities)}"
        else:
            name = mean_name(kind, self.members(corruption), self.severities)
        return name if kind == "error" or against == ALEXNET.name else f"{name} vs {against}"

    def exact(
        self, kind: str, corruption: str, value: float, error: float, clean: float | None, base: Baseline | None,
        n: int, level: float,
    ) -> tuple[float, float]:  # fmt: skip
        """The ends of a number where all n images have the same outcomes, so that resampling them shows no width.

        114 of 114 wrong does not mean always wrong: the exact interval of the error, divided as the number is. For a
        rise over the clean error both exact intervals are put together (Zou and Donner 2008).
        """
        low, high = clopper_pearson(error * n, n, level)
        down, up = error - low, high - error
        if kind == "relative CE" and clean is not None:
            low, high = clopper_pearson(clean * n, n, level)
            down, up = math.hypot(down, high - clean), math.hypot(up, clean - low)
        scale = 1.0
        if kind != "error" and base is not None:
            own = [base.mean(c, self.severities) for c in self.members(corruption)]
            floor = base.clean_error() if kind == "relative CE" else 0.0
            scale = fmean(1 / (below - floor) if below > floor else math.nan for below in own)
        return value - scale * down, value + scale * up


def averaged_types(names: Collection[str]) -> tuple[str, ...]:
    """The corruptions that means are over: those of the benchmark's fifteen, or all if none of them is there."""
    return tuple(name for name in names if name in BENCHMARK_CORRUPTIONS) or tuple(names)


def mean_name(kind: str, averaged: Sequence[str], severities: Sequence[float]) -> str:
    """The name of a mean: "mCE" over the whole benchmark only, else "mean CE over 9 types", "mean CE at 1,3,5"."""
    some = set(averaged) != set(BENCHMARK_CORRUPTIONS)
    where = f" over {len(averaged)} type{'s' * (len(averaged) != 1)}" * some + severities_text(severities)
    return f"mean {kind}{where}" if where or kind == "error" else {"CE": "mCE", "relative CE": "relative mCE"}[kind]


def severities_text(severities: Sequence[float]) -> str:
    """What a name adds where the severities are not the benchmark's five: " at 1,3,5"."""
    return f" at {','.join(f'{one:g}' for one in severities)}" * (tuple(severities) != SEVERITIES)


class _Columns:
    """Errors of all settings as columns over the same images."""

    def __init__(self) -> None:
        self._first: Predictions | None = None
        self._wrong: list[NDArray[np.bool_]] = []
        self._valid: list[NDArray[np.bool_]] = []
        self.index: dict[tuple[str, str, float], int] = {}

    def add(self, owner: str, grid: Grid, clean: Predictions | None) -> None:
        entries: list[tuple[str, float, Predictions]] = [(c, s, one) for (c, s), one in grid.items()]
        if clean is not None:
            entries.append(("", 0, clean))
        names = {one.classifier for _, _, one in entries}
        if len(names) > 1:
            raise SettingError("one grid, several models", found=", ".join(sorted(names)), expected="one")
        for corruption, severity, one in entries:
            self._first = self._first or one
            order = aligned(self._first, one)
            self.index[owner, corruption, severity] = len(self._wrong)
            self._wrong.append(one.top[order, 0] != one.labels[order])
            self._valid.append(one.valid[order])

    @property
    def n(self) -> int:
        """The least number of images that count in any one setting."""
        return min(int(valid.sum()) for valid in self._valid)

    def resample(self, resamples: int, seed: int) -> tuple[FloatArray, FloatArray]:
        """(1, S) errors and (B, S) errors under the same draws of images."""
        wrong, valid = np.stack(self._wrong, axis=1), np.stack(self._valid, axis=1)
        if not valid.any():
            nothing = np.full((1, wrong.shape[1]), np.nan)
            return nothing, nothing
        with np.errstate(invalid="ignore"):
            errors = (wrong & valid).sum(axis=0, keepdims=True) / valid.sum(axis=0, keepdims=True)
        return errors, resampled_means(wrong, valid=valid, resamples=resamples, seed=seed)

    def mean(self, table: FloatArray, owner: str, corruption: str, severities: Sequence[float]) -> FloatArray:
        picked = [self.index[owner, corruption, severity] for severity in severities]
        return np.asarray(table[:, picked].mean(axis=1))

    def clean(self, table: FloatArray, owner: str) -> FloatArray | None:
        where = self.index.get((owner, "", 0))
        return None if where is None else table[:, where]


def _all_values(
    shape: GridShape, table: FloatArray, columns: _Columns, fixed: Baseline | None, against: str
) -> dict[ScoreKey, FloatArray]:
    """Every number, for each row of the table of errors (one row, or one a resample)."""
    values: dict[ScoreKey, FloatArray] = {}
    clean = columns.clean(table, "")
    base_clean = np.asarray(fixed.clean) if fixed and fixed.clean is not None else columns.clean(table, "base")
    for corruption in shape.corruptions:
        error = columns.mean(table, "", corruption, shape.severities)
        values["error", corruption] = error
        if not against or (fixed and shape.undivided(corruption, fixed)):
            continue
        if fixed:
            base = np.asarray(fixed.mean(corruption, shape.severities))
        else:
            base = columns.mean(table, "base", corruption, shape.severities)
        values["CE", corruption] = _ratios(error, base)
        if clean is not None and base_clean is not None:
            values["relative CE", corruption] = _ratios(error - clean, base - base_clean)
    for group, members in shape.groups.items():
        values["error", group] = np.mean([values["error", c] for c in members], axis=0)
    for kind in _KINDS:
        if (kind, shape.averaged[0]) in values:
            values[kind, ""] = np.mean([values[kind, c] for c in shape.averaged], axis=0)
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
    source, shift = spec.source, spec.shift.values
    parts = [f"{len(predictions)} images over {predictions.space.name} ({len(predictions.space)})"]
    if spec.dataset.values and source != "on-disk":
        parts.insert(0, f"{spec.dataset.name} {spec.dataset.fingerprint[:8]}")
    parts += [str(source)] if source else []
    parts += [f"{key} {shift[key]}" for key in _MADE_BY if key in shift]
    return ", ".join(parts)


#: The entries of a shift's description that must not differ between the settings of one grid,
#: and those that one corruption has for itself: which frost images, which options.
_OWN = ("frost", "options")
_MADE_BY = ("generator", "version", "seed_scheme", "seed", "then")


def _one_family(grid: Grid) -> str:
    """The line that the scores of a grid carry; refuses a grid that was made in several ways."""
    families: dict[str, str] = {}
    variants: dict[str, dict[str, str]] = {}
    for (corruption, severity), one in grid.items():
        where = f"{corruption}.{severity:g}"
        shift, parts = one.spec.shift.values, []
        for own in (shift[key] for key in _OWN if key in shift):
            parts += [f"{name} {value}" for name, value in own.items()] if isinstance(own, Mapping) else [str(own)]
        families.setdefault(_family(one), where)
        variants.setdefault(corruption, {}).setdefault(" ".join(parts), where)
    for found in (families, *variants.values()):
        if len(found) > 1:
            (first, where), (second, elsewhere) = list(found.items())[:2]
            raise SettingError(
                "corruption errors of different provenance can't be averaged",
                found=f"{where}: {first!r}, but {elsewhere}: {second!r}",
                expected="all settings made the same way",
                hint="evaluate the missing settings the same way, or compute two separate tables",
            )
    named = [f"{corruption} {variant}" for corruption, (variant,) in sorted(variants.items()) if variant]
    return ", ".join([next(iter(families)), *named])


def _classifier(grid: object) -> str:
    assert isinstance(grid, Mapping)
    return str(next(iter(grid.values())).classifier)
