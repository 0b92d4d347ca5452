"""``shiftbench check``: the conformance suites, for your own classifiers, datasets and attacks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.text import Text

from shiftbench.cli.console import output, print_json
from shiftbench.cli.eval import kept_warnings, print_warnings
from shiftbench.cli.options import Json, Labels, Preprocess, Trust

app = typer.Typer(no_args_is_help=True, help="Check that a classifier, dataset or attack keeps its contract.")


@app.command("classifier")
def check_classifier_command(
    spec: Annotated[str, typer.Argument(help="As for `shiftbench eval`.")],
    labels: Labels = None,
    preprocess: Preprocess = None,
    trust: Trust = False,
    json: Json = False,
) -> None:
    """Shape, finiteness, determinism, independence of the batch, pickling, threads, fingerprint."""
    from shiftbench.classifiers.check import check_classifier
    from shiftbench.classifiers.loading import load_classifier

    with kept_warnings() as warned:
        results = check_classifier(load_classifier(spec, labels=labels, preprocessing=preprocess, trust=trust))
    _print_checks(results, json, warned)


@app.command("attack")
def check_attack_command(
    spec: Annotated[str, typer.Argument(help="A classifier with gradients, as for `shiftbench eval`.")],
    labels: Labels = None,
    preprocess: Preprocess = None,
    trust: Trust = False,
    steps: Annotated[int, typer.Option(help="Steps of each attack.")] = 10,
    json: Json = False,
) -> None:
    """Test whether attacks on a model are reliable.

    Detects masked gradients: the loss must grow with the strength, restarts must not find much more than a single
    run, and an unbounded attack must always succeed.
    """
    from shiftbench.classifiers.loading import load_classifier
    from shiftbench.classifiers.samples import sample_images
    from shiftbench.shifts.attacks import check_attack

    with kept_warnings() as warned:
        classifier = load_classifier(spec, labels=labels, preprocessing=preprocess, trust=trust)
    images = sample_images(8, classifier.preprocessing.geometry.output or (224, 224))
    _print_checks(check_attack(classifier, images, steps=steps), json, warned)


@app.command("dataset")
def check_dataset_command(
    spec: Annotated[str, typer.Argument(help="A folder, file or name, as for --data.")],
    labels: Labels = None,
    json: Json = False,
) -> None:
    """Ids, labels, images, fingerprint, pickling, threads."""
    from shiftbench.datasets.catalogue import open_dataset
    from shiftbench.datasets.check import check_dataset
    from shiftbench.labels.catalogue import find_label_space

    _print_checks(check_dataset(open_dataset(spec, space=find_label_space(labels))), json)


def _print_checks(results: Sequence[Any], as_json: bool, warned: Sequence[Warning] = ()) -> None:
    if as_json:
        print_json([{"check": r.name, "ok": r.ok, "message": r.message} for r in results])
    else:
        for result in results:
            mark = ("ok    ", "green") if result.ok else ("failed", "bold red")
            output.print(Text.assemble(mark, f" {result.name}  ", (result.message, "dim")))
    print_warnings(warned)
    if not all(result.ok for result in results):
        raise typer.Exit(1)
