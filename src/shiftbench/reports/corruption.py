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


def corruption_families(workspace: Workspace, results: Iterable[Result]) -> dict[str, dict[Place, str]]:
    """Family to (corruption, severity) to setting. Only whole severities have published errors, and a family."""
    found: dict[str, dict[Place, str]] = {}
    for result in results:
        member = workspace.setting_record(result).member
        if member is not None and result.spec.shift.frame is None and member.level.is_integer():
            found.setdefault(member.family, {})[member.name, int(member.level)] = result.setting
    return found


@dataclass(frozen=True)
class FamilyResults:
    """One family of corrupted settings of a run: its members, and the setting without corruption they refer to."""

    run: StoredResults
    name: str
    places: Mapping[Place, str]
    members: Sequence[Result]

    @staticmethod
    def all_of(run: StoredResults) -> list[FamilyResults]:
        found = corruption_families(run.workspace, run.results).items()
        settings = {name: set(places.values()) for name, places in found}
        return [
            FamilyResults(run, name, places, [one for one in run.results if one.setting in settings[name]])
            for name, places in found
        ]

    @property
    def clean(self) -> str | None:
        return self.members[0].spec.reference

    def divisor(self, baseline: str | None = None) -> str | Baseline | None:
        """The model that is named, or the published AlexNet errors, which are over ImageNet's classes and some
        corruptions; else nothing."""
        if baseline or not set(averaged_types({name for name, _ in self.places})) <= set(ALEXNET.errors):
            return baseline
        classes = set(label_space("imagenet-1k").keys)
        spaces = {result.spec.space for result in self.members}
        over_imagenet = all(set(self.run.workspace.space(space).keys) <= classes for space in spaces)
        return ALEXNET if over_imagenet else None

    def scores(self, baseline: str | None = None, *, level: float) -> ScoredModels:
        run, divisor = self.run, self.divisor(baseline)
        return all_corruption_scores(run.workspace, run.results, self.name, self.clean, divisor, level)


def results_corruption_table(
    results: StoredResults,
    family: str | None = None,
    *,
    baseline: str | None = None,
    relative: bool = False,
    level: float = 0.95,
) -> Table:
    """The table of all families of corrupted settings, or of the one named; see ``Run.corruption_table``."""
    known = FamilyResults.all_of(results)
    chosen = [one for one in known if family in (None, one.name)]
    if not chosen:
        raise StoreError(
            "no corrupted settings to compute corruption errors from" if family is None else f"no family {family!r}",
            found=f"families: {', '.join(one.name for one in known) or 'none'}",
            hint="evaluate a suite such as imagenet-c or corruptions",
        )
    entries: dict[tuple[str, str, Score], None] = {}
    remarks: list[str] = []
    for one in chosen:
        divisor, within = one.divisor(baseline), f"{one.name}." if len(chosen) > 1 else ""
        found = corruption_entries(
            results.workspace, results.results, one.name, one.clean, divisor, level, within=within, relative=relative
        )
        entries |= dict.fromkeys(found)
        notes = comparability(one.members, one.name, divisor)
        remarks += [f"{one.name}: {note}" if within else note for note in notes]
    for result in results.results:
        if result.setting == _REAL_BLUR and not relative:
            score = metrics.get("error")(results.workspace.read(result), level=level)
            entries[result.title, result.setting, score] = None
    title = f"{', '.join(one.name for one in chosen)}: corruption errors"
    return score_table(list(entries), title=title, remarks=remarks)


def corruption_entries(
    workspace: Workspace, results: Sequence[Result], family: str, clean: str | None, baseline: str | Baseline | None,
    level: float, *, within: str = "", relative: bool = False,
) -> Entries:  # fmt: skip
    """Of every model the clean error, mCE, relative mCE, mean error, and CE of every type.

    ``within`` comes before the names of corruptions, where one table has several families.
    """
    entries: Entries = []
    for name, scores, clean_predictions in all_corruption_scores(workspace, results, family, clean, baseline, level):
        if clean_predictions is not None and clean is not None:
            entries.append((name, clean, metrics.get("error")(clean_predictions, level=level)))
        entries += [(name, family, score) for score in scores.summary()]
        kinds = scores.relative_ce if relative else {**scores.error, **scores.ce}
        if not kinds:
            raise SettingError(
                "relative corruption error needs the clean setting and a model to divide by",
                hint=f"evaluate the reference setting on the same images, or drop {argument('relative', True)}",
            )
        shown = {**kinds, **({} if relative else scores.groups)}
        entries += [(name, f"{within}{corruption}", score) for corruption, score in shown.items()]
    return entries


def comparability(members: Iterable[Result], family: str, baseline: str | Baseline | None) -> list[str]:
    """The papers' mCE is over the released files; anything else must not be read as if it were."""
    released = all(result.spec.source == "on-disk" for result in members)
    if baseline is not ALEXNET or (released and family in _PUBLISHED):
        return []
    same_images = family in (*_PUBLISHED, "imagenet-c_in-memory")
    how = "corrupted in memory, not the released files" if same_images else "other images"
    return [f"not comparable with mCE as published: {how}"]


def all_corruption_scores(
    workspace: Workspace, results: Sequence[Result], family: str, clean: str | None, baseline: str | Baseline | None,
    level: float,
) -> ScoredModels:  # fmt: skip
    """(model, scores, clean predictions) of every model with corrupted settings."""
    grids, clean_of = corruption_grids(workspace, results, family, clean)
    divisor: Baseline | Grid | None
    divisor = grids.get(baseline) if isinstance(baseline, str) else baseline
    if isinstance(baseline, str) and divisor is None:
        raise SettingError(f"the baseline {baseline!r} was not evaluated", expected=f"one of {', '.join(grids)}")
    paired: dict[str, Predictions] = {}
    for name, grid in grids.items():
        if name in clean_of:
            # Released arrays name their images otherwise than a user's own clean set: no rise over it can be paired.
            shifted = next(iter(grid.values()))
            ids, own = set(clean_of[name].ids), set(shifted.ids)
            if own == ids or (shifted.spec.shift.designed and own < ids):
                paired[name] = clean_of[name]
    base_clean = paired.get(baseline) if isinstance(baseline, str) else None
    found = []
    for name, grid in grids.items():
        scores = corruption_scores(grid, paired.get(name), baseline=divisor, baseline_clean=base_clean, level=level)
        found.append((name, scores, clean_of.get(name)))
    return found


def on_one_axis(scored: ScoredModels) -> tuple[ScoredModels, tuple[str, ...]]:
    """The models with the most corruptions and severities, whose means may share an axis, and a note on the others."""
    extents = {title: (set(scores.corruptions), scores.severities) for title, scores, _ in scored}
    most = max(extents.values(), key=lambda one: len(one[0]) * len(one[1]))
    lost = [title for title, extent in extents.items() if extent != most]
    note = f"not shown, evaluated under other corruptions or severities: {listed(lost)}"
    return [one for one in scored if one[0] not in lost], (note,) if lost else ()


def corruption_grids(
    workspace: Workspace, results: Sequence[Result], family: str, clean: str | None
) -> tuple[dict[str, dict[Place, Predictions]], dict[str, Predictions]]:
    """By model: the predictions under each corruption and severity of a family, and those on clean images."""
    grids: dict[str, dict[Place, Predictions]] = {}
    cleans: dict[str, dict[Place, Predictions]] = {}
    members = corruption_families(workspace, results).get(family, {})
    places = {setting: place for place, setting in members.items()}
    for result in results:
        place = ("clean", 0) if result.setting == clean else places.get(result.setting)
        if place is None:
            continue
        row = (cleans if result.setting == clean else grids).setdefault(result.title, {})
        found = workspace.read(result, top_k=1, confidence=False, scores=False)
        if place in row:
            raise SettingError(
                f"{found.classifier!r} has several results of different provenance in {found.setting!r}",
                found=f"{row[place].provenance!r} and {found.provenance!r}",
                hint="use a workspace of one seed and one source, or choose the results from Python",
            )
        row[place] = found
    if not grids:
        raise SettingError(
            f"no corrupted settings of the family {family!r}",
            found=", ".join(sorted({result.setting for result in results})[:5]) or "nothing",
        )
    return grids, {name: rows["clean", 0] for name, rows in cleans.items()}


def accuracy_of(error: Score) -> Score:
    """A score of errors as one of accuracies; the estimate of a design from few images can lie beyond 0 or 1."""
    name, value = error.metric.replace("error", "accuracy"), float(np.clip(1 - error.value, 0.0, 1.0))
    low, high = 1 - error.high, 1 - error.low
    return replace(error, metric=name, value=value, low=low, high=high, higher_is_better=True)


def perturbation_families(workspace: Workspace, results: Sequence[Result]) -> dict[str, list[Result]]:
    """Family to its results: all frames of all sequences."""
    members = ((workspace.setting_record(one).member, one) for one in results if one.spec.shift.frame is not None)
    return by_key((member.family, one) for member, one in members if member is not None)


def flip_entries(workspace: Workspace, results: Sequence[Result], family: str, level: float) -> Entries:
    """Of every model the flip probability and top-5 distance of every perturbation, and the mean flips.

    Flip probabilities are not divided by AlexNet's: dividing needs a baseline on the same images.
    """
    sequences: dict[str, dict[str, list[Result]]] = {}
    for result in perturbation_families(workspace, results).get(family, ()):
        sequences.setdefault(result.title, {}).setdefault(result.spec.shift.name, []).append(result)
    if not sequences:
        raise SettingError(f"no perturbation sequences of the family {family!r}")
    return [entry for title, own in sequences.items() for entry in _flips(workspace, title, own, family, level)]


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
