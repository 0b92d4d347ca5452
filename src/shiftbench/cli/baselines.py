"""``shiftbench baselines``: public result tables to compare with."""

from __future__ import annotations

from typing import Annotated

import typer

from shiftbench.cli.console import errors, output, print_json
from shiftbench.cli.options import Json

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Public result tables to compare with.")


@app.callback()
def baselines() -> None:
    """Public result tables to compare with."""


@app.command("get")
def get_command(
    name: Annotated[str, typer.Argument(help="testbed (the ImageNet testbed's 338 models) or timm.")],
    mirror: Annotated[str | None, typer.Option("--from", help="Address of a folder with the same files.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Download files again that are in the cache.")] = False,
    json: Json = False,
) -> None:
    """Download public result tables into the cache, and print the folder.

    An interrupted download resumes. A file of the version that this package was tested with is verified by its hash;
    another version is accepted and reported as such.

    \b
    shiftbench baselines get testbed
    """
    from shiftbench.published.downloads import download

    found = download(name, url=mirror, again=again, progress=lambda file: errors.print(f"fetching {file}", style="dim"))
    words = {True: "verified", False: "another version than the tested one", None: "no hash known"}
    for one in found:
        errors.print(f"{one.path.name}: {words[one.verified]}", style="dim", highlight=False, markup=False)
    folder = found[0].path.parent
    if json:
        print_json({"folder": str(folder), "files": [
            {"file": one.path.name, "verified": one.verified, "already": one.already} for one in found]})  # fmt: skip
    else:
        output.print(str(folder), markup=False, highlight=False, soft_wrap=True)
