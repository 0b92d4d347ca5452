"""A plug-in for pytest: the fixture ``assert_not_worse``, the marker ``robustness``, and the verdicts in the summary.

pytest loads it through its entry point. It imports the rest of the package when a test asks for it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from shiftbench.bridges.testing import ModelVerdict

_TESTING = "shiftbench.bridges.testing"
_MARKER = "robustness: evaluates models, which takes longer than a unit test; deselect with -m 'not robustness'"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _MARKER)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that use the fixture have the marker."""
    for item in items:
        if "assert_not_worse" in getattr(item, "fixturenames", ()):
            item.add_marker("robustness")


@pytest.fixture(name="assert_not_worse")
def _assert_not_worse() -> Callable[..., ModelVerdict]:
    """The function ``shiftbench.bridges.assert_not_worse``."""
    from shiftbench.bridges.testing import assert_not_worse

    return assert_not_worse


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List what the comparisons of this run have shown; a pass says on how many images."""
    testing = sys.modules.get(_TESTING)
    if testing is None or not testing.verdicts:
        return
    terminalreporter.section("robustness")
    for verdict in testing.verdicts:
        terminalreporter.write_line(verdict)
