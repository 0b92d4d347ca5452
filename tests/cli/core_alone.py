"""Runs the commands that it reads from stdin, in a process where some modules cannot be imported.

``python -m tests.cli.core_alone MODULE ...`` reads a JSON list of command lines and prints one JSON line for each.
"""

from __future__ import annotations

import importlib.machinery
import json
import sys
import traceback
from collections.abc import Sequence
from types import ModuleType

absent: list[str] = []


class InstalledPathFinder(importlib.machinery.PathFinder):
    """Finds what is on the path, as if the absent modules were not installed."""

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if any(fullname == name or fullname.startswith(f"{name}.") for name in absent):
            return None
        return super().find_spec(fullname, path, target)


def hide(names: Sequence[str]) -> None:
    """Make modules absent from now on: an import fails, and a search for them finds nothing."""
    absent.extend(names)
    place = sys.meta_path.index(importlib.machinery.PathFinder)
    sys.meta_path[place] = InstalledPathFinder
    loaded = [name for name in absent if name in sys.modules]
    assert not loaded, f"imported too early: {loaded}"


def main() -> None:
    hide(sys.argv[1:])
    from typer.testing import CliRunner

    from shiftbench.cli.app import app
    from shiftbench.errors import MissingExtraError, ShiftbenchError

    for words in json.load(sys.stdin):
        done = CliRunner().invoke(app, words, env={"COLUMNS": "120"})
        error = done.exception
        if isinstance(error, MissingExtraError):
            kind = "extra"
        elif isinstance(error, ShiftbenchError):
            kind = "error"
        elif error is None or isinstance(error, SystemExit):
            kind = "exit"
        else:
            kind = "fault"
        text = done.output if error is None or kind == "exit" else "".join(traceback.format_exception(error))
        answer = {"kind": kind, "code": done.exit_code, "text": text, "message": str(error)}
        print(json.dumps(answer), file=sys.__stdout__, flush=True)


if __name__ == "__main__":
    main()
