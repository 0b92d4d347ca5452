"""``shiftbench harden train``, ``harden recipes`` and ``harden show``."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shiftbench.cli.console import errors, output, print_json, stoppable, titled
from shiftbench.cli.extras import needing
from shiftbench.cli.options import Json, Quiet

if TYPE_CHECKING:
    from shiftbench.hardening.training.loop import Trained

Change = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a key of the recipe (repeatable): train.epochs=3, views.0.severity=1.",
    ),
]


@needing("hardening", "training")
def train_command(
    recipe: Annotated[str, typer.Argument(help="Name of a recipe (see `harden recipes`), or a .toml file.")],
    data: Annotated[
        str | None,
        typer.Option("--data", "-d", help="Training data instead of the recipe's: a folder, file or dataset name."),
    ] = None,
    validation: Annotated[str | None, typer.Option(help="Data to evaluate after every epoch, or `none`.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder of the run (default: runs/RECIPE).")] = None,
    change: Change = None,
    seed: Annotated[int | None, typer.Option(help="Same as --set train.seed=N.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the model (default: the folder's name).")] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            "-j",
            min=0,
            help="Processes per device that prepare batches; the result does not depend on them (default: none for "
            "images in memory, else up to 8).",
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="Device to train on: auto, cpu, cuda, cuda:1, ...")] = "auto",
    devices: Annotated[
        int, typer.Option(min=1, help="Devices of this machine to train on, one process each. See also torchrun.")
    ] = 1,
    sinks: Annotated[
        list[str] | None,
        typer.Option("--sink", help="Tracker to log every epoch to (repeatable): tensorboard:DIR, mlflow, wandb."),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a model by a recipe.

    After an interruption, rerun the same command: it resumes from the last checkpoint and reaches the same weights. The
    folder of a finished run is a model for every other command: hardened:FOLDER.

    On several devices the batch is divided: `--devices 8` on one machine, `torchrun ... $(which shiftbench) harden
    train ...` on several. The weights depend on the number of parts (train.splits), not on the devices.

    \b
    Examples:
      AugMix on CIFAR-10 as published, then its robustness
        shiftbench harden train cifar-augmix --out runs/augmix
        shiftbench eval hardened:runs/augmix --suite cifar-10-c
      a small network, to try it out
        shiftbench harden train cifar-standard --out runs/small \\
          --set train.epochs=3 --set data.sample=2000 \\
          --set architecture.name=resnet-20
      ResNet-50 with DeepAugment and AugMix on eight GPUs
        shiftbench harden train imagenet-deepaugment-augmix --devices 8 \\
          --data ImageNet/train --validation ImageNet/val
      your own images, in class folders
        shiftbench harden train icons-resnet-20 --data photos/ \\
          --set data.labels=folders --out runs/photos
    """
    from shiftbench.hardening.recipe import load_recipe
    from shiftbench.hardening.training.devices import is_launched, launch
    from shiftbench.hardening.training.train import train

    changes = [*(change or []), *([f"train.seed={seed}"] if seed is not None else [])]
    if validation == "none":
        changes.append('data.validation=""')
    chosen = load_recipe(recipe, changes)
    folder = out or Path("runs") / Path(recipe).stem
    if devices > 1 and not is_launched():
        launch(devices)
        return
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
                sinks=sinks or [],
                progress=not quiet,
                console=errors,
            )
        finally:
            for warning in {str(w.message): None for w in caught if w.category is UserWarning}:
                errors.print(titled("warning:", warning, "yellow"))
    if os.environ.get("RANK", "0") != "0":
        return
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


def recipes_command(json: Json = False) -> None:
    """List the recipes that come with the package."""
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
    recipe: Annotated[str, typer.Argument(help="Name of a recipe (see `harden recipes`), or a .toml file.")],
    change: Change = None,
    json: Json = False,
) -> None:
    """Print a recipe as TOML with its comments; with --set, as it would be trained, with all keys."""
    from shiftbench.hardening.recipe import load_recipe, recipe_text
    from shiftbench.io.schema import to_toml

    if json:
        print_json(load_recipe(recipe, change or ()).as_dict())
        return
    text = to_toml(load_recipe(recipe, change).as_dict()) if change else recipe_text(recipe)
    sys.stdout.write(text.rstrip("\n") + "\n")
