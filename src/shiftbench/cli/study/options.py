"""Options that studies share: source of the accuracies, models, shift."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shiftbench.cli.options import workspace_option
from shiftbench.io.paths import Location

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
Own = Annotated[
    Path | None,
    typer.Option("--own", help="Results of your own models, placed among the others: same line, never part of it."),
]

Published = Annotated[
    bool,
    typer.Option(
        "--published",
        help="With a workspace: fit the line to the models that the papers publish for --y, not to the workspace's.",
    ),
]


@dataclass(frozen=True)
class ResultsOptions:
    """Accuracies from a file, or from the predictions of a workspace."""

    results: Annotated[
        Path | None,
        typer.Option(
            "--results", "-r", help="Table of accuracies, models by settings: .csv or .parquet, percent or fractions."
        ),
    ] = None
    workspace: Annotated[Location | None, WorkspaceOption] = None
    metric: Annotated[
        str | None, typer.Option(help="With a workspace: metric, such as top5 (default: each setting's own).")
    ] = None
    unit: Annotated[str | None, typer.Option(help="percent or fraction, if the table does not show which.")] = None

    def read(self, settings: Sequence[str] = ()) -> Results:
        """All settings, or, of a workspace, these: what is not asked about need not have what the metric needs."""
        from shiftbench.studies import testbed
        from shiftbench.studies.results import read_results, results_from_scores

        if (self.results is None) == (self.workspace is None):
            raise typer.BadParameter("give either --results FILE or --workspace FOLDER", param_hint="--results")
        if self.metric is not None and self.workspace is None:
            raise typer.BadParameter(
                "only predictions can be scored by another metric: give --workspace", param_hint="--metric"
            )
        if self.results is not None:
            return testbed.default_sizes(testbed.with_aggregates(read_results(self.results, unit=self.unit)))
        from shiftbench.api import Run

        assert self.workspace is not None
        run = Run.open(self.workspace)
        if settings and set(settings) <= set(run.settings):
            run = Run(run.workspace, [result for result in run.results if result.setting in settings])
        return results_from_scores(run.scores(self.metric))


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


def open_study(table: ResultsOptions, kinds: LineOptions | None = None, settings: Sequence[str] = ()) -> Study:
    """The chosen table of results, with the table of its models."""
    from shiftbench.studies.models import ModelInfo, Models, read_models
    from shiftbench.studies.study import Study

    kinds = kinds or LineOptions()
    results = table.read(settings)
    if kinds.models is not None:
        return Study(results, read_models(kinds.models), baseline=kinds.baseline, exclude=kinds.exclude)
    if kinds.exclude:
        # Nothing is known about any model but its name, and that is what decides.
        nameless = Models({name: ModelInfo(name) for name in results.models})
        return Study(results, nameless, baseline="", exclude=kinds.exclude)
    return Study(results)


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


def place_own(study: Study, own: Path | None) -> list[str]:
    """The user's own models below the others, outside every category; their names."""
    from shiftbench.studies.results import read_results

    if own is None:
        return []
    if study.models is None:
        raise typer.BadParameter("--own needs --models, which lists the others", param_hint="--own")
    mine = read_results(own)
    # One size for all models of a setting is the test set's own: it holds for these models, too.
    shared = {name: n for name, n in study.results.sizes.items() if n.ndim == 0 and name in mine.settings}
    study.results = study.results.joined(replace(mine, sizes={**shared, **mine.sizes}))
    return list(mine.models)


def published_models(workspace: Location | None, y: str | None) -> PlacedStudy:
    """Published models and those of a workspace."""
    from shiftbench.api import Run
    from shiftbench.reports.placement import published_study

    if workspace is None or y is None:
        raise typer.BadParameter("--published needs --workspace FOLDER and --y SETTING", param_hint="--published")
    return published_study(Run.open(workspace), y)


def choose_shift(
    study: Study,
    *,
    x: str | None,
    y: str | None,
    name: str | None = None,
    min_x: float | None = None,
    pivot: str | None = None,
) -> ShiftAxes:
    """The shift given by the options; single options override those of a named shift."""
    from shiftbench.studies.study import ShiftAxes

    if name is not None:
        chosen = study.shift(name, x or "val")
        chosen = replace(chosen, x=x or chosen.x, y=y or chosen.y)
    elif x is None or y is None:
        settings = ", ".join(study.results.settings[:8])
        raise typer.BadParameter(f"give --x and --y (settings: {settings}, ...) or --shift", param_hint="--x")
    else:
        chosen = ShiftAxes(x, y)
    if min_x is not None:
        chosen = replace(chosen, min_x=min_x)
    if pivot is not None:
        chosen = replace(chosen, pivot="auto" if pivot == "auto" else _number(pivot))
    return chosen


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is neither a number nor 'auto'", param_hint="--pivot") from None
