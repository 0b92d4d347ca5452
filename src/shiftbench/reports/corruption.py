"""Corruption errors of a run: clean error, mCE, relative mCE and the error of every type, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shiftbench.errors import SettingError, StoreError
from shiftbench.metrics.base import Score, metrics
from shiftbench.metrics.corruption import ALEXNET, Baseline
from shiftbench.metrics.corruption_scores import CorruptionScores, Grid, corruption_scores
from shiftbench.reports.scores import score_table
from shiftbench.reports.table import Table
from shiftbench.store.display_names import classifier_titles
from shiftbench.store.workspace import Result, Workspace

if TYPE_CHECKING:
    from shiftbench.runs.results import StoredResults
    from shiftbench.store.predictions import Predictions


def corruption_table(
    workspace: Workspace,
    results: Sequence[Result],
    *,
    prefix: str,
    clean: str | None = None,
    baseline: str | Baseline | None = ALEXNET,
    by_type: bool = True,
    level: float = 0.95,
) -> Table:
    """One row a classifier: its clean error, mCE, relative mCE, mean error, and CE of every type.

    ``prefix`` is the first part of the settings' names (``imagenet-c`` of ``imagenet-c.fog.3``), ``clean`` the
    setting without corruption. ``baseline`` divides: the published AlexNet errors, or the name of a classifier
    among the results.
    """
    entries: list[tuple[str, str, Score]] = []
    for name, scores, clean_predictions in all_corruption_scores(workspace, results, prefix, clean, baseline, level):
        if clean_predictions is not None and clean is not None:
            entries.append((name, clean, metrics.get("error")(clean_predictions, level=level)))
        entries += [(name, prefix, score) for score in scores.summary()]
        if by_type:
            kinds = scores.ce or scores.error
            entries += [(name, corruption, score) for corruption, score in kinds.items()]
    return score_table(entries, title=f"{prefix}: corruption errors", remarks=comparability(results, prefix, baseline))


def results_corruption_table(
    results: StoredResults, prefix: str | None = None, *, baseline: str | None = None, level: float = 0.95
) -> Table:
    """The table of the one family of corrupted settings, or of the one named; see ``Run.corruption_table``."""
    prefixes = [prefix] if prefix else corruption_prefixes(results.settings)
    if len(prefixes) != 1:
        raise StoreError(
            "corruption errors need one family of settings named PREFIX.corruption.severity",
            found=", ".join(prefixes) or "none",
            hint="evaluate a suite such as imagenet-c, or name the prefix",
        )
    family = [result for result in results.results if result.setting.startswith(f"{prefixes[0]}.")]
    # AlexNet's errors are over ImageNet's classes: dividing by them says nothing about another label space.
    comparable = all(result.spec.space.startswith("imagenet-") for result in family)
    return corruption_table(
        results.workspace,
        results.results,
        prefix=prefixes[0],
        clean=next(iter({result.spec.reference for result in family})),
        baseline=baseline or (ALEXNET if comparable else None),
        level=level,
    )


def comparability(results: Sequence[Result], prefix: str, baseline: str | Baseline | None) -> list[str]:
    """The papers' mCE is over the released files; anything else must not be read as if it were."""
    released = all(result.spec.source == "on-disk" for result in results if result.setting.startswith(f"{prefix}."))
    if baseline is not ALEXNET or (released and prefix == "imagenet-c"):
        return []
    how = "other images" if prefix != "imagenet-c" else "corrupted in memory, not the released files"
    return [f"not comparable with mCE as published: {how}"]


def all_corruption_scores(
    workspace: Workspace,
    results: Sequence[Result],
    prefix: str,
    clean: str | None,
    baseline: str | Baseline | None,
    level: float,
) -> list[tuple[str, CorruptionScores, Predictions | None]]:
    """(classifier, scores, clean predictions) of every classifier with corrupted settings."""
    grids: dict[str, dict[tuple[str, int], Predictions]] = {}
    cleans: dict[str, dict[tuple[str, int], Predictions]] = {}
    titles = classifier_titles(results)
    for result in results:
        place = ("clean", 0) if result.setting == clean else _place(result.setting, prefix)
        if place is not None:
            rows = cleans if result.setting == clean else grids
            _add_once(
                rows.setdefault(titles[result.key], {}),
                place,
                workspace.read(result, top_k=1, confidence=False, scores=False),
            )
    if not grids:
        raise SettingError(
            f"no corrupted settings named {prefix}.<corruption>.<severity>",
            found=", ".join(sorted({result.setting for result in results})[:5]) or "nothing",
        )
    divisor: Baseline | Grid | None
    divisor = grids.get(baseline) if isinstance(baseline, str) else baseline
    if isinstance(baseline, str) and divisor is None:
        raise SettingError(f"the baseline {baseline!r} was not evaluated", expected=f"one of {', '.join(grids)}")
    clean_of = {name: rows["clean", 0] for name, rows in cleans.items()}
    # Released arrays name their images otherwise than a user's own clean set: no rise over it can be paired.
    paired = {name: _if_paired(clean_of.get(name), grid) for name, grid in grids.items()}
    base_clean = paired.get(baseline) if isinstance(baseline, str) else None
    return [
        (
            name,
            corruption_scores(grid, paired[name], baseline=divisor, baseline_clean=base_clean, level=level),
            clean_of.get(name),
        )
        for name, grid in grids.items()
    ]


def _if_paired(clean: Predictions | None, grid: Grid) -> Predictions | None:
    same = clean is not None and set(next(iter(grid.values())).ids) == set(clean.ids)
    return clean if same else None


def corruption_prefixes(settings: Sequence[str]) -> list[str]:
    """The prefixes of all settings that are named like a corruption at a severity.

    >>> corruption_prefixes(["val", "imagenet-c.fog.3", "imagenet-c.snow.1"])
    ['imagenet-c']
    """
    found = [name.rsplit(".", 2)[0] for name in settings if _place(name, name.rsplit(".", 2)[0]) is not None]
    return list(dict.fromkeys(found))


def _place(setting: str, prefix: str) -> tuple[str, int] | None:
    """(corruption, severity) of ``prefix.fog.3``; only whole severities have published normalisers."""
    parts = setting.removeprefix(f"{prefix}.").split(".")
    if not setting.startswith(f"{prefix}.") or len(parts) != 2 or not parts[1].isdigit():
        return None
    return parts[0], int(parts[1])


def _add_once(grid: dict[tuple[str, int], Predictions], place: tuple[str, int], found: Predictions) -> None:
    if place in grid:
        raise SettingError(
            f"{found.classifier!r} has several results of different provenance in {found.setting!r}",
            found=f"{grid[place].provenance!r} and {found.provenance!r}",
            hint="use a workspace of one seed and one source, or choose the results from Python",
        )
    grid[place] = found
