"""The examples in the docstrings of the studies run, and importing them stays light."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import subprocess
import sys

import pytest

PACKAGE = "shiftbench.studies"
MODULES = [
    PACKAGE, *(f"{PACKAGE}.{found.name}" for found in pkgutil.iter_modules(importlib.import_module(PACKAGE).__path__))
]  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_importing_the_studies_stays_light() -> None:
    code = "import sys, shiftbench.studies\n"
    code += "heavy = [name for name in ('scipy', 'rich', 'pyarrow', 'pandas') if name in sys.modules]\n"
    code += "sys.exit(str(heavy) if heavy else 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
