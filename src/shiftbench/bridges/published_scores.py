"""The scores of a workspace as plain records, for what is published: one record per model and number."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Set
from dataclasses import dataclass

from shiftbench import Run


@dataclass(frozen=True)
class PublishedScore:
    """One number of one model, with what it rests on.

    Attributes:
        model: Name of the model; its version is in ``model_id``.
        model_id: ``name@hash``.
        name: The setting or family, and the metric: ``imagenet-c/mCE``.
        setting: Name of the setting, or of the family that it is a mean over.
        metric: Name of the metric.
        value: The value; in percent if ``is_percent``.
        low: Lower end of the interval.
        high: Upper end of the interval.
        images: Number of images.
        is_percent: Whether value and interval are in percent.
        higher_is_better: Whether a higher value is better.
        provenance: What two numbers must share to stand in one column; of a mean also the settings that it is of.
        assumed: Facts of the preprocessing that nobody stated.
        training_images: Number of images that the model was trained on, as far as that is known.
    """

    model: str
    model_id: str
    name: str
    setting: str
    metric: str
    value: float
    low: float
    high: float
    images: int
    is_percent: bool
    higher_is_better: bool
    provenance: str
    assumed: str
    training_images: int

    @property
    def text(self) -> str:
        """``71.3 % [69.0, 73.5]``."""
        digits = 1 if self.is_percent else 3
        unit = " %" if self.is_percent else ""
        return f"{self.value:.{digits}f}{unit} [{self.low:.{digits}f}, {self.high:.{digits}f}]"


def published_scores(run: Run, *, level: float = 0.95) -> list[PublishedScore]:
    """The scores of single settings, and the means over families; not those of single corruptions and severities."""
    scores = []
    rows = run.to_arrow(level=level).to_pylist()
    members: dict[tuple[str, str], set[tuple[str, float]]] = defaultdict(set)
    for row in rows:
        if row["severity"] is not None:
            members[row["model"], row["family"]].add((row["corruption"], row["severity"]))
    for row in rows:
        is_part = row["corruption"] is not None
        value = row["value"]
        if is_part or value is None or math.isnan(value):
            continue
        is_percent = row["unit"] in ("%", "fraction", "percent")
        factor = 100.0 if is_percent else 1.0
        scores.append(
            PublishedScore(
                model=row["model"],
                model_id=row["model_id"],
                name=f"{row['setting']}/{row['metric']}",
                setting=row["setting"],
                metric=row["metric"],
                value=factor * value,
                low=factor * row["low"],
                high=factor * row["high"],
                images=row["n"],
                is_percent=is_percent,
                higher_is_better=bool(row["higher_is_better"]),
                provenance="; ".join(
                    filter(None, [row["provenance"], _mean_of(members[row["model"], row["setting"]])])
                ),
                assumed=row["assumed"] or "",
                training_images=row["training_images"] or 0,
            )
        )
    return scores


def _mean_of(members: Set[tuple[str, float]]) -> str:
    """What a mean is over: ``mean over contrast, fog at 1, 3, 5``; empty for a single setting."""
    if not members:
        return ""
    by_corruption: dict[str, list[str]] = defaultdict(list)
    for corruption, severity in sorted(members):
        by_corruption[corruption].append(f"{severity:g}")
    by_severities: dict[str, list[str]] = defaultdict(list)
    for corruption, severities in by_corruption.items():
        by_severities[", ".join(severities)].append(corruption)
    return "mean over " + "; ".join(f"{', '.join(names)} at {levels}" for levels, names in by_severities.items())
