"""The examples in the docstrings run."""

from __future__ import annotations

import doctest
import importlib

import pytest


@pytest.mark.parametrize("name", ["options", "chain", "streams", "folder", "listing"])
def test_examples(name: str) -> None:
    outcome = doctest.testmod(importlib.import_module(f"shiftbench.hardening.augmentations.{name}"))
    assert outcome.failed == 0 < outcome.attempted


def test_examples_of_the_command() -> None:
    assert doctest.testmod(importlib.import_module("shiftbench.cli.harden")).failed == 0
