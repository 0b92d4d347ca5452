"""``shiftbench figure``: figures for papers, from a workspace or a table of results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
    from shiftbench.reports.figures import PaperFigure
    from shiftbench.reports.figures.corruption_data import ErrorMap, SeverityGrid
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

    def width_or(self, default: str) -> str:
        return self.width or default

    def check(self) -> None:
        """Reject an invalid file name or width before the work starts."""
        from shiftbench.reports.figures.style import check_format, width_in_cm

        check_format(self.output)
        width_in_cm(self.width_or("single"))

    def write(self, draw: Callable[[], PaperFigure], workspace: Location | None) -> None:
        """Draw, mark models of a workspace of which something was assumed, and write the file."""
        from shiftbench.reports.figures.style import labelled, marking
        from shiftbench.reports.models import assumed_models, figure_notes
        from shiftbench.runs.results import StoredResults

        run = None if workspace is None else StoredResults.open(workspace)
        marks = (assumed_models(run), figure_notes(run)) if run else ((), ())
        with marking(*marks), labelled(self.title, self.x_label, self.y_label):
            figure = draw()
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
    drawn.check()
    from shiftbench.reports.figures import scatter

    study, mine = open_with_own(table, kinds, own)
    chosen = list(choose_shifts(study, shift, x=x, y=y, min_x=min_x, pivot=pivot).values())
    own.check(study, mine, chosen)
    for one in chosen:
        set_sizes(study, {one.x: n_x, one.y: n_y})
    drawn.write(
        lambda: scatter(
            study, chosen, scale=scale, own=mine, named=name or (), models=classifier or (), colour_by=colour_by,
            level=level, point_level=point_level, resamples=resamples,
            width=drawn.width_or("single" if len(chosen) == 1 else "double"), show_notes=drawn.notes,
        ),
        table.workspace,
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
    drawn.check()
    from shiftbench.reports.figures import robustness

    study, mine = open_with_own(table, kinds, own)
    one, other = ((text, study.shift(text)) if text else None for text in (shift, against))
    assert one is not None
    own.check(study, mine, [pair[1] for pair in (one, other) if pair])
    drawn.write(
        lambda: robustness(
            study, one, other, own=mine, named=name or (), models=classifier or (), colour_by=colour_by, scale=scale,
            level=level, width=drawn.width_or("single"), show_notes=drawn.notes,
        ),
        table.workspace,
    )  # fmt: skip


@app.command("corruptions")
@grouped
def corruptions_command(
    drawn: Drawn,
    table: ResultsOptions,
    family: Family = None,
    clean: Annotated[
        str | None, typer.Option(help="Setting at severity 0 (default: the reference of the corruptions, or val).")
    ] = None,
    classifier: Classifiers = None,
    level: Level = 0.95,
) -> None:
    """Accuracy over severity, one small panel per corruption, one line per model.

    \b
    shiftbench figure corruptions -w WORKSPACE -o corruptions.svg
    shiftbench figure corruptions -r results.csv --family imagenet-c_on-disk -c resnet50 -c alexnet -o c.pdf
    """
    drawn.check()
    from shiftbench.reports.figures import corruptions

    grid = _severity_grid(table, family, clean, classifier or [], level)
    drawn.write(lambda: corruptions(grid, width=drawn.width_or("double"), show_notes=drawn.notes), table.workspace)


def _severity_grid(
    table: ResultsOptions, family: str | None, clean: str | None, models: list[str], level: float
) -> SeverityGrid:
    from shiftbench.api import Run
    from shiftbench.reports.figures import severity_grid
    from shiftbench.reports.figures.corruption_data import severity_grid_of_run

    if table.workspace is not None and table.results is None:
        run = Run.open(table.workspace, models)
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
    drawn.check()
    from shiftbench.reports.figures import heatmap

    errors = _error_map(table, family, baseline, classifier or [])
    drawn.write(lambda: heatmap(errors, width=drawn.width_or("double"), show_notes=drawn.notes), table.workspace)


def _error_map(table: ResultsOptions, family: str | None, baseline: str | None, models: list[str]) -> ErrorMap:
    from shiftbench.api import Run
    from shiftbench.reports.figures import error_map, error_map_of_run, severity_grid

    if table.workspace is not None and table.results is None:
        return error_map_of_run(Run.open(table.workspace, models), family, baseline=baseline)
    # The baseline divides whether or not it is shown.
    wanted = [*models, *([baseline] if baseline and baseline not in models else [])] if models else []
    return error_map(severity_grid(table.open().results, family=family, models=wanted), baseline)


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
    drawn.check()
    from shiftbench.reports.figures import reliability

    found = _predictions(workspace, setting, classifier)
    width = drawn.width_or("single" if len(found) == 1 else "double")
    drawn.write(lambda: reliability(found, bins=bins, level=level, width=width, show_notes=drawn.notes), workspace)


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
    drawn.check()
    from shiftbench.reports.figures import response

    found = _predictions(workspace, setting, classifier)
    width = drawn.width_or("single")
    drawn.write(lambda: response(found, level=level, width=width, show_notes=drawn.notes), workspace)


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
    drawn.check()
    from shiftbench.reports.figures import correlations

    study = table.open(kinds)
    measures = all_measures(study, synthetic or ["all"], natural or ["all"])
    pairs = study.correlations(*measures, x=x, level=level, scale=scale)
    width = drawn.width_or("single")
    drawn.write(lambda: correlations(pairs, rank=rank, width=width, show_notes=drawn.notes), table.workspace)


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
    drawn.check()
    from shiftbench.reports.figures import rank

    result = reproducibility_of(table, x, y, n_x, n_y, level)
    width = drawn.width_or("double")
    drawn.write(lambda: rank(result, x, y, named=name, width=width, show_notes=drawn.notes), table.workspace)


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
    drawn.check()
    from shiftbench.reports.figures import bins

    found = binned_accuracies(chosen)
    original = None
    if x is not None:
        original = {one.classifier: float(one.correct.mean()) for one in predictions_in(chosen.workspace, x)}
    drawn.write(
        lambda: bins(
            found, chosen.setting, original=original, original_setting=x or "", width=drawn.width_or("single"),
            show_notes=drawn.notes,
        ),
        chosen.workspace,
    )  # fmt: skip
