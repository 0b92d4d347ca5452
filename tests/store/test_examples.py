"""The examples in the docstrings run."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

PACKAGE = "shiftbench.store"
MODULES = [f"{PACKAGE}.{found.name}" for found in pkgutil.iter_modules(importlib.import_module(PACKAGE).__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0
