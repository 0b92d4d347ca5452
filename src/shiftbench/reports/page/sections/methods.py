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
from shiftbench.store.prediction_files import read_made_by
from shiftbench.store.workspace import Result
from shiftbench.studies.base import count_of
from shiftbench.studies.fits import RESAMPLES, TESTBED_SEED
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
#: What determines the pixels besides kind and severity.
_MADE = {
    "generator": "generator version", "version": "version", "seed": "seed", "rule": "parameters:", "options": "options",
    "then": "then", "norm": "norm", "eps": "radius", "steps": "steps",
}  # fmt: skip


class MethodsEntry(TypedDict):
    heading: str
    paragraphs: list[str]
    items: NotRequired[list[str]]


def methods(data: ReportData) -> list[MethodsEntry]:
    """One entry per topic that the page shows."""
    run, published, results = data.run, data.others, data.grid
    entries: list[MethodsEntry] = []
    if run is not None and run.results:
        entries += [
            _datasets(run),
            _classifiers(run),
            _settings(run),
            *_shifts(run.results),
            _scores(data),
            *_corruption_errors(data.families),
            _section(
                "Confidence and mistakes",
                "The confidence is the softmax probability of the best class. Reliability diagrams have 15 bins of "
                "equal width with Clopper-Pearson intervals; the RMS calibration error has bins of 100 images; "
                "calibration errors and the area under the response-rate accuracy curve have intervals from resampling "
                "the images.",
                "Mistakes are sorted by confidence, highest first. Shifted images were recomputed with the seed, id, "
                "resize and crop of the run.",
            ),
        ]
    if published is not None:
        entries.append(_published(published))
    if results is not None and len(results["models"]) > 1:
        entries.append(_line(results, data.level))
    return [*entries, _software(run)]


def _section(heading: str, *paragraphs: str, items: Iterable[str] = ()) -> MethodsEntry:
    section: MethodsEntry = {"heading": heading, "paragraphs": list(paragraphs)}
    shown = list(items)
    return {**section, "items": shown} if shown else section


def _datasets(run: StoredResults) -> MethodsEntry:
    found = {(result.spec.dataset.name, result.spec.dataset.fingerprint) for result in run.results}
    items = []
    for name, fingerprint in sorted(found):
        record = run.workspace.dataset(name, fingerprint)
        unlabelled = int((record.labels < 0).sum())
        images = "1 image" if len(record.ids) == 1 else f"{count(len(record.ids))} images"
        without = f", {count(unlabelled)} without a label" if unlabelled else ""
        space = f"{record.space.name} ({count(len(record.space))} classes)"
        items.append(f"{name}: {images}, labelled in {space}{without}; fingerprint {fingerprint}")
    about = "A fingerprint is a hash of ids, labels, classes and image bytes."
    designs = [f"{note[0].upper()}{note[1:]}." for note in design_notes(run.results)]
    return _section("Datasets", about, *designs, items=items)


def _classifiers(run: StoredResults) -> MethodsEntry:
    items = []
    for title, result in sorted({result.title: result for result in reversed(run.results)}.items()):
        model = result.spec.classifier
        identity = title if title == result.model_id else f"{title} ({result.model_id})"
        if model.recorded:
            about = f"recorded predictions, over {model.labels}, content {model.fingerprint}"
        else:
            engine = f"{model.engine}, {model.outputs} over {model.labels}, fingerprint {model.fingerprint}"
            behind = f"; input defences: {', '.join(model.defences)}" if model.defences else ""
            about = f"{engine}; {_geometry(model.geometry.values)}; {_normalisation(model.normalisation)}{behind}"
        items.append(f"{identity}: {about}")
    return _section(
        "Models",
        "Images are resized and cropped to 8-bit pixels, then shifted, then normalised by the model.",
        "An id (name@hash) stands for one version of a model: the hash is of everything that decides its scores, the "
        "preprocessing included. The fingerprint is a hash of weights or code, outputs and normalisation.",
        *mark_notes(run, run.results),
        items=items,
    )


def _geometry(geometry: Mapping[str, Any]) -> str:
    sides = {
        key: " x ".join(map(str, size)) if isinstance(size := geometry[key], list | tuple) else str(size)
        for key in ("resize", "crop")
    }
    parts = []
    if geometry["resize"] is not None:
        parts.append(f"{_RESIZED[geometry['resize_rule']].format(sides['resize'])} ({geometry['interpolation']})")
    if geometry["crop"] is not None:
        parts.append(f"centre crop of {sides['crop']} pixels")
    return ", ".join(parts) or "size unchanged"


def _normalisation(values: Mapping[str, Any]) -> str:
    mean, std = (", ".join(f"{value:g}" for value in values[key]) for key in ("mean", "std"))
    kind = {"rgb": "pixels", "bgr": "pixels in the order BGR,", "grey": "grey pixels"}[values["colour_order"]]
    return f"{kind} times {fact_text(values['scale'])}, minus ({mean}), divided by ({std})"


def _settings(run: StoredResults) -> MethodsEntry:
    spaces: dict[str, dict[str, None]] = {}
    for result in run.results:
        spaces.setdefault(result.spec.space, {})[result.setting] = None
    items = []
    for key, names in spaces.items():
        space = run.workspace.space(key)
        items.append(f"over {space.name} (content {space.fingerprint}): {listed(names, 6)}")
    about = "Scores are restricted to the classes of a setting before the best class and its softmax are taken."
    return _section("Settings and label spaces", about, items=items)


def _shifts(results: Sequence[Result]) -> list[MethodsEntry]:
    """Shifts that differ only in kind and strength share one entry."""
    groups: dict[str, dict[str, set[float]]] = {}
    for result in results:
        shift, about = result.spec.shift, result.spec.shift.values
        if shift.kind == "none":
            continue
        made = [result.spec.source] if result.spec.source else []
        for key, word in _MADE.items():
            if key in about:
                value = about[key]
                made.append(f"{word} {f'{value:.4g}' if isinstance(value, float) else value}")
        frost = about.get("frost")
        if isinstance(frost, Mapping):
            made.append(f"frost images: {' '.join(str(value) for value in frost.values())}")
        strengths = groups.setdefault(", ".join(made), {}).setdefault(shift.name, set())
        strengths |= set() if shift.severity is None else {shift.severity}
    if not groups:
        return []
    items = []
    for text, kinds in groups.items():
        severities = sorted({severity for values in kinds.values() for severity in values})
        at = f" at severity {', '.join(f'{severity:g}' for severity in severities)}" if severities else ""
        items.append(f"{', '.join(kinds)}{at}: {text}")
    texts = ["The shifted pixels depend only on the seed, the image's id and the shift."]
    if any(result.spec.shift.kind == "attack" for result in results):
        texts.append("An attack also depends on the model, and its images are not rounded to 8 bits.")
    return [_section("Shifts", *texts, items=items)]


def _scores(data: ReportData) -> MethodsEntry:
    kinds = dict.fromkeys((score.metric, score.method, score.level) for _, _, score in data.scores)
    return _section(
        "Scores and intervals",
        "Every number is computed from the stored predictions. Images that could not be read, or have no label among "
        "the setting's classes, are not counted; n is the number of images counted.",
        items=[f"{metric}: {level_text(level)} intervals, {method}" for metric, method, level in kinds],
    )


def _corruption_errors(families: Sequence[FamilyScores]) -> list[MethodsEntry]:
    items = []
    for family in (family for family in families if family.by_model):
        mean = next(iter(family.by_model.values())).mean_error
        divided = f"divided by the errors of {family.baseline.source}" if family.baseline else "not divided"
        severities = ", ".join(f"{severity:g}" for severity in family.severities)
        items.append(
            f"{family.name}: {count_of(len(family.corruptions), 'corruption')} at severity {severities}, "
            f"{divided}; {level_text(mean.level)} intervals, {mean.method}"
        )
    text = "A corruption error is the mean top-1 error over the severities, divided by the baseline's over the same."
    return [_section("Corruption errors", text, items=items)] if items else []


def _published(published: Published) -> MethodsEntry:
    results = published.study.results
    if published.baselines:
        sources = [f"{setting}: {one.source}, {one.scale} scale" for setting, one in published.baselines.items()]
        return _section("Published results", PROVENANCE[0].upper() + PROVENANCE[1:] + ".", items=sources)
    sized = len(results.sizes)
    items = [
        f"{published.name}: {count_of(len(results.models), 'model')}, {count_of(len(results.settings), 'setting')}, "
        f"read in {results.unit}",
        f"the number of images is known for {sized} of them, whose intervals are Clopper-Pearson"
        if sized
        else "the numbers of images are unknown, so there are no intervals",
    ]
    if published.is_testbed:
        least = ", ".join(f"{name} {shift.min_x:g} %" for name, shift in SHIFTS.items())
        items.append(f"named shifts show and fit only models with at least this x: {least}")
    return _section("Published results", items=items)


def _line(results: ResultGrid, level: float) -> MethodsEntry:
    baseline, models = results["baseline"], [model for model in results["models"] if not model["own"]]
    whose = f"of the category {baseline!r}" if baseline else "shown"
    # Published models of the baseline category that the line avoids, and controls that no correlation counts.
    lost = [one["name"] for one in models if baseline and one["category"] == baseline and not one["fitted"]]
    whose += f", except {named(lost)}" if lost else ""
    controls = sum(one["category"] == LOW_ACCURACY for one in models)
    whose += f" (correlations of robustness do not count the {controls} controls of low accuracy)" if controls else ""
    return _section(
        "The line",
        f"Least squares of y on x over the models {whose}, both on the chosen scale (logit, probit or linear). "
        "Models without a result on one axis, or with an accuracy of exactly 0 or 1 on the logit and probit scales, "
        "are not fitted.",
        f"Its band and the intervals of slope and intercept are {level_text(level)} percentiles over "
        f"{count(RESAMPLES)} resamples of the models (seed {TESTBED_SEED}). Effective robustness is y minus the line; "
        "its interval joins those of x, y and the band by Zou and Donner's rule.",
    )


def _software(run: StoredResults | None) -> MethodsEntry:
    items = []
    if run is not None and run.results:
        files = [run.workspace.predictions_path(result) for result in run.results]
        made = {read_made_by(file) for file in files if file.is_file()}
        items += [f"predictions by {', '.join(sorted(made))}"] if made else []
        # The libraries behind the results, from the records of their runs.
        makers = {one.id: one.software for result in run.results for one in run.history.makers(result)}
        lines = dict.fromkeys(
            f"{', '.join(f'{name} {version}' for name, version in one.versions.items())}; Python {one.python}; "
            f"{one.platform}; {one.cpu}"
            for one in makers.values()
        )
        items += [f"libraries: {line}" for line in lines]
        unrecorded = sum(not run.history.makers(result) for result in run.results)
        items += [f"library versions of {count(unrecorded)} results are not recorded"] if unrecorded else []
        items += software_notes(run, run.results)
    return _section("Software", items=[*items, f"this page by shiftbench {__version__}"])


SECTION = Section("methods", methods)
