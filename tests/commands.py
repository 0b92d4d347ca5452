"""The command line, called in this process: a process of its own takes a second to start."""

from __future__ import annotations

import json
from typing import Any

from typer.testing import CliRunner, Result

from shiftbench.cli.app import app


def call(*words: object, columns: int = 120, text: str | None = None) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": str(columns)}, input=text)


def output(*words: object, columns: int = 120, text: str | None = None) -> str:
    """What a command prints, which must succeed."""
    done = call(*words, columns=columns, text=text)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, f"{words}: {done.output}"
    return done.stdout


def answer(*words: object) -> Any:
    """What a command prints with ``--json``."""
    return json.loads(output(*words, "--json"))
