"""``shiftbench figure``: figures for papers, from a workspace or a table of results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

import shiftbench as sb
from shiftbench.cli.console import errors, note, print_json
from shiftbench.cli.options import Commands, Json, Level, ModelNames, WorkspaceOptions
from shiftbench.cli.study_options import (
    AxesOptions,
    BinOptions,
    LineOptions,
    PairOptions,
    PlacedOptions,
    ResultsOptions,
    Scale,
    all_measures,
)
from shiftbench.io.paths import Location

if TYPE_CHECKING:
    from shiftbench.metrics.base import SettingScore
    from shiftbench.reports.accuracy_grids import SeverityGrid
    from shiftbench.reports.figures import PaperFigure
    from shiftbench.store.predictions import Predictions

app = Commands(
    "Figures for papers as SVG, PDF or PNG: one or two columns wide, text kept as text, colour-blind safe. "
    "From a workspace or a table of results; no model is run."
)

Settings = Annotated[list[str] | None, "--setting", "-s", "Settings to draw (repeatable; default: the only one)."]


@dataclass(frozen=True)
class Drawn:
    """Output file and size of a figure."""

    panel: ClassVar[str] = "Figure"
    output: Annotated[Path, "-o", "Output file: .svg, .pdf or .png."]
    width: Annotated[str, "single (8.5 cm, one column of a paper), double (17.5 cm), or centimetres."] = ""
    notes: Annotated[bool, "--notes/--no-notes", "Print notes below the figure too."] = True
    dpi: Annotated[float, {"min": 50, "max": 1200}, "Dots per inch of a .png."] = 300
    title: Annotated[str, "Title above the figure."] = ""
    x_label: Annotated[str, "Label of the x axes, instead of the setting's name."] = ""
    y_label: Annotated[str, "Label of the y axes."] = ""
    json: Json = False

    def __post_init__(self) -> None:
        """Reject an invalid file name or width before the work starts."""
        from shiftbench.reports.figures.style import check_format, width_in_cm

        check_format(self.output)
        width_in_cm(self.width or "single")

    def write(
        self,
        draw: Callable[..., PaperFigure],
        *data: Any,
        workspace: Location | None,
        default_width: str = "single",
        **options: Any,
    ) -> None:
        """Draw the data, mark the models that have a mark in the workspace, and write the file."""
        from shiftbench.reports.figures.style import labelled, marking
        from shiftbench.reports.models import figure_marks

        marks: tuple[dict[str, str], list[str]] = ({}, [])
        if workspace is not None:
            marks = figure_marks(sb.Run.open(workspace))
        with marking(*marks), labelled(self.title, self.x_label, self.y_label):
            figure = draw(*data, width=self.width or default_width, show_notes=self.notes, **options)
        path = figure.write(self.output, dpi=self.dpi)
        width_cm, height_cm = (2.54 * inches for inches in figure.get_size_inches())
        if self.json:
            print_json({"file": str(path), "width_cm": width_cm, "height_cm": height_cm, "notes": list(figure.notes)})
            return
        note(f"written: {path} ({width_cm:.1f} x {height_cm:.1f} cm)")
        for text in figure.notes:
            errors.print(f"note: {text}", style="dim")


@dataclass(frozen=True)
class PointOptions:
    """Which points are drawn, and how."""

    panel: ClassVar[str] = "Points"
    classifier: ModelNames = None
    name: Annotated[list[str] | None, "Model to label by name (repeatable)."] = None
    colour_by: Annotated[str, "Column of the table of models that decides colours."] = "category"
    scale: Scale = "logit"
    level: Level = 0.95

    def options(self) -> dict[str, Any]:
        """As keyword arguments of the functions that draw points."""
        return {
            "models": self.classifier or (),
            "named": self.name or (),
            "colour_by": self.colour_by,
            "scale": self.scale,
            "level": self.level,
        }


@dataclass(frozen=True)
class SourceOptions(ResultsOptions):
    """Models of a workspace, or of a table of results."""

    panel: ClassVar[str] = "Results"
    classifier: ModelNames = None

    def run(self) -> sb.Run | None:
        """The results of the workspace; None if a table of results was given."""
        if self.workspace is None or self.results is not None:
            return None
        return sb.Run.open(self.workspace, self.classifier or [])

    def scores(self, settings: Sequence[str], level: float) -> list[SettingScore]:
        """The scores of the models in these settings, by default in all."""
        from shiftbench.reports.accuracy_grids import table_scores

        run = self.run()
        if run is None:
            return table_scores(self.open().results, settings, self.classifier or (), level)
        selected = run.select(settings=settings)
        return selected.with_means(selected.scores(self.metric, level=level))


@dataclass(frozen=True)
class FamilyOptions(SourceOptions):
    """A family of corruptions."""

    panel: ClassVar[str] = "Results"
    family: Annotated[str | None, "Family of corruptions if there are several: imagenet-c of imagenet-c.fog.3."] = None

    def grid(self, baseline: str | None = None, clean: str | None = None, level: float = 0.95) -> SeverityGrid:
        """Accuracies by corruption and severity. The baseline is read, too, whether or not it is shown."""
        from shiftbench.reports.accuracy_grids import severity_grid, severity_grid_of_run

        if run := self.run():
            return severity_grid_of_run(run, self.family, clean=clean, level=level, metric=self.metric)
        results = self.open().results
        if not clean and "val" in results.settings:
            clean = "val"
        models = list(self.classifier or ())
        # Without names all models are read, the baseline among them.
        if baseline and models and baseline not in models:
            models.append(baseline)
        return severity_grid(results, family=self.family, clean=clean, models=models, level=level)


@dataclass(frozen=True)
class SeverityOptions(FamilyOptions):
    """A family of corruptions, and what it is compared with."""

    panel: ClassVar[str] = "Results"
    clean: Annotated[str | None, "Setting at severity 0 (default: the reference of the corruptions, or val)."] = None
    level: Level = 0.95


@dataclass(frozen=True, kw_only=True)
class PredictionOptions(WorkspaceOptions):
    """Predictions in some settings of a workspace."""

    panel: ClassVar[str] = "Results"
    setting: Settings = None

    def read(self) -> list[Predictions]:
        """The predictions of the models in the named settings, or in the only one."""
        settings = sb.Run.open(self.workspace).settings
        if not self.setting and len(settings) != 1:
            names = ", ".join(settings[:8])
            raise typer.BadParameter(f"name a setting (there are: {names}, ...)", param_hint="--setting")
        predictions: list[Predictions] = []
        for setting in self.setting or settings:
            predictions += self.predictions(setting)
        return predictions


@app.command("scatter")
def scatter_command(
    drawn: Drawn,
    table: PlacedOptions,
    axes: AxesOptions,
    points: PointOptions,
    resamples: Annotated[int, {"min": 0}, "0: no band around the line."] = 1000,
    point_level: Annotated[
        float | None, "Confidence level of the points' intervals (default: 0.995 for the testbed, else --level)."
    ] = None,
) -> None:
    """Accuracy under shift against accuracy without, one point per model and one panel per --shift.

    With the baseline models' line and its band, y = x, and exact intervals where the numbers of images are
    known. Your own models (--own) are drawn on top and named.

    \b
    shiftbench figure scatter -r imagenet-testbed/ --shift imagenetv2 -o a.svg
    shiftbench figure scatter -r results.csv --y imagenet-sketch --own mine.csv -o s.svg
    shiftbench figure scatter -w W --x demo --y demo-c.fog.3 --scale linear -o fog.pdf
    """
    from shiftbench.reports.figures import scatter

    study, mine = table.placed()
    shifts = list(axes.choose(study).values())
    table.check(study, mine, shifts)
    drawn.write(
        scatter,
        study,
        shifts,
        own=mine,
        point_level=point_level,
        resamples=resamples,
        workspace=table.workspace,
        default_width=_width_of_panels(len(shifts)),
        **points.options(),
    )


def _width_of_panels(count: int) -> str:
    """The default width of a figure with some panels side by side."""
    return "single" if count == 1 else "double"


@app.command("robustness")
def robustness_command(
    drawn: Drawn,
    shift: Annotated[str, "A testbed shift (`list shifts`), or SETTING@REFERENCE."],
    table: PlacedOptions,
    points: PointOptions,
    against: Annotated[str | None, "Another shift, for the x axis (default: tau against rho)."] = None,
) -> None:
    """Effective robustness to one shift against another, or relative against effective robustness.

    With --against both axes are effective robustness (rho); without, x is rho and y is relative robustness (tau,
    against the base model) on the same shift: both positive means a robust model that lost no accuracy.

    \b
    shiftbench figure robustness -r results.csv --shift imagenetv2 --against pgd -o rho.svg
    shiftbench figure robustness -r results.csv --shift imagenetv2 -o rho-tau.pdf
    """
    from shiftbench.reports.figures import robustness

    study, mine = table.placed()
    shift_axes = study.shift(shift)
    if against:
        against_axes = study.shift(against)
        against_pair = (against, against_axes)
        table.check(study, mine, [shift_axes, against_axes])
    else:
        against_pair = None
        # Relative robustness compares each model with its base model.
        table.check(study, mine, [shift_axes], "base_model")
    drawn.write(
        robustness,
        study,
        (shift, shift_axes),
        against_pair,
        own=mine,
        workspace=table.workspace,
        **points.options(),
    )


@app.command("corruptions")
def corruptions_command(drawn: Drawn, table: SeverityOptions) -> None:
    """Accuracy over severity, one small panel per corruption, one line per model.

    \b
    shiftbench figure corruptions -w W -o corruptions.svg
    shiftbench figure corruptions -r results.csv --family imagenet-c_on-disk -c resnet50 -o c.pdf
    """
    from shiftbench.reports.figures import corruptions

    grid = table.grid(None, table.clean, table.level)
    drawn.write(corruptions, grid, workspace=table.workspace, default_width="double")


@app.command("heatmap")
def heatmap_command(
    drawn: Drawn,
    table: FamilyOptions,
    baseline: Annotated[
        str | None,
        "Divide by the errors of this model (default, for ImageNet's classes: the published AlexNet of the family).",
    ] = None,
) -> None:
    """Corruption errors by model and corruption, as a heat map with numbers.

    The numbers of `table --mce`: divided by the family's AlexNet, or, with --baseline, by one of the models. Errors of
    a table in families other than ImageNet-C are not divided without --baseline.

    \b
    shiftbench figure heatmap -w W -o ce.svg
    shiftbench figure heatmap -r results.csv --family imagenet-c_on-disk --baseline alexnet -o ce.pdf
    """
    from shiftbench.reports.accuracy_grids import error_map, error_map_of_run
    from shiftbench.reports.figures import heatmap

    if run := table.run():
        errors_by_model = error_map_of_run(run, table.family, baseline=baseline)
    else:
        errors_by_model = error_map(table.grid(baseline), baseline)
    drawn.write(heatmap, errors_by_model, workspace=table.workspace, default_width="double")


@app.command("mce")
def mce_command(
    drawn: Drawn,
    table: SeverityOptions,
    baseline: Annotated[
        str | None,
        "Divide by the errors of this model (default, for ImageNet's classes: the published AlexNet of the family).",
    ] = None,
    seen: Annotated[list[str] | None, "Corruption for the x axis, seen in training (repeatable)."] = None,
    unseen: Annotated[list[str] | None, "With --seen: corruption for the y axis (default: all others)."] = None,
    accuracy: Annotated[bool, "Mean accuracy under corruption in place of mCE."] = False,
    name: Annotated[list[str] | None, "Model to label by name (repeatable; default: all, up to a dozen)."] = None,
) -> None:
    """mCE and relative mCE against accuracy, one point per model; or unseen against seen corruptions.

    If mCE falls with accuracy but relative mCE does not, models became more accurate, not more robust.

    \b
    shiftbench figure mce -w W -o mce.svg
    shiftbench figure mce -w W --seen fog --unseen impulse_noise -o noise.svg
    shiftbench figure mce -r results.csv --family imagenet-c_on-disk -o mce.pdf
    shiftbench figure mce -w W --accuracy -o accuracy.svg
    """
    from shiftbench.reports.figures import error_points, error_points_of_run, mce

    if accuracy and (baseline or seen):
        raise typer.BadParameter("not with --baseline or --seen", param_hint="--accuracy")
    if run := table.run():
        points = error_points_of_run(
            run,
            table.family,
            level=table.level,
            baseline=baseline,
            seen=seen or (),
            unseen=unseen or (),
            accuracy=accuracy,
        )
    else:
        grid = table.grid(baseline, table.clean, table.level)
        points = error_points(grid, baseline=baseline, seen=seen or (), unseen=unseen or (), accuracy=accuracy)
    drawn.write(mce, points, named=name or (), workspace=table.workspace)


@app.command("size")
def size_command(
    drawn: Drawn,
    table: SourceOptions,
    models: Annotated[
        Path,
        "-m",
        {"metavar": "PATH"},
        "Table of models (.csv, .parquet) with a column `size`: millions of parameters.",
    ],
    setting: Settings = None,
    name: Annotated[list[str] | None, "Model to label by name (repeatable; default: all, up to a dozen)."] = None,
    level: Level = 0.95,
) -> None:
    """Scores against the size of the network, one point per model and setting.

    \b
    shiftbench figure size -w W -m models.csv -s imagenet-a -o size.svg
    shiftbench figure size -w W -m models.csv -s imagenet-a --metric error -o size.pdf
    """
    from shiftbench.reports.figures import mce, size_points
    from shiftbench.studies.models import read_models

    entries = table.scores(setting or (), level)
    drawn.write(mce, size_points(entries, read_models(models)), named=name or (), workspace=table.workspace)


@app.command("bars")
def bars_command(
    drawn: Drawn,
    table: SourceOptions,
    setting: Settings = None,
    out: Annotated[
        list[str] | None, "AUPR of detecting the images of this setting, such as imagenet-o (repeatable)."
    ] = None,
    inside: Annotated[str | None, "--in", "With --out: setting of known images (default: its reference)."] = None,
    level: Level = 0.95,
) -> None:
    """Scores as bars with intervals, one group per model: accuracy, any --metric, or AUPR with --out.

    \b
    shiftbench figure bars -w W -s imagenet-a -o bars.svg
    shiftbench figure bars -w W --out imagenet-o -o aupr.svg
    shiftbench figure bars -r results.csv -s val -s imagenet-a -c resnet50 -o bars.pdf
    """
    from shiftbench.reports.confidence import chance_of_detection, detection_entries
    from shiftbench.reports.figures import bars

    chance: list[float] = []
    run = table.run()
    if out:
        if run is None:
            raise typer.BadParameter("detection needs predictions: give --workspace", param_hint="--out")
        entries: list[SettingScore] = []
        for out_setting in out:
            for entry in detection_entries(run, inside, out_setting, level=level):
                _, _, score = entry
                if score.metric == "aupr":
                    entries.append(entry)
            chance += chance_of_detection(run, inside, out_setting, level=level)
    else:
        entries = table.scores(setting or (), level)
    drawn.write(bars, entries, chance=sorted(set(chance)), workspace=table.workspace)


@app.command("confusion")
def confusion_command(
    drawn: Drawn,
    stored: PredictionOptions,
    most: Annotated[int, {"min": 2}, "Classes to draw: those with the most mistakes."] = 20,
) -> None:
    """The confusion matrix of one model: labels by predictions, in percent. `study confusion` lists the pairs.

    \b
    shiftbench figure confusion -w W -s demo -c squeezenet1_1 -o confusion.svg
    """
    from shiftbench.reports.figures import confusion

    read = stored.read()
    if len(read) != 1:
        names = ", ".join(f"{predictions.classifier} in {predictions.setting}" for predictions in read[:4])
        raise typer.BadParameter(f"name one model and setting (there are: {names})", param_hint="--classifier")
    drawn.write(confusion, read[0], most=most, workspace=stored.workspace, default_width="double")


@app.command("reliability")
def reliability_command(
    drawn: Drawn,
    stored: PredictionOptions,
    bins: Annotated[int, {"min": 1, "max": 100}, "Bins of equal width."] = 15,
    level: Level = 0.95,
) -> None:
    """Reliability diagrams: is a model right as often as it is confident?

    One panel per model and setting: accuracy with its exact interval at the mean confidence of every bin,
    and how many images fall into the bin.

    \b
    shiftbench figure reliability -w W -s demo -s demo-c.fog.5 -o r.svg
    """
    from shiftbench.reports.figures import reliability

    predictions = stored.read()
    drawn.write(
        reliability,
        predictions,
        bins=bins,
        level=level,
        workspace=stored.workspace,
        default_width=_width_of_panels(len(predictions)),
    )


@app.command("response")
def response_command(drawn: Drawn, stored: PredictionOptions, level: Level = 0.95) -> None:
    """Response-rate accuracy curves: accuracy of a model that answers only if it is confident.

    One curve per model and setting, with the area under it (AURRA) in the legend.

    \b
    shiftbench figure response -w W -s imagenet-a -o response.svg
    """
    from shiftbench.reports.figures import response

    drawn.write(response, stored.read(), level=level, workspace=stored.workspace)


@app.command("correlations")
def correlations_command(
    drawn: Drawn,
    table: LineOptions,
    synthetic: Annotated[
        list[str] | None, "-s", "Rows: settings, SETTING@REFERENCE or testbed shifts (default: all)."
    ] = None,
    natural: Annotated[list[str] | None, "-n", "Columns (default: all natural shifts of the testbed)."] = None,
    x: Annotated[str, "Reference of settings that are named without one."] = "val",
    scale: Scale = "logit",
    rank: Annotated[bool, "Spearman's rank correlation in place of Pearson's."] = False,
    level: Level = 0.95,
) -> None:
    """Does robustness to one shift go with robustness to another? Every measure against every other as a heat map.

    The correlation of effective robustness over the models outside the baseline category; grey where its interval
    contains 0.

    \b
    shiftbench figure correlations -r imagenet-testbed/ -o correlations.pdf
    """
    from shiftbench.reports.figures import correlations

    study = table.study()
    measures = all_measures(study, synthetic or ["all"], natural or ["all"])
    pairs = study.correlations(*measures, x=x, level=level, scale=scale)
    drawn.write(correlations, pairs, rank=rank, workspace=table.workspace)


@app.command("rank")
def rank_command(
    drawn: Drawn, pair: PairOptions, name: Annotated[list[str] | None, "Model to label by name (repeatable)."] = None
) -> None:
    """Accuracy and rank on an original test set against a new one.

    Named are the models whose rank changed most, or those of --name.

    \b
    shiftbench figure rank -r results.csv --x val --y new --n-x 50000 --n-y 10000 -o r.svg
    """
    from shiftbench.reports.figures import rank

    drawn.write(
        rank,
        pair.reproducibility(),
        pair.x,
        pair.y,
        named=name,
        workspace=pair.workspace,
        default_width="double",
    )


@app.command("bins")
def bins_command(
    drawn: Drawn,
    annotated: BinOptions,
    x: Annotated[str | None, "Draw against accuracy in this setting, one point per model and bin."] = None,
) -> None:
    """Accuracy by selection frequency: are images that few people would select harder?

    \b
    shiftbench figure bins -w W -s new --frequencies annotations.csv -o bins.svg
    """
    from shiftbench.reports.figures import bins

    accuracies = annotated.accuracies()
    original = None
    if x is not None:
        original = {}
        for predictions in annotated.predictions(x):
            original[predictions.classifier] = float(predictions.correct.mean())
    drawn.write(
        bins,
        accuracies,
        annotated.setting,
        original=original,
        original_setting=x or "",
        workspace=annotated.workspace,
    )
