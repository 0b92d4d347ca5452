"""``shiftbench testset dedupe`` and ``filter``: near-duplicates before review, adversarial filtration before import."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shiftbench.cli.console import errors, stoppable
from shiftbench.cli.options import ExecutorOptions, grouped
from shiftbench.cli.table import show_report

_RECIPES = ("imagenet-a", "imagenet-o")

Trust = Annotated[bool, typer.Option("--trust", help="Load classifier files that run code of their own.")]
Workers = Annotated[int | None, typer.Option("--workers", "-j", help="Default: one a core.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


@grouped
def dedupe_command(
    folder: Annotated[Path, typer.Argument(help="The project's folder.")],
    by: Annotated[
        list[str] | None,
        typer.Option(help="pixels, pixels-normalised, or a classifier, for its features. Repeatable."),
    ] = None,
    k: Annotated[int, typer.Option(help="Nearest neighbours looked at.", min=1)] = 10,
    threshold: Annotated[
        list[str] | None, typer.Option(help="Of a metric: ssim=0.9, pixels=12. Repeatable; see what is printed.")
    ] = None,
    flips: Annotated[bool, typer.Option("--flips", help="Mirror images count, too.")] = False,
    database: Annotated[str | None, typer.Option("--database", help="Default: SHIFTBENCH_DATABASE.")] = None,
    *,
    where: ExecutorOptions,
    file: Annotated[Path | None, typer.Option("--output", "-o", help="All pairs: .csv, .json, .md, .txt.")] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Find candidates that repeat a reference image or each other, for reviewers to judge.

    Exact nearest neighbours in l2 on pixels or features; the nearest are compared by SSIM, too. A suspected candidate
    is not sampled until somebody has judged the pair on the review pages.

    \b
    Examples:
      shiftbench testset dedupe pets
      shiftbench testset dedupe pets --by pixels --by demo:efficientnet-lite0 --threshold ssim=0.8
      the network, the search and the comparison on all machines of a Ray cluster, which see the project's folder
        shiftbench testset dedupe pets --by timm:resnet50 --executor ray --address HOST:6379
    """
    from shiftbench.cli.testset import opened, parse_options
    from shiftbench.testsets.near_duplicates.find import PLAIN
    from shiftbench.testsets.pool.suspects import suspect_near_duplicates

    limits = {name: float(value) for name, value in parse_options(threshold or []).items()}
    with opened(folder, database) as project, stoppable():
        queue, new = suspect_near_duplicates(
            project, by=by or PLAIN, k=k, thresholds=limits, flips=flips, show=not quiet, **where.options()
        )
    show_report(queue, "json" if json else "text", file)
    _say(f"{new} new pairs wait for judgement: shiftbench testset review {folder}")


def filter_command(
    source: Annotated[str, typer.Argument(help="The pictures: a folder of classes, a manifest, any data set.")],
    target: Annotated[Path, typer.Argument(help="A new folder for what is left.")],
    classifiers: Annotated[list[str], typer.Option("--classifier", "-c", help="Who must be fooled. Repeatable.")],
    recipe: Annotated[str, typer.Option(help="imagenet-a or imagenet-o.")] = "imagenet-a",
    labels: Annotated[
        str | None, typer.Option(help="The classes of the new set, by name (see `list spaces`) or file.")
    ] = None,
    max_confidence: Annotated[
        float, typer.Option(help="imagenet-a: drop what has more confidence in the true class, in any crop.")
    ] = 0.15,
    per_confusion: Annotated[
        int, typer.Option(help="imagenet-a: at most so many with the same label and prediction; 0: no limit.")
    ] = 15,
    min_confidence: Annotated[
        float, typer.Option(help="imagenet-o: keep pictures of unknown things with at least this confidence.")
    ] = 0.5,
    trust: Trust = False,
    workers: Workers = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Keep the pictures that fool classifiers, by the recipe of ImageNet-A or ImageNet-O; then people review them.

    The pictures that are left are written to TARGET/images, to be imported as candidates: the pool itself never
    learns what a model said. Stopped at any moment, the same command continues.

    \b
    Examples:
      shiftbench testset filter downloads/ hard/ -c demo:efficientnet-lite0 -c demo:squeezenet1_1
      shiftbench testset import pets hard/images
      shiftbench testset filter strange/ odd/ -c timm:resnet50 --recipe imagenet-o --labels imagenet-o-200
    """
    from shiftbench.classifiers.loading import load_classifier
    from shiftbench.datasets.catalogue import open_dataset
    from shiftbench.labels.catalogue import find_label_space
    from shiftbench.testsets.filtration import filter_adversarially, filter_out_of_distribution
    from shiftbench.testsets.filtration.writing import write_shortlist

    if recipe not in _RECIPES:
        raise typer.BadParameter(f"{recipe!r} is not one of {', '.join(_RECIPES)}", param_hint="--recipe")
    space = find_label_space(labels)
    classes = None if isinstance(space, str) else space
    computed = target / "computed"
    with stoppable():
        fooled = [load_classifier(spec, trust=trust) for spec in classifiers]
        if recipe == "imagenet-a":
            found = filter_adversarially(
                open_dataset(source), fooled, space=classes, max_confidence=max_confidence,
                per_confusion=per_confusion or None, folder=computed, workers=workers, show=not quiet,
            )  # fmt: skip
        else:
            # The things shown are unknown: their folders are whatever they are called.
            found = filter_out_of_distribution(
                open_dataset(source, space="folders"), fooled, space=classes, min_confidence=min_confidence,
                folder=computed, workers=workers, show=not quiet,
            )  # fmt: skip
        images = write_shortlist(found, target)
    show_report(found.funnel, "json" if json else "text", None)
    for image, why in found.unreadable[:5]:
        _say(f"left out: {image}: {why}")
    _say(f"{len(found.shortlist)} pictures in {images}; what they were taken for is in {target / 'review.csv'}")


def _say(text: str) -> None:
    errors.print(text, highlight=False, markup=False, soft_wrap=True)
