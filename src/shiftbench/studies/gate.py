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
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from shiftbench.arrays import BoolArray, FloatArray, IntArray
from shiftbench.errors import ShiftbenchError, argument, listed
from shiftbench.io.schema import decode, read_toml
from shiftbench.metrics.calibration import equal_width_bins
from shiftbench.metrics.paired import Drop, aligned, holm
from shiftbench.runs.plan import PlannedResult, RunContext
from shiftbench.settings.base import DesignPart, Member
from shiftbench.shifts.corruptions.catalogue import CORRUPTIONS
from shiftbench.store.designs import part_specs
from shiftbench.store.predictions import Predictions, setting_rows
from shiftbench.store.spec import ResultSpec
from shiftbench.store.workspace import Result, Workspace

Verdict = Literal["pass", "fail", "not enough images"]
_BINS = 15


class GateError(ShiftbenchError):
    """Candidate and baseline can't be compared, or the policy does not fit them."""


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Numbers that must not drop by more than a margin."""

    #: clean: each setting without a shift; mean: over all shifted settings of a dataset; family: noise, blur, weather,
    #: digital and those that the policy names; corruption: each, over its severities; setting: each shifted setting;
    #: class, group: each class or group of images; calibration: the expected calibration error.
    of: Literal["clean", "mean", "family", "corruption", "setting", "class", "group", "calibration"]
    #: In points.
    margin: Annotated[float, Meta(gt=0, lt=100)]
    #: Patterns of names; of class, group and calibration by default the clean settings.
    only: tuple[str, ...] = ()
    #: Of groups: the column of the images' table.
    by: str = ""
    #: What an undecided number does: it blocks the gate, or is only reported.
    undecided: Literal["block", "allow"] = "block"

    @property
    def title(self) -> str:
        about = {"clean": "clean accuracy", "mean": "mean under shift", "family": "each corruption family",
                 "group": f"each {self.by}", "calibration": "calibration error"}  # fmt: skip
        return about.get(self.of, f"each {self.of}") + (f" ({', '.join(self.only)})" if self.only else "")


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a gate checks, and how sure it must be."""

    rule: tuple[Rule, ...]
    #: Probability of a false alarm, and of a false pass.
    alpha: Annotated[float, Meta(gt=0, lt=0.5)] = 0.05
    #: Of the number of images that is asked for.
    power: Annotated[float, Meta(ge=0.5, lt=1)] = 0.8
    #: Groups of settings under names of one's own: patterns of settings or corruptions.
    families: dict[str, tuple[str, ...]] = {}

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
        Rule("clean", 1.0), Rule("mean", 1.0), Rule("family", 2.0, undecided="allow"),
        Rule("corruption", 3.0, undecided="allow"), Rule("class", 10.0, undecided="allow"),
        Rule("calibration", 2.0, undecided="allow"),
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
    observations: Observations = field(default_factory=lambda: Observations(*[cast(Any, np.empty(0))] * 7))
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
        """Of the corruption: noise, blur, weather, digital, or another."""
        return CORRUPTIONS.get(self.corruption).group if self.corruption in CORRUPTIONS else ""

    def newly_wrong(self) -> list[str]:
        """Images that only the candidate gets wrong, the most confident mistakes first."""
        seen = self.observations
        rows = np.flatnonzero(seen.was_right & ~seen.is_right)
        return [str(self.ids[row]) for row in rows[np.argsort(-seen.confidence[rows], kind="stable")].tolist()]


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
    _check_settings([one.setting for one in results], [one.setting for one in judged], baseline)
    images: dict[tuple[str, str], int] = {}
    settings: list[GateSetting] = []
    notes: list[str] = []
    for result in judged:
        before = baseline[result.setting]
        check_same_images(result.setting, result.spec, before.spec)
        settings += _observed(workspace, result, before, images, set(columns), len(settings), notes)
    more = [name for name in baseline if name not in {result.setting for result in judged}]
    notes += [f"not judged, because the candidate was not evaluated in them: {listed(more)}"] if more else []
    others = [result.setting for result in results if not result.spec.judged_by_image]
    notes += [f"not judged, because images have no single label: {listed(others)}"] if others else []
    return settings, notes


def check_plan(
    context: RunContext,
    baseline: Mapping[str, Sequence[ResultSpec]] | None = None,
    policy: Policy | None = None,
    made: Mapping[str, Predictions] | None = None,
) -> None:
    """Refuse before anything is computed, not after hours, what no verdict is possible on.

    ``baseline`` holds its specs by setting, ``made`` its predictions, which may lack confidences.
    """
    unsure = {name for name, one in (made or {}).items() if np.isnan(one.confidence[one.valid]).any()}
    judged = [one for one in context.results if one.result.spec.judged_by_image]
    settings: list[GateSetting] = []
    for planned in judged:
        result, parts, data = planned.result, planned.setting.parts, context.datasets[planned.dataset]
        labels = setting_rows(data.labels, data.space, planned.space, data.label_sets).labels
        if len(classes := np.unique(labels[labels >= 0])) < 2:
            found = f"all images of {result.setting!r} are of one class"
            found = found if len(classes) else f"no image of {result.setting!r} has a label"
            raise GateError(found, expected="images of at least two classes")
        specs = [result.spec]
        if parts:
            own = [one.result for one in judged if one.setting.parts == parts]
            passes = [one for one in own if one.classifier == result.classifier]
            specs = part_specs(passes[0], parts, len(passes))
        for part, spec in zip(parts or [DesignPart(result.setting, planned.setting.member)], specs, strict=True):
            known = (baseline or {}).get(part.setting, ())
            if known and not any(is_comparable(spec, one) for one in known):
                check_same_images(part.setting, spec, known[0])
            one = _place(part.setting, part.member, spec)
            sure = part.setting not in unsure and _has_confidences(context, planned)
            settings.append(replace(one, groups=dict.fromkeys(data.metadata, np.empty(0)), confidences=sure))
    names = [one.name for one in settings]
    _check_settings([one.setting.name for one in context.results], names, names if baseline is None else baseline)
    if policy is not None:
        for rule in policy.rule:
            _scopes(rule, settings, policy)


def _has_confidences(context: RunContext, planned: PlannedResult) -> bool:
    recorded = context.classifiers[planned.result.classifier].recorded
    if recorded is None:
        return True
    found = recorded.lookup(context.datasets[planned.dataset].ids, planned.space)
    return not np.isnan(found.confidence[found.top[:, 0] >= 0]).any()


def _check_settings(given: Sequence[str], judged: Sequence[str], baseline: Collection[str]) -> None:
    if not judged:
        raise GateError("no setting has one label per image", found=listed(given))
    if missing := [name for name in dict.fromkeys(judged) if name not in baseline]:
        raise GateError(
            f"the baseline has no predictions for {len(missing)} of {len(set(judged))} settings",
            found=listed(list(baseline)),
            expected=listed(missing),
            hint="settings are named after the data's folder: use the baseline's data and options, or pin it again",
        )


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
    if new.classes != old.classes:
        yield "the label space is another", old.space, new.space
    if new.shift.values.get("assignment") != old.shift.values.get("assignment"):
        then, now = (one.shift.design if one.shift.designed else "design full" for one in (old, new))
        yield "the design is another, or assigns other images", then, now
    if new.shift != old.shift or new.source != old.source:
        both = [{**one.shift.values, "source": one.source} for one in (old, new)]
        differ = [key for key in {**both[0], **both[1]} if both[0].get(key) != both[1].get(key)]
        then, now = (", ".join(f"{key} {one.get(key)!s:.40}" for key in differ) for one in both)
        yield "the shift is another version", then, now


def _observed(
    workspace: Workspace, result: Result, before: Predictions, images: dict[tuple[str, str], int], columns: set[str],
    number: int, notes: list[str],
) -> Iterator[GateSetting]:  # fmt: skip
    """The setting with what both models did in it, unless a design's few images of it could not be read."""
    now = workspace.read(result, scores=False)
    order = aligned(now, before)
    both = now.valid & before.valid[order]
    if skipped := int((~both).sum()):
        notes.append(f"{result.setting}: {skipped} of {len(both)} images are left out (not readable, or no label)")
    if not both.any():
        if result.spec.shift.designed:
            return
        raise GateError(f"{result.setting!r} has no image with a label that both models could read")
    rows = np.flatnonzero(both)
    data = result.spec.dataset.fingerprint  # images of two datasets may have one name
    keys = [images.setdefault((data, now.ids[row]), len(images)) for row in rows.tolist()]
    seen = Observations(
        np.array(keys), np.full(len(rows), number), now.labels[rows].astype(np.int64),
        (before.top[order, 0] == before.labels[order])[rows], (now.top[:, 0] == now.labels)[rows],
        before.confidence[order][rows].astype(float), now.confidence[rows].astype(float),
    )  # fmt: skip
    table = workspace.columns_of(result.spec, now.ids) if columns else {}
    groups = {name: np.array(table[name], dtype=object)[rows] for name in columns & table.keys()}
    place = _place(result.setting, workspace.setting_record(result).member, result.spec)
    ids = np.array(now.ids, dtype=object)[rows]
    sure = not np.isnan(seen.confidence + seen.confidence_before).any()
    yield replace(place, observations=seen, groups=groups, classes=now.space.names, ids=ids, confidences=sure)


def _place(setting: str, member: Member | None, spec: ResultSpec) -> GateSetting:
    """The setting without what the models did in it."""
    grid, corruption = (member.family, member.name) if member else (setting, "")
    return GateSetting(setting, shifted=spec.reference is not None, grid=grid, corruption=corruption)


def judge(
    settings: Sequence[GateSetting], policy: Policy, candidate: str, baseline: str, notes: Sequence[str] = ()
) -> GateResult:
    """Apply a policy to both models in every setting; a rule that matches nothing is an error."""
    notes, judged = list(notes), []
    for rule in policy.rule:
        margin, drops = rule.margin / 100, list(_drops(rule, _scopes(rule, settings, policy)))
        if drops:
            checks = tuple(
                Check(name, drop, drop.p_within(margin), drop.p_beyond(margin), *drop.interval(policy.alpha))
                for name, drop in drops
            )
            judged.append(RuleResult(rule, checks, policy))
        else:  # of the default policy; other rules are refused
            notes.append(f"nothing to check for {rule.title!r}")
    if not judged:
        raise GateError("the policy has nothing to check")
    adjusted = holm([one.p_beyond for one in judged])
    rules = tuple(replace(one, p_holm=float(p)) for one, p in zip(judged, adjusted, strict=True))
    everything = Observations.join([one.observations for one in settings])
    return GateResult(candidate, baseline, rules, policy, settings, len(np.unique(everything.images)), tuple(notes))


def _drops(rule: Rule, scopes: Scopes) -> Iterator[tuple[str, Drop]]:
    """The numbers of a rule, by name."""
    for name, members in scopes.items():
        seen = Observations.join([one.observations for one in members])
        if rule.of == "calibration":
            yield name, seen.calibration_drop()
        elif rule.of == "class":
            for label in np.unique(seen.labels).tolist():
                yield f"{members[0].classes[label]} in {name}", seen[seen.labels == label].accuracy_drop()
        elif rule.of == "group":
            groups = np.concatenate([one.groups[rule.by] for one in members])
            for group in sorted(set(groups.tolist()), key=str):
                yield f"{group} in {name}", seen[groups == group].accuracy_drop()
        else:
            yield name, seen.accuracy_drop()


def _scopes(rule: Rule, settings: Sequence[GateSetting], policy: Policy) -> Scopes:
    """Refuses a rule that matches nothing."""

    def matching(names: Iterable[str], patterns: Sequence[str]) -> bool:
        return any(fnmatch.fnmatchcase(name, pattern) for name in names for pattern in patterns)

    by: dict[str, Scopes] = {kind: {} for kind in ("clean", "setting", "corruption", "family", "mean")}
    for one in settings:
        names = {"setting": one.name, "corruption": one.corruption, "family": one.family, "mean": one.grid}
        for kind, name in names.items() if one.shifted else [("clean", one.name)]:
            if name:
                by[kind].setdefault(name, []).append(one)
    for name, patterns in policy.families.items():
        by["family"][name] = [one for one in settings if matching((one.name, one.corruption), patterns)]
    everywhere = by["setting"] | by["family"] | by["mean"] | by["clean"]
    chosen = by.get(rule.of, everywhere if rule.only else by["clean"])
    found = {name: own for name, own in chosen.items() if own and (not rule.only or matching((name,), rule.only))}
    empty = [name for name, own in by["family"].items() if not own]
    strict = policy != DEFAULT_POLICY  # which is for any suite
    if (not found or empty) and strict:
        raise GateError(
            f"the family {empty[0]!r} has no settings" if empty else f"the rule {rule.title!r} matches nothing",
            found=f"settings {listed(list(dict.fromkeys(one.name for one in settings)), 8)}",
            hint=f"correct the policy, or evaluate a suite that has such settings: {argument('suite')}",
        )
    lacking = [one for own in found.values() for one in own if rule.of == "group" and rule.by not in one.groups]
    if lacking:
        raise GateError(
            f"the images of {lacking[0].name!r} have no column {rule.by!r}",
            found=listed(list(lacking[0].groups)) or "no columns",
            hint=f"columns are those of a manifest (.csv, .jsonl) given as {argument('data')}",
        )
    if rule.of == "calibration":
        found = {name: own for name, own in found.items() if all(one.confidences for one in own)}
        if not found and strict:
            why = "predictions without confidences, which were made elsewhere"
            raise GateError(f"nothing to check for {rule.title!r}", found=why, hint="leave the rule out")
    return found
