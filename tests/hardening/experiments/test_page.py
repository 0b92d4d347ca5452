"""docs/experiments.md shows what the experiments of the package are, not what they once were."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from shiftbench.hardening.experiments.base import load_experiment
from shiftbench.hardening.recipe import builtin_names

PAGE = (Path(__file__).parents[3] / "docs" / "experiments.md").read_text(encoding="utf-8")
SECTIONS = {part.split("\n", 1)[0]: part for part in PAGE.split("\n## ")[1:] if "shiftbench experiment" in part}
#: Sections about no single experiment.
GENERAL = {"Reproducing", "What would decide"}


def test_every_experiment_has_a_section() -> None:
    assert set(SECTIONS) - GENERAL == set(builtin_names("experiments")) - {"hyper-parameters"}


@pytest.mark.parametrize("name", sorted(set(SECTIONS) - GENERAL))
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


def detectable(deviation: float, seeds: int, variants: int, level: float) -> float:
    """The least difference, in steps of a tenth, that a t test with the pooled variance shows with 80 %."""
    freedom = variants * (seeds - 1)
    critical = stats.t.ppf(1 - level / 2, freedom)
    differences = np.arange(1, 200) / 10
    power = stats.nct.sf(critical, freedom, differences / (deviation * np.sqrt(2 / seeds)))
    return float(differences[np.argmax(power >= 0.8)])


def test_the_differences_that_so_many_seeds_show_are_computed() -> None:
    [table] = [part for part in SECTIONS["many-faces"].split("\n\n**") if part.startswith("accuracy and robustness")]
    # variant | clean | ± seeds | shifted | ± seeds | rho | ± seeds | tau | ± seeds
    rows = [line.split("|")[1:-1] for line in table.splitlines() if line.startswith("| ")][2:]
    deviations = [float(row[4]) for row in rows]
    assert len(deviations) == 9
    pooled = float(np.sqrt(np.mean(np.square(deviations))))
    section = PAGE.split("\n## What would decide\n")[1].split("\n## ")[0]
    assert f"is {pooled:.2f} points" in section
    stated = re.findall(r"^\| (\d+) \| ([\d.]+) \|$", section, re.M)
    assert len(stated) == 3
    for seeds, difference in stated:
        assert detectable(pooled, int(seeds), 9, 0.05 / 5) == pytest.approx(float(difference))
    assert detectable(pooled, 23, 9, 0.05 / 5) <= 1.4 < detectable(pooled, 22, 9, 0.05 / 5)
