"""The test-set workshop: candidates, annotation, selection frequencies, sampling, review, frozen test sets.

>>> from shiftbench.testsets import Project
>>> project = Project.open("pets")                                                   # doctest: +SKIP
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from shiftbench.errors import MissingExtraError

if TYPE_CHECKING:
    from shiftbench.testsets.configuration import ClassDefinition, Configuration
    from shiftbench.testsets.project import Project

_HOMES = {"ClassDefinition": "configuration", "Configuration": "configuration", "Project": "project"}
__all__ = ["ClassDefinition", "Configuration", "Project"]


def __getattr__(name: str) -> object:
    """Import each name on first use: evaluating a frozen set needs no database."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f"shiftbench.testsets.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name in ("sqlalchemy", "alembic", "argon2"):
            raise MissingExtraError(error.name, "testsets", "the test-set workshop") from error
        raise
