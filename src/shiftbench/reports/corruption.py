"""Corruption errors of a run: clean error, mCE, relative mCE and the error of every type, with intervals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from shiftbench.errors import SettingError, StoreError
from shiftbench.labels.catalogue import label_space
from shiftbench.metrics.base import Score, metrics
from shiftbench.metrics.corruption import ALEXNET, Baseline
from shiftbench.metrics.corruption_scores import CorruptionScores, Grid, corruption_scores
from shiftbench.reports.scores import score_table
from shiftbench.reports.table import Table
from shiftbench.store.workspace import Result, Workspace

if TYPE_CHECKING:
    from shiftbench.runs.results import StoredResults
    from shiftbench.store.predictions import Predictions


def corruption_table(
    workspace: Workspace,
    results: Sequence[Result],
    *,
    family: str,
    clean: str | None = None,
    baseline: str | Baseline | None = ALEXNET,
    by_type: bool = True,
    level: float = 0.95,
) -> Table:
    """One row per model: its clean error, mCE, relative mCE, mean error, and CE of every type.

    ``family`` is one of ``corruption_families``, ``clean`` the setting without corruption. ``baseline`` divides: the
    published AlexNet errors, or the name of a model among the results.
    """
    entries = _entries(workspace, results, family, clean, baseline, by_type, level)
    settings = corruption_families(workspace, results).get(family, {}).values()
    remarks = comparability([result for result in results if result.setting in settings], family, baseline)
    return score_table(entries, title=f"{family}: corruption errors", remarks=remarks)


def _entries(
    workspace: Workspace,
    results: Sequence[Result],
    family: str,
    clean: str | None,
    baseline: str | Baseline | None,
    by_type: bool,
    level: float,
    within: str = "",
    relative: bool = False,
) -> list[tuple[str, str, Score]]:
    """``within`` comes before the names of corruptions, where one table has several families."""
    entries: list[tuple[str, str, Score]] = []
    for name, scores, clean_predictions in all_corruption_scores(workspace, results, family, clean, baseline, level):
        if clean_predictions is not None and clean is not None:
            entries.append((name, clean, metrics.get("error")(clean_predictions, level=level)))
        entries += [(name, family, score) for score in scores.summary()]
        if by_type:
            kinds = scores.relative_ce if relative else scores.ce or scores.error
            if not kinds:
                raise SettingError(
                    "relative corruption error needs the clean setting and a model to divide by",
                    hint="evaluate the reference setting on the same images, or drop --relative",
                )
            shown = {**kinds, **({} if relative else scores.groups)}
            entries += [(name, f"{within}{corruption}", score) for corruption, score in shown.items()]
    return entries


#: A corruption at a severity.
Place = tuple[str, int]
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


def over_imagenet(workspace: Workspace, results: Iterable[Result]) -> bool:
    """Whether AlexNet's published errors can divide: they are over ImageNet's classes."""
    classes = set(label_space("imagenet-1k").keys)
    return all(set(workspace.space(space).keys) <= classes for space in {result.spec.space for result in results})


def results_corruption_table(
    results: StoredResults,
    family: str | None = None,
    *,
    baseline: str | None = None,
    relative: bool = False,
    level: float = 0.95,
) -> Table:
    """The table of all families of corrupted settings, or of the one named; see ``Run.corruption_table``."""
    known = corruption_families(results.workspace, results.results)
    if not known or family not in (None, *known):
        raise StoreError(
            "no corrupted settings to compute corruption errors from" if family is None else f"no family {family!r}",
            found=f"families: {', '.join(known) or 'none'}",
            hint="evaluate a suite such as imagenet-c or corruptions",
        )
    chosen = [name for name in known if family in (None, name)]
    entries: dict[tuple[str, str, Score], None] = {}
    remarks: list[str] = []
    for name in chosen:
        members = [result for result in results.results if result.setting in known[name].values()]
        divisor = baseline or (ALEXNET if over_imagenet(results.workspace, members) else None)
        clean, within = members[0].spec.reference, f"{name}." if len(chosen) > 1 else ""
        found = _entries(results.workspace, results.results, name, clean, divisor, True, level, within, relative)
        entries |= dict.fromkeys(found)
        remarks += [f"{name}: {one}" if within else one for one in comparability(members, name, divisor)]
    return score_table(list(entries), title=f"{', '.join(chosen)}: corruption errors", remarks=remarks)


def comparability(members: Iterable[Result], family: str, baseline: str | Baseline | None) -> list[str]:
    """The papers' mCE is over the released files; anything else must not be read as if it were."""
    released = all(result.spec.source == "on-disk" for result in members)
    if baseline is not ALEXNET or (released and family in _PUBLISHED):
        return []
    how = (
        "corrupted in memory, not the released files"
        if family in (*_PUBLISHED, "imagenet-c_in-memory")
        else "other images"
    )
    return [f"not comparable with mCE as published: {how}"]


def all_corruption_scores(
    workspace: Workspace,
    results: Sequence[Result],
    family: str,
    clean: str | None,
    baseline: str | Baseline | None,
    level: float,
) -> list[tuple[str, CorruptionScores, Predictions | None]]:
    """(model, scores, clean predictions) of every model with corrupted settings."""
    grids, clean_of = corruption_grids(workspace, results, family, clean)
    divisor: Baseline | Grid | None
    divisor = grids.get(baseline) if isinstance(baseline, str) else baseline
    if isinstance(baseline, str) and divisor is None:
        raise SettingError(f"the baseline {baseline!r} was not evaluated", expected=f"one of {', '.join(grids)}")
    # Released arrays name their images otherwise than a user's own clean set: no rise over it can be paired.
    paired = {name: _if_same_images(clean_of.get(name), next(iter(grid.values()))) for name, grid in grids.items()}
    base_clean = paired.get(baseline) if isinstance(baseline, str) else None
    return [
        (
            name,
            corruption_scores(grid, paired[name], baseline=divisor, baseline_clean=base_clean, level=level),
            clean_of.get(name),
        )
        for name, grid in grids.items()
    ]


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
        if place is not None:
            rows = cleans if result.setting == clean else grids
            _add_once(
                rows.setdefault(result.title, {}),
                place,
                workspace.read(result, top_k=1, confidence=False, scores=False),
            )
    if not grids:
        raise SettingError(
            f"no corrupted settings of the family {family!r}",
            found=", ".join(sorted({result.setting for result in results})[:5]) or "nothing",
        )
    return grids, {name: rows["clean", 0] for name, rows in cleans.items()}


def accuracy_of(error: Score) -> Score:
    """A score of errors as one of accuracies."""
    name = error.metric.replace("error", "accuracy")
    low, high = 1 - error.high, 1 - error.low
    return replace(error, metric=name, value=1 - error.value, low=low, high=high, higher_is_better=True)


def _if_same_images(clean: Predictions | None, shifted: Predictions) -> Predictions | None:
    if clean is None:
        return None
    ids, own = set(clean.ids), set(shifted.ids)
    return clean if own == ids or (shifted.spec.shift.designed and own < ids) else None


def _add_once(grid: dict[tuple[str, int], Predictions], place: tuple[str, int], found: Predictions) -> None:
    if place in grid:
        raise SettingError(
            f"{found.classifier!r} has several results of different provenance in {found.setting!r}",
            found=f"{grid[place].provenance!r} and {found.provenance!r}",
            hint="use a workspace of one seed and one source, or choose the results from Python",
        )
    grid[place] = found
