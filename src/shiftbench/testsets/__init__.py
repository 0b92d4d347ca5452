"""The test-set workshop, which builds new test sets as the authors of ImageNetV2 and CIFAR-10.1 built theirs.

A project collects candidates beside references from the original set, has people annotate both, samples candidates by
their selection frequencies, has reviewers remove what is wrong, and freezes the result as a folder of files. Only
images and what people say about them may enter: model predictions are refused until a set is frozen, or its makers
would favour some models. A frozen set is opened without a database; projects need the extra "testsets".

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

#: The module of each public name.
_MODULES = {"ClassDefinition": "configuration", "Configuration": "configuration", "Project": "project"}
__all__ = ["ClassDefinition", "Configuration", "Project"]


def __getattr__(name: str) -> object:
    """Import each name on first use: evaluating a frozen set needs no database."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = importlib.import_module(f"shiftbench.testsets.{_MODULES[name]}")
    except ModuleNotFoundError as error:
        if error.name in ("sqlalchemy", "alembic", "argon2"):
            raise MissingExtraError(error.name, "testsets", "the test-set workshop") from error
        raise
    return getattr(module, name)
