"""``shiftbench baselines`` and ``reproduce``: published numbers, to compare with and to recompute."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shiftbench.cli.console import note, show
from shiftbench.cli.options import Commands, Json, TableOptions, workspace_option
from shiftbench.errors import ShiftbenchError
from shiftbench.io.paths import Location

app = Commands("Public result tables to compare with.")


@app.callback()
def baselines() -> None:
    """Public result tables to compare with."""


@app.command("get")
def get_command(
    name: Annotated[str, typer.Argument(help="testbed (338 models), testbed-204 (the paper's) or timm.")],
    mirror: Annotated[str | None, "--from", "Address of a folder with the same files."] = None,
    again: Annotated[bool, "Download files again that are in the cache."] = False,
    json: Json = False,
) -> None:
    """Download public result tables into the cache, and print the folder.

    An interrupted download resumes. A file of the version that this package was tested with is verified by its hash;
    another version is accepted and reported as such, except for testbed-204, which never changes. No hash of testbed,
    the ImageNet testbed's newest table, is known.

    \b
    shiftbench baselines get testbed
    """
    from shiftbench.published.downloads import download

    found = download(name, url=mirror, again=again, progress=lambda file: note(f"fetching {file}"))
    words = {True: "verified", False: "another version than the tested one", None: "not verified, no hash is known"}
    for one in found:
        note(f"{one.path.name}: {words[one.verified]}")
    folder = str(found[0].path.parent)
    files = [{"file": one.path.name, "verified": one.verified, "already": one.already} for one in found]
    show({"folder": folder, "files": files}, folder, as_json=json)


def reproduce_command(
    paper: Annotated[list[str], typer.Argument(metavar="PAPER", help="000, 001, 002, 003, 004 or all.")],
    testbed: Annotated[
        Path | None, {"metavar": "DIR"}, "The testbed's public table of results (robustness_top1s.csv), or its folder."
    ] = None,
    predictions: Annotated[
        Path | None,
        {"metavar": "DIR"},
        "Folder with released predictions: cifar10_and_10.1_predictions*.npz, predictions_top5_*.npz.",
    ] = None,
    workspace: Annotated[
        Location | None,
        workspace_option("Workspace with the networks' predictions: every printed number that they give is compared."),
    ] = None,
    models: Annotated[
        Path | None,
        "-m",
        "With --workspace: table with the columns printed, the name of a network in the paper, and model, its name or "
        "id in the workspace (and paper, if needed). A network may have several rows.",
    ] = None,
    check: Annotated[
        bool, "Exit with code 1 if a number differs, and name it; with --workspace, only its predictions count."
    ] = False,
    *,
    shown: TableOptions,
) -> None:
    """Recompute a paper's headline numbers beside the published ones.

    Uses the tables built into the package, and public result files and released predictions if their folders are given.
    Every number is marked: it prints the same, rounding explains the difference, it lies in the printed interval, or it
    differs. Four kinds are counted apart: from predictions (yours in --workspace, or released ones), from public
    results, identities between printed numbers, and marks by a rule of ours. Numbers that can't be recomputed are
    listed with what they need.

    \b
    shiftbench reproduce 002
    shiftbench reproduce 000 003 --workspace W --models map.csv --check
    """
    from shiftbench.published.reproduce import reproduce
    from shiftbench.published.reproduce.base import DIFFERS, PREDICTIONS
    from shiftbench.published.reproduce.sources import released_revisions
    from shiftbench.reports.reproduction import reproduction_table

    options = "".join(f" --{name} DIR" for name, at in (("testbed", testbed), ("predictions", predictions)) if at)
    command = f"shiftbench reproduce {' '.join(paper)}{options} -f md"
    found = reproduce(paper, testbed=testbed, predictions=predictions, workspace=workspace, models=models)
    revisions = released_revisions(predictions) if predictions else []
    shown.show(reproduction_table(found, command=command, revisions=revisions))
    if not check:
        return
    # A paper that contradicts itself says nothing about the predictions of a workspace.
    rows = [row for one in found if workspace is None or one.claim.kind == PREDICTIONS for row in one.rows]
    if not any(row.found for row in rows):
        lacking, hint = f"data for none of {len(rows)} numbers", "the table lists what each of them needs"
        raise ShiftbenchError("no printed number could be recomputed", found=lacking, hint=hint)
    wrong = [row for row in rows if row.mark == DIFFERS]
    for row in wrong:
        assert row.found is not None
        printed, times = row.printed, 100.0 if row.printed.unit == "%" else 1.0
        place = f"table {printed.table}" if printed.table.isdigit() else printed.table
        where = f"{printed.paper}, {place}: {printed.model}, {printed.setting}"
        values = f"{printed.metric} {times * row.found.value:.4g} instead of {times * printed.value:.4g}"
        note(f"differs: {where}: {values}")
    if wrong:
        raise typer.Exit(1)
