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

Rows = list[tuple[str, str]]
#: What else people call the listings.
_OTHER_NAMES = {"models": "classifiers", "labels": "spaces", "label-spaces": "spaces"}


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
    what = _OTHER_NAMES.get(what, what)
    if what not in _LISTINGS:
        raise typer.BadParameter(f"{what!r} is not one of {', '.join(_LISTINGS)}")
    rows = _LISTINGS[what](suite)
    if json:
        print_json([{"name": name, "about": about} for name, about in rows])
        return
    from rich.table import Table

    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="bold")
    table.add_column(style="dim")
    for row in rows:
        table.add_row(*row)
    output.print(table)


def _first_line(item: object) -> str:
    """The first line of its description; one of another kind (an example) describes nothing."""
    line = (item.__doc__ or "").strip().split("\n")[0].replace("``", "`")
    return "" if line.startswith(">>>") else line


def _settings(suite: str | None) -> Rows:
    from shiftbench.settings.base import build_suite, suites

    chosen = [suite] if suite else suites.names()
    found = {s.name: s for name in chosen for s in build_suite(name).settings}
    return [
        (s.name, f"{s.dataset}, {s.shift.name}, {s.space or 'all classes'}" + (f"; {s.note}" if s.note else ""))
        for s in found.values()
    ]


def _corruptions(_: str | None) -> Rows:
    from shiftbench.shifts.corruptions.catalogue import CORRUPTIONS

    sets = {name: which for which in ("benchmark", "extra") for name in sb.corruptions(which)}
    return [(name, f"{CORRUPTIONS.get(name).group}, {sets.get(name, 'own')}") for name in sb.corruptions("registered")]


def _registered(home: str) -> Callable[[str | None], Rows]:
    """Names and descriptions of a registry, ``module:name``."""

    def rows(_: str | None) -> Rows:
        module, _, name = home.partition(":")
        registry: Registry[object] = getattr(importlib.import_module(f"shiftbench.{module}"), name)
        listed = [(name, _first_line(getattr(item, "function", item))) for name, item in registry]
        return listed + [(family.name, _first_line(family.make)) for family in registry.families()]

    return rows


def _datasets(_: str | None) -> Rows:
    from shiftbench.datasets.catalogue import dataset_kinds, named_datasets

    named = [(name, _first_line(function)) for name, function in named_datasets]
    return named + [(f"{name}:PATH", _first_line(kind.open)) for name, kind in dataset_kinds]


def _shifts(_: str | None) -> Rows:
    from shiftbench.studies.testbed import SHIFTS

    return [(name, f"{one.y} against {one.x}, {one.min_x:g} % or more") for name, one in SHIFTS.items()]


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
