"""``shiftbench study agreement | hypotheses``: error consistency of models, and evidence for hypotheses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shiftbench.cli.options import Level, ModelNames, TableOptions, grouped
from shiftbench.cli.study.options import ResultsOptions, WorkspaceOption, predictions_in
from shiftbench.io.paths import Location

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from shiftbench.studies.hypotheses import HitData, ScoredData
    from shiftbench.studies.results import Results


@grouped
def agreement_command(
    workspace: Annotated[Location, WorkspaceOption],
    setting: Annotated[str | None, typer.Option("--setting", "-s", help="Setting (default: the only one).")] = None,
    classifier: ModelNames = None,
    level: Level = 0.95,
    *,
    shown: TableOptions,
) -> None:
    """Do models fail on the same images?

    Images that all fail on, error consistency (Cohen's kappa) and dominance of every pair.

    \b
    shiftbench study agreement -w WORKSPACE -s imagenetv2-matched-frequency
    """
    from shiftbench.api import Run
    from shiftbench.reports.study_tables import agreement_table
    from shiftbench.studies.agreement import agreement_of

    settings = [setting] if setting else Run.open(workspace).settings
    if len(settings) != 1:
        names = ", ".join(settings[:8]) or "none"
        raise typer.BadParameter(f"name one setting (there are: {names})", param_hint="--setting")
    result = agreement_of(predictions_in(workspace, settings[0], classifier or ()), level=level)
    shown.show(agreement_table(result, settings[0]), workspace)


@grouped
def hypotheses_command(
    models: Annotated[
        Path, typer.Option("--models", "-m", help="Table of models with the columns base_model and changes.")
    ],
    setting: Annotated[list[str], typer.Option("--setting", "-s", help="Dataset to weigh (repeatable).")],
    table: ResultsOptions,
    x: Annotated[str | None, typer.Option("--x", help="Reference setting, such as val.")] = None,
    level: Level = 0.95,
    *,
    shown: TableOptions,
) -> None:
    """Evidence for or against what models change: gain under shift, beyond the reference --x.

    Each tag in the column changes is a hypothesis; its pairs are the models with that tag and their base models. From a
    table of results margins alone decide; from a workspace the images' paired differences do, too, with Holm's
    correction over everything that is tested together. The rule is printed below the table.

    \b
    shiftbench study hypotheses -r results.csv -m models.csv -s imagenet-r -s imagenet-a --x val
    """
    from shiftbench.reports.study_tables import hypotheses_table
    from shiftbench.studies.hypotheses import hypotheses_from_models, weigh_hypotheses
    from shiftbench.studies.models import read_models

    known = read_models(models)
    tested = hypotheses_from_models({name: info.changes for name, info in known.items()}, known.bases)
    if not tested:
        raise typer.BadParameter(
            f"no model of {models} has both a base_model and tags in the column changes", param_hint="--models"
        )
    if table.workspace is not None and table.results is None:
        datasets = _hit_data(table.workspace, setting, x)
    else:
        datasets = _score_data(table.open().results, setting, x)
    shown.show(hypotheses_table(weigh_hypotheses(tested, datasets, level=level), level))


def _score_data(table: Results, settings: list[str], x: str | None) -> list[ScoredData | HitData]:
    from shiftbench.studies.base import whole
    from shiftbench.studies.hypotheses import ScoredData

    times = 100.0 / whole(table.unit)

    def points(setting: str) -> dict[str, float]:
        return {model: value * times for model, value in table.of(setting).items()}

    return [ScoredData(setting, points(setting), points(x) if x else None) for setting in settings]


def _hit_data(workspace: Location, settings: list[str], x: str | None) -> list[ScoredData | HitData]:
    from shiftbench.studies.base import check_unique
    from shiftbench.studies.hypotheses import HitData
    from shiftbench.studies.image_bootstrap import common_hits

    def hits(setting: str) -> dict[str, NDArray[np.bool_]]:
        read = predictions_in(workspace, setting)
        names = [one.classifier for one in read]
        check_unique(names)
        return dict(zip(names, common_hits(read)[0], strict=True))

    reference = hits(x) if x else None
    return [HitData(setting, hits(setting), reference) for setting in settings]
