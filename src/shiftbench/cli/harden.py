"""``shiftbench harden``: augmentations. Training is in ``harden_train.py``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shiftbench.cli import harden_train
from shiftbench.cli.console import errors, output, print_json, stoppable
from shiftbench.cli.corrupt import print_skipped
from shiftbench.cli.extras import needing
from shiftbench.cli.options import ExecutorOptions, Json, Quiet, grouped

if TYPE_CHECKING:
    from shiftbench.hardening.augmentations.copies import Augmented

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Train more robust models: recipes, and the augmentations they use.\n\n"
    "`harden recipes` and `harden train` train a model; `harden list` shows the augmentations with their options, "
    "`harden gallery` draws them on an image, and `harden augment` writes augmented copies of a folder.",
)
app.command("train")(harden_train.train_command)
app.command("recipes")(harden_train.recipes_command)
app.command("show")(harden_train.show_command)

Seed = Annotated[int, typer.Option(help="Random seed; the same seed gives the same pixels on every machine.")]
Options = Annotated[
    list[str] | None,
    typer.Option("--option", "-o", help="Option of the augmentation, as KEY=VALUE (repeatable)."),
]
Network = Annotated[
    Path | None,
    typer.Option(help="Weights of the image-to-image network, or a folder with the weights of both."),
]


@app.command("augment")
@grouped
@needing("hardening", "the hardening workshop")
def augment_command(
    source: Annotated[Path, typer.Argument(help="Folder of images, with any subfolders.")],
    destination: Annotated[Path, typer.Argument(help="New folder, or one that this command started to write.")],
    augmentation: Annotated[
        str, typer.Option("--augmentation", "-a", help="Name of the augmentation (see `harden list`).")
    ],
    option: Options = None,
    copies: Annotated[int, typer.Option(help="Copies per image; several get -1, -2, ... in the file name.")] = 1,
    shard: Annotated[str, typer.Option(help="Part of the work for a job array, as NUMBER/COUNT: 2/8.")] = "1/1",
    seed: Seed = 0,
    lossless: Annotated[bool, typer.Option("--lossless", help="Write PNG files also for JPEG sources.")] = False,
    *,
    where: ExecutorOptions,
    network: Network = None,
    train_network: Annotated[
        bool,
        typer.Option("--train-network", help="Train the network on these images first, and keep it for later."),
    ] = False,
    train_seconds: Annotated[float, typer.Option(help="Training time per network, in seconds.", min=1)] = 120,
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
    from shiftbench.hardening.augmentations.copies import augment_folder

    with stoppable():
        networks = _network_options(augmentation, network, source if train_network else None, train_seconds, quiet)
        done = augment_folder(
            source,
            destination,
            augmentation,
            options=parse_options(option or []) | networks,
            copies=copies,
            shard=shard,
            seed=seed,
            lossless=lossless,
            **where.options(),
            progress=not quiet,
            console=errors,
        )
    if json:
        print_json(done.summary())
    else:
        output.print(_summary(done), highlight=False, markup=False, soft_wrap=True)
        for path in networks.values() if train_network else ():
            output.print(f"network: {path}", highlight=False, markup=False, soft_wrap=True)
    print_skipped(done.skipped)


@app.command("list")
@needing("hardening", "the hardening workshop")
def list_command(json: Json = False) -> None:
    """List the augmentations, with their options and defaults."""
    from shiftbench.hardening.augmentations.base import list_augmentations

    entries = list_augmentations()
    if json:
        print_json([entry.summary() for entry in entries])
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
@needing("hardening", "the hardening workshop")
def gallery_command(
    file: Annotated[Path, typer.Argument(help="PNG file to write.")],
    image: Annotated[
        Path | None, typer.Option(help="Image to augment.", show_default="one of the demo photographs")
    ] = None,
    augmentation: Annotated[
        list[str] | None,
        typer.Option(
            "--augmentation", "-a", help="Augmentation, as NAME or NAME:KEY=VALUE,... (repeatable; default: all)."
        ),
    ] = None,
    partner: Annotated[
        Path | None, typer.Option(help="Image that mixup and cutmix mix in.", show_default="the mirror image")
    ] = None,
    size: Annotated[int, typer.Option(help="Side of the image, in pixels.", min=8, max=1024)] = 224,
    columns: Annotated[int, typer.Option(help="Random draws per augmentation.", min=1, max=20)] = 6,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Draw a sheet of an image under the augmentations, with several random draws of each.

    Augmentations that need a network are left out unless it is given: -a deepaugment-edsr:network=FILE.
    """
    from shiftbench.hardening.augmentations.gallery import choose, demo_photograph, render_gallery, square

    if file.suffix.lower() != ".png":
        raise typer.BadParameter(f"{file.name!r} is not a .png file", param_hint="FILE")
    other = None if partner is None else square(_decoded(partner), size)
    rows, left_out = choose([_named_options(text) for text in augmentation or []], other)
    name, pixels = demo_photograph() if image is None else (image.name, _decoded(image))
    picture = render_gallery(square(pixels, size), rows, title=name, columns=columns, seed=seed)
    file.parent.mkdir(parents=True, exist_ok=True)
    picture.save(file, "PNG")
    if json:
        shown = [row.title for row in rows]
        print_json({"gallery": str(file), "augmentations": shown, "left_out": left_out, "seed": seed})
        return
    output.print(f"written: {file} ({picture.width} x {picture.height})", highlight=False, markup=False, soft_wrap=True)
    for missing, why in left_out.items():
        errors.print(f"skipped: {missing} ({why})", style="dim", markup=False, highlight=False)


def parse_options(texts: list[str]) -> dict[str, object]:
    from shiftbench.hardening.recipe import key_value

    pairs = [(text, key_value(text)) for text in texts]
    for text, pair in pairs:
        if pair is None:
            raise typer.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="--option")
    return dict(pair for _, pair in pairs if pair is not None)


def _named_options(text: str) -> tuple[str, dict[str, object]]:
    """``NAME:KEY=VALUE,KEY=VALUE`` taken apart."""
    name, _, rest = text.partition(":")
    return name, parse_options([part for part in rest.split(",") if part])


def _network_options(
    name: str, file: Path | None, train_on: Path | None, seconds: float, quiet: bool
) -> dict[str, str]:
    """The options by which an augmentation finds its networks, given or trained now."""
    if file is None and train_on is None:
        return {}
    if file is not None and train_on is not None:
        raise typer.BadParameter("--network and --train-network exclude each other", param_hint="--network")
    from shiftbench.hardening.augmentations.copies import images_below
    from shiftbench.hardening.augmentations.networks import network_for

    pictures = images_below(train_on) if train_on is not None else None
    found = network_for(name, file, train_on=pictures, seconds=seconds, show=not quiet)
    if not found:
        raise typer.BadParameter(f"{name!r} needs no network", param_hint="--network")
    return found


def _decoded(image: Path) -> Any:
    from shiftbench.datasets.images import decode

    return decode(image, image.name).pixels


def _summary(done: Augmented) -> str:
    part = "" if done.shard.count == 1 else f", shard {done.shard}"
    grid = f"{done.augmentation}: {done.pictures:,} images x {done.copies} {'copy' if done.copies == 1 else 'copies'}"
    if not done.written:
        return f"{grid}{part}: all {done.already:,} already existed, in {done.destination}"
    there = f", {done.already:,} already existed" if done.already else ""
    speed = done.written / max(done.seconds, 1e-9)
    return (
        f"{grid}{part}: {done.written:,} written{there}\n"
        f"in {done.destination}, {done.seconds:,.1f} s, {speed:,.0f} images per second"
    )
