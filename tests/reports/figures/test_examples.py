"""The examples in the docstrings of the figures run, and the pictures in the documentation are there and small."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

PACKAGE = "shiftbench.reports.figures"
MODULES = [
    f"{PACKAGE}.{found.name}" for found in pkgutil.iter_modules(importlib.import_module(PACKAGE).__path__)
]  # fmt: skip
DOCS = Path(__file__).parents[3] / "docs"


@pytest.mark.parametrize("name", [*MODULES, "shiftbench.reports.study_tables"])
def test_examples(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_pictures_of_the_documentation() -> None:
    named = re.findall(r"\]\((pictures/figure-[\w-]+\.png)\)", (DOCS / "figures.md").read_text())
    assert len(named) == 8 and {path.name for path in (DOCS / "pictures").glob("figure-*.png")} == {
        Path(name).name for name in named
    }
    assert all((DOCS / name).stat().st_size < 150_000 for name in named)
