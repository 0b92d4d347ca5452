"""``shiftbench study fit | effective | relative | correlate``: models against the line of the baseline models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from shiftbench.cli.options import Level, TableOptions, grouped
from shiftbench.cli.study.options import (
    LineOptions,
    MinX,
    ModelsFile,
    Own,
    Pivot,
    Published,
    ResultsOptions,
    Scale,
    SizeX,
    SizeY,
    choose_shift,
    open_study,
    place_own,
    predictions_in,
    published_models,
    set_sizes,
)
from shiftbench.io.paths import Location

if TYPE_CHECKING:
    from shiftbench.studies.robustness import EffectiveRobustness
    from shiftbench.studies.study import ShiftAxes, Study


@dataclass(frozen=True)
class Resampling:
    """How the uncertainty of the line is estimated."""

    resamples: Annotated[int, typer.Option(min=0, help="Bootstrap resamples.")] = 1000
    seed: Annotated[int | None, typer.Option(help="Seed (default: the testbed's own).")] = None
    procedure: Annotated[
        str, typer.Option(help="testbed (the same draws and percentiles as the testbed) or shiftbench.")
    ] = "testbed"
    bootstrap: Annotated[
        str, typer.Option(help="What is resampled: models, or, with a workspace, images or both (images and models).")
    ] = "models"


@grouped
def line_command(
    ctx: typer.Context,
    table: ResultsOptions,
    own: Own = None,
    published: Published = False,
    *,
    kinds: LineOptions,
    x: Annotated[str | None, typer.Option("--x", help="Reference setting, such as val.")] = None,
    y: Annotated[str | None, typer.Option("--y", help="Setting under shift.")] = None,
    shift: Annotated[
        str | None, typer.Option("--shift", help="One of the testbed's shifts (imagenetv2, ...): its x, y, threshold.")
    ] = None,
    scale: Annotated[
        str | None,
        typer.Option("--scale", help="logit, probit or linear (default: logit; with --published, as published)."),
    ] = None,
    min_x: MinX = None,
    pivot: Pivot = None,
    n_x: SizeX = None,
    n_y: SizeY = None,
    resampling: Resampling,
    level: Level = 0.95,
    shown: TableOptions,
) -> None:
    from shiftbench.reports.study_tables import effective_table

    if published:
        study, chosen, usual, mine = published_models(table.workspace, y)
    else:
        study, usual = open_study(table, kinds), "logit"
        mine = place_own(study, own)
        chosen = choose_shift(study, x=x, y=y, name=shift, min_x=min_x, pivot=pivot)
    scale = scale or usual
    set_sizes(study, {chosen.x: n_x, chosen.y: n_y})
    if resampling.bootstrap == "models":
        result = study.effective(
            chosen.x, chosen.y, min_x=chosen.min_x, pivot=chosen.pivot, level=level, scale=scale,
            resamples=resampling.resamples, seed=resampling.seed, procedure=resampling.procedure,
        )  # fmt: skip
    else:
        result = _over_images(study, table.workspace, chosen, scale, level, resampling)
    extremes = ctx.info_name == "fit"
    shown.show(effective_table(study, chosen.x, chosen.y, result, extremes=extremes, own=mine), table.workspace)


def _over_images(
    study: Study, workspace: Location | None, chosen: ShiftAxes, scale: str, level: float, resampling: Resampling
) -> EffectiveRobustness:
    """rho and the line with intervals from resampled images: predictions are needed, not only accuracies."""
    from shiftbench.studies.image_bootstrap import image_bootstrap_of_shift

    if resampling.bootstrap not in ("images", "both"):
        raise typer.BadParameter(
            f"{resampling.bootstrap!r} is not one of models, images, both", param_hint="--bootstrap"
        )
    if workspace is None:
        raise typer.BadParameter(
            "images can be resampled with --workspace only: a table of results does not know which images were right",
            param_hint="--bootstrap",
        )
    sides = [predictions_in(workspace, setting) for setting in (chosen.x, chosen.y)]
    return image_bootstrap_of_shift(
        study, chosen, sides[0], sides[1], scale=scale, over_models=resampling.bootstrap == "both", level=level,
        resamples=max(1, resampling.resamples), seed=resampling.seed or 0,
    )  # fmt: skip


@grouped
def relative_command(
    y: Annotated[str, typer.Option("--y", help="Setting under shift.")],
    table: ResultsOptions,
    models: ModelsFile = None,
    n_y: SizeY = None,
    level: Level = 0.95,
    *,
    shown: TableOptions,
) -> None:
    """Relative robustness: accuracy under shift minus that of the model it was made from.

    The column base_model of the table of models names that model.

    \b
    shiftbench study relative -r results.csv -m models.csv --y imagenetv2
    """
    from shiftbench.reports.study_tables import relative_table

    study = open_study(table, LineOptions(models))
    set_sizes(study, {y: n_y})
    shown.show(relative_table(study, y, study.relative(y, level=level)), table.workspace)


@grouped
def correlate_command(
    synthetic: Annotated[
        list[str],
        typer.Option("--synthetic", "-s", help="A setting, SETTING@REFERENCE, a testbed shift, or all (repeatable)."),
    ],
    natural: Annotated[list[str], typer.Option("--natural", "-n", help="Shift to compare with (repeatable).")],
    table: ResultsOptions,
    kinds: LineOptions,
    x: Annotated[str, typer.Option("--x", help="The reference of settings named without one.")] = "val",
    scale: Scale = "logit",
    level: Level = 0.95,
    *,
    shown: TableOptions,
) -> None:
    """Does robustness to one shift go with robustness to another?

    Pearson and rank correlation of effective robustness, over the models outside the baseline category.

    \b
    shiftbench study correlate -r results.csv -m models.csv -s corruptions -s pgd -n all
    """
    from shiftbench.reports.study_tables import correlation_table

    study = open_study(table, kinds)
    measures = all_measures(study, synthetic, natural)
    shown.show(correlation_table(study.correlations(*measures, x=x, level=level, scale=scale), level))


def all_measures(study: Study, synthetic: list[str], natural: list[str]) -> tuple[list[str], list[str]]:
    """The measures asked for, ``all`` spelled out."""
    from shiftbench.studies import testbed

    if "all" in synthetic:
        synthetic = testbed.synthetic(study.results)
    if "all" in natural:
        natural = [name for name in testbed.NATURAL if testbed.SHIFTS[name].y in study.results.settings]
    if not synthetic or not natural:
        raise typer.BadParameter(
            "'all' means the testbed's measures, and this table has none of them: name the settings",
            param_hint="--synthetic" if not synthetic else "--natural",
        )
    return synthetic, natural
