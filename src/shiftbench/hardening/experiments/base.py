"""An experiment: a grid of recipes by seeds, an evaluation suite, and the questions that the papers answered.

Sizes are data: each scale is a set of changes to the recipes, which ``--set`` can change again. ``paper`` leaves the
recipes as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shiftbench.registry import Registry


@dataclass(frozen=True)
class Variant:
    """One way to train, in every seed."""

    name: str
    recipe: str
    #: The variant it is compared with.
    base: str = ""
    #: The hypothesis that it tests, with its base.
    hypothesis: str = ""
    changes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PaperClaim:
    """A direction that a paper reports: ``better`` does better than ``worse``."""

    text: str
    paper: str
    better: str
    worse: str
    #: Of which accuracy: "shifted" or "clean".
    measure: str = "shifted"
    #: The paper's own numbers, in its own words.
    published: str = ""


@dataclass(frozen=True)
class ExperimentScale:
    """How large an experiment is."""

    about: str
    seeds: int = 3
    #: To every recipe.
    changes: Mapping[str, Any] = field(default_factory=dict)
    #: To the recipes of some variants, on top.
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    #: Evaluation images, drawn by a fixed seed; 0: all.
    sample: int = 0
    severities: tuple[float, ...] = (1, 2, 3, 4, 5)
    corruptions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Experiment:
    name: str
    about: str
    #: What is trained on: a named dataset, or a role that --data fills and a path below it.
    train: str
    suite: str
    variants: tuple[Variant, ...]
    scales: Mapping[str, ExperimentScale]
    claims: tuple[PaperClaim, ...] = ()
    #: The variants that the line of effective robustness goes through.
    baseline: tuple[str, ...] = ()

    @property
    def role(self) -> str:
        """The role that the user's data fills; "" where none is needed."""
        return self.train.split("/")[0] if "/" in self.train else ""


experiments: Registry[Experiment] = Registry("experiment", builtin=("shiftbench.hardening.experiments.builtin",))
