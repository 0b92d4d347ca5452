"""Where one's own models stand among the published models of the package: above or below their line.

A result is placed only where it is the same measurement: the same setting, label space and number of images, scored by
the same metric. What can't be placed is named, with the reason.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from shiftbench.datasets.corruption_names import BENCHMARK_CORRUPTIONS
from shiftbench.datasets.subset import TESTBED_LIST
from shiftbench.errors import ShiftbenchError
from shiftbench.grouping import by_key
from shiftbench.labels.catalogue import label_space
from shiftbench.metrics.base import Score, SettingScore
from shiftbench.metrics.corruption import SEVERITIES
from shiftbench.metrics.detection import detect
from shiftbench.published.baselines import PROVENANCE, PublishedLine, Side, baseline_of, baselines
from shiftbench.reports.corruption import accuracy_of, corruption_families
from shiftbench.reports.formatting import count, interval, number
from shiftbench.runs.results import StoredResults, scored_results
from shiftbench.store.spec import ShiftRecord
from shiftbench.store.workspace import Result, Workspace, space_key
from shiftbench.studies.base import FRACTION, StudyError, get_scale
from shiftbench.studies.fits import FEW_MODELS, Fit, Line
from shiftbench.studies.results import Results, own_name, results_from_scores, same_images
from shiftbench.studies.robustness import Effective, beside_ordinary_models, effective_robustness
from shiftbench.studies.study import ShiftAxes, Study
from shiftbench.studies.testbed import ALL_IMAGES, SIZES, TENTH, known_settings

#: What our suites and people call a setting that the testbed calls otherwise.
_TESTBED_NAMES = {"imagenet-val": "val"}
#: A line is used beyond the models that it was fitted to by at most this share of their range, on its scale.
_MAX_EXTRAPOLATION = 0.5


@dataclass(frozen=True)
class Placement:
    """One own model among the published models of a setting. All numbers are fractions."""

    model: str
    #: The setting under shift.
    setting: str
    #: The setting without shift; None where no line can be drawn.
    reference: str | None
    #: The published models, their settings and their source.
    baseline: PublishedLine
    #: The own accuracy (or AUPR) in ``setting``, and in ``reference``.
    score: Score
    clean: Score | None
    #: Distance from the line, with an interval that joins the images of both settings and the fit; None without a line.
    effective: Effective | None
    #: Number of models that the line was fitted to.
    line_models: int
    #: Number of published models with a lower score.
    lower: int
    #: What a reader must know to compare.
    notes: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        return f"{self.distance} {self.comparison}"

    @property
    def distance(self) -> str:
        """The first half of the sentence: ``1.2 points above``."""
        if self.effective is None:
            metric = "accuracy" if self.score.metric == "top1" else self.score.metric.upper()
            return f"{metric} {number(self.score.value, 1)} %"
        side = "above" if self.effective.rho >= 0 else "below"
        return f"{number(abs(self.effective.rho), 1)} points {side}"

    @property
    def comparison(self) -> str:
        """The second half: ``the line of 67 published models [0.3, 2.1]``."""
        if self.effective is None:
            return f"is higher than that of {self.lower} of {self.baseline.n} published models"
        if self.effective.rho >= 0:
            distance_interval = interval(self.effective.low, self.effective.high, 1)
        else:
            # ``distance`` gives the size of a negative distance: its interval is mirrored, too.
            distance_interval = interval(-self.effective.high, -self.effective.low, 1)
        extrapolated = ", extrapolated" if self.effective.extrapolated else ""
        ordinary = beside_ordinary_models(self.effective, 100)
        return f"the line of {self.line_models} published models {distance_interval}{extrapolated}{ordinary}"

    @property
    def rank(self) -> str:
        """The place by score among the published models and this one; equal published ones come first."""
        return f"rank {self.baseline.n - self.lower + 1} of {self.baseline.n + 1}"

    def as_dict(self) -> dict[str, object]:
        """JSON-able; distances in percentage points."""
        effective = self.effective
        values: dict[str, object] = {
            "model": self.model,
            "setting": self.setting,
            "reference": self.reference,
            "score": self.score.as_dict(),
            "points_above_line": None,
            "interval": None,
            "expected": None,
            "ordinary_interval": None,
            "beyond_ordinary": False,
            "extrapolated": False,
            "line_models": self.line_models,
            "scale": None,
            "published_models": self.baseline.n,
            "lower": self.lower,
            "source": self.baseline.source,
            "sentence": self.sentence,
            "notes": list(self.notes),
        }
        # Where no line was fitted there is only a rank among the published models.
        if effective is not None:
            values["points_above_line"] = 100 * effective.rho
            values["interval"] = [100 * effective.low, 100 * effective.high]
            values["expected"] = effective.expected
            values["ordinary_interval"] = _ordinary_interval(effective)
            values["beyond_ordinary"] = effective.is_above_ordinary or effective.is_below_ordinary
            values["extrapolated"] = effective.extrapolated
            values["scale"] = self.baseline.scale
        return values


@dataclass(frozen=True)
class Unplaced:
    """A result of a setting with published models that can't be compared with them, and why."""

    model: str
    setting: str
    baseline: PublishedLine
    why: str

    def as_dict(self) -> dict[str, str]:
        return {"model": self.model, "setting": self.setting, "source": self.baseline.source, "why": self.why}


@dataclass(frozen=True)
class Placements:
    #: One entry for each model and setting with published models.
    placed: tuple[Placement, ...]
    #: Results that are not comparable, with the reason.
    unplaced: tuple[Unplaced, ...]
    level: float

    @cached_property
    def placed_by_model(self) -> dict[str, list[Placement]]:
        return by_key((placement.model, placement) for placement in self.placed)

    @cached_property
    def unplaced_by_model(self) -> dict[str, list[Unplaced]]:
        return by_key((unplaced.model, unplaced) for unplaced in self.unplaced)

    def __iter__(self) -> Iterator[Placement]:
        return iter(self.placed)

    def __len__(self) -> int:
        return len(self.placed)


class _NotComparableError(Exception):
    """The result is not the same measurement as the published ones; the message says why."""


def place_models(run: StoredResults, *, level: float = 0.95) -> Placements:
    placed: list[Placement] = []
    unplaced: list[Unplaced] = []
    for title, model_run in run.by_model().items():
        settings = {*model_run.settings, *corruption_families(model_run)}
        for baseline in baselines():
            for setting in baseline.settings:
                if setting not in settings:
                    continue
                try:
                    placed.append(_place(title, model_run, baseline, setting, level))
                except _NotComparableError as reason:
                    unplaced.append(Unplaced(title, setting, baseline, str(reason)))
    return Placements(tuple(placed), tuple(unplaced), level)


class PlacedStudy(NamedTuple):
    """Published models and own ones in one study, as a scatter plot draws them."""

    study: Study
    axes: ShiftAxes
    scale: str
    #: The own models, as the study calls them.
    own: list[str]


def published_study(run: StoredResults, y: str) -> PlacedStudy:
    """The published models of a setting under shift and those of a run; StudyError if there are none to compare."""
    baseline = _baseline_with_line(y)
    assert baseline.x is not None
    x = baseline.x.setting
    placed = _placed_by_line(run, y)
    scores = [SettingScore(placement.model, y, placement.score) for placement in placed]
    clean_scores = {placement.model: placement.clean for placement in placed}
    for model, score in clean_scores.items():
        if score is not None:
            scores.append(SettingScore(model, x, score))
    results = results_from_scores(scores)
    published_models = set(baseline.models)
    names = tuple(own_name(model) if model in published_models else model for model in results.models)
    notes = (f"published models: {baseline.source}", *placed[0].notes)
    joined = baseline.results(y).joined(replace(results, models=names, notes=notes))
    return PlacedStudy(Study(joined, baseline.models), ShiftAxes(x, y), baseline.scale, list(names))


def _baseline_with_line(y: str) -> PublishedLine:
    baseline = baseline_of(y)
    if baseline is None or baseline.x is None:
        settings: list[str] = []
        for published in baselines():
            if published.x is not None:
                settings += published.settings
        raise StudyError(f"no line of published models for {y!r}", expected=", ".join(settings))
    if baseline.line().n < FEW_MODELS:
        raise StudyError(
            f"the published models of {y!r} are too few for a line",
            found=_too_few(baseline.line()),
            hint="run.baselines() and the report give the rank among all of them",
        )
    return baseline


def _placed_by_line(run: StoredResults, y: str) -> list[Placement]:
    """The models of a run that have a distance from the line of a setting; StudyError if there are none."""
    placements = place_models(run)
    placed = [placement for placement in placements if placement.setting == y and placement.effective is not None]
    if not placed:
        reasons = [f"{unplaced.model}: {unplaced.why}" for unplaced in placements.unplaced if unplaced.setting == y]
        raise StudyError(
            f"no model of {run.workspace.root} can be compared with the published models on {y}",
            found="; ".join(reasons) or f"no result on {y}",
        )
    return placed


def published_name(setting: str) -> str:
    """What the testbed calls a setting that our suites and people call otherwise."""
    return _TESTBED_NAMES.get(setting, setting)


def why_apart(workspace: Workspace, result: Result) -> str:
    """Why a result in a testbed setting is not the testbed's measurement; "" where it is, or the name is another.

    It is where classes, transform and shift are the same, and the images: all of the test set (``Results.with_own``
    compares the numbers), or, for corruptions and attacks, the testbed's list of 5,000.
    """
    testbed_setting = known_settings().get(published_name(result.setting))
    if testbed_setting is None:
        return ""
    spec = result.spec
    expected_space = label_space(testbed_setting.space or "imagenet-1k")
    if spec.classes != expected_space.fingerprint:
        return f"they are over {spec.space}, not {space_key(expected_space)}"
    recorded = spec.classifier.recorded
    cropped = spec.geometry.values != spec.classifier.geometry.values
    if testbed_setting.source == "on-disk" and cropped and not recorded:
        return "the files were cropped but not resized, unlike in the testbed"
    shift = ShiftRecord(testbed_setting.shift.describe())
    if not recorded and (spec.shift.kind, spec.shift.name) != (shift.kind, shift.name):
        return f"the images are shifted otherwise ({spec.shift.name}, not {shift.name})"
    is_changed = testbed_setting.shifted or testbed_setting.source is not None
    if recorded and is_changed and spec.made_by != "testbed":
        return "nobody stated who made the images (import --made-by testbed)"
    textures = spec.shift.textures
    if not recorded and textures.startswith("procedural"):
        return f"the frost has other textures ({textures}), not the original pictures"
    if testbed_setting.metric != "top1":  # The setting is of videos: its number of images is that of all frames.
        return ""
    return _why_other_images(workspace, result, testbed_setting.name)


def _why_other_images(workspace: Workspace, result: Result, testbed_name: str) -> str:
    """Why a result is not on the images of a testbed setting; "" where it is."""
    spec = result.spec
    sizes = [SIZES[testbed_name]] if testbed_name in SIZES else [TENTH, ALL_IMAGES]
    if not same_images(spec.images, sizes):
        return f"on {count(spec.images)} images, not {' or '.join(map(count, sizes))}"
    if sizes[0] == TENTH and same_images(spec.images, [TENTH]):
        list_name = workspace.dataset(spec.dataset.name, spec.dataset.fingerprint).list_name
        if list_name != TESTBED_LIST:
            return f"on {count(spec.images)} images that are not known to be the testbed's (--subset {TESTBED_LIST})"
    return ""


def own_results(run: StoredResults, metric: str | None = None, *, in_testbed: bool = True) -> Results:
    """The scores of a run as a table to place among published ones, by default the testbed's.

    What is not the testbed's measurement under the testbed's name is renamed, with a note.
    """
    if not in_testbed:
        return results_from_scores(run.scores(metric))
    reasons_apart: dict[str, str] = {}
    scores: list[SettingScore] = []
    for result, score in scored_results(run, metric):
        setting = published_name(result.setting)
        reason = why_apart(run.workspace, result)
        if reason:
            reasons_apart[setting] = reason
            scores.append(SettingScore(result.title, own_name(setting), score))
        else:
            scores.append(SettingScore(result.title, setting, score))
    results = results_from_scores(scores)
    notes = []
    for setting, reason in reasons_apart.items():
        notes.append(f"{setting}: own results are kept apart, as {own_name(setting)}: {reason}")
    return replace(results, notes=(*results.notes, *notes), apart=reasons_apart)


def _place(title: str, model_run: StoredResults, baseline: PublishedLine, setting: str, level: float) -> Placement:
    score = _score(model_run, baseline, setting, level)
    notes: tuple[str, ...] = (PROVENANCE,)
    if setting in baseline.alike:
        notes = (baseline.alike[setting], PROVENANCE)
    without_line = Placement(
        model=title,
        setting=setting,
        reference=None,
        baseline=baseline,
        score=score,
        clean=None,
        effective=None,
        line_models=0,
        lower=sum(published_score < score.value for _, published_score in baseline.values.values()),
        notes=notes,
    )
    if baseline.x is None:
        return without_line
    clean = _top1(model_run, _only(model_run, baseline.x), level)
    line = baseline.line(level)
    if line.n < FEW_MODELS:
        return replace(without_line, notes=(*notes, _too_few(line)))
    return replace(
        without_line,
        reference=baseline.x.setting,
        clean=clean,
        effective=effective_of(title, clean, score, line),
        line_models=len(line.models),
    )


def _too_few(line: Fit) -> str:
    return f"no line is drawn through {line.n} models with standard training; its interval needs {FEW_MODELS}"


def effective_of(model: str, clean: Score, shifted: Score, line: Fit) -> Effective:
    """The distance of one model from a line, if the line holds at the model's accuracy without shift."""
    # Far from the models that it was fitted to, a line says nothing.
    scale = get_scale(line.scale)
    low, high, x = (float(scale.forward(np.asarray(value))) for value in (*line.x_range, clean.value))
    margin = _MAX_EXTRAPOLATION * (high - low)
    if not low - margin <= x <= high + margin:
        x_range = " to ".join(number(accuracy, 1) for accuracy in line.x_range)
        raise _NotComparableError(
            f"its accuracy of {number(clean.value, 1)} % without shift is too far from those of the published models, "
            f"{x_range} %, for their line"
        )
    return distance_from(line, model, clean, shifted)


def _ordinary_interval(effective: Effective) -> list[float] | None:
    """Where the distances of ordinary models lie, in points; None if that is not known."""
    if math.isnan(effective.ordinary_low):
        return None
    return [100 * effective.ordinary_low, 100 * effective.ordinary_high]


def distance_from(line: Line, model: str, clean: Score, shifted: Score) -> Effective:
    """The distance of one model from a line; its interval joins both scores' intervals and the line's band."""
    robustness = effective_robustness(
        [clean.value], [shifted.value], line, models=[model], n_x=clean.n, level=shifted.level, unit=FRACTION
    )
    [row] = robustness.rows
    # Zou and Donner's rule adds squares: the share of the images of y can be added afterwards.
    down = math.hypot(row.rho - row.low, shifted.value - shifted.low)
    up = math.hypot(row.high - row.rho, shifted.high - shifted.value)
    return replace(
        row,
        low=row.rho - down,
        high=row.rho + up,
        ordinary_low=-math.hypot(row.ordinary_low, shifted.high - shifted.value),
        ordinary_high=math.hypot(row.ordinary_high, shifted.value - shifted.low),
    )


def _score(model_run: StoredResults, baseline: PublishedLine, setting: str, level: float) -> Score:
    """The model's score by the metric of the published models."""
    if baseline.family:
        return _family_accuracy(model_run, baseline, setting, level)
    result = _only(model_run, replace(baseline.y, setting=setting))
    if baseline.metric == "top1":
        return _top1(model_run, result, level)
    assert baseline.inside is not None
    inside_result = _only(model_run, baseline.inside)
    inside = model_run.workspace.read(inside_result, top_k=1, scores=False)
    outside = model_run.workspace.read(result, top_k=1, scores=False)
    try:
        return detect(inside, outside, "max_softmax", published=True, level=level).aupr
    except ShiftbenchError as error:  # The predictions were recorded without confidences.
        raise _NotComparableError(error.message) from None


def _family_accuracy(model_run: StoredResults, baseline: PublishedLine, setting: str, level: float) -> Score:
    """The mean accuracy over the benchmark's corruptions, in the released files only."""
    family = corruption_families(model_run)[setting]
    if any(result.spec.source != "on-disk" for result in family.members):
        raise _NotComparableError("corrupted in memory; the published accuracies are those of the released files")
    benchmark_cells = set(itertools.product(BENCHMARK_CORRUPTIONS, SEVERITIES))
    missing = benchmark_cells - set(family.places)
    if missing:
        raise _NotComparableError(f"{len(missing)} of {len(benchmark_cells)} corruptions and severities are missing")
    for result in family.members:
        _check(result, replace(baseline.y, setting=result.setting))
    [model] = family.scores(None, level=level, paired=False)
    return accuracy_of(model.scores.mean_error)


def _top1(model_run: StoredResults, result: Result, level: float) -> Score:
    [scored] = scored_results(model_run.part([result]), "top1", level)
    return scored.score


def _only(model_run: StoredResults, side: Side) -> Result:
    """The model's result on one side of a baseline, if it is the same measurement."""
    results = [result for result in model_run.results if result.setting == side.setting]
    if not results:
        raise _NotComparableError(f"there is no result on {side.setting}")
    if len(results) > 1:
        raise _NotComparableError(f"there are {len(results)} different results on {side.setting}")
    _check(results[0], side)
    return results[0]


def _check(result: Result, side: Side) -> None:
    """Raises _NotComparableError if the result is over other classes, another number of images, or shifted."""
    spec = result.spec
    expected_space = label_space(side.space)
    if spec.classes != expected_space.fingerprint:
        raise _NotComparableError(f"{side.setting} is scored over {spec.space}, not {space_key(expected_space)}")
    if spec.images != side.images:
        sizes = f"{count(spec.images)} images here, {count(side.images)} in the publication"
        raise _NotComparableError(f"{side.setting} has {sizes}")
    if spec.shift.kind != "none":
        raise _NotComparableError(f"{side.setting} is shifted here ({spec.shift.name})")
