"""How commands take a place: a folder, or the URL of one in an object store, which is no path until it is parsed."""

from __future__ import annotations

from typing import Any

import typer

from shiftbench.io.paths import place


def workspace_option(help: str) -> Any:
    return typer.Option("--workspace", "-w", parser=place, metavar="PATH|URL", help=help)


def place_argument(help: str) -> Any:
    return typer.Argument(parser=place, help=help)
