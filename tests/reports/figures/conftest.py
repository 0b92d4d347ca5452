"""A small study of made-up models, and the public testbed where it lies beside the checkout."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from shiftbench.studies import ModelInfo, Models, Results, read_models, read_results
from shiftbench.studies.study import Study
from shiftbench.studies.testbed import complete


@pytest.fixture
def study() -> Study:
    """Ten models in three categories, one of which is always right under shift and one never."""
    val = np.array([55.0, 60, 66, 70, 74, 78, 81, 84, 76, 79])
    shifted = np.array([41.0, 46, 52, 57, 62, 66, 70, 74, 0.0, 100.0])
    names = tuple(f"net-{i}" for i in range(10))
    kinds = ["standard"] * 6 + ["more_data", "my own kind", "robustness_intervention", ""]
    sizes = {"val": np.asarray(5_000.0), "shifted": np.asarray(1_000.0)}
    results = Results(names, ("val", "shifted"), np.column_stack([val, shifted]), "percent", sizes)
    return Study(results, Models({name: ModelInfo(name, kind) for name, kind in zip(names, kinds, strict=True)}))


@pytest.fixture(scope="session")
def public(reference_data: Path) -> Study:
    folder = reference_data / "imagenet-testbed"
    results = complete(read_results(folder / "results_204x213.csv"))
    return Study(results, read_models(folder / "models_338.csv"))
