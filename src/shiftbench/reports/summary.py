"""What a set of results says in a few lines: accuracy, the worst corruptions and classes, confusions, calibration,
the place among published models, warnings, and what to run next.

``eval`` ends with it, the HTML report opens with it, and a notebook shows it.
"""

from __future__ import annotations

import shlex
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from shiftbench.arrays import IntArray
from shiftbench.errors import SettingError, UnknownNameError, shell_command
from shiftbench.metrics.accuracy import class_counts, lowest_accuracy
from shiftbench.metrics.base import Score, metrics
from shiftbench.published.baselines import baseline_of
from shiftbench.reports.corruption import FamilyResults, accuracy_of, corruption_families
from shiftbench.reports.formatting import count, digits, interval, number
from shiftbench.runs.results import StoredResults
from shiftbench.store.predictions import Predictions
from shiftbench.store.run_records import RunRecord
from shiftbench.store.workspace import Result

if TYPE_CHECKING:
    from shiftbench.reports.placement import Placement, Placements, Unplaced

#: Number of corruptions, confusions and commands that are shown.
_SHOWN = 3
#: Models that get lines of their own; of more, the tables say enough.
_MOST_MODELS = 4
#: Classes with fewer images are not ranked: one image would move the accuracy by more than 10 points, and the lowest of
#: many such classes is low by chance.
LEAST_CLASS_IMAGES = 10
#: The suite of corruptions for data in a role.
_CORRUPTED = {"data": "corruptions", "imagenet-val": "imagenet-c"}


@dataclass(frozen=True)
class SummaryLine:
    """One fact about a model, as text in up to three parts."""

    heading: str
    value: str
    interval: str = ""
    rest: str = ""
    #: The value that tables sort by; None where it has none.
    number: float | None = None

    @property
    def text(self) -> str:
        return " ".join(part for part in (self.value, self.interval, self.rest) if part)


@dataclass(frozen=True)
class WorstClass:
    """The class with the lowest accuracy. Its interval holds for all classes together: the lowest of many is chosen."""

    name: str
    correct: int
    n: int
    low: float
    high: float

    @property
    def value(self) -> float:
        return self.correct / self.n


@dataclass(frozen=True)
class Confusion:
    """``count`` of the ``of`` images of ``label`` were classified as ``prediction``."""

    label: str
    prediction: str
    count: int
    of: int


@dataclass(frozen=True)
class CorruptionSummary:
    family: str
    #: Mean accuracy over its corruptions and severities.
    mean: Score
    #: Mean corruption error, where AlexNet's published errors divide.
    mce: Score | None
    #: The three corruptions with the lowest accuracy, each a mean over severities.
    worst: tuple[tuple[str, Score], ...]
    corruptions: int
    severities: int


@dataclass(frozen=True)
class CalibrationSummary:
    """ECE, and mean confidence against accuracy; ``excess`` is positive for an overconfident model."""

    ece: Score
    excess: float


@dataclass(frozen=True)
class ModelSummary:
    model: str
    #: The setting without shift, or the only one.
    setting: str
    #: Top-1 (or the setting's own metric) there.
    accuracy: Score
    #: None where images do not have one label each.
    worst_class: WorstClass | None
    confusions: tuple[Confusion, ...]
    #: None where no confidences are known.
    calibration: CalibrationSummary | None
    corruptions: tuple[CorruptionSummary, ...]
    #: Other settings with a shift, lowest accuracy first.
    shifted: tuple[tuple[str, Score], ...]
    #: Its places among published models.
    placements: tuple[Placement, ...]
    #: Settings with published models that can't be compared, and why.
    unplaced: tuple[Unplaced, ...]

    def as_dict(self, level: float) -> dict[str, object]:
        fields = asdict(replace(self, placements=(), unplaced=()))
        del fields["placements"], fields["unplaced"]
        placed, unplaced = ([one.as_dict() for one in found] for found in (self.placements, self.unplaced))
        return {**fields, "published": {"placed": placed, "unplaced": unplaced, "level": level}}

    def facts(self) -> list[SummaryLine]:
        """Everything that is known, for people."""
        name = "accuracy" if self.accuracy.metric == "top1" else self.accuracy.metric.replace("_", " ")
        on = f"on {self.setting} (n = {count(self.accuracy.n)})"
        found = [SummaryLine(name, *shown_score(self.accuracy), on, _sortable(self.accuracy))]
        for one in self.corruptions:
            mce = "" if one.mce is None else f", {one.mce.metric}: {number(one.mce.value, 1)}"
            made_of = (
                f"{one.family}, {one.corruptions} corruption{'s' * (one.corruptions != 1)}{mce}{_estimated(one.mean)}"
            )
            found.append(SummaryLine("corrupted", *shown_score(one.mean), made_of, _sortable(one.mean)))
            worst = ", ".join(f"{name} {shown_score(score)[0]}" for name, score in one.worst)
            found.append(SummaryLine("worst", worst))
        placed = {one.setting for one in self.placements}
        others = [entry for entry in self.shifted if entry[0] not in placed]
        found += [
            SummaryLine("shifted", *shown_score(score), name, _sortable(score)) for name, score in others[:_SHOWN]
        ]
        for place in self.placements[:_SHOWN]:
            own = f"({shown_score(place.score)[0]} {place.setting})"
            rho = None if place.effective is None else place.effective.rho
            found.append(SummaryLine("published", place.distance, place.comparison, own, rho))
        found += [SummaryLine("published", "not comparable:", one.why, f"({one.setting})") for one in self.unplaced[:1]]
        if self.worst_class is not None:
            one_class, ends = self.worst_class, interval(self.worst_class.low, self.worst_class.high, 1)
            value = f"{one_class.name} {number(one_class.value, 1)} %"
            found.append(SummaryLine("worst class", value, ends, f"(n = {count(one_class.n)})", one_class.value))
        for pair in self.confusions[:1]:
            value = f"{pair.label} as {pair.prediction}"
            found.append(SummaryLine("confusion", value, "", f"({pair.count} of {pair.of})"))
        if self.calibration is not None:
            excess = self.calibration.excess
            value, ends = shown_score(self.calibration.ece)
            gap = f"{number(abs(excess), 1)} points {'overconfident' if excess >= 0 else 'underconfident'}"
            ece = _sortable(self.calibration.ece)
            found.append(SummaryLine("calibration", f"ECE {value}", f"{ends}," if ends else "", gap, ece))
        return found

    @property
    def brief(self) -> str:
        """All in one line, beside other models."""
        parts = [f"{' '.join(shown_score(self.accuracy))} on {self.setting}"]
        for family in self.corruptions:
            worst = f"worst {family.worst[0][0]}{_estimated(family.mean)}"
            parts.append(f"{shown_score(family.mean)[0]} {family.family}, {worst}")
        return "; ".join([*parts, *(place.sentence for place in self.placements[:1])])


@dataclass(frozen=True)
class RunSummary:
    models: tuple[ModelSummary, ...]
    #: Signs of wrong labels or preprocessing.
    warnings: tuple[str, ...]
    #: Three commands that make sense now, with the user's own paths.
    next_commands: tuple[str, ...]
    level: float

    def as_dict(self) -> dict[str, object]:
        models = [one.as_dict(self.level) for one in self.models]
        return {"models": models, "next_commands": list(self.next_commands), "level": self.level}

    def lines(self) -> list[tuple[str, str]]:
        """(heading, text): all of one model, or one line each of several."""
        if len(self.models) != 1:
            return [(one.model, one.brief) for one in self.models[:_MOST_MODELS]]
        facts = self.models[0].facts()
        shifted = "; ".join(one.text for one in facts if one.heading == "shifted")
        lines = [(one.heading, one.text) for one in facts if one.heading != "shifted"]
        return [*lines[:1], *([("shifted", shifted)] if shifted else []), *lines[1:]]

    def to_text(self, width: int = 80) -> str:
        """For a terminal: the lines, and the commands to run next."""
        if not self.models:
            return ""
        title = self.models[0].model if len(self.models) == 1 else f"{len(self.models)} models"
        lines = self.lines()
        indent = 2 + max(len(heading) for heading, _ in lines) + 2
        found = [f"summary: {title}"]
        wrapper = textwrap.TextWrapper(max(width, indent + 20), subsequent_indent=" " * indent)
        for heading, text in lines:
            wrapper.initial_indent = f"  {heading}".ljust(indent)
            wrapped = wrapper.wrap(text.replace(" %", "\N{NO-BREAK SPACE}%"))
            found += [line.replace("\N{NO-BREAK SPACE}", " ") for line in wrapped]
        return "\n".join([*found, "next:", *(f"  {command}" for command in self.next_commands)])


def summarise(
    run: StoredResults, *, level: float = 0.95, command: Sequence[str] = (), placements: Placements | None = None
) -> RunSummary:
    """The summary of a run; an empty one has no models.

    ``command`` is the ``eval`` command that made the results, which the next ones build on; by default, as recorded.
    ``placements`` is ``place_models(run)``, where it is known already.
    """
    names = {*run.settings, *corruption_families(run)}
    if placements is None and any(baseline_of(name) for name in names):
        # Imported here: where no setting has published models, nothing of the studies is loaded.
        from shiftbench.reports.placement import place_models

        placements = place_models(run, level=level)
    found = []
    for title in run.classifiers:
        own = StoredResults(run.workspace, [one for one in run.results if one.title == title], models=run.models)
        found.append(_model(title, own, placements, level))
    warnings = tuple(str(warning) for warning in [*run.trained_on(), *run.warnings()] if not warning.is_note)
    return RunSummary(tuple(found), warnings, next_commands(run, command, placements), level)


def _model(title: str, own: StoredResults, placements: Placements | None, level: float) -> ModelSummary:
    families = corruption_families(own).values()
    members = {setting for family in families for setting in family.places.values()}
    clean = clean_result(own.results)
    metric = metrics.get(clean.spec.metric)
    by_image = clean.spec.judged_by_image
    predictions = own.workspace.read(clean, top_k=max(1, metric.needs.top_k), scores=metric.needs.scores)
    others = [
        one
        for one in own.results
        if one.spec.reference is not None and one.setting not in members and one.spec.judged_by_image
    ]
    scores = StoredResults(own.workspace, others, models=own.models).scores(level=level)
    confidence, calibration = predictions.confidence[predictions.valid], None
    if by_image and len(confidence) and not np.isnan(confidence).any():
        excess = float(confidence.mean(dtype=np.float64) - predictions.correct.mean())
        calibration = CalibrationSummary(metrics.get("ece")(predictions, level=level), excess)
    return ModelSummary(
        title,
        clean.setting,
        metric(predictions, level=level),
        worst_class(predictions, level) if by_image else None,
        tuple(confusions(predictions, most=_SHOWN)) if by_image else (),
        calibration,
        tuple(one for family in families if (one := _corruptions(family, level)) is not None),
        tuple(sorted(((setting, score) for _, setting, score in scores), key=lambda entry: entry[1].value)),
        tuple(one for one in placements.placed if one.model == title) if placements else (),
        tuple(one for one in placements.unplaced if one.model == title) if placements else (),
    )


def clean_result(results: Sequence[Result]) -> Result:
    """The result without shift that most of the others refer to; the first one if none is without."""
    named = Counter(result.spec.reference for result in results)
    plain = [one for one in results if one.spec.reference is None and one.spec.shift.kind == "none"]
    return max(plain or results, key=lambda result: (result.spec.judged_by_image, named[result.setting]))


def worst_class(predictions: Predictions, level: float) -> WorstClass | None:
    """The class with the lowest accuracy, of several equal ones the one with the most images.

    Only classes with at least ``LEAST_CLASS_IMAGES`` images are ranked; None if fewer than two have so many.
    """
    right, n = class_counts(predictions)
    ranked = np.flatnonzero(n >= LEAST_CLASS_IMAGES)
    if len(ranked) < 2:
        return None
    lowest = lowest_accuracy("top1", right[ranked], n[ranked], "classes", level=level)
    worst = min(ranked.tolist(), key=lambda i: (right[i] / n[i], -n[i]))
    return WorstClass(predictions.space.names[worst], int(right[worst]), int(n[worst]), lowest.low, lowest.high)


def confusion_counts(predictions: Predictions) -> IntArray:
    """(classes, classes): images by label and prediction."""
    size, valid = len(predictions.space), predictions.valid
    pairs = predictions.labels[valid].astype(np.int64) * size + predictions.top[valid, 0]
    return np.bincount(pairs, minlength=size * size).reshape(size, size)


def confusions(predictions: Predictions, *, most: int) -> list[Confusion]:
    valid = predictions.valid
    labels, found = predictions.labels[valid], predictions.top[valid, 0]
    wrong = labels != found
    pairs = Counter(zip(labels[wrong].tolist(), found[wrong].tolist(), strict=True))
    names, of = predictions.space.names, np.bincount(labels, minlength=len(predictions.space))
    ordered = sorted(pairs.items(), key=lambda pair: (-pair[1], pair[0]))
    return [Confusion(names[a], names[b], n, int(of[a])) for (a, b), n in ordered[:most]]


def _corruptions(family: FamilyResults, level: float) -> CorruptionSummary | None:
    try:
        [(_, scores, _)] = family.scores(family.divisor(), level=level)
    except (SettingError, UnknownNameError):  # not the same severities of every corruption
        return None
    worst = sorted(((name, accuracy_of(error)) for name, error in scores.error.items()), key=lambda pair: pair[1].value)
    shape = len(scores.corruptions), len(scores.severities)
    return CorruptionSummary(family.name, accuracy_of(scores.mean_error), scores.mce, tuple(worst[:_SHOWN]), *shape)


def next_commands(
    run: StoredResults, command: Sequence[str] = (), placements: Placements | None = None, *, report: bool = True
) -> tuple[str, ...]:
    """Three commands that make sense now, with the user's own paths; ``report`` is for those who do not read one."""
    if not run.results:
        return ()
    clean, at = clean_result(run.results), ("-w", run.workspace.root)
    found = [shell_command("report", *at, "-o", "report.html")] if report else []
    # By default the last command that made the result, if its relative paths mean the same here.
    records = [one for one in run.history.makers(clean) if one.kind == "evaluate" and one.command]
    record = records[-1] if records and records[-1].folder == str(Path.cwd()) else None
    command = command or (record.command if record else ())
    if record and run.history.assumed.get(clean.spec.classifier.version):
        found += _doctor(record)
    if (
        clean.spec.judged_by_image
        and not run.workspace.read(clean, top_k=1, confidence=False, scores=False).valid.any()
    ):
        return (*found, shell_command("detect", *at, "--out", clean.setting, "--in", "SETTING"))
    if not corruption_families(run):
        source = run.workspace.source(clean.spec.dataset.name, clean.spec.dataset.fingerprint)
        suite = _CORRUPTED.get(source[0]) if source else None
        if suite and list(command[1:2]) == ["eval"]:  # an import has no model to run
            found.append(f"{shlex.join(_without_suite(command))} --suite {suite} --severity 3")
    if not clean.spec.judged_by_image:
        return (*found, shell_command("table", *at))
    placed = [one.setting for one in placements or () if one.effective is not None]
    found += [shell_command("study", "effective", *at, "--y", one, "--published") for one in placed[:1]]
    on = (*at, "-s", clean.setting)
    found += [shell_command("compare", *on)] if len(run.classifiers) > 1 else []
    found += [
        shell_command("groups", *on, "--by", "class"),
        shell_command("calibrate", *on),
        shell_command("table", *at),
    ]
    return tuple(found[:_SHOWN])


def _without_suite(command: Sequence[str]) -> list[str]:
    """Without the options that may be given only once and are added again."""
    words, kept = iter(command), list[str]()
    for word in words:
        if word in ("-s", "--suite", "--severity"):
            next(words, None)  # its value
        elif not word.startswith(("--suite=", "--severity=")):
            kept.append(word)
    return kept


def _doctor(record: RunRecord) -> list[str]:
    """The command that tests an assumed preprocessing, if the run was of one model on one dataset."""
    if record.command[1:2] != ["eval"] or len(record.models) != 1 or len(record.data) != 1:
        return []
    here, given = f"{Path.cwd()}/", record.configuration
    model, data = (place.removeprefix(here) for place in (record.models[0].source, *record.data.values()))
    words = [model, "--data", data]
    words += ["--trust"] * bool(given.get("trust"))
    words += ["--labels", given["labels"]] if isinstance(given.get("labels"), str) else []
    words += [word for stated in given.get("preprocessing") or () for word in ("--preprocess", stated)]
    return [shell_command("doctor", *words)]


def shown_score(score: Score) -> tuple[str, str]:
    """The value and the interval as text: ("71.3 %", "[66.8, 75.4]")."""
    if not score.n:
        return "no labelled images", ""
    places = 1 if score.unit == "%" else digits(score.n, score.unit)
    value = number(score.value, places, score.unit)
    return f"{value} %" if score.unit == "%" else value, interval(score.low, score.high, places, score.unit)


def _sortable(score: Score) -> float | None:
    """The value, unless there were no images to compute it from."""
    return score.value if np.isfinite(score.value) else None


def _estimated(score: Score) -> str:
    return "" if score.passes is None else f" (estimates from {count(score.passes)} forward passes)"
