"""``shiftbench study confusion | tags``: which classes are confused, and what people tagged mistakes with."""

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
def confusion_command(
    workspace: WorkspacePath = DEFAULT_WORKSPACE,
    setting: SettingNames = None,
    classifier: ModelNames = None,
    most: Annotated[int, typer.Option(min=1, help="Rows to show; --json and --format csv have all.")] = 20,
    level: Level = 0.95,
    *,
    shown: TableOptions,
) -> None:
    """Pairs of classes that models confuse, most frequent first; --json has the whole confusion matrix.

    \b
    shiftbench study confusion -w WORKSPACE -s val -c squeezenet1_1
    """
    from shiftbench.api import Run
    from shiftbench.reports.mistakes import confusion_table

    run = Run.open(workspace, classifier or (), setting or ())
    known = [result for result in run.results if result.spec.judged_by_image]
    if not known:
        raise typer.BadParameter("no result with one label per image", param_hint="--setting")
    if not setting:
        known = [result for result in known if result.setting == known[0].setting]
    read = [run.workspace.read(result, top_k=1, confidence=False, scores=False) for result in known]
    shown.show(confusion_table(read, level=level, most=most), workspace)


@grouped
def tags_command(
    workspace: WorkspacePath = DEFAULT_WORKSPACE,
    setting: SettingNames = None,
    classifier: ModelNames = None,
    level: Level = 0.95,
    *,
    shown: TableOptions,
) -> None:
    """Count the tags of misclassified images by model and setting.

    People set tags on the live page (`serve`, section Failures): "background", "several objects", "wrong label", ...

    \b
    shiftbench study tags -w WORKSPACE -s val
    """
    from shiftbench.api import Run
    from shiftbench.reports.mistakes import tag_table

    shown.show(tag_table(Run.open(workspace, classifier or (), setting or ()), level=level), workspace)
