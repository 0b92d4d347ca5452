"""``shiftbench testset study``: the tables, figures and sheets of paper 004 for one's own sets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shiftbench.cli.console import output, print_json
from shiftbench.cli.options import Json, Level, ModelNames, WorkspacePath
from shiftbench.cli.testset_options import Database, Folder, opened, say


def study_command(
    folder: Folder,
    workspace: WorkspacePath,
    page: Annotated[Path | None, typer.Option("--output", "-o", help="Write everything to one HTML file.")] = None,
    parts: Annotated[Path | None, typer.Option(help="Folder for the tables as CSV and the figures as SVG.")] = None,
    classifier: ModelNames = None,
    share: Annotated[float, typer.Option(help="Share of images that count as hard.")] = 0.05,
    seed: Annotated[int | None, typer.Option(help="Seed of the sheets (default: that of the project).")] = None,
    level: Level = 0.95,
    database: Database = None,
    json: Json = False,
) -> None:
    """Study the frozen sets of a project: the tables, figures and sheets of ImageNetV2's paper.

    For every set: accuracies on references and new images with gaps and ranks (top-1 and top-5), linear and probit
    scatter plots with their lines, accuracy by selection frequency, the impact of revisions, the hardest images; and
    over all sets the impact of the sampling strategy, and a sheet to guess the original set from. Uses the predictions
    of the workspace; no model is run.

    \b
    Examples:
      shiftbench eval MODEL ... --suite testset:pets -w WORKSPACE
      shiftbench testset study pets -w WORKSPACE -o study.html --parts study/
    """
    from shiftbench.testsets.study import study_sets

    with opened(folder, database) as project:
        study = study_sets(project, workspace, classifiers=classifier or (), share=share, level=level, seed=seed)
    if page is not None:
        say(f"written: {study.write_html(page)}")
    if parts is not None:
        say(f"written: {len(study.write_folder(parts))} files in {parts}")
    if json:
        tables = {"summary": study.summary, **study.tables}
        print_json({"notes": study.notes, **{title: table.as_data() for title, table in tables.items()}})
        return
    output.print(study.summary)
    for note in study.notes:
        say(f"note: {note}")
