"""What a set of results says in a few lines: accuracy, the worst corruptions and classes, confusions, calibration,
the place among published models, warnings, and what to run next.

``eval`` ends with it, the HTML report opens with it, and a notebook shows it.
"""

from __future__ import annotations

import shlex
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from shiftbench.arrays import IntArray
from shiftbench.errors import SettingError, UnknownNameError, shell_command
from shiftbench.grouping import by_key
from shiftbench.labels.space import NO_ANSWER
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

#: At most this many corruptions, confusions and commands are shown.
_MAX_ITEMS = 3
#: Models that get lines of their own; of more, the tables say enough.
_MAX_MODELS = 4
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
    remark: str = ""
    #: The value that tables sort by; None where it has none.
    number: float | None = None

    @property
    def text(self) -> str:
        return " ".join(part for part in (self.value, self.interval, self.remark) if part)


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
    """One model under a family of corruptions."""

    family: str
    #: Mean accuracy over its corruptions and severities.
    mean: Score
    #: Mean corruption error, where AlexNet's published errors divide.
    mce: Score | None
    #: The three corruptions with the lowest accuracy, each a mean over severities.
    worst: tuple[tuple[str, Score], ...]
    #: How many there are.
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
        published = {
            "placed": [placement.as_dict() for placement in self.placements],
            "unplaced": [unplaced.as_dict() for unplaced in self.unplaced],
            "level": level,
        }
        return {**fields, "published": published}

    def facts(self) -> list[SummaryLine]:
        """Everything that is known, for people."""
        facts = [self._accuracy_fact()]
        for family in self.corruptions:
            facts += _corruption_facts(family)
        facts += self._shifted_facts()
        facts += self._published_facts()
        if self.worst_class is not None:
            facts.append(_class_fact(self.worst_class))
        for confusion in self.confusions[:1]:
            value = f"{confusion.label} as {confusion.prediction}"
            facts.append(SummaryLine("confusion", value, "", f"({confusion.count} of {confusion.of})"))
        if self.calibration is not None:
            facts.append(_calibration_fact(self.calibration))
        return facts

    def _accuracy_fact(self) -> SummaryLine:
        name = "accuracy" if self.accuracy.metric == "top1" else self.accuracy.metric.replace("_", " ")
        images = f"on {self.setting} (n = {count(self.accuracy.n)})"
        return SummaryLine(name, *shown_score(self.accuracy), images, _sortable(self.accuracy))

    def _shifted_facts(self) -> list[SummaryLine]:
        """The settings with the lowest accuracy; those with published models are among the published facts."""
        placed = {placement.setting for placement in self.placements}
        unpublished = [(setting, score) for setting, score in self.shifted if setting not in placed]
        lines = []
        for setting, score in unpublished[:_MAX_ITEMS]:
            lines.append(SummaryLine("shifted", *shown_score(score), setting, _sortable(score)))
        return lines

    def _published_facts(self) -> list[SummaryLine]:
        facts = []
        for placement in self.placements[:_MAX_ITEMS]:
            score = f"({shown_score(placement.score)[0]} {placement.setting}, {placement.rank})"
            rho = None if placement.effective is None else placement.effective.rho
            facts.append(SummaryLine("published", placement.distance, placement.comparison, score, rho))
        for unplaced in self.unplaced[:1]:
            facts.append(SummaryLine("published", "not comparable:", unplaced.why, f"({unplaced.setting})"))
        return facts

    @property
    def brief(self) -> str:
        """All in one line, beside other models."""
        parts = [f"{' '.join(shown_score(self.accuracy))} on {self.setting}"]
        for family in self.corruptions:
            worst = f"worst {family.worst[0][0]}{_estimated(family.mean)}"
            parts.append(f"{shown_score(family.mean)[0]} {family.family}, {worst}")
        return "; ".join([*parts, *(placement.sentence for placement in self.placements[:1])])


@dataclass(frozen=True)
class RunSummary:
    models: tuple[ModelSummary, ...]
    #: Signs of wrong labels or preprocessing.
    warnings: tuple[str, ...]
    #: Three commands that make sense now, with the user's own paths.
    next_commands: tuple[str, ...]
    level: float

    def as_dict(self) -> dict[str, object]:
        models = [model.as_dict(self.level) for model in self.models]
        return {"models": models, "next_commands": list(self.next_commands), "level": self.level}

    def lines(self) -> list[tuple[str, str]]:
        """(heading, text): all of one model, or one line each of several."""
        if len(self.models) != 1:
            return [(model.model, model.brief) for model in self.models[:_MAX_MODELS]]
        facts = self.models[0].facts()
        lines = [(fact.heading, fact.text) for fact in facts if fact.heading != "shifted"]
        # All shifted settings share one line below the accuracy, with which the facts begin.
        shifted = "; ".join(fact.text for fact in facts if fact.heading == "shifted")
        if shifted:
            lines.insert(1, ("shifted", shifted))
        return lines

    def to_text(self, width: int = 80) -> str:
        """For a terminal: the lines, and the commands to run next."""
        if not self.models:
            return ""
        title = self.models[0].model if len(self.models) == 1 else f"{len(self.models)} models"
        facts = self.lines()
        indent = 2 + max(len(heading) for heading, _ in facts) + 2
        lines = [f"summary: {title}"]
        wrapper = textwrap.TextWrapper(max(width, indent + 20), subsequent_indent=" " * indent)
        for heading, text in facts:
            wrapper.initial_indent = f"  {heading}".ljust(indent)
            wrapped = wrapper.wrap(text.replace(" %", "\N{NO-BREAK SPACE}%"))
            lines += [line.replace("\N{NO-BREAK SPACE}", " ") for line in wrapped]
        lines.append("next:")
        lines += [f"  {command}" for command in self.next_commands]
        return "\n".join(lines)


def _corruption_facts(family: CorruptionSummary) -> list[SummaryLine]:
    extent = f"{family.family}, {family.corruptions} corruption"
    if family.corruptions != 1:
        extent += "s"
    if family.mce is not None:
        extent += f", {family.mce.metric}: {number(family.mce.value, 1)}"
    extent += _estimated(family.mean)
    worst = ", ".join(f"{name} {shown_score(score)[0]}" for name, score in family.worst)
    return [
        SummaryLine("corrupted", *shown_score(family.mean), extent, _sortable(family.mean)),
        SummaryLine("worst", worst),
    ]


def _class_fact(worst: WorstClass) -> SummaryLine:
    return SummaryLine(
        "worst class",
        f"{worst.name} {number(worst.value, 1)} %",
        interval(worst.low, worst.high, 1),
        f"(n = {count(worst.n)})",
        worst.value,
    )


def _calibration_fact(calibration: CalibrationSummary) -> SummaryLine:
    value, ece_interval = shown_score(calibration.ece)
    if ece_interval:
        ece_interval += ","
    direction = "overconfident" if calibration.excess >= 0 else "underconfident"
    gap = f"{number(abs(calibration.excess), 1)} points {direction}"
    return SummaryLine("calibration", f"ECE {value}", ece_interval, gap, _sortable(calibration.ece))


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
    models = []
    clean_of = clean_results(run)
    for title, model_run in run.by_model().items():
        models.append(_model(title, model_run, clean_of[title], placements, level))
    all_warnings = [*run.trained_on(), *run.warnings()]
    warnings = tuple(str(warning) for warning in all_warnings if not warning.is_note)
    return RunSummary(tuple(models), warnings, next_commands(run, command, placements), level)


def _model(
    title: str, model_run: StoredResults, clean: Result, placements: Placements | None, level: float
) -> ModelSummary:
    """The summary of one model, whose results alone are in ``model_run``."""
    metric = metrics.get(clean.spec.metric)
    predictions = model_run.workspace.read(clean, top_k=max(1, metric.needs.top_k), scores=metric.needs.scores)
    families = list(corruption_families(model_run).values())
    corruption_summaries = [_corruptions(family, level) for family in families]
    by_image = clean.spec.judged_by_image
    placed: tuple[Placement, ...] = ()
    unplaced: tuple[Unplaced, ...] = ()
    if placements is not None:
        placed = tuple(placements.placed_by_model.get(title, ()))
        unplaced = tuple(placements.unplaced_by_model.get(title, ()))
    return ModelSummary(
        model=title,
        setting=clean.setting,
        accuracy=metric(predictions, level=level),
        worst_class=worst_class(predictions, level) if by_image else None,
        confusions=tuple(confusions(predictions, most=_MAX_ITEMS)) if by_image else (),
        calibration=_calibration(predictions, level) if by_image else None,
        corruptions=tuple(summary for summary in corruption_summaries if summary is not None),
        shifted=_shifted_scores(model_run, families, level),
        placements=placed,
        unplaced=unplaced,
    )


def _calibration(predictions: Predictions, level: float) -> CalibrationSummary | None:
    """None where no confidences are known."""
    confidence = predictions.confidence[predictions.valid]
    if not len(confidence) or np.isnan(confidence).any():
        return None
    excess = float(confidence.mean(dtype=np.float64) - predictions.correct.mean())
    return CalibrationSummary(metrics.get("ece")(predictions, level=level), excess)


def _shifted_scores(
    model_run: StoredResults, families: Sequence[FamilyResults], level: float
) -> tuple[tuple[str, Score], ...]:
    """(setting, score) of the settings with a shift that belong to no family, lowest first."""
    corrupted: set[str] = set()
    for family in families:
        corrupted.update(family.places.values())
    results = []
    for result in model_run.results:
        shifted = result.spec.reference is not None
        if shifted and result.setting not in corrupted and result.spec.judged_by_image:
            results.append(result)
    scores = sorted(model_run.part(results).scores(level=level), key=lambda entry: entry.score.value)
    return tuple((entry.setting, entry.score) for entry in scores)


def clean_results(run: StoredResults) -> dict[str, Result]:
    """By model: the result whose accuracy is shown, in the same setting for all models if they have one in common.

    Numbers side by side are read as a comparison. Where no setting without shift is common to all models, each has its
    own, and what shows them has to name the settings.
    """
    results_of = by_key((result.title, result) for result in run.results)
    clean_of = {title: clean_result(results) for title, results in results_of.items()}
    if len({clean.setting for clean in clean_of.values()}) == 1:
        return clean_of
    in_common = set(run.settings)
    for results in results_of.values():
        in_common &= {result.setting for result in _unshifted(results)}
    if not in_common:
        return clean_of
    candidates = [result for result in run.results if result.setting in in_common or result.spec.reference is not None]
    setting = clean_result(candidates).setting
    in_setting: dict[str, Result] = {}
    for title, results in results_of.items():
        in_setting[title] = next(result for result in results if result.setting == setting)
    return in_setting


def clean_result(results: Sequence[Result]) -> Result:
    """The result without shift that most of the others refer to; the first one if none is without."""
    references = Counter(result.spec.reference for result in results)

    def rank(result: Result) -> tuple[bool, int]:
        return result.spec.judged_by_image, references[result.setting]

    return max(_unshifted(results) or results, key=rank)


def _unshifted(results: Iterable[Result]) -> list[Result]:
    return [result for result in results if result.spec.reference is None and result.spec.shift.kind == "none"]


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
    """(classes, classes): images by label and prediction; images without an answer are left out."""
    n_classes = len(predictions.space)
    valid = predictions.valid & (predictions.top[:, 0] != NO_ANSWER)
    pairs = predictions.labels[valid].astype(np.int64) * n_classes + predictions.top[valid, 0]
    return np.bincount(pairs, minlength=n_classes * n_classes).reshape(n_classes, n_classes)


def confusions(predictions: Predictions, *, most: int) -> list[Confusion]:
    """The most frequent mistakes, at most ``most``."""
    valid = predictions.valid
    labels = predictions.labels[valid]
    predicted = predictions.top[valid, 0]
    wrong = labels != predicted
    pairs = Counter(zip(labels[wrong].tolist(), predicted[wrong].tolist(), strict=True))
    names = predictions.space.names
    predicted_names = {**dict(enumerate(names)), NO_ANSWER: "no answer"}
    class_sizes = np.bincount(labels, minlength=len(predictions.space))
    # Equally frequent mistakes come in the order of the classes.
    ordered = sorted(pairs.items(), key=lambda pair: (-pair[1], pair[0]))
    frequent = []
    for (label, prediction), n in ordered[:most]:
        frequent.append(Confusion(names[label], predicted_names[prediction], n, int(class_sizes[label])))
    return frequent


def _corruptions(family: FamilyResults, level: float) -> CorruptionSummary | None:
    """None if the model was not evaluated at the same severities of every corruption."""
    try:
        [model] = family.scores(family.divisor(), level=level)
    except (SettingError, UnknownNameError):
        return None
    scores = model.scores
    accuracies = [(name, accuracy_of(error)) for name, error in scores.error.items()]
    accuracies.sort(key=lambda pair: pair[1].value)
    return CorruptionSummary(
        family=family.name,
        mean=accuracy_of(scores.mean_error),
        mce=scores.mce,
        worst=tuple(accuracies[:_MAX_ITEMS]),
        corruptions=len(scores.corruptions),
        severities=len(scores.severities),
    )


def next_commands(
    run: StoredResults, command: Sequence[str] = (), placements: Placements | None = None, *, report: bool = True
) -> tuple[str, ...]:
    """The next few commands that make sense now, with the user's own paths.

    Args:
        run: The results that there are.
        command: The ``eval`` command that made them; by default, as it is recorded.
        placements: Where the models stand among published ones, where that is known.
        report: Whether to suggest a report; a report itself does not.
    """
    if not run.results:
        return ()
    clean = next(iter(clean_results(run).values()))
    workspace = ("-w", run.workspace.root)
    setting = (*workspace, "-s", clean.setting)
    commands = []
    if report:
        commands.append(shell_command("report", *workspace, "-o", "report.html"))
    record = _repeatable_record(run, clean)
    if record and run.assumed_facts().get(clean.spec.classifier.version):
        commands += _doctor(record)
    if clean.spec.judged_by_image and not _has_labels(run, clean):
        commands.append(shell_command("detect", *workspace, "--out", clean.setting, "--in", "SETTING"))
        return tuple(commands)
    if not corruption_families(run):
        eval_command = command or (record.command if record else ())
        commands += _corrupted_eval(run, clean, eval_command)
    if not clean.spec.judged_by_image:
        commands.append(shell_command("table", *workspace))
        return tuple(commands)
    placed = [placement.setting for placement in placements or () if placement.effective is not None]
    if placed:
        commands.append(shell_command("study", "effective", *workspace, "--y", placed[0], "--published"))
    if len(run.classifiers) > 1:
        commands.append(shell_command("compare", *setting))
    commands += [
        shell_command("groups", *setting, "--by", "class"),
        shell_command("calibrate", *setting),
        shell_command("table", *workspace),
    ]
    return tuple(commands[:_MAX_ITEMS])


def _repeatable_record(run: StoredResults, result: Result) -> RunRecord | None:
    """The last command that made the result, if its relative paths mean the same here."""
    evaluations = [record for record in run.history.makers(result) if record.kind == "evaluate"]
    # Runs that were started from Python have no command.
    typed = [record for record in evaluations if record.command]
    if typed and typed[-1].folder == str(Path.cwd()):
        return typed[-1]
    return None


def _has_labels(run: StoredResults, result: Result) -> bool:
    return bool(run.workspace.read(result, top_k=1, confidence=False, scores=False).valid.any())


def _corrupted_eval(run: StoredResults, clean: Result, command: Sequence[str]) -> list[str]:
    """The ``eval`` command again, under corruptions, if there is a suite of them for its data."""
    if list(command[1:2]) != ["eval"]:  # An import has no model to run.
        return []
    source = run.workspace.source(clean.spec.dataset.name, clean.spec.dataset.fingerprint)
    if source is None or source[0] not in _CORRUPTED:
        return []
    return [f"{shlex.join(_without_suite(command))} --suite {_CORRUPTED[source[0]]} --severity 3"]


def _without_suite(command: Sequence[str]) -> list[str]:
    """Without the options that may be given only once and are added again."""
    words = iter(command)
    kept = []
    for word in words:
        if word in ("-s", "--suite", "--severity"):
            next(words, None)  # The value of the option is dropped with it.
        elif not word.startswith(("--suite=", "--severity=")):
            kept.append(word)
    return kept


def _doctor(record: RunRecord) -> list[str]:
    """The command that tests an assumed preprocessing, if the run was of one model on one dataset."""
    if record.command[1:2] != ["eval"] or len(record.models) != 1 or len(record.data) != 1:
        return []
    folder = f"{Path.cwd()}/"
    [data] = record.data.values()
    words = [record.models[0].source.removeprefix(folder), "--data", data.removeprefix(folder)]
    options = record.configuration
    if options.get("trust"):
        words.append("--trust")
    if isinstance(options.get("labels"), str):
        words += ["--labels", options["labels"]]
    for step in options.get("preprocessing") or ():
        words += ["--preprocess", step]
    return [shell_command("doctor", *words)]


def shown_score(score: Score) -> tuple[str, str]:
    """The value and the interval as text: ("71.3 %", "[66.8, 75.4]")."""
    if not score.n:
        return "no labelled images", ""
    if score.unit == "%":
        return f"{number(score.value, 1, '%')} %", interval(score.low, score.high, 1, "%")
    places = digits(score.n, score.unit)
    return number(score.value, places, score.unit), interval(score.low, score.high, places, score.unit)


def _sortable(score: Score) -> float | None:
    """The value, unless there were no images to compute it from."""
    return score.value if np.isfinite(score.value) else None


def _estimated(score: Score) -> str:
    return "" if score.passes is None else f" (estimates from {count(score.passes)} forward passes)"
