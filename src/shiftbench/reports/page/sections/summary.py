"""The summary section: each model in a few numbers, its worst corruptions with images, confusions, what to run next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from shiftbench.reports import summary as summaries
from shiftbench.reports.page.payload import Estimate, score_estimate
from shiftbench.reports.page.sections import Section
from shiftbench.reports.page.sections.failures import mistake_thumbnails, most_confident
from shiftbench.reports.summary import ModelSummary, clean_result, confusion_counts, confusions
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
    found = summaries.summarise(data.own, level=data.level, placements=data.placements)
    return {
        "models": [_model(data, one) for one in found.models],
        "warnings": list(found.warnings),
        "commands": list(summaries.next_commands(data.own, placements=data.placements, report=False)),
    }


def _model(data: ReportData, one: ModelSummary) -> SummaryModel:
    assert data.own is not None
    own = [result for result in data.own.results if result.title == one.model]
    clean = clean_result(own)
    classes, matrix, pairs = list[str](), list[list[int]](), list[ConfusionEntry]()
    if clean.spec.judged_by_image:
        predictions = data.own.workspace.read(clean, top_k=1, scores=False)
        pairs = [
            {"label": pair.label, "prediction": pair.prediction, "count": pair.count, "of": pair.of}
            for pair in confusions(predictions, most=_MOST_CONFUSIONS)
        ]
        if len(predictions.space) <= _MOST_CLASSES:
            classes, matrix = list(predictions.space.names), confusion_counts(predictions).tolist()
    return {
        "model": data.model_name(one.model),
        "setting": data.setting_name(one.setting),
        "facts": [
            {"heading": fact.heading, "value": fact.value, "interval": fact.interval, "rest": fact.rest}
            for fact in one.facts()
            # What the images below and the list of confusions show needs no words.
            if fact.heading not in ("worst", "confusion")
        ],
        "worst": _worst(data, one, {result.setting: result for result in own}, clean),
        "classes": classes,
        "matrix": matrix,
        "confusions": pairs,
    }


def _worst(data: ReportData, one: ModelSummary, own: Mapping[str, Result], clean: Result) -> list[WorstCorruption]:
    """The worst corruptions at the severity that the page looks at closely: the middle one."""
    found: list[WorstCorruption] = []
    for family in one.corruptions:
        places = next(known for known in data.families if known.name == family.family)
        for name, score in family.worst:
            result = own.get(places.places.get((name, places.middle), ""))
            images = [] if result is None else _examples(data, result, clean)
            found.append({"family": family.family, "corruption": name, "accuracy": score_estimate(score),
                          "severity": places.middle, "images": images})  # fmt: skip
    return found


def _examples(data: ReportData, result: Result, clean: Result) -> list[ExampleImage]:
    """Images that the corruption made the model misclassify, the most confident mistakes first; else the first ones."""
    assert data.own is not None
    read = data.own.workspace.read
    predictions, before = (read(one, top_k=1, scores=False) for one in (result, clean))
    wrong = predictions.valid & (predictions.top[:, 0] != predictions.labels)
    if list(before.ids) == list(predictions.ids):
        wrong &= before.top[:, 0] == before.labels
    lost = most_confident(predictions, np.flatnonzero(wrong))
    rows = (lost if len(lost) else np.flatnonzero(predictions.valid))[:_EXAMPLES].tolist()
    thumbnails = mistake_thumbnails(data.finder, result, {})
    pairs = [thumbnails(predictions.ids[row]) for row in rows]
    places = iter(data.album.place([thumbnail for pair in pairs for thumbnail in pair if thumbnail is not None]))
    names = predictions.space.names
    found: list[ExampleImage] = []
    for row, pair in zip(rows, pairs, strict=True):
        at = [None if thumbnail is None else next(places) for thumbnail in pair]
        original, shifted = (None if i is None else data.album.urls[i] for i in at)
        label, prediction = names[predictions.labels[row]], names[predictions.top[row, 0]]
        found.append({"id": predictions.ids[row], "label": label, "prediction": prediction, "original": original,
                      "shifted": shifted})  # fmt: skip
    return found


SECTION = Section("summary", summary)
