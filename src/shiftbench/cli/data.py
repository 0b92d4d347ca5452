"""``shiftbench data``: identify and check datasets; rebuild Icons-50 from packages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from shiftbench.cli import data_factors, data_icons
from shiftbench.cli.console import output, print_json
from shiftbench.cli.options import path_or_url
from shiftbench.io.paths import Location

if TYPE_CHECKING:
    from shiftbench.datasets.kind import DataReport

app = typer.Typer(no_args_is_help=True, help="Check datasets before using them; rebuild Icons-50.")
app.command("icons")(data_icons.icons_command)
app.command("factors")(data_factors.factors_command)


@app.callback()
def _data() -> None:
    pass


@app.command("check")
def check_command(
    path: Annotated[Location, path_or_url("Dataset, or folder of datasets; may be a URL.")],
    json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Identify a published dataset, count its images, and report what is missing and where to get it.

    Nothing is downloaded and no image is decoded. Exit code 1 if something is missing.
    """
    from shiftbench.datasets.inspection import inspect_data

    report = inspect_data(path)
    if json:
        print_json(report.as_dict())
    else:
        for part in report.parts or [report]:
            show_report(part)
    if not report.ok:
        raise typer.Exit(1)


def show_report(report: DataReport) -> None:
    state = "[green]complete[/]" if report.ok else "[bold red]incomplete[/]"
    if report.what is None:
        state = "[green]usable[/]" if report.ok else "[bold red]not usable[/]"
    output.print(f"[bold]{report.path}[/]: {report.what or report.seen}, {state}", highlight=False)
    lines = [("seen", report.seen)] if report.what else []
    if report.images:
        lines.append(("images", _of(report.images, report.images_expected)))
    if report.classes:
        space = f" ({report.space})" if report.space else ""
        lines.append(("classes", _of(report.classes, report.classes_expected) + space))
    lines += [("note", note) for note in report.notes]
    lines += [("missing" if report.what else "why", text) for text in report.missing]
    if report.missing and report.home:
        lines.append(("from", report.home))
    if report.suite:
        lines.append(("use", f"shiftbench eval MODEL --suite {report.suite} {_data_options(report)}"))
    for title, text in lines:
        output.print(f"  {title + ':':<9}{text}", highlight=False, markup=False, soft_wrap=True)


def _data_options(report: DataReport) -> str:
    """``--data`` for this folder, and for everything else that the suite requires."""
    from shiftbench.settings.base import SuiteOptions, build_suite

    name, _, more = (report.suite or "").partition(" ")
    settings = build_suite(name, SuiteOptions(source="on-disk" if more else "in-memory")).settings
    needed = {setting.dataset.split("/")[0] for setting in settings if not setting.optional}
    others = sorted(needed - {report.role, "cifar-10"})  # CIFAR-10 comes from a registry package
    return " ".join([f"--data {report.role}={report.path}", *(f"--data {role}=FOLDER" for role in others)])


def _of(count: int, expected: int | None) -> str:
    return f"{count:,}" if expected in (None, count) else f"{count:,} of {expected:,}"
