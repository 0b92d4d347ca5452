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
    OwnOptions,
    Pivot,
    Published,
    ResultsOptions,
    Scale,
    Shifts,
    SizeX,
    SizeY,
    choose_shifts,
    open_with_own,
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
    own: OwnOptions,
    published: Published = False,
    *,
    kinds: LineOptions,
    x: Annotated[str | None, typer.Option("--x", help="Reference setting (default: val).")] = None,
    y: Annotated[str | None, typer.Option("--y", help="Setting under shift.")] = None,
    shift: Shifts = None,
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
    from shiftbench.reports.study_tables import effective_table, lines_table, wide_table

    if published:
        study, one, usual, mine = published_models(table.workspace, y)
        shifts = {one.y: one}
    else:
        study, mine = open_with_own(table, kinds, own)
        shifts, usual = choose_shifts(study, shift, x=x, y=y, min_x=min_x, pivot=pivot), "logit"
        own.check(study, mine, list(shifts.values()))
    found = {}
    for name, one in shifts.items():
        set_sizes(study, {one.x: n_x, one.y: n_y})
        found[name] = _effective(study, table.workspace, one, scale or usual, level, resampling)
    extremes = ctx.info_name == "fit"
    if len(found) == 1:
        [(one, result)] = zip(shifts.values(), found.values(), strict=True)
        shown.show(effective_table(study, one.x, one.y, result, extremes=extremes, own=mine), table.workspace)
    elif extremes:
        shown.show(lines_table({name: result.line for name, result in found.items()}), table.workspace)
    else:
        shown.show(wide_table(study, found, "rho", own=mine), table.workspace)


def _effective(
    study: Study, workspace: Location | None, one: ShiftAxes, scale: str, level: float, resampling: Resampling
) -> EffectiveRobustness:
    if resampling.bootstrap != "models":
        return _over_images(study, workspace, one, scale, level, resampling)
    return study.effective(
        one.x, one.y, min_x=one.min_x, pivot=one.pivot, level=level, scale=scale, resamples=resampling.resamples,
        seed=resampling.seed, procedure=resampling.procedure,
    )  # fmt: skip


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
    table: ResultsOptions,
    own: OwnOptions,
    y: Annotated[str | None, typer.Option("--y", help="Setting under shift.")] = None,
    shift: Shifts = None,
    models: ModelsFile = None,
    n_y: SizeY = None,
    level: Level = 0.95,
    *,
    shown: TableOptions,
) -> None:
    """Relative robustness: accuracy under shift minus that of the model it was made from.

    The column base_model of the table of models names that model; those of the ImageNet testbed are known.

    \b
    shiftbench study relative -r imagenet-testbed/ --shift imagenetv2
    shiftbench study relative -r results.csv -m models.csv --y imagenetv2-matched-frequency-format-val
    """
    from shiftbench.reports.study_tables import relative_table, wide_table

    if (y is None) == (not shift):
        raise typer.BadParameter("give either --y SETTING or --shift NAME", param_hint="--y")
    study, mine = open_with_own(table, LineOptions(models), own)
    settings = {y: y} if y else {name: one.y for name, one in choose_shifts(study, shift).items()}
    set_sizes(study, dict.fromkeys(settings.values(), n_y))
    found = {name: study.relative(setting, level=level) for name, setting in settings.items()}
    if len(found) == 1:
        [(setting, result)] = zip(settings.values(), found.values(), strict=True)
        shown.show(relative_table(study, setting, result), table.workspace)
    else:
        shown.show(wide_table(study, found, "tau", own=mine), table.workspace)


@grouped
def interventions_command(
    table: ResultsOptions,
    own: OwnOptions,
    kinds: LineOptions,
    shift: Shifts = None,
    by: Annotated[str, typer.Option("--by", help="Column of the table of models that makes the groups.")] = "category",
    scale: Scale = "logit",
    level: Level = 0.95,
    *,
    shown: TableOptions,
) -> None:
    """Which kinds of models are robust to which shifts: mean effective and relative robustness by category.

    rho is accuracy beyond the line of the baseline models, tau accuracy beyond the model's own base; both in
    percentage points, with intervals over the models of the category. Own models (--own) count in the category that
    --models names for them.

    \b
    shiftbench study interventions -r imagenet-testbed/
    shiftbench study interventions -r imagenet-testbed/ --shift imagenetv2 --shift corruptions -f tex
    """
    from shiftbench.reports.study_tables import interventions_table
    from shiftbench.studies.study import group_means

    study, _ = open_with_own(table, kinds, own)
    shifts = choose_shifts(study, shift or ["all"])
    shown.show(interventions_table(group_means(study, shifts, by=by, scale=scale, level=level), by, level))


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

    Pearson and rank correlation of effective robustness, over the models outside the baseline category; controls of
    low accuracy and models that --exclude names do not count.

    \b
    shiftbench study correlate -r imagenet-testbed/ -s corruptions -s pgd -n all
    """
    from shiftbench.reports.study_tables import correlation_table

    study = table.open(kinds)
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
