"""The examples in the docstrings run."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import shiftbench.shifts.corruptions as package

MODULES = [
    "shiftbench.shifts.seeds",
    "shiftbench.shifts.perturbations",
    package.__name__,
    *(f"{package.__name__}.{found.name}" for found in pkgutil.iter_modules(package.__path__)),
]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0
