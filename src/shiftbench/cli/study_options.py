"""Options that studies and figures share: source of the accuracies, models, shifts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

import shiftbench as sb
from shiftbench.cli.options import Level, StoredOptions, WorkspaceOption
from shiftbench.io.paths import Location, place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shiftbench.studies.reproducibility import BinnedAccuracies, Reproducibility
    from shiftbench.studies.results import Results
    from shiftbench.studies.study import ShiftAxes, Study

Scale = Annotated[str, "logit, probit or linear."]
Shifts = Annotated[
    list[str] | None, "--shift", "A testbed shift (`list shifts`), SETTING@REFERENCE, a setting, or all (repeatable)."
]
SizeX = Annotated[float | None, {"min": 1}, "Number of images behind x, for the intervals."]
SizeY = Annotated[float | None, {"min": 1}, "Number of images behind y, for the intervals."]
ModelsFile = Annotated[Path | None, "-m", "Table of the models: category, base_model, ... (.csv)."]


@dataclass(frozen=True)
class ResultsOptions:
    """Accuracies from a file, or from the predictions of a workspace."""

    panel: ClassVar[str] = "Results"
    results: Annotated[
        Path | None,
        "-r",
        "Table of accuracies, models by settings: .csv or .parquet, percent or fractions; or a folder that holds one, "
        "such as the ImageNet testbed's (`baselines get testbed`).",
    ] = None
    workspace: Annotated[Location | None, WorkspaceOption] = None
    metric: Annotated[str | None, "With a workspace: metric, such as top5 (default: each setting's own)."] = None
    unit: Annotated[str | None, "percent or fraction, if the table does not show which."] = None
    all_models: Annotated[bool, "All models of the testbed's public table, not only the paper's 204."] = False

    def open(
        self,
        models: Path | None = None,
        own_results: Results | None = None,
        settings: Sequence[str] = (),
        baseline: str = "standard",
        exclude: Sequence[str] | None = None,
    ) -> Study:
        """The results with what is known about their models.

        Args:
            models: Table of the models.
            own_results: The user's own models, placed below the others.
            settings: Settings to read from a workspace; others need not have what the metric needs. All by default.
            baseline: Category of the models that the line is fitted to.
            exclude: Models whose name contains one of these are left out of the fit.
        """
        from shiftbench.published.importers import open_table
        from shiftbench.studies.models import ModelInfo, Models, read_models
        from shiftbench.studies.study import Study

        if (self.results is None) == (self.workspace is None):
            raise typer.BadParameter("give either --results FILE or --workspace FOLDER", param_hint="--results")
        if self.metric is not None and self.workspace is None:
            raise typer.BadParameter(
                "only predictions can be scored by another metric: give --workspace", param_hint="--metric"
            )
        if self.results is not None:
            study = open_table(
                self.results,
                models,
                own_results,
                baseline=baseline,
                exclude=exclude or (),
                unit=self.unit,
                all_models=self.all_models,
            )
        else:
            model_table = read_models(models) if models is not None else None
            results = self._workspace_results(settings)
            if own_results is not None:
                results = results.with_own(own_results)
            study = Study(results, model_table, baseline=baseline, exclude=exclude)
        if own_results is not None and study.models is None:
            raise typer.BadParameter("--own needs --models, which lists the others", param_hint="--own")
        if exclude and study.models is None:
            # Only the names of the models are known, and they are enough to exclude some of them.
            names_only = Models({name: ModelInfo(name) for name in study.results.models})
            study = Study(study.results, names_only, baseline="", exclude=exclude)
        return study

    def _workspace_results(self, settings: Sequence[str]) -> Results:
        """The scores of a workspace; only those of the named settings, if it holds all of these."""
        from shiftbench.studies.results import results_from_scores

        assert self.workspace is not None
        run = sb.Run.open(self.workspace)
        if settings and set(settings) <= set(run.settings):
            run = sb.Run(run.workspace, [result for result in run.results if result.setting in settings])
        return results_from_scores(run.scores(self.metric))


@dataclass(frozen=True)
class OwnOptions(ResultsOptions):
    """The user's own models among published ones."""

    panel: ClassVar[str] = "Models"
    models: ModelsFile = None
    own: Annotated[
        Location | None,
        {"parser": place, "metavar": "PATH|URL"},
        "Your own models, placed among the others: a workspace, a table of results, or its folder. The line is never "
        "fitted to them.",
    ] = None
    skip_unplaced: Annotated[bool, "Leave out own models that can't be placed, instead of an error."] = False

    def study(self, own_results: Results | None = None) -> Study:
        return self.open(self.models, own_results)

    def placed(self) -> tuple[Study, list[str]]:
        """The table with the user's own models below the others, and their names in it."""
        from shiftbench.io.paths import local
        from shiftbench.published.importers import read_tables
        from shiftbench.reports.placement import own_results
        from shiftbench.studies.testbed import has_testbed_settings

        if self.own is None:
            return self.study(), []
        if (self.own / "workspace.json").is_file():
            in_testbed = has_testbed_settings(self.study().results.settings)
            results = own_results(sb.Run.open(self.own), self.metric, in_testbed=in_testbed)
        else:
            results, _ = read_tables(local(self.own), self.unit)
        study = self.study(results)
        # Their names in the table may differ from those in the user's results, but they are its last rows.
        study.own = study.results.models[-len(results.models) :]
        return study, list(study.own)

    def check(self, study: Study, mine: Sequence[str], shifts: Sequence[ShiftAxes], needs: str | None = None) -> None:
        """Raise an error if a shift can't place one of the user's own models, unless these may be skipped.

        ``needs`` is a column of the table of models without which a model can't be placed.
        """
        from shiftbench.studies.study import unplaced

        if not self.skip_unplaced:
            for shift in shifts:
                unplaced(study, mine, shift, needs)


@dataclass(frozen=True)
class LineOptions(ResultsOptions):
    """The table of models, and which of them the line is fitted to."""

    panel: ClassVar[str] = "Models"
    models: ModelsFile = None
    baseline: Annotated[str, "Category of the models to fit the line to."] = "standard"
    exclude: Annotated[list[str] | None, "Leave models whose name contains this out of the fit (repeatable)."] = None

    def study(self, own_results: Results | None = None) -> Study:
        return self.open(self.models, own_results, baseline=self.baseline, exclude=self.exclude)


@dataclass(frozen=True)
class PlacedOptions(LineOptions, OwnOptions):
    """The user's own models among published ones, and the line of the latter."""


@dataclass(frozen=True)
class AxesOptions:
    """Which shifts are studied, and how many images are behind them."""

    panel: ClassVar[str] = "Axes"
    x: Annotated[str | None, "Reference setting (default: val)."] = None
    y: Annotated[str | None, "Setting under shift."] = None
    shift: Shifts = None
    min_x: Annotated[float | None, "Fit only models with at least this x (percent if above 1)."] = None
    pivot: Annotated[str | None, "Two lines around this x, or 'auto': around the baseline model with y = 0."] = None
    n_x: SizeX = None
    n_y: SizeY = None

    def choose(self, study: Study) -> dict[str, ShiftAxes]:
        """The shifts by name; single options override those of a named shift.

        The study gets the numbers of images that the options state.
        """
        shifts = self._shifts(study)
        if self.min_x is not None:
            shifts = {name: replace(axes, min_x=self.min_x) for name, axes in shifts.items()}
        if self.pivot is not None:
            pivot = "auto" if self.pivot == "auto" else numbers(self.pivot, "--pivot", 1)[0]
            shifts = {name: replace(axes, pivot=pivot) for name, axes in shifts.items()}
        for axes in shifts.values():
            set_sizes(study, {axes.x: self.n_x, axes.y: self.n_y})
        return shifts

    def _shifts(self, study: Study) -> dict[str, ShiftAxes]:
        """The shifts of --shift, or else the one from --x to --y."""
        from shiftbench.studies.testbed import SHIFTS, ShiftAxes

        settings = study.results.settings
        names = self.shift
        y = self.y
        if len(names or ()) > 1 and y is not None:
            raise typer.BadParameter("several shifts are named by --shift alone", param_hint="--y")
        if not names and y is not None and y in SHIFTS and y not in settings:
            # The name of a testbed shift is understood as the value of --y, too.
            names = [y]
            y = None
        if names:
            shifts = {}
            for name, axes in named_shifts(study, names, self.x or "val").items():
                shifts[name] = replace(axes, x=self.x or axes.x, y=y or axes.y)
            return shifts
        if y is None or (self.x is None and "val" not in settings):
            listed = ", ".join(settings[:8])
            raise typer.BadParameter(f"give --x and --y (settings: {listed}, ...) or --shift", param_hint="--x")
        return {y: ShiftAxes(self.x or "val", y)}


def named_shifts(study: Study, names: Sequence[str], x: str = "val") -> dict[str, ShiftAxes]:
    """The shifts of these names; ``all`` stands for the testbed's shifts whose settings the table has."""
    from shiftbench.studies import testbed

    settings = set(study.results.settings)
    all_shifts = [name for name, axes in testbed.SHIFTS.items() if {axes.x, axes.y} <= settings]
    if "all" in names and not all_shifts:
        raise typer.BadParameter("'all' means the testbed's shifts, and the table has none", param_hint="--shift")
    return {name: study.shift(name, x) for name in _expand_all(names, all_shifts)}


def _expand_all(names: Sequence[str], all_names: Sequence[str]) -> list[str]:
    """The names, each once, with ``all_names`` in place of ``all``."""
    expanded: list[str] = []
    for name in names:
        if name == "all":
            expanded += all_names
        else:
            expanded.append(name)
    return list(dict.fromkeys(expanded))


def set_sizes(study: Study, sizes: dict[str, float | None]) -> None:
    """Set numbers of images by setting, as the command line states them; they override those of the table."""
    import numpy as np

    stated = {name: np.asarray(n) for name, n in sizes.items() if n is not None}
    study.results = replace(study.results, sizes={**study.results.sizes, **stated})


def all_measures(study: Study, synthetic: list[str], natural: list[str]) -> tuple[list[str], list[str]]:
    """The synthetic and the natural measures, with the testbed's measures in place of ``all``."""
    from shiftbench.studies import testbed

    settings = study.results.settings
    all_natural = [name for name in testbed.NATURAL if testbed.SHIFTS[name].y in settings]
    synthetic = _expand_all(synthetic, testbed.synthetic(study.results))
    natural = _expand_all(natural, all_natural)
    if not synthetic or not natural:
        raise typer.BadParameter(
            "'all' means the testbed's measures, and this table has none of them: name the settings",
            param_hint="--synthetic" if not synthetic else "--natural",
        )
    return synthetic, natural


@dataclass(frozen=True, kw_only=True)
class PairOptions(ResultsOptions):
    """An original test set and a new one."""

    panel: ClassVar[str] = "Test sets"
    x: Annotated[str, "Original test set."]
    y: Annotated[str, "New test set."]
    n_x: SizeX = None
    n_y: SizeY = None
    level: Level = 0.95

    def reproducibility(self) -> Reproducibility:
        from shiftbench.studies.reproducibility import reproducibility

        study = self.open(settings=(self.x, self.y))
        set_sizes(study, {self.x: self.n_x, self.y: self.n_y})
        results = study.results
        original = results.column(self.x)
        new = results.column(self.y)
        n_original = results.size(self.x)
        n_new = results.size(self.y)
        if n_original is None or n_new is None:
            raise typer.BadParameter("the number of images is not known: give --n-x and --n-y", param_hint="--n-x")
        return reproducibility(
            original,
            new,
            models=results.models,
            n_original=n_original,
            n_new=n_new,
            level=self.level,
            unit=results.unit,
        )


@dataclass(frozen=True, kw_only=True)
class BinOptions(StoredOptions):
    """Images, and how often annotators selected them."""

    panel: ClassVar[str] = "Annotation"
    setting: Annotated[str, "-s", "The setting whose images were annotated."]
    frequencies: Annotated[Path, "A table (.csv, .parquet) with id and selection_frequency, or id, selected and shown."]
    column: Annotated[str | None, "Column of frequencies, if it has another name."] = None
    edges: Annotated[str, "Bin edges, increasing from 0 to 1."] = "0,0.2,0.4,0.6,0.8,1"

    def accuracies(self) -> BinnedAccuracies:
        from shiftbench.studies.reproducibility import bins_of, read_frequencies

        shares = read_frequencies(self.frequencies, self.column)
        return bins_of(self.predictions(self.setting), shares, edges=numbers(self.edges, "--edges"), level=self.level)


def numbers(text: str, option: str, count: int | None = None) -> list[float]:
    """The comma-separated numbers of an option; it is an error of usage if there are not ``count`` of them."""
    try:
        values = list(map(float, text.split(",")))
    except ValueError:
        values = []
    if not values or count not in (None, len(values)):
        # Only options that take 'auto', too, expect a single number.
        problems = {1: "neither a number nor 'auto'", 2: "not two comma-separated numbers"}
        problem = problems.get(count or 0, "not a comma-separated list of numbers")
        raise typer.BadParameter(f"{text!r} is {problem}", param_hint=option)
    return values
