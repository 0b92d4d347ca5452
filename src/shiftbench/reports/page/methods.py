"""The methods section: sentences put together from what the predictions themselves say about how they were made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from shiftbench._version import __version__
from shiftbench.errors import listed
from shiftbench.metrics.base import Score
from shiftbench.reports.formatting import count, level_text
from shiftbench.reports.page.corruptions import Family
from shiftbench.reports.page.payload import Section
from shiftbench.reports.page.published import Published
from shiftbench.runs.results import StoredResults
from shiftbench.store.display_names import classifier_titles
from shiftbench.store.prediction_files import read_made_by
from shiftbench.store.spec import ClassifierRecord, ResultSpec
from shiftbench.store.workspace import Result
from shiftbench.studies.base import count_of
from shiftbench.studies.fits import RESAMPLES
from shiftbench.studies.resampling import TESTBED_SEED
from shiftbench.studies.testbed import SHIFTS

Spec = Mapping[str, Any]


def methods_payload(
    run: StoredResults | None,
    scores: Sequence[Score],
    families: Sequence[Family],
    published: Published | None,
    *,
    baseline: str,
    level: float,
) -> list[Section]:
    """One section a matter; what a page does not show has none."""
    sections: list[Section] = []
    if run is not None and run.results:
        sections += [
            _datasets(run),
            _classifiers(run),
            _settings(run.results),
            *_shifts(run.results),
            _scores(scores),
            *_corruption_errors(families),
            _confidence(),
        ]
    if published is not None:
        sections.append(_published(published))
    sections.append(_line(published, baseline, level))
    sections.append(_software(run))
    return sections


def _section(heading: str, *paragraphs: str, items: Iterable[str] = ()) -> Section:
    section: Section = {"heading": heading, "paragraphs": list(paragraphs)}
    listed = list(items)
    return {**section, "items": listed} if listed else section


def _datasets(run: StoredResults) -> Section:
    found = {(result.spec.dataset.name, result.spec.dataset.fingerprint) for result in run.results}
    items = []
    for name, fingerprint in sorted(found):
        record = run.workspace.dataset(name, fingerprint)
        unlabelled = int((record.labels < 0).sum())
        words = f"{name}: {count_of_images(len(record.ids))}, labelled in {record.space.name}"
        words += f" ({count(len(record.space))} classes)"
        words += f", {count(unlabelled)} without a label" if unlabelled else ""
        items.append(f"{words}; fingerprint {fingerprint}")
    return _section("Data sets", "A fingerprint is a hash of ids, labels, classes and image bytes.", items=items)


def count_of_images(n: int) -> str:
    return "1 image" if n == 1 else f"{count(n)} images"


def _classifiers(run: StoredResults) -> Section:
    titles = classifier_titles(run.results)
    first = {titles[result.key]: result.spec.classifier for result in reversed(run.results)}
    items = [f"{title}: {_classifier(first[title])}" for title in sorted(first)]
    return _section(
        "Classifiers",
        "Pictures are resized and cropped to 8-bit pixels, then shifted, then normalised by the classifier.",
        items=items,
    )


def _classifier(model: ClassifierRecord) -> str:
    engine = f"{model.engine}, {model.outputs} over {model.labels}, weights {model.fingerprint}"
    if model.recorded:
        return f"predictions made elsewhere, over {model.labels}, content {model.fingerprint}"
    behind = f"; behind the input defences {', '.join(model.defences)}" if model.defences else ""
    return f"{engine}; {_geometry(model.geometry.values)}; {_normalisation(model.normalisation)}{behind}"


_RESIZED = {
    "short": "short side to {} pixels",
    "exact": "both sides to {} pixels",
    "fit": "fitted into {} pixels",
    "cover": "covering {} pixels",
}


def _geometry(geometry: Spec) -> str:
    parts = []
    if geometry["resize"] is not None:
        resized = _RESIZED[geometry["resize_rule"]].format(_side(geometry["resize"]))
        parts.append(f"{resized} ({geometry['interpolation']})")
    if geometry["crop"] is not None:
        parts.append(f"centre crop of {_side(geometry['crop'])} pixels")
    return ", ".join(parts) or "size unchanged"


def _side(size: Any) -> str:
    return " x ".join(str(side) for side in size) if isinstance(size, list | tuple) else str(size)


def _normalisation(values: Spec) -> str:
    mean, std = (", ".join(f"{value:g}" for value in values[key]) for key in ("mean", "std"))
    order = " in the order " + values["colour_order"].upper() if values["colour_order"] != "rgb" else ""
    return f"pixels times {values['scale']:.4g}, minus ({mean}), divided by ({std}){order}"


def _settings(results: Sequence[Result]) -> Section:
    spaces: dict[str, list[str]] = {}
    for result in results:
        spaces.setdefault(result.spec.space, []).append(result.setting)
    items = [
        f"over {space.rpartition('-')[0]} (content {space.rpartition('-')[2]}): {listed(dict.fromkeys(names), 6)}"
        for space, names in spaces.items()
    ]
    return _section(
        "Settings and label spaces",
        "Scores are restricted to the classes of a setting before the best class and its softmax are taken.",
        items=items,
    )


def _shifts(results: Sequence[Result]) -> list[Section]:
    """Shifts that differ in nothing but kind and strength are one sentence."""
    groups: dict[str, dict[str, list[float]]] = {}
    for result in results:
        shift = result.spec.shift
        if shift.kind == "none":
            continue
        strengths = groups.setdefault(_made(result.spec), {}).setdefault(shift.name, [])
        if shift.severity is not None and shift.severity not in strengths:
            strengths.append(shift.severity)
    if not groups:
        return []
    items = [f"{_named(kinds)}: {made}" for made, kinds in groups.items()]
    texts = ["The pixels of a shift depend on the seed, the picture's id and the shift alone."]
    if any(result.spec.shift.kind == "attack" for result in results):
        texts.append("An attack depends on the classifier as well, and its pictures are not rounded to 8 bits.")
    return [_section("Shifts", *texts, items=items)]


def _named(kinds: Mapping[str, Sequence[float]]) -> str:
    severities = sorted({severity for values in kinds.values() for severity in values})
    at = f" at severity {', '.join(f'{severity:g}' for severity in severities)}" if severities else ""
    return ", ".join(kinds) + at


def _made(spec: ResultSpec) -> str:
    about = spec.shift.values
    words = [spec.source] if spec.source else []
    words += [f"{word} {_plain(about[key])}" for key, word in _MADE.items() if key in about]
    frost = about.get("frost")
    if isinstance(frost, Mapping):
        words.append(f"frost pictures: {' '.join(str(value) for value in frost.values())}")
    return ", ".join(words)


def _plain(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


#: What decides the pixels beside kind and severity, as far as a shift says it.
_MADE = {
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


def _scores(scores: Sequence[Score]) -> Section:
    kinds: dict[tuple[str, str, float], None] = {(s.metric, s.method, s.level): None for s in scores}
    items = [f"{metric}: {level_text(level)} intervals, {method}" for metric, method, level in kinds]
    return _section(
        "Scores and intervals",
        "Every number is computed from the stored predictions. Pictures that could not be read, or have no label in "
        "the setting's classes, do not count; n says how many do.",
        items=items,
    )


def _corruption_errors(families: Sequence[Family]) -> list[Section]:
    items = []
    for family in families:
        if not family.scores:
            continue
        mean = next(iter(family.scores.values())).mean_error
        divided = f"divided by the errors of {family.baseline.source}" if family.baseline else "not divided"
        severities = ", ".join(f"{severity:g}" for severity in family.severities)
        items.append(
            f"{family.prefix}: {count_of(len(family.corruptions), 'corruption')} at severity {severities}, "
            f"{divided}; {level_text(mean.level)} intervals, {mean.method}"
        )
    if not items:
        return []
    text = "A corruption error is the mean top-1 error over the severities, divided by the baseline's over the same."
    return [_section("Corruption errors", text, items=items)]


def _confidence() -> Section:
    return _section(
        "Confidence and mistakes",
        "The confidence is the softmax probability of the best class. Reliability diagrams have 15 bins of equal width "
        "with Clopper-Pearson intervals; the RMS calibration error has bins of 100 images; calibration errors and the "
        "area under the response-rate accuracy curve have intervals from resampling the images.",
        "Mistakes are listed by confidence, the highest first. Shifted pictures were made again with the seed, id, "
        "resize and crop of the run.",
    )


def _published(published: Published) -> Section:
    results = published.study.results
    sized = len(results.sizes)
    items = [
        f"{published.name}: {count_of(len(results.models), 'model')}, {count_of(len(results.settings), 'setting')}, "
        f"read in {results.unit}",
        f"the number of images is known for {sized} of them, whose intervals are Clopper-Pearson"
        if sized
        else "the numbers of images are not known, so there are no intervals",
    ]
    if published.is_testbed:
        least = ", ".join(f"{shift.name} {shift.min_x:g} %" for shift in SHIFTS.values())
        items.append(f"named shifts show and fit models with x of at least: {least}")
    return _section("Published results", items=items)


def _line(published: Published | None, baseline: str, level: float) -> Section:
    study = published.study if published else None
    whose = f"of the category {baseline!r}" if baseline else "shown"
    left = f", but for those whose name contains {', '.join(study.exclude)}" if study and study.exclude else ""
    return _section(
        "The line",
        f"Least squares of y on x over the models {whose}{left}, both on the chosen scale (logit, probit or linear). "
        "Models without one of the two numbers, or with an accuracy of exactly 0 or 1 on the logit and probit scales, "
        "have no place on it.",
        f"Its band and the intervals of slope and intercept are {level_text(level)} percentiles over "
        f"{count(RESAMPLES)} resamples of the models (seed {TESTBED_SEED}). Effective robustness is y minus the line; "
        "its interval joins those of x, y and the band by Zou and Donner's rule.",
    )


def _software(run: StoredResults | None) -> Section:
    files = [run.workspace.predictions_path(result) for result in run.results] if run else []
    made = {read_made_by(file) for file in files if file.is_file()}
    items = [f"predictions by {', '.join(sorted(made))}"] if made else []
    return _section("Software", items=[*items, f"this page by shiftbench {__version__}"])
