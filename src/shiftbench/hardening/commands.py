"""``shiftbench harden`` and ``experiment``: training recipes, augmentations, and grids of both."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shiftbench.extend.commands import (
    Commands,
    DefaultGroup,
    ExecutorOptions,
    ExtensionOptions,
    Json,
    Labels,
    Limit,
    OutputOptions,
    Preprocess,
    Quiet,
    Seed,
    Split,
    Trust,
    extra,
    kept_warnings,
    note,
    output,
    parse_data,
    print_images,
    print_json,
    print_warnings,
    show,
    stoppable,
)
from shiftbench.extend.errors import shell_command

if TYPE_CHECKING:
    from shiftbench.hardening.augmentations.copies import Augmented
    from shiftbench.hardening.training.loop import Trained

app = Commands(
    "Train more robust models: your own, or by a recipe; and the augmentations they use.\n\n"
    "`harden finetune` makes your own model more robust on your own images. "
    "`harden recipes` and `harden train` train a model; `harden list` shows the augmentations with their options, "
    "`harden gallery` draws them on an image, and `harden augment` writes augmented copies of a folder."
)

Recipe = Annotated[str, typer.Argument(help="Name of a recipe (see `harden recipes`), or a .toml file.")]


def _each_key_once(values: list[str] | None) -> list[str] | None:
    """Refuses KEY=VALUE options that set the same key twice; only one of them could have an effect."""
    keys = [value.partition("=")[0].strip() for value in values or ()]
    for key in keys:
        if key and keys.count(key) > 1:
            raise typer.BadParameter(f"{key} is given twice")
    return values


Change = Annotated[
    list[str] | None,
    "--set",
    {"metavar": "KEY=VALUE", "callback": _each_key_once},
    "Change a key of the recipes (repeatable): train.epochs=3, views.0.severity=1.",
]


@app.command("finetune")
@extra("hardening", "fine-tuning")
def finetune_command(
    model: Annotated[
        str,
        typer.Argument(
            help="A model that can be trained: timm:NAME@FILE, hardened:RUN, module.py:factory, or model.pt2 with "
            "--trust.",
            show_default=False,
        ),
    ],
    data: Annotated[
        str, "-d", {"panel": "Data", "show_default": False}, "Training images, in a folder for each class."
    ],
    val: Annotated[
        str | None,
        {"panel": "Data"},
        "Validation images, none of which is a training image. They are only compared on.",
    ] = None,
    split: Split = None,
    sample: Limit = None,
    augment: Annotated[
        str,
        "-a",
        {"panel": "Training"},
        "augmix, noise, deepaugment, pgd, an augmentation of `harden list`, or a .toml file based on one of the four.",
    ] = "augmix",
    minutes: Annotated[
        float, {"panel": "Training", "min": 0.1}, "Time for everything; a few steps are measured, and a plan is made."
    ] = 30.0,
    out: Annotated[Path | None, "-o", "Folder of the run (default: hardened/MODEL-AUGMENT)."] = None,
    change: Change = None,
    seed: Annotated[int, {"panel": "Training"}, "Seed of both trainings."] = 0,
    name: Annotated[str | None, "Name of the model in tables."] = None,
    labels: Labels = None,
    preprocess: Preprocess = None,
    trust: Trust = False,
    workers: Annotated[
        int | None, "-j", {"panel": "Execution", "min": 0}, "Processes that prepare batches; they change no result."
    ] = None,
    device: Annotated[str, {"panel": "Execution"}, "Device to train on: auto, cpu, cuda, cuda:1, ..."] = "auto",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Make your own model more robust on your own images, and show what was gained.

    The model keeps its preprocessing and its classes. It is fine-tuned twice, for as many steps: with small shifts
    only (the control), and with the augmentation. The original and both results are then evaluated on the
    validation images, clean and under 15 corruptions, and compared image by image: the difference to the control is
    what the augmentation gained, and not more training.

    A plan keeps everything within --minutes. After an interruption, rerun the same command: it resumes. The hardened
    model is OUT/AUGMENT: as hardened:OUT/AUGMENT, and as model.onnx.

    \b
    Examples:
      AugMix on your own ResNet-18, in half an hour
        shiftbench harden finetune timm:resnet18@mine.pth --data train/ --val val/
      a network in your own code: `make` returns it with its weights
        shiftbench harden finetune model.py:make --data train/ --val val/ \\
          --preprocess size=64,mean=0.5,std=0.25
      a model that `harden train` made, with noise, in ten minutes
        shiftbench harden finetune hardened:runs/photos --data train/ --val val/ \\
          --augment noise --minutes 10
      a lower learning rate, only 5,000 images, and mirror images as well
        shiftbench harden finetune timm:resnet50@mine.pth --data train/ --val val/ \\
          --set optimizer.lr=1e-4 --set data.sample=5000 --set 'augmentations=["flip", "crop"]'
    """
    from shiftbench.extend.settings import path_of_split
    from shiftbench.hardening.finetuning.run import harden

    def report(message: str) -> None:
        if not quiet:
            note(message)

    with stoppable(), kept_warnings() as warned:
        hardened = harden(
            model,
            path_of_split(data, split),
            val,
            augment=augment,
            minutes=minutes,
            out=out,
            name=name,
            labels=labels,
            preprocessing=preprocess,
            trust=trust,
            changes=[*(change or []), *_sample_change(sample)],
            seed=seed,
            device=device,
            workers=workers,
            progress=not quiet,
            report=report,
        )
    print_warnings(warned)
    if json:
        print_json(hardened.summary())
        return
    output.print(hardened.table())
    folder = hardened.folder / hardened.augment
    if hardened.export is not None:
        note(f"written: {hardened.export}, the hardened model as ONNX")
        model_spec = str(hardened.export)
    else:
        note(f"not exported to ONNX: {hardened.why_not_exported}")
        model_spec = f"hardened:{folder}"
    note(f"next: {shell_command('eval', model_spec, '--data', val or 'FOLDER')}")


@app.command("train")
@extra("hardening", "training")
def train_command(
    recipe: Recipe,
    data: Annotated[
        str | None, "-d", {"panel": "Data"}, "Training data instead of the recipe's: a folder, file or dataset name."
    ] = None,
    validation: Annotated[str | None, {"panel": "Data"}, "Data to evaluate after every epoch, or `none`."] = None,
    labels: Annotated[
        str | None,
        {"panel": "Data"},
        "Classes of the data: a label space, a file of classes, or `folders`. Same as --set data.labels=TEXT.",
    ] = None,
    split: Split = None,
    sample: Limit = None,
    out: Annotated[Path | None, "-o", "Folder of the run (default: runs/RECIPE)."] = None,
    change: Change = None,
    seed: Annotated[int | None, "Same as --set train.seed=N."] = None,
    name: Annotated[str | None, "Name of the model (default: the folder's name)."] = None,
    workers: Annotated[
        int | None,
        "-j",
        {"panel": "Execution", "min": 0},
        "Processes per device that prepare batches; the result does not depend on them (default: none for "
        "images in memory, else up to 8).",
    ] = None,
    device: Annotated[str, {"panel": "Execution"}, "Device to train on: auto, cpu, cuda, cuda:1, ..."] = "auto",
    devices: Annotated[
        int,
        {"panel": "Execution", "min": 1},
        "Devices of this machine to train on, one process each. See also torchrun.",
    ] = 1,
    ray: Annotated[
        int | None,
        {"panel": "Execution", "min": 1, "metavar": "RANKS"},
        "Train by Ray Train, on a cluster that already runs Ray.",
    ] = None,
    address: Annotated[
        str | None, {"panel": "Execution"}, "Address of the Ray cluster (default: start Ray on this machine)."
    ] = None,
    sinks: Annotated[
        list[str] | None, "--sink", "Tracker to log every epoch to (repeatable): tensorboard:DIR, mlflow, wandb."
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a model by a recipe.

    After an interruption, rerun the same command: it resumes from the last checkpoint and reaches the same weights. The
    folder of a finished run is a model for every other command: hardened:FOLDER.

    On several devices the batch is divided: `--devices 8` on one machine, `torchrun ... $(which shiftbench) harden
    train ...` on several, `--ray 8 --address HOST:PORT` on a Ray cluster, whose machines share the paths. The weights
    depend on the number of parts (train.splits), not on the devices.

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
          --labels folders --out runs/photos
    """
    from shiftbench.extend.settings import path_of_split
    from shiftbench.hardening.errors import RankError
    from shiftbench.hardening.recipe import load_recipe
    from shiftbench.hardening.training.devices import launch
    from shiftbench.hardening.training.train import train, train_on_ray

    changes = [*(change or []), *_sample_change(sample)]
    if seed is not None:
        changes.append(f"train.seed={seed}")
    if labels is not None:
        changes.append(f"data.labels={labels}")
    if validation == "none":
        validation = None
        changes.append('data.validation=""')
    changed_recipe = load_recipe(recipe, changes)
    if split is not None:
        data = path_of_split(data or changed_recipe.data.train, split)
    folder = out or Path("runs") / Path(recipe).stem
    _check_ray(ray, address, devices)
    if devices > 1 and "RANK" not in os.environ:
        launch(devices)
        return
    options: dict[str, Any] = {"data": data, "validation": validation, "name": name, "workers": workers}
    options |= {"device": device, "sinks": sinks or []}
    warned: list[Warning] = []
    try:
        with stoppable(), kept_warnings() as warned:
            if ray is not None:
                trained = train_on_ray(changed_recipe, folder, ray, address, **options)
            else:
                trained = train(changed_recipe, folder, progress=not quiet, **options)
    except RankError as error:
        if error.reported:
            raise typer.Exit(1) from error
        raise
    finally:
        print_warnings(warned)
    # Of the processes that train together, only the first one reports.
    if os.environ.get("RANK", "0") == "0":
        text = _training_summary(trained)
        show({"folder": str(trained.folder), "log": trained.log}, text, as_json=json)


def _sample_change(sample: int | None) -> list[str]:
    """The change of a recipe that `--limit` stands for."""
    if sample is None:
        return []
    return [f"data.sample={sample}"]


def _check_ray(ray: int | None, address: str | None, devices: int) -> None:
    if ray is None and address is not None:
        raise typer.BadParameter("is the address of a Ray cluster; give --ray RANKS, too", param_hint="--address")
    if ray is not None and devices > 1:
        raise typer.BadParameter("--ray and --devices exclude each other", param_hint="--devices")


def _training_summary(trained: Trained) -> str:
    """The accuracies after the last epoch, the time of training, and the command to evaluate the network."""
    from shiftbench.extend.studies import count_of

    last = trained.log[-1] if trained.log else {}
    words = [f"{trained.folder}:"]
    for key, title in (("accuracy", "in training"), ("validation_accuracy", "on validation data")):
        if last.get(key) is not None:
            words.append(f"{100 * last[key]:.1f} % {title},")
    words.append(f"{count_of(len(trained.log), 'epoch')} in {sum(line['seconds'] for line in trained.log):,.0f} s")
    return f"{' '.join(words)}\nnext: {shell_command('eval', f'hardened:{trained.folder}')} --suite ..."


@app.command("recipes")
def recipes_command(json: Json = False) -> None:
    """List the recipes that come with the package."""
    from shiftbench.extend.tables import Column, Table
    from shiftbench.hardening.recipe import load_recipe, recipe_names

    rows = []
    for name in recipe_names():
        recipe = load_recipe(name)
        row = {
            "recipe": name,
            "network": recipe.architecture.name,
            "scheme": recipe.scheme.name,
            "about": recipe.about,
        }
        rows.append(row)
    if json:
        print_json(rows)
        return
    columns = [Column(key, key, optional=key == "scheme") for key in ("recipe", "network", "scheme", "about")]
    output.print(Table(columns, rows, notes=["`shiftbench harden show NAME` prints one"]))


@app.command("show")
def show_command(recipe: Recipe, change: Change = None, json: Json = False) -> None:
    """Print a recipe as TOML with its comments; with --set, as it would be trained, with all keys."""
    from shiftbench.extend.options import to_toml
    from shiftbench.hardening.recipe import load_recipe, recipe_text

    if json:
        print_json(load_recipe(recipe, change or ()).as_dict())
        return
    if change:
        text = to_toml(load_recipe(recipe, change).as_dict())
    else:
        text = recipe_text(recipe)
    sys.stdout.write(text.rstrip("\n") + "\n")


@app.command("augment")
@extra("hardening", "the hardening workshop")
def augment_command(
    source: Annotated[Path, typer.Argument(help="Folder of images, with any subfolders.")],
    destination: Annotated[Path, typer.Argument(help="New folder, or one that this command started to write.")],
    augmentation: Annotated[str, "-a", "Name of the augmentation (see `harden list`)."],
    option: Annotated[list[str] | None, "-o", "Option of the augmentation, as KEY=VALUE (repeatable)."] = None,
    copies: Annotated[int, "Copies per image; several get -1, -2, ... in the file name."] = 1,
    shard: Annotated[str, "Part of the work for a job array, as NUMBER/COUNT: 2/8."] = "1/1",
    seed: Seed = 0,
    lossless: Annotated[bool, "Write PNG files also for JPEG sources."] = False,
    *,
    where: ExecutorOptions,
    network: Annotated[
        Path | None,
        {"panel": "Network"},
        "Weights of the image-to-image network, or a folder with the weights of both.",
    ] = None,
    train_network: Annotated[
        bool, {"panel": "Network"}, "Train the network on these images first, and keep it for later."
    ] = False,
    train_seconds: Annotated[float, {"panel": "Network", "min": 1}, "Training time per network, in seconds."] = 120,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write augmented copies of a folder tree, with the same folders and file names.

    After an interruption, rerun the same command: it resumes. With other options it refuses to write into the same
    folder. The pixels depend only on the seed, the image's name and the number of the copy, so shards on several
    machines and any number of workers give the same files. JPEG stays JPEG (quality 95), everything else becomes PNG.
    The options are recorded in shiftbench-augmentation.json in the destination.

    \b
    Examples:
      AugMix with the settings for ImageNet
        shiftbench harden augment train/ train-augmix/ -a augmix -o severity=1
      three speckled copies of each image
        shiftbench harden augment train/ train-speckle/ -a speckle --copies 3
      DeepAugment without published weights
        shiftbench harden augment train/ train-edsr/ -a deepaugment-edsr --train-network
      the second of four machines, with one file of weights for all
        shiftbench harden augment train/ train-edsr/ -a deepaugment-edsr --network edsr.safetensors --shard 2/4
    """
    from shiftbench.hardening.augmentations.copies import augment_folder, images_below
    from shiftbench.hardening.augmentations.networks import network_for

    if network is not None and train_network:
        raise typer.BadParameter("--network and --train-network exclude each other", param_hint="--network")
    with stoppable():
        networks: dict[str, str] = {}
        if network is not None or train_network:
            images = images_below(source) if train_network else None
            networks = network_for(augmentation, network, train_on=images, seconds=train_seconds, show=not quiet)
            if not networks:
                raise typer.BadParameter(f"{augmentation!r} needs no network", param_hint="--network")
        augmented = augment_folder(
            source,
            destination,
            augmentation,
            options=_parse_options(option or []) | networks,
            copies=copies,
            shard=shard,
            seed=seed,
            lossless=lossless,
            **where.options(),
            progress=not quiet,
        )
    text = _augmenting_summary(augmented)
    if train_network:
        for path in networks.values():
            text += f"\nnetwork: {path}"
    show(augmented.summary(), text, as_json=json)
    print_images(list(augmented.skipped.items()), "could not be used and were skipped", "all are in the record")


def _augmenting_summary(augmented: Augmented) -> str:
    """How many images were written and how many existed before, where, and how fast."""
    copies = "1 copy" if augmented.copies == 1 else f"{augmented.copies} copies"
    work = f"{augmented.augmentation}: {augmented.images:,} images x {copies}"
    if augmented.shard.count > 1:
        work += f", shard {augmented.shard}"
    if not augmented.written:
        return f"{work}: all {augmented.already:,} already existed, in {augmented.destination}"
    written = f"{augmented.written:,} written"
    if augmented.already:
        written += f", {augmented.already:,} already existed"
    speed = augmented.written / max(augmented.seconds, 1e-9)
    return f"{work}: {written}\nin {augmented.destination}, {augmented.seconds:,.1f} s, {speed:,.0f} images per second"


@app.command("list")
@extra("hardening", "the hardening workshop")
def list_command(json: Json = False) -> None:
    """List the augmentations, with their options and defaults."""
    from shiftbench.hardening.augmentations.base import list_augmentations

    entries = list_augmentations()
    if json:
        print_json([vars(entry) for entry in entries])
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="bold")
    table.add_column()
    for entry in entries:
        kind = "batches; " if entry.kind == "batch" else ""
        table.add_row(entry.name, Text(entry.about).append(f"\n{kind}{entry.options_in_words()}", style="dim"))
    output.print(table)


@app.command("gallery")
@extra("hardening", "the hardening workshop")
def gallery_command(
    file: Annotated[Path, typer.Argument(help="PNG file to write.")],
    image: Annotated[Path | None, {"show_default": "one of the demo photographs"}, "Image to augment."] = None,
    augmentation: Annotated[
        list[str] | None, "-a", "Augmentation, as NAME or NAME:KEY=VALUE,... (repeatable; default: all)."
    ] = None,
    partner: Annotated[Path | None, {"show_default": "the mirror image"}, "Image that mixup and cutmix mix in."] = None,
    size: Annotated[int, {"min": 8, "max": 1024}, "Side of the image, in pixels."] = 224,
    columns: Annotated[int, {"min": 1, "max": 20}, "Random draws per augmentation."] = 6,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Draw a sheet of an image under the augmentations, with several random draws of each.

    Augmentations that need a network are left out unless it is given: -a deepaugment-edsr:network=FILE.
    """
    from shiftbench.extend.datasets import decode
    from shiftbench.extend.io import write_atomically
    from shiftbench.hardening.augmentations.gallery import choose, demo_photograph, render_gallery, square

    if file.suffix.lower() != ".png":
        raise typer.BadParameter(f"{file.name!r} is not a .png file", param_hint="FILE")
    mixed_in = None if partner is None else square(decode(partner, partner.name).pixels, size)
    augmentations = []
    for text in augmentation or []:  # NAME:KEY=VALUE,KEY=VALUE
        name, _, options = text.partition(":")
        augmentations.append((name, _parse_options([option for option in options.split(",") if option])))
    rows, left_out = choose(augmentations, mixed_in)
    if image is None:
        title, pixels = demo_photograph()
    else:
        title = image.name
        pixels = decode(image, image.name).pixels
    sheet = render_gallery(square(pixels, size), rows, title=title, columns=columns, seed=seed)
    write_atomically(file, lambda temporary: sheet.save(temporary, "PNG"))
    drawn = [row.title for row in rows]
    record = {"gallery": str(file), "augmentations": drawn, "left_out": left_out, "seed": seed}
    show(record, f"written: {file} ({sheet.width} x {sheet.height})", as_json=json)
    if not json:
        for name, reason in left_out.items():
            note(f"skipped: {name} ({reason})")


def _parse_options(texts: list[str]) -> dict[str, object]:
    """A dictionary from KEY=VALUE texts; raises for any other text, and for a key that is given twice."""
    from shiftbench.hardening.recipe import key_value

    options: dict[str, object] = {}
    for text in _each_key_once(texts) or ():
        pair = key_value(text)
        if pair is None:
            raise typer.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="--option")
        key, value = pair
        options[key] = value
    return options


#: The second sentence is for the reference of all commands: the help of the group is that of `experiment run`.
experiment_app = Commands(
    "Train the variants of an experiment, evaluate each on its suite, and compare them.\n\n"
    "`shiftbench experiment NAME` is short for `experiment run NAME`.",
    cls=DefaultGroup,
)
ExperimentName = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of an experiment (see `experiment list`), or a .toml file.")
]


@experiment_app.command("list")
def list_experiments_command(json: Json = False) -> None:
    """List the experiments that come with the package."""
    from shiftbench.extend.tables import Column, Table
    from shiftbench.hardening.experiments.base import load_experiment
    from shiftbench.hardening.recipe import builtin_names

    rows = []
    for name in builtin_names("experiments"):
        experiment = load_experiment(name)
        row = {
            "experiment": name,
            "variants": len(experiment.variants),
            "scales": ", ".join(experiment.scales),
            "about": experiment.about,
        }
        rows.append(row)
    if json:
        print_json(rows)
        return
    columns = [Column(key, key, optional=key == "scales") for key in ("experiment", "variants", "scales", "about")]
    notes = ["`shiftbench experiment show NAME` prints one; a copy of it, edited, is an experiment of your own"]
    output.print(Table(columns, rows, notes=notes))


@experiment_app.command("show")
def show_experiment_command(name: ExperimentName, json: Json = False) -> None:
    """Print an experiment as TOML, to be copied and edited.

    \b
    Examples:
      shiftbench experiment show size
    """
    import msgspec

    from shiftbench.hardening.experiments.base import load_experiment
    from shiftbench.hardening.recipe import recipe_text

    experiment = load_experiment(name)  # raises if the file is not an experiment
    if json:
        print_json(msgspec.to_builtins(experiment))
        return
    sys.stdout.write(recipe_text(name, "experiments").rstrip("\n") + "\n")


@experiment_app.command("run")
@extra("hardening", "an experiment")
def experiment_command(
    name: ExperimentName,
    scale: Annotated[
        str, "tiny (a smoke test), small (minutes on a CPU) or paper (as published); some have more."
    ] = "small",
    seeds: Annotated[int | None, {"min": 1}, "Training runs per variant (default: as in the scale)."] = None,
    data: Annotated[
        list[str] | None,
        "-d",
        "Dataset, as FOLDER or ROLE=FOLDER (repeatable): icons=icons/. Roles are those of the suite, and the first "
        "word of `train` in the experiment's file.",
    ] = None,
    labels: Labels = None,
    out: Annotated[Path | None, "-o", "Folder of the runs (default: experiments/NAME-SCALE)."] = None,
    workspace: Annotated[Path | None, "-w", "Workspace of the predictions (default: OUT/workspace)."] = None,
    change: Change = None,
    devices: Annotated[
        int, {"min": 1, "metavar": "N"}, "GPUs per run (processes where there is none); each batch has as many parts."
    ] = 1,
    *,
    where: ExecutorOptions,
    shown: OutputOptions,
    markdown: Annotated[Path | None, {"metavar": "FILE"}, "Also write the tables as Markdown."] = None,
) -> None:
    """Train the variants of an experiment, evaluate each on its suite, and compare them.

    Prints tables: accuracy without and under shift, effective and relative robustness of every intervention, with
    confidence intervals over images and the spread over seeds, and verdicts on the papers' hypotheses. After an
    interruption, rerun the same command: it resumes. Each worker trains one run, on one core or on a GPU of its own
    (several with --devices), in processes or on a Ray cluster; the numbers do not depend on the workers.

    \b
    Examples:
      shiftbench experiment cifar-corruptions
      shiftbench experiment icons-style --data icons=icons/ --seeds 3
      shiftbench experiment size --set train.epochs=30 --markdown size.md
      shiftbench experiment many-faces --scale paper-c --data imagenet-train=DIR --data imagenet-val=DIR
      your own experiment on your own classes, in class folders
        shiftbench experiment my.toml --labels folders --data mine=photos/ --data data=photos/val/
    """
    from shiftbench.hardening.experiments.report import experiment_table
    from shiftbench.hardening.experiments.run import run_experiment

    with stoppable(), kept_warnings() as warned:
        study = run_experiment(
            name,
            scale=scale,
            seeds=seeds,
            data=parse_data(data or []),
            labels=labels,
            out=out,
            workspace=workspace,
            changes=change or [],
            executor=where.executor(),
            devices=devices,
            level=shown.level,
            progress=not shown.quiet,
            command=_experiment_text(name, scale, seeds, data or [], labels, devices, change or []),
        )
    print_warnings(warned)
    report = experiment_table(study)
    if markdown is not None:
        note(f"written: {report.write(markdown)}")
    if shown.json:
        print_json(report.as_data())
    else:
        output.print(report)
    note(f"runs: {study.runs[0].folder.parent}")


def _experiment_text(
    name: str, scale: str, seeds: int | None, data: list[str], labels: str | None, devices: int, changes: list[str]
) -> str:
    """The command that reproduces the tables; local paths are replaced by FOLDER."""
    words = ["--scale", scale]
    if seeds is not None:
        words += ["--seeds", str(seeds)]
    for text in data:
        role, equals, _ = text.partition("=")
        words += ["--data", f"{role}=FOLDER" if equals else "FOLDER"]
    if labels is not None:
        words += ["--labels", labels]
    if devices > 1:
        words += ["--devices", str(devices)]
    for change in changes:
        words += ["--set", change]
    return shell_command("experiment", name, *words)


def check_augmentation_command(
    name: Annotated[str, typer.Argument(help="The name of a registered augmentation of images or batches.")],
    options: ExtensionOptions,
) -> None:
    """Check an augmentation: shape, range, determinism per image and epoch, independence of order and workers.

    \b
    Examples:
      shiftbench check augmentation augmix
      shiftbench check augmentation mine --plugin my_plugin.py --option strength=2
    """
    from shiftbench.hardening.augmentations.check import check_augmentation

    options.run(check_augmentation, name)
