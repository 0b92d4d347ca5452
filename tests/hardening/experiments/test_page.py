"""docs/experiments.md shows what the experiments of the package are, not what they once were."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shiftbench.hardening.experiments.base import load_experiment
from shiftbench.hardening.recipe import builtin_names

PAGE = (Path(__file__).parents[3] / "docs" / "experiments.md").read_text(encoding="utf-8")
SECTIONS = {part.split("\n", 1)[0]: part for part in PAGE.split("\n## ")[1:] if "shiftbench experiment" in part}


def test_every_experiment_has_a_section() -> None:
    assert set(SECTIONS) - {"Reproducing"} == set(builtin_names("experiments")) - {"hyper-parameters"}


@pytest.mark.parametrize("name", sorted(set(SECTIONS) - {"Reproducing"}))
def test_a_section_is_of_the_present_experiment(name: str) -> None:
    """Its question, scale, seeds, variants and claims; numbers are those of the command that it names."""
    section = SECTIONS[name]
    experiment = load_experiment(name).at("small")
    chosen = experiment.scale("small")
    seeds = re.search(rf"shiftbench experiment {name} --scale small(?: --seeds (\d+))?", section)
    assert seeds is not None and (count := int(seeds[1] or chosen.seeds)) >= 3
    assert f"{experiment.about}  \n{len(experiment.variants)} variants, {count} seeds; {chosen.about}  \n" in section
    tables = [part.split("\n\n**")[0] for part in section.split("\n\n**")[1:]]
    rows = [re.findall(r"^\| ([^|]+) \|", table, re.M)[2:] for table in tables if table.startswith("accuracy")]
    assert rows == [[variant.name for variant in experiment.variants]]
    orders = [
        rf"{claim.better} \> {claim.worse}" + ", clean" * (claim.measure == "clean") for claim in experiment.claims
    ]
    assert [order for order in orders if f"\n| {order} |" not in section] == []
