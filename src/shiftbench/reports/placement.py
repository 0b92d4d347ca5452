"""Where one's own models stand among the published models of the package: above or below their line.

A result is placed only where it is the same measurement: the same setting, label space and number of images, scored by
the same metric. What can't be placed is named, with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from shiftbench.datasets.corruption_names import BENCHMARK_CORRUPTIONS
from shiftbench.datasets.subset import TESTBED_LIST
from shiftbench.errors import ShiftbenchError
from shiftbench.labels.catalogue import label_space
from shiftbench.metrics.base import Score, metrics
from shiftbench.metrics.corruption import SEVERITIES
from shiftbench.metrics.detection import detect
from shiftbench.published.baselines import PROVENANCE, PublishedLine, Side, baseline_of, baselines
from shiftbench.reports.corruption import accuracy_of, corruption_families
from shiftbench.reports.formatting import count, interval, number
from shiftbench.runs.results import StoredResults
from shiftbench.store.spec import ShiftRecord
from shiftbench.store.workspace import Result, Workspace, space_key
from shiftbench.studies.base import FRACTION, StudyError, get_scale
from shiftbench.studies.fits import FEW_MODELS, Fit, Line
from shiftbench.studies.results import Results, own_name, results_from_scores, same_images
from shiftbench.studies.robustness import Effective, effective_robustness
from shiftbench.studies.study import ShiftAxes, Study
from shiftbench.studies.testbed import ALL_IMAGES, SIZES, TENTH, known_settings

#: What our suites and people call a setting that the testbed calls otherwise.
_TESTBED_NAMES = {"imagenet-val": "val"}
#: A line is used beyond the models that it was fitted to by at most this share of their range, on its scale.
_BEYOND = 0.5


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
        low, high = self.effective.low, self.effective.high
        ends = interval(low, high, 1) if self.effective.rho >= 0 else interval(-high, -low, 1)
        beyond = ", extrapolated" if self.effective.extrapolated else ""
        return f"the line of {self.line_models} published models {ends}{beyond}"

    def as_dict(self) -> dict[str, object]:
        """JSON-able; distances in percentage points."""
        found = self.effective
        return {
            "model": self.model, "setting": self.setting, "reference": self.reference, "score": self.score.as_dict(),
            "points_above_line": None if found is None else 100 * found.rho,
            "interval": None if found is None else [100 * found.low, 100 * found.high],
            "expected": None if found is None else found.expected,
            "extrapolated": found is not None and found.extrapolated,
            "line_models": self.line_models, "scale": None if found is None else self.baseline.scale,
            "published_models": self.baseline.n, "lower": self.lower, "source": self.baseline.source,
            "sentence": self.sentence, "notes": list(self.notes),
        }  # fmt: skip


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

    def __iter__(self) -> Iterator[Placement]:
        return iter(self.placed)

    def __len__(self) -> int:
        return len(self.placed)


class _NotComparableError(Exception):
    """Carries the reason."""


def place_models(run: StoredResults, *, level: float = 0.95) -> Placements:
    placed: list[Placement] = []
    unplaced: list[Unplaced] = []
    for title in run.classifiers:
        own = StoredResults(run.workspace, [one for one in run.results if one.title == title], models=run.models)
        settings = {*own.settings, *corruption_families(own)}
        for baseline, setting in ((one, name) for one in baselines() for name in one.settings if name in settings):
            try:
                placed.append(_place(title, own, baseline, setting, level))
            except _NotComparableError as why:
                unplaced.append(Unplaced(title, setting, baseline, str(why)))
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
    baseline = baseline_of(y)
    if baseline is None or baseline.x is None:
        known = ", ".join(name for one in baselines() if one.x is not None for name in one.settings)
        raise StudyError(f"no line of published models for {y!r}", expected=known)
    if baseline.line().n < FEW_MODELS:
        raise StudyError(
            f"the published models of {y!r} are too few for a line",
            found=_too_few(baseline.line()),
            hint="run.baselines() and the report give the rank among all of them",
        )
    found = place_models(run)
    placed = [one for one in found if one.setting == y and one.effective is not None]
    if not placed:
        why = [f"{one.model}: {one.why}" for one in found.unplaced if one.setting == y]
        raise StudyError(
            f"no model of {run.workspace.root} can be compared with the published models on {y}",
            found="; ".join(why) or f"no result on {y}",
        )
    x = baseline.x.setting
    clean = {one.model: one.clean for one in placed}
    own = [(one.model, y, one.score) for one in placed] + [(m, x, score) for m, score in clean.items() if score]
    results, taken = results_from_scores(own), set(baseline.models)
    renamed = tuple(own_name(name) if name in taken else name for name in results.models)
    notes = (f"published models: {baseline.source}", *placed[0].notes)
    study = Study(baseline.results(y).joined(replace(results, models=renamed, notes=notes)), baseline.models)
    return PlacedStudy(study, ShiftAxes(x, y), baseline.scale, list(renamed))


def published_name(setting: str) -> str:
    """What the testbed calls a setting that our suites and people call otherwise."""
    return _TESTBED_NAMES.get(setting, setting)


def why_apart(workspace: Workspace, result: Result) -> str:
    """Why a result in a testbed setting is not the testbed's measurement; "" where it is, or the name is another.

    It is where classes, transform and shift are the same, and the images: all of the test set (``Results.with_own``
    compares the numbers), or, for corruptions and attacks, the testbed's list of 5,000.
    """
    known = known_settings().get(published_name(result.setting))
    if known is None:
        return ""
    expected, spec = label_space(known.space or "imagenet-1k"), result.spec
    if spec.classes != expected.fingerprint:
        return f"they are over {spec.space}, not {space_key(expected)}"
    recorded = spec.classifier.recorded
    cropped = spec.geometry.values != spec.classifier.geometry.values
    if known.source == "on-disk" and cropped and not recorded:
        return "the files were cropped but not resized, unlike in the testbed"
    shift = ShiftRecord(known.shift.describe())
    if not recorded and (spec.shift.kind, spec.shift.name) != (shift.kind, shift.name):
        return f"the images are shifted otherwise ({spec.shift.name}, not {shift.name})"
    if known.metric != "top1":  # of videos: their number of images is that of all frames
        return ""
    sizes = [SIZES[known.name]] if known.name in SIZES else [TENTH, ALL_IMAGES]
    if not same_images(spec.images, sizes):
        return f"on {count(spec.images)} images, not {' or '.join(map(count, sizes))}"
    if sizes[0] == TENTH and same_images(spec.images, [TENTH]):
        listed = workspace.dataset(spec.dataset.name, spec.dataset.fingerprint).list_name
        if listed != TESTBED_LIST:
            return f"on {count(spec.images)} images that are not known to be the testbed's (--subset {TESTBED_LIST})"
    return ""


def own_results(run: StoredResults, metric: str | None = None, *, in_testbed: bool = True) -> Results:
    """The scores of a run as a table to place among published ones, by default the testbed's.

    What is not the testbed's measurement under the testbed's name is renamed, with a note.
    """
    if not in_testbed:
        return results_from_scores(run.scores(metric))
    scores, apart, entries = run.scores(metric), dict[str, str](), []
    for place, (model, setting, score) in enumerate(scores):
        result = run.results[place * len(run.results) // len(scores)]
        name, why = published_name(setting), why_apart(run.workspace, result)
        apart |= {name: why} if why else {}
        entries.append((model, own_name(name) if why else name, score))
    found = results_from_scores(entries)
    notes = (f"{name}: own results are kept apart, as {own_name(name)}: {why}" for name, why in apart.items())
    return replace(found, notes=(*found.notes, *notes), apart=apart)


def _place(title: str, own: StoredResults, baseline: PublishedLine, setting: str, level: float) -> Placement:
    score = _score(own, baseline, setting, level)
    notes = (*([baseline.alike[setting]] if setting in baseline.alike else []), PROVENANCE)
    lower = sum(y < score.value for _, y in baseline.values.values())
    place = Placement(title, setting, None, baseline, score, None, None, 0, lower, notes)
    if baseline.x is None:
        return place
    clean = _top1(own, _only(own, baseline.x), level)
    line = baseline.line(level)
    if line.n < FEW_MODELS:
        return replace(place, notes=(*notes, _too_few(line)))
    effective = effective_of(title, clean, score, line)
    return replace(place, reference=baseline.x.setting, clean=clean, effective=effective, line_models=len(line.models))


def _too_few(line: Fit) -> str:
    return f"no line is drawn through {line.n} models with standard training; its interval needs {FEW_MODELS}"


def effective_of(model: str, clean: Score, shifted: Score, line: Fit) -> Effective:
    """The distance of one model from a line, if the line holds at the model's accuracy without shift."""
    # Far from the models that it was fitted to, a line says nothing.
    scale = get_scale(line.scale)
    low, high, at = (float(scale.forward(np.asarray(value))) for value in (*line.x_range, clean.value))
    room = _BEYOND * (high - low)
    if not low - room <= at <= high + room:
        ends = " to ".join(number(end, 1) for end in line.x_range)
        raise _NotComparableError(
            f"its accuracy of {number(clean.value, 1)} % without shift is too far from those of the published models, "
            f"{ends} %, for their line"
        )
    return distance_from(line, model, clean, shifted)


def distance_from(line: Line, model: str, clean: Score, shifted: Score) -> Effective:
    """The distance of one model from a line; its interval joins both scores' intervals and the line's band."""
    found = effective_robustness(
        [clean.value], [shifted.value], line, models=[model], n_x=clean.n, level=shifted.level, unit=FRACTION
    )
    [row] = found.rows
    # Zou and Donner's rule adds squares: the share of the images of y can be added afterwards.
    down = math.hypot(row.rho - row.low, shifted.value - shifted.low)
    up = math.hypot(row.high - row.rho, shifted.high - shifted.value)
    return replace(row, low=row.rho - down, high=row.rho + up)


def _score(own: StoredResults, baseline: PublishedLine, setting: str, level: float) -> Score:
    if baseline.family:  # the mean accuracy over the benchmark's corruptions, in the released files only
        found = corruption_families(own)[setting]
        if any(result.spec.source != "on-disk" for result in found.members):
            raise _NotComparableError("corrupted in memory; the published accuracies are those of the released files")
        wanted = {(name, severity) for name in BENCHMARK_CORRUPTIONS for severity in SEVERITIES}
        if missing := wanted - set(found.places):
            raise _NotComparableError(f"{len(missing)} of {len(wanted)} corruptions and severities are missing")
        for result in found.members:
            _check(result, replace(baseline.y, setting=result.setting))
        [(_, scores, _)] = found.scores(None, level=level, paired=False)
        return accuracy_of(scores.mean_error)
    result = _only(own, replace(baseline.y, setting=setting))
    if baseline.metric == "top1":
        return _top1(own, result, level)
    assert baseline.inside is not None
    read = [own.workspace.read(one, top_k=1, scores=False) for one in (_only(own, baseline.inside), result)]
    try:
        return detect(read[0], read[1], "max_softmax", published=True, level=level).aupr
    except ShiftbenchError as error:  # predictions that were recorded without confidences
        raise _NotComparableError(error.message) from None


def _top1(own: StoredResults, result: Result, level: float) -> Score:
    return metrics.get("top1")(own.workspace.read(result, top_k=1, confidence=False, scores=False), level=level)


def _only(own: StoredResults, side: Side) -> Result:
    """The own result on one side of a baseline, if it is the same measurement."""
    found = [result for result in own.results if result.setting == side.setting]
    if not found:
        raise _NotComparableError(f"there is no result on {side.setting}")
    if len(found) > 1:
        raise _NotComparableError(f"there are {len(found)} different results on {side.setting}")
    _check(found[0], side)
    return found[0]


def _check(result: Result, side: Side) -> None:
    expected, spec = label_space(side.space), result.spec
    if spec.classes != expected.fingerprint:
        raise _NotComparableError(f"{side.setting} is scored over {spec.space}, not {space_key(expected)}")
    if spec.images != side.images:
        sizes = f"{count(spec.images)} images here, {count(side.images)} in the publication"
        raise _NotComparableError(f"{side.setting} has {sizes}")
    if spec.shift.kind != "none":
        raise _NotComparableError(f"{side.setting} is shifted here ({spec.shift.name})")
