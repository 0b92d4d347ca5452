"""``shiftbench study``: fits, effective and relative robustness, correlations, agreement."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shiftbench.cli.tabulating import show_report

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from shiftbench.reports.base import Report
    from shiftbench.studies.hypotheses import HitData, ScoredData
    from shiftbench.studies.study import Shift, Study

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Is it robustness, or just accuracy? From a table of results or a workspace; no model is run.",
)

ResultsFile = Annotated[
    Path | None, typer.Option("--results", "-r", help="Models by settings: .csv or .parquet, percent or fractions.")
]
WorkspaceFolder = Annotated[Path | None, typer.Option("--workspace", "-w", help="The folder that `eval` wrote to.")]
Own = Annotated[
    Path | None,
    typer.Option("--own", help="Results of your own models, placed among the others: same line, never part of it."),
]
ModelsFile = Annotated[
    Path | None, typer.Option("--models", "-m", help="What is known about the models: category, base_model, ... (.csv)")
]
X = Annotated[str | None, typer.Option("--x", help="The reference setting, such as val.")]
Y = Annotated[str | None, typer.Option("--y", help="The setting under shift.")]
ShiftName = Annotated[
    str | None, typer.Option("--shift", help="One of the testbed's shifts (imagenetv2, ...): its x, y and threshold.")
]
ScaleName = Annotated[str, typer.Option(help="logit, probit or linear.")]
Baseline = Annotated[str, typer.Option(help="Category of the models that the line goes through.")]
Exclude = Annotated[list[str] | None, typer.Option(help="Parts of names that keep a model out of the fit. Repeatable.")]
MinX = Annotated[float | None, typer.Option(help="Fit only models with x of at least this; above 1 it is percent.")]
Pivot = Annotated[
    str | None, typer.Option(help="Two lines around this x, or 'auto': around the baseline model with y = 0.")
]
SizeX = Annotated[float | None, typer.Option("--n-x", help="Images behind x, for the intervals of rho.")]
SizeY = Annotated[float | None, typer.Option("--n-y", help="Images behind y.")]
Resamples = Annotated[int, typer.Option(min=0, help="Bootstrap resamples of the models.")]
Seed = Annotated[int | None, typer.Option(help="Default: the testbed's own.")]
Procedure = Annotated[str, typer.Option(help="testbed (its very draws and percentiles) or shiftbench.")]
Bootstrap = Annotated[
    str, typer.Option(help="What is resampled: models, or, with a workspace, images or both (images and models).")
]
Unit = Annotated[str | None, typer.Option(help="percent or fraction, where the table leaves it open.")]
Level = Annotated[float, typer.Option(help="Level of the intervals.")]
Format = Annotated[str, typer.Option("--format", "-f", help="text, md, csv, tex or json.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="A file: .md, .csv, .tex, .json or .txt.")]
Json = Annotated[bool, typer.Option("--json", help="The same as --format json.")]


@app.command(
    "effective",
    help="Effective robustness of every model: accuracy under shift beyond what its accuracy predicts.",
)
@app.command(
    "fit",
    help="The line of the baseline models and the models farthest from it.\n\n"
    "Least squares of y on x on the chosen scale, with intervals from resampling the models.",
)
def line_command(
    ctx: typer.Context,
    results: ResultsFile = None,
    own: Own = None,
    workspace: WorkspaceFolder = None,
    models: ModelsFile = None,
    x: X = None,
    y: Y = None,
    shift: ShiftName = None,
    scale: ScaleName = "logit",
    baseline: Baseline = "standard",
    exclude: Exclude = None,
    min_x: MinX = None,
    pivot: Pivot = None,
    n_x: SizeX = None,
    n_y: SizeY = None,
    resamples: Resamples = 1000,
    seed: Seed = None,
    procedure: Procedure = "testbed",
    bootstrap: Bootstrap = "models",
    unit: Unit = None,
    level: Level = 0.95,
    format: Format = "text",
    file: Output = None,
    json: Json = False,
) -> None:
    from shiftbench.reports.study_summaries import EXTREMES, effective_table

    study = _study(results, workspace, models, baseline, exclude, unit)
    mine = _place_own(study, own)
    chosen = _shift(study, x, y, shift, min_x, pivot)
    _set_sizes(study, {chosen.x: n_x, chosen.y: n_y})
    if bootstrap != "models":
        table = _over_images(study, workspace, chosen, scale, bootstrap, level, resamples, seed)
        show_report(table, "json" if json else format, file)
        return
    result = study.effective(
        chosen.x, chosen.y, min_x=chosen.min_x, pivot=chosen.pivot, level=level, scale=scale, resamples=resamples,
        seed=seed, procedure=procedure,
    )  # fmt: skip
    extremes = EXTREMES if ctx.info_name == "fit" else None
    table = effective_table(study, chosen.x, chosen.y, result, extremes=extremes, own=mine)
    show_report(table, "json" if json else format, file)


@app.command("relative")
def relative_command(
    y: Annotated[str, typer.Option("--y", help="The setting under shift.")],
    results: ResultsFile = None,
    workspace: WorkspaceFolder = None,
    models: ModelsFile = None,
    n_y: SizeY = None,
    unit: Unit = None,
    level: Level = 0.95,
    format: Format = "text",
    file: Output = None,
    json: Json = False,
) -> None:
    """Relative robustness: accuracy under shift minus that of the model it was made from."""
    from shiftbench.reports.study_summaries import relative_table

    study = _study(results, workspace, models, "standard", None, unit)
    _set_sizes(study, {y: n_y})
    show_report(relative_table(study, y, study.relative(y, level=level)), "json" if json else format, file)


@app.command("correlate")
def correlate_command(
    synthetic: Annotated[
        list[str],
        typer.Option("--synthetic", "-s", help="A setting, SETTING@REFERENCE, a testbed shift, or all. Repeatable."),
    ],
    natural: Annotated[list[str], typer.Option("--natural", "-n", help="What it is compared with. Repeatable.")],
    results: ResultsFile = None,
    workspace: WorkspaceFolder = None,
    models: ModelsFile = None,
    x: Annotated[str, typer.Option("--x", help="The reference of settings named without one.")] = "val",
    scale: ScaleName = "logit",
    baseline: Baseline = "standard",
    exclude: Exclude = None,
    unit: Unit = None,
    level: Level = 0.95,
    format: Format = "text",
    file: Output = None,
    json: Json = False,
) -> None:
    """Does robustness to one shift go with robustness to another?

    Pearson and rank correlation of effective robustness, over the models outside the baseline category.
    """
    from shiftbench.reports.study_summaries import correlation_table
    from shiftbench.studies import testbed

    study = _study(results, workspace, models, baseline, exclude, unit)
    if "all" in synthetic:
        synthetic = testbed.synthetic(study.results)
    if "all" in natural:
        natural = [name for name in testbed.NATURAL if testbed.SHIFTS[name].y in study.results.settings]
    pairs = study.correlations(synthetic, natural, x=x, level=level, scale=scale)
    show_report(correlation_table(pairs, level), "json" if json else format, file)


@app.command("reproducibility")
def reproducibility_command(
    x: Annotated[str, typer.Option("--x", help="The original test set.")],
    y: Annotated[str, typer.Option("--y", help="The new one.")],
    results: ResultsFile = None,
    workspace: WorkspaceFolder = None,
    n_x: SizeX = None,
    n_y: SizeY = None,
    unit: Unit = None,
    level: Level = 0.95,
    format: Format = "text",
    file: Output = None,
    json: Json = False,
) -> None:
    """Accuracy on an original and a new test set, with gap, ranks and change of rank."""
    from shiftbench.reports.study_summaries import reproducibility_table
    from shiftbench.studies.reproducibility import reproducibility

    study = _study(results, workspace, None, "standard", None, unit)
    _set_sizes(study, {x: n_x, y: n_y})
    table = study.results
    sizes = [table.size(setting) for setting in (x, y)]
    if sizes[0] is None or sizes[1] is None:
        raise typer.BadParameter("the number of images is not known: give --n-x and --n-y", param_hint="--n-x")
    result = reproducibility(
        table.column(x), table.column(y), models=table.models, n_original=sizes[0], n_new=sizes[1], level=level,
        unit=table.unit,
    )  # fmt: skip
    show_report(reproducibility_table(result, x, y), "json" if json else format, file)


@app.command("agreement")
def agreement_command(
    workspace: Annotated[Path, typer.Option("--workspace", "-w", help="The folder that `eval` wrote to.")],
    setting: Annotated[str | None, typer.Option("--setting", "-s", help="Default: the only one.")] = None,
    classifier: Annotated[list[str] | None, typer.Option("--classifier", "-c", help="Only these.")] = None,
    level: Level = 0.95,
    format: Format = "text",
    file: Output = None,
    json: Json = False,
) -> None:
    """Do models fail on the same images?

    Images that all fail on, error consistency (Cohen's kappa) and dominance of every pair.
    """
    from shiftbench.reports.study_summaries import agreement_table
    from shiftbench.runs.result import Run
    from shiftbench.studies.agreement import agreement_of

    run = Run.open(workspace, classifier or (), [setting] if setting else ())
    if len(run.settings) != 1:
        shown = ", ".join(run.settings[:8]) or "none"
        raise typer.BadParameter(f"name one setting (there are: {shown})", param_hint="--setting")
    result = agreement_of([run.workspace.read(cell) for cell in run.cells], level=level)
    show_report(agreement_table(result, run.settings[0]), "json" if json else format, file)


@app.command("hypotheses")
def hypotheses_command(
    models: Annotated[
        Path, typer.Option("--models", "-m", help="Table of models with the columns base_model and changes.")
    ],
    setting: Annotated[list[str], typer.Option("--setting", "-s", help="Data sets to weigh. Repeatable.")],
    results: ResultsFile = None,
    workspace: WorkspaceFolder = None,
    x: X = None,
    unit: Unit = None,
    level: Level = 0.95,
    format: Format = "text",
    file: Output = None,
    json: Json = False,
) -> None:
    """Evidence for or against what models change: gain under shift, beyond the reference --x.

    From a table of results margins alone decide; from a workspace the images' paired differences do, too.
    """
    from shiftbench.reports.study_summaries import hypotheses_table
    from shiftbench.studies.hypotheses import hypotheses_from_models, weigh_hypotheses
    from shiftbench.studies.models import read_models

    known = read_models(models)
    tested = hypotheses_from_models({name: info.changes for name, info in known.items()}, known.bases)
    if workspace is not None and results is None:
        datasets = _hit_data(workspace, setting, x)
    else:
        datasets = _score_data(_study(results, workspace, None, "standard", None, unit), setting, x)
    found = weigh_hypotheses(tested, datasets, level=level)
    show_report(hypotheses_table(found, level), "json" if json else format, file)


def _score_data(study: Study, settings: list[str], x: str | None) -> list[ScoredData | HitData]:
    from shiftbench.studies.base import whole
    from shiftbench.studies.hypotheses import ScoredData

    table = study.results
    times = 100.0 / whole(table.unit)

    def points(setting: str) -> dict[str, float]:
        return {model: value * times for model, value in table.of(setting).items()}

    return [ScoredData(setting, points(setting), points(x) if x else None) for setting in settings]


def _hit_data(workspace: Path, settings: list[str], x: str | None) -> list[ScoredData | HitData]:
    from shiftbench.runs.result import Run
    from shiftbench.studies.base import check_unique
    from shiftbench.studies.hypotheses import HitData
    from shiftbench.studies.images import common_hits

    run = Run.open(workspace, (), [*settings, *([x] if x else [])])

    def hits(setting: str) -> dict[str, NDArray[np.bool_]]:
        read = [run.workspace.read(cell) for cell in run.cells if cell.setting == setting]
        if not read:
            raise typer.BadParameter(f"{setting!r} is not in the workspace", param_hint="--setting")
        names = [one.classifier for one in read]
        check_unique(names)
        return dict(zip(names, common_hits(read)[0], strict=True))

    reference = hits(x) if x else None
    return [HitData(setting, hits(setting), reference) for setting in settings]


def _over_images(
    study: Study,
    workspace: Path | None,
    chosen: Shift,
    scale: str,
    bootstrap: str,
    level: float,
    resamples: int,
    seed: int | None,
) -> Report:
    from shiftbench.reports.study_summaries import image_bootstrap_table
    from shiftbench.runs.result import Run
    from shiftbench.studies.images import image_bootstrap_of

    if bootstrap not in ("images", "both"):
        raise typer.BadParameter(f"{bootstrap!r} is not one of models, images, both", param_hint="--bootstrap")
    if workspace is None or chosen.pivot is not None or chosen.min_x is not None:
        raise typer.BadParameter(
            "images can be resampled with --workspace, and without --pivot and --min-x", param_hint="--bootstrap"
        )
    run = Run.open(workspace, (), [chosen.x, chosen.y])
    sides = [
        [run.workspace.read(cell) for cell in run.cells if cell.setting == setting] for setting in (chosen.x, chosen.y)
    ]
    both = [one.classifier for one in sides[0] if any(one.classifier == other.classifier for other in sides[1])]
    line = [name for name, here in zip(study.results.models, study.baseline, strict=True) if here and name in both]
    result = image_bootstrap_of(
        sides[0], sides[1], baseline=line, scale=scale, over_models=bootstrap == "both", level=level,
        resamples=max(1, resamples), seed=seed or 0,
    )  # fmt: skip
    return image_bootstrap_table(study, chosen.x, chosen.y, result)


def _study(
    results: Path | None,
    workspace: Path | None,
    models: Path | None,
    baseline: str,
    exclude: list[str] | None,
    unit: str | None,
) -> Study:
    """The table that was asked for, from a file or from the predictions of a workspace."""
    from shiftbench.studies import testbed
    from shiftbench.studies.models import read_models
    from shiftbench.studies.results import read_results, results_from_scores
    from shiftbench.studies.study import Study

    if (results is None) == (workspace is None):
        raise typer.BadParameter("give either --results FILE or --workspace FOLDER", param_hint="--results")
    if results is not None:
        table = testbed.default_sizes(testbed.with_aggregates(read_results(results, unit=unit)))
    else:
        from shiftbench.runs.result import Run

        assert workspace is not None
        table = results_from_scores(Run.open(workspace).scores())
    known = read_models(models) if models is not None else None
    return Study(table, known, baseline=baseline, exclude=exclude)


def _place_own(study: Study, own: Path | None) -> list[str]:
    """The user's own models below the others, outside every category."""
    from dataclasses import replace

    from shiftbench.studies.results import read_results

    if own is None:
        return []
    if study.models is None:
        raise typer.BadParameter("--own needs --models, to tell the others' line from yours", param_hint="--own")
    mine = read_results(own)
    # One size for all models of a setting is the test set's own: it holds for these models, too.
    shared = {name: n for name, n in study.results.sizes.items() if n.ndim == 0 and name in mine.settings}
    study.results = study.results.joined(replace(mine, sizes={**shared, **mine.sizes}))
    return list(mine.models)


def _shift(
    study: Study, x: str | None, y: str | None, name: str | None, min_x: float | None, pivot: str | None
) -> Shift:
    from dataclasses import replace

    from shiftbench.studies.study import Shift

    if name is not None:
        chosen = study.shift(name, x or "val")
        chosen = replace(chosen, x=x or chosen.x, y=y or chosen.y)
    elif x is None or y is None:
        settings = ", ".join(study.results.settings[:8])
        raise typer.BadParameter(f"give --x and --y (settings: {settings}, ...) or --shift", param_hint="--x")
    else:
        chosen = Shift(x, y)
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


def _set_sizes(study: Study, sizes: dict[str, float | None]) -> None:
    from dataclasses import replace

    import numpy as np

    given = {name: np.asarray(n) for name, n in sizes.items() if n is not None}
    if given:
        study.results = replace(study.results, sizes={**study.results.sizes, **given})
