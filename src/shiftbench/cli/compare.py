"""``shiftbench compare`` and ``images-needed``: which differences are real, and how many images show them."""

from __future__ import annotations

from typing import Annotated

import typer

from shiftbench.cli.console import output, print_json
from shiftbench.cli.options import DEFAULT_WORKSPACE, Json, Level, ModelNames, TableOptions, grouped
from shiftbench.io.paths import place


@grouped
def compare_command(
    workspace: Annotated[
        list[str] | None,
        typer.Option(
            "--workspace", "-w", metavar="PATH|URL", help="The workspace that `eval` wrote to; several are compared."
        ),
    ] = None,
    setting: Annotated[
        str | None,
        typer.Option("--setting", "-s", help="Setting, or family such as imagenet-c (default: the first setting)."),
    ] = None,
    classifier: ModelNames = None,
    level: Level = 0.95,
    *,
    shown: TableOptions,
) -> None:
    """Compare models image by image.

    Exact McNemar test on the same images, with Holm's correction for the number of pairs, and the paired bootstrap
    interval of the difference. For a family of settings: the difference in mean accuracy, also as a design
    (docs/designs.md) estimates it.

    \b
    Examples:
      shiftbench compare -w W --setting val
      models of two workspaces, on the same images
        shiftbench compare -w A -w B --setting val
    """
    from shiftbench.api import Run
    from shiftbench.reports.comparisons import compare_runs

    places = [place(one) for one in workspace] if workspace else [DEFAULT_WORKSPACE]
    if len(places) == 1:
        shown.show(Run.open(places[0], classifier or ()).compare(setting, level=level))
        return
    runs = [Run.open(one) for one in places]
    shown.show(compare_runs(runs, setting, classifier or (), level=level))


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
