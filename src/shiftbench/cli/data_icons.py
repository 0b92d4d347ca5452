"""``shiftbench data icons``: Icons-50 rebuilt from the icons in registry packages."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shiftbench.cli.console import errors, output, print_json, stoppable
from shiftbench.cli.options import ExecutorOptions, Json, Quiet, grouped

if TYPE_CHECKING:
    from shiftbench.datasets.icons.assemble import Assembled


@grouped
def icons_command(
    destination: Annotated[Path, typer.Argument(help="A new folder, or one to continue.")],
    styles: Annotated[
        str,
        typer.Option(
            help="all; open (only those whose licence allows redistribution); offline (two styles from PyPI, no npm "
            "needed); or comma-separated names, such as apple,google,microsoft."
        ),
    ] = "all",
    size: Annotated[int, typer.Option(help="Image side in pixels; paper 002 trains on 32.")] = 64,
    cap: Annotated[
        int, typer.Option(help="Most subtypes per class, the same for all styles (of 270 flags, 108 faces); 0: all.")
    ] = 100,
    skin_tones: Annotated[
        bool,
        typer.Option(
            "--skin-tones", help="Include people and hands in all five skin tones: nearly twice as many icons."
        ),
    ] = False,
    *,
    where: ExecutorOptions,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Assemble Icons-50: 50 classes of icons in the styles of nine vendors, some in several versions.

    The packages (660 MB for all styles) are downloaded with npm and pip once and kept; none of their code is run. An
    interrupted run resumes with the same command, and more styles can be added. The icons belong to the vendors:
    DESTINATION/LICENCES.md lists the terms.

    \b
    Examples:
      everything, about 10,000 icons
        shiftbench data icons icons/
      without npm, two styles
        shiftbench data icons icons/ --styles offline
      then, for a model trained on icons/style.train
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
            **where.options(),
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
