"""The sentence that a page opens with: is it robustness or just accuracy, what is worst, and what to do next."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from shiftbench.errors import listed
from shiftbench.metrics.base import Score
from shiftbench.reports.corruption import accuracy_of
from shiftbench.reports.formatting import count, interval, number
from shiftbench.reports.page.payload import Answer, Estimate, ResultGrid, ShiftEntry
from shiftbench.reports.placement import distance_from
from shiftbench.reports.summary import ModelSummary, shown_score
from shiftbench.studies.base import FRACTION, StudyError
from shiftbench.studies.fits import FEW_MODELS, Fit, Line, fit, fit_piecewise
from shiftbench.studies.robustness import Effective, beside_ordinary_models

if TYPE_CHECKING:
    from shiftbench.reports.page.report_data import ReportData


@dataclass(frozen=True)
class Distance:
    """How far an own model is from a line of other models."""

    setting: str
    effective: Effective
    #: "the line of 67 published models".
    line: str

    @property
    def words(self) -> str:
        """
        >>> row = Effective("mine", 0.7, 0.6, 0.58, 0.02, 0.01, 0.03, baseline=False, extrapolated=False)
        >>> Distance("v2", row, "the line of 67 published models").words
        '2.0 points above the line of 67 published models [1.0, 3.0]'
        """
        effective = self.effective
        text = f"{number(effective.rho, 1)} points above {self.line} {interval(effective.low, effective.high, 1)}"
        if effective.rho < 0:
            below = interval(-effective.high, -effective.low, 1)
            text = f"{number(-effective.rho, 1)} points below {self.line} {below}"
        if effective.extrapolated:
            text += ", extrapolated"
        return text + beside_ordinary_models(effective, 100)


def page_answer(data: ReportData) -> Answer | None:
    """None for a page without numbers."""
    if data.summary is not None:
        return _own_answer(data, data.summary.models)
    if data.run is None and data.grid is not None:
        return _published_answer(data.grid)
    return None


def _own_answer(data: ReportData, models: Sequence[ModelSummary]) -> Answer:
    distances = _distances(data)
    if distances:
        verdict, evidence = _verdict_by_line(distances)
    else:
        verdict, evidence = _verdict_by_scores(models)
    titles = [model.model for model in models]
    assumed = [title for title in titles if data.model_facts[title].assumed]
    step, command = _next(models, assumed, data.next_commands, placed=bool(distances))
    if data.summary is not None and data.summary.warnings:
        warnings = "the warning" if len(data.summary.warnings) == 1 else "the warnings"
        step = f"resolve {warnings} before trusting any number"
        command = ""
    return {"verdict": verdict, "evidence": evidence, "worst": _worst(data, models), "next": step, "command": command}


def _published_answer(grid: ResultGrid) -> Answer:
    """The answer for a table of published models without a model of the reader's own."""
    models = f"{count(len(grid['models']))} published models"
    shift = grid["shifts"][0] if grid["shifts"] else None
    line = None if shift is None else line_of(grid, shift)
    if shift is None or line is None:
        verdict = f"{models}, without a line to compare them with"
        evidence = f"a line needs {grid['least_line_models']} models in a setting and in its reference"
    else:
        verdict = f"among {models}, accuracy on {shift['x']} predicts accuracy on {shift['y']}"
        evidence = f"the line goes through {line.n} models"
        if isinstance(line, Fit):
            evidence += f", r² {line.r2:.3f}"
        highest = _highest_above(grid, shift, line)
        if highest is not None:
            evidence += f"; farthest above it is {highest.model}, by {number(highest.rho, 1)} points"
    step = "place your own model among them (report -w WORKSPACE --data TABLE)"
    return {"verdict": verdict, "evidence": evidence, "worst": "", "next": step, "command": ""}


# The line


def _distances(data: ReportData) -> list[Distance]:
    """The distances of own models from a line in one setting; empty if there is no line."""
    distances = []
    for placement in data.placements or ():
        if placement.effective is not None:
            line = f"the line of {placement.line_models} published models"
            distances.append(Distance(placement.setting, placement.effective, line))
    if not distances:
        return _grid_distances(data.grid)
    return [distance for distance in distances if distance.setting == distances[0].setting]


def _grid_distances(grid: ResultGrid | None) -> list[Distance]:
    """The distances of own models from the line that the page draws first."""
    if grid is None or not grid["shifts"]:
        return []
    shift = grid["shifts"][0]
    line = line_of(grid, shift)
    if line is None:
        return []
    own_models = {model["name"] for model in grid["models"] if model["own"]}
    through_own = own_models.issuperset(line.models)
    distances = []
    for name, (x, y) in _points(grid, shift).items():
        if name not in own_models or not _has_interval(x) or not _has_interval(y):
            continue
        compared: Line | None = line
        models = f"{line.n} models" if through_own else f"{line.n} published models"
        if name in line.models:
            # A line is drawn towards a model that it goes through, and the model's own distance would widen the
            # scatter that it is compared with.
            compared = line_of(grid, shift, without=name, level=_simultaneous(grid["level"], line.n))
            models = f"the other {line.n - 1} models"
        if compared is not None:
            effective = distance_from(compared, name, _score(x, grid["level"]), _score(y, grid["level"]))
            distances.append(Distance(shift["y"], effective, f"the line of {models}"))
    return distances


def _simultaneous(level: float, n: int) -> float:
    """The level at which each of n models is looked at, so that all of them together keep the level (Bonferroni)."""
    return 1 - (1 - level) / n


def line_of(
    grid: ResultGrid, shift: ShiftEntry, *, without: str | None = None, level: float | None = None
) -> Line | None:
    """The line that the page draws for a shift; None if it draws none.

    It goes through published models where both axes have them, otherwise through own ones.

    Args:
        grid: The results of the page.
        shift: The axes.
        without: A model that the line leaves out, because it is compared with the others.
        level: Level of the line's intervals, if not that of the page.
    """
    points = _points(grid, shift)
    candidates = [model for model in grid["models"] if model["fitted"] and model["name"] in points]
    published = [model for model in candidates if not model["own"]]
    names = [model["name"] for model in published or candidates]
    if len({(points[name][0][0], points[name][1][0]) for name in names}) < grid["least_line_models"]:
        return None
    level = level or grid["level"]
    x = {name: points[name][0][0] for name in names if name != without}
    y = {name: points[name][1][0] for name in names if name != without}
    scale = shift["scale"] or "logit"
    try:
        if shift["pivot"] is not None:
            return fit_piecewise(x, y, pivot=shift["pivot"], unit=FRACTION, level=level, scale=scale)
        return fit(x, y, unit=FRACTION, level=level, scale=scale)
    except StudyError:  # all models have the same x
        return None


def _points(grid: ResultGrid, shift: ShiftEntry) -> dict[str, tuple[Estimate, Estimate]]:
    """By model: the estimates on both axes, of models above the least x of the shift."""
    names = [setting["name"] for setting in grid["settings"]]
    x_column = names.index(shift["x"])
    y_column = names.index(shift["y"])
    if not grid["settings"][x_column]["unit"] == grid["settings"][y_column]["unit"] == "%":
        return {}
    points = {}
    for model, row in zip(grid["models"], grid["estimates"], strict=True):
        x = row[x_column]
        y = row[y_column]
        if x is not None and y is not None and x[0] >= (shift["min_x"] or 0.0):
            points[model["name"]] = (x, y)
    return points


def _has_interval(value: Estimate) -> bool:
    return None not in value and 0 < value[0] < 1


def _score(value: Estimate, level: float) -> Score:
    middle, low, high, n = value
    assert low is not None and high is not None and n is not None
    return Score("accuracy", middle, low, high, int(n), level)


def _highest_above(grid: ResultGrid, shift: ShiftEntry, line: Line) -> Effective | None:
    distances = []
    for name, (x, y) in _points(grid, shift).items():
        if _has_interval(x) and _has_interval(y):
            distances.append(distance_from(line, name, _score(x, grid["level"]), _score(y, grid["level"])))
    return max(distances, key=lambda row: row.rho, default=None)


def _is_above(effective: Effective) -> bool:
    """Whether a model is shown to be above the line, and farther than ordinary models scatter about it."""
    return effective.low > 0 and not effective.is_ordinary


def _verdict_by_line(distances: Sequence[Distance]) -> tuple[str, str]:
    """The verdict and its evidence, from the distances of own models in one setting."""
    setting = distances[0].setting
    highest = max(distances, key=lambda distance: distance.effective.rho)
    evidence = f"{highest.effective.model} is {highest.words}"
    if len(distances) == 1:
        if _is_above(highest.effective):
            return f"more robust on {setting} than accuracy explains", evidence
        if highest.effective.high < 0 and not highest.effective.is_ordinary:
            return f"less robust on {setting} than accuracy predicts", evidence
        return f"just accuracy: no robustness on {setting} beyond what it predicts", evidence
    robust = sum(_is_above(distance.effective) for distance in distances)
    if robust:
        verb = "is" if robust == 1 else "are"
        verdict = f"{robust} of {len(distances)} models {verb} more robust on {setting} than accuracy explains"
    else:
        verdict = f"just accuracy: none of {len(distances)} models is clearly more robust on {setting} than it predicts"
    return verdict, f"the highest, {evidence}"


# Without a line


def _verdict_by_scores(models: Sequence[ModelSummary]) -> tuple[str, str]:
    """The verdict and its evidence, from accuracies with and without shift."""
    shifts = [_shifted_scores(model) for model in models]
    if not any(shifts):
        return "nothing is known about robustness yet", "only the accuracy without shift was measured"
    # The first of the shifts that most models were evaluated under.
    [(name, evaluated_models)] = Counter(name for scores in shifts for name in scores).most_common(1)
    if evaluated_models == 1 and sum(map(bool, shifts)) > 1:
        return "the robustness of these models cannot be compared", "they have no shift in common"
    compared = [model for model, scores in zip(models, shifts, strict=True) if name in scores]
    shifted = [scores[name] for scores in shifts if name in scores]
    if evaluated_models > 1:
        verdict, evidence = _verdict_by_lead(compared, shifted, name)
    else:
        accuracy = shown_score(compared[0].accuracy)[0]
        score = " ".join(shown_score(shifted[0]))
        verdict = "robustness or just accuracy: one model alone cannot show it"
        evidence = f"{compared[0].model} falls from {accuracy} to {score} on {name} (a line needs {FEW_MODELS} models)"
    if evaluated_models < len(models):
        evidence += f"; {len(models) - evaluated_models} of {len(models)} models were not evaluated on it"
    return verdict, evidence


def _shifted_scores(model: ModelSummary) -> dict[str, Score]:
    """Accuracies under shift: the means over corruptions, then other settings."""
    means = {family.family: family.mean for family in model.corruptions}
    shifted = {name: score for name, score in model.shifted if score.unit == "%" and score.n}
    return {**means, **shifted}


def _verdict_by_lead(models: Sequence[ModelSummary], shifted: Sequence[Score], name: str) -> tuple[str, str]:
    """Whether the best model under shift leads a model of similar accuracy.

    Its rival is the model of the most similar accuracy without shift. If the rival is clearly less accurate, the lead
    may be just accuracy, and only a line through more models can tell.
    """
    leader = max(range(len(models)), key=lambda i: shifted[i].value)
    rivals = [i for i in range(len(models)) if i != leader]
    rival = min(rivals, key=lambda i: abs(models[i].accuracy.value - models[leader].accuracy.value))
    clean_lead = _lead(models[leader].accuracy, models[rival].accuracy)
    shifted_lead = _lead(shifted[leader], shifted[rival])
    evidence = (
        f"{models[leader].model} is {_points_ahead(shifted_lead)} {models[rival].model} on {name} and "
        f"{_points_ahead(clean_lead)} it without shift"
    )
    if len(models) < FEW_MODELS:
        evidence += f" (a line needs {FEW_MODELS} models)"
    if clean_lead.low > 0:
        return f"robustness or just accuracy: {len(models)} models cannot show it", evidence
    if shifted_lead.low > 0:
        return f"more robust on {name} than a model of similar accuracy", evidence
    return "no robustness beyond accuracy is shown", evidence


def _lead(first: Score, second: Score) -> Score:
    """The difference of two accuracies.

    Its interval treats them as independent; it is too wide rather than too narrow for models that share their images.
    """
    difference = first.value - second.value
    down = math.hypot(first.value - first.low, second.high - second.value)
    up = math.hypot(first.high - first.value, second.value - second.low)
    return Score("difference", difference, difference - down, difference + up, min(first.n, second.n), first.level)


def _points_ahead(lead: Score) -> str:
    """
    >>> _points_ahead(Score("difference", 0.021, -0.01, 0.05, n=100))
    '2.1 points [-1.0, 5.0] ahead of'
    >>> _points_ahead(Score("difference", -0.004, -0.01, 0.05, n=100))
    '0.4 points [-5.0, 1.0] behind'
    """
    if lead.value >= 0:
        return f"{number(lead.value, 1)} points {interval(lead.low, lead.high, 1)} ahead of"
    return f"{number(-lead.value, 1)} points {interval(-lead.high, -lead.low, 1)} behind"


# The worst, and what to do


def _worst(data: ReportData, models: Sequence[ModelSummary]) -> str:
    """The corruption with the lowest accuracy, otherwise the shifted setting with the lowest accuracy."""
    family = next((family for family in data.families if family.means), None)
    if family is not None:
        accuracies: dict[str, list[Score]] = {}
        for scores in family.means.values():
            for corruption, score in scores.error.items():
                accuracies.setdefault(corruption, []).append(accuracy_of(score))

        def mean_accuracy(corruption: str) -> float:
            return fmean(score.value for score in accuracies[corruption])

        worst = min(accuracies, key=mean_accuracy)
        text = f"worst corruption: {worst.replace('_', ' ')}"
        if len(family.means) == 1:
            return f"{text}, {' '.join(shown_score(accuracies[worst][0]))}"
        return f"{text}, {number(mean_accuracy(worst), 1)} % on average"
    lowest = []
    for model in models:
        # A single shifted setting is not the worst of several.
        if len(model.shifted) > 1:
            # The shifted settings of a model are sorted, the lowest accuracy first.
            name, score = model.shifted[0]
            if score.unit == "%":
                lowest.append((name, score))
    if not lowest:
        return ""
    name, score = min(lowest, key=lambda entry: entry[1].value)
    return f"lowest accuracy under shift: {name}, {' '.join(shown_score(score))}"


def _next(
    models: Sequence[ModelSummary], assumed: Sequence[str], commands: Sequence[str], *, placed: bool
) -> tuple[str, str]:
    """What to do next, in words, and the command; "" if there is none."""

    def command_of(name: str) -> str:
        return next((command for command in commands if command.startswith(f"shiftbench {name}")), "")

    if assumed:
        return f"confirm the preprocessing of {listed(assumed, 2)}, which was assumed", command_of("doctor")
    if not any(map(_shifted_scores, models)):
        return "evaluate it under corruption", command_of("eval")
    if len(models) == 1 and not placed:
        return "evaluate a second model on the same images", ""
    if len(models) > 1 and command_of("compare"):
        return "test the difference on the same images", command_of("compare")
    first = commands[0] if commands else ""
    return ("look closer" if first else ""), first
