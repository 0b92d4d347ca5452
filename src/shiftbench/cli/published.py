"""``shiftbench baselines`` and ``reproduce``: published numbers, to compare with and to recompute."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shiftbench.cli.console import note, show
from shiftbench.cli.options import Commands, Json, TableOptions, workspace_option
from shiftbench.errors import ShiftbenchError
from shiftbench.io.paths import Location

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shiftbench.published.reproduce.base import Checked, CheckedNumber

app = Commands("Public result tables to compare with.")

_VERIFICATION_TEXTS = {
    True: "verified",
    False: "another version than the tested one",
    None: "not verified, no hash is known",
}


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

    downloads = download(name, url=mirror, again=again, progress=lambda file: note(f"fetching {file}"))
    files = []
    for item in downloads:
        note(f"{item.path.name}: {_VERIFICATION_TEXTS[item.verified]}")
        files.append({"file": item.path.name, "verified": item.verified, "already": item.already})
    folder = str(downloads[0].path.parent)
    show({"folder": folder, "files": files}, folder, as_json=json)


def reproduce_command(
    paper: Annotated[list[str], typer.Argument(metavar="PAPER", help="000, 001, 002, 003, 004 or all.")],
    testbed: Annotated[
        Path | None, {"metavar": "DIR"}, "The testbed's public table of results (robustness_top1s.csv), or its folder."
    ] = None,
    predictions: Annotated[
        Path | None,
        {"metavar": "DIR"},
        "Folder with released predictions: checkouts of ImageNetV2 and CIFAR-10.1, or arrays packed from them.",
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
        bool,
        "Exit with code 1 if a number differs in another way than is known of public data, or if public files gave "
        "other digits when they were untouched, and name it; with --workspace, only its predictions count.",
    ] = False,
    tolerance: Annotated[
        float | None,
        {"min": 0, "metavar": "POINTS"},
        "With --check: numbers may differ from the printed ones by this many percentage points (hundredths, where the "
        "paper prints no percentages), as those of a network trained again do.",
    ] = None,
    *,
    table_options: TableOptions,
) -> None:
    """Recompute a paper's headline numbers beside the published ones.

    Uses the tables built into the package, and public result files and released predictions if their folders are given.
    Every number is marked: it prints the same, rounding explains the difference, it lies in the printed interval, or it
    differs. Differences that untouched public data is known to have are expected, with the reason. Four kinds are
    counted apart: from predictions (yours in --workspace, or released ones), from public
    results, identities between printed numbers, and marks by a rule of ours. Numbers that can't be recomputed are
    listed with what they need.

    \b
    shiftbench reproduce 002
    shiftbench reproduce 000 003 --workspace W --models map.csv --check
    """
    from shiftbench.published.reproduce import reproduce
    from shiftbench.published.reproduce.base import PREDICTIONS
    from shiftbench.published.reproduce.sources import released_annotated, released_revisions
    from shiftbench.reports.reproduction import reproduction_table

    # The table names the command that makes it again, with folders that differ from machine to machine.
    command = f"shiftbench reproduce {' '.join(paper)}"
    if testbed:
        command += " --testbed DIR"
    if predictions:
        command += " --predictions DIR"
    command += " -f md"
    outcomes = reproduce(paper, testbed=testbed, predictions=predictions, workspace=workspace, models=models)
    revisions = released_revisions(predictions) if predictions else []
    annotated = released_annotated(predictions) if predictions else []
    if tolerance is not None and not check:
        raise typer.BadParameter("it changes what --check accepts: give --check, too", param_hint="--tolerance")
    table_options.show(reproduction_table(outcomes, command=command, revisions=revisions, annotated=annotated))
    if not check:
        return
    # A paper that contradicts itself says nothing about the predictions of a workspace.
    counted = [outcome for outcome in outcomes if workspace is None or outcome.claim.kind == PREDICTIONS]
    _check(counted, tolerance)


def _check(outcomes: Sequence[Checked], tolerance: float | None) -> None:
    """Name what differs from the printed numbers or from the untouched public files, and exit with 1 if anything does.

    Raises ``ShiftbenchError`` if no number could be recomputed, as nothing was checked then.
    """
    rows = list(chain.from_iterable(outcome.rows for outcome in outcomes))
    if not any(row.found for row in rows):
        raise ShiftbenchError(
            "no printed number could be recomputed",
            found=f"data for none of {len(rows)} numbers",
            hint="the table lists what each of them needs",
        )
    differing = [row for row in rows if row.is_unexpected(tolerance or 0.0)]
    for row in differing:
        note(f"differs: {_difference_text(row)}")
    changed = []
    if tolerance is None:
        changed = [outcome for outcome in outcomes if outcome.change]
    for outcome in changed:
        note(f"changed: {outcome.claim.paper}, {outcome.claim.place}: {outcome.claim.what}: {outcome.change}")
    if differing or changed:
        raise typer.Exit(1)


def _difference_text(row: CheckedNumber) -> str:
    """Where a paper prints a number, and the recomputed value beside the printed one."""
    assert row.found is not None
    printed = row.printed
    factor = 100.0 if printed.unit == "%" else 1.0
    table = f"table {printed.table}" if printed.table.isdigit() else printed.table
    number = f"{printed.paper}, {table}: {printed.model}, {printed.setting}"
    values = f"{printed.metric} {factor * row.found.value:.4g} instead of {factor * printed.value:.4g}"
    if printed.relation:
        values = f"{printed.metric} {factor * row.found.value:.4g}, not {printed.relation} {factor * printed.value:.4g}"
    return f"{number}: {values}"
