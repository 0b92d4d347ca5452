"""``shiftbench list``: the names that other commands take."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Annotated

import typer

import shiftbench as sb
from shiftbench.cli.console import output, print_json
from shiftbench.cli.options import Json, complete_suites
from shiftbench.registry import Registry

#: Names with their descriptions.
Rows = list[tuple[str, str]]
#: Names that people use for the listings, and ours.
_ALIASES = {"models": "classifiers", "labels": "spaces", "label-spaces": "spaces"}


def list_command(
    what: Annotated[
        str,
        typer.Argument(
            autocompletion=lambda: list(_LISTINGS),
            help="suites, settings, corruptions, metrics, models (or classifiers), datasets, spaces or shifts.",
        ),
    ] = "suites",
    suite: Annotated[
        str | None, "-s", {"autocompletion": complete_suites}, "With `settings`: those of one suite."
    ] = None,
    json: Json = False,
) -> None:
    """List suites, settings, corruptions, metrics, models, datasets, label spaces or the testbed's shifts."""
    listing = _ALIASES.get(what, what)
    if listing not in _LISTINGS:
        raise typer.BadParameter(f"{listing!r} is not one of {', '.join(_LISTINGS)}")
    rows = _LISTINGS[listing](suite)
    if json:
        print_json([{"name": name, "about": description} for name, description in rows])
        return
    from rich.table import Table

    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="bold")
    table.add_column(style="dim")
    for row in rows:
        table.add_row(*row)
    output.print(table)


def _first_line(item: object) -> str:
    """The first line of the docstring; nothing if the docstring begins with an example."""
    line = (item.__doc__ or "").strip().split("\n")[0].replace("``", "`")
    return "" if line.startswith(">>>") else line


def _settings(suite: str | None) -> Rows:
    """The settings of a suite, or of all suites, each of them once."""
    from shiftbench.settings.base import build_suite, suites

    descriptions = {}
    for suite_name in [suite] if suite else suites.names():
        for setting in build_suite(suite_name).settings:
            description = f"{setting.dataset}, {setting.shift.name}, {setting.space or 'all classes'}"
            if setting.note:
                description += f"; {setting.note}"
            descriptions[setting.name] = description
    return list(descriptions.items())


def _corruptions(_: str | None) -> Rows:
    """All corruptions, with their group and the published set that they belong to, if any."""
    from shiftbench.shifts.corruptions.catalogue import CORRUPTIONS

    sets = dict.fromkeys(sb.corruptions("benchmark"), "benchmark") | dict.fromkeys(sb.corruptions("extra"), "extra")
    rows = []
    for name in sb.corruptions("registered"):
        rows.append((name, f"{CORRUPTIONS.get(name).group}, {sets.get(name, 'own')}"))
    return rows


def _registered(home: str) -> Callable[[str | None], Rows]:
    """A listing of the names and descriptions of a registry, which is named as ``module:name``."""

    def rows(_: str | None) -> Rows:
        module, _, name = home.partition(":")
        registry: Registry[object] = getattr(importlib.import_module(f"shiftbench.{module}"), name)
        items = [(name, _first_line(getattr(item, "function", item))) for name, item in registry]
        families = [(family.name, _first_line(family.make)) for family in registry.families()]
        return items + families

    return rows


def _datasets(_: str | None) -> Rows:
    from shiftbench.datasets.catalogue import dataset_kinds, named_datasets

    named = [(name, _first_line(function)) for name, function in named_datasets]
    kinds = [(f"{name}:PATH", _first_line(kind.open)) for name, kind in dataset_kinds]
    return named + kinds


def _shifts(_: str | None) -> Rows:
    from shiftbench.studies.testbed import SHIFTS

    rows = []
    for name, shift in SHIFTS.items():
        rows.append((name, f"{shift.y} against {shift.x}, {shift.min_x:g} % or more"))
    return rows


#: What `list` lists; each function takes the value of --suite.
_LISTINGS: dict[str, Callable[[str | None], Rows]] = {
    "suites": _registered("settings.base:suites"),
    "settings": _settings,
    "corruptions": _corruptions,
    "metrics": _registered("metrics.base:metrics"),
    "classifiers": _registered("classifiers.loading:classifier_loaders"),
    "datasets": _datasets,
    "spaces": _registered("labels.catalogue:label_spaces"),
    "shifts": _shifts,
}
