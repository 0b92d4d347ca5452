"""A gate: is a candidate worse than its predecessor, anywhere that matters?

Every rule of a policy names numbers (accuracy in a setting, under a corruption, of a class, ...) and a margin: the drop
that is accepted. A number fails if its drop is shown to be more than the margin, and passes if it is shown to be less.

- A false alarm: some rule fails, though no drop exceeds its margin. Its probability is at most alpha: Bonferroni over
  the numbers of a rule, Holm over the rules.
- A false pass: the gate passes, though some blocking number dropped by its margin or more. Its probability is at most
  alpha without a correction: the gate passes only if *every* test does, the wrong one included (intersection-union
  test, Berger 1982).
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from shiftbench.arrays import BoolArray, FloatArray, IntArray
from shiftbench.errors import ShiftbenchError, argument, listed
from shiftbench.io.schema import decode, read_toml
from shiftbench.jobs.base import Executor, Failure, Job
from shiftbench.jobs.progress import Advance
from shiftbench.metrics.calibration import equal_width_bins
from shiftbench.metrics.paired import Drop, aligned, holm
from shiftbench.runs.compute import Evaluation
from shiftbench.store.designs import is_designed, places_of
from shiftbench.store.predictions import Predictions, setting_rows
from shiftbench.store.spec import ResultSpec
from shiftbench.store.workspace import Result, Workspace

Verdict = Literal["pass", "fail", "not enough images"]
_BINS = 15


class GateError(ShiftbenchError):
    """Candidate and baseline can't be compared, or the policy does not fit them."""


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Numbers that must not drop by more than a margin."""

    #: clean: each setting without a shift; mean: each family of shifts; corruption: each, over its severities; setting:
    #: each shifted setting; class, group: each class or group; calibration: the expected calibration error.
    of: Literal["clean", "mean", "corruption", "setting", "class", "group", "calibration"]
    #: In points.
    margin: Annotated[float, Meta(gt=0, lt=100)]
    #: Patterns of settings, corruptions or families; of class, group and calibration by default the clean settings.
    only: tuple[str, ...] = ()
    #: Of groups: the column of the images' table.
    by: str = ""
    #: What an undecided number does: it blocks the gate, or is only reported.
    undecided: Literal["block", "allow"] = "block"

    @property
    def title(self) -> str:
        about = {"clean": "clean accuracy", "mean": "mean under shift", "calibration": "calibration error"}
        each = f"each {self.by}" if self.of == "group" else f"each {self.of}"
        return about.get(self.of, each) + (f" ({', '.join(self.only)})" if self.only else "")


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a gate checks, and how sure it must be."""

    rule: tuple[Rule, ...]
    #: Probability of a false alarm, and of a false pass.
    alpha: Annotated[float, Meta(gt=0, lt=0.5)] = 0.05
    #: Of the number of images that is asked for.
    power: Annotated[float, Meta(ge=0.5, lt=1)] = 0.8

    @classmethod
    def read(cls, path: Path) -> Policy:
        policy = decode(read_toml(path, GateError), cls, str(path), GateError)
        for rule in policy.rule:
            if (rule.of == "group") != bool(rule.by):
                raise GateError(f"{path}: a rule of groups, and no other, needs a column", found=f"by = {rule.by!r}")
        if not policy.rule:
            raise GateError(f"{path} has no rules", expected="at least one [[rule]]")
        return policy


DEFAULT_POLICY = Policy(
    (
        Rule("clean", 1.0), Rule("mean", 1.0), Rule("corruption", 3.0, undecided="allow"),
        Rule("class", 10.0, undecided="allow"), Rule("calibration", 2.0, undecided="allow"),
    )
)  # fmt: skip


@dataclass(frozen=True)
class Observations:
    """Both models on the same images of some settings: one entry per image and setting."""

    images: IntArray
    #: Setting of each entry.
    parts: IntArray
    labels: IntArray
    was_right: BoolArray
    is_right: BoolArray
    confidence_before: FloatArray
    confidence: FloatArray

    def __getitem__(self, chosen: BoolArray) -> Observations:
        return Observations(*(getattr(self, name)[chosen] for name in self.__dataclass_fields__))

    @classmethod
    def join(cls, several: Sequence[Observations]) -> Observations:
        return cls(*(np.concatenate([getattr(one, name) for one in several]) for name in cls.__dataclass_fields__))

    def accuracy_drop(self) -> Drop:
        return Drop.of(self.images, self.parts, self.was_right.astype(float) - self.is_right)

    def calibration_drop(self) -> Drop:
        """By how much the expected calibration error rose: a sum of what each image adds to the gap of its bin."""
        counts = np.bincount(self.parts)
        weights = 1 / (np.count_nonzero(counts) * counts[self.parts])

        def shares(confidence: FloatArray, right: BoolArray) -> FloatArray:
            """Their weighted sum is the expected calibration error over 15 bins of equal width."""
            bins, gaps = equal_width_bins(confidence, _BINS), confidence - right
            signs = np.sign(np.bincount(bins, weights * gaps, minlength=_BINS))
            return np.asarray(signs[bins] * gaps)

        before, now = shares(self.confidence_before, self.was_right), shares(self.confidence, self.is_right)
        return Drop.of(self.images, self.parts, now - before, 2.0)


@dataclass(frozen=True)
class GateSetting:
    """A setting that both models were evaluated in, on all images or on those that a design chose."""

    name: str
    observations: Observations
    #: Whether the images are shifted against a reference setting.
    shifted: bool = False
    family: str = ""
    corruption: str = ""
    #: Column to group of each observation.
    groups: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    classes: tuple[str, ...] = ()
    #: Name of the image of each observation.
    ids: NDArray[Any] = field(default_factory=lambda: np.empty(0, object))
    #: The setting that results are stored under: that of the design, if one chose the images.
    stored_as: str = ""

    def newly_wrong(self) -> list[str]:
        """Images that only the candidate gets wrong, the most confident mistakes first."""
        seen = self.observations
        rows = np.flatnonzero(seen.was_right & ~seen.is_right)
        return [str(self.ids[row]) for row in rows[np.argsort(-seen.confidence[rows], kind="stable")].tolist()]


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
    def blocks(self) -> bool:
        return self.verdict == "fail" or (self.verdict != "pass" and self.rule.undecided == "block")

    @cached_property
    def worst(self) -> Check:
        """The number that decided: of a failed rule the surest drop, else the one that is least sure to be within."""
        if self.verdict == "fail":
            return min(self.checks, key=lambda check: (check.p_beyond, -check.drop.value))
        return max(self.checks, key=lambda check: (check.p_within, check.drop.value))

    @property
    def failing(self) -> list[Check]:
        """Numbers that are beyond the margin after both corrections."""
        factor = len(self.checks) * self.p_holm / self.p_beyond if self.p_beyond else 1.0
        return [check for check in self.checks if factor * check.p_beyond <= self.policy.alpha]


@dataclass(frozen=True)
class GateResult:
    """The verdict on a candidate, rule by rule."""

    candidate: str
    baseline: str
    rules: tuple[RuleResult, ...]
    policy: Policy
    settings: Sequence[GateSetting]
    #: Number of images that both models were evaluated on.
    images: int
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        if any(rule.verdict == "fail" for rule in self.rules):
            return "fail"
        return "not enough images" if any(rule.blocks for rule in self.rules) else "pass"

    @property
    def images_needed(self) -> int:
        """For the undecided rules that block the gate."""
        return max((self.total_needed(rule) for rule in self.rules if rule.blocks), default=0)

    def total_needed(self, rule: RuleResult) -> int:
        """Images of the whole dataset for a decision on each number of a rule; 0 if it is decided."""
        if rule.verdict != "not enough images":
            return 0
        alpha, margin = self.policy.alpha, rule.rule.margin / 100
        strict = alpha / (len(rule.checks) * len(self.rules))
        needed = [
            # A class or a part of a design has only its share of the images.
            check.drop.images_needed(margin, alpha, strict, self.policy.power) * self.images / check.drop.n
            for check in rule.checks
            if check.p_within > alpha and check.drop.n
        ]
        return int(np.ceil(max(needed, default=0)))


def paired_settings(
    workspace: Workspace, results: Sequence[Result], baseline: Mapping[str, Predictions], columns: Iterable[str] = ()
) -> tuple[list[GateSetting], list[str]]:
    """The settings of the candidate's results beside the baseline's predictions, and notes on what is left out.

    ``baseline`` holds predictions by setting, ``columns`` those of the images' table that rules refer to. A baseline of
    other images, labels or shifts, or one that lacks a setting, is refused.
    """
    judged = [result for result in results if result.spec.judged_by_image]
    if not judged:
        raise GateError("no setting has one label per image", found=listed([one.setting for one in results]))
    missing = [result.setting for result in judged if result.setting not in baseline]
    if missing:
        raise GateError(
            f"the baseline has no predictions for {len(missing)} of {len(judged)} settings",
            found=listed(list(baseline)),
            expected=listed(missing),
            hint="evaluate the baseline with the same options, or pin it again",
        )
    found: dict[str, list[GateSetting]] = {}
    images: dict[tuple[str, str], int] = {}
    notes: list[str] = []
    for result in judged:
        check_same_images(result.setting, result.spec, baseline[result.setting].spec)
        for one in _settings(workspace, result, baseline[result.setting], images, set(columns), notes):
            found.setdefault(one.name, []).append(one)
    more = [name for name in baseline if name not in {result.setting for result in judged}]
    notes += [f"not judged, because the candidate was not evaluated in them: {listed(more)}"] if more else []
    others = [result.setting for result in results if not result.spec.judged_by_image]
    notes += [f"not judged, because images have no single label: {listed(others)}"] if others else []
    settings = []
    for place, passes in enumerate(found.values()):  # the passes of a design may have the same setting
        first, whole = passes[0], Observations.join([one.observations for one in passes])
        parts, groups = np.full(len(whole.images), place), {}
        for name in first.groups:
            groups[name] = np.concatenate([one.groups[name] for one in passes])
        ids = np.concatenate([one.ids for one in passes])
        settings.append(replace(first, observations=replace(whole, parts=parts), groups=groups, ids=ids))
    return settings, notes


class CheckedFirst(Executor):
    """Refuses data that no verdict is possible on before anything is computed, not after hours."""

    def __init__(self, executor: Executor, baseline: Mapping[str, Sequence[ResultSpec]]) -> None:
        self.executor, self.baseline = executor, baseline
        self.wanted_workers, self.kept = executor.wanted_workers, executor.kept  # type: ignore[method-assign]

    def run(self, job: Job[Any], items: Sequence[Any], advance: Advance) -> list[Failure]:
        assert isinstance(job, Evaluation)
        for planned in job.context.results:
            name, spec, data = planned.setting.name, planned.result.spec, job.context.datasets[planned.dataset]
            known = self.baseline.get(name, ())
            if not any(is_comparable(spec, one) for one in known):
                for one in known[:1]:
                    check_same_images(name, spec, one)
            if spec.judged_by_image:
                labels = setting_rows(data.labels, data.space, planned.space, data.label_sets).labels
                _check_classes(name, labels[labels >= 0])
        return self.executor.run(job, items, advance)


def _check_classes(setting: str, labels: NDArray[np.generic]) -> None:
    if len(np.unique(labels)) < 2:
        found = f"all images of {setting!r} are of one class" if len(labels) else f"no image of {setting!r} has a label"
        raise GateError(found, expected="images of at least two classes")


def check_same_images(setting: str, new: ResultSpec, old: ResultSpec) -> None:
    """Refuse a baseline of other images, labels or shifts: a difference would not be the model's."""
    if reason := next(_differences(new, old), None):
        why, then, now = reason
        raise GateError(
            f"the baseline does not fit {setting!r}: {why}",
            found=f"now {now}",
            expected=f"as in the baseline: {then}",
            hint="evaluate the baseline model on this data again (`shiftbench gate pin`)",
        )


def is_comparable(new: ResultSpec, old: ResultSpec) -> bool:
    """Whether two results are of the same images, labels and shifts."""
    return next(_differences(new, old), None) is None


def _differences(new: ResultSpec, old: ResultSpec) -> Iterator[tuple[str, str, str]]:
    """(what, before, now)."""
    if new.dataset.fingerprint != old.dataset.fingerprint or new.images != old.images:
        then, now = (f"{one.images:,} images, {one.dataset.fingerprint[:12]}" for one in (old, new))
        yield "the dataset has changed", then, now
    if new.space != old.space:
        yield "the label space is another", old.space, new.space
    if new.shift.values.get("assignment") != old.shift.values.get("assignment"):
        then, now = (one.shift.design if one.shift.designed else "design full" for one in (old, new))
        yield "the design is another, or assigns other images", then, now
    if new.shift != old.shift or new.source != old.source:
        both = [{**one.shift.values, "source": one.source} for one in (old, new)]
        differ = [key for key in {**both[0], **both[1]} if both[0].get(key) != both[1].get(key)]
        then, now = (", ".join(f"{key} {one.get(key)!s:.40}" for key in differ) for one in both)
        yield "the shift is another version", then, now


def _settings(
    workspace: Workspace, result: Result, before: Predictions, images: dict[tuple[str, str], int], columns: set[str],
    notes: list[str],
) -> Iterator[GateSetting]:  # fmt: skip
    now = workspace.read(result, scores=False)
    order = aligned(now, before)
    both = now.valid & before.valid[order]
    if not both.any():
        raise GateError(f"{result.setting!r} has no image with a label that both models could read")
    _check_classes(result.setting, now.labels[both])
    if skipped := int((~both).sum()):
        notes.append(f"{result.setting}: {skipped} of {len(both)} images are left out (not readable, or no label)")
    rows = np.flatnonzero(both)
    data = result.spec.dataset.fingerprint  # images of two datasets may have one name
    keys = [images.setdefault((data, now.ids[row]), len(images)) for row in rows.tolist()]
    seen = Observations(
        np.array(keys), np.zeros(len(rows), np.int64), now.labels[rows].astype(np.int64),
        (before.top[order, 0] == before.labels[order])[rows], (now.top[:, 0] == now.labels)[rows],
        before.confidence[order][rows].astype(float), now.confidence[rows].astype(float),
    )  # fmt: skip
    table = workspace.columns_of(result.spec) if columns else {}
    groups = {name: np.array(table[name], dtype=object)[rows] for name in columns & table.keys()}
    record, shifted = workspace.setting_record(result), result.spec.reference is not None
    family, name = (record.member.family, record.member.name) if record.member else ("", "")
    ids = np.array(now.ids, dtype=object)[rows]
    whole = GateSetting(
        result.setting, seen, shifted, family or result.setting, name, groups, now.space.names, ids, result.setting
    )
    if not is_designed(result):
        yield whole
        return
    places = places_of(workspace, result)[rows]
    for place, part in enumerate(record.parts):
        here = places == place
        family, name = (part.member.family, part.member.name) if part.member else (result.setting, "")
        own = {column: values[here] for column, values in groups.items()}
        found = replace(whole, name=part.setting, observations=seen[here], groups=own, ids=ids[here])
        yield replace(found, family=family, corruption=name)


def judge(
    settings: Sequence[GateSetting], policy: Policy, candidate: str, baseline: str, notes: Sequence[str] = ()
) -> GateResult:
    """Apply a policy to both models in every setting; a rule that matches nothing is an error."""
    notes, judged = list(notes), []
    for rule in policy.rule:
        margin, drops = rule.margin / 100, list(_drops(rule, settings))
        if drops:
            checks = tuple(
                Check(name, drop, drop.p_within(margin), drop.p_beyond(margin), *drop.interval(policy.alpha))
                for name, drop in drops
            )
            judged.append(RuleResult(rule, checks, policy))
        elif policy == DEFAULT_POLICY:  # it is for any suite
            notes.append(f"nothing to check for {rule.title!r}")
        else:
            raise GateError(
                f"the rule {rule.title!r} matches nothing",
                found=f"settings {listed([one.name for one in settings], 8)}",
                hint=f"correct the rule, or evaluate a suite that has such settings: {argument('suite')}",
            )
    if not judged:
        raise GateError("the policy has nothing to check")
    adjusted = holm([one.p_beyond for one in judged])
    rules = tuple(replace(one, p_holm=float(p)) for one, p in zip(judged, adjusted, strict=True))
    everything = Observations.join([one.observations for one in settings])
    return GateResult(candidate, baseline, rules, policy, settings, len(np.unique(everything.images)), tuple(notes))


def _drops(rule: Rule, settings: Sequence[GateSetting]) -> Iterator[tuple[str, Drop]]:
    """The numbers of a rule, by name."""
    for name, members in _scopes(rule, settings).items():
        seen = Observations.join([one.observations for one in members])
        if rule.of == "calibration":
            # Predictions that were made elsewhere may have none.
            if not np.isnan(seen.confidence + seen.confidence_before).any():
                yield name, seen.calibration_drop()
        elif rule.of == "class":
            for label in np.unique(seen.labels).tolist():
                yield f"{members[0].classes[label]} in {name}", seen[seen.labels == label].accuracy_drop()
        elif rule.of == "group":
            if lacking := [one for one in members if rule.by not in one.groups]:
                raise GateError(
                    f"the images of {lacking[0].name!r} have no column {rule.by!r}",
                    found=listed(list(lacking[0].groups)) or "no columns",
                    hint="columns are those of a manifest (.csv, .jsonl) given as --data",
                )
            groups = np.concatenate([one.groups[rule.by] for one in members])
            for group in sorted(set(groups.tolist()), key=str):
                yield f"{group} in {name}", seen[groups == group].accuracy_drop()
        else:
            yield name, seen.accuracy_drop()


def _scopes(rule: Rule, settings: Sequence[GateSetting]) -> dict[str, list[GateSetting]]:
    """Name to the settings that a rule takes together."""
    shifted = [one for one in settings if one.shifted]
    clean, single = {one.name: [one] for one in settings if not one.shifted}, {one.name: [one] for one in shifted}
    families: dict[str, list[GateSetting]] = {}
    corruptions: dict[str, list[GateSetting]] = {}
    for one in shifted:
        families.setdefault(one.family, []).append(one)
        if one.corruption:
            corruptions.setdefault(one.corruption, []).append(one)
    own = {"clean": clean, "mean": families, "corruption": corruptions, "setting": single}
    chosen = own.get(rule.of, {**single, **families, **clean} if rule.only else clean)
    return {
        name: members
        for name, members in chosen.items()
        if not rule.only or any(fnmatch.fnmatchcase(name, pattern) for pattern in rule.only)
    }
