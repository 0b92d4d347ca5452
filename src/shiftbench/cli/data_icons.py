"""``shiftbench data icons``: Icons-50 anew, from the icons that registry packages carry."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shiftbench.cli.console import errors, output, print_json, stoppable

if TYPE_CHECKING:
    from shiftbench.datasets.icons.assemble import Assembled


def icons_command(
    destination: Annotated[Path, typer.Argument(help="A new folder, or one that this command began.")],
    styles: Annotated[
        str,
        typer.Option(
            help="all; open (only those whose licence lets anyone show and pass them on); offline (two styles that "
            "PyPI carries, no npm needed); or names with commas, such as apple,google,microsoft."
        ),
    ] = "all",
    size: Annotated[int, typer.Option(help="Side of the pictures in pixels; paper 002 trains on 32.")] = 64,
    cap: Annotated[
        int, typer.Option(help="Subtypes of a class at most, the same for all styles (270 flags, 108 faces); 0: all.")
    ] = 100,
    skin_tones: Annotated[
        bool, typer.Option("--skin-tones", help="People and hands in all five skin tones too: nearly twice as many.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print what was made as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")] = False,
) -> None:
    """Assemble Icons-50: 50 classes of icons in the styles of nine vendors, some in several versions.

    The packages (660 MB for all styles) are fetched with npm and pip once and kept; no code of theirs is run. Stopped
    at any moment, the same command continues with the style it was at, and with more styles it adds them. The pictures
    belong to the vendors: DESTINATION/LICENCES.md says under which terms.

    \b
    Examples:
      everything, about 10,000 icons
        shiftbench data icons icons/
      without npm, two styles
        shiftbench data icons icons/ --styles offline
      then, for a classifier trained on icons/style.train
        shiftbench eval model.onnx --suite icons-style --data icons/
    """
    from shiftbench.datasets.icons.assemble import assemble

    with stoppable():
        made = assemble(
            destination,
            styles=styles,
            size=size,
            cap=cap or None,
            skin_tones=skin_tones,
            progress=not quiet,
            console=errors,
        )
    if json:
        print_json(made.summary())
    else:
        _show(made)


def _show(made: Assembled) -> None:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0))
    for title, justify in (("style", "left"), ("version", "left"), ("icons", "right"), ("licence", "left")):
        table.add_column(title, justify=justify)  # type: ignore[arg-type]
    for style, about in sorted(made.record.about.items()):
        versions = [row["version"] for row in made.record.rows.get(style, ())]
        for source in about["sources"]:
            count = versions.count(source["version"])
            table.add_row(style, source["version"], f"{count:,}", source["licence"])
    output.print(table)
    summary = made.summary()
    output.print(
        f"{made.images:,} icons of {len(summary['classes'])} classes and {summary['subtypes']} subtypes in "
        f"{summary['icons']}, {made.written:,} of them written now, {made.seconds:,.1f} s",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
    for reason, count in summary["left_out"].items():
        errors.print(f"left out: {count:,} ({reason}; listed in icons.json)", style="dim", highlight=False)
