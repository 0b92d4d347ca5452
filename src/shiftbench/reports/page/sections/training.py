"""The training section: every logged number of training runs over their steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from shiftbench.reports.page.sections import Section

if TYPE_CHECKING:
    from shiftbench.reports.page.report_data import ReportData


class TrainingCurve(TypedDict):
    """The log of one training run."""

    name: str
    steps: list[float]
    series: dict[str, list[float | None]]


def training_curves(data: ReportData) -> list[TrainingCurve]:
    return [curve for curve in data.options.training if curve["steps"]]


SECTION = Section("training", training_curves)
