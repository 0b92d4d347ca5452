"""A gate that evaluates a candidate in few cells of the grid: images under shifts that the baseline's confidence chose.

The baseline is known on the full grid, so that only the candidate's answers cost forward passes. Cells are drawn until
every blocking rule is decided or the limit is reached; bets hold at any time (``metrics.betting``), so that stopping
early is no look too many. The drop is that of all cells: the full grid on these images.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from msgspec import structs

from shiftbench.arrays import BoolArray, IntArray
from shiftbench.io.hashing import digest
from shiftbench.io.locks import file_lock
from shiftbench.metrics.betting import Drop
from shiftbench.metrics.cells import CellPool, DisagreementRates
from shiftbench.runs.cells import CellRunner
from shiftbench.runs.execute import AnsweredByPlanError
from shiftbench.runs.plan import PlannedResult, RunContext
from shiftbench.store.baseline import GateBaseline
from shiftbench.store.gate_looks import GateLooks, read_gate_looks
from shiftbench.store.predictions import SKIPPED, Predictions
from shiftbench.store.spec import canonical_json
from shiftbench.studies.gate import (
    Check,
    GateError,
    GateResult,
    GateSetting,
    Observations,
    Policy,
    Rule,
    Scopes,
    judged_result,
    place_of,
    rule_scopes,
)

#: Cells of each kind that are evaluated before the rules are looked at again.
_BLOCK = 64
#: The quantile of the normal distribution for an interval of 95 %.
_TWO_SIDED = 1.96


@dataclass(frozen=True)
class PassLimit:
    """How long a gate goes on: a number of forward passes of the candidate, or seconds, or both."""

    passes: int | None = None
    seconds: float | None = None


class CellsJudgedError(AnsweredByPlanError):
    """Ends a run whose verdict single cells have decided, in place of evaluating all images."""

    def __init__(self, result: GateResult) -> None:
        super().__init__("the gate was decided in single cells")
        self.result = result


@dataclass(frozen=True, eq=False)
class _Kind:
    """The clean or the shifted cells, and the draws of a gate among them."""

    name: str
    settings: Sequence[GateSetting]
    planned: Sequence[PlannedResult]
    #: For each setting, the row of the dataset of each of its cells.
    rows: Sequence[IntArray]
    rates: DisagreementRates
    seed: int
    #: For each cell, whether the first model of the series was right.
    first_right: BoolArray | None
    #: For each draw so far: whether the candidate was right, and whether the image could be read.
    right: list[bool] = field(default_factory=list)
    read: list[bool] = field(default_factory=list)

    @cached_property
    def pool(self) -> CellPool:
        together = Observations.join([setting.observations for setting in self.settings])
        sizes = [len(setting.observations.images) for setting in self.settings]
        numbers = np.repeat(np.arange(len(self.settings)), sizes)
        return CellPool(numbers, together.images, together.was_right, together.confidence_before)

    @cached_property
    def _first_cells(self) -> IntArray:
        sizes = [len(setting.observations.images) for setting in self.settings]
        return np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)

    @cached_property
    def labels(self) -> IntArray:
        return np.concatenate([setting.observations.labels for setting in self.settings])

    def cells(self, count: int) -> IntArray:
        return self.pool.drawn(self.rates, count, self.seed)

    def place(self, cell: int) -> tuple[int, int]:
        """The number of the setting of a cell, and its number within it."""
        setting = int(self.pool.settings[cell])
        return setting, cell - int(self._first_cells[setting])

    @property
    def image_error(self) -> str:
        """How much the mean over all cells of these images can differ from that of other images, at 95 %.

        The variance of an image's mean loss is at most the share of cells in which the models disagree.
        """
        images = np.unique(self.pool.images).size
        density = self.pool.densities(self.rates)[self.pool.bins[self.draws]]
        changed = self.pool.was_right[self.draws] != self.is_right
        share = (float((changed / density).sum()) + 1) / (len(changed) + 1)
        return f"{100 * _TWO_SIDED * math.sqrt(share / images):.1f} points ({self.name})"

    @property
    def draws(self) -> IntArray:
        """The cells that were drawn so far and could be read."""
        return np.asarray(self.cells(len(self.read))[np.array(self.read, bool)])

    @property
    def is_right(self) -> BoolArray:
        return np.asarray(np.array(self.right, bool)[np.array(self.read, bool)])


@dataclass(frozen=True, eq=False)
class CellGate:
    """One gate on cells: its rules, what was drawn, and what the candidate answered."""

    context: RunContext
    baseline: Mapping[str, Predictions]
    policy: Policy
    limit: PassLimit
    baseline_id: str
    #: The first model of the baseline's series, if there is one.
    first: GateBaseline | None = None

    def judge(self) -> GateResult:
        """Evaluate until every blocking rule is decided or the limit is reached."""
        runner = CellRunner(self.context, next(iter(self.context.classifiers.values())))
        runner.check(self._planned)
        workspace = self.context.workspace
        with file_lock(workspace.lock_path(f"gate-{self._looks.key}"), wait=True):
            stored = [looks for looks in read_gate_looks(workspace) if looks.key == self._looks.key]
            looks = stored[0] if stored else self._looks
            kinds = self._kinds(looks)
            began = time.monotonic()
            drawn_before = sum(looks.draws.values())
            for kind in kinds:
                self._advance(kind, looks, runner, looks.draws.get(kind.name, 0))
            while pending := self._pending(kinds):
                left = self._left(looks, began, drawn_before)
                if left <= 0:
                    break
                share = max(1, min(_BLOCK, left // len(pending)))
                for kind in pending[:left]:
                    self._advance(kind, looks, runner, share)
                    looks.draws[kind.name] = len(kind.read)
                looks.write(workspace)
            for kind in kinds:
                counts = kind.pool.seen(kind.draws, kind.is_right)
                looks.counts[kind.name] = [counts.seen.tolist(), counts.changed.tolist()]
            result = self._result(kinds, looks)
            looks.verdict = result.verdict
            looks.write(workspace)
        return result

    # -- what is drawn -----------------------------------------------------------------------------------

    @cached_property
    def _planned(self) -> list[PlannedResult]:
        return [planned for planned in self.context.results if planned.result.spec.judged_by_image]

    @cached_property
    def _looks(self) -> GateLooks:
        """The looks of a candidate that the workspace does not know: its rates are those of earlier candidates."""
        first = self._planned[0].result
        parts: list[object] = []
        for name in sorted(self.baseline):
            predictions = self.baseline[name]
            parts += [name, predictions.spec.key, np.ascontiguousarray(predictions.top[:, 0]).tobytes()]
        content = {key: value for key, value in first.spec.classifier.values.items() if key != "classifier"}
        looks = GateLooks(digest(*parts), digest(canonical_json(content)), first.model_id, self.policy.seed)
        rates: dict[str, DisagreementRates] = {}
        for other in read_gate_looks(self.context.workspace):
            if other.baseline != looks.baseline or other.candidate == looks.candidate:
                continue
            for name, (seen, changed) in other.counts.items():
                so_far = rates.get(name, DisagreementRates.unknown())
                rates[name] = so_far + DisagreementRates(np.array(seen), np.array(changed))
        for name, learnt in rates.items():
            looks.rates[name] = [learnt.seen.tolist(), learnt.changed.tolist()]
        return looks

    def _kinds(self, looks: GateLooks) -> list[_Kind]:
        kinds = []
        for name, shifted in (("clean", False), ("shifted", True)):
            planned = [entry for entry in self._planned if entry.setting.shifted is shifted]
            if not planned:
                continue
            before = [
                _baseline_setting(self.context, entry, self.baseline, number) for number, entry in enumerate(planned)
            ]
            rates = DisagreementRates.unknown()
            if name in looks.rates:
                seen, changed = looks.rates[name]
                rates = DisagreementRates(np.array(seen), np.array(changed))
            seed = int(digest(looks.baseline, looks.seed, name), 16)
            settings = [setting for setting, _ in before]
            rows = [rows_of_setting for _, rows_of_setting in before]
            kinds.append(_Kind(name, settings, planned, rows, rates, seed, self._first_right(settings)))
        return kinds

    def _first_right(self, settings: Sequence[GateSetting]) -> BoolArray | None:
        """For each cell, whether the first model of the series was right; an image that it lacks counts as wrong."""
        if self.first is None:
            return None
        columns = []
        for setting in settings:
            before = self.first.predictions[setting.name]
            right = dict(zip(before.ids, (before.top[:, 0] == before.labels).tolist(), strict=True))
            columns.append(np.array([right.get(image, False) for image in setting.ids.tolist()], bool))
        return np.concatenate(columns)

    def _advance(self, kind: _Kind, looks: GateLooks, runner: CellRunner, count: int) -> None:
        """Evaluate the next draws of a kind; cells that the workspace knows cost nothing."""
        start = len(kind.read)
        places = [kind.place(cell) for cell in kind.cells(start + count)[start:].tolist()]
        missing: dict[tuple[int, int], None] = {}
        for setting, position in places:
            image = str(kind.settings[setting].ids[position])
            if image not in looks.answers.get(kind.settings[setting].name, {}):
                missing[setting, position] = None
        asked = [(kind.planned[setting], int(kind.rows[setting][position])) for setting, position in missing]
        for (setting, position), answer in zip(missing, runner.answers(asked), strict=True):
            of_setting = looks.answers.setdefault(kind.settings[setting].name, {})
            of_setting[str(kind.settings[setting].ids[position])] = (answer.top, answer.confidence)
        for setting, position in places:
            before = kind.settings[setting]
            top, _ = looks.answers[before.name][str(before.ids[position])]
            kind.read.append(top != SKIPPED)
            kind.right.append(top == int(before.observations.labels[position]))

    def _left(self, looks: GateLooks, began: float, drawn_before: int) -> int:
        """How many draws the limit still allows."""
        drawn = sum(looks.draws.values())
        limits = []
        if self.limit.passes is not None:
            limits.append(self.limit.passes - drawn)
        if self.limit.seconds is not None:
            elapsed = time.monotonic() - began
            new = drawn - drawn_before
            in_time = 2 * _BLOCK if not new else (self.limit.seconds - elapsed) * new / max(elapsed, 1e-9)
            limits.append(int(in_time))
        return min(limits)

    # -- what it shows -----------------------------------------------------------------------------------

    def _pending(self, kinds: Sequence[_Kind]) -> list[_Kind]:
        """The kinds of cells that blocking rules still need; none if a rule has failed."""
        pending = []
        for kind in kinds:
            undecided = False
            for rule in self.policy.rule:
                if rule.undecided == "allow":
                    continue
                drops = [drop for _, drop in self._drops(rule, kind)]
                corrected_alpha = self.policy.alpha / max(len(drops) * len(self.policy.rule), 1)
                if any(drop.p_beyond(drop.margin) <= corrected_alpha for drop in drops):
                    return []
                undecided |= any(drop.p_within(drop.margin) > self.policy.alpha for drop in drops)
            if undecided:
                pending.append(kind)
        return pending

    def _result(self, kinds: Sequence[_Kind], looks: GateLooks) -> GateResult:
        notes: list[str] = []
        judged: list[tuple[Rule, list[Check]]] = []
        for rule in self.policy.rule:
            checks = []
            for kind in kinds:
                checks += [Check.of(name, drop, self.policy) for name, drop in self._drops(rule, kind)]
            if checks:
                judged.append((rule, checks))
            else:
                notes.append(f"nothing to check for {rule.title!r}")
        if self.first is not None:
            judged += self._since(self.first.model, kinds)
        passes = sum(len(kind.read) for kind in kinds)
        unreadable = sum(len(kind.read) - sum(kind.read) for kind in kinds)
        if unreadable:
            notes.append(f"{unreadable} of {passes:,} cells are left out (not readable)")
        cells = sum(len(kind.pool) for kind in kinds)
        notes.append(
            f"{passes:,} of {cells:,} cells (images under shifts) were drawn, most where the baseline was least sure; "
            "the verdict is about the full grid on these images. For new images like these, a drop may differ by up to "
            + " and ".join(kind.image_error for kind in kinds)
        )
        seeds = self._other_seeds(looks)
        if seeds:
            notes.append(
                f"the workspace also holds this candidate in cells of seed {', '.join(map(str, seeds))}: each verdict "
                "alone is wrong with a probability of at most alpha, the better of several is not"
            )
        settings = [setting for kind in kinds for setting in _evaluated(kind, looks)]
        candidate = self._planned[0].result.model_id
        result = judged_result(judged, self.policy, candidate, self.baseline_id, settings, passes, notes)
        images = max(np.unique(kind.pool.images).size for kind in kinds)
        return replace(result, grid_images=images)

    def _other_seeds(self, looks: GateLooks) -> list[int]:
        """Seeds of other draws of cells in which this candidate was compared with this baseline."""
        seeds = set()
        for other in read_gate_looks(self.context.workspace):
            if (other.baseline, other.candidate) == (looks.baseline, looks.candidate):
                seeds.add(other.seed)
        return sorted(seeds - {looks.seed})

    def _since(self, model: str, kinds: Sequence[_Kind]) -> Iterator[tuple[Rule, list[Check]]]:
        """The blocking rules, applied to the first model of the series."""
        for rule in self.policy.rule:
            if rule.undecided == "allow":
                continue
            checks = []
            for kind in kinds:
                drops = self._drops(rule, kind, kind.first_right)
                checks += [Check.of(name, drop, self.policy) for name, drop in drops]
            if checks:
                yield structs.replace(rule, undecided="allow", since=model), checks

    def _drops(self, rule: Rule, kind: _Kind, was_right: BoolArray | None = None) -> Iterator[tuple[str, Drop]]:
        """The numbers of a rule that are about this kind of cells."""
        if rule.of == "calibration":
            return
        numbers = {setting.name: number for number, setting in enumerate(kind.settings)}
        for name, members in self._scopes[rule].items():
            if not all(member.name in numbers for member in members):
                continue
            among = np.isin(kind.pool.settings, [numbers[member.name] for member in members])
            for title, subset in _subsets(rule, kind, name, among):
                margin = rule.margin / 100
                yield title, kind.pool.drop(subset, kind.draws, kind.is_right, kind.rates, margin, was_right)

    @cached_property
    def _scopes(self) -> Mapping[Rule, Scopes]:
        """By rule, the settings of each of its numbers."""
        settings = [setting for kind in self._kinds(self._looks) for setting in kind.settings]
        return {rule: rule_scopes(rule, settings, self.policy) for rule in self.policy.rule}


def check_cells(context: RunContext, policy: Policy) -> None:
    """Refuse what cells can't decide: a design, or a rule of calibration that blocks."""
    if any(planned.setting.parts for planned in context.results):
        raise GateError(
            "cells can be chosen only by a baseline of the full grid",
            found="a baseline of a design",
            hint="pin it again on the full grid",
        )
    if any(rule.of == "calibration" and rule.undecided == "block" for rule in policy.rule):
        raise GateError(
            "single cells can't decide a rule of calibration",
            hint='set undecided = "allow" for this rule, or evaluate all images',
        )


def _subsets(rule: Rule, kind: _Kind, name: str, among: BoolArray) -> Iterator[tuple[str, BoolArray]]:
    """The cells of each number of a rule in one scope, by the number's name."""
    if rule.of == "class":
        classes = kind.settings[0].classes
        for label in np.unique(kind.labels[among]).tolist():
            yield f"{classes[label]} in {name}", among & (kind.labels == label)
    elif rule.of == "group":
        groups = np.concatenate([setting.groups[rule.by] for setting in kind.settings])
        for group in sorted(set(groups[among].tolist()), key=str):
            yield f"{group} in {name}", among & (groups == group)
    else:
        yield name, among


def _baseline_setting(
    context: RunContext, planned: PlannedResult, baseline: Mapping[str, Predictions], number: int
) -> tuple[GateSetting, IntArray]:
    """A setting with what the baseline did in it, and the row of the dataset of each of its images."""
    dataset = context.datasets[planned.dataset]
    before = baseline[planned.setting.name]
    row_of_image = {image_id: row for row, image_id in enumerate(dataset.ids)}
    valid = np.flatnonzero(before.valid)
    ids = np.array(before.ids, dtype=object)[valid]
    rows = np.array([row_of_image[image_id] for image_id in ids.tolist()], np.int64)
    was_right = before.top[valid, 0] == before.labels[valid]
    confidence = np.nan_to_num(before.confidence[valid].astype(float))
    observations = Observations(
        images=rows,
        parts=np.full(len(rows), number),
        labels=before.labels[valid].astype(np.int64),
        was_right=was_right,
        is_right=was_right,
        confidence_before=confidence,
        confidence=confidence,
    )
    groups = {name: np.array(column, dtype=object)[rows] for name, column in dataset.metadata.items()}
    setting = replace(
        place_of(planned.setting.name, planned.setting.member, planned.result.spec),
        observations=observations,
        groups=groups,
        classes=before.space.names,
        ids=ids,
    )
    return setting, rows


def _evaluated(kind: _Kind, looks: GateLooks) -> Iterator[GateSetting]:
    """The settings with the cells in which the candidate was evaluated."""
    for setting in kind.settings:
        answers = looks.answers.get(setting.name, {})
        asked = np.array([answers.get(str(name), (SKIPPED, 0.0))[0] != SKIPPED for name in setting.ids.tolist()], bool)
        if not asked.any():
            continue
        observations = setting.observations[asked]
        ids = setting.ids[asked]
        answers_in_order = [answers[str(name)] for name in ids.tolist()]
        top = np.array([answer[0] for answer in answers_in_order])
        confidence = np.array([answer[1] for answer in answers_in_order])
        observed = replace(observations, is_right=top == observations.labels, confidence=confidence)
        groups = {name: column[asked] for name, column in setting.groups.items()}
        yield replace(setting, observations=observed, groups=groups, ids=ids)
