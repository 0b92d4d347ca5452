"""Where commands write: results to stdout, everything else to stderr."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import typer
from rich.console import Console, ConsoleDimensions
from rich.text import Text

from shiftbench.errors import MissingExtraError, ResultWarning


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


def note(text: object) -> None:
    """A dim line on stderr that can be copied: what was written, what was left out."""
    errors.print(text, style="dim", soft_wrap=True)


def print_json(value: object) -> None:
    """Machine-readable output, and nothing else, on stdout."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def show(value: object, text: str, *, as_json: bool) -> None:
    """What a command did: as JSON, or as lines that can be copied."""
    if as_json:
        print_json(value)
    else:
        output.print(text, soft_wrap=True)


def print_images(
    images: Sequence[tuple[str, str]], what: str, where: str, style: str = "yellow", most: int = 10
) -> None:
    """The first images that could not be used as they are, with the reasons; ``where`` says what lists the others."""
    if images:
        errors.print(f"images that {what}: {len(images)}", style=style)
    for image_id, why in images[:most]:
        errors.print(f"  {image_id}: {why}", style="dim")
    if len(images) > most:
        errors.print(f"  ... and {len(images) - most} more ({where})", style="dim")


@contextmanager
def kept_warnings() -> Iterator[list[Warning]]:
    """Collects our warnings issued inside, once each, to be printed when the progress bars are gone."""
    kept: list[Warning] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        try:
            yield kept
        finally:
            ours = [one.message for one in caught if one.category in (UserWarning, ResultWarning)]
            kept += {str(one): one for one in ours if isinstance(one, Warning)}.values()


def warning_data(found: Sequence[Warning]) -> list[dict[str, str]]:
    """Warnings as JSON-able data; those of other packages have no code."""
    return [{"code": getattr(one, "code", "other"), "message": str(one)} for one in found]


def print_warnings(found: Sequence[Warning]) -> None:
    for one in found:
        is_note = isinstance(one, ResultWarning) and one.is_note
        errors.print(titled("note:", one, "bold") if is_note else titled("warning:", one, "yellow"))


@contextmanager
def stoppable() -> Iterator[None]:
    """Around long work: Ctrl-C says what is kept."""
    try:
        yield
    except KeyboardInterrupt:
        errors.print("\ninterrupted: finished work is stored; rerun the same command to resume")
        raise typer.Exit(130) from None


@contextmanager
def extra(name: str, purpose: str) -> Iterator[None]:
    """A package that is missing inside belongs to the extra ``name``, which the error then names; decorates, too."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "shiftbench":
            raise
        raise MissingExtraError(error.name, name, purpose) from error
