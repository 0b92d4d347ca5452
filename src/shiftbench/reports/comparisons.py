"""Models against each other on the same images, as a table."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import NormalDist, fmean
from typing import Any

from shiftbench.errors import StoreError, UnknownNameError, listed
from shiftbench.grouping import by_key
from shiftbench.metrics import paired
from shiftbench.metrics.base import Score
from shiftbench.metrics.corruption_scores import Grid
from shiftbench.metrics.designs import compare_grids
from shiftbench.metrics.paired import Comparison
from shiftbench.reports import formatting
from shiftbench.reports.corruption import corruption_families
from shiftbench.reports.models import design_notes, with_models
from shiftbench.reports.table import Number, Table, columns_of
from shiftbench.reports.writers import plain
from shiftbench.runs.results import StoredResults, mean_scores
from shiftbench.settings.base import SettingMean
from shiftbench.store.predictions import Predictions

_KEYS = (
    "setting", "first", "second", "n", "first_accuracy", "second_accuracy", "only_first", "only_second",
    "difference", "low", "high", "p", "p_holm", "better", "level", "provenance", "metric",
)  # fmt: skip


def compare_all(predictions: Iterable[Predictions], *, level: float = 0.95) -> Table:
    return comparison_table(paired.compare_all(predictions, level=level))


def compare_family(family: str, grids: Iterable[Grid], notes: Sequence[str], *, level: float = 0.95) -> Table:
    """Every pair of models in mean accuracy over a family of corrupted settings, or as a design estimates it."""
    pairs = itertools.combinations(grids, 2)
    made = paired.corrected([compare_grids(family, first, second, level=level) for first, second in pairs])
    about = [
        "difference: first minus second in mean accuracy over corruptions and severities, "
        f"{formatting.level_text(level)} interval: Student's over images, paired",
        f"p: Student's test of the paired differences; p (Holm): corrected for {len(made)} comparisons",
        "in a wide terminal and in --json also: predictions that only the first, only the second gets right",
        *notes,
    ]
    return comparison_table(made, about=about)


def compare_mean(run: StoredResults, mean: SettingMean, *, level: float = 0.95) -> Table:
    """Every pair of models that have all settings of a mean, such as the eight shifts of DeepFashion Remixed."""
    scores, parts, images = [], dict[str, list[Comparison]](), {}
    for setting in mean.settings:
        read = [run.workspace.read(result) for result in run.results if result.setting == setting]
        images[setting] = frozenset(id for one in read for id in one.ids)
        for one in paired.compare_all(read, level=level):
            pair = f"{one.first} | {one.second}"
            parts.setdefault(pair, []).append(one)
            scores.append((pair, setting, Score(one.metric, one.difference, one.low, one.high, one.n, level=level)))
    made = []
    for pair, _, score in mean_scores(mean, scores, images):
        own = parts[pair]
        first, second = (fmean(getattr(one, side) for one in own) for side in ("first_accuracy", "second_accuracy"))
        error = (score.high - score.low) / (2 * NormalDist().inv_cdf((1 + level) / 2))
        p = paired.normal_p(score.value, error)
        made.append(
            replace(
                own[0], setting=mean.name, n=score.n, first_accuracy=first, second_accuracy=second, only_first=None,
                only_second=None, difference=score.value, low=score.low, high=score.high, p=p,
                provenance=score.provenance,
            )
        )  # fmt: skip
    about = [
        f"difference: first minus second in the mean over {len(mean.settings)} settings, "
        f"{formatting.level_text(level)} interval: those of the settings put together, correlated by shared images",
        f"p: normal law with the spread of that interval; p (Holm): corrected for {len(made)} comparisons",
    ]
    return comparison_table(paired.corrected(made), about=about)


def compare_runs(
    runs: Sequence[StoredResults], setting: str | None = None, models: Sequence[str] = (), *, level: float = 0.95
) -> Table:
    """Models (names or ids) of one or several workspaces in a setting, a family, or, of one workspace, a mean over
    settings; by default all models, in the first setting that the workspaces share.

    Of results on several sets of images, those that most models have are compared. A name that several of the
    workspaces have gets its workspace.
    """
    common = [name for name in runs[0].settings if all(name in run.settings for run in runs)]
    if setting is None and not common:
        raise StoreError("no setting that all of the workspaces have", found=listed(runs[0].settings) or "no results")
    name = setting or common[0]
    means = (runs[0].workspace.setting_record(result).mean for result in runs[0].results)
    mean = next((one for one in means if one is not None and one.name == name), None)
    if mean is not None and len(runs) == 1:
        return with_models(compare_mean(runs[0], mean, level=level), runs[0])
    families = [one for run in runs if (one := corruption_families(run).get(name))]
    family, found = len(families) == len(runs), [one.members for one in families]
    if not family:
        found = [run.of_setting(name) for run in runs]
    known = {name: own.title for results in found for own in results for name in (own.title, own.name, own.model_id)}
    if unknown := [one for one in models if one not in known]:
        raise UnknownNameError("model", unknown[0], dict.fromkeys(known.values()))
    titles = [title for results in found for title in {own.title for own in results}]
    chosen = [[one for one in results if not models or {one.title, one.name, one.model_id} & set(models)]
              for results in found]  # fmt: skip

    def titled(part: Grid, run: StoredResults) -> Grid:
        title = next(iter(part.values())).classifier
        title = title if titles.count(title) == 1 else f"{title} ({run.workspace.root})"
        return {place: replace(one, classifier=title) for place, one in part.items()}

    if family:
        parts = [replace(one, members=own).grids().values() for one, own in zip(families, chosen, strict=True)]
        grids = [titled(part, run) for run, own in zip(runs, parts, strict=True) for part in own]
        table = compare_family(name, grids, design_notes([one for own in chosen for one in own]), level=level)
    else:
        groups = by_key((one.spec.provenance, (run, one)) for run, own in zip(runs, chosen, strict=True) for one in own)
        # A sample and a full run of the same setting: as many models as possible, then as many images.
        best = max(groups.values(), key=lambda own: (len(own), own[0][1].spec.images), default=[])
        read = best if len(best) > 1 else [one for own in groups.values() for one in own]
        made = (titled({("", 0): run.workspace.read(one)}, run).values() for run, one in read)
        table = compare_all([one for part in made for one in part], level=level)
        for provenance, own in groups.items():
            if own[0] not in read:
                table.notes.append(f"left out: {listed([one.title for _, one in own])} on {provenance}")
    for run in runs:
        table = with_models(table, run)
    return table


def comparison_table(comparisons: Sequence[Comparison], *, about: Sequence[str] | None = None) -> Table:
    """One row per pair. The p-values are read as one family: pass them through ``paired.corrected`` first."""
    settings = by_key((one.setting, one) for one in comparisons)
    rows = [plain({key: one.as_dict()[key] for key in _KEYS}) for one in comparisons]
    levels = " and ".join(dict.fromkeys(formatting.level_text(one.level) for one in comparisons))
    by_image = any(one.only_first is not None for one in comparisons)
    test = "exact McNemar" if by_image else "normal law with the spread of the paired bootstrap"
    tests = [
        f"difference: first minus second, {levels} interval by paired bootstrap of the images",
        f"p: {test}; p (Holm): corrected for {len(comparisons)} comparisons; better: at that level after correction",
    ]
    if by_image:
        tests.append("in a wide terminal and in --json also: images that only the first, only the second gets right")
    notes = list(tests if about is None else about) if comparisons else []
    lines = dict.fromkeys(one.provenance for one in comparisons if one.provenance)
    notes += [f"provenance: {formatting.provenance(line)}" for line in list(lines)[:6]]
    parts, columns = [], columns_of("comparisons")
    for setting, found in settings.items():
        sizes = sorted({one.n for one in found})
        n = " to ".join(formatting.count(size) for size in (sizes[0], *sizes[1:][-1:]))
        metric = {"top1": "top-1"}.get(found[0].metric, found[0].metric)
        heading = f"{setting} · {metric}, points · n = {n}"
        parts.append(Table(columns, [_shown(one) for one in found], title=heading))
    lead = [] if comparisons else ["nothing to compare: at least two models are needed"]
    data = {"title": "", "comparisons": rows, "notes": notes}
    return Table(columns, rows, shown=[], keys=_KEYS, lead=lead, notes=notes, parts=parts, data=data)


def _shown(one: Comparison) -> dict[str, Any]:
    places, sure = formatting.digits(one.n), bool(one.verdict)
    return {
        **one.as_dict(),
        "first_accuracy": Number(one.first_accuracy, places=places),
        "second_accuracy": Number(one.second_accuracy, places=places),
        "difference": Number(one.difference, one.low, one.high, places, bold=sure),
        "better": one.verdict or "undecided",
        "which": ("first" if one.verdict == one.first else "second") if sure else formatting.MISSING,
    }
