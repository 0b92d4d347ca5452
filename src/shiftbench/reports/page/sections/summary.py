"""The summary section: each model in a few numbers, worst corruptions with images, confusions, and commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from shiftbench.arrays import IntArray
from shiftbench.grouping import by_key
from shiftbench.reports.formatting import count, level_text
from shiftbench.reports.models import ASSUMED, TRAINED
from shiftbench.reports.page.payload import Estimate, score_estimate
from shiftbench.reports.page.sections import Section
from shiftbench.reports.page.sections.failures import mistake_thumbnails, most_confident
from shiftbench.reports.page.thumbnails import Album, Thumbnail
from shiftbench.reports.summary import (
    LEAST_CLASS_IMAGES,
    Confusion,
    ModelSummary,
    RunSummary,
    SummaryLine,
    confusion_counts,
    confusions,
)
from shiftbench.store.predictions import Predictions
from shiftbench.store.workspace import Result

if TYPE_CHECKING:
    from shiftbench.reports.page.report_data import ReportData

#: A confusion matrix with more classes than this has no readable cells.
_MOST_CLASSES = 50
#: Confusions that are listed.
_MOST_CONFUSIONS = 20
#: Images per corruption.
_EXAMPLES = 3
#: With more models than this only the table of numbers is shown, without images and confusions of each.
_MOST_DETAILED = 12
#: Facts that other parts of the section show: the images of the worst corruptions, and the list of confusions.
_SHOWN_ELSEWHERE = ("worst", "confusion")


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


class SummaryModel(TypedDict):
    model: str
    setting: str
    #: Which images its accuracy is about: "photos (344 images, 63b2760d); over folders (8)".
    provenance: str
    #: Facts about the preprocessing that nobody gave and no file states.
    assumed: list[str]
    facts: list[SummaryLine]
    #: What its accuracy under corruption is a mean of: "demo-c, 15 corruptions at severities 1, 3, 5".
    corrupted_over: str
    worst: list[WorstCorruption]
    #: Names of the classes, if there are few enough for a matrix.
    classes: list[str]
    #: Images by label (row) and prediction (column).
    matrix: list[list[int]]
    confusions: list[Confusion]


class Summary(TypedDict):
    models: list[SummaryModel]
    #: Signs of wrong labels or preprocessing.
    warnings: list[str]
    #: Commands to run next.
    commands: list[str]
    #: How the numbers are to be read: the level of the intervals, and which classes are ranked.
    notes: list[str]


def summary(data: ReportData) -> Summary | None:
    """None for a page without results of a workspace."""
    if data.summary is None:
        return None
    assert data.own is not None
    detailed = len(data.summary.models) <= _MOST_DETAILED
    results = by_key((result.title, result) for result in data.own.results)
    return {
        "models": [_model(data, model, results[model.model], detailed=detailed) for model in data.summary.models],
        "warnings": list(data.summary.warnings),
        "commands": list(data.next_commands),
        "notes": _notes(data, data.summary),
    }


def _notes(data: ReportData, run_summary: RunSummary) -> list[str]:
    """How the numbers of the section are to be read."""
    notes = [f"{level_text(data.level)} intervals"]
    if any(model.worst_class for model in run_summary.models):
        notes.append(
            f"worst class: of those with at least {LEAST_CLASS_IMAGES} images; in a smaller class, one image moves the "
            "accuracy by more than 10 points"
        )
    facts = [data.model_facts[model.model] for model in run_summary.models]
    if any(model_facts.assumed for model_facts in facts):
        notes.append(f"{ASSUMED} preprocessing assumed: neither given nor stated by the model (see Warnings)")
    if any(model_facts.training_images for model_facts in facts):
        notes.append(f"{TRAINED} trained on images that it was evaluated on (see Warnings)")
    return notes


def _model(data: ReportData, model: ModelSummary, results: Sequence[Result], *, detailed: bool) -> SummaryModel:
    assert data.own is not None
    entry: SummaryModel = {
        "model": data.model_name(model.model),
        "setting": data.setting_name(model.setting),
        "provenance": model.accuracy.provenance,
        "assumed": list(data.model_facts[model.model].assumed or ()),
        "facts": [fact for fact in model.facts() if fact.heading not in _SHOWN_ELSEWHERE],
        "corrupted_over": _corrupted_over(data, model),
        "worst": [],
        "classes": [],
        "matrix": [],
        "confusions": [],
    }
    if detailed:
        clean = next(result for result in results if result.setting == model.setting)
        entry["worst"] = _worst(data, model, {result.setting: result for result in results}, clean)
        if clean.spec.judged_by_image:
            predictions = data.own.workspace.read(clean, top_k=1, scores=False)
            entry["confusions"] = confusions(predictions, most=_MOST_CONFUSIONS)
            if len(predictions.space) <= _MOST_CLASSES:
                entry["classes"] = list(predictions.space.names)
                entry["matrix"] = confusion_counts(predictions).tolist()
    return entry


def _corrupted_over(data: ReportData, model: ModelSummary) -> str:
    if not model.corruptions:
        return ""
    first = model.corruptions[0]
    family = next(family for family in data.families if family.name == first.family)
    severities = ", ".join(f"{severity:g}" for severity in family.severities)
    text = f"{first.family}, {first.corruptions} corruptions at severity {severities}"
    if first.mean.passes is not None:
        text += f", estimates from {count(first.mean.passes)} forward passes"
    return text


def _worst(
    data: ReportData, model: ModelSummary, results: Mapping[str, Result], clean: Result
) -> list[WorstCorruption]:
    """The worst corruptions, with images at the severity that the page looks at closely: the middle one."""
    entries: list[WorstCorruption] = []
    for summarised in model.corruptions:
        family = next(family for family in data.families if family.name == summarised.family)
        for corruption, score in summarised.worst:
            result = results.get(family.places.get((corruption, family.middle), ""))
            entries.append(
                {
                    "family": family.name,
                    "corruption": corruption,
                    "accuracy": score_estimate(score),
                    "severity": family.middle,
                    "images": [] if result is None else _examples(data, result, clean),
                }
            )
    return entries


def _examples(data: ReportData, result: Result, clean: Result) -> list[ExampleImage]:
    """Images that the corruption made the model misclassify; if there are none, the first images."""
    assert data.own is not None
    predictions = data.own.workspace.read(result, top_k=1, scores=False)
    rows = _misled(predictions, data.own.workspace.read(clean, top_k=1, scores=False))
    if not len(rows):
        rows = np.flatnonzero(predictions.valid)
    thumbnails = mistake_thumbnails(data.finder, result, {})
    names = predictions.space.names
    examples: list[ExampleImage] = []
    for row in rows[:_EXAMPLES].tolist():
        original, shifted = thumbnails(predictions.ids[row])
        examples.append(
            {
                "id": predictions.ids[row],
                "label": names[predictions.labels[row]],
                "prediction": predictions.predicted_name(row),
                "original": _url(data.album, original),
                "shifted": _url(data.album, shifted),
            }
        )
    return examples


def _misled(predictions: Predictions, clean: Predictions) -> IntArray:
    """Images that are wrong under the corruption and right without it, the most confident mistakes first."""
    wrong = predictions.valid & (predictions.top[:, 0] != predictions.labels)
    if list(clean.ids) == list(predictions.ids):
        wrong &= clean.top[:, 0] == clean.labels
    return most_confident(predictions, np.flatnonzero(wrong))


def _url(album: Album, thumbnail: Thumbnail | None) -> str | None:
    if thumbnail is None:
        return None
    [index] = album.place([thumbnail])
    return None if index is None else album.urls[index]


SECTION = Section("summary", summary)
