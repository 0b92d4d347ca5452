"""The methods section: how the results were computed, from the records of the predictions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

from shiftbench._version import __version__
from shiftbench.classifiers.description import fact_text
from shiftbench.errors import listed
from shiftbench.published.baselines import PROVENANCE
from shiftbench.reports.formatting import count, level_text, named
from shiftbench.reports.models import design_notes, mark_notes, software_notes
from shiftbench.reports.page.payload import ResultGrid
from shiftbench.reports.page.published import Published
from shiftbench.reports.page.sections import Section
from shiftbench.reports.page.sections.corruptions import FamilyScores
from shiftbench.runs.results import StoredResults
from shiftbench.store.run_records import Software
from shiftbench.store.spec import ClassifierRecord
from shiftbench.store.workspace import Result
from shiftbench.studies.base import count_of
from shiftbench.studies.models import LOW_ACCURACY
from shiftbench.studies.testbed import SHIFTS

if TYPE_CHECKING:
    from shiftbench.reports.page.report_data import ReportData

_RESIZED = {
    "short": "short side to {} pixels",
    "exact": "both sides to {} pixels",
    "fit": "fitted into {} pixels",
    "cover": "covering {} pixels",
}
_COLOURS = {"rgb": "pixels", "bgr": "pixels in the order BGR,", "grey": "grey pixels"}
#: What determines the shifted pixels besides kind and severity, and how a reader calls it.
_SHIFT_FACTS = {
    "generator": "generator version",
    "version": "version",
    "seed": "seed",
    "rule": "parameters:",
    "options": "options",
    "then": "then",
    "norm": "norm",
    "eps": "radius",
    "steps": "steps",
}


class MethodsEntry(TypedDict):
    heading: str
    paragraphs: list[str]
    items: NotRequired[list[str]]


def methods(data: ReportData) -> list[MethodsEntry]:
    """One entry per topic that the page shows."""
    entries: list[MethodsEntry] = []
    if data.run is not None and data.run.results:
        entries += _run_methods(data, data.run)
    if data.others is not None:
        entries.append(_published(data.others))
    if data.grid is not None and len(data.grid["models"]) > 1:
        entries.append(_line(data.grid, data.level))
    return [*entries, _software(data.run)]


def _run_methods(data: ReportData, run: StoredResults) -> list[MethodsEntry]:
    confidence = _section(
        "Confidence and mistakes",
        "The confidence is the softmax probability of the best class. Reliability diagrams have 15 bins of "
        "equal width with Clopper-Pearson intervals; the RMS calibration error has bins of 100 images; "
        "calibration errors and the area under the response-rate accuracy curve have intervals from resampling "
        "the images.",
        "Mistakes are sorted by confidence, highest first. Shifted images were recomputed with the seed, id, "
        "resize and crop of the run.",
    )
    return [
        _datasets(run),
        _classifiers(run),
        _settings(run),
        *_shifts(run.results),
        _scores(data),
        *_corruption_errors(data.families),
        confidence,
    ]


def _section(heading: str, *paragraphs: str, items: Iterable[str] = ()) -> MethodsEntry:
    section: MethodsEntry = {"heading": heading, "paragraphs": list(paragraphs)}
    listed_items = list(items)
    if listed_items:
        section["items"] = listed_items
    return section


def _datasets(run: StoredResults) -> MethodsEntry:
    datasets = {(result.spec.dataset.name, result.spec.dataset.fingerprint) for result in run.results}
    items = []
    for name, fingerprint in sorted(datasets):
        record = run.workspace.dataset(name, fingerprint)
        images = "1 image" if len(record.ids) == 1 else f"{count(len(record.ids))} images"
        text = f"{name}: {images}, labelled in {record.space.name} ({count(len(record.space))} classes)"
        unlabelled = int((record.labels < 0).sum())
        if unlabelled:
            text += f", {count(unlabelled)} without a label"
        items.append(f"{text}; fingerprint {fingerprint}")
    explanation = "A fingerprint is a hash of ids, labels, classes and image bytes."
    designs = [f"{note[0].upper()}{note[1:]}." for note in design_notes(run.results)]
    return _section("Datasets", explanation, *designs, items=items)


def _classifiers(run: StoredResults) -> MethodsEntry:
    first_results: dict[str, Result] = {}
    for result in run.results:
        first_results.setdefault(result.title, result)
    items = []
    for title, result in sorted(first_results.items()):
        identity = title if title == result.model_id else f"{title} ({result.model_id})"
        items.append(f"{identity}: {_classifier(result.spec.classifier)}")
    return _section(
        "Models",
        "Images are resized and cropped to 8-bit pixels, then shifted, then normalised by the model.",
        "An id (name@hash) stands for one version of a model: the hash is of everything that decides its scores, the "
        "preprocessing included. The fingerprint is a hash of weights or code, outputs and normalisation.",
        *mark_notes(run, run.results),
        items=items,
    )


def _classifier(model: ClassifierRecord) -> str:
    if model.recorded:
        return f"recorded predictions, over {model.labels}, content {model.fingerprint}"
    facts = [
        f"{model.engine}, {model.outputs} over {model.labels}, fingerprint {model.fingerprint}",
        _geometry(model.geometry.values),
        _normalisation(model.normalisation),
    ]
    if model.defences:
        facts.append(f"input defences: {', '.join(model.defences)}")
    return "; ".join(facts)


def _geometry(geometry: Mapping[str, Any]) -> str:
    steps = []
    if geometry["resize"] is not None:
        size = _RESIZED[geometry["resize_rule"]].format(_sides(geometry["resize"]))
        steps.append(f"{size} ({geometry['interpolation']})")
    if geometry["crop"] is not None:
        steps.append(f"centre crop of {_sides(geometry['crop'])} pixels")
    if geometry.get("exif") == "apply":
        steps.insert(0, "turned as EXIF data say")
    if "alpha" in geometry:
        steps.insert(0, f"transparent images on {geometry['alpha']}")
    return ", ".join(steps) or "size unchanged"


def _sides(size: object) -> str:
    if isinstance(size, list | tuple):
        return " x ".join(map(str, size))
    return str(size)


def _normalisation(values: Mapping[str, Any]) -> str:
    mean = ", ".join(f"{value:g}" for value in values["mean"])
    std = ", ".join(f"{value:g}" for value in values["std"])
    colours = _COLOURS[values["colour_order"]]
    return f"{colours} times {fact_text(values['scale'])}, minus ({mean}), divided by ({std})"


def _settings(run: StoredResults) -> MethodsEntry:
    settings_by_space: dict[str, dict[str, None]] = {}
    for result in run.results:
        settings_by_space.setdefault(result.spec.space, {})[result.setting] = None
    items = []
    for key, settings in settings_by_space.items():
        space = run.workspace.space(key)
        items.append(f"over {space.name} (content {space.fingerprint}): {listed(settings, 6)}")
    explanation = "Scores are restricted to the classes of a setting before the best class and its softmax are taken."
    return _section("Settings and label spaces", explanation, items=items)


def _shifts(results: Sequence[Result]) -> list[MethodsEntry]:
    """Shifts that differ only in kind and strength share one item."""
    severities: dict[str, dict[str, set[float]]] = {}
    for result in results:
        shift = result.spec.shift
        if shift.kind != "none":
            names = severities.setdefault(_shift_facts(result), {})
            strengths = names.setdefault(shift.name, set())
            if shift.severity is not None:
                strengths.add(shift.severity)
    if not severities:
        return []
    items = []
    for facts, names in severities.items():
        all_strengths = sorted(set().union(*names.values()))
        kinds = ", ".join(names)
        if all_strengths:
            kinds += f" at severity {', '.join(f'{severity:g}' for severity in all_strengths)}"
        items.append(f"{kinds}: {facts}")
    texts = ["The shifted pixels depend only on the seed, the image's id and the shift."]
    if any(result.spec.shift.kind == "attack" for result in results):
        texts.append("An attack also depends on the model, and its images are not rounded to 8 bits.")
    return [_section("Shifts", *texts, items=items)]


def _shift_facts(result: Result) -> str:
    """Everything but the kind and the severity that determines the shifted pixels."""
    values = result.spec.shift.values
    facts = [result.spec.source] if result.spec.source else []
    for key, word in _SHIFT_FACTS.items():
        if key in values:
            value = values[key]
            facts.append(f"{word} {value:.4g}" if isinstance(value, float) else f"{word} {value}")
    frost = values.get("frost")
    if isinstance(frost, Mapping):
        facts.append(f"frost images: {' '.join(map(str, frost.values()))}")
    return ", ".join(facts)


def _scores(data: ReportData) -> MethodsEntry:
    methods_used = dict.fromkeys((score.metric, score.method, score.level) for _, _, score in data.scores)
    return _section(
        "Scores and intervals",
        "Every number is computed from the stored predictions. Images that could not be read, or have no label among "
        "the setting's classes, are not counted; n is the number of images counted.",
        items=[f"{metric}: {level_text(level)} intervals, {method}" for metric, method, level in methods_used],
    )


def _corruption_errors(families: Sequence[FamilyScores]) -> list[MethodsEntry]:
    items = []
    for family in families:
        if family.by_model:
            mean = next(iter(family.by_model.values())).mean_error
            divided = f"divided by the errors of {family.baseline.source}" if family.baseline else "not divided"
            severities = ", ".join(f"{severity:g}" for severity in family.severities)
            items.append(
                f"{family.name}: {count_of(len(family.corruptions), 'corruption')} at severity {severities}, "
                f"{divided}; {level_text(mean.level)} intervals, {mean.method}"
            )
    if not items:
        return []
    text = "A corruption error is the mean top-1 error over the severities, divided by the baseline's over the same."
    return [_section("Corruption errors", text, items=items)]


def _published(published: Published) -> MethodsEntry:
    results = published.study.results
    if published.baselines:
        sources = [f"{setting}: {line.source}, {line.scale} scale" for setting, line in published.baselines.items()]
        return _section("Published results", PROVENANCE[0].upper() + PROVENANCE[1:] + ".", items=sources)
    models = count_of(len(results.models), "model")
    settings = count_of(len(results.settings), "setting")
    items = [f"{published.name}: {models}, {settings}, read in {results.unit}"]
    if results.sizes:
        sized = len(results.sizes)
        items.append(f"the number of images is known for {sized} of them, whose intervals are Clopper-Pearson")
    else:
        items.append("the numbers of images are unknown, so there are no intervals")
    if published.is_testbed:
        least = ", ".join(f"{name} {shift.min_x:g} %" for name, shift in SHIFTS.items())
        items.append(f"named shifts show and fit only models with at least this x: {least}")
    return _section("Published results", items=items)


def _line(results: ResultGrid, level: float) -> MethodsEntry:
    return _section(
        "The line",
        f"Least squares of y on x over the models {_fitted_models(results)}, both on the chosen scale (logit, probit "
        "or linear). Models without a result on one axis, or with an accuracy of exactly 0 or 1 on the logit and "
        "probit scales, are not fitted.",
        f"Its band and the intervals of slope and intercept are Student's, {level_text(level)}. No line is drawn "
        f"through fewer than {results['least_line_models']} models. Effective robustness is y minus the line; its "
        "interval joins those of x, y and the band by Zou and Donner's rule.",
    )


def _fitted_models(results: ResultGrid) -> str:
    """Which models the line goes through, and which published ones it leaves out."""
    baseline = results["baseline"]
    published = [model for model in results["models"] if not model["own"]]
    text = f"of the category {baseline!r}" if baseline else "shown"
    of_category = [model for model in published if model["category"] == baseline]
    left_out = [model["name"] for model in of_category if not model["fitted"]]
    if baseline and left_out:
        text += f", except {named(left_out)}"
    controls = sum(model["category"] == LOW_ACCURACY for model in published)
    if controls:
        text += f" (correlations of robustness do not count the {controls} controls of low accuracy)"
    return text


def _software(run: StoredResults | None) -> MethodsEntry:
    items = []
    if run is not None and run.results:
        items += _run_software(run)
    return _section("Software", items=[*items, f"this page by shiftbench {__version__}"])


def _run_software(run: StoredResults) -> list[str]:
    """The versions behind the results, from the prediction files and the records of the runs."""
    items = []
    complete = [result for result in run.results if run.workspace.predictions_path(result).is_file()]
    makers = {run.workspace.made_by(result) for result in complete}
    if makers:
        items.append(f"predictions by {', '.join(sorted(makers))}")
    libraries: dict[str, None] = {}
    unrecorded = 0
    for result in run.results:
        records = run.history.makers(result)
        if not records:
            unrecorded += 1
        for record in records:
            libraries[_libraries(record.software)] = None
    items += [f"libraries: {text}" for text in libraries]
    if unrecorded:
        items.append(f"library versions of {count(unrecorded)} results are not recorded")
    return [*items, *software_notes(run, run.results)]


def _libraries(software: Software) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in software.versions.items())
    return f"{versions}; Python {software.python}; {software.platform}; {software.cpu}"


SECTION = Section("methods", methods)
