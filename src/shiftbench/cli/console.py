"""How commands print: results go to stdout, everything else goes to stderr."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import typer
from rich.console import Console, ConsoleDimensions, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from shiftbench.errors import CONTROL_CHARACTERS, MissingExtraError, ResultWarning, StoreError, visible


class _FittedConsole(Console):
    """A console as wide as COLUMNS says now; Rich would keep the value from when the console was made."""

    @property
    def size(self) -> ConsoleDimensions:
        columns = os.environ.get("COLUMNS", "")
        if columns.isdigit() and int(columns) > 0:
            return ConsoleDimensions(int(columns), 25)
        return super().size

    @size.setter
    def size(self, new_size: tuple[int, int]) -> None:
        self._width, self._height = new_size

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Names of models, classes and images may come from a stranger, and a terminal obeys control characters."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(visible(segment.text), segment.style)


#: JSON leaves some of the characters as they are that a terminal obeys.
_JSON_ESCAPES = {code: f"\\u{code:04x}" for code in CONTROL_CHARACTERS if code >= 127}

# Names of files and classes may contain brackets, so text is never read as markup; styles are separate arguments.
output = _FittedConsole(markup=False, highlight=False)
errors = _FittedConsole(stderr=True, markup=False, highlight=False)


def titled(title: str, text: object, style: str = "bold red") -> Text:
    """A line whose title stands out: ``error: ...``."""
    return Text.assemble((title, style), " ", str(text))


def note(text: object) -> None:
    """Print a dim line on stderr that can be copied, such as which file was written."""
    errors.print(text, style="dim", soft_wrap=True)


def print_json(value: object) -> None:
    """Print a value as JSON on stdout; a command that does so prints nothing else there."""
    write_text(json.dumps(value, indent=2, ensure_ascii=False), is_json=True)


def write_text(text: str, *, is_json: bool) -> None:
    """Write a text to stdout as it is, but for characters that a terminal would obey."""
    safe = text.translate(_JSON_ESCAPES) if is_json else visible(text)
    sys.stdout.write(safe.rstrip("\n") + "\n")


def show(value: object, text: str, *, as_json: bool) -> None:
    """Print what a command did: the value as JSON, or the text, whose lines can be copied."""
    if as_json:
        print_json(value)
    else:
        output.print(text, soft_wrap=True)


def confirm_removal(question: str) -> None:
    """Ask at the terminal; ends the command if the answer is no, and raises StoreError if nobody can answer."""
    try:
        is_confirmed = typer.confirm(question, err=True)
    except typer.Abort as error:
        raise StoreError(
            "nothing was removed: the question was not answered", found=question, hint="pass --yes to remove it"
        ) from error
    if not is_confirmed:
        raise typer.Exit(1)


def print_images(
    images: Sequence[tuple[str, str]], problem: str, full_list: str, style: str = "yellow", most: int = 10
) -> None:
    """Print the first of some images on stderr, each with a reason.

    Args:
        images: The id of each image, and the reason.
        problem: The end of "images that ...", such as "were skipped".
        full_list: What lists all images, such as "--json lists all".
    """
    if images:
        errors.print(f"images that {problem}: {len(images)}", style=style)
    for image_id, reason in images[:most]:
        errors.print(f"  {image_id}: {reason}", style="dim")
    if len(images) > most:
        errors.print(f"  ... and {len(images) - most} more ({full_list})", style="dim")


@contextmanager
def kept_warnings() -> Iterator[list[Warning]]:
    """Collect our warnings issued inside, once each, to be printed when the progress bars are gone.

    The list that this yields is filled at the end of the block.
    """
    kept: list[Warning] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        try:
            yield kept
        finally:
            by_text: dict[str, Warning] = {}
            for record in caught:
                if record.category in (UserWarning, ResultWarning) and isinstance(record.message, Warning):
                    by_text[str(record.message)] = record.message
            kept += by_text.values()


def warning_data(caught: Sequence[Warning]) -> list[dict[str, str]]:
    """Warnings as JSON-able data; those of other packages have no code."""
    return [{"code": getattr(warning, "code", "other"), "message": str(warning)} for warning in caught]


def print_warnings(caught: Sequence[Warning]) -> None:
    """Print warnings on stderr; those that are only remarks are printed as notes."""
    for warning in caught:
        if isinstance(warning, ResultWarning) and warning.is_note:
            errors.print(titled("note:", warning, "bold"))
        else:
            errors.print(titled("warning:", warning, "yellow"))


@contextmanager
def stoppable() -> Iterator[None]:
    """Let Ctrl-C end the work inside with a message that finished work is kept, and with exit code 130."""
    try:
        yield
    except KeyboardInterrupt:
        errors.print("\ninterrupted: finished work is stored; rerun the same command to resume")
        raise typer.Exit(130) from None


@contextmanager
def extra(name: str, purpose: str) -> Iterator[None]:
    """Raise an error that names the extra ``name`` if a package of it cannot be imported inside.

    A package of ours that is missing is a mistake in the code, and its error is not changed. This can also decorate a
    function.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "shiftbench":
            raise
        raise MissingExtraError(error.name, name, purpose) from error
