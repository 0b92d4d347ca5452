"""Options that studies share: source of the accuracies, models, shift."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shiftbench.cli.options import workspace_option
from shiftbench.io.paths import Location, place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shiftbench.reports.placement import PlacedStudy
    from shiftbench.store.predictions import Predictions
    from shiftbench.studies.results import Results
    from shiftbench.studies.study import ShiftAxes, Study

WorkspaceOption = workspace_option("The workspace that `eval` wrote to: a folder, or s3://BUCKET/FOLDER.")
SizeX = Annotated[float | None, typer.Option("--n-x", min=1, help="Number of images behind x, for the intervals.")]
SizeY = Annotated[float | None, typer.Option("--n-y", min=1, help="Number of images behind y, for the intervals.")]
Scale = Annotated[str, typer.Option("--scale", help="logit, probit or linear.")]
MinX = Annotated[
    float | None, typer.Option("--min-x", help="Fit only models with at least this x (percent if above 1).")
]
Pivot = Annotated[
    str | None,
    typer.Option("--pivot", help="Two lines around this x, or 'auto': around the baseline model with y = 0."),
]
Shifts = Annotated[
    list[str] | None,
    typer.Option("--shift", help="A testbed shift (`list shifts`), SETTING@REFERENCE, a setting, or all (repeatable)."),
]

Published = Annotated[
    bool,
    typer.Option(
        "--published",
        help="With a workspace: fit the line to the models that the papers publish for --y, not to the workspace's.",
    ),
]


@dataclass(frozen=True)
class OwnOptions:
    """The user's own models among published ones."""

    own: Annotated[
        Location | None,
        typer.Option(
            "--own",
            parser=place,
            metavar="PATH|URL",
            help="Your own models, placed among the others: a workspace, or a table of results. Same line, never part "
            "of it.",
        ),
    ] = None
    skip_unplaced: Annotated[
        bool, typer.Option("--skip-unplaced", help="Leave out own models that lack a setting, instead of an error.")
    ] = False

    def read(self, metric: str | None = None) -> Results | None:
        from shiftbench.io.paths import local
        from shiftbench.studies.results import read_results

        if self.own is None:
            return None
        if not (self.own / "workspace.json").is_file():
            return read_results(local(self.own))
        from shiftbench.api import Run
        from shiftbench.reports.placement import own_results

        return own_results(Run.open(self.own), metric)

    def check(self, study: Study, mine: Sequence[str], shifts: Sequence[ShiftAxes]) -> None:
        """Own models that a shift has no place for are an error, unless they may be skipped."""
        from shiftbench.studies.study import unplaced

        if not self.skip_unplaced:
            for shift in shifts:
                unplaced(study, mine, shift)


@dataclass(frozen=True)
class ResultsOptions:
    """Accuracies from a file, or from the predictions of a workspace."""

    results: Annotated[
        Path | None,
        typer.Option(
            "--results",
            "-r",
            help="Table of accuracies, models by settings: .csv or .parquet, percent or fractions; or a folder that "
            "holds one, such as the ImageNet testbed's (`baselines get testbed`).",
        ),
    ] = None
    workspace: Annotated[Location | None, WorkspaceOption] = None
    metric: Annotated[
        str | None, typer.Option(help="With a workspace: metric, such as top5 (default: each setting's own).")
    ] = None
    unit: Annotated[str | None, typer.Option(help="percent or fraction, if the table does not show which.")] = None
    all_models: Annotated[
        bool, typer.Option("--all-models", help="All models of the testbed's public table, not only the paper's 204.")
    ] = False

    def open(self, kinds: LineOptions | None = None, own: Results | None = None, settings: Sequence[str] = ()) -> Study:
        """All settings, or, of a workspace, these: what is not asked about need not have what the metric needs."""
        from shiftbench.published.importers import open_table
        from shiftbench.studies.models import ModelInfo, Models, read_models
        from shiftbench.studies.results import results_from_scores
        from shiftbench.studies.study import Study

        kinds = kinds or LineOptions()
        if (self.results is None) == (self.workspace is None):
            raise typer.BadParameter("give either --results FILE or --workspace FOLDER", param_hint="--results")
        if self.metric is not None and self.workspace is None:
            raise typer.BadParameter(
                "only predictions can be scored by another metric: give --workspace", param_hint="--metric"
            )
        if self.results is not None:
            study = open_table(
                self.results, kinds.models, own, baseline=kinds.baseline, exclude=kinds.exclude or (), unit=self.unit,
                all_models=self.all_models,
            )  # fmt: skip
        else:
            from shiftbench.api import Run

            assert self.workspace is not None
            run = Run.open(self.workspace)
            if settings and set(settings) <= set(run.settings):
                run = Run(run.workspace, [result for result in run.results if result.setting in settings])
            known = read_models(kinds.models) if kinds.models is not None else None
            results = results_from_scores(run.scores(self.metric))
            study = Study(
                results if own is None else results.joined(own), known, baseline=kinds.baseline, exclude=kinds.exclude
            )
        if own is not None and study.models is None:
            raise typer.BadParameter("--own needs --models, which lists the others", param_hint="--own")
        if kinds.exclude and study.models is None:
            # Nothing is known about any model but its name, and that is what decides.
            nameless = Models({name: ModelInfo(name) for name in study.results.models})
            study = Study(study.results, nameless, baseline="", exclude=kinds.exclude)
        return study


ModelsFile = Annotated[
    Path | None, typer.Option("--models", "-m", help="Table of the models: category, base_model, ... (.csv).")
]


@dataclass(frozen=True)
class LineOptions:
    """The table of models, and which of them the line is fitted to."""

    models: ModelsFile = None
    baseline: Annotated[str, typer.Option(help="Category of the models to fit the line to.")] = "standard"
    exclude: Annotated[
        list[str] | None, typer.Option(help="Leave models whose name contains this out of the fit (repeatable).")
    ] = None


def set_sizes(study: Study, sizes: dict[str, float | None]) -> None:
    """Numbers of images by setting from the command line; they override the table's own."""
    import numpy as np

    given = {name: np.asarray(n) for name, n in sizes.items() if n is not None}
    study.results = replace(study.results, sizes={**study.results.sizes, **given})


def predictions_in(workspace: Location, setting: str, classifiers: Sequence[str] = ()) -> list[Predictions]:
    """The predictions in one setting of a workspace, of all classifiers or of these."""
    from shiftbench.api import Run

    run = Run.open(workspace, classifiers, [setting])
    return [run.workspace.read(result) for result in run.results]


def open_with_own(table: ResultsOptions, kinds: LineOptions, own: OwnOptions) -> tuple[Study, list[str]]:
    """The table with the user's own models below the others, and their names in it."""
    mine = own.read(table.metric)
    study = table.open(kinds, mine)
    return study, [] if mine is None else list(study.results.models[-len(mine.models) :])


def published_models(workspace: Location | None, y: str | None) -> PlacedStudy:
    """Published models and those of a workspace."""
    from shiftbench.api import Run
    from shiftbench.reports.placement import published_study

    if workspace is None or y is None:
        raise typer.BadParameter("--published needs --workspace FOLDER and --y SETTING", param_hint="--published")
    return published_study(Run.open(workspace), y)


def choose_shifts(
    study: Study,
    names: Sequence[str] | None = None,
    *,
    x: str | None = None,
    y: str | None = None,
    min_x: float | None = None,
    pivot: str | None = None,
) -> dict[str, ShiftAxes]:
    """The shifts given by the options, by name; single options override those of a named shift."""
    from shiftbench.studies import testbed
    from shiftbench.studies.study import ShiftAxes

    there = set(study.results.settings)
    names = list(names or ())
    if "all" in names:
        names = [name for name, one in testbed.SHIFTS.items() if {one.x, one.y} <= there]
        if not names:
            raise typer.BadParameter("'all' means the testbed's shifts, and the table has none", param_hint="--shift")
    if len(names) > 1 and y is not None:
        raise typer.BadParameter("several shifts are named by --shift alone", param_hint="--y")
    if names:
        chosen = {name: study.shift(name, x or "val") for name in names}
        chosen = {name: replace(one, x=x or one.x, y=y or one.y) for name, one in chosen.items()}
    elif y is None or (x is None and "val" not in there):
        settings = ", ".join(study.results.settings[:8])
        raise typer.BadParameter(f"give --x and --y (settings: {settings}, ...) or --shift", param_hint="--x")
    else:
        chosen = {y: ShiftAxes(x or "val", y)}
    if min_x is not None:
        chosen = {name: replace(one, min_x=min_x) for name, one in chosen.items()}
    if pivot is not None:
        at = "auto" if pivot == "auto" else _number(pivot)
        chosen = {name: replace(one, pivot=at) for name, one in chosen.items()}
    return chosen


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is neither a number nor 'auto'", param_hint="--pivot") from None
