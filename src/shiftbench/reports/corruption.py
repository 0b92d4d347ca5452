"""Families of corrupted settings and perturbation sequences of a run: corruption errors and flips, with intervals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from shiftbench.errors import SettingError, StoreError, argument, listed
from shiftbench.grouping import by_key
from shiftbench.labels.catalogue import label_space
from shiftbench.metrics.base import Score, metrics
from shiftbench.metrics.bootstrap import RESAMPLES, percentile_interval, resampled_means
from shiftbench.metrics.corruption import ALEXNET, Baseline
from shiftbench.metrics.corruption_scores import CorruptionScores, Grid, averaged_types, corruption_scores
from shiftbench.metrics.flips import flip_probability, flips_by_clip, stack_frames, top5_distance
from shiftbench.reports.scores import Entries, score_table
from shiftbench.reports.table import Table
from shiftbench.runs.results import StoredResults
from shiftbench.shifts.corruptions.catalogue import corruptions
from shiftbench.store.predictions import Predictions
from shiftbench.store.workspace import Result, Workspace

#: A corruption at a severity.
Place = tuple[str, int]
#: Photographs that are blurred by nature: their error is shown beside the mean of the synthetic blurs (000, table 5).
_REAL_BLUR = "real-blurry-images"
#: (model, scores, predictions on clean images).
ScoredModels = list[tuple[str, CorruptionScores, Predictions | None]]
#: The families of ImageNet-C, whose released files the published mCE is over.
_PUBLISHED = ("imagenet-c", "imagenet-c_on-disk")


@dataclass(frozen=True)
class FamilyResults:
    """One family of corrupted settings of a run: its members, and the setting without corruption they refer to."""

    run: StoredResults
    name: str
    places: Mapping[Place, str]
    members: Sequence[Result]

    @property
    def corruptions(self) -> tuple[str, ...]:
        names = {corruption for corruption, _ in self.places}
        ordered = [name for name in corruptions("all") if name in names]
        return (*ordered, *sorted(names.difference(ordered)))

    @property
    def severities(self) -> tuple[int, ...]:
        return tuple(sorted({severity for _, severity in self.places}))

    @property
    def clean(self) -> str | None:
        return self.members[0].spec.reference

    def divisor(self, baseline: str | None = None) -> str | Baseline | None:
        """The model that is named, or the published AlexNet errors, which are over ImageNet's classes and some
        corruptions; else nothing."""
        if baseline or not set(averaged_types(self.corruptions)) <= set(ALEXNET.errors):
            return baseline
        classes = set(label_space("imagenet-1k").keys)
        spaces = {result.spec.space for result in self.members}
        over_imagenet = all(set(self.run.workspace.space(space).keys) <= classes for space in spaces)
        return ALEXNET if over_imagenet else None

    def comparability(self, divisor: str | Baseline | None) -> list[str]:
        """The papers' mCE is over the released files; anything else must not be read as if it were."""
        released = all(result.spec.source == "on-disk" for result in self.members)
        if divisor is not ALEXNET or (released and self.name in _PUBLISHED):
            return []
        same_images = self.name in (*_PUBLISHED, "imagenet-c_in-memory")
        how = "corrupted in memory, not the released files" if same_images else "other images"
        return [f"not comparable with mCE as published: {how}"]

    def grids(self) -> dict[str, dict[Place, Predictions]]:
        """By model: the predictions under each corruption and severity."""
        places = {setting: place for place, setting in self.places.items()}
        return self._predictions((places[one.setting], one) for one in self.members)

    def _predictions(self, results: Iterable[tuple[Place, Result]]) -> dict[str, dict[Place, Predictions]]:
        found: dict[str, dict[Place, Predictions]] = {}
        for place, result in results:
            row = found.setdefault(result.title, {})
            read = self.run.workspace.read(result, top_k=1, confidence=False, scores=False)
            if place in row:
                raise SettingError(
                    f"{read.classifier!r} has several results of different provenance in {read.setting!r}",
                    found=f"{row[place].provenance!r} and {read.provenance!r}",
                    hint="use a workspace of one seed and one source, or choose the results from Python",
                )
            row[place] = read
        return found

    def scores(self, baseline: str | Baseline | None, *, level: float, paired: bool = True) -> ScoredModels:
        """Of every model; without ``paired`` from corrupted images alone, so that nothing is relative to clean ones."""
        grids = self.grids()
        cleans = [one for one in self.run.results if paired and one.setting == self.clean and one.title in grids]
        clean_of = {name: own["", 0] for name, own in self._predictions((("", 0), one) for one in cleans).items()}
        divisor: Baseline | Grid | None
        divisor = grids.get(baseline) if isinstance(baseline, str) else baseline
        if isinstance(baseline, str) and divisor is None:
            raise SettingError(f"the baseline {baseline!r} was not evaluated", expected=f"one of {', '.join(grids)}")

        def same_images(name: str) -> Predictions | None:
            """Released arrays name their images otherwise than a user's own clean set: no rise over it is known."""
            shifted, clean = next(iter(grids[name].values())), clean_of.get(name)
            own, ids = set(shifted.ids), set(clean.ids) if clean is not None else set()
            return clean if own == ids or (shifted.spec.shift.designed and own < ids) else None

        base = same_images(baseline) if isinstance(baseline, str) else None
        found = []
        for name, grid in grids.items():
            scores = corruption_scores(grid, same_images(name), baseline=divisor, baseline_clean=base, level=level)
            found.append((name, scores, clean_of.get(name)))
        return found


def corruption_families(run: StoredResults) -> dict[str, FamilyResults]:
    """The families of a run by name. Only whole severities have published errors, and a family."""
    places: dict[str, dict[Place, str]] = {}
    members: dict[str, list[Result]] = {}
    for result in run.results:
        member = run.workspace.setting_record(result).member
        if member is not None and result.spec.shift.frame is None and member.level.is_integer():
            places.setdefault(member.family, {})[member.name, int(member.level)] = result.setting
            members.setdefault(member.family, []).append(result)
    return {name: FamilyResults(run, name, places[name], members[name]) for name in places}


def results_corruption_table(
    results: StoredResults,
    family: str | None = None,
    *,
    baseline: str | None = None,
    relative: bool = False,
    level: float = 0.95,
) -> Table:
    """Of every model the clean error, mCE, relative mCE, mean error, and CE of every type; see
    ``Run.corruption_table``."""
    known = corruption_families(results)
    chosen = [one for one in known.values() if family in (None, one.name)]
    if not chosen:
        raise StoreError(
            "no corrupted settings to compute corruption errors from" if family is None else f"no family {family!r}",
            found=f"families: {', '.join(known) or 'none'}",
            hint="evaluate a suite such as imagenet-c or corruptions",
        )
    entries: dict[tuple[str, str, Score], None] = {}
    remarks: list[str] = []
    for one in chosen:
        divisor, within = one.divisor(baseline), f"{one.name}." if len(chosen) > 1 else ""
        for name, scores, clean in one.scores(divisor, level=level):
            if clean is not None:
                entries[name, clean.setting, metrics.get("error")(clean, level=level)] = None
            entries |= {(name, one.name, score): None for score in scores.summary()}
            kinds = scores.relative_ce if relative else {**scores.error, **scores.ce}
            if not kinds:
                raise SettingError(
                    "relative corruption error needs the clean setting and a model to divide by",
                    hint=f"evaluate the reference setting on the same images, or drop {argument('relative', True)}",
                )
            shown = {**kinds, **({} if relative else scores.groups)}
            entries |= {(name, f"{within}{corruption}", score): None for corruption, score in shown.items()}
        remarks += [f"{one.name}: {note}" if within else note for note in one.comparability(divisor)]
    for result in results.results:
        if result.setting == _REAL_BLUR and not relative:
            score = metrics.get("error")(results.workspace.read(result), level=level)
            entries[result.title, result.setting, score] = None
    title = f"{', '.join(one.name for one in chosen)}: corruption errors"
    return score_table(list(entries), title=title, remarks=remarks)


def on_one_axis(scored: ScoredModels) -> tuple[ScoredModels, tuple[str, ...]]:
    """The models with the most corruptions and severities, whose means may share an axis, and a note on the others."""
    extents = {title: (set(scores.corruptions), scores.severities) for title, scores, _ in scored}
    most = max(extents.values(), key=lambda one: len(one[0]) * len(one[1]))
    lost = [title for title, extent in extents.items() if extent != most]
    note = f"not shown, evaluated under other corruptions or severities: {listed(lost)}"
    return [one for one in scored if one[0] not in lost], (note,) if lost else ()


def accuracy_of(error: Score) -> Score:
    """A score of errors as one of accuracies; the estimate of a design from few images can lie beyond 0 or 1."""
    name, value = error.metric.replace("error", "accuracy"), float(np.clip(1 - error.value, 0.0, 1.0))
    low, high = 1 - error.high, 1 - error.low
    return replace(error, metric=name, value=value, low=low, high=high, higher_is_better=True)


def perturbation_families(run: StoredResults) -> dict[str, list[Result]]:
    """Family to its results: all frames of all sequences."""
    frames = [one for one in run.results if one.spec.shift.frame is not None]
    members = ((run.workspace.setting_record(one).member, one) for one in frames)
    return by_key((member.family, one) for member, one in members if member is not None)


def flip_entries(run: StoredResults, family: str, level: float) -> Entries:
    """Of every model the flip probability and top-5 distance of every perturbation, and the mean flips.

    Flip probabilities are not divided by AlexNet's: dividing needs a baseline on the same images.
    """
    sequences: dict[str, dict[str, list[Result]]] = {}
    for result in perturbation_families(run).get(family, ()):
        sequences.setdefault(result.title, {}).setdefault(result.spec.shift.name, []).append(result)
    if not sequences:
        raise SettingError(f"no perturbation sequences of the family {family!r}")
    return [entry for title, own in sequences.items() for entry in _flips(run.workspace, title, own, family, level)]


def _flips(
    workspace: Workspace, title: str, sequences: Mapping[str, list[Result]], family: str, level: float
) -> Entries:
    flips, provenance = [], ""
    entries: Entries = []
    for name, results in sequences.items():
        ordered = sorted(results, key=lambda result: result.spec.shift.frame or 0)
        frames = stack_frames([workspace.read(one, top_k=5, confidence=False, scores=False) for one in ordered])
        shift, provenance = ordered[0].spec.shift, str(ordered[0].spec.family)
        step, noise = shift.difficulty, shift.noise
        flips.append(flips_by_clip(frames[:, :, 0], step=step, noise=noise))
        score = flip_probability(frames[:, :, 0], step=step, noise=noise, level=level, provenance=provenance)
        entries.append((title, name, score))
        if frames.shape[2] >= 5:
            distance = top5_distance(frames, step=step, noise=noise, level=level, provenance=provenance)
            entries.append((title, name, distance))
    if len({len(values) for values in flips}) == 1:
        # The mean over perturbations; the same images are drawn for all of them.
        means = np.stack(flips, axis=1).mean(axis=1)
        low, high = percentile_interval(resampled_means(means[:, None]), level)
        metric, method = f"mean flip probability over {len(flips)}", f"bootstrap by clip, {RESAMPLES:,} resamples"
        ends = float(means.mean()), float(low[0]), float(high[0])
        mean = Score(metric, *ends, len(means), level, method, provenance, higher_is_better=False)
        entries.insert(0, (title, family, mean))
    return entries
