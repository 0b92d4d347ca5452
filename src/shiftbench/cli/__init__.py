"""The command line: one file per command group."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point of ``shiftbench``: a known error becomes a message, not a traceback."""
    from shiftbench.cli.app import app
    from shiftbench.cli.console import errors, titled
    from shiftbench.errors import ShiftbenchError

    try:
        app()
    except ShiftbenchError as error:
        errors.print(titled("error:", error))
        sys.exit(1)
