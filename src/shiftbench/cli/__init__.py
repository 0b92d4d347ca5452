"""The command line: one file per command group."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress


def main() -> None:
    """Entry point of ``shiftbench``: an error becomes a message; ``--debug`` shows the traceback, too."""
    from shiftbench.cli.app import app

    _write_utf8()
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except Exception as error:
        if "--debug" in sys.argv:
            raise
        from shiftbench.cli.console import errors, titled

        errors.print(titled("error:", explained(error)))
        with suppress(OSError):  # what could not be written to a full disk or closed pipe is not tried again at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def _write_utf8() -> None:
    """Output to a file or pipe is UTF-8 on Windows, too, where the default lacks most of the characters we print."""
    if sys.platform == "win32":
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(encoding="utf-8")


def explained(error: Exception) -> str:
    """What to print of an error; one that is not ours is named by its class."""
    from shiftbench.errors import ShiftbenchError

    if isinstance(error, ShiftbenchError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}{f': {error.filename}' if error.filename else ''}"
    if isinstance(error, MemoryError):
        return "out of memory\n  try:      fewer --workers, or a smaller --batch-size"
    text = f"{type(error).__name__}: {error}"
    return (
        f"{text}\n  try:      the same command with --debug, which shows where; if the input is valid, please report it"
    )
