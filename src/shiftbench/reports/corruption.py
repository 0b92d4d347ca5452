"""Families of corrupted settings and perturbation sequences of a run: corruption errors and flips, with intervals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from shiftbench.arrays import FloatArray
from shiftbench.errors import SettingError, StoreError, argument, listed
from shiftbench.grouping import by_key
from shiftbench.labels.catalogue import label_space
from shiftbench.metrics.base import Score, SettingScore
from shiftbench.metrics.bootstrap import RESAMPLES, percentile_interval, resampled_means
from shiftbench.metrics.corruption import ALEXNET, Baseline, published_baseline
from shiftbench.metrics.corruption_scores import CorruptionScores, Grid, averaged_types, corruption_scores
from shiftbench.metrics.designs import design_outcomes
from shiftbench.metrics.flips import flip_probability, flips_by_clip, stack_frames, top5_distance
from shiftbench.metrics.partial_pooling import ModelledError, PooledModel
from shiftbench.reports.scores import in_one_column, score_table
from shiftbench.reports.table import Table
from shiftbench.runs.results import StoredResults
from shiftbench.shifts.corruptions.catalogue import corruptions
from shiftbench.store.predictions import Predictions
from shiftbench.store.workspace import Result, Workspace

#: A corruption at a severity, where a family has a setting.
Place = tuple[str, int]
#: Photographs that are blurred by nature: their error is shown beside the mean of the synthetic blurs (000, table 5).
_REAL_BLUR = "real-blurry-images"

#: The family of ImageNet-C, whose released files the published mCE is over.
_PUBLISHED = "imagenet-c"


class ScoredModel(NamedTuple):
    title: str
    scores: CorruptionScores
    #: The result on clean images, where the model has one.
    clean: Result | None


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
        """The model that is named, or the family's AlexNet errors, which are over ImageNet's classes and some
        corruptions; else nothing."""
        alexnet = published_baseline(self.name)
        if baseline or not set(averaged_types(self.corruptions)) <= set(alexnet.errors):
            return baseline
        imagenet_classes = set(label_space("imagenet-1k").keys)
        for space in {result.spec.space for result in self.members}:
            if not set(self.run.workspace.space(space).keys) <= imagenet_classes:
                return None
        return alexnet

    def comparability(self, divisor: str | Baseline | None) -> list[str]:
        """The papers' mCE is over the released files; anything else must not be read as if it were."""
        if not isinstance(divisor, Baseline):
            return []
        if divisor is not ALEXNET:
            return [f"not comparable with mCE as published: divided by {divisor.source}"]
        released = all(result.spec.source == "on-disk" for result in self.members)
        if released and self.name == _PUBLISHED:
            return []
        how = "corrupted in memory, not the released files" if self.name == _PUBLISHED else "other images"
        return [f"not comparable with mCE as published: {how}"]

    def grids(self) -> dict[str, dict[Place, Predictions]]:
        """By model: the predictions under each corruption and severity."""
        places = {setting: place for place, setting in self.places.items()}
        return self._predictions((places[result.setting], result) for result in self.members)

    def _predictions(self, results: Iterable[tuple[Place, Result]]) -> dict[str, dict[Place, Predictions]]:
        """The predictions by title and place; raises SettingError if a model has two results in one place."""
        by_title: dict[str, dict[Place, Predictions]] = {}
        for place, result in results:
            grid = by_title.setdefault(result.title, {})
            predictions = self.run.workspace.read(result, top_k=1, confidence=False, scores=False)
            if place in grid:
                model = predictions.classifier
                raise SettingError(
                    f"{model!r} has several results of different provenance in {predictions.setting!r}",
                    found=f"{grid[place].provenance!r} and {predictions.provenance!r}",
                    hint="use a workspace of one seed and one source, or choose the results from Python",
                )
            grid[place] = predictions
        return by_title

    def scores(self, baseline: str | Baseline | None, *, level: float, paired: bool = True) -> list[ScoredModel]:
        """Of every model; without ``paired`` from corrupted images alone, so that nothing is relative to clean ones."""
        if isinstance(baseline, str):
            return self._scores_against(baseline, level=level, paired=paired)
        scored = []
        clean_of: dict[str, list[Result]] = {}
        if paired:
            clean_of = by_key((result.title, result) for result in self._clean_results())
        for title, members in by_key((result.title, result) for result in self.members).items():
            model = replace(self, members=members)
            clean_results = clean_of.get(title, [])
            scores = self.run.once(
                [*members, *clean_results],
                (self.name, baseline and baseline.name, level, paired),
                partial(model._model_scores, title, baseline, level, clean_results),
            )
            scored.append(ScoredModel(title, scores, clean_results[-1] if clean_results else None))
        return scored

    def _model_scores(
        self, title: str, baseline: Baseline | None, level: float, clean_results: Sequence[Result]
    ) -> CorruptionScores:
        """The scores of the only model of these members."""
        grid = self.grids()[title]
        clean = self._clean_predictions(clean_results).get(title)
        return corruption_scores(grid, _on_same_images(clean, grid), baseline=baseline, level=level)

    def _scores_against(self, baseline: str, *, level: float, paired: bool) -> list[ScoredModel]:
        """Of every model, divided by the errors of one of them, which are resampled with the same draws."""
        grids = self.grids()
        if baseline not in grids:
            raise SettingError(f"the baseline {baseline!r} was not evaluated", expected=f"one of {', '.join(grids)}")
        clean_results: list[Result] = []
        if paired:
            clean_results = [result for result in self._clean_results() if result.title in grids]
        clean_of = self._clean_predictions(clean_results)
        result_of = {result.title: result for result in clean_results}
        baseline_clean = _on_same_images(clean_of.get(baseline), grids[baseline])
        scored = []
        for title, grid in grids.items():
            scores = corruption_scores(
                grid,
                _on_same_images(clean_of.get(title), grid),
                baseline=grids[baseline],
                baseline_clean=baseline_clean,
                level=level,
            )
            scored.append(ScoredModel(title, scores, result_of.get(title)))
        return scored

    def modelled(self, title: str, level: float) -> dict[str, Score]:
        """The errors of a model under a design, by corruption, severity and setting: a partially pooled model."""
        grid = self.grids()[title]
        if not any(predictions.spec.shift.designed for predictions in grid.values()):
            raise SettingError(
                f"{title} was evaluated on the full grid of {self.name}, which needs no model of its settings",
                hint=f"leave out {argument('modelled', True)}",
            )
        clean_results = [result for result in self._clean_results() if result.title == title]
        clean = None
        confidence = None
        if clean_results:
            predictions = self.run.workspace.read(clean_results[-1], top_k=1, scores=False)
            clean = _on_same_images(predictions, grid)
        if clean is not None:
            confidence = np.where(clean.valid, clean.confidence.astype(float), np.nan)
        outcomes = design_outcomes(list(grid.values()), clean)
        model = PooledModel(outcomes, list(grid), confidence)
        spec = next(iter(grid.values())).spec
        errors: dict[str, ModelledError] = dict(model.by_corruption(level))
        for severity, error in model.by_severity(level).items():
            errors[f"severity {severity:g}"] = error
        for (corruption, severity), error in model.by_setting(level).items():
            errors[f"{corruption}.{severity:g}"] = error
        scores = {}
        for name, error in errors.items():
            scores[name] = Score(
                "modelled error",
                error.value,
                error.low,
                error.high,
                outcomes.size,
                level,
                method=f"partially pooled model of {len(outcomes.wrong):,} shifted forward passes",
                provenance=spec.family or spec.provenance,
                higher_is_better=False,
                passes=outcomes.passes,
            )
        return scores

    def _clean_results(self) -> list[Result]:
        """The results of all models in the setting without corruption."""
        return [result for result in self.run.results if result.setting == self.clean]

    def _clean_predictions(self, results: Iterable[Result]) -> dict[str, Predictions]:
        """By title: the predictions without corruption."""
        clean_place: Place = ("", 0)
        grids = self._predictions((clean_place, result) for result in results)
        return {title: grid[clean_place] for title, grid in grids.items()}


def _on_same_images(clean: Predictions | None, grid: Grid) -> Predictions | None:
    """The clean predictions, if they are on the images of the grid or, for a design, on a larger set of images.

    Released arrays name their images otherwise than a user's own clean set: no rise over it is known.
    """
    if clean is None:
        return None
    corrupted = next(iter(grid.values()))
    if corrupted.ids is clean.ids:
        return clean
    corrupted_ids = set(corrupted.ids)
    clean_ids = set(clean.ids)
    if corrupted_ids == clean_ids or (corrupted.spec.shift.designed and corrupted_ids < clean_ids):
        return clean
    return None


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
    families = _families_called(results, family)
    # The keys of a dictionary keep their order and drop the clean errors that several families repeat.
    entries: dict[SettingScore, None] = {}
    remarks: list[str] = []
    for each in families:
        divisor = each.divisor(baseline)
        prefix = f"{each.name}." if len(families) > 1 else ""
        for model in each.scores(divisor, level=level):
            entries |= dict.fromkeys(_corruption_entries(results, model, each.name, prefix, relative, level))
            remarks += [f"{prefix}{remark}" for remark in design_remarks(model)]
        for note in each.comparability(divisor):
            remarks.append(f"{each.name}: {note}" if prefix else note)
    for result in results.results:
        if result.setting == _REAL_BLUR and not relative:
            entries |= dict.fromkeys(results.part([result]).scores("error", level=level))
    title = f"{', '.join(each.name for each in families)}: corruption errors"
    return score_table(in_one_column(entries), title=title, remarks=remarks)


def modelled_table(results: StoredResults, family: str | None = None, *, level: float = 0.95) -> Table:
    """Errors of single corruptions, severities and settings under a design, by a partially pooled model."""
    families = _families_called(results, family)
    entries: list[SettingScore] = []
    for each in families:
        for title in dict.fromkeys(result.title for result in each.members):
            for name, score in each.modelled(title, level).items():
                entries.append(SettingScore(title, f"{each.name}.{name}", score))
    remark = (
        "model-based: settings with few images are drawn towards what settings have in common (docs/designs.md); "
        "means over all settings need no model: `shiftbench table --mce`"
    )
    title = f"{', '.join(each.name for each in families)}: errors by a partially pooled model"
    return score_table(in_one_column(dict.fromkeys(entries)), title=title, remarks=[remark])


def design_remarks(model: ScoredModel) -> list[str]:
    """What the numbers of a design estimate, and its means by severity; nothing for a full grid."""
    scores = model.scores
    remarks = []
    if scores.on_these_images is not None:
        whole = scores.mean_error
        grid = scores.on_these_images
        remarks.append(
            f"{model.title}: intervals (mean error {_points(whole)}) are for new images like these; the full grid on "
            f"these images has a mean error in {_points(grid)}"
        )
    if scores.by_severity:
        means = [
            f"{severity:g}: {100 * score.value:.1f} {_points(score)}" for severity, score in scores.by_severity.items()
        ]
        remarks.append(f"{model.title}: mean error by severity {', '.join(means)}")
    return remarks


def _points(score: Score) -> str:
    return f"[{100 * score.low:.1f}, {100 * score.high:.1f}]"


def _families_called(results: StoredResults, name: str | None) -> list[FamilyResults]:
    """The family of that name, or all; raises StoreError if there is none."""
    families = corruption_families(results)
    selected = [family for family in families.values() if name in (None, family.name)]
    if not selected:
        raise StoreError(
            "no corrupted settings to compute corruption errors from" if name is None else f"no family {name!r}",
            found=f"families: {', '.join(families) or 'none'}",
            hint="evaluate a suite such as imagenet-c or corruptions",
        )
    return selected


def _corruption_entries(
    run: StoredResults, model: ScoredModel, family: str, prefix: str, relative: bool, level: float
) -> list[SettingScore]:
    """The clean error of a model, its means over the family, and its error by type, under the prefix."""
    entries: list[SettingScore] = []
    if model.clean is not None:
        entries += run.part([model.clean]).scores("error", level=level)
    scores = model.scores
    for score in scores.summary():
        entries.append(SettingScore(model.title, family, score))
    by_type = scores.relative_ce if relative else {**scores.error, **scores.ce}
    if not by_type:
        raise SettingError(
            "relative corruption error needs the clean setting and a model to divide by",
            hint=f"evaluate the reference setting on the same images, or drop {argument('relative', True)}",
        )
    if not relative:
        by_type = {**by_type, **scores.groups}
    for corruption, score in by_type.items():
        entries.append(SettingScore(model.title, f"{prefix}{corruption}", score))
    return entries


def on_one_axis(scored: Sequence[ScoredModel]) -> tuple[list[ScoredModel], tuple[str, ...]]:
    """The models with the most corruptions and severities, whose means may share an axis, and a note on the others."""
    extents = {model.title: (set(model.scores.corruptions), model.scores.severities) for model in scored}
    largest = max(extents.values(), key=lambda extent: len(extent[0]) * len(extent[1]))
    dropped = [title for title, extent in extents.items() if extent != largest]
    if not dropped:
        return list(scored), ()
    note = f"not shown, evaluated under other corruptions or severities: {listed(dropped)}"
    return [model for model in scored if model.title not in dropped], (note,)


def accuracy_of(error: Score) -> Score:
    """A score of errors as one of accuracies; the estimate of a design from few images can lie beyond 0 or 1."""
    return replace(
        error,
        metric=error.metric.replace("error", "accuracy"),
        value=float(np.clip(1 - error.value, 0.0, 1.0)),
        low=1 - error.high,
        high=1 - error.low,
        higher_is_better=True,
    )


def perturbation_families(run: StoredResults) -> dict[str, list[Result]]:
    """Family to its results: all frames of all sequences."""
    families: dict[str, list[Result]] = {}
    for result in run.results:
        if result.spec.shift.frame is None:
            continue
        member = run.workspace.setting_record(result).member
        if member is not None:
            families.setdefault(member.family, []).append(result)
    return families


def flip_entries(run: StoredResults, family: str, level: float) -> list[SettingScore]:
    """Of every model the flip probability and top-5 distance of every perturbation, and the mean flips.

    Flip probabilities are not divided by AlexNet's: dividing needs a baseline on the same images.
    """
    sequences: dict[str, dict[str, list[Result]]] = {}
    for result in perturbation_families(run).get(family, ()):
        sequences.setdefault(result.title, {}).setdefault(result.spec.shift.name, []).append(result)
    if not sequences:
        raise SettingError(f"no perturbation sequences of the family {family!r}")
    entries: list[SettingScore] = []
    for title, model_sequences in sequences.items():
        entries += _flips(run.workspace, title, model_sequences, family, level)
    return entries


def _flips(
    workspace: Workspace, title: str, sequences: Mapping[str, list[Result]], family: str, level: float
) -> list[SettingScore]:
    """The flips of one model, whose frames are given by perturbation; their mean comes first."""
    flips: list[FloatArray] = []
    provenance = ""
    entries: list[SettingScore] = []
    for name, results in sequences.items():
        ordered = sorted(results, key=lambda result: result.spec.shift.frame or 0)
        frames = stack_frames([workspace.read(result, top_k=5, confidence=False, scores=False) for result in ordered])
        shift = ordered[0].spec.shift
        provenance = str(ordered[0].spec.family)
        step = shift.difficulty
        noise = shift.noise
        flips.append(flips_by_clip(frames[:, :, 0], step=step, noise=noise))
        score = flip_probability(frames[:, :, 0], step=step, noise=noise, level=level, provenance=provenance)
        entries.append(SettingScore(title, name, score))
        if frames.shape[2] >= 5:
            distance = top5_distance(frames, step=step, noise=noise, level=level, provenance=provenance)
            entries.append(SettingScore(title, name, distance))
    same_length = len({len(values) for values in flips}) == 1
    if same_length:
        entries.insert(0, SettingScore(title, family, _mean_flips(flips, level, provenance)))
    return entries


def _mean_flips(flips: Sequence[FloatArray], level: float, provenance: str) -> Score:
    """The mean over perturbations; the same images are drawn for all of them."""
    means = np.stack(flips, axis=1).mean(axis=1)
    low, high = percentile_interval(resampled_means(means[:, None]), level)
    return Score(
        metric=f"mean flip probability over {len(flips)}",
        value=float(means.mean()),
        low=float(low[0]),
        high=float(high[0]),
        n=len(means),
        level=level,
        method=f"bootstrap by clip, {RESAMPLES:,} resamples",
        provenance=provenance,
        higher_is_better=False,
    )
