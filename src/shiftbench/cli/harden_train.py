"""``shiftbench harden train``, ``recipes`` and ``show``."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shiftbench.cli.console import errors, output, print_json, stoppable
from shiftbench.cli.extras import needing

if TYPE_CHECKING:
    from shiftbench.hardening.training.loop import Trained

Change = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a key of the recipe: train.epochs=3, views.0.severity=1."),
]


@needing("hardening", "training")
def train_command(
    recipe: Annotated[str, typer.Argument(help="A name of `harden recipes`, or a .toml file.")],
    data: Annotated[
        str | None, typer.Option("--data", "-d", help="Train on this folder, file or named data set instead.")
    ] = None,
    validation: Annotated[
        str | None, typer.Option(help="Look at this data after every epoch; `none`: at no data.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The run's folder. Default: runs/RECIPE.")] = None,
    change: Change = None,
    seed: Annotated[int | None, typer.Option(help="The same as --set train.seed=N.")] = None,
    name: Annotated[str | None, typer.Option(help="What the classifier is called. Default: the folder's name.")] = None,
    workers: Annotated[
        int, typer.Option("--workers", "-j", min=0, help="Processes that make batches ahead; they change no result.")
    ] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...")] = "auto",
    json: Annotated[bool, typer.Option("--json", help="Print the log as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bars.")] = False,
) -> None:
    """Train a classifier by a recipe.

    Stopped at any moment, the same command continues from the last checkpoint, to the same weights. The folder that
    it leaves is a classifier: hardened:FOLDER.

    \b
    Examples:
      AugMix on CIFAR-10, as published; then what it is worth
        shiftbench harden train cifar-augmix --out runs/augmix
        shiftbench eval hardened:runs/augmix --suite cifar-10-c
      a small one, to look at
        shiftbench harden train cifar-standard --out runs/small \\
          --set train.epochs=3 --set data.sample=2000 \\
          --set architecture.name=resnet-20
      your own pictures, in class folders
        shiftbench harden train icons-resnet-20 --data photos/ \\
          --set data.labels=folders --out runs/photos
    """
    from shiftbench.hardening.recipe import load_recipe
    from shiftbench.hardening.training.train import train

    changes = [*(change or []), *([f"train.seed={seed}"] if seed is not None else [])]
    if validation == "none":
        changes.append('data.validation=""')
    chosen = load_recipe(recipe, changes)
    folder = out or Path("runs") / Path(recipe).stem
    with stoppable(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        try:
            trained = train(
                chosen,
                folder,
                data=data,
                validation=None if validation == "none" else validation,
                name=name,
                workers=workers,
                device=device,
                progress=not quiet,
                console=errors,
            )
        finally:
            for warning in {str(w.message): None for w in caught if w.category is UserWarning}:
                errors.print(f"[yellow]warning:[/] {warning}", highlight=False)
    if json:
        print_json({"folder": str(trained.folder), "log": trained.log})
    else:
        show_trained(trained)


def show_trained(trained: Trained) -> None:
    from shiftbench.studies.base import count_of

    last = trained.log[-1] if trained.log else {}
    words = [f"{trained.folder}:"]
    for key, title in (("accuracy", "in training"), ("validation_accuracy", "on validation data")):
        if last.get(key) is not None:
            words.append(f"{100 * last[key]:.1f} % {title},")
    seconds = sum(line["seconds"] for line in trained.log)
    words.append(f"{count_of(len(trained.log), 'epoch')} in {seconds:,.0f} s")
    output.print(" ".join(words), markup=False, highlight=False, soft_wrap=True)
    output.print(
        f"next: shiftbench eval hardened:{trained.folder} --suite ...", markup=False, highlight=False, soft_wrap=True
    )


def recipes_command(json: Annotated[bool, typer.Option("--json", help="Print them as JSON.")] = False) -> None:
    """The recipes that come with the package."""
    from shiftbench.hardening.recipe import load_recipe, recipe_names
    from shiftbench.reports.table import Column, Table

    found = {name: load_recipe(name) for name in recipe_names()}
    rows = [
        {"recipe": name, "network": one.architecture.name, "scheme": one.scheme.name, "about": one.about}
        for name, one in found.items()
    ]
    if json:
        print_json(rows)
        return
    fields = [
        Column("recipe", "recipe"),
        Column("network", "network"),
        Column("scheme", "scheme", optional=True),
        Column("about", "about"),
    ]
    output.print(Table(fields, rows, notes=["`shiftbench harden show NAME` prints one"]))


def show_command(
    recipe: Annotated[str, typer.Argument(help="A name of `harden recipes`, or a .toml file.")],
    change: Change = None,
) -> None:
    """Print a recipe as TOML, with its comments; with --set, as it would be followed, all keys included."""
    from shiftbench.hardening.recipe import load_recipe, recipe_text
    from shiftbench.io.schema import to_toml

    text = to_toml(load_recipe(recipe, change).as_dict()) if change else recipe_text(recipe)
    sys.stdout.write(text.rstrip("\n") + "\n")
