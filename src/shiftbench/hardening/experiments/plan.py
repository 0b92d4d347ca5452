"""The runs of an experiment: every variant in every seed, each with its recipe and its folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from shiftbench.errors import ShiftbenchError, UnknownNameError
from shiftbench.hardening.experiments.base import Experiment, ExperimentScale
from shiftbench.hardening.recipe import Recipe, changed, load_recipe, recipe_from
from shiftbench.hardening.recipe_check import check_recipe


@dataclass(frozen=True)
class PlannedRun:
    """One classifier that is to be trained."""

    variant: str
    seed: int
    recipe: Recipe
    folder: Path

    @property
    def name(self) -> str:
        return run_name(self.variant, self.seed)

    @property
    def spec(self) -> str:
        return f"hardened:{self.folder}"


def run_name(variant: str, seed: int) -> str:
    return f"{variant}-s{seed}"


def scale_of(experiment: Experiment, scale: str) -> ExperimentScale:
    if scale not in experiment.scales:
        raise UnknownNameError(f"scale of {experiment.name!r}", scale, experiment.scales)
    return experiment.scales[scale]


def plan_runs(
    experiment: Experiment, scale: str, out: Path, *, seeds: int | None = None, changes: Sequence[str] = ()
) -> list[PlannedRun]:
    """Every recipe is checked before the first run begins."""
    chosen = scale_of(experiment, scale)
    count = chosen.seeds if seeds is None else seeds
    if count < 1:
        raise ShiftbenchError("an experiment needs a seed", found=count, expected="at least 1")
    planned = []
    for seed in range(count):
        for variant in experiment.variants:
            ours = {**variant.changes, **chosen.changes, **chosen.variants.get(variant.name, {})}
            tables = changed(load_recipe(variant.recipe).as_dict(), ours)
            recipe = recipe_from(changed(changed(tables, changes), {"train.seed": seed}))
            check_recipe(recipe)
            planned.append(PlannedRun(variant.name, seed, recipe, out / "runs" / run_name(variant.name, seed)))
    return planned
