"""The extension API: what plug-ins need besides the public API, one module for each thing that a plug-in does.

The registration of extensions is public API (``shiftbench.shifts.corruption``, ``shiftbench.metrics.metric``, ...). The
modules here hold the tools that the two workshops of this package are built with, and that a plug-in of their size
needs too: errors, files, jobs, resumable outputs, tables, commands. The names of a module are listed in its ``.pyi``
file and imported when they are used, so that importing a module costs next to nothing.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Callable
from pathlib import Path

#: The modules of the extension API, in the order of docs/extension-api.md.
MODULES = (
    "errors",
    "types",
    "registration",
    "commands",
    "tables",
    "html",
    "web",
    "io",
    "options",
    "jobs",
    "outputs",
    "datasets",
    "classifiers",
    "shifts",
    "settings",
    "metrics",
    "studies",
)


def attach(name: str, file: str) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """The ``__getattr__``, ``__dir__`` and ``__all__`` of a module whose names its ``.pyi`` file imports.

    Args:
        name: The module's ``__name__``.
        file: The module's ``__file__``.
    """
    origins = stub_imports(Path(file).with_suffix(".pyi"))

    def get(attribute: str) -> object:
        if attribute not in origins:
            raise AttributeError(f"module {name!r} has no attribute {attribute!r}")
        return getattr(importlib.import_module(origins[attribute]), attribute)

    def listing() -> list[str]:
        return sorted(origins)

    return get, listing, sorted(origins)


def stub_imports(stub: Path) -> dict[str, str]:
    """The names that a stub file imports, and the module of each."""
    origins: dict[str, str] = {}
    for node in ast.parse(stub.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            origins.update(dict.fromkeys((alias.name for alias in node.names), node.module))
    return origins
