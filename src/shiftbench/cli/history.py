"""``shiftbench history``: the versions of a model over time."""

from __future__ import annotations

from typing import Annotated

import typer

from shiftbench.cli import complete
from shiftbench.cli.options import DEFAULT_WORKSPACE, Level, SettingNames, TableOptions, WorkspacePath, grouped


@grouped
def history_command(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            help="Names, or ids (name@hash) (default: all models).", autocompletion=complete.workspace_models
        ),
    ] = None,
    workspace: WorkspacePath = DEFAULT_WORKSPACE,
    setting: SettingNames = None,
    level: Level = 0.95,
    *,
    shown: TableOptions,
) -> None:
    """Versions of a model in order of their first run: accuracy, means under shift, and what changed.

    A version is a model with its weights and preprocessing. Evaluate each new one under the same name in the same
    workspace; the change is against the version before, on the same images.

    \b
    Examples:
      shiftbench history resnet50 -w W
      shiftbench history v1 v2 v3 -w W --setting val --json
    """
    from shiftbench.api import Run
    from shiftbench.reports.history import history_table

    shown.show(history_table(Run.open(workspace, models or (), setting or ()), level=level))
