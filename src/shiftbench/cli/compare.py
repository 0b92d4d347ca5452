"""``shiftbench compare`` and ``images-needed``: which differences are real, and how many images show them."""

from __future__ import annotations

from typing import Annotated

import typer

from shiftbench.cli.console import output, print_json
from shiftbench.cli.options import DEFAULT_WORKSPACE, Json, Level, ModelNames, TableOptions, WorkspacePath, grouped


@grouped
def compare_command(
    workspace: WorkspacePath = DEFAULT_WORKSPACE,
    setting: Annotated[str | None, typer.Option("--setting", "-s", help="Setting (default: the first one).")] = None,
    classifier: ModelNames = None,
    level: Level = 0.95,
    *,
    shown: TableOptions,
) -> None:
    """Compare models image by image.

    Exact McNemar test on the same images, with Holm's correction for the number of pairs, and the paired bootstrap
    interval of the difference.
    """
    from shiftbench.api import Run

    run = Run.open(workspace, classifier or (), [setting] if setting else ())
    shown.show(run.compare(setting, level=level))


def images_needed_command(
    half_width: Annotated[float, typer.Argument(help="Half-width of the interval in points: 1 is ±1 %.")],
    accuracy: Annotated[float, typer.Option(help="Expected accuracy in percent; 50 is the worst case.")] = 50.0,
    level: Level = 0.95,
    json: Json = False,
) -> None:
    """Number of images for an interval of a given width."""
    from shiftbench.metrics.intervals import images_needed

    n = images_needed(half_width / 100, accuracy=accuracy / 100, level=level)
    if json:
        print_json({"images": n, "half_width": half_width, "accuracy": accuracy, "level": level})
    else:
        output.print(f"{n:,} images for {accuracy:g} % ± {half_width:g} points at level {level:g}")
