"""``shiftbench study reproducibility | gap | bins | difficulty``: an original test set and a new one (004)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shiftbench.cli.options import Level, ModelNames, TableOptions, grouped
from shiftbench.cli.study.options import (
    LineOptions,
    ResultsOptions,
    SizeX,
    SizeY,
    WorkspaceOption,
    predictions_in,
    set_sizes,
)
from shiftbench.io.paths import Location

if TYPE_CHECKING:
    from shiftbench.studies.difficulty import Difficulty, DifficultyFit
    from shiftbench.studies.reproducibility import BinnedAccuracies, Reproducibility

Original = Annotated[str, typer.Option("--x", help="Original test set.")]
New = Annotated[str, typer.Option("--y", help="New test set.")]


@grouped
def reproducibility_command(
    x: Original,
    y: New,
    table: ResultsOptions,
    n_x: SizeX = None,
    n_y: SizeY = None,
    level: Level = 0.95,
    *,
    shown: TableOptions,
) -> None:
    """Accuracy on an original and a new test set, with gap, ranks and change of rank.

    \b
    shiftbench study reproducibility -r results.csv --x val --y imagenetv2-matched-frequency --n-x 50000 --n-y 10000
    """
    from shiftbench.reports.study_tables import reproducibility_table

    shown.show(reproducibility_table(reproducibility_of(table, x, y, n_x, n_y, level), x, y), table.workspace)


def reproducibility_of(
    table: ResultsOptions, x: str, y: str, n_x: float | None, n_y: float | None, level: float
) -> Reproducibility:
    """The study that the command and its figure show."""
    from shiftbench.studies.reproducibility import reproducibility

    study = table.open(settings=(x, y))
    set_sizes(study, {x: n_x, y: n_y})
    results = study.results
    columns = [results.column(setting) for setting in (x, y)]
    sizes = [results.size(setting) for setting in (x, y)]
    if sizes[0] is None or sizes[1] is None:
        raise typer.BadParameter("the number of images is not known: give --n-x and --n-y", param_hint="--n-x")
    return reproducibility(
        columns[0], columns[1], models=results.models, n_original=sizes[0], n_new=sizes[1], level=level,
        unit=results.unit,
    )  # fmt: skip


@grouped
def gap_command(
    x: Original,
    y: New,
    table: ResultsOptions,
    fresh: Annotated[
        str | None,
        typer.Option(help="A setting with fresh images of the original distribution, such as a hidden split."),
    ] = None,
    n_x: SizeX = None,
    n_y: SizeY = None,
    n_fresh: Annotated[float | None, typer.Option("--n-fresh", min=1, help="Images behind the fresh setting.")] = None,
    level: Level = 0.95,
    *,
    shown: TableOptions,
) -> None:
    """What the gap between two test sets is made of.

    original - new = adaptivity gap + distribution gap + generalisation gap: models that were chosen on the original
    images, images that are harder or other than those, and chance. Chance is bounded by the exact interval of the
    new accuracy. Two test sets can't separate the other two; fresh images of the original distribution can.

    \b
    shiftbench study gap -r results.csv --x cifar-10 --y cifar-10.1 --n-x 10000 --n-y 2000
    shiftbench study gap -w WORKSPACE --x val --y new --fresh hidden-split
    """
    from shiftbench.reports.study_tables import gap_table
    from shiftbench.studies.reproducibility import decompose_gaps

    study = table.open()
    set_sizes(study, {x: n_x, y: n_y} | ({fresh: n_fresh} if fresh else {}))
    shown.show(gap_table(decompose_gaps(study.results, x, y, fresh=fresh, level=level), x, y, fresh), table.workspace)


@dataclass(frozen=True)
class Bins:
    """Images, and how often annotators selected them."""

    workspace: Annotated[Location, WorkspaceOption]
    setting: Annotated[str, typer.Option("--setting", "-s", help="The setting whose images were annotated.")]
    frequencies: Annotated[
        Path, typer.Option(help="A table (.csv, .parquet) with id and selection_frequency, or id, selected and shown.")
    ]
    column: Annotated[str | None, typer.Option(help="Column of frequencies, if it has another name.")] = None
    edges: Annotated[str, typer.Option(help="Bin edges, increasing from 0 to 1.")] = "0,0.2,0.4,0.6,0.8,1"
    classifier: ModelNames = None
    level: Level = 0.95


@grouped
def bins_command(chosen: Bins, shown: TableOptions) -> None:
    """Accuracy by selection frequency: are images that few people would select harder?

    Selection frequency is the share of people who, shown the image and a class, select it for the class.
    The accuracy of every classifier, and their mean, in bins of it.

    \b
    shiftbench study bins -w WORKSPACE -s imagenetv2-matched-frequency --frequencies annotations.csv
    """
    from shiftbench.reports.study_tables import bins_table

    found = binned_accuracies(chosen)
    shown.show(bins_table(found.with_mean(), chosen.setting, chosen.level, found.notes), chosen.workspace)


def binned_accuracies(chosen: Bins) -> BinnedAccuracies:
    """The study that the command and its figure show."""
    from shiftbench.studies.reproducibility import bins_of, read_frequencies

    shares = read_frequencies(chosen.frequencies, chosen.column)
    predictions = predictions_in(chosen.workspace, chosen.setting, chosen.classifier or ())
    return bins_of(predictions, shares, edges=_numbers(chosen.edges, "--edges"), level=chosen.level)


@grouped
def difficulty_command(
    x: Annotated[str | None, typer.Option("--x", help="The first test set: with it, real accuracies are used.")] = None,
    y: Annotated[str | None, typer.Option("--y", help="The second.")] = None,
    *,
    table: ResultsOptions,
    kinds: LineOptions,
    first: Annotated[str, typer.Option(help="MEAN,SPREAD of the first set's difficulties.")] = "0,1",
    second: Annotated[
        str | None, typer.Option(help="MEAN,SPREAD of the second's. From real accuracies it follows from the line.")
    ] = None,
    count: Annotated[int, typer.Option("--count", min=3, help="Simulated models, without real ones.")] = 60,
    skills: Annotated[str, typer.Option(help="LOW,HIGH: their skills, evenly spaced.")] = "-0.5,2.5",
    n_x: Annotated[int | None, typer.Option("--n-x", min=1, help="Images of the first set. Default 50,000.")] = None,
    n_y: Annotated[int | None, typer.Option("--n-y", min=1, help="Images of the second set. Default 10,000.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the simulation.")] = 0,
    shown: TableOptions,
) -> None:
    """Why accuracies on two test sets fall on a line: the Gaussian difficulty model.

    Every image has a difficulty t, drawn from a normal law, every model a skill s, and it is right with probability
    Phi(s - t). Then accuracies lie on a line on the probit scale, whose slope u and intercept v follow from the two
    sets' difficulties. Simulated models recover u and v; with real accuracies the line that they make is put beside.

    \b
    shiftbench study difficulty --first 0,1 --second 0.5,0.8
    shiftbench study difficulty -r results.csv -m models.csv --x val --y imagenetv2-matched-frequency
    """
    from shiftbench.reports.study_tables import difficulty_table

    assumed = _difficulty(first, "--first")
    if table.results is None and table.workspace is None:
        result = _simulated(assumed, second, count, skills, n_x or 50_000, n_y or 10_000, seed)
        shown.show(difficulty_table(result))
        return
    if x is None or y is None or second is not None:
        raise typer.BadParameter(
            "real accuracies need --x and --y, and determine --second themselves", param_hint="--x"
        )
    shown.show(difficulty_table(_from_accuracies(table, kinds, x, y, assumed, n_x, n_y, seed), x, y))


def _simulated(
    first: Difficulty, second: str | None, count: int, skills: str, n_x: int, n_y: int, seed: int
) -> DifficultyFit:
    import numpy as np

    from shiftbench.studies.difficulty import simulate_difficulty

    if second is None:
        raise typer.BadParameter(
            "give --second MEAN,SPREAD to simulate, or real accuracies: --results FILE --x SETTING --y SETTING",
            param_hint="--second",
        )
    low, high = _two_numbers(skills, "--skills")
    spaced = np.linspace(low, high, count)
    return simulate_difficulty(spaced, first, _difficulty(second, "--second"), n_first=n_x, n_second=n_y, seed=seed)


def _from_accuracies(
    table: ResultsOptions,
    kinds: LineOptions,
    x: str,
    y: str,
    first: Difficulty,
    n_x: int | None,
    n_y: int | None,
    seed: int,
) -> DifficultyFit:
    import numpy as np

    from shiftbench.studies.base import whole
    from shiftbench.studies.difficulty import difficulty_of_line
    from shiftbench.studies.fits import Fit

    study = table.open(kinds)
    line = study.fit(x, y, scale="probit")
    assert isinstance(line, Fit)
    accuracies = study.results.of(x)
    fractions = np.array([accuracies[model] for model in line.models]) / whole(study.results.unit)
    known = [study.results.size(setting) for setting in (x, y)]
    sizes = [
        given or (int(np.nanmedian(n)) if n is not None else default)
        for given, n, default in zip((n_x, n_y), known, (50_000, 10_000), strict=True)
    ]
    return difficulty_of_line(line, fractions, n_first=sizes[0], n_second=sizes[1], first=first, seed=seed)


def _difficulty(text: str, option: str) -> Difficulty:
    from shiftbench.studies.difficulty import Difficulty

    return Difficulty(*_two_numbers(text, option))


def _two_numbers(text: str, option: str) -> tuple[float, float]:
    numbers = _numbers(text, option)
    if len(numbers) != 2:
        raise typer.BadParameter(f"{text!r} is not two comma-separated numbers", param_hint=option)
    return numbers[0], numbers[1]


def _numbers(text: str, option: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a comma-separated list of numbers", param_hint=option) from None
