"""The command line, ``shiftbench``: one module per command or group of commands.

A module here reads options, calls the function of ``shiftbench`` that does the work, and prints its result as text or
JSON; nothing is computed here that Python code could not have from the library. Results go to stdout, everything else
to stderr. ``commands`` lists the commands, ``options`` explains how they declare options, and ``console`` prints. No
other package of the core imports this one; ``hardening`` and ``testsets`` bring their commands as plug-ins do.
"""

from __future__ import annotations

import gc
import io
import os
import sys
from contextlib import suppress

#: New objects after which Python looks for cycles; its own number is 700.
_OBJECTS_BEFORE_COLLECTION = 100_000


def main() -> None:
    """Run the command line; an error is printed as a message, or with its traceback if ``--debug`` is given."""
    from shiftbench.cli.app import app

    _write_utf8()
    # The results of a large workspace are millions of objects without cycles. Python's collector would look through
    # all of them again and again, which takes a sixth of the time of `table`.
    gc.set_threshold(_OBJECTS_BEFORE_COLLECTION)
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
        # Python flushes stdout once more at exit, which would fail again on a full disk or a closed pipe.
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def _write_utf8() -> None:
    """Write UTF-8 to files and pipes on Windows, too, where the default lacks most of the characters we print."""
    if sys.platform == "win32":
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(encoding="utf-8")


def explained(error: Exception) -> str:
    """The text to print for an error; errors of other packages begin with the name of their class."""
    from shiftbench.errors import ShiftbenchError, without_credentials

    if isinstance(error, ShiftbenchError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        if not error.filename:
            return error.strerror
        return f"{error.strerror}: {without_credentials(str(error.filename))}"
    if isinstance(error, MemoryError):
        return "out of memory\n  try:      fewer --workers, or a smaller --batch-size"
    text = without_credentials(f"{type(error).__name__}: {error}")
    return (
        f"{text}\n  try:      the same command with --debug, which shows where; if the input is valid, please report it"
    )
