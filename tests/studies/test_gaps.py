"""The parts of every model's gap, from tables in percent and fractions, with and without fresh images."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import beta

from shiftbench.studies import Results, StudyError
from shiftbench.studies.gaps import decompose_gaps


def table(unit: str = "percent", **sizes: float) -> Results:
    values = np.array([[90.0, 80.0, 89.0], [70.0, 69.0, np.nan], [60.0, np.nan, 58.0]])
    known = {"old": 10_000.0, "new": 2_000.0, "fresh": 5_000.0} | sizes
    arrays = {name: np.asarray(n) for name, n in known.items()}
    return Results(("a", "b", "c"), ("old", "new", "fresh"), values / (1 if unit == "percent" else 100), unit, arrays)


def test_parts_of_every_model() -> None:
    found = decompose_gaps(table(), "old", "new")
    assert [row.model for row in found.rows] == ["a", "b"] and "c" in found.notes[0]
    first = found.rows[0].parts
    assert first.total == pytest.approx(0.1) and not first.chance_alone and first.adaptivity is None
    low, high = beta.ppf(0.025, 1600, 401), beta.ppf(0.975, 1601, 400)
    assert first.generalisation == pytest.approx((low - 0.8, high - 0.8))
    assert found.rows[1].parts.chance_alone  # a point on 2,000 images is chance
    data = found.rows[0].as_dict()
    assert data["generalisation_low"] == first.generalisation.low and data["adaptivity_low"] is None


def test_units_agree() -> None:
    percent, fraction = (
        [row.parts.systematic.low for row in decompose_gaps(table(unit), "old", "new").rows]
        for unit in ("percent", "fraction")
    )
    assert percent == pytest.approx(fraction)


def test_fresh_images_split_the_rest() -> None:
    found = decompose_gaps(table(), "old", "new", fresh="fresh")
    assert [row.model for row in found.rows] == ["a"]
    parts = found.rows[0].parts
    assert (parts.adaptivity, parts.distribution) == pytest.approx((0.01, 0.09))
    assert parts.adaptivity_interval is not None and parts.adaptivity_interval.low < 0.01


def test_unknown_numbers_of_images() -> None:
    with pytest.raises(StudyError, match="number of images behind 'new'"):
        decompose_gaps(replace(table(), sizes={"old": np.asarray(10.0)}), "old", "new")
    with pytest.raises(StudyError, match="no model has both"):
        decompose_gaps(table(new=float("nan")), "old", "new")


def test_no_model_of_004_is_explained_by_chance(reference_data: Path) -> None:
    """004 section 3.2: the drops on both new test sets are far outside their intervals."""
    data = np.load(reference_data / "cifar-10.1" / "cifar10_and_10.1_predictions_30models.npz")
    values = np.column_stack([(data[name] == data[f"labels_{name}"]).mean(axis=1) for name in ("cifar10", "v6")])
    sizes = {"cifar10": np.asarray(10_000.0), "v6": np.asarray(2_000.0)}
    results = Results(tuple(map(str, data["models"])), ("cifar10", "v6"), values, "fraction", sizes)
    found = decompose_gaps(results, "cifar10", "v6", level=0.99)
    assert len(found.rows) == 30 and not any(row.parts.chance_alone for row in found.rows)
