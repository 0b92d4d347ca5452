"""``shiftbench corrupt`` and ``shiftbench preview``: corrupted images as files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, cast

import typer

import shiftbench as sb
from shiftbench.cli.console import kept_warnings, print_images, print_warnings, show, stoppable
from shiftbench.cli.options import (
    ExecutorOptions,
    Json,
    Limit,
    Quiet,
    Seed,
    Split,
    TextureOptions,
    choice,
    parse_severities,
    path_or_url,
)
from shiftbench.io.paths import Location

if TYPE_CHECKING:
    from shiftbench.shifts.write import CorruptionsWritten

Corruptions = Annotated[
    str, "--corruption", "-c", "all, benchmark, extra, noise, blur, weather, digital, or names; comma-separated."
]
Severity = Annotated[str, "--severity", "-s", "3, 1-5 or 1,3,5; fractions such as 2.5 are allowed."]


@dataclass(frozen=True)
class FileOptions:
    """Layout and encoding of the copies."""

    panel: ClassVar[str] = "Files"
    format: Annotated[
        str | None,
        "-f",
        {"show_default": "as the source"},
        "tree (ImageNet-C), arrays (CIFAR-C), shards (WebDataset tar) or huggingface (Parquet).",
    ] = None
    size: Annotated[
        int | None,
        {"show_default": "224; arrays as they are"},
        "Image side before corruption; 224, 299 and 64 as published.",
    ] = None
    no_resize: Annotated[bool, "Do not resize the images."] = False
    exif: Annotated[
        str | None,
        {"show_default": "ignore, with a warning if there is one"},
        "The orientation in EXIF data: ignore, or apply.",
    ] = None
    alpha: Annotated[
        str | None,
        {"show_default": "drop, with a warning if there are any"},
        "Transparent images: drop the alpha channel, or lay them on white or black.",
    ] = None
    lossless: Annotated[bool, "PNG instead of JPEG of quality 85."] = False
    shard_size: Annotated[int, {"min": 1}, "Images per tar or Parquet file."] = 1000


def corrupt_command(
    source: Annotated[
        str, typer.Argument(help="A folder of class folders, an npy file, tar shards, or a dataset name.")
    ],
    destination: Annotated[Location, path_or_url("A new folder, or one to continue.")],
    corruption: Corruptions = "all",
    severity: Severity = "1-5",
    *,
    files: FileOptions,
    seed: Seed = 0,
    shard: Annotated[str | None, "Only job I of N that share the work, as I/N."] = None,
    where: ExecutorOptions,
    style: TextureOptions,
    split: Split = None,
    sample: Limit = None,
    labels: Annotated[str | None, "Label space of the source: a name from `list spaces`, a file, or `folders`."] = None,
    verify: Annotated[bool, "Read the files that exist, and write those again that are not what was written."] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write corrupted copies of a dataset: the ImageNet-C or CIFAR-C of your own images.

    An interrupted run resumes with the same command. With more corruptions or severities it extends the folder; with
    another seed, source or size it fails instead of mixing them. shiftbench-corruptions.json in the folder records how
    the copies were made. Files whose size is not what was written are written again; --verify compares their bytes.

    \b
    Examples:
      all 19 corruptions, severities 1 to 5, as ImageNet-C
        shiftbench corrupt val/ val-c/
      PNG: exactly the pixels of an in-memory evaluation
        shiftbench corrupt val/ val-c/ -c fog,snow -s 3 --lossless
      style transfer at five severities
        shiftbench corrupt val/ val-s/ -c style_transfer --style-network decoder.pth
      arrays, as CIFAR-10-C
        shiftbench corrupt images.npy images-c/ --labels cifar-10
      on all machines of a Ray cluster that see the same folders
        shiftbench corrupt val/ val-c/ --executor ray --address HOST:6379
    """
    from shiftbench.settings.roles import path_of_split
    from shiftbench.shifts.write import FORMATS

    layout: Any = None
    if files.format is not None:
        layout = choice(files.format, FORMATS, "--format")
    if files.exif is not None:
        choice(files.exif, ("ignore", "apply"), "--exif")
    if files.alpha is not None:
        choice(files.alpha, ("drop", "white", "black"), "--alpha")
    if files.no_resize and files.size is not None:
        raise typer.BadParameter("--size and --no-resize exclude each other", param_hint="--no-resize")
    with stoppable(), kept_warnings() as warned:
        copies = sb.write_corruptions(
            path_of_split(source, split),
            destination,
            names=corruption,
            severities=parse_severities(severity),
            format=layout,
            size=files.size,
            resize=not files.no_resize,
            lossless=files.lossless,
            shard_size=files.shard_size,
            exif=cast(Literal["ignore", "apply"] | None, files.exif),
            alpha=cast(Literal["drop", "white", "black"] | None, files.alpha),
            seed=seed,
            sample=sample,
            shard=shard,
            **where.options(),
            **vars(style),
            labels=labels,
            verify=verify,
            progress=not quiet,
        )
    show(copies.summary(), _copies_text(copies), as_json=json)
    print_images(list(copies.skipped.items()), "could not be used and were skipped", "all are in the record")
    print_warnings(warned)


def _copies_text(copies: CorruptionsWritten) -> str:
    """How many copies were written, where, and how fast; how many of them an earlier run had written."""
    grid = f"{len(copies.corruptions)} corruptions x {len(copies.severities)} severities of {copies.images:,} images"
    if not copies.written:
        return f"{grid}: all {copies.already:,} already there, in {copies.destination}"
    counts = f"{copies.written:,} written"
    if copies.already:
        counts += f", {copies.already:,} already there"
    speed = copies.written / max(copies.seconds, 1e-9)
    return f"{grid}: {counts}\n{copies.format} in {copies.destination}, {copies.seconds:,.1f} s, {speed:,.0f}/s"


def preview_command(
    image: Annotated[Path, typer.Argument(help="An image file.")],
    file: Annotated[
        Path | None, "--output", "-o", {"show_default": "NAME-corruptions.png"}, "PNG file to write."
    ] = None,
    corruption: Corruptions = "all",
    severity: Severity = "1-5",
    size: Annotated[int | None, "Image side before corruption."] = 224,
    seed: Seed = 0,
    *,
    style: TextureOptions,
    json: Json = False,
) -> None:
    """Draw one image under all corruptions at all severities."""
    from shiftbench.datasets.images import decode
    from shiftbench.io.atomic import write_atomically
    from shiftbench.reports.preview import render_preview
    from shiftbench.shifts.write import chosen_shifts, preparation

    target = file or Path(f"{image.stem}-corruptions.png")
    if target.suffix.lower() != ".png":
        raise typer.BadParameter(f"expected a .png file, found {target.name!r}", param_hint="--output")
    options = {"frost_textures": style.frost_textures, "network": style.style_network, "styles": style.styles}
    shifts = chosen_shifts(corruption, parse_severities(severity), options)
    pixels = preparation(size)(decode(image, image.name).pixels, image.name)
    rendered = render_preview(pixels, shifts, image_id=image.name, seed=seed)
    write_atomically(target, lambda temporary: rendered.save(temporary, "PNG"))
    description = {
        "preview": str(target),
        "width": rendered.width,
        "height": rendered.height,
        "corruptions": list(dict.fromkeys(shift.corruption for shift in shifts)),
        "severities": sorted({float(shift.severity) for shift in shifts}),
        "seed": seed,
    }
    show(description, f"written: {target} ({rendered.width} x {rendered.height})", as_json=json)
