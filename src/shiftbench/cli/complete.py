"""What the shell completes: names from the registries, and from the folders of a workspace.

Nothing here opens a file or imports a framework: the shell waits for every answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote

import typer

DEFAULT_WORKSPACE = Path("shiftbench-workspace")


def suites(incomplete: str) -> list[str]:
    from shiftbench.settings.base import suites

    return _last_of_list(suites.names(), incomplete)


def corruptions(incomplete: str) -> list[str]:
    from shiftbench.shifts.corruptions import corruptions

    return _last_of_list(corruptions("registered"), incomplete)


def models(incomplete: str) -> list[str]:
    """Schemes such as ``timm:``; for everything else the shell completes files."""
    from shiftbench.classifiers.loading import classifier_loaders

    return _beginning(incomplete, (f"{name}:" for name in classifier_loaders.names() if not name.startswith(".")))


def label_spaces(incomplete: str) -> list[str]:
    from shiftbench.labels.catalogue import FOLDERS, label_spaces

    return _beginning(incomplete, [FOLDERS, *label_spaces.names()])


def workspace_models(ctx: typer.Context, incomplete: str) -> list[str]:
    """Models that have results in the workspace of the command."""
    return _beginning(incomplete, {unquote(folder.parent.name) for folder in _results(ctx)})


def workspace_settings(ctx: typer.Context, incomplete: str) -> list[str]:
    """Settings that have results in the workspace of the command."""
    return _beginning(incomplete, {unquote(folder.name) for folder in _results(ctx)})


def _results(ctx: typer.Context) -> list[Path]:
    root = ctx.params.get("workspace") or DEFAULT_WORKSPACE
    return list(root.glob("predictions/*/*")) if isinstance(root, Path) else []  # buckets would be too slow


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if name.startswith(incomplete))


def _last_of_list(names: Iterable[str], incomplete: str) -> list[str]:
    """Options that take several names, separated by commas."""
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in _beginning(last, names)]
