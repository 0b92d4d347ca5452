"""Where commands write: results to stdout, everything else to stderr."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console, ConsoleDimensions
from rich.text import Text


class _FittedConsole(Console):
    """As wide as COLUMNS says now; Rich would keep what it said when the console was made."""

    @property
    def size(self) -> ConsoleDimensions:
        columns = os.environ.get("COLUMNS", "")
        return ConsoleDimensions(int(columns), 25) if columns.isdigit() and int(columns) > 0 else super().size

    @size.setter
    def size(self, new_size: tuple[int, int]) -> None:
        self._width, self._height = new_size


# Names of files and classes may contain brackets: text is never read as markup, and styles are given apart.
output = _FittedConsole(markup=False, highlight=False)
errors = _FittedConsole(stderr=True, markup=False, highlight=False)


def titled(title: str, text: object, style: str = "bold red") -> Text:
    """A line whose title stands out: ``error: ...``."""
    return Text.assemble((title, style), " ", str(text))


def print_json(value: object) -> None:
    """Machine-readable output, and nothing else, on stdout."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


@contextmanager
def stoppable() -> Iterator[None]:
    """Around long work: Ctrl-C says what is kept."""
    try:
        yield
    except KeyboardInterrupt:
        errors.print("\nstopped; what is done is stored, and the same command continues", highlight=False)
        raise typer.Exit(130) from None
