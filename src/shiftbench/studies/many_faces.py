"""The seven hypotheses of 000, and "robustness is multivariate", from the evidence of its protocols.

Each protocol has its own number: mCE on ImageNet-C, mAP over eight shifts of DeepFashion Remixed, the mean over the
shifts of StreetView StoreFronts, accuracy elsewhere. Four hypotheses are about methods, and a table of models names
theirs (``TAGS``). The other four follow from what the methods do (000, section 5):

    Texture Bias                     + if augmentation, which distorts textures, helps where textures change
    Only IID Accuracy Matters        - if a method gains beyond the reference; + if none differs from it by the margin
    Synthetic does not imply Natural - if augmentation helps on a natural shift; + if it helps on synthetic ones only
    Multivariate                     + if methods help on some shifts and are shown to help less on others;
                                     - if one of them helps on all

Where images are known, what decides is an interval and not its middle: a gain beyond the reference must be above zero,
"none differs" means that no interval reaches the margin, and a shift on which a method helps less must have images
enough to exclude what was gained elsewhere.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import NamedTuple

import numpy as np

from shiftbench.arrays import BoolArray, FloatArray
from shiftbench.datasets.corruption_names import BENCHMARK_CORRUPTIONS
from shiftbench.errors import listed
from shiftbench.metrics.arrays import kept_scores
from shiftbench.metrics.bootstrap import resampled_means
from shiftbench.metrics.corruption import ALEXNET_ERRORS
from shiftbench.metrics.multilabel import (
    MEAN_PRECISION,
    RESAMPLES,
    labelled_rows,
    mean_average_precision,
    resampled_precisions,
)
from shiftbench.metrics.paired import aligned
from shiftbench.runs.results import StoredResults
from shiftbench.settings.base import Member, Setting, build_suite
from shiftbench.store.predictions import Predictions
from shiftbench.studies.base import StudyError, check_unique, whole
from shiftbench.studies.hypotheses import MARGIN, Evidence, HitData, ScoredData
from shiftbench.studies.image_bootstrap import common_hits
from shiftbench.studies.results import Results
from shiftbench.studies.testbed import known_settings

#: What the column ``changes`` of a table of models calls the methods of the first four hypotheses.
TAGS = {
    "larger": "Larger Models",
    "self-attention": "Self-Attention",
    "augmentation": "Diverse Data Augmentation",
    "pretraining": "Pretraining",
}
_AUGMENTATION = TAGS["augmentation"]
#: Datasets whose textures differ from those of photographs.
TEXTURES = ("imagenet-r", "imagenet-sketch", "stylized_imagenet")
SUPPORTED = "supported"
CONTRADICTED = "contradicted"
MIXED = "mixed"
NO_EVIDENCE = "no evidence"
NOT_TESTED = "not tested"
#: Settings that score images of another setting once more; they are not protocols of their own.
_UNMASKED = ("imagenet-r.unmasked", "imagenet-a.unmasked")


@dataclass(frozen=True)
class Face:
    """A shift as 000 judges it: settings whose weighted sum is one number, higher is better."""

    name: str
    weights: Mapping[str, float]
    metric: str
    reference: str | None
    synthetic: bool


@dataclass(frozen=True)
class Finding:
    """A hypothesis with its verdict and the reason."""

    hypothesis: str
    verdict: str
    reason: str


@dataclass(frozen=True)
class _ShiftedSetting:
    """A setting under shift, and the group of settings that 000 judges together with it."""

    name: str
    reference: str
    metric: str
    group: str
    member: Member | None
    synthetic: bool


class _DrawnScore(NamedTuple):
    """A model's score in points, and the same score under draws of the images."""

    model: str
    value: float
    draws: FloatArray


@lru_cache(maxsize=1)
def _published_settings() -> dict[str, _ShiftedSetting]:
    """The published settings that have a reference, by name."""
    settings = list(known_settings().values())
    for suite in ("many-faces", "deepfashion-remixed", "streetview-storefronts"):
        settings.extend(build_suite(suite).settings)
    shifted = {}
    for setting in settings:
        if setting.reference:
            synthetic = setting.member is not None or setting.shift.kind != "none"
            shifted[setting.name] = _ShiftedSetting(
                name=setting.name,
                reference=setting.reference,
                metric=setting.metric,
                group=_group_of(setting),
                member=setting.member,
                synthetic=synthetic,
            )
    return shifted


def _group_of(setting: Setting) -> str:
    """The family of the setting, else its protocol; a setting without either is a group by itself."""
    if setting.member:
        return setting.member.family
    if setting.protocol:
        return setting.protocol.name
    return setting.name


def _faces(settings: Mapping[str, _ShiftedSetting], only: Collection[str], available: Collection[str]) -> list[Face]:
    """One face for each family or protocol of the settings.

    ``only`` selects faces by their names or by their settings; ``available`` are the settings that an error lists.
    """
    groups: dict[tuple[str, str, str], list[_ShiftedSetting]] = defaultdict(list)
    for setting in settings.values():
        if setting.name not in _UNMASKED:
            groups[setting.group, setting.reference, setting.metric].append(setting)
    faces = [_face(name, reference, metric, group) for (name, reference, metric), group in groups.items()]
    if only:
        faces = [face for face in faces if not {face.name, *face.weights}.isdisjoint(only)]
    if not faces:
        raise StudyError(
            "no shift that has a reference",
            found=f"settings {listed(sorted(available))}",
            expected=listed(list(only)) or "such as imagenet-r and val-on-imagenet-r-classes",
        )
    return faces


def _face(name: str, reference: str, metric: str, group: Sequence[_ShiftedSetting]) -> Face:
    """mCE for a complete ImageNet-C, else the mean over the settings of the group."""
    benchmark = list(product(BENCHMARK_CORRUPTIONS, range(1, 6)))
    names = {(setting.member.name, setting.member.level): setting.name for setting in group if setting.member}
    if name == "imagenet-c" and set(names) >= set(benchmark):
        # Minus mCE but for a constant: accuracy over the sum of AlexNet's errors, mean over fifteen types.
        types = len(BENCHMARK_CORRUPTIONS)
        weights = {}
        for corruption, level in benchmark:
            weights[names[corruption, level]] = 1 / (types * sum(ALEXNET_ERRORS[corruption]))
        return Face(name, weights, "mCE", reference=None, synthetic=True)
    if len(group) > 1:
        # Scores are accuracies even where the protocol states errors.
        metric = "mean top1" if metric == "error" else f"mean {metric}"
    weights = {setting.name: 1 / len(group) for setting in group}
    synthetic = any(setting.synthetic for setting in group)
    return Face(name, weights, metric, reference, synthetic)


def faces_of_table(results: Results, only: Collection[str] = ()) -> tuple[list[Face], list[ScoredData | HitData]]:
    """The protocols that a table of accuracies has, by the names of published settings, with scores in points."""
    available = set(results.settings)
    settings = {}
    for name, setting in _published_settings().items():
        if {name, setting.reference} <= available:
            settings[name] = setting
    faces = _faces(settings, only, available)
    data: list[ScoredData | HitData] = []
    for face in faces:
        scores = _weighted_scores(results, face.weights)
        reference = None
        if face.reference:
            reference = _weighted_scores(results, {face.reference: 1.0})
        data.append(ScoredData(face.name, scores, reference, metric=face.metric))
    return faces, data


def _weighted_scores(results: Results, weights: Mapping[str, float]) -> dict[str, float]:
    """The weighted sum of the settings' accuracies in points, for every model that has all of them."""
    points = 100.0 / whole(results.unit)
    total = points * np.sum([weight * results.column(name) for name, weight in weights.items()], axis=0)
    return {model: float(v) for model, v in zip(results.models, total, strict=True) if not np.isnan(v)}


def faces_of_run(run: StoredResults, only: Collection[str] = ()) -> tuple[list[Face], list[ScoredData | HitData]]:
    """The protocols that a workspace has results of, each by its own metric, with the evidence of the images."""
    settings: dict[str, _ShiftedSetting] = {}
    for result in run.results:
        spec = result.spec
        if spec.reference is None or spec.shift.frame is not None:
            continue
        member = run.workspace.setting_record(result).member
        group = result.setting
        if member:
            group = member.family
        elif published := _published_settings().get(result.setting):
            group = published.group
        settings[result.setting] = _ShiftedSetting(
            name=result.setting,
            reference=spec.reference,
            metric=spec.metric,
            group=group,
            member=member,
            synthetic=member is not None or spec.shift.kind != "none",
        )
    faces = _faces(settings, only, run.settings)
    return faces, [measured(run, face) for face in faces]


def measured(run: StoredResults, face: Face) -> ScoredData | HitData:
    """The scores of a run's models in the settings of a face.

    These are hits where the face is one setting that is judged image by image, else scores with draws of the images.
    """
    by_setting = {name: _read_setting(run, name) for name in face.weights}
    unshifted: list[Predictions] = []
    if face.reference in run.settings:
        unshifted = _read_setting(run, face.reference)
    first = next(iter(by_setting.values()))
    if len(by_setting) == 1 and first[0].spec.judged_by_image:
        return HitData(face.name, _hits_by_model(first), _hits_by_model(unshifted) or None, face.metric)
    reference = None
    reference_draws = {}
    if unshifted:
        drawn = _drawn([unshifted], {unshifted[0].setting: 1.0}, _models_of(unshifted), 0)
        reference = {score.model: score.value for score in drawn}
        reference_draws = {score.model: score.draws for score in drawn}
    values, draws = _summed_scores(list(by_setting.values()), face.weights)
    return ScoredData(face.name, values, reference, metric=face.metric, draws=draws, reference_draws=reference_draws)


def _read_setting(run: StoredResults, setting: str) -> list[Predictions]:
    """The predictions of every model in one setting; two results of one model raise an error."""
    predictions = [run.workspace.read(result) for result in run.results if result.setting == setting]
    check_unique([entry.classifier for entry in predictions])
    return predictions


def _models_of(predictions: Sequence[Predictions]) -> set[str]:
    return {entry.classifier for entry in predictions}


def _hits_by_model(predictions: Sequence[Predictions]) -> dict[str, BoolArray]:
    if not predictions:
        return {}
    return dict(zip([entry.classifier for entry in predictions], common_hits(predictions)[0], strict=True))


def _summed_scores(
    settings: Sequence[list[Predictions]], weights: Mapping[str, float]
) -> tuple[dict[str, float], dict[str, FloatArray]]:
    """Weighted sums over the settings, by model: the scores, and the scores under draws of the images."""
    models = set.intersection(*(_models_of(predictions) for predictions in settings))
    # Settings that show the same images share draws; mAP is not a mean over images, and is drawn by itself.
    groups: dict[object, list[list[Predictions]]] = defaultdict(list)
    for predictions in settings:
        if predictions[0].spec.judged_by_image:
            groups[tuple(predictions[0].ids)].append(predictions)
        else:
            groups[predictions[0].setting].append(predictions)
    values = defaultdict[str, float](float)
    draws = defaultdict[str, FloatArray](lambda: np.zeros(RESAMPLES))
    for seed, same_images in enumerate(groups.values()):
        for score in _drawn(same_images, weights, models, seed):
            values[score.model] += score.value
            draws[score.model] = draws[score.model] + score.draws
    return dict(values), dict(draws)


def _drawn(
    settings: Sequence[list[Predictions]], weights: Mapping[str, float], models: Collection[str], seed: int
) -> list[_DrawnScore]:
    """The weighted sums of the models' scores in settings that show the same images, or in one judged by mAP."""
    selected = [_of_models(predictions, models) for predictions in settings]
    if selected[0][0].spec.metric == MEAN_PRECISION:
        [predictions] = selected
        return _drawn_precisions(predictions, 100.0 * weights[predictions[0].setting], seed)
    names = [entry.classifier for entry in selected[0]]
    weighted_hits = []
    for predictions in selected:
        in_order = sorted(predictions, key=lambda entry: names.index(entry.classifier))
        weighted_hits.append(weights[predictions[0].setting] * common_hits(in_order)[0])
    per_image = 100.0 * np.sum(weighted_hits, axis=0)
    draws = resampled_means(per_image.T, resamples=RESAMPLES, seed=seed)
    return [_DrawnScore(name, float(per_image[i].mean()), draws[:, i]) for i, name in enumerate(names)]


def _of_models(predictions: Sequence[Predictions], models: Collection[str]) -> list[Predictions]:
    return [entry for entry in predictions if entry.classifier in models]


def _drawn_precisions(predictions: Sequence[Predictions], weight: float, seed: int) -> list[_DrawnScore]:
    """mAP of every model, times the weight, on the images that are labelled for all of them."""
    first = predictions[0]
    rows = np.all([labelled_rows(entry)[aligned(first, entry)] for entry in predictions], axis=0)
    truth = first.multi_hot[rows]
    drawn = []
    for entry in predictions:
        table = kept_scores(entry)[aligned(first, entry)][rows].astype(np.float64)
        precision = mean_average_precision(table, truth)
        draws = resampled_precisions(table, truth, seed=seed)
        drawn.append(_DrawnScore(entry.classifier, weight * precision, weight * draws))
    return drawn


def judge_faces(evidence: Sequence[Evidence], synthetic: Collection[str], textures: Collection[str]) -> list[Finding]:
    """All eight hypotheses, from the evidence of every dataset on the four methods, named as in ``TAGS``.

    ``synthetic`` are datasets that are not natural, ``textures`` those whose textures differ from photographs'.
    """
    by_method: dict[str, list[Evidence]] = {name: [] for name in TAGS.values()}
    for entry in evidence:
        if entry.hypothesis in by_method:
            by_method[entry.hypothesis].append(entry)
    methods = [_judge_method(name, entries) for name, entries in by_method.items()]
    augmented = by_method[_AUGMENTATION]
    on_textures = [entry for entry in augmented if entry.dataset in textures]
    return [
        *methods,
        _judge_method("Texture Bias", on_textures),
        _judge_only_iid(evidence),
        _judge_synthetic(augmented, synthetic),
        _judge_multivariate(by_method),
    ]


def _judge_method(name: str, evidence: Sequence[Evidence]) -> Finding:
    if not evidence:
        return Finding(name, NOT_TESTED, "no pair of models on such a dataset")
    verdicts = {entry.verdict for entry in evidence}
    if verdicts == {"+"}:
        verdict = SUPPORTED
    elif "+" in verdicts:
        verdict = MIXED
    elif "-" in verdicts:
        verdict = CONTRADICTED
    else:
        verdict = NO_EVIDENCE
    return Finding(name, verdict, "; ".join(f"{e.dataset} {e.verdict} ({e.gain:+.1f})" for e in evidence))


def _judge_only_iid(evidence: Sequence[Evidence]) -> Finding:
    name = "Only IID Accuracy Matters"
    excesses = [(entry.excess, entry) for entry in evidence if entry.excess is not None]
    if not excesses:
        return Finding(name, NOT_TESTED, "no scores without shift")
    # The strongest counterexample, or, without any, the largest difference.
    excess, strongest = max(excesses, key=lambda pair: (_gains_beyond_reference(pair[1]), abs(pair[0])))
    reason = (
        f"{strongest.hypothesis} on {strongest.dataset}: {excess:+.1f}{_excess_interval(strongest)} beyond the "
        f"reference, evidence {strongest.verdict}"
    )
    if _gains_beyond_reference(strongest):
        return Finding(name, CONTRADICTED, reason)
    if all(_equals_reference(entry) for _, entry in excesses):
        return Finding(name, SUPPORTED, reason)
    return Finding(name, NO_EVIDENCE, reason)


def _gains_beyond_reference(evidence: Evidence) -> bool:
    """Whether the evidence is for the method, and its gain beyond the reference is above zero with its interval."""
    return evidence.verdict == "+" and (evidence.excess_low is None or evidence.excess_low > 0)


def _equals_reference(evidence: Evidence) -> bool:
    """Whether what a method gains beyond the reference is smaller than the margin, with its interval."""
    values = [evidence.excess, evidence.excess_low, evidence.excess_high]
    return all(abs(value) < MARGIN for value in values if value is not None)


def _excess_interval(evidence: Evidence) -> str:
    if evidence.excess_low is None or evidence.excess_high is None:
        return ""
    return f" [{evidence.excess_low:+.1f}, {evidence.excess_high:+.1f}]"


def _judge_synthetic(augmented: Sequence[Evidence], synthetic: Collection[str]) -> Finding:
    name = "Synthetic does not imply Natural"
    natural = [entry for entry in augmented if entry.dataset not in synthetic]
    if not natural:
        return Finding(name, NOT_TESTED, "no augmentation on a natural shift")
    helped_natural = _helped_datasets(natural)
    if helped_natural:
        return Finding(name, CONTRADICTED, f"augmentation helps on {listed(helped_natural)}")
    helped_synthetic = _helped_datasets([entry for entry in augmented if entry.dataset in synthetic])
    reason = f"augmentation helps on {listed(helped_synthetic) or 'no synthetic shift'}, on no natural one"
    return Finding(name, SUPPORTED if helped_synthetic else NO_EVIDENCE, reason)


def _helped_datasets(evidence: Sequence[Evidence]) -> list[str]:
    return [entry.dataset for entry in evidence if entry.verdict == "+"]


def _judge_multivariate(by_method: Mapping[str, Sequence[Evidence]]) -> Finding:
    """Is there no method that helps on all shifts? "Supported" needs methods that help on some and less on others."""
    name = "Multivariate"
    several = {method: evidence for method, evidence in by_method.items() if len(evidence) > 1}
    if not several:
        return Finding(name, NOT_TESTED, "no method on several datasets")
    helped = {method: _helped_datasets(evidence) for method, evidence in several.items()}
    everywhere = [method for method, datasets in helped.items() if len(datasets) == len(several[method])]
    if everywhere:
        return Finding(name, CONTRADICTED, f"{listed(everywhere)} helps on all datasets")
    somewhere = [method for method, datasets in helped.items() if datasets]
    if not somewhere:
        return Finding(name, NO_EVIDENCE, "no method helps on any dataset")
    # One method that may help everywhere is enough to doubt that robustness is multivariate.
    undecided = [method for method in somewhere if not _helps_less_elsewhere(several[method])]
    if undecided:
        reason = f"too few images to tell whether {listed(undecided)} helps on all datasets"
        return Finding(name, NO_EVIDENCE, reason)
    return Finding(name, SUPPORTED, f"{listed(somewhere)} helps on some datasets, no method on all")


def _helps_less_elsewhere(evidence: Sequence[Evidence]) -> bool:
    """Whether a method that helps on some datasets is shown to help less on another one."""
    helped = [entry for entry in evidence if entry.verdict == "+"]
    return any(entry.rules_out_help_as_in(helped) for entry in evidence)
