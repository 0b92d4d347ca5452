"""``shiftbench testset filter``: adversarial filtration of candidates before they are imported."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shiftbench.cli.console import stoppable
from shiftbench.cli.options import Quiet, TableOptions, Trust, choice, grouped
from shiftbench.cli.testset_options import say


@grouped
def filter_command(
    source: Annotated[str, typer.Argument(help="Candidates: a folder of classes, a manifest, any dataset.")],
    target: Annotated[Path, typer.Argument(help="New folder for the remaining images.")],
    classifiers: Annotated[list[str], typer.Option("--classifier", "-c", help="Model to filter against (repeatable).")],
    recipe: Annotated[str, typer.Option(help="imagenet-a or imagenet-o.")] = "imagenet-a",
    labels: Annotated[
        str | None, typer.Option(help="Classes of the new set: a name from `list spaces`, or a file.")
    ] = None,
    max_confidence: Annotated[
        float, typer.Option(help="imagenet-a: maximum confidence in the true class, in any crop.")
    ] = 0.15,
    per_confusion: Annotated[
        int, typer.Option(help="imagenet-a: maximum number of images with the same label and prediction; 0: no limit.")
    ] = 15,
    min_confidence: Annotated[
        float, typer.Option(help="imagenet-o: minimum confidence on images of unknown classes.")
    ] = 0.5,
    trust: Trust = False,
    workers: Annotated[
        int | None, typer.Option("--workers", "-j", min=1, help="Number of workers (default: one per core).")
    ] = None,
    quiet: Quiet = False,
    *,
    table: TableOptions,
) -> None:
    """Keep images that fool models, by the recipe of ImageNet-A or ImageNet-O, for human review.

    The remaining images are written to TARGET/images, to be imported as candidates; the pool itself never contains
    model predictions. If interrupted, rerun the same command; it resumes.

    \b
    Examples:
      shiftbench testset filter downloads/ hard/ -c demo:efficientnet-lite0 -c demo:squeezenet1_1
      shiftbench testset import pets hard/images
      shiftbench testset filter strange/ odd/ -c timm:resnet50 --recipe imagenet-o --labels imagenet-o-200
    """
    from shiftbench.classifiers.loading import load_classifier
    from shiftbench.datasets.catalogue import open_dataset
    from shiftbench.labels.catalogue import find_label_space
    from shiftbench.testsets.export import write_shortlist
    from shiftbench.testsets.filtration import filter_adversarially, filter_out_of_distribution

    choice(recipe, ("imagenet-a", "imagenet-o"), "--recipe")
    space = find_label_space(labels)
    classes = None if isinstance(space, str) else space
    computed = target / "computed"
    with stoppable():
        models = [load_classifier(spec, trust=trust) for spec in classifiers]
        if recipe == "imagenet-a":
            found = filter_adversarially(
                open_dataset(source), models, space=classes, max_confidence=max_confidence,
                per_confusion=per_confusion or None, folder=computed, workers=workers, show=not quiet,
            )  # fmt: skip
        else:
            # Unknown classes: folders may have any name.
            found = filter_out_of_distribution(
                open_dataset(source, space="folders"), models, space=classes, min_confidence=min_confidence,
                folder=computed, workers=workers, show=not quiet,
            )  # fmt: skip
        images = write_shortlist(found, target)
    table.show(found.funnel)
    for image, why in found.unreadable[:5]:
        say(f"skipped: {image}: {why}")
    say(f"{len(found.shortlist)} images in {images}; their predictions are in {target / 'review.csv'}")
