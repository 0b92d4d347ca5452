"""An experiment: a grid of recipes by seeds, an evaluation suite, and the questions that the papers answered.

Experiments are TOML files, the built-in ones too: `shiftbench experiment my.toml`. Sizes are data: each scale is a set
of changes to the recipes, which ``--set`` can change again, and may have data of its own. ``base`` starts from another
experiment, as in recipes. ``plan_runs`` makes the runs: every variant in every seed and part, with recipe and folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, structs

from shiftbench.errors import ShiftbenchError, check_names
from shiftbench.hardening.errors import RecipeError
from shiftbench.hardening.recipe import Recipe, changed, load_recipe, recipe_from, recipe_text, tables_of
from shiftbench.hardening.recipe_check import check_recipe
from shiftbench.io.schema import Count, decode, parse_toml

#: What an experiment is scored by: the metric of its protocol.
ExperimentMetric = Literal["accuracy", "mCE", "mAP", "AUPR"]


class ExperimentPart(Struct, frozen=True):
    """Training data, and the suite for what was trained on it. The scores of several parts are averaged."""

    #: A named dataset, or a role that --data fills and a path below it.
    train: str
    suite: str

    @property
    def role(self) -> str:
        """The role that the user's data fills; "" where none is needed."""
        return self.train.split("/")[0] if "/" in self.train else ""


class Variant(Struct, frozen=True):
    """One way to train, in every seed."""

    name: str
    recipe: str
    #: The variant it is compared with.
    base: str = ""
    #: The hypothesis that it tests, with its base.
    hypothesis: str = ""
    changes: dict[str, Any] = {}


class PaperClaim(Struct, frozen=True):
    """A direction that a paper reports: ``better`` does better than ``worse``."""

    text: str
    paper: str
    better: str
    worse: str
    #: Of which accuracy.
    measure: Literal["shifted", "clean"] = "shifted"
    #: The paper's own numbers, in its own words.
    published: str = ""


class ExperimentScale(Struct, frozen=True):
    """How large an experiment is."""

    about: str
    seeds: Count = 3
    #: To every recipe.
    changes: dict[str, Any] = {}
    #: To the recipes of some variants, on top.
    variants: dict[str, dict[str, Any]] = {}
    #: Recipes of some variants in place of their own.
    recipes: dict[str, str] = {}
    #: Values in place of the experiment's grid.
    grid: dict[str, tuple[Any, ...]] = {}
    #: Variants that are left out.
    without: tuple[str, ...] = ()
    #: Data and metric in place of the experiment's.
    parts: tuple[ExperimentPart, ...] = ()
    metric: ExperimentMetric | None = None
    #: Evaluation images, drawn by a fixed seed; 0: all.
    sample: int = 0
    severities: tuple[float, ...] = (1, 2, 3, 4, 5)
    corruptions: tuple[str, ...] = ()


class Experiment(Struct, frozen=True):
    name: str
    about: str
    variants: tuple[Variant, ...]
    scales: dict[str, ExperimentScale]
    #: One for most experiments: ``train`` and ``suite`` in the file.
    parts: tuple[ExperimentPart, ...]
    claims: tuple[PaperClaim, ...] = ()
    #: The variants that the line of effective robustness goes through: standard training, no interventions.
    baseline: tuple[str, ...] = ()
    metric: ExperimentMetric = "accuracy"
    #: Recipe keys and their values: each combination is a variant of the first one, beside it.
    grid: dict[str, tuple[Any, ...]] = {}

    def __post_init__(self) -> None:
        named = {variant.name: variant for variant in self.variants}
        claimed = [name for claim in self.claims for name in (claim.better, claim.worse)]
        check_names("variant", (*claimed, *(one.base or one.name for one in self.variants), *self.baseline), named)
        for name in self.baseline:
            if named[name].hypothesis:
                raise RecipeError(
                    "an intervention can't be a baseline: the line would go through what it is to measure",
                    found=f"baseline {name!r} tests {named[name].hypothesis!r}",
                )

    def scale(self, name: str) -> ExperimentScale:
        check_names(f"scale of {self.name!r}", [name], self.scales)
        return self.scales[name]

    def at(self, scale: str) -> Experiment:
        """With the data, metric and variants of a scale."""
        chosen, first = self.scale(scale), self.variants[0]
        grid, cells = {**self.grid, **chosen.grid} if self.grid else {}, list[Variant]()
        for values in product(*grid.values()) if grid else ():
            name = "-".join(f"{key.split('.')[-1]}={value}" for key, value in zip(grid, values, strict=True))
            changes = {**first.changes, **dict(zip(grid, values, strict=True))}
            if load_recipe(first.recipe, changes) != load_recipe(first.recipe, first.changes):
                cells.append(Variant(name, first.recipe, first.name, changes=changes))
        return structs.replace(
            self,
            grid={},
            parts=chosen.parts or self.parts,
            metric=chosen.metric or self.metric,
            variants=(*(one for one in self.variants if one.name not in chosen.without), *cells),
            claims=tuple(one for one in self.claims if not {one.better, one.worse} & set(chosen.without)),
            baseline=tuple(one for one in self.baseline if one not in chosen.without),
        )


def load_experiment(which: str | Path) -> Experiment:
    """A built-in experiment by name, or a TOML file."""
    named = {"name": Path(which).stem, **tables_of(which, "experiments")}
    for table in (named, *named.get("scales", {}).values()):
        if part := {key: table.pop(key) for key in ("train", "suite") if key in table}:
            table["parts"] = [part]
    found = decode(named, Experiment, f"the experiment {named['name']!r}", RecipeError)
    # Scales of a base may name variants that are not here; those of the file itself may not.
    for scale in parse_toml(recipe_text(which, "experiments"), which, RecipeError).get("scales", {}).values():
        stated = (*scale.get("variants", ()), *scale.get("recipes", ()), *scale.get("without", ()))
        check_names("variant", stated, [variant.name for variant in found.variants])
    return found


# Runs


@dataclass(frozen=True)
class PlannedRun:
    """One classifier that is to be trained."""

    variant: str
    seed: int
    recipe: Recipe
    folder: Path
    #: Number of the experiment's part.
    part: int = 0

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def spec(self) -> str:
        return f"hardened:{self.folder}"


def run_name(variant: str, seed: int) -> str:
    return f"{variant}-s{seed}"


def plan_runs(
    experiment: Experiment, scale: str, out: Path, *, seeds: int | None = None, changes: Sequence[str] = ()
) -> list[PlannedRun]:
    """Every recipe is checked before the first run begins."""
    chosen, experiment = experiment.scale(scale), experiment.at(scale)
    count = chosen.seeds if seeds is None else seeds
    if count < 1:
        raise ShiftbenchError("an experiment needs a seed", found=count, expected="at least 1")
    planned = []
    for seed in range(count):
        for variant in experiment.variants:
            ours = {**variant.changes, **chosen.changes, **chosen.variants.get(variant.name, {})}
            tables = changed(load_recipe(chosen.recipes.get(variant.name, variant.recipe)).as_dict(), ours)
            recipe = recipe_from(changed(changed(tables, changes), {"train.seed": seed}))
            check_recipe(recipe)
            for part in range(len(experiment.parts)):
                suffix = f"-p{part + 1}" if len(experiment.parts) > 1 else ""
                folder = out / "runs" / f"{run_name(variant.name, seed)}{suffix}"
                planned.append(PlannedRun(variant.name, seed, recipe, folder, part))
    return planned
