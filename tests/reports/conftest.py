"""A workspace that many tests look at."""

from __future__ import annotations

from pathlib import Path

import pytest

import shiftbench as sb
from tests.reports.page.making import run_colours
from tests.runs.helpers import colour_folder


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return colour_folder(tmp_path_factory.mktemp("data") / "pictures", per_class=12)


@pytest.fixture(scope="session")
def run(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> sb.Run:
    """Two classifiers on 36 pictures, clean and under three corruptions at three severities."""
    return run_colours(pictures, tmp_path_factory.mktemp("workspace") / "w w")
