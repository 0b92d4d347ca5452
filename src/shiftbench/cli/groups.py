"""``shiftbench groups``: accuracy by group, from stored predictions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shiftbench.cli.options import DEFAULT_WORKSPACE, Level, ModelNames, TableOptions, WorkspacePath, grouped


@grouped
def groups_command(
    by: Annotated[
        str, typer.Option("--by", "-b", help="Column to group by, such as country; `class` is always available.")
    ],
    workspace: WorkspacePath = DEFAULT_WORKSPACE,
    setting: Annotated[
        str | None, typer.Option("--setting", "-s", help="Default: all settings with that column.")
    ] = None,
    table: Annotated[
        Path | None,
        typer.Option("--table", "-t", help="CSV, JSONL or Parquet with a column `id` (or `path`) and the column."),
    ] = None,
    classifier: ModelNames = None,
    level: Level = 0.95,
    *,
    shown: TableOptions,
) -> None:
    """Accuracy by group, and of the worst group.

    A good average can hide a weak group: one country, one camera, one class. Each group has its own
    Clopper-Pearson interval; the interval of the worst one is simultaneous over all groups, because the lowest of many
    noisy numbers looks worse than it is.

    The columns are those of the dataset's table at evaluation (a manifest, a factor-split table), or those of --table.

    \b
    Examples:
      shiftbench groups -w W -s shops.test --by country
      shiftbench groups -w W -s val --by class
      shiftbench groups -w W -s val --by photographer --table photographs.csv
    """
    from shiftbench.api import Run

    shown.show(Run.open(workspace, classifier or ()).groups(by, setting, table=table, level=level))
