"""The command line: one file per command group."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point of ``shiftbench``: a known error becomes a message, not a traceback."""
    from shiftbench.cli.app import app
    from shiftbench.cli.console import errors
    from shiftbench.errors import ShiftbenchError

    try:
        app()
    except ShiftbenchError as error:
        errors.print(f"[bold red]error:[/] {_escaped(str(error))}", highlight=False)
        sys.exit(1)


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(text)
