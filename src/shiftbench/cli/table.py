"""``shiftbench table``: scores of a workspace, from stored predictions."""

from __future__ import annotations

from typing import Annotated

import typer

from shiftbench.cli.options import (
    DEFAULT_WORKSPACE,
    Level,
    ModelNames,
    SettingNames,
    TableOptions,
    WorkspacePath,
    grouped,
)


@grouped
def table_command(
    workspace: WorkspacePath = DEFAULT_WORKSPACE,
    metric: Annotated[
        str | None, typer.Option("--metric", "-m", help="Metric, or several separated by commas; see `list metrics`.")
    ] = None,
    classifier: ModelNames = None,
    setting: SettingNames = None,
    mce: Annotated[bool, typer.Option("--mce", help="Corruption errors: mCE, relative mCE, CE per type.")] = False,
    baseline: Annotated[
        str | None, typer.Option(help="With --mce: divide by this model instead of the published AlexNet.")
    ] = None,
    relative: Annotated[
        bool, typer.Option("--relative", help="With --mce: relative CE per type, the rise over the clean error.")
    ] = False,
    provenance: Annotated[
        bool, typer.Option("--provenance", help="Date, versions, assumed preprocessing and data of every result.")
    ] = False,
    level: Level = 0.95,
    *,
    shown: TableOptions,
) -> None:
    """Scores of a workspace, with intervals.

    No model is run: every number is computed from stored predictions.

    \b
    shiftbench table -w W
    shiftbench table -w W --mce --relative
    """
    from shiftbench.api import Run

    if mce and metric is not None:
        raise typer.BadParameter("--mce has its own metrics; see --relative", param_hint="--metric")
    if relative and not mce:
        raise typer.BadParameter("needs --mce", param_hint="--relative")
    run = Run.open(workspace, classifier or (), setting or ())
    if provenance:
        from shiftbench.reports.run_log import provenance_table

        shown.show(provenance_table(run))
        return
    if mce:
        shown.show(run.corruption_table(baseline=baseline, relative=relative, level=level))
    else:
        shown.show(run.table(metric, level=level))
