"""A gate: is a candidate worse than its predecessor, anywhere that matters?

Every rule of a policy names numbers (accuracy in a setting, under a corruption, of a class, ...) and a margin: the drop
that is accepted. A number fails if its drop is shown to be more than the margin, and passes if it is shown to be less.

Both are shown by betting (``metrics.betting``), so that a verdict holds however often one looks: a gate may be repeated
with more images until it is decided.

- A false alarm: some rule fails, though no drop exceeds its margin. Its probability is at most alpha: Bonferroni over
  the numbers of a rule, Holm over the rules.
- A false pass: the gate passes, though some blocking number dropped by its margin or more. Its probability is at most
  alpha without a correction: the gate passes only if *every* test does, the wrong one included (intersection-union
  test, Berger 1982).
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta, structs
from numpy.typing import NDArray

from shiftbench.arrays import BoolArray, FloatArray, IntArray
from shiftbench.classifiers.base import Classifier
from shiftbench.errors import ShiftbenchError, argument, listed
from shiftbench.io.hashing import seeded_rank
from shiftbench.io.schema import decode, read_toml
from shiftbench.metrics.betting import Drop
from shiftbench.metrics.calibration import equal_width_bins
from shiftbench.metrics.paired import aligned, holm
from shiftbench.runs.plan import PlannedResult, RunContext
from shiftbench.settings.base import DesignPart, Member
from shiftbench.shifts.corruptions.catalogue import CORRUPTIONS
from shiftbench.store.designs import part_specs
from shiftbench.store.predictions import Predictions, setting_rows
from shiftbench.store.spec import ClassifierRecord, ResultSpec, canonical_json
from shiftbench.store.workspace import Result, Workspace
from shiftbench.studies.gate_power import (
    PlannedNumber,
    images_to_fail,
    images_to_pass,
    planned_numbers,
    smallest_margin,
)

Verdict = Literal["pass", "fail", "not enough images", "identical"]
#: Bins of the expected calibration error.
_BINS = 15


class GateError(ShiftbenchError):
    """Candidate and baseline can't be compared, or the policy does not fit them."""


class IdenticalModelsError(GateError):
    """The candidate is the baseline itself, so that nothing can be compared.

    Attributes:
        candidate: Id of the candidate.
        baseline: Id of the baseline.
    """

    def __init__(self, candidate: str, baseline: str) -> None:
        super().__init__(
            f"{candidate} is identical to the baseline {baseline}",
            hint="check which file is given as the candidate, and which one as the baseline",
        )
        self.candidate = candidate
        self.baseline = baseline


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Numbers that must not drop by more than a margin."""

    #: clean: each setting without a shift; mean: over all shifted settings of a dataset; family: noise, blur, weather,
    #: digital and those that the policy names; corruption: each, over its severities; setting: each shifted setting;
    #: class, group: each class or group of images; calibration: the expected calibration error.
    of: Literal["clean", "mean", "family", "corruption", "setting", "class", "group", "calibration"]
    #: In points.
    margin: Annotated[float, Meta(gt=0, lt=100)]
    #: Patterns of names; rules of classes, groups and calibration are about the clean settings by default.
    only: tuple[str, ...] = ()
    #: The column of the images' table that a rule of groups is about.
    by: str = ""
    #: What an undecided number does: it blocks the gate, or is only reported.
    undecided: Literal["block", "allow"] = "block"
    #: The model that it compares with, if that is not the baseline but the first one of its series; not in policies.
    since: str = ""

    @property
    def title(self) -> str:
        titles = {
            "clean": "clean accuracy",
            "mean": "mean under shift",
            "family": "each corruption family",
            "group": f"each {self.by}",
            "calibration": "calibration error",
        }
        title = titles.get(self.of, f"each {self.of}")
        if self.only:
            title += f" ({', '.join(self.only)})"
        return f"{title} since {self.since}" if self.since else title


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a gate checks, and how sure it must be."""

    rule: tuple[Rule, ...]
    #: Probability of a false alarm, and of a false pass.
    alpha: Annotated[float, Meta(gt=0, lt=0.5)] = 0.05
    #: Probability of a decision with the number of images that is reported as needed.
    power: Annotated[float, Meta(ge=0.5, lt=1)] = 0.8
    #: Groups of settings under the policy's own names: patterns of settings or corruptions.
    families: dict[str, tuple[str, ...]] = {}
    #: Of the cells that a gate with a limit of forward passes draws: part of the policy, so that nobody can choose it.
    seed: int = 0

    @classmethod
    def read(cls, path: Path) -> Policy:
        policy = decode(read_toml(path, GateError), cls, str(path), GateError)
        for rule in policy.rule:
            if (rule.of == "group") != bool(rule.by):
                raise GateError(f"{path}: a rule of groups, and no other, needs a column", found=f"by = {rule.by!r}")
            if rule.since:
                raise GateError(f"{path}: a rule can't name a model", found=f"since = {rule.since!r}")
        if not policy.rule:
            raise GateError(f"{path} has no rules", expected="at least one [[rule]]")
        return policy


DEFAULT_POLICY = Policy(
    (
        Rule("clean", 2.0),
        Rule("mean", 2.0),
        Rule("family", 3.0, undecided="allow"),
        Rule("corruption", 5.0, undecided="allow"),
        Rule("class", 10.0, undecided="allow"),
        Rule("calibration", 2.0, undecided="allow"),
    )
)


@dataclass(frozen=True)
class Observations:
    """Both models on the same images of some settings: one entry per image and setting."""

    #: Number of the image of each entry: images are bet on in this order.
    images: IntArray
    #: Setting of each entry.
    parts: IntArray
    labels: IntArray
    was_right: BoolArray
    is_right: BoolArray
    confidence_before: FloatArray
    confidence: FloatArray

    def __getitem__(self, mask: BoolArray) -> Observations:
        return Observations(*(getattr(self, name)[mask] for name in self.__dataclass_fields__))

    @classmethod
    def join(cls, observations: Sequence[Observations]) -> Observations:
        def column(name: str) -> Any:
            return np.concatenate([getattr(entry, name) for entry in observations])

        return cls(*(column(name) for name in cls.__dataclass_fields__))

    @classmethod
    def empty(cls) -> Observations:
        nothing: Any = np.empty(0)
        return cls(*[nothing] * len(cls.__dataclass_fields__))

    def accuracy_drop(self, margin: float) -> Drop:
        return Drop.of(self.images, self.parts, self.was_right.astype(float) - self.is_right, margin)

    def calibration_drop(self, margin: float) -> Drop:
        """By how much the expected calibration error rose: a sum of what each image adds to the gap of its bin."""
        counts = np.bincount(self.parts)
        weights = 1 / (np.count_nonzero(counts) * counts[self.parts])

        def shares(confidence: FloatArray, right: BoolArray) -> FloatArray:
            """Their weighted sum is the expected calibration error over 15 bins of equal width."""
            bins = equal_width_bins(confidence, _BINS)
            gaps = confidence - right
            signs = np.sign(np.bincount(bins, weights * gaps, minlength=_BINS))
            return np.asarray(signs[bins] * gaps)

        rise = shares(self.confidence, self.is_right) - shares(self.confidence_before, self.was_right)
        return Drop.of(self.images, self.parts, rise, margin, 2.0)


@dataclass(frozen=True)
class GateSetting:
    """A setting that both models were evaluated in, on all images or on those that a design chose."""

    name: str
    observations: Observations = field(default_factory=Observations.empty)
    #: Whether the images are shifted against a reference setting.
    shifted: bool = False
    #: What the settings of one dataset under many shifts have in common: ``imagenet-c``.
    grid: str = ""
    corruption: str = ""
    #: Column to group of each observation.
    groups: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    classes: tuple[str, ...] = ()
    #: Name of the image of each observation.
    ids: NDArray[Any] = field(default_factory=lambda: np.empty(0, object))
    #: Whether both models have confidences; predictions that were made elsewhere may have none.
    confidences: bool = True

    @property
    def family(self) -> str:
        """The family of the corruption: noise, blur, weather, digital, or another."""
        return CORRUPTIONS.get(self.corruption).group if self.corruption in CORRUPTIONS else ""

    def newly_wrong(self) -> list[str]:
        """Images that only the candidate gets wrong, the most confident mistakes first."""
        observations = self.observations
        rows = np.flatnonzero(observations.was_right & ~observations.is_right)
        by_confidence = rows[np.argsort(-observations.confidence[rows], kind="stable")]
        return [str(self.ids[row]) for row in by_confidence.tolist()]


#: By name, the settings that a rule takes together.
Scopes = dict[str, list[GateSetting]]


@dataclass(frozen=True)
class Check:
    """One number of a rule."""

    name: str
    drop: Drop
    p_within: float
    p_beyond: float
    #: Ends of the interval that has the level 1 - 2 alpha.
    low: float
    high: float

    @classmethod
    def of(cls, name: str, drop: Drop, policy: Policy) -> Check:
        low, high = drop.interval(policy.alpha)
        return cls(name, drop, drop.p_within(drop.margin), drop.p_beyond(drop.margin), low, high)


@dataclass(frozen=True)
class RuleResult:
    """A rule with the tests of its numbers."""

    rule: Rule
    checks: tuple[Check, ...]
    policy: Policy
    #: Corrected for the other rules.
    p_holm: float = 1.0

    @property
    def p_beyond(self) -> float:
        return min(1.0, len(self.checks) * min(check.p_beyond for check in self.checks))

    @property
    def verdict(self) -> Verdict:
        if self.p_holm <= self.policy.alpha:
            return "fail"
        within = all(check.p_within <= self.policy.alpha for check in self.checks)
        return "pass" if within else "not enough images"

    @property
    def undecided(self) -> bool:
        return self.verdict == "not enough images"

    @property
    def blocks(self) -> bool:
        return self.verdict == "fail" or (self.undecided and self.rule.undecided == "block")

    @cached_property
    def worst(self) -> Check:
        """The number that decided: of a failed rule the surest drop, else the one that is least sure to be within."""
        if self.verdict == "fail":
            return min(self.checks, key=lambda check: (check.p_beyond, -check.drop.value))
        return max(self.checks, key=lambda check: (check.p_within, check.drop.value))

    @property
    def possible_loss(self) -> float:
        """The largest loss that the intervals of its numbers leave possible, as a fraction; 0 if none does."""
        return max(0.0, *(check.high for check in self.checks))

    @property
    def failing(self) -> list[Check]:
        """Numbers that are beyond the margin after both corrections."""
        factor = len(self.checks) * self.p_holm / self.p_beyond if self.p_beyond else 1.0
        return [check for check in self.checks if factor * check.p_beyond <= self.policy.alpha]

    def planned(self, images: int) -> list[PlannedNumber]:
        """Its numbers in a future gate; ``images`` is the present size of the dataset."""
        return planned_numbers([check.drop for check in self.checks], images)


@dataclass(frozen=True)
class ImagesNeeded:
    """Size of the dataset with which undecided rules pass with the policy's power."""

    images: int
    #: The assumption: the true drops are those observed. Otherwise the candidate is as good as the baseline.
    if_as_observed: bool = False


@dataclass(frozen=True)
class GateResult:
    """The verdict on a candidate, rule by rule; without rules, the candidate is the baseline itself."""

    candidate: str
    baseline: str
    rules: tuple[RuleResult, ...]
    policy: Policy
    settings: Sequence[GateSetting]
    #: Number of images that both models were evaluated on.
    images: int
    notes: tuple[str, ...] = ()
    #: Of a gate that drew single cells: the number of images of the grid, which the verdict is about. ``images`` then
    #: counts the cells that were drawn, each a forward pass of its own.
    grid_images: int = 0

    @classmethod
    def of_identical_models(cls, error: IdenticalModelsError, policy: Policy) -> GateResult:
        return cls(error.candidate, error.baseline, (), policy, (), 0)

    @property
    def in_passes(self) -> bool:
        """Whether ``images`` counts forward passes in single cells."""
        return self.grid_images > 0

    @property
    def counted(self) -> str:
        """What ``images`` counts."""
        return "forward passes" if self.in_passes else "images"

    @property
    def verdict(self) -> Verdict:
        if not self.rules:
            return "identical"
        if any(rule.verdict == "fail" for rule in self.rules):
            return "fail"
        return "not enough images" if any(rule.blocks for rule in self.rules) else "pass"

    @property
    def undecided(self) -> list[RuleResult]:
        """The rules that are undecided, whether they block the gate or not."""
        return [rule for rule in self.rules if rule.undecided]

    @property
    def needed(self) -> ImagesNeeded:
        """What it takes to pass all rules that may not stay undecided; 0 images unless one of them is."""
        if self.verdict != "not enough images":
            return ImagesNeeded(0)
        return self._needed([rule for rule in self.rules if rule.rule.undecided == "block"])

    @property
    def images_needed(self) -> int:
        return self.needed.images

    def needed_by(self, rule: RuleResult) -> ImagesNeeded:
        """What it takes to pass one rule; 0 images if it is decided."""
        return self._needed([rule]) if rule.undecided else ImagesNeeded(0)

    def total_needed(self, rule: RuleResult) -> int:
        return self.needed_by(rule).images

    def needed_to_fail(self, rule: RuleResult) -> int:
        """Size of the dataset with which a drop of twice the margin in any one number fails the rule with the policy's
        power; 0 if the rule is decided."""
        numbers = rule.planned(self.images)
        if not rule.undecided or not numbers:
            return 0
        corrected_alpha = self.policy.alpha / (len(rule.checks) * len(self.rules))
        return images_to_fail(numbers, corrected_alpha, self.policy.power)

    @property
    def passes_per_image(self) -> float:
        """Forward passes of the candidate for each image, as the design of this gate has it."""
        if self.in_passes:
            return 1.0
        passes = sum(len(setting.observations.images) for setting in self.settings)
        return passes / max(self.images, 1)

    def passes_needed(self, needed: ImagesNeeded) -> int:
        """Forward passes of the candidate on the images that are needed."""
        return round(needed.images * self.passes_per_image)

    def decidable_margin(self, rule: RuleResult) -> float:
        """The smallest margin, as a fraction, within which an equal candidate is shown by images like these.

        With the policy's power; nan for a rule without images.
        """
        numbers = rule.planned(self.images)
        if not numbers:
            return math.nan
        return smallest_margin(numbers, self.policy.alpha, self.policy.power, self.images)

    def _needed(self, rules: Sequence[RuleResult]) -> ImagesNeeded:
        """The images on which a candidate passes these rules with the policy's power.

        The candidate is taken for one that is equal to the baseline or, if such a one would have passed on the present
        images already, for one that goes on as it did so far.
        """
        numbers = list(chain.from_iterable(rule.planned(self.images) for rule in rules))
        if not numbers:
            return ImagesNeeded(0)
        alpha = self.policy.alpha
        images = images_to_pass(numbers, alpha, self.policy.power)
        if images > self.images:
            return ImagesNeeded(images)
        checks = chain.from_iterable(rule.checks for rule in rules)
        undecided = {check.drop for check in checks if check.p_within > alpha}
        observed = [number.as_observed() if number.drop in undecided else number for number in numbers]
        images = images_to_pass(observed, alpha, self.policy.power)
        return ImagesNeeded(max(images, self.images), if_as_observed=True)


def paired_settings(
    workspace: Workspace, results: Sequence[Result], baseline: Mapping[str, Predictions], columns: Iterable[str] = ()
) -> tuple[list[GateSetting], list[str]]:
    """The settings of the candidate's results beside the baseline's predictions, and notes on what is left out.

    ``baseline`` holds predictions by setting, ``columns`` those of the images' table that rules refer to. A baseline of
    other images, labels or shifts, or one that lacks a setting, is refused.
    """
    judged = [result for result in results if result.spec.judged_by_image]
    judged_names = [result.setting for result in judged]
    _check_settings([result.setting for result in results], judged_names, baseline)
    earlier = _earlier_results(workspace, judged)
    pairing = _Pairing(workspace, frozenset(columns), _image_numbers(workspace, judged, earlier))
    settings: list[GateSetting] = []
    for result in judged:
        before = baseline[result.setting]
        check_same_images(result.setting, result.spec, before.spec)
        setting = pairing.observed(result, before, len(settings))
        if setting is not None:
            settings.append(setting)
    notes = pairing.notes + _notes_on_other_draws(judged, earlier) + _notes_on_other_samples(workspace, judged, earlier)
    not_evaluated = [name for name in baseline if name not in judged_names]
    if not_evaluated:
        notes.append(f"not judged, because the candidate was not evaluated in them: {listed(not_evaluated)}")
    without_label = [result.setting for result in results if not result.spec.judged_by_image]
    if without_label:
        notes.append(f"not judged, because images have no single label: {listed(without_label)}")
    return settings, notes


def _earlier_results(workspace: Workspace, results: Sequence[Result]) -> list[Result]:
    """What else the workspace holds of the candidate: what earlier gates have looked at."""
    candidates = {result.classifier for result in results}
    versions = [result.spec.classifier for result in results]
    names = {result.spec.dataset.name for result in results}
    return [
        stored
        for stored in workspace.results(candidates)
        if stored.spec.classifier in versions and stored.spec.dataset.name in names
    ]


def _image_numbers(
    workspace: Workspace, results: Sequence[Result], earlier: Iterable[Result]
) -> dict[tuple[str, str], int]:
    """The place of each image in the order of the bets, by fingerprint of its dataset and id.

    Images of earlier gates come first, in the order in which datasets grew, then new ones; those of one gate in an
    order that their ids alone decide. Evidence from before is thus continued, not computed anew in another order.
    """
    looks: dict[str, dict[str, int]] = {}
    datasets = {(stored.spec.dataset.name, stored.spec.dataset.fingerprint) for stored in earlier}
    records = [workspace.dataset(name, fingerprint) for name, fingerprint in sorted(datasets)]
    for look, record in enumerate(sorted(records, key=lambda record: len(record.ids))):
        first_looks = looks.setdefault(record.name, {})
        for image_id in record.ids:
            first_looks.setdefault(image_id, look)
    keys = []
    for name, fingerprint in dict.fromkeys(
        (result.spec.dataset.name, result.spec.dataset.fingerprint) for result in results
    ):
        first_looks = looks.get(name, {})
        for image_id in workspace.dataset(name, fingerprint).ids:
            look = first_looks.get(image_id, len(records))
            keys.append((look, seeded_rank("gate", image_id), fingerprint, image_id))
    return {(fingerprint, image_id): place for place, (_, _, fingerprint, image_id) in enumerate(sorted(keys))}


def _notes_on_other_draws(results: Sequence[Result], earlier: Iterable[Result]) -> list[str]:
    """A note if the candidate was evaluated on the same images with another seed, so that a verdict could be chosen."""
    fingerprints = {result.spec.dataset.fingerprint for result in results}
    draws = {_draw(result.spec) for result in results if result.spec.reference is not None}
    others = {
        _draw(stored.spec)
        for stored in earlier
        if stored.spec.reference is not None and stored.spec.dataset.fingerprint in fingerprints
    }
    more = sorted(others - draws)
    if not draws or not more:
        return []
    seeds = listed([str(seed) for seed in more])
    return [
        f"the workspace also holds this candidate under shifts of seed {seeds}: each verdict alone is wrong with a "
        "probability of at most alpha, the better of several is not"
    ]


def _notes_on_other_samples(workspace: Workspace, results: Sequence[Result], earlier: Iterable[Result]) -> list[str]:
    """A note for each dataset of which the candidate was evaluated on another sample, for the same reason.

    A sample that contains the other one is no other choice: it is the same gate with more images.
    """
    judged = {result.spec.dataset for result in results}
    others = {stored.spec.dataset for stored in earlier} - judged
    notes = []
    for dataset in sorted(judged, key=lambda dataset: (dataset.name, dataset.fingerprint)):
        image_ids = set(workspace.dataset(dataset.name, dataset.fingerprint).ids)
        other_samples = [
            set(workspace.dataset(other.name, other.fingerprint).ids) for other in others if other.name == dataset.name
        ]
        if any(not (image_ids <= sample or sample <= image_ids) for sample in other_samples):
            notes.append(
                f"the workspace also holds this candidate on another sample of {dataset.name!r}: each verdict alone is "
                "wrong with a probability of at most alpha, the better of several is not"
            )
    return notes


def _draw(spec: ResultSpec) -> int:
    """The seed of a shift."""
    return spec.shift.seed


def check_plan(
    context: RunContext,
    baseline: Mapping[str, Sequence[ResultSpec]] | None = None,
    policy: Policy | None = None,
    made: Mapping[str, Predictions] | None = None,
) -> None:
    """Refuse before anything is computed, not after hours, what no verdict is possible on.

    ``baseline`` holds its specs by setting, ``made`` its predictions, which may lack confidences.
    """
    without_confidence = {name for name, predictions in (made or {}).items() if not _all_confident(predictions)}
    judged = [planned for planned in context.results if planned.result.spec.judged_by_image]
    settings: list[GateSetting] = []
    for planned in judged:
        _check_labels(context, planned)
        dataset = context.datasets[planned.dataset]
        groups = dict.fromkeys(dataset.metadata, np.empty(0))
        candidate_sure = _has_confidences(context, planned)
        for covered, spec in _planned_parts(planned, judged):
            _check_baseline_spec(covered.setting, spec, (baseline or {}).get(covered.setting, ()))
            sure = candidate_sure and covered.setting not in without_confidence
            settings.append(replace(place_of(covered.setting, covered.member, spec), groups=groups, confidences=sure))
    names = [setting.name for setting in settings]
    all_names = [planned.setting.name for planned in context.results]
    _check_settings(all_names, names, names if baseline is None else baseline)
    if policy is not None:
        for rule in policy.rule:
            rule_scopes(rule, settings, policy)


def check_not_identical(context: RunContext, stored: Iterable[ResultSpec] = (), stored_id: str = "") -> None:
    """Refuse a candidate that is the baseline itself: the same content and preprocessing, whatever its name.

    Most often the wrong file was given. Models that may read something else when they are called, such as Python
    functions and servers, are compared all the same, unless both are one and the same model of this run.

    Args:
        context: The candidate, and the baseline unless that is stored.
        stored: Specs of a stored baseline.
        stored_id: Its id.
    """
    candidate, *baselines = context.classifiers.values()
    first = next(planned.result for planned in context.results if planned.result.classifier == candidate.name)
    if stored_id:
        if _is_covered(candidate) and any(_same_content(first.spec.classifier, spec.classifier) for spec in stored):
            raise IdenticalModelsError(first.model_id, stored_id)
        return
    if not baselines:
        raise IdenticalModelsError(first.model_id, first.model_id)
    second = next(planned.result for planned in context.results if planned.result.classifier == baselines[0].name)
    if _is_covered(candidate) and _same_content(first.spec.classifier, second.spec.classifier):
        raise IdenticalModelsError(first.model_id, second.model_id)


def _is_covered(classifier: Classifier) -> bool:
    """Whether the fingerprint covers all that decides the answers."""
    return classifier.self_contained or classifier.recorded is not None


def _same_content(first: ClassifierRecord, second: ClassifierRecord) -> bool:
    def content(record: ClassifierRecord) -> str:
        return canonical_json({key: value for key, value in record.values.items() if key != "classifier"})

    return content(first) == content(second)


def _check_labels(context: RunContext, planned: PlannedResult) -> None:
    dataset = context.datasets[planned.dataset]
    labels = setting_rows(dataset.labels, dataset.space, planned.space, dataset.label_sets).labels
    classes = np.unique(labels[labels >= 0])
    setting = planned.result.setting
    if len(classes) == 0:
        raise GateError(f"no image of {setting!r} has a label", expected="images of at least two classes")
    if len(classes) == 1:
        raise GateError(f"all images of {setting!r} are of one class", expected="images of at least two classes")


def _planned_parts(planned: PlannedResult, judged: Sequence[PlannedResult]) -> Iterator[tuple[DesignPart, ResultSpec]]:
    """The settings that a result covers: its own, or those among which a design distributes the images."""
    result = planned.result
    parts = planned.setting.parts
    if not parts:
        yield DesignPart(result.setting, planned.setting.member), result.spec
        return
    of_model = [entry for entry in judged if entry.result.classifier == result.classifier]
    passes = [entry.result for entry in of_model if entry.setting.parts == parts]
    yield from zip(parts, part_specs(passes[0], parts, len(passes)), strict=True)


def _check_baseline_spec(setting: str, spec: ResultSpec, stored: Sequence[ResultSpec]) -> None:
    """A workspace may hold several results of a setting; one of them must be of the same images and shifts."""
    if stored and not any(is_comparable(spec, stored_spec) for stored_spec in stored):
        check_same_images(setting, spec, stored[0])


def _all_confident(predictions: Predictions) -> bool:
    """Whether every valid prediction has a confidence."""
    return not np.isnan(predictions.confidence[predictions.valid]).any()


def _has_confidences(context: RunContext, planned: PlannedResult) -> bool:
    recorded = context.classifiers[planned.result.classifier].recorded
    if recorded is None:
        return True
    answers = recorded.lookup(context.datasets[planned.dataset].ids, planned.space)
    return not np.isnan(answers.confidence[answers.top[:, 0] >= 0]).any()


def _check_settings(evaluated: Sequence[str], judged: Sequence[str], baseline: Collection[str]) -> None:
    if not judged:
        raise GateError("no setting has one label per image", found=listed(evaluated))
    missing = [name for name in dict.fromkeys(judged) if name not in baseline]
    if missing:
        raise GateError(
            f"the baseline has no predictions for {len(missing)} of {len(set(judged))} settings",
            found=listed(list(baseline)),
            expected=listed(missing),
            hint="settings are named after the data's folder: use the baseline's data and options, or pin it again",
        )


@dataclass(frozen=True)
class _Difference:
    """Why two results can't be compared."""

    reason: str
    before: str
    now: str


def check_same_images(setting: str, new: ResultSpec, old: ResultSpec) -> None:
    """Refuse a baseline of other images, labels or shifts: a difference would not be the model's."""
    difference = next(_differences(new, old), None)
    if difference is not None:
        raise GateError(
            f"the baseline does not fit {setting!r}: {difference.reason}",
            found=f"now {difference.now}",
            expected=f"as in the baseline: {difference.before}",
            hint="evaluate the baseline model on this data again (`shiftbench gate pin`)",
        )


def is_comparable(new: ResultSpec, old: ResultSpec) -> bool:
    """Whether two results are of the same images, labels and shifts."""
    return next(_differences(new, old), None) is None


def _differences(new: ResultSpec, old: ResultSpec) -> Iterator[_Difference]:
    if new.dataset.fingerprint != old.dataset.fingerprint or new.images != old.images:
        yield _Difference("the dataset has changed", _dataset_text(old), _dataset_text(new))
    if new.classes != old.classes:
        yield _Difference("the label space is another", old.space, new.space)
    if new.shift.values.get("assignment") != old.shift.values.get("assignment"):
        yield _Difference("the design is another, or assigns other images", _design_text(old), _design_text(new))
    if new.shift != old.shift or new.source != old.source:
        old_values = {**old.shift.values, "source": old.source}
        new_values = {**new.shift.values, "source": new.source}
        keys = [key for key in {**old_values, **new_values} if old_values.get(key) != new_values.get(key)]
        texts = (_values_text(old_values, keys), _values_text(new_values, keys))
        yield _Difference("the shift is another version", *texts)


def _dataset_text(spec: ResultSpec) -> str:
    return f"{spec.images:,} images, {spec.dataset.fingerprint[:12]}"


def _design_text(spec: ResultSpec) -> str:
    return spec.shift.design if spec.shift.designed else "design full"


def _values_text(values: Mapping[str, object], keys: Iterable[str]) -> str:
    return ", ".join(f"{key} {values.get(key)!s:.40}" for key in keys)


class _Pairing:
    """Puts the candidate's predictions beside the baseline's, setting by setting."""

    def __init__(
        self, workspace: Workspace, columns: frozenset[str], image_numbers: Mapping[tuple[str, str], int]
    ) -> None:
        self.workspace = workspace
        #: Columns of the images' table that rules refer to.
        self.columns = columns
        self.notes: list[str] = []
        #: Number of each image, by fingerprint of the dataset and id: images of two datasets may have one name.
        self._images = image_numbers

    def observed(self, result: Result, before: Predictions, number: int) -> GateSetting | None:
        """The setting with what both models did in it; None if a design's few images of it could not be read."""
        predictions = self.workspace.read(result, scores=False)
        order = aligned(predictions, before)
        both = predictions.valid & before.valid[order]
        skipped = int((~both).sum())
        if skipped:
            text = f"{result.setting}: {skipped} of {len(both)} images are left out (not readable, or no label)"
            self.notes.append(text)
        if not both.any():
            if result.spec.shift.designed:
                return None
            raise GateError(f"{result.setting!r} has no image with a label that both models could read")
        rows = np.flatnonzero(both)
        was_right = before.top[order, 0] == before.labels[order]
        is_right = predictions.top[:, 0] == predictions.labels
        observations = Observations(
            images=self._numbers(result.spec.dataset.fingerprint, predictions.ids, rows),
            parts=np.full(len(rows), number),
            labels=predictions.labels[rows].astype(np.int64),
            was_right=was_right[rows],
            is_right=is_right[rows],
            confidence_before=before.confidence[order][rows].astype(float),
            confidence=predictions.confidence[rows].astype(float),
        )
        member = self.workspace.setting_record(result).member
        return replace(
            place_of(result.setting, member, result.spec),
            observations=observations,
            groups=self._groups(result.spec, predictions.ids, rows),
            classes=predictions.space.names,
            ids=np.array(predictions.ids, dtype=object)[rows],
            confidences=not np.isnan(observations.confidence + observations.confidence_before).any(),
        )

    def _numbers(self, dataset: str, ids: Sequence[str], rows: NDArray[np.intp]) -> IntArray:
        return np.array([self._images[dataset, ids[row]] for row in rows.tolist()])

    def _groups(self, spec: ResultSpec, ids: Sequence[str], rows: NDArray[np.intp]) -> dict[str, NDArray[Any]]:
        if not self.columns:
            return {}
        table = self.workspace.columns_of(spec, ids)
        return {name: np.array(table[name], dtype=object)[rows] for name in self.columns & table.keys()}


def place_of(setting: str, member: Member | None, spec: ResultSpec) -> GateSetting:
    """The setting without what the models did in it."""
    shifted = spec.reference is not None
    if member is None:
        return GateSetting(setting, shifted=shifted, grid=setting)
    return GateSetting(setting, shifted=shifted, grid=member.family, corruption=member.name)


@dataclass(frozen=True)
class FirstOfSeries:
    """The first model of a series of baselines, with what the candidate did beside it."""

    model: str
    settings: Sequence[GateSetting]


def judge(
    settings: Sequence[GateSetting],
    policy: Policy,
    candidate: str,
    baseline: str,
    notes: Sequence[str] = (),
    since: FirstOfSeries | None = None,
) -> GateResult:
    """Apply a policy to both models in every setting; a rule that matches nothing is an error.

    The blocking rules are also applied to the first model of a series: they can fail the gate, so that many small
    losses are noticed, but a pass is about the last model alone.
    """
    notes = list(notes)
    judged = []
    for rule in policy.rule:
        checks = list(_checks(rule, settings, policy))
        if checks:
            judged.append((rule, checks))
        else:  # a rule of the default policy; other rules are refused
            notes.append(f"nothing to check for {rule.title!r}")
    everything = Observations.join([setting.observations for setting in settings])
    images = len(np.unique(everything.images))
    if since is not None:
        for rule in policy.rule:
            if rule.undecided == "block":
                of_first = structs.replace(rule, undecided="allow", since=since.model)
                judged.append((of_first, list(_checks(of_first, since.settings, policy))))
    return judged_result(judged, policy, candidate, baseline, settings, images, notes)


def judged_result(
    judged: Sequence[tuple[Rule, Sequence[Check]]],
    policy: Policy,
    candidate: str,
    baseline: str,
    settings: Sequence[GateSetting],
    images: int,
    notes: Sequence[str],
) -> GateResult:
    """The verdict on all rules together, from the tests of their numbers."""
    if not judged:
        raise GateError("the policy has nothing to check")
    results = [RuleResult(rule, tuple(checks), policy) for rule, checks in judged]
    adjusted = holm([result.p_beyond for result in results])
    rules = tuple(replace(result, p_holm=float(p)) for result, p in zip(results, adjusted, strict=True))
    return GateResult(candidate, baseline, rules, policy, settings, images, tuple(notes))


def judge_by_default_policy(
    workspace: Workspace, candidate: Sequence[Result], baseline: Sequence[Result], policy: Policy = DEFAULT_POLICY
) -> GateResult:
    """The verdict of a policy, by default the default one, on the results of two models of a workspace."""
    predictions = {result.setting: workspace.read(result, top_k=1, scores=False) for result in baseline}
    settings, notes = paired_settings(workspace, candidate, predictions)
    return judge(settings, policy, candidate[0].title, baseline[0].title, notes)


def _checks(rule: Rule, settings: Sequence[GateSetting], policy: Policy) -> Iterator[Check]:
    for name, drop in _drops(rule, rule_scopes(rule, settings, policy)):
        yield Check.of(name, drop, policy)


def _drops(rule: Rule, scopes: Scopes) -> Iterator[tuple[str, Drop]]:
    """The numbers of a rule, by name."""
    margin = rule.margin / 100
    for name, members in scopes.items():
        observations = Observations.join([setting.observations for setting in members])
        if rule.of == "calibration":
            yield name, observations.calibration_drop(margin)
        elif rule.of == "class":
            for label in np.unique(observations.labels).tolist():
                of_class = observations[observations.labels == label]
                yield f"{members[0].classes[label]} in {name}", of_class.accuracy_drop(margin)
        elif rule.of == "group":
            groups = np.concatenate([setting.groups[rule.by] for setting in members])
            for group in sorted(set(groups.tolist()), key=str):
                yield f"{group} in {name}", observations[groups == group].accuracy_drop(margin)
        else:
            yield name, observations.accuracy_drop(margin)


def rule_scopes(rule: Rule, settings: Sequence[GateSetting], policy: Policy) -> Scopes:
    """The settings of each number of a rule; refuses a rule that matches nothing."""
    by_kind = _scopes_by_kind(settings, policy)
    if rule.of in by_kind:
        candidates = by_kind[rule.of]
    elif rule.only:
        candidates = by_kind["setting"] | by_kind["family"] | by_kind["mean"] | by_kind["clean"]
    else:
        candidates = by_kind["clean"]
    scopes: Scopes = {}
    for name, members in candidates.items():
        if members and (not rule.only or _matches(name, rule.only)):
            scopes[name] = members
    is_default = policy == DEFAULT_POLICY  # which is for any suite, so that some of its rules may match nothing
    empty_families = [name for name, members in by_kind["family"].items() if not members]
    if (not scopes or empty_families) and not is_default:
        problem = f"the rule {rule.title!r} matches nothing"
        if empty_families:
            problem = f"the family {empty_families[0]!r} has no settings"
        raise GateError(
            problem,
            found=f"settings {listed(list(dict.fromkeys(setting.name for setting in settings)), 8)}",
            hint=f"correct the policy, or evaluate a suite that has such settings: {argument('suite')}",
        )
    if rule.of == "group":
        _check_column(rule, scopes)
    if rule.of == "calibration":
        return _with_confidences(rule, scopes, is_default)
    return scopes


def _scopes_by_kind(settings: Sequence[GateSetting], policy: Policy) -> dict[str, Scopes]:
    by_kind: dict[str, Scopes] = {kind: {} for kind in ("clean", "setting", "corruption", "family", "mean")}
    for setting in settings:
        names = {"clean": setting.name}
        if setting.shifted:
            names = {
                "setting": setting.name,
                "corruption": setting.corruption,
                "family": setting.family,
                "mean": setting.grid,
            }
        for kind, name in names.items():
            if name:
                by_kind[kind].setdefault(name, []).append(setting)
    for name, patterns in policy.families.items():
        by_kind["family"][name] = [setting for setting in settings if _in_family(setting, patterns)]
    return by_kind


def _in_family(setting: GateSetting, patterns: Sequence[str]) -> bool:
    return _matches(setting.name, patterns) or _matches(setting.corruption, patterns)


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _check_column(rule: Rule, scopes: Scopes) -> None:
    for members in scopes.values():
        for setting in members:
            if rule.by not in setting.groups:
                raise GateError(
                    f"the images of {setting.name!r} have no column {rule.by!r}",
                    found=listed(list(setting.groups)) or "no columns",
                    hint=f"columns are those of a manifest (.csv, .jsonl) given as {argument('data')}",
                )


def _with_confidences(rule: Rule, scopes: Scopes, is_default: bool) -> Scopes:
    """Those in which both models have confidences."""
    sure: Scopes = {}
    for name, members in scopes.items():
        if all(setting.confidences for setting in members):
            sure[name] = members
    if not sure and not is_default:
        raise GateError(
            f"nothing to check for {rule.title!r}",
            found="predictions without confidences, which were made elsewhere",
            hint="leave the rule out",
        )
    return sure
