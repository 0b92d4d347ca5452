"""``shiftbench data factors``: how a protocol splits a table."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shiftbench.cli.console import errors, output, print_json, titled

if TYPE_CHECKING:
    from shiftbench.datasets.factor_audit import FactorAudit


def factors_command(
    table: Annotated[Path, typer.Argument(help="CSV, TSV, JSONL or Parquet file, or the folder of DeepFashion2.")],
    protocol: Annotated[
        str, typer.Argument(help="deepfashion-remixed, streetview-storefronts, or your own TOML file.")
    ],
    file: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the table with a column `set` to this CSV file.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
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
    from shiftbench.datasets.factor_audit import audit_factors

    audit = audit_factors(table, protocol)
    if file is not None:
        _write_sets(table, audit, file)
        errors.print(f"written: {file}", style="dim", highlight=False)
    if json:
        print_json(audit.as_dict())
    else:
        _show(audit, protocol, table)
    if not audit.ok:
        raise typer.Exit(1)


def _show(audit: FactorAudit, protocol: str, table: Path) -> None:
    from shiftbench.datasets.factors import protocols
    from shiftbench.reports.factors import audit_tables

    for part in audit_tables(audit):
        output.print(part)
        if part.notes:
            output.print()
    for text in audit.missing:
        output.print(titled("missing:", text), soft_wrap=True)
    suite = protocol if protocol in protocols() else f"factors:{protocol}"
    command = f"shiftbench eval MODEL --suite {suite} --data {audit.protocol}={table}"
    output.print(f"use: {command}", style="dim", markup=False, highlight=False, soft_wrap=True)


def _write_sets(table: Path, audit: FactorAudit, file: Path) -> None:
    """The rows with the sets they belong to; paths stay relative to the table's folder."""
    from shiftbench.datasets.factors import read_table
    from shiftbench.io.atomic import write_atomically

    rows, _ = read_table(table)

    def write(place: Path) -> None:
        with place.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.DictWriter(stream, [*rows[0], "set"], lineterminator="\n")
            writer.writeheader()
            for row, sets in zip(rows, audit.sets_of_rows, strict=True):
                writer.writerow({**row, "set": "+".join(sets)})

    write_atomically(file, write)
