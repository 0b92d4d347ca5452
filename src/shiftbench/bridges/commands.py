"""The commands `shiftbench publish` and `shiftbench site`."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

import typer

from shiftbench import Run
from shiftbench.errors import ShiftbenchError
from shiftbench.extend.commands import Json, Level, note, output, print_json


def publish_command(
    workspace: Annotated[str, typer.Argument(help="The workspace with the model's results.")],
    to: Annotated[str, typer.Option("--to", help="The folder of the model, or `org/model` of a hub.")],
    model: Annotated[str | None, typer.Option(help="Which model, if the workspace has several: a name or id.")] = None,
    dataset: Annotated[
        list[str] | None,
        typer.Option(help="`SETTING=org/name[/task]`: the dataset of a hub that a setting is; repeatable."),
    ] = None,
    write: Annotated[bool, typer.Option("--write", help="Write the files, or open the pull request.")] = False,
    level: Level = 0.95,
    json: Json = False,
) -> None:
    """Put a model's scores beside the model: in its card, in `model-index`, in `.eval_results`.

    Each value has its interval and says what it rests on. By default nothing is written: the changes are shown. With
    `--write`, the files of a folder are written; at a hub a pull request is opened, with the token of `hf auth login`.

    \b
    Examples:
      shiftbench publish shiftbench-workspace --to my-model/
      shiftbench publish shiftbench-workspace --to org/model \\
        --dataset val=org/photos --write
    """
    from shiftbench.bridges import publish

    datasets = _parse_datasets(dataset or ())
    card = publish.present_file(to, publish.CARD)
    published = publish.publication(Run.open(workspace), model=model, card=card, datasets=datasets, level=level)
    differences = _differences(to, published.files)
    address = ""
    if write and not differences:
        write = False
    elif write and publish.is_on_hub(to):
        address = publish.propose(published, to)
    elif write:
        publish.write_publication(published, Path(to))
    if json:
        print_json(
            {
                "model": published.model,
                "target": to,
                "written": write,
                "files": dict(published.files),
                "notes": list(published.notes),
                "pull_request": address or None,
            }
        )
        return
    for line in differences:
        output.print(line, markup=False, highlight=False, soft_wrap=True)
    for remark in published.notes:
        note(remark)
    if address:
        note(f"pull request: {address}")
    elif not differences:
        note("nothing has changed since the files were written")
    elif write:
        note(f"written: {', '.join(str(Path(to) / name) for name in published.files)}")
    else:
        note("nothing was written; --write does it")


def _parse_datasets(words: Iterable[str]) -> dict[str, str]:
    """The dataset of each setting, from ``SETTING=org/name[/task]``."""
    datasets: dict[str, str] = {}
    for word in words:
        setting, equals, name = word.partition("=")
        if not equals:
            raise ShiftbenchError("not a dataset of a setting", found=word, expected="SETTING=org/name[/task]")
        datasets[setting] = name
    return datasets


def _differences(target: str, files: Mapping[str, str]) -> list[str]:
    """The lines of a diff between the files of a model as they are and as they are to be."""
    from shiftbench.bridges import publish

    lines: list[str] = []
    for name, text in files.items():
        present = publish.present_file(target, name)
        lines += difflib.unified_diff(present.splitlines(), text.splitlines(), name, name, lineterm="")
    return lines


def site_command(
    workspaces: Annotated[list[str], typer.Argument(help="Workspaces: folders or URLs.")],
    folder: Annotated[Path, typer.Option("--output", "-o", help="The folder to write.")],
    title: Annotated[str, typer.Option(help="The title of the page.")] = "Robustness leaderboard",
    level: Level = 0.95,
    json: Json = False,
) -> None:
    """Write a static leaderboard of many workspaces: one folder of files, for any web server, or opened from disk.

    Models are rows; suites and settings are columns, each with interval and number of images. Numbers that are not
    comparable have columns of their own. The page sorts and filters in the browser, and shows everything without
    scripts. Beside it lie the same numbers as CSV and JSON.

    \b
    Examples:
      shiftbench site results/alice results/bob -o site/
    """
    from shiftbench.bridges.site import write_site

    paths = write_site(workspaces, folder, title=title, level=level)
    if json:
        print_json({"files": [str(path) for path in paths]})
    else:
        note(f"written: {', '.join(map(str, paths))}")
