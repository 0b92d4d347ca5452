"""``shiftbench data duplicates``: near-duplicates between two datasets."""

from __future__ import annotations

from typing import Annotated

import typer

from shiftbench.extend.commands import (
    ExecutorOptions,
    Labels,
    Quiet,
    TableOptions,
    output,
    print_json,
    stoppable,
    workspace_option,
)
from shiftbench.extend.io import Location
from shiftbench.testsets.commands.options import DescriptorOptions


def duplicates_command(
    first: Annotated[str, typer.Argument(metavar="A", help="Dataset, such as a test set: a path or a name.")],
    second: Annotated[str, typer.Argument(metavar="B", help="Dataset, such as the training set.")],
    search: DescriptorOptions,
    workspace: Annotated[
        Location | None,
        workspace_option("Workspace with results on A: also show accuracies without its near-duplicates."),
    ] = None,
    labels: Labels = None,
    *,
    where: ExecutorOptions,
    quiet: Quiet = False,
    table: TableOptions,
) -> None:
    """Find images of A that are near-duplicates of images of B.

    Nothing is stored. The exact nearest neighbours in l2 on pixels or features are compared by SSIM and aligned
    correlation; every pair within a threshold is listed, the most similar first. People should look at them before
    images are removed. With --workspace, A is opened with --labels, as `eval` did.

    \b
    Examples:
      shiftbench data duplicates cifar-10-test cifar-10-train -o pairs.csv
      shiftbench data duplicates test/ train/ --labels imagenet-1k -w W
    """
    from shiftbench.testsets.near_duplicates import find_near_duplicates
    from shiftbench.testsets.near_duplicates.find import duplicate_effect, open_any

    test = open_any(first, labels)
    train = open_any(second)
    with stoppable():
        queue = find_near_duplicates(test, [train], within=False, show=not quiet, **search.options(), **where.options())
    if workspace is None:
        table.show(queue)
        return
    effect = duplicate_effect(test, queue, workspace)
    if table.json:
        # Standard output holds a single JSON value.
        print_json({"duplicates": queue.as_data(), "accuracy": effect.as_data()})
    else:
        table.show(queue)
        output.print(effect)
