"""``shiftbench figure``: figures for papers, from a workspace or a table of results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shiftbench.cli.console import errors, print_json
from shiftbench.cli.options import Json, Level, grouped
from shiftbench.cli.study.lines import all_measures
from shiftbench.cli.study.new_test_sets import Bins, New, Original, binned_accuracies, reproducibility_of
from shiftbench.cli.study.options import (
    LineOptions,
    MinX,
    OwnOptions,
    Pivot,
    ResultsOptions,
    Scale,
    Shifts,
    SizeX,
    SizeY,
    WorkspaceOption,
    choose_shifts,
    open_with_own,
    predictions_in,
    set_sizes,
)
from shiftbench.io.paths import Location

if TYPE_CHECKING:
    from shiftbench.api import Run
    from shiftbench.reports.accuracy_grids import ErrorMap, SeverityGrid
    from shiftbench.reports.figures import PaperFigure
    from shiftbench.store.predictions import Predictions

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Figures for papers as SVG, PDF or PNG: one or two columns wide, text kept as text, colour-blind safe. "
    "From a workspace or a table of results; no model is run.",
)

Classifiers = Annotated[list[str] | None, typer.Option("--classifier", "-c", help="Only these models (repeatable).")]
Named = Annotated[list[str] | None, typer.Option("--name", help="Model to label by name (repeatable).")]
ColourBy = Annotated[str, typer.Option("--colour-by", help="Column of the table of models that decides colours.")]
Settings = Annotated[
    list[str] | None, typer.Option("--setting", "-s", help="Settings to draw (repeatable; default: the only one).")
]
Family = Annotated[
    str | None, typer.Option(help="Family of corruptions if there are several: imagenet-c of imagenet-c.fog.3.")
]
Clean = Annotated[
    str | None, typer.Option(help="Setting at severity 0 (default: the reference of the corruptions, or val).")
]


@dataclass(frozen=True)
class Drawn:
    """Output file and size of a figure."""

    output: Annotated[Path, typer.Option("--output", "-o", help="Output file: .svg, .pdf or .png.")]
    width: Annotated[
        str, typer.Option(help="single (8.5 cm, one column of a paper), double (17.5 cm), or centimetres.")
    ] = ""
    notes: Annotated[bool, typer.Option("--notes/--no-notes", help="Print notes below the figure too.")] = True
    dpi: Annotated[float, typer.Option(min=50, max=1200, help="Dots per inch of a .png.")] = 300
    title: Annotated[str, typer.Option(help="Title above the figure.")] = ""
    x_label: Annotated[str, typer.Option(help="Label of the x axes, instead of the setting's name.")] = ""
    y_label: Annotated[str, typer.Option(help="Label of the y axes.")] = ""
    json: Json = False

    def __post_init__(self) -> None:
        """Reject an invalid file name or width before the work starts."""
        from shiftbench.reports.figures.style import check_format, width_in_cm

        check_format(self.output)
        width_in_cm(self.width or "single")

    def write(
        self, draw: Callable[..., PaperFigure], *data: Any, of: Location | None, width: str = "single", **options: Any
    ) -> None:
        """Draw, mark models of the workspace ``of`` of which something was assumed, and write the file.

        ``width`` is the default width of the figure.
        """
        from shiftbench.reports.figures.style import labelled, marking
        from shiftbench.reports.models import assumed_models, figure_notes
        from shiftbench.runs.results import StoredResults

        run = None if of is None else StoredResults.open(of)
        marks = (assumed_models(run), figure_notes(run)) if run else ((), ())
        with marking(*marks), labelled(self.title, self.x_label, self.y_label):
            figure = draw(*data, width=self.width or width, show_notes=self.notes, **options)
        path = figure.write(self.output, dpi=self.dpi)
        wide, high = (2.54 * inches for inches in figure.get_size_inches())
        if self.json:
            print_json({"file": str(path), "width_cm": wide, "height_cm": high, "notes": list(figure.notes)})
            return
        errors.print(f"written: {path} ({wide:.1f} x {high:.1f} cm)", style="dim", highlight=False, soft_wrap=True)
        for note in figure.notes:
            errors.print(f"note: {note}", style="dim", highlight=False, markup=False)


@app.command("scatter")
@grouped
def scatter_command(
    drawn: Drawn,
    table: ResultsOptions,
    own: OwnOptions,
    *,
    kinds: LineOptions,
    shift: Shifts = None,
    x: Annotated[str | None, typer.Option("--x", help="Reference setting (default: val).")] = None,
    y: Annotated[str | None, typer.Option("--y", help="The setting under shift, for one panel.")] = None,
    scale: Scale = "logit",
    min_x: MinX = None,
    pivot: Pivot = None,
    classifier: Classifiers = None,
    name: Named = None,
    colour_by: ColourBy = "category",
    n_x: SizeX = None,
    n_y: SizeY = None,
    resamples: Annotated[int, typer.Option(min=0, help="Bootstrap resamples of the models, for the band.")] = 1000,
    level: Level = 0.95,
    point_level: Annotated[
        float | None,
        typer.Option(help="Confidence level of the points' intervals (default: 0.995 for the testbed, else --level)."),
    ] = None,
) -> None:
    """Accuracy under shift against accuracy without, one point per model and one panel per --shift.

    With the baseline models' line and its bootstrap band, y = x, and exact intervals where the numbers of images are
    known. Your own models (--own) are drawn on top and named.

    \b
    shiftbench figure scatter -r imagenet-testbed/ --shift imagenetv2 --own WORKSPACE -o scatter.svg
    shiftbench figure scatter -r results.csv -m models.csv --y imagenet-sketch --own mine.csv -o sketch.svg
    shiftbench figure scatter -w WORKSPACE --x demo --y demo-c.fog.3 --scale linear -o fog.pdf
    """
    from shiftbench.reports.figures import scatter

    study, mine = open_with_own(table, kinds, own)
    chosen = list(choose_shifts(study, shift, x=x, y=y, min_x=min_x, pivot=pivot).values())
    own.check(study, mine, chosen)
    for one in chosen:
        set_sizes(study, {one.x: n_x, one.y: n_y})
    drawn.write(
        scatter, study, chosen, scale=scale, own=mine, named=name or (), models=classifier or (), colour_by=colour_by,
        level=level, point_level=point_level, resamples=resamples, of=table.workspace,
        width="single" if len(chosen) == 1 else "double",
    )  # fmt: skip


@app.command("robustness")
@grouped
def robustness_command(
    drawn: Drawn,
    shift: Annotated[str, typer.Option("--shift", help="A testbed shift (`list shifts`), or SETTING@REFERENCE.")],
    table: ResultsOptions,
    own: OwnOptions,
    kinds: LineOptions,
    against: Annotated[
        str | None, typer.Option("--against", help="Another shift, for the x axis (default: tau against rho).")
    ] = None,
    scale: Scale = "logit",
    classifier: Classifiers = None,
    name: Named = None,
    colour_by: ColourBy = "category",
    level: Level = 0.95,
) -> None:
    """Effective robustness to one shift against another, or relative against effective robustness.

    With --against both axes are effective robustness (rho); without, x is rho and y is relative robustness (tau,
    against the base model) on the same shift: both positive means a robust model that lost no accuracy.

    \b
    shiftbench figure robustness -r imagenet-testbed/ --shift imagenetv2 --against corruptions -o rho.svg
    shiftbench figure robustness -r imagenet-testbed/ --shift imagenetv2 -o rho-tau.pdf
    """
    from shiftbench.reports.figures import robustness

    study, mine = open_with_own(table, kinds, own)
    one, other = ((text, study.shift(text)) if text else None for text in (shift, against))
    assert one is not None
    own.check(study, mine, [pair[1] for pair in (one, other) if pair])
    drawn.write(
        robustness, study, one, other, own=mine, named=name or (), models=classifier or (), colour_by=colour_by,
        scale=scale, level=level, of=table.workspace,
    )  # fmt: skip


@app.command("corruptions")
@grouped
def corruptions_command(
    drawn: Drawn,
    table: ResultsOptions,
    family: Family = None,
    clean: Clean = None,
    classifier: Classifiers = None,
    level: Level = 0.95,
) -> None:
    """Accuracy over severity, one small panel per corruption, one line per model.

    \b
    shiftbench figure corruptions -w WORKSPACE -o corruptions.svg
    shiftbench figure corruptions -r results.csv --family imagenet-c_on-disk -c resnet50 -c alexnet -o c.pdf
    """
    from shiftbench.reports.figures import corruptions

    grid = _severity_grid(table, family, clean, classifier or [], level)
    drawn.write(corruptions, grid, of=table.workspace, width="double")


def _run(table: ResultsOptions, models: list[str]) -> Run | None:
    """The results of the workspace; None if a table of results was given."""
    from shiftbench.api import Run

    return None if table.workspace is None or table.results is not None else Run.open(table.workspace, models)


def _severity_grid(
    table: ResultsOptions, family: str | None, clean: str | None, models: list[str], level: float
) -> SeverityGrid:
    from shiftbench.reports.accuracy_grids import severity_grid, severity_grid_of_run

    if run := _run(table, models):
        return severity_grid_of_run(run, family, clean=clean, level=level, metric=table.metric)
    results = table.open().results
    clean = clean or ("val" if "val" in results.settings else None)
    return severity_grid(results, family=family, clean=clean, models=models, level=level)


@app.command("heatmap")
@grouped
def heatmap_command(
    drawn: Drawn,
    table: ResultsOptions,
    family: Family = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            help="Divide by the errors of this model (default, for ImageNet workspaces: the published AlexNet)."
        ),
    ] = None,
    classifier: Classifiers = None,
) -> None:
    """Corruption errors by model and corruption, as a heat map with numbers.

    From a workspace the very numbers of `table --mce`; from a table of results mean errors over the severities, or,
    with --baseline, divided by those of one of its models.

    \b
    shiftbench figure heatmap -w WORKSPACE -o ce.svg
    shiftbench figure heatmap -r results.csv --family imagenet-c_on-disk --baseline alexnet -c resnet50 -o ce.pdf
    """
    from shiftbench.reports.figures import heatmap

    errors = _error_map(table, family, baseline, classifier or [])
    drawn.write(heatmap, errors, of=table.workspace, width="double")


def _error_map(table: ResultsOptions, family: str | None, baseline: str | None, models: list[str]) -> ErrorMap:
    from shiftbench.reports.accuracy_grids import error_map, error_map_of_run, severity_grid

    if run := _run(table, models):
        return error_map_of_run(run, family, baseline=baseline)
    # The baseline divides whether or not it is shown.
    wanted = [*models, *([baseline] if baseline and baseline not in models else [])] if models else []
    return error_map(severity_grid(table.open().results, family=family, models=wanted), baseline)


@app.command("mce")
@grouped
def mce_command(
    drawn: Drawn,
    table: ResultsOptions,
    family: Family = None,
    clean: Clean = None,
    baseline: Annotated[
        str | None, typer.Option(help="Divide by the errors of this model (default for ImageNet: published AlexNet).")
    ] = None,
    seen: Annotated[
        list[str] | None, typer.Option("--seen", help="Corruption for the x axis, seen in training (repeatable).")
    ] = None,
    unseen: Annotated[
        list[str] | None, typer.Option("--unseen", help="With --seen: corruption for the y axis (default: all others).")
    ] = None,
    classifier: Classifiers = None,
    level: Level = 0.95,
) -> None:
    """mCE and relative mCE against accuracy, one point per model; or unseen against seen corruptions.

    If mCE falls with accuracy but relative mCE does not, models became more accurate, not more robust.

    \b
    shiftbench figure mce -w WORKSPACE -o mce.svg
    shiftbench figure mce -w WORKSPACE --seen gaussian_noise --unseen impulse_noise -o noise.svg
    shiftbench figure mce -r results.csv --family imagenet-c_on-disk --baseline alexnet -o mce.pdf
    """
    from shiftbench.reports.figures import error_points, error_points_of_run, mce

    chosen = {"baseline": baseline, "seen": seen or (), "unseen": unseen or ()}
    if run := _run(table, classifier or []):
        points = error_points_of_run(run, family, level=level, **chosen)  # type: ignore[arg-type]
    else:
        wanted = [*(classifier or []), *([baseline] if classifier and baseline else [])]
        points = error_points(_severity_grid(table, family, clean, wanted, level), **chosen)  # type: ignore[arg-type]
    drawn.write(mce, points, of=table.workspace)


@app.command("bars")
@grouped
def bars_command(
    drawn: Drawn,
    table: ResultsOptions,
    setting: Settings = None,
    out: Annotated[
        str | None, typer.Option("--out", help="AUPR of detecting the images of this setting, such as imagenet-o.")
    ] = None,
    inside: Annotated[
        str | None, typer.Option("--in", help="With --out: setting of known images (default: its reference).")
    ] = None,
    classifier: Classifiers = None,
    level: Level = 0.95,
) -> None:
    """Scores as bars with intervals, one group per model: accuracy, any --metric, or AUPR with --out.

    \b
    shiftbench figure bars -w WORKSPACE -s imagenet-a -o bars.svg
    shiftbench figure bars -w WORKSPACE --out imagenet-o -o aupr.svg
    shiftbench figure bars -r results.csv -s val -s imagenet-a -c resnet50 -c alexnet -o bars.pdf
    """
    from shiftbench.reports.accuracy_grids import table_scores
    from shiftbench.reports.detection import detection_entries
    from shiftbench.reports.figures import bars

    run = _run(table, classifier or [])
    if run is None:
        if out is not None:
            raise typer.BadParameter("detection needs predictions: give --workspace", param_hint="--out")
        entries = table_scores(table.open().results, setting or (), classifier or (), level)
    elif out is not None:
        entries = [one for one in detection_entries(run, inside, out, level=level) if one[2].metric == "aupr"]
    else:
        entries = run.select(settings=setting or ()).scores(table.metric, level=level)
    drawn.write(bars, entries, of=table.workspace)


@app.command("confusion")
@grouped
def confusion_command(
    drawn: Drawn,
    workspace: Annotated[Path, WorkspaceOption],
    setting: Settings = None,
    classifier: Classifiers = None,
    most: Annotated[int, typer.Option(min=2, help="Classes to draw: those with the most mistakes.")] = 20,
) -> None:
    """The confusion matrix of one model: labels by predictions, in percent. `study confusion` lists the pairs.

    \b
    shiftbench figure confusion -w WORKSPACE -s demo -c squeezenet1_1 -o confusion.svg
    """
    from shiftbench.reports.figures import confusion

    found = _predictions(workspace, setting, classifier)
    if len(found) != 1:
        names = ", ".join(f"{one.classifier} in {one.setting}" for one in found[:4])
        raise typer.BadParameter(f"name one model and setting (there are: {names})", param_hint="--classifier")
    drawn.write(confusion, found[0], most=most, of=workspace, width="double")


@app.command("reliability")
@grouped
def reliability_command(
    drawn: Drawn,
    workspace: Annotated[Path, WorkspaceOption],
    setting: Settings = None,
    classifier: Classifiers = None,
    bins: Annotated[int, typer.Option(min=1, max=100, help="Bins of equal width.")] = 15,
    level: Level = 0.95,
) -> None:
    """Reliability diagrams: is a model right as often as it is confident?

    One panel per model and setting: accuracy with its exact interval at the mean confidence of every bin,
    and how many images fall into the bin.

    \b
    shiftbench figure reliability -w WORKSPACE -s demo -s demo-c.fog.5 -c squeezenet1_1 -o reliability.svg
    """
    from shiftbench.reports.figures import reliability

    found = _predictions(workspace, setting, classifier)
    drawn.write(
        reliability, found, bins=bins, level=level, of=workspace, width="single" if len(found) == 1 else "double"
    )


@app.command("response")
@grouped
def response_command(
    drawn: Drawn,
    workspace: Annotated[Path, WorkspaceOption],
    setting: Settings = None,
    classifier: Classifiers = None,
    level: Level = 0.95,
) -> None:
    """Response-rate accuracy curves: accuracy of a model that answers only if it is confident.

    One curve per model and setting, with the area under it (AURRA) in the legend.

    \b
    shiftbench figure response -w WORKSPACE -s imagenet-a -o response.svg
    """
    from shiftbench.reports.figures import response

    drawn.write(response, _predictions(workspace, setting, classifier), level=level, of=workspace)


def _predictions(workspace: Location, settings: list[str] | None, classifiers: list[str] | None) -> list[Predictions]:
    from shiftbench.api import Run

    known = Run.open(workspace).settings
    if not settings and len(known) != 1:
        raise typer.BadParameter(f"name a setting (there are: {', '.join(known[:8])}, ...)", param_hint="--setting")
    return [one for setting in settings or known for one in predictions_in(workspace, setting, classifiers or ())]


@app.command("correlations")
@grouped
def correlations_command(
    drawn: Drawn,
    table: ResultsOptions,
    kinds: LineOptions,
    synthetic: Annotated[
        list[str] | None,
        typer.Option("--synthetic", "-s", help="Rows: settings, SETTING@REFERENCE or testbed shifts (default: all)."),
    ] = None,
    natural: Annotated[
        list[str] | None, typer.Option("--natural", "-n", help="Columns (default: all natural shifts of the testbed).")
    ] = None,
    x: Annotated[str, typer.Option("--x", help="The reference of settings named without one.")] = "val",
    scale: Scale = "logit",
    rank: Annotated[bool, typer.Option("--rank", help="Spearman's rank correlation in place of Pearson's.")] = False,
    level: Level = 0.95,
) -> None:
    """Does robustness to one shift go with robustness to another? Every measure against every other as a heat map.

    The correlation of effective robustness over the models outside the baseline category; grey where its interval
    holds 0.

    \b
    shiftbench figure correlations -r imagenet-testbed/ -o correlations.pdf
    """
    from shiftbench.reports.figures import correlations

    study = table.open(kinds)
    measures = all_measures(study, synthetic or ["all"], natural or ["all"])
    pairs = study.correlations(*measures, x=x, level=level, scale=scale)
    drawn.write(correlations, pairs, rank=rank, of=table.workspace)


@app.command("rank")
@grouped
def rank_command(
    drawn: Drawn,
    x: Original,
    y: New,
    table: ResultsOptions,
    n_x: SizeX = None,
    n_y: SizeY = None,
    name: Named = None,
    level: Level = 0.95,
) -> None:
    """Accuracy and rank on an original test set against a new one.

    Named are the models whose rank changed most, or those of --name.

    \b
    shiftbench figure rank -r results.csv --x val --y imagenetv2-matched-frequency \\
        --n-x 50000 --n-y 10000 -o rank.svg
    """
    from shiftbench.reports.figures import rank

    result = reproducibility_of(table, x, y, n_x, n_y, level)
    drawn.write(rank, result, x, y, named=name, of=table.workspace, width="double")


@app.command("bins")
@grouped
def bins_command(
    drawn: Drawn,
    chosen: Bins,
    x: Annotated[
        str | None, typer.Option("--x", help="Draw against accuracy in this setting, one point per model and bin.")
    ] = None,
) -> None:
    """Accuracy by selection frequency: are images that few people would select harder?

    \b
    shiftbench figure bins -w WORKSPACE -s imagenetv2-matched-frequency --frequencies annotations.csv -o bins.svg
    """
    from shiftbench.reports.figures import bins

    found = binned_accuracies(chosen)
    original = None
    if x is not None:
        original = {one.classifier: float(one.correct.mean()) for one in predictions_in(chosen.workspace, x)}
    drawn.write(bins, found, chosen.setting, original=original, original_setting=x or "", of=chosen.workspace)
