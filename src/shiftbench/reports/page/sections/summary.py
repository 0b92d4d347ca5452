"""The summary section: each model in a few numbers, its worst corruptions with images, confusions, what to run next."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

import numpy as np

from shiftbench.reports.page.payload import Estimate, score_estimate
from shiftbench.reports.page.sections import Section
from shiftbench.reports.page.sections.failures import mistake_thumbnails
from shiftbench.reports.summary import (
    ModelSummary,
    clean_result,
    confusion_counts,
    confusions,
    next_commands,
    summarise,
)
from shiftbench.store.predictions import Predictions
from shiftbench.store.workspace import Result

if TYPE_CHECKING:
    from shiftbench.reports.page.report_data import ReportData

#: Classes whose confusion matrix is shown, and confusions that are listed.
_MOST_CLASSES, _MOST_CONFUSIONS = 50, 20
#: Images per corruption.
_EXAMPLES = 3
#: More models than this are compared by tables, not by summaries.
_MOST_MODELS = 12


class SummaryFact(TypedDict):
    heading: str
    value: str
    interval: str
    rest: str


class ExampleImage(TypedDict):
    """An image without and with the corruption; URLs, null if there is no such image."""

    id: str
    label: str
    prediction: str
    original: str | None
    shifted: str | None


class WorstCorruption(TypedDict):
    family: str
    corruption: str
    accuracy: Estimate | None
    #: Severity of the images.
    severity: float
    images: list[ExampleImage]


class ConfusionEntry(TypedDict):
    label: str
    prediction: str
    count: int
    of: int


class SummaryModel(TypedDict):
    model: str
    setting: str
    facts: list[SummaryFact]
    worst: list[WorstCorruption]
    #: Names of the classes, if there are few enough for a matrix.
    classes: list[str]
    #: Images by label (row) and prediction (column).
    matrix: list[list[int]]
    confusions: list[ConfusionEntry]


class Summary(TypedDict):
    models: list[SummaryModel]
    #: Signs of wrong labels or preprocessing.
    warnings: list[str]
    #: Commands to run next.
    commands: list[str]


def summary(data: ReportData) -> Summary | None:
    """None for a page without own results, or with more models than a reader looks at one by one."""
    if data.own is None or len(data.own.classifiers) > _MOST_MODELS:
        return None
    found = summarise(data.own, level=data.level, placements=data.placements)
    return {
        "models": [_model(data, one) for one in found.models],
        "warnings": list(found.warnings),
        "commands": list(next_commands(data.own, placements=data.placements, report=False)),
    }


def _model(data: ReportData, one: ModelSummary) -> SummaryModel:
    assert data.own is not None
    own = [result for result in data.own.results if result.title == one.model]
    clean = clean_result(own)
    classes, matrix, pairs = _confusions(data, clean)
    # What the images below and the list of confusions show needs no words.
    shown = [fact for fact in one.facts() if fact.heading not in ("worst", "confusion")]
    return {
        "model": data.model_name(one.model),
        "setting": data.setting_name(one.setting),
        "facts": [
            {"heading": fact.heading, "value": fact.value, "interval": fact.interval, "rest": fact.rest}
            for fact in shown
        ],
        "worst": _worst(data, one, own, clean),
        "classes": classes,
        "matrix": matrix,
        "confusions": pairs,
    }


def _confusions(data: ReportData, clean: Result) -> tuple[list[str], list[list[int]], list[ConfusionEntry]]:
    assert data.own is not None
    if not clean.spec.judged_by_image:
        return [], [], []
    predictions = data.own.workspace.read(clean, top_k=1, scores=False)
    pairs: list[ConfusionEntry] = [
        {"label": one.label, "prediction": one.prediction, "count": one.count, "of": one.of}
        for one in confusions(predictions, most=_MOST_CONFUSIONS)
    ]
    if len(predictions.space) > _MOST_CLASSES:
        return [], [], pairs
    return list(predictions.space.names), confusion_counts(predictions).tolist(), pairs


def _worst(data: ReportData, one: ModelSummary, own: list[Result], clean: Result) -> list[WorstCorruption]:
    """The worst corruptions at the severity that the page looks at closely: the middle one."""
    found: list[WorstCorruption] = []
    by_setting = {result.setting: result for result in own}
    for family in one.corruptions:
        places = next(known for known in data.families if known.prefix == family.family)
        severity = places.severities[(len(places.severities) - 1) // 2]
        for name, score in family.worst:
            setting = places.places.get((name, severity), "")
            images = _examples(data, by_setting[setting], clean) if setting in by_setting else []
            found.append(
                {
                    "family": family.family,
                    "corruption": name,
                    "accuracy": score_estimate(score),
                    "severity": severity,
                    "images": images,
                }
            )
    return found


def _examples(data: ReportData, result: Result, clean: Result) -> list[ExampleImage]:
    """Images that the corruption made the model misclassify, the most confident mistakes first; else the first ones."""
    assert data.own is not None
    read = data.own.workspace.read
    predictions, before = (read(one, top_k=1, scores=False) for one in (result, clean))
    rows = (_lost(predictions, before) or np.flatnonzero(predictions.valid).tolist())[:_EXAMPLES]
    thumbnails = mistake_thumbnails(data.finder, result, {})
    pairs = [thumbnails(predictions.ids[row]) for row in rows]
    places = iter(data.album.place([thumbnail for pair in pairs for thumbnail in pair if thumbnail is not None]))
    names = predictions.space.names
    found: list[ExampleImage] = []
    for row, pair in zip(rows, pairs, strict=True):
        at = [None if thumbnail is None else next(places) for thumbnail in pair]
        original, shifted = (None if i is None else data.album.urls[i] for i in at)
        found.append(
            {
                "id": predictions.ids[row],
                "label": names[predictions.labels[row]],
                "prediction": names[predictions.top[row, 0]],
                "original": original,
                "shifted": shifted,
            }
        )
    return found


def _lost(predictions: Predictions, before: Predictions) -> list[int]:
    """Rows that were right before and are wrong now; all wrong ones if the images differ."""
    wrong = predictions.valid & (predictions.top[:, 0] != predictions.labels)
    if list(before.ids) == list(predictions.ids):
        wrong &= before.top[:, 0] == before.labels
    rows = np.flatnonzero(wrong)
    order = np.argsort(-np.nan_to_num(predictions.confidence[rows], nan=-1.0), kind="stable")
    found: list[int] = rows[order].tolist()
    return found


SECTION = Section("summary", summary)
