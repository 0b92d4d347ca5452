"""The seven hypotheses of 000, and "robustness is multivariate", from the evidence of its protocols.

Each protocol has its own number: mCE on ImageNet-C, mAP over eight shifts of DeepFashion Remixed, the mean over the
shifts of StreetView StoreFronts, accuracy elsewhere. Four hypotheses are about methods, and a table of models names
theirs (``TAGS``). The other four follow from what the methods do (000, section 5):

    Texture Bias                     + if augmentation, which distorts textures, helps where textures change
    Only IID Accuracy Matters        - if a method gains beyond the reference; + if none differs from it by the margin
    Synthetic does not imply Natural - if augmentation helps on a natural shift; + if it helps on synthetic ones only
    Multivariate                     + if methods help on some shifts only; - if one of them helps on all
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

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
from shiftbench.settings.base import Member, build_suite
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
SUPPORTED, CONTRADICTED, MIXED, NO_EVIDENCE, NOT_TESTED = (
    "supported", "contradicted", "mixed", "no evidence", "not tested",
)  # fmt: skip
#: Other scores of the same images, not protocols of their own.
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
class _Known:
    """What is known about a setting under shift."""

    name: str
    reference: str
    metric: str
    group: str
    member: Member | None
    synthetic: bool


@lru_cache(maxsize=1)
def _published_settings() -> dict[str, _Known]:
    suites = ("many-faces", "imagenet-a", "deepfashion-remixed", "streetview-storefronts")
    found = {}
    for one in (*known_settings().values(), *(setting for suite in suites for setting in build_suite(suite).settings)):
        if one.reference:
            group = one.member.family if one.member else one.protocol.name if one.protocol else one.name
            synthetic = one.member is not None or one.shift.kind != "none"
            found[one.name] = _Known(one.name, one.reference, one.metric, group, one.member, synthetic)
    return found


def _faces(known: Mapping[str, _Known], only: Collection[str], there: Collection[str]) -> list[Face]:
    """The settings under shift, those of one family or protocol together."""
    groups: dict[tuple[str, str, str], list[_Known]] = defaultdict(list)
    for one in known.values():
        if one.name not in _UNMASKED:
            groups[one.group, one.reference, one.metric].append(one)
    faces = []
    wanted = [(c, level) for c in BENCHMARK_CORRUPTIONS for level in range(1, 6)]
    for (name, reference, metric), own in groups.items():
        places = {(one.member.name, one.member.level): one.name for one in own if one.member}
        if name == "imagenet-c" and set(places) >= set(wanted):
            # Minus mCE but for a constant: accuracy over the sum of AlexNet's errors, mean over fifteen types.
            types = len(BENCHMARK_CORRUPTIONS)
            weights = {places[c, level]: 1 / (types * sum(ALEXNET_ERRORS[c])) for c, level in wanted}
            faces.append(Face(name, weights, "mCE", None, True))
            continue
        shown = metric if len(own) == 1 else "mean top1" if metric == "error" else f"mean {metric}"
        weights = {one.name: 1 / len(own) for one in own}
        faces.append(Face(name, weights, shown, reference, any(one.synthetic for one in own)))
    chosen = [one for one in faces if not only or one.name in only or set(one.weights) & set(only)]
    if not chosen:
        raise StudyError(
            "no shift that has a reference",
            found=f"settings {listed(sorted(there))}",
            expected=listed(list(only)) or "such as imagenet-r and val-on-imagenet-r-classes",
        )
    return chosen


def faces_of_table(results: Results, only: Collection[str] = ()) -> tuple[list[Face], list[ScoredData | HitData]]:
    """The protocols that a table of accuracies has, by the names of published settings, with scores in points."""
    there = set(results.settings)
    known = {name: one for name, one in _published_settings().items() if {name, one.reference} <= there}
    found = _faces(known, only, there)
    points = 100.0 / whole(results.unit)

    def scores(weights: Mapping[str, float]) -> dict[str, float]:
        total = points * np.sum([weight * results.column(name) for name, weight in weights.items()], axis=0)
        return {model: float(v) for model, v in zip(results.models, total, strict=True) if not np.isnan(v)}

    data: list[ScoredData | HitData] = [
        ScoredData(one.name, scores(one.weights), scores({one.reference: 1.0}) if one.reference else None,
                   metric=one.metric)
        for one in found
    ]  # fmt: skip
    return found, data


def faces_of_run(run: StoredResults, only: Collection[str] = ()) -> tuple[list[Face], list[ScoredData | HitData]]:
    """The protocols that a workspace has results of, each by its own metric, with what the images tell."""
    known: dict[str, _Known] = {}
    for result in run.results:
        spec, record = result.spec, run.workspace.setting_record(result)
        if spec.reference is None or spec.shift.frame is not None:
            continue
        published = _published_settings().get(result.setting)
        group = record.member.family if record.member else published.group if published else result.setting
        synthetic = record.member is not None or spec.shift.kind != "none"
        known[result.setting] = _Known(result.setting, spec.reference, spec.metric, group, record.member, synthetic)
    found = _faces(known, only, run.settings)
    return found, [measured(run, one) for one in found]


def measured(run: StoredResults, face: Face) -> ScoredData | HitData:
    """The models of a run in the settings of a face: hits where one setting is judged image by image, else its score
    under draws of the images."""

    def predictions(setting: str) -> list[Predictions]:
        found = [run.workspace.read(one) for one in run.results if one.setting == setting]
        check_unique([one.classifier for one in found])
        return found

    def hits(read: Sequence[Predictions]) -> dict[str, BoolArray]:
        return dict(zip([one.classifier for one in read], common_hits(read)[0], strict=True))

    read = {name: predictions(name) for name in face.weights}
    usual = predictions(face.reference) if face.reference in run.settings else []
    [first, *others] = read.values()
    if not others and first[0].spec.judged_by_image:
        return HitData(face.name, hits(first), hits(usual) if usual else None, face.metric)
    shared = set.intersection(*({one.classifier for one in own} for own in read.values()))
    # Settings that show the same images share draws; mAP is not a mean over images, and is drawn by itself.
    together: dict[object, list[list[Predictions]]] = defaultdict(list)
    for name, own in read.items():
        together[tuple(own[0].ids) if own[0].spec.judged_by_image else name].append(own)
    values, draws = defaultdict[str, float](float), defaultdict[str, FloatArray](lambda: np.zeros(RESAMPLES))
    for seed, same_images in enumerate(together.values()):
        for model, value, drawn in _drawn(same_images, face.weights, shared, seed):
            values[model] += value
            draws[model] = draws[model] + drawn
    reference = None
    if usual:
        reference = {model: value for model, value, _ in _drawn([usual], {usual[0].setting: 1.0}, None, 0)}
    return ScoredData(face.name, dict(values), reference, metric=face.metric, draws=dict(draws))


def _drawn(
    own: Sequence[list[Predictions]], weights: Mapping[str, float], models: Collection[str] | None, seed: int
) -> list[tuple[str, float, FloatArray]]:
    """(model, weighted sum of the settings' scores, the same under draws of their images), in points."""
    first = [[one for one in setting if models is None or one.classifier in models] for setting in own]
    names = [one.classifier for one in first[0]]
    if first[0][0].spec.metric == MEAN_PRECISION:
        [read], weight = first, 100.0 * weights[first[0][0].setting]
        rows = np.all([labelled_rows(one)[aligned(read[0], one)] for one in read], axis=0)
        truth, found = read[0].multi_hot[rows], []
        for one in read:
            table = kept_scores(one)[aligned(read[0], one)][rows].astype(np.float64)
            value, drawn = mean_average_precision(table, truth), resampled_precisions(table, truth, seed=seed)
            found.append((one.classifier, weight * value, weight * drawn))
        return found
    by_name = [sorted(setting, key=lambda one: names.index(one.classifier)) for setting in first]
    per_image = 100.0 * np.sum([weights[read[0].setting] * common_hits(read)[0] for read in by_name], axis=0)
    drawn = resampled_means(per_image.T, resamples=RESAMPLES, seed=seed)
    return [(name, float(row.mean()), drawn[:, i]) for i, (name, row) in enumerate(zip(names, per_image, strict=True))]


def judge_faces(evidence: Sequence[Evidence], synthetic: Collection[str], textures: Collection[str]) -> list[Finding]:
    """All eight hypotheses, from the evidence of every dataset on the four methods, named as in ``TAGS``.

    ``synthetic`` are datasets that are not natural, ``textures`` those whose textures differ from photographs'.
    """
    by_method = {name: [one for one in evidence if one.hypothesis == name] for name in TAGS.values()}
    methods = [_method(name, own) for name, own in by_method.items()]
    augmented = by_method[_AUGMENTATION]
    changed = _method("Texture Bias", [one for one in augmented if one.dataset in textures])
    return [*methods, changed, _only_iid(evidence), _synthetic(augmented, synthetic), _multivariate(by_method)]


def _method(name: str, own: Sequence[Evidence]) -> Finding:
    if not own:
        return Finding(name, NOT_TESTED, "no pair of models on such a dataset")
    helped, harmed = ([one for one in own if one.verdict == verdict] for verdict in "+-")
    if helped:
        verdict = SUPPORTED if len(helped) == len(own) else MIXED
    else:
        verdict = CONTRADICTED if harmed else NO_EVIDENCE
    return Finding(name, verdict, "; ".join(f"{one.dataset} {one.verdict} ({one.gain:+.1f})" for one in own))


def _only_iid(evidence: Sequence[Evidence]) -> Finding:
    name, known = "Only IID Accuracy Matters", [(one.excess, one) for one in evidence if one.excess is not None]
    if not known:
        return Finding(name, NOT_TESTED, "no scores without shift")
    excess, most = max(known, key=lambda pair: (pair[1].verdict == "+", abs(pair[0])))
    reason = f"{most.hypothesis} on {most.dataset}: {excess:+.1f} beyond the reference, evidence {most.verdict}"
    if most.verdict == "+":
        return Finding(name, CONTRADICTED, reason)
    return Finding(name, SUPPORTED if abs(excess) < MARGIN else NO_EVIDENCE, reason)


def _synthetic(augmented: Sequence[Evidence], synthetic: Collection[str]) -> Finding:
    name = "Synthetic does not imply Natural"
    natural = [one for one in augmented if one.dataset not in synthetic]
    if not natural:
        return Finding(name, NOT_TESTED, "no augmentation on a natural shift")
    helped = [one.dataset for one in natural if one.verdict == "+"]
    if helped:
        return Finding(name, CONTRADICTED, f"augmentation helps on {listed(helped)}")
    trained = [one.dataset for one in augmented if one.dataset in synthetic and one.verdict == "+"]
    where = f"augmentation helps on {listed(trained) or 'no synthetic shift'}, on no natural one"
    return Finding(name, SUPPORTED if trained else NO_EVIDENCE, where)


def _multivariate(by_method: Mapping[str, Sequence[Evidence]]) -> Finding:
    name, several = "Multivariate", {method: own for method, own in by_method.items() if len(own) > 1}
    if not several:
        return Finding(name, NOT_TESTED, "no method on several datasets")
    everywhere = [method for method, own in several.items() if all(one.verdict == "+" for one in own)]
    if everywhere:
        return Finding(name, CONTRADICTED, f"{listed(everywhere)} helps on all datasets")
    somewhere = [method for method, own in several.items() if any(one.verdict == "+" for one in own)]
    reason = f"{listed(somewhere) or 'no method'} helps on some datasets, no method on all"
    return Finding(name, SUPPORTED if somewhere else NO_EVIDENCE, reason)
