"""``shiftbench import``: predictions made elsewhere, put beside those of runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from shiftbench.cli.console import errors, print_json, stoppable
from shiftbench.cli.eval import kept_warnings, report_run, warning_data
from shiftbench.cli.options import DEFAULT_WORKSPACE, OutputOptions, WorkspacePath, grouped


@dataclass(frozen=True)
class Meaning:
    """What the predictions are predictions of."""

    labels: Annotated[
        str | None,
        typer.Option(help="Label space of the predictions: a name of `list spaces`, or a file of classes in order."),
    ] = None
    data: Annotated[
        str | None, typer.Option("--data", "-d", help="The images themselves, where you have them: as for `eval`.")
    ] = None
    truth: Annotated[
        Path | None,
        typer.Option(help="The true classes, where the files lack them: id and label, or an .npy of labels."),
    ] = None
    array: Annotated[
        str | None, typer.Option(help="Of an .npz file with several test sets: the array of this one.")
    ] = None
    reference: Annotated[
        str | None, typer.Option(help="The setting it is compared with.", show_default="as the suite has it")
    ] = None
    in_order: Annotated[bool, typer.Option("--in-order", help="The files name no images: row i is the i-th image.")] = (
        False
    )
    allow_unknown: Annotated[
        bool, typer.Option("--allow-unknown", help="Ignore predictions for images that are not in the dataset.")
    ] = False


@grouped
def import_command(
    files: Annotated[
        list[Path],
        typer.Argument(help="Predictions: .csv, .parquet or .npz, of one or many models.", show_default=False),
    ],
    setting: Annotated[
        str,
        typer.Option(
            "--setting", "-s", help="Setting they were made in: a name from `list settings`, or one of your own."
        ),
    ],
    *,
    meaning: Meaning,
    workspace: WorkspacePath = DEFAULT_WORKSPACE,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace existing predictions of the same models.")
    ] = False,
    shown: OutputOptions,
) -> None:
    """Import predictions made elsewhere into a workspace.

    `table`, `compare` and `study` then treat them like those of a run. Nothing is unpickled.

    \b
    A table (.csv, .parquet) has the column id, and
      prediction, or top1, top2, ... best first; optionally confidence; or score_0, score_1, ...
      the model is named after the file; a column model allows several models per table
      or: one column per model, named after it
    An .npz file has models, predictions (models, images) or (models, images, k), ids, and labels.
    Classes are keys (wnids), names or numbers, the same throughout a file. True classes come from a
    column label, from --truth or from --data. With --data, images are found by id, else by file name.

    \b
    Examples:
      all models of one file, with its own labels
        shiftbench import predictions.npz --setting imagenetv2-matched-frequency --labels imagenet-1k
      two models on your own images
        shiftbench import resnet.csv vit.csv --setting photos --data photos/
      then
        shiftbench study reproducibility --workspace W --x val --y imagenetv2-matched-frequency
    """
    from shiftbench.api import Run
    from shiftbench.labels.catalogue import find_label_space
    from shiftbench.runs.import_predictions import import_predictions

    with stoppable(), kept_warnings() as warned:
        imported = import_predictions(
            files,
            setting,
            workspace,
            labels=find_label_space(meaning.labels),
            truth=meaning.truth,
            data=meaning.data,
            array=meaning.array,
            reference=meaning.reference,
            in_order=meaning.in_order,
            allow_unknown=meaning.allow_unknown,
            replace_old=replace,
            progress=not shown.quiet,
            console=errors,
        )
    run = Run(imported.results.workspace, imported.results.results)
    if shown.json:
        matching = {"matched_by": imported.matched_by, "missing": imported.missing, "unknown": imported.unknown}
        print_json({**run.summary(level=shown.level), **matching, "warnings": warning_data(warned)})
        return
    report_run(run, warned, shown.level, as_json=False)
    if imported.matched_by not in ("id", "order"):
        errors.print(f"images were found by {imported.matched_by}", style="dim", highlight=False)
