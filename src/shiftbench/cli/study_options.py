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
        own: Results | None = None,
        settings: Sequence[str] = (),
        baseline: str = "standard",
        exclude: Sequence[str] | None = None,
    ) -> Study:
        """All settings, or, of a workspace, these: what is not asked about need not have what the metric needs."""
        from shiftbench.published.importers import open_table
        from shiftbench.studies.models import ModelInfo, Models, read_models
        from shiftbench.studies.results import results_from_scores
        from shiftbench.studies.study import Study

        if (self.results is None) == (self.workspace is None):
            raise typer.BadParameter("give either --results FILE or --workspace FOLDER", param_hint="--results")
        if self.metric is not None and self.workspace is None:
            raise typer.BadParameter(
                "only predictions can be scored by another metric: give --workspace", param_hint="--metric"
            )
        if self.results is not None:
            study = open_table(
                self.results, models, own, baseline=baseline, exclude=exclude or (), unit=self.unit,
                all_models=self.all_models,
            )  # fmt: skip
        else:
            assert self.workspace is not None
            run = sb.Run.open(self.workspace)
            if settings and set(settings) <= set(run.settings):
                run = sb.Run(run.workspace, [result for result in run.results if result.setting in settings])
            known = read_models(models) if models is not None else None
            results = results_from_scores(run.scores(self.metric))
            study = Study(results if own is None else results.with_own(own), known, baseline=baseline, exclude=exclude)
        if own is not None and study.models is None:
            raise typer.BadParameter("--own needs --models, which lists the others", param_hint="--own")
        if exclude and study.models is None:
            # Nothing is known about any model but its name, and that is what decides.
            nameless = Models({name: ModelInfo(name) for name in study.results.models})
            study = Study(study.results, nameless, baseline="", exclude=exclude)
        return study


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

    def study(self, own: Results | None = None) -> Study:
        return self.open(self.models, own)

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
            mine = own_results(sb.Run.open(self.own), self.metric, in_testbed=in_testbed)
        else:
            mine = read_tables(local(self.own), self.unit)[0]
        study = self.study(mine)
        study.own = study.results.models[-len(mine.models) :]
        return study, list(study.own)

    def check(self, study: Study, mine: Sequence[str], shifts: Sequence[ShiftAxes], needs: str | None = None) -> None:
        """Own models that a shift has no place for are an error, unless they may be skipped."""
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

    def study(self, own: Results | None = None) -> Study:
        return self.open(self.models, own, baseline=self.baseline, exclude=self.exclude)


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
        """The shifts by name; single options override those of a named shift."""
        from shiftbench.studies.testbed import SHIFTS, ShiftAxes

        x, y, shifts = self.x, self.y, self.shift
        if len(shifts or ()) > 1 and y is not None:
            raise typer.BadParameter("several shifts are named by --shift alone", param_hint="--y")
        if not shifts and y is not None and y in SHIFTS and y not in study.results.settings:
            shifts, y = [y], None
        if shifts:
            chosen = {
                name: replace(one, x=x or one.x, y=y or one.y)
                for name, one in named_shifts(study, shifts, x or "val").items()
            }
        elif y is None or (x is None and "val" not in study.results.settings):
            settings = ", ".join(study.results.settings[:8])
            raise typer.BadParameter(f"give --x and --y (settings: {settings}, ...) or --shift", param_hint="--x")
        else:
            chosen = {y: ShiftAxes(x or "val", y)}
        if self.min_x is not None:
            chosen = {name: replace(one, min_x=self.min_x) for name, one in chosen.items()}
        if self.pivot is not None:
            at = "auto" if self.pivot == "auto" else numbers(self.pivot, "--pivot", 1)[0]
            chosen = {name: replace(one, pivot=at) for name, one in chosen.items()}
        for one in chosen.values():
            set_sizes(study, {one.x: self.n_x, one.y: self.n_y})
        return chosen


def named_shifts(study: Study, names: Sequence[str], x: str = "val") -> dict[str, ShiftAxes]:
    """The shifts of these names; ``all`` are those of the testbed that the table has."""
    from shiftbench.studies import testbed

    there = set(study.results.settings)
    every = [name for name, one in testbed.SHIFTS.items() if {one.x, one.y} <= there]
    if "all" in names and not every:
        raise typer.BadParameter("'all' means the testbed's shifts, and the table has none", param_hint="--shift")
    return {name: study.shift(name, x) for name in _spelled_out(names, every)}


def _spelled_out(names: Sequence[str], every: Sequence[str]) -> list[str]:
    """The names, with all of them in place of ``all``."""
    return list(dict.fromkeys(one for name in names for one in (every if name == "all" else [name])))


def set_sizes(study: Study, sizes: dict[str, float | None]) -> None:
    """Numbers of images by setting from the command line; they override the table's own."""
    import numpy as np

    given = {name: np.asarray(n) for name, n in sizes.items() if n is not None}
    study.results = replace(study.results, sizes={**study.results.sizes, **given})


def all_measures(study: Study, synthetic: list[str], natural: list[str]) -> tuple[list[str], list[str]]:
    """The measures asked for, ``all`` spelled out."""
    from shiftbench.studies import testbed

    settings = study.results.settings
    synthetic = _spelled_out(synthetic, testbed.synthetic(study.results))
    natural = _spelled_out(natural, [name for name in testbed.NATURAL if testbed.SHIFTS[name].y in settings])
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
        columns = [results.column(setting) for setting in (self.x, self.y)]
        sizes = [results.size(setting) for setting in (self.x, self.y)]
        if sizes[0] is None or sizes[1] is None:
            raise typer.BadParameter("the number of images is not known: give --n-x and --n-y", param_hint="--n-x")
        return reproducibility(
            columns[0], columns[1], models=results.models, n_original=sizes[0], n_new=sizes[1], level=self.level,
            unit=results.unit,
        )  # fmt: skip


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
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or count not in (None, len(found)):
        wrong = {1: "neither a number nor 'auto'", 2: "not two comma-separated numbers"}
        text = f"{text!r} is {wrong.get(count or 0, 'not a comma-separated list of numbers')}"
        raise typer.BadParameter(text, param_hint=option)
    return found
