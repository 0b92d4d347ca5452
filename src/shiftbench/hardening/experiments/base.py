"""An experiment: a grid of recipes by seeds, an evaluation suite, and the questions that the papers answered.

Experiments are TOML files, the built-in ones too: `shiftbench experiment my.toml`. Sizes are data: each scale is a set
of changes to the recipes, which ``--set`` can change again, and a scale may use data of its own. ``base`` starts from
another experiment, as in recipes. ``plan_runs`` lists the runs: every variant in every seed and part, with its recipe
and its folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, structs

from shiftbench import ShiftbenchError
from shiftbench.extend.errors import check_names
from shiftbench.extend.options import Count, decode, parse_toml
from shiftbench.hardening.errors import RecipeError
from shiftbench.hardening.recipe import Recipe, changed, load_recipe, recipe_from, recipe_text, tables_of
from shiftbench.hardening.recipe_check import check_recipe

#: The metric of the protocol, by which the experiment is scored.
ExperimentMetric = Literal["accuracy", "mCE", "mAP", "AUPR"]


class ExperimentPart(Struct, frozen=True):
    """A training dataset, and the suite for the networks trained on it. Scores of several parts are averaged."""

    #: A named dataset, or a role that --data fills followed by a path below the role's folder.
    train: str
    suite: str

    @property
    def role(self) -> str:
        """The role that the user's data fills; "" if the part trains on a named dataset."""
        if "/" not in self.train:
            return ""
        return self.train.split("/")[0]


class Variant(Struct, frozen=True):
    """One way to train a network; it is trained once per seed."""

    name: str
    recipe: str
    #: The variant that this one is compared with.
    base: str = ""
    #: The hypothesis that is tested by comparing this variant with its base.
    hypothesis: str = ""
    changes: dict[str, Any] = {}


class PaperClaim(Struct, frozen=True):
    """A direction that a paper reports: ``better`` does better than ``worse``."""

    text: str
    paper: str
    better: str
    worse: str
    #: The accuracy that the claim is about.
    measure: Literal["shifted", "clean"] = "shifted"
    #: The paper's own numbers, in its own words.
    published: str = ""


class ExperimentScale(Struct, frozen=True):
    """How large an experiment is."""

    about: str
    seeds: Count = 3
    #: Changes to every recipe.
    changes: dict[str, Any] = {}
    #: Further changes to the recipes of some variants.
    variants: dict[str, dict[str, Any]] = {}
    #: Recipes that replace those of some variants.
    recipes: dict[str, str] = {}
    #: Values that replace those of the experiment's grid.
    grid: dict[str, tuple[Any, ...]] = {}
    #: Variants that are left out.
    without: tuple[str, ...] = ()
    #: Data and a metric that replace the experiment's.
    parts: tuple[ExperimentPart, ...] = ()
    metric: ExperimentMetric | None = None
    #: Number of evaluation images, which a fixed seed draws; 0 stands for all.
    sample: int = 0
    severities: tuple[float, ...] = (1, 2, 3, 4, 5)
    corruptions: tuple[str, ...] = ()


class Experiment(Struct, frozen=True):
    """The variants to train, the data, and the claims of papers that the results are compared with."""

    name: str
    about: str
    variants: tuple[Variant, ...]
    scales: dict[str, ExperimentScale]
    #: Most experiments have one part, written as ``train`` and ``suite`` in the file.
    parts: tuple[ExperimentPart, ...]
    claims: tuple[PaperClaim, ...] = ()
    #: The variants that the line of effective robustness goes through: standard training, no interventions.
    baseline: tuple[str, ...] = ()
    metric: ExperimentMetric = "accuracy"
    #: Recipe keys and their values: each combination is one more variant, a change of the first variant.
    grid: dict[str, tuple[Any, ...]] = {}

    def __post_init__(self) -> None:
        variants = {variant.name: variant for variant in self.variants}
        named: list[str] = []
        for claim in self.claims:
            named += [claim.better, claim.worse]
        for variant in self.variants:
            named.append(variant.base or variant.name)
        named += self.baseline
        check_names("variant", named, variants)
        for name in self.baseline:
            if variants[name].hypothesis:
                raise RecipeError(
                    "an intervention can't be a baseline: the line would go through what it is to measure",
                    found=f"baseline {name!r} tests {variants[name].hypothesis!r}",
                )

    def scale(self, name: str) -> ExperimentScale:
        check_names(f"scale of {self.name!r}", [name], self.scales)
        return self.scales[name]

    def at(self, scale: str) -> Experiment:
        """This experiment with the data, the metric and the variants of a scale."""
        settings = self.scale(scale)
        left_out = set(settings.without)
        variants = [variant for variant in self.variants if variant.name not in left_out]
        claims = [claim for claim in self.claims if left_out.isdisjoint((claim.better, claim.worse))]
        baseline = [name for name in self.baseline if name not in left_out]
        return structs.replace(
            self,
            grid={},
            parts=settings.parts or self.parts,
            metric=settings.metric or self.metric,
            variants=(*variants, *self._grid_variants(settings)),
            claims=tuple(claims),
            baseline=tuple(baseline),
        )

    def _grid_variants(self, settings: ExperimentScale) -> list[Variant]:
        """A variant per combination of the grid's values, except the combination that the first variant has anyway."""
        if not self.grid:
            return []
        grid = {**self.grid, **settings.grid}
        first = self.variants[0]
        variants = []
        for values in product(*grid.values()):
            combination = dict(zip(grid, values, strict=True))
            # The table of a key adds nothing to the name: "lr=0.1" for "optimizer.lr".
            words = [f"{key.split('.')[-1]}={value}" for key, value in combination.items()]
            name = "-".join(words)
            changes = {**first.changes, **combination}
            if load_recipe(first.recipe, changes) != load_recipe(first.recipe, first.changes):
                variants.append(Variant(name, first.recipe, first.name, changes=changes))
        return variants


def load_experiment(which: str | Path) -> Experiment:
    """Reads a built-in experiment by its name, or a TOML file by its path."""
    tables = {"name": Path(which).stem, **tables_of(which, "experiments")}
    for table in (tables, *tables.get("scales", {}).values()):
        # An experiment with one part may write `train` and `suite` without a table for the part.
        part = {key: table.pop(key) for key in ("train", "suite") if key in table}
        if part:
            table["parts"] = [part]
    experiment = decode(tables, Experiment, f"the experiment {tables['name']!r}", RecipeError)
    variants = [variant.name for variant in experiment.variants]
    # The scales of a base may name variants that this experiment lacks; the scales in the file itself may not.
    written = parse_toml(recipe_text(which, "experiments"), which, RecipeError)
    for scale in written.get("scales", {}).values():
        stated = (*scale.get("variants", ()), *scale.get("recipes", ()), *scale.get("without", ()))
        check_names("variant", stated, variants)
    return experiment


# Runs


@dataclass(frozen=True)
class PlannedRun:
    """A classifier to be trained."""

    variant: str
    seed: int
    recipe: Recipe
    folder: Path
    #: The position of its part in the experiment's parts.
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
    """The runs of an experiment, seed by seed. Every recipe is checked, so that no mistake shows after hours."""
    settings = experiment.scale(scale)
    experiment = experiment.at(scale)
    count = settings.seeds if seeds is None else seeds
    if count < 1:
        raise ShiftbenchError("an experiment needs a seed", found=count, expected="at least 1")
    planned = []
    for seed in range(count):
        for variant in experiment.variants:
            recipe = _variant_recipe(variant, settings, seed, changes)
            check_recipe(recipe)
            for part in range(len(experiment.parts)):
                name = run_name(variant.name, seed)
                if len(experiment.parts) > 1:
                    name += f"-p{part + 1}"
                planned.append(PlannedRun(variant.name, seed, recipe, out / "runs" / name, part))
    return planned


def _variant_recipe(variant: Variant, settings: ExperimentScale, seed: int, changes: Sequence[str]) -> Recipe:
    """The recipe of a variant at a scale. Later changes win: the variant's, the scale's, the user's, the seed."""
    recipe = load_recipe(settings.recipes.get(variant.name, variant.recipe))
    scale_changes = {**settings.changes, **settings.variants.get(variant.name, {})}
    tables = changed(recipe.as_dict(), {**variant.changes, **scale_changes})
    return recipe_from(changed(changed(tables, changes), {"train.seed": seed}))
