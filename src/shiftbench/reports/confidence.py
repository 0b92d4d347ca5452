"""What confidences are worth, as tables: calibration, temperature scaling, detection of unknown images."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import NamedTuple

from shiftbench.errors import ShiftbenchError, UnknownNameError, argument, check_names
from shiftbench.metrics.arrays import gives_probabilities
from shiftbench.metrics.base import SettingScore, metrics
from shiftbench.metrics.calibration import ReliabilityBin, reliability_diagram
from shiftbench.metrics.detection import ANOMALY_SCORES, AnomalyScore, Detection, detect
from shiftbench.metrics.temperature import BOUNDS, Calibrated, calibrate
from shiftbench.reports import formatting
from shiftbench.reports.scores import in_one_column, score_table
from shiftbench.reports.table import Diagram, Number, Table, interval_chart
from shiftbench.reports.writers import plain
from shiftbench.runs.results import StoredResults
from shiftbench.store.predictions import Predictions
from shiftbench.store.workspace import Result, Workspace

_FROM_CONFIDENCE = ("rms_calibration_error", "rms_calibration_error_published", "mad_calibration_error", "ece")
_FROM_SCORES = ("classwise_ece", "brier", "nll")
_PUBLISHED = "rms_calibration_error_published"
#: The published error leaves out one of its bins of 100 images, so it needs two.
_LEAST_PUBLISHED_IMAGES = 200
_DIAGRAM_BINS = 10
_LEGEND = "interval: share that is right; ◇: mean confidence. A mark to the right of its interval is overconfident."
_WITHOUT_SCORES = "no temperature, classwise_ece, brier or nll, because not all scores were kept (eval --keep-scores)"
_BINS_NOTE = (
    "rms and mad: adaptive bins of 100 images; _published leaves out the most confident bin, as the papers' code does; "
    "ece: 15 equal bins. Every binned error is raised by noise: compare at the same number of images"
)
#: The out-set that is meant where none is named.
IMAGENET_O = "imagenet-o"


def calibration_table(
    workspace: Workspace,
    results: Sequence[Result],
    setting: str,
    *,
    fit: str | None = None,
    split: float | None = None,
    seed: int = 0,
    diagrams: bool = False,
    level: float = 0.95,
) -> Table:
    """Each model in ``setting`` as it is and at the temperature that held-out images give it.

    The temperature is fitted in the setting ``fit``, or on a share ``split`` of the images, which is then not scored;
    see ``metrics.temperature.calibrate``. Where all scores were not kept there is no temperature: then what the
    confidences alone show is reported, over all images.
    """
    entries: list[SettingScore] = []
    models_without_scores: list[str] = []
    bins_of: dict[str, Sequence[ReliabilityBin]] = {}
    remarks: list[str] = []
    for result in results:
        if result.setting != setting:
            continue
        title = result.title
        scored = workspace.read(result)
        if scored.scores is None and fit is None and split is None:
            models_without_scores.append(title)
            rows = {title: scored}
        else:
            held_out = None if fit is None else workspace.read(_only_result(results, title, fit))
            calibrated = calibrate(scored, held_out, split=split, seed=seed)
            rows = _before_and_after(title, calibrated)
            remarks.append(f"{title}: {_fitted(calibrated)}")
        for name, predictions in rows.items():
            for metric in _calibration_metrics(predictions):
                entries.append(SettingScore(name, setting, metrics.get(metric)(predictions, level=level)))
            if diagrams:
                confidence = predictions.confidence[predictions.valid]
                bins_of[name] = reliability_diagram(confidence, predictions.correct, _DIAGRAM_BINS, level=level)
    if models_without_scores:
        remarks.append(f"{formatting.named(models_without_scores)}: {_WITHOUT_SCORES}")
    if any(entry.score.n < _LEAST_PUBLISHED_IMAGES for entry in entries):
        remarks.append(f"{_PUBLISHED} needs at least {_LEAST_PUBLISHED_IMAGES} images")
    remarks.append(_BINS_NOTE)
    drawings = _diagrams(bins_of)
    table = score_table(in_one_column(entries), title="calibration", remarks=remarks, diagrams=drawings)
    if bins_of:
        diagram_data = {}
        for name, bins in bins_of.items():
            diagram_data[name] = [plain(asdict(each)) for each in bins]
        table.data = {**(table.data or {}), "diagrams": diagram_data}
    return table


def _only_result(results: Sequence[Result], title: str, fit: str) -> Result:
    """The result of a model in the setting that its temperature is fitted in; raises if there is none, or several."""
    candidates = [result for result in results if result.setting == fit and result.title == title]
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        hint = "keep one dataset per workspace"
    else:
        hint = f"evaluate it there with {argument('keep_scores', True)}"
    raise ShiftbenchError(
        f"which predictions of {title!r} should its temperature be fitted on?",
        found=f"{len(candidates)} in the setting {fit!r}",
        expected="one",
        hint=hint,
    )


def _before_and_after(title: str, calibrated: Calibrated) -> dict[str, Predictions]:
    """The predictions as they are and at the temperature, by the name of their row."""
    # The row's name gives the temperature; its provenance must be that of the row above to share its columns.
    spec = replace(calibrated.after.spec, provenance=calibrated.before.provenance)
    return {
        title: calibrated.before,
        f"{title} at T = {calibrated.temperature:.3g}": replace(calibrated.after, spec=spec),
    }


def _calibration_metrics(predictions: Predictions) -> list[str]:
    """The metrics that these predictions have enough images and scores for."""
    enough_images = int(predictions.valid.sum()) >= _LEAST_PUBLISHED_IMAGES
    names = [name for name in _FROM_CONFIDENCE if name != _PUBLISHED or enough_images]
    if predictions.scores is not None:
        names += _FROM_SCORES
    return names


def _diagrams(bins_of: Mapping[str, Sequence[ReliabilityBin]]) -> list[Diagram]:
    diagrams = [Diagram(name, partial(_diagram, bins)) for name, bins in bins_of.items()]
    if diagrams:
        # The last diagram explains them all.
        diagrams[-1] = replace(diagrams[-1], legend=_LEGEND)
    return diagrams


def _fitted(calibrated: Calibrated) -> str:
    held_out = calibrated.held_out
    before = calibrated.before
    where = "the setting, which are not scored" if held_out.setting == before.setting else held_out.setting
    images = formatting.count(int(held_out.valid.sum()))
    text = f"temperature {calibrated.temperature:.4g}, fitted on {images} images of {where}"
    if held_out.space.keys != before.space.keys:
        text += f" over {held_out.space.name} ({len(held_out.space)})"
    if calibrated.temperature in BOUNDS:
        text += ", the end of the search: these images do not determine it"
    return text


def _diagram(bins: Sequence[ReliabilityBin], width: int, ascii_only: bool) -> list[str]:
    """A reliability diagram in characters: one line per bin, the most confident last."""
    accuracies: list[tuple[str, Number | None]] = []
    confidences: list[float | None] = []
    for each in bins:
        name = f"{100 * each.start:.3g}–{100 * each.stop:.3g} %, n = {formatting.count(each.n)}"
        if each.n:
            accuracies.append((name, Number(each.accuracy, each.low, each.high)))
            confidences.append(each.confidence)
        else:
            accuracies.append((name, None))
            confidences.append(None)
    return interval_chart(accuracies, width, ascii_only, confidences)


class _ModelDetection(NamedTuple):
    """How well a model tells the images of the out-set by an anomaly score."""

    title: str
    anomaly_score: AnomalyScore
    detection: Detection


@dataclass(frozen=True)
class _Detections:
    in_set: str
    out_set: str
    models: list[_ModelDetection]
    #: Models for which some anomaly scores are missing, by the reason.
    incomplete: dict[str, list[str]]


def detection_entries(
    run: StoredResults, inside: str | None = None, outside: str | None = None, *, level: float = 0.95
) -> list[SettingScore]:
    """Every model's score on the out-set: AUPR, AUROC and FPR95 by the largest softmax probability."""
    detections = _detections(run.workspace, run.results, inside, outside, ("max_softmax",), False, level)
    entries: list[SettingScore] = []
    for model in detections.models:
        for score in model.detection.scores():
            entries.append(SettingScore(model.title, detections.out_set, score))
    return in_one_column(entries)


def chance_of_detection(
    run: StoredResults, inside: str | None = None, outside: str | None = None, *, level: float = 0.95
) -> list[float]:
    """The AUPR of uninformative scores on the out-set, once for each pair of sizes that models were evaluated on."""
    detections = _detections(run.workspace, run.results, inside, outside, ("max_softmax",), False, level)
    return sorted({model.detection.chance_aupr for model in detections.models})


def detection_table(
    workspace: Workspace,
    results: Sequence[Result],
    inside: str | None = None,
    outside: str | None = None,
    scores: Sequence[AnomalyScore] | None = ("max_softmax",),
    *,
    published: bool = False,
    level: float = 0.95,
) -> Table:
    """AUPR, AUROC and FPR95 of every model that has seen both sets.

    Without names the out-set is ImageNet-O, and the in-set what the out-set's setting names as its reference.
    ``scores=None`` takes every anomaly score that the stored predictions can give, and notes those that are missing.
    """
    detections = _detections(workspace, results, inside, outside, scores, published, level)
    entries: list[SettingScore] = []
    # The keys of a dictionary keep their order and drop the sizes that several models share.
    chances: dict[str, None] = {}
    for title, name, detection in detections.models:
        for score in detection.scores():
            # The column names the anomaly score, so the provenance need not.
            provenance = score.provenance.removeprefix(f"{name}; ")
            entries.append(SettingScore(title, name, replace(score, provenance=provenance)))
        chances[_chance_note(detection)] = None
    remarks = [
        *chances,
        "out-images are the positives; aupr and auroc: higher is better, fpr95: lower",
        *(f"{formatting.named(titles)}: {reason}" for reason, titles in detections.incomplete.items()),
    ]
    title = f"{detections.out_set} (out) against {detections.in_set} (in)"
    return score_table(in_one_column(entries), title=title, remarks=remarks)


def _chance_note(detection: Detection) -> str:
    return (
        f"{formatting.count(detection.out_images)} out-images against {formatting.count(detection.in_images)} "
        f"in-images: chance is {formatting.number(detection.chance_aupr, 1)} for aupr, 50 for auroc, 95 for fpr95"
    )


def _detections(
    workspace: Workspace,
    results: Sequence[Result],
    inside: str | None,
    outside: str | None,
    scores: Sequence[AnomalyScore] | None,
    published: bool,
    level: float,
) -> _Detections:
    """The anomaly scores of each model that has seen both sets, and the models that lack some, by reason."""
    in_set, out_set = _pair(results, inside, outside)
    detections: list[_ModelDetection] = []
    incomplete: dict[str, list[str]] = {}
    for in_result, out_result in _result_pairs(results, in_set, out_set):
        title = in_result.title
        known = workspace.read(in_result, top_k=1)  # predictions on images of known classes
        unknown = workspace.read(out_result, top_k=1)
        if scores is None:
            names, reason = _possible_scores(known, unknown)
            if reason:
                incomplete.setdefault(reason, []).append(title)
        else:
            names = scores
        for name in names:
            detection = detect(known, unknown, name, published=published, level=level)
            detections.append(_ModelDetection(title, name, detection))
    return _Detections(in_set, out_set, detections, incomplete)


def _result_pairs(results: Sequence[Result], in_set: str, out_set: str) -> list[tuple[Result, Result]]:
    """The results of every model on both sets; raises if no model has seen both."""
    by_title: dict[str, dict[str, list[Result]]] = {in_set: {}, out_set: {}}
    for result in results:
        if result.setting in by_title:
            by_title[result.setting].setdefault(result.title, []).append(result)
    pairs: list[tuple[Result, Result]] = []
    for title, in_results in by_title[in_set].items():
        pairs += itertools.product(in_results, by_title[out_set].get(title, ()))
    if not pairs:
        models_of_sets = [f"{name}: {', '.join(sorted(titles))}" for name, titles in by_title.items()]
        raise ShiftbenchError(
            "no model has seen both sets",
            found="; ".join(models_of_sets),
            hint="evaluate the same model on both",
        )
    return pairs


def _possible_scores(known: Predictions, unknown: Predictions) -> tuple[Sequence[AnomalyScore], str]:
    """The anomaly scores that stored predictions can give, and why others are missing; "" if none is."""
    if known.scores is None or unknown.scores is None:
        reason = "no max_logit, energy or entropy, because not all scores were kept (eval --keep-scores)"
        return ("max_softmax",), reason
    if gives_probabilities(known):
        return ("max_softmax", "entropy"), "no max_logit or energy, for it gives probabilities"
    return ANOMALY_SCORES, ""


def _pair(results: Sequence[Result], inside: str | None, outside: str | None) -> tuple[str, str]:
    """The settings of known and of unknown images: as they are named, else ImageNet-O and its reference.

    Raises ShiftbenchError if that leaves one of them open, or if one was not evaluated.
    """
    settings = list(dict.fromkeys(result.setting for result in results))
    name_known = argument("inside", "SETTING", flag="--in")
    if outside is None and IMAGENET_O not in settings:
        raise ShiftbenchError(
            "which images are the unknown ones?",
            found=f"settings {', '.join(settings[:8]) or 'none'}",
            hint=f"name them: {argument('outside', 'SETTING', flag='--out')}, and the known ones: {name_known}",
        )
    unknown = outside or IMAGENET_O
    check_names("setting", [unknown], settings)
    reference = next(result.spec.reference for result in results if result.setting == unknown)
    known = inside or reference
    if known is None:
        raise ShiftbenchError(f"which images are known? {unknown!r} names no reference setting", hint=name_known)
    if known not in settings:
        if inside is not None:
            raise UnknownNameError("setting", known, settings)
        raise ShiftbenchError(
            f"{unknown!r} is held against {known!r}, which was not evaluated",
            found=f"settings {', '.join(settings[:8])}",
            hint=f"evaluate it too ({argument('data', {'imagenet-val': 'FOLDER'})}), or name another: {name_known}",
        )
    if known == unknown:
        raise ShiftbenchError("the in-set and the out-set are the same", found=known, expected="two settings")
    return known, unknown
