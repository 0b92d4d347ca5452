"""An experiment: a grid of recipes by seeds, an evaluation suite, and the questions that the papers answered.

Experiments are TOML files, the built-in ones too: `shiftbench experiment my.toml`. Sizes are data: each scale is a set
of changes to the recipes, which ``--set`` can change again. ``paper`` leaves the recipes as they are.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from shiftbench.errors import UnknownNameError
from shiftbench.hardening.errors import RecipeError
from shiftbench.io.schema import Count, decode, parse_toml, read_toml


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
    #: Evaluation images, drawn by a fixed seed; 0: all.
    sample: int = 0
    severities: tuple[float, ...] = (1, 2, 3, 4, 5)
    corruptions: tuple[str, ...] = ()


class Experiment(Struct, frozen=True):
    name: str
    about: str
    #: What is trained on: a named dataset, or a role that --data fills and a path below it.
    train: str
    suite: str
    variants: tuple[Variant, ...]
    scales: dict[str, ExperimentScale]
    claims: tuple[PaperClaim, ...] = ()
    #: The variants that the line of effective robustness goes through: standard training, no interventions.
    baseline: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        named = {variant.name: variant for variant in self.variants}
        for claim in self.claims:
            _known(claim.better, named)
            _known(claim.worse, named)
        for variant in self.variants:
            _known(variant.base or variant.name, named)
        for name in self.baseline:
            _known(name, named)
            if named[name].hypothesis:
                raise RecipeError(
                    "an intervention can't be a baseline: the line would go through what it is to measure",
                    found=f"baseline {name!r} tests {named[name].hypothesis!r}",
                )

    @property
    def role(self) -> str:
        """The role that the user's data fills; "" where none is needed."""
        return self.train.split("/")[0] if "/" in self.train else ""


def _known(name: str, variants: dict[str, Variant]) -> None:
    if name not in variants:
        raise UnknownNameError("variant", name, variants)


def experiment_names() -> list[str]:
    """The experiments that come with the package."""
    folder = resources.files("shiftbench.hardening.experiments")
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))


def load_experiment(which: str | Path) -> Experiment:
    """A built-in experiment by name, or a TOML file."""
    if str(which) in experiment_names():
        text = resources.files("shiftbench.hardening.experiments").joinpath(f"{which}.toml").read_text("utf-8")
        found = parse_toml(text, which, RecipeError)
    elif Path(which).is_file():
        found = read_toml(Path(which), RecipeError)
    else:
        raise UnknownNameError("experiment", str(which), experiment_names())
    named = {"name": Path(which).stem, **found}
    return decode(named, Experiment, f"the experiment {named['name']!r}", RecipeError)
