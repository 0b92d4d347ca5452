"""The public testbed's tables, where they lie beside the checkout."""

from __future__ import annotations

from pathlib import Path

import pytest

from shiftbench.studies import Models, Results, read_models, read_results
from shiftbench.studies.study import Study
from shiftbench.studies.testbed import complete


@pytest.fixture(scope="session")
def testbed_results(reference_data: Path) -> Results:
    return read_results(reference_data / "imagenet-testbed" / "results_204x213.csv")


@pytest.fixture(scope="session")
def testbed_models(reference_data: Path) -> Models:
    return read_models(reference_data / "imagenet-testbed" / "models_338.csv")


@pytest.fixture(scope="session")
def testbed(testbed_results: Results, testbed_models: Models) -> Study:
    return Study(complete(testbed_results), testbed_models)
