"""The examples in the docstrings run, and what should be light stays light."""

from __future__ import annotations

import doctest
import importlib
import subprocess
import sys

import pytest

MODULES = (
    "accounts", "agreement", "annotation", "configuration", "database.engine", "frozen", "pool.importing",
    "pool.sources", "revisions", "sampling.base", "sampling.keywords", "sampling.matched_frequency", "tasks",
)  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    assert doctest.testmod(importlib.import_module(f"shiftbench.testsets.{name}")).failed == 0


def test_examples_of_the_commands() -> None:
    assert doctest.testmod(importlib.import_module("shiftbench.cli.testset")).failed == 0


def test_evaluating_needs_no_database() -> None:
    """A frozen set opens where SQLAlchemy is not installed, and the list of suites does not import it."""
    code = (
        "import sys\n"
        "sys.modules['sqlalchemy'] = sys.modules['alembic'] = None\n"
        "from shiftbench.settings.base import suites\n"
        "from shiftbench.datasets.catalogue import dataset_openers\n"
        "assert 'testset' in dataset_openers and suites.families()\n"
        "import shiftbench.testsets.frozen, shiftbench.testsets.export.huggingface\n"
        "from shiftbench.errors import MissingExtraError\n"
        "try:\n"
        "    from shiftbench.testsets import Project\n"
        "except MissingExtraError as error:\n"
        "    sys.exit(0 if 'shiftbench[testsets]' in str(error) else 'no hint')\n"
        "sys.exit('no error')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
