"""``shiftbench raw``: imported only when it is called."""

from __future__ import annotations

from typing import Annotated

import typer

import shiftbench as sb
from shiftbench.extend.commands import Commands, Json, output, print_json
from shiftbench.extend.tables import Column, Table

app = Commands("Inspect raw files.")


@app.command("summary")
def summary_command(
    path: Annotated[str, typer.Argument(help="A .raw file.")],
    json: Json = False,
) -> None:
    """Count the images of each class.

    \b
    Examples:
      shiftbench raw summary images.raw
    """
    dataset = sb.open_dataset(path)
    counts = dict.fromkeys(dataset.space.names, 0)
    for label in dataset.labels.tolist():
        counts[dataset.space.names[label]] += 1
    rows = [{"class": name, "images": count} for name, count in counts.items() if count]
    if json:
        print_json(rows)
    else:
        output.print(Table([Column("class", "class"), Column("images", "images", "count")], rows))


@app.command("check")
def check_command(path: Annotated[str, typer.Argument(help="A .raw file.")]) -> None:
    """Check that a raw file is a dataset as shiftbench needs it.

    \b
    Examples:
      shiftbench raw check images.raw
    """
    from shiftbench.conformance import assert_conforms

    assert_conforms(sb.check_dataset(sb.open_dataset(path)))
    output.print("ok")
