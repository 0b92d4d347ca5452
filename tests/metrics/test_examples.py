"""The examples in the docstrings of metrics, published numbers and reports run."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import subprocess
import sys

import pytest

PACKAGES = ("shiftbench.metrics", "shiftbench.published", "shiftbench.reports")
MODULES = [
    f"{package}.{found.name}"
    for package in PACKAGES
    for found in pkgutil.iter_modules(importlib.import_module(package).__path__)
]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_importing_the_metrics_stays_light() -> None:
    """SciPy and Rich are imported when used."""
    code = "import sys, shiftbench.metrics, shiftbench.metrics.corruption_scores, shiftbench.metrics.flips\n"
    code += "import shiftbench.reports\n"
    code += "heavy = [name for name in ('scipy', 'rich', 'pyarrow') if name in sys.modules]\n"
    code += "sys.exit(str(heavy) if heavy else 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
