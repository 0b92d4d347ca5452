"""Workspaces that several tests look at."""

from __future__ import annotations

from pathlib import Path

import pytest

import shiftbench as sb
from shiftbench.reports.page.published import Published
from tests.reports.page.making import read_published, run_colours


@pytest.fixture(scope="session")
def testbed(reference_data: Path) -> Published:
    return read_published(reference_data / "imagenet-testbed")


@pytest.fixture(scope="session")
def plain_run(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> sb.Run:
    """The same on the clean pictures only."""
    return run_colours(pictures, tmp_path_factory.mktemp("plain") / "w", suite="clean")
