"""``shiftbench corrupt`` and ``shiftbench preview``: corrupted pictures as files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shiftbench.cli.console import errors, output, print_json, stoppable
from shiftbench.cli.options import ExecutorOptions, grouped, parse_severities, path_or_url

if TYPE_CHECKING:
    from shiftbench.shifts.write import CorruptionsWritten

Corruptions = Annotated[
    str,
    typer.Option(
        "--corruption", "-c", help="all, benchmark, extra, noise, blur, weather, digital, or names; with commas."
    ),
]
Severity = Annotated[str, typer.Option("--severity", "-s", help="3, 1-5 or 1,3,5; also between, such as 2.5.")]
Seed = Annotated[int, typer.Option(help="Seed; the same one gives the same pixels everywhere.")]
Textures = Annotated[
    str | None,
    typer.Option(help="Frost: a folder with the five original pictures, or `procedural`.", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="Print what was done as JSON.")]


@dataclass(frozen=True)
class Files:
    """What the copies look like on disk."""

    format: Annotated[
        str | None,
        typer.Option(
            "--format",
            "-f",
            help="tree (ImageNet-C), arrays (CIFAR-C) or shards (WebDataset tar).",
            show_default="as the source",
        ),
    ] = None
    size: Annotated[
        int | None,
        typer.Option(
            help="Side of the pictures before they are corrupted; 224 and 299 as published.",
            show_default="224; arrays as they are",
        ),
    ] = None
    no_resize: Annotated[bool, typer.Option("--no-resize", help="Take the pictures as they are.")] = False
    lossless: Annotated[bool, typer.Option("--lossless", help="PNG instead of JPEG of quality 85.")] = False
    shard_size: Annotated[int, typer.Option(help="Pictures in a shard.", min=1)] = 1000

    def options(self) -> dict[str, Any]:
        """In the words of ``write_corruptions``."""
        from shiftbench.shifts.write import FORMATS

        if self.format is not None and self.format not in FORMATS:
            raise typer.BadParameter(f"{self.format!r} is not one of {', '.join(FORMATS)}", param_hint="--format")
        if self.no_resize and self.size is not None:
            raise typer.BadParameter("--size and --no-resize exclude each other", param_hint="--no-resize")
        return {
            "format": self.format,
            "size": self.size,
            "resize": not self.no_resize,
            "lossless": self.lossless,
            "shard_size": self.shard_size,
        }


@grouped
def corrupt_command(
    source: Annotated[str, typer.Argument(help="A folder of class folders, an npy file, tar shards, or a name.")],
    destination: Annotated[Path, path_or_url("A new folder, or one that this command began.")],
    corruption: Corruptions = "all",
    severity: Severity = "1-5",
    *,
    files: Files,
    seed: Seed = 0,
    where: ExecutorOptions,
    frost_textures: Textures = None,
    labels: Annotated[
        str | None, typer.Option(help="Label space of the source: a name of `list spaces`, a file, or `folders`.")
    ] = None,
    json: Json = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")] = False,
) -> None:
    """Write corrupted copies of a data set: the ImageNet-C or CIFAR-C of your own pictures.

    Stopped at any moment, the same command continues where it was. With more corruptions or severities it
    extends what is there; with another seed, source or size it refuses to mix them. How the copies were made is
    in shiftbench-corruptions.json beside them.

    \b
    Examples:
      all 19 corruptions, severities 1 to 5, as ImageNet-C
        shiftbench corrupt val/ val-c/
      PNG: the very pixels of an in-memory evaluation
        shiftbench corrupt val/ val-c/ -c fog,snow -s 3 --lossless
      arrays, as CIFAR-10-C
        shiftbench corrupt images.npy images-c/ --labels cifar-10
      on all machines of a Ray cluster, which see the same folders
        shiftbench corrupt val/ val-c/ --executor ray --address HOST:6379
    """
    from shiftbench.shifts.write import write_corruptions

    with stoppable():
        written = write_corruptions(
            source,
            destination,
            names=corruption,
            severities=parse_severities(severity),
            **files.options(),
            seed=seed,
            **where.options(),
            frost_textures=frost_textures,
            labels=labels,
            progress=not quiet,
            console=errors,
        )
    if json:
        print_json(written.summary())
    else:
        output.print(_in_words(written), highlight=False, markup=False)
    tell_skipped(written.skipped)


def preview_command(
    image: Annotated[Path, typer.Argument(help="A picture.")],
    file: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="A PNG file.", show_default="NAME-corruptions.png here"),
    ] = None,
    corruption: Corruptions = "all",
    severity: Severity = "1-5",
    size: Annotated[int | None, typer.Option(help="Side of the picture that is corrupted.")] = 224,
    seed: Seed = 0,
    frost_textures: Textures = None,
    json: Json = False,
) -> None:
    """One picture of a picture under all corruptions at all severities."""
    from shiftbench.datasets.images import decode
    from shiftbench.reports.preview import render_preview
    from shiftbench.shifts.sizes import preparation
    from shiftbench.shifts.write import chosen_shifts

    target = file or Path(f"{image.stem}-corruptions.png")
    if target.suffix.lower() != ".png":
        raise typer.BadParameter(f"{target.name!r} is not a .png file", param_hint="--output")
    shifts = chosen_shifts(corruption, parse_severities(severity), frost_textures)
    pixels = preparation(size)(decode(image, image.name).pixels, image.name)
    picture = render_preview(pixels, shifts, image_id=image.name, seed=seed)
    target.parent.mkdir(parents=True, exist_ok=True)
    picture.save(target, "PNG")
    if json:
        names = list(dict.fromkeys(shift.corruption for shift in shifts))
        severities = sorted({float(shift.severity) for shift in shifts})
        print_json(
            {
                "preview": str(target),
                "width": picture.width,
                "height": picture.height,
                "corruptions": names,
                "severities": severities,
                "seed": seed,
            }
        )
    else:
        output.print(f"written: {target} ({picture.width} x {picture.height})", highlight=False, markup=False)


def _in_words(written: CorruptionsWritten) -> str:
    grid = f"{len(written.corruptions)} corruptions x {len(written.severities)} severities of {written.images:,} images"
    if not written.written:
        return f"{grid}: all {written.already:,} were there already, in {written.destination}"
    there = f", {written.already:,} were there already" if written.already else ""
    speed = written.written / max(written.seconds, 1e-9)
    return (
        f"{grid}: {written.written:,} written{there}\n"
        f"{written.format} in {written.destination}, {written.seconds:,.1f} s, {speed:,.0f} a second"
    )


def tell_skipped(skipped: dict[str, str], most: int = 10) -> None:
    if not skipped:
        return
    errors.print(f"{len(skipped)} pictures could not be used and were left out:", style="yellow", highlight=False)
    for image_id, why in list(skipped.items())[:most]:
        errors.print(f"  {image_id}: {why}", style="dim", markup=False, highlight=False)
    if len(skipped) > most:
        errors.print(f"  ... and {len(skipped) - most} more (all are in the record)", style="dim", highlight=False)
