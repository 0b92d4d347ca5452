"""Scores, and metrics as registered functions from predictions to a score."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from shiftbench.io import html
from shiftbench.registry import Registry
from shiftbench.store.predictions import Predictions


@dataclass(frozen=True)
class Score:
    """A value with its interval, its n and where it comes from.

    Attributes:
        metric: Name of the metric.
        value: The number; a fraction where ``unit`` is ``%``.
        low: Lower end of the interval.
        high: Upper end of the interval.
        n: Number of images.
        level: Confidence level of the interval.
        method: How the interval was computed.
        provenance: Dataset, shift, label space and versions; scores that agree in it may share a column.
        unit: "%" values are fractions that tables show times 100.
        higher_is_better: Whether a larger value is better.
        passes: Of an estimate by a design (docs/designs.md): the forward passes behind it; None for a number over all
            images.

    Example:
        >>> score = Score("top1", 0.75, 0.5, 0.9, n=20)
        >>> score
        Score(top1 75 % [50, 90], n=20)
        >>> score.as_dict()["value"]
        0.75
    """

    metric: str
    value: float
    low: float
    high: float
    n: int
    level: float = 0.95
    method: str = "clopper-pearson"
    provenance: str = ""
    unit: str = "%"
    higher_is_better: bool = True
    passes: int | None = None

    def __repr__(self) -> str:
        suffix = "" if self.passes is None else ", estimate"
        return f"Score({self.metric} {self.text}, n={self.n}{suffix})"

    @property
    def text(self) -> str:
        """The value and its interval, with the unit: ``94.5 % [91.23, 96.79]``."""
        factor = 100 if self.unit == "%" else 1
        text = f"{factor * self.value:.4g} {self.unit}".rstrip()
        if not math.isnan(self.low):
            text += f" [{factor * self.low:.4g}, {factor * self.high:.4g}]"
        return text

    def _repr_html_(self) -> str:
        details = f"n = {self.n:,}; {100 * self.level:g} % interval: {self.method}"
        return html.block(html.title(f"{self.metric} {self.text}", details), html.notes([self.provenance]))

    def as_dict(self) -> dict[str, object]:
        """All fields as data for JSON; ``passes`` is there for estimates only."""
        # Copying the values is enough, since none of them is a container.
        fields = dict(vars(self))
        if self.passes is None:
            del fields["passes"]
        if self.unit == "%":
            fields["unit"] = "fraction"
        return fields


class SettingScore(NamedTuple):
    """The score of a model in a setting.

    Attributes:
        model: Name of the model.
        setting: The setting, or the family or mean over settings that the score summarises.
        score: The score.

    Example:
        >>> entry = SettingScore("resnet50", "imagenet-a", Score("top1", 0.75, 0.5, 0.9, n=20))
        >>> model, setting, score = entry
        >>> entry.score.value
        0.75
    """

    model: str
    setting: str
    score: Score


@dataclass(frozen=True)
class Needs:
    """What a metric needs from a run; the runner stores the union over all metrics.

    Attributes:
        top_k: Predicted classes per image.
        confidence: False for metrics of classes only: reading a workspace is then twice as fast.
        scores: Whether the scores of all classes are needed.
    """

    top_k: int = 1
    confidence: bool = True
    scores: bool = False

    def __or__(self, other: Needs) -> Needs:
        """The union: what serves both.

        >>> Needs(top_k=5) | Needs(scores=True)
        Needs(top_k=5, confidence=True, scores=True)
        """
        return Needs(max(self.top_k, other.top_k), self.confidence or other.confidence, self.scores or other.scores)


class MetricFunction(Protocol):
    def __call__(self, predictions: Predictions, *, level: float = 0.95) -> Score: ...


@dataclass(frozen=True)
class Metric:
    """A registered metric: its function and what it needs.

    Attributes:
        name: The name that tables and provenance show.
        function: From predictions to a score.
        needs: What it needs from a run.
        unit: "%" metrics are shown times 100.
        higher_is_better: Whether a larger value is better.
        beside: Metrics that tables show beside this one, where it is a setting's own.
    """

    name: str
    function: MetricFunction
    needs: Needs
    unit: str = "%"
    higher_is_better: bool = True
    beside: tuple[str, ...] = ()

    def __call__(self, predictions: Predictions, *, level: float = 0.95) -> Score:
        score = self.function(predictions, level=level)
        # The registration is the single truth on name, unit and direction; tables read them off the score.
        passes = None
        if predictions.spec.shift.designed:
            passes = len(predictions)
        return replace(score, metric=self.name, unit=self.unit, higher_is_better=self.higher_is_better, passes=passes)


#: Other libraries' names of these metrics, in lower case.
_ALIASES = {
    "accuracy": "top1",
    "acc": "top1",
    "acc1": "top1",
    "acc@1": "top1",
    "top-1": "top1",
    "top_1": "top1",
    "top1_accuracy": "top1",
    "acc5": "top5",
    "acc@5": "top5",
    "top-5": "top5",
    "top_5": "top5",
    "top5_accuracy": "top5",
    "err": "error",
    "error_rate": "error",
    "top1_error": "error",
    "worst-class": "worst_class",
    "ece": "ece",
    "calibration_error": "ece",
    "expected_calibration_error": "ece",
    "brier_score": "brier",
    "log_loss": "nll",
    "cross_entropy": "nll",
    "map": "mean_average_precision",
}
_DETECTION = "`shiftbench detect` has it; in Python, run.detection()"
_CORRUPTION = "`shiftbench table --mce` has it; in Python, run.corruption_table()"
#: Names that are no metric of one setting, in lower case.
_ELSEWHERE = {
    "auroc": _DETECTION,
    "aupr": _DETECTION,
    "fpr95": _DETECTION,
    "mce": _CORRUPTION,
    "ce": _CORRUPTION,
}
metrics: Registry[Metric] = Registry(
    "metric",
    builtin=(
        "shiftbench.metrics.accuracy",
        "shiftbench.metrics.calibration",
        "shiftbench.metrics.video",
        "shiftbench.metrics.multilabel",
    ),
    aliases=_ALIASES,
    elsewhere=_ELSEWHERE,
)


def metric(
    name: str,
    *,
    needs: Needs | None = None,
    unit: str = "%",
    higher_is_better: bool = True,
    beside: tuple[str, ...] = (),
) -> Callable[[MetricFunction], MetricFunction]:
    """Register a metric under the name that tables and ``--metric`` show.

    The decorated function stays what it is; look the metric up with ``metrics.get(name)``.

    Args:
        name: The name that tables and provenance show.
        needs: What it needs from a run; default: the first class and its confidence.
        unit: ``"%"`` for fractions that tables show times 100, else the unit of the values.
        higher_is_better: Whether a larger value is better.
        beside: Metrics that tables show beside this one, where it is a setting's own.
    """

    def add(function: MetricFunction) -> MetricFunction:
        metrics.add(name, Metric(name, function, needs or Needs(), unit, higher_is_better, beside))
        return function

    return add
