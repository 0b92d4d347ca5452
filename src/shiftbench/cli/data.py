"""``shiftbench data``: identify and check datasets; rebuild Icons-50 from packages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from shiftbench.cli import data_duplicates, data_factors, data_icons
from shiftbench.cli.console import output, print_json
from shiftbench.cli.options import AllowOutside, Json, Labels, TableOptions, grouped, path_or_url
from shiftbench.io.paths import Location

if TYPE_CHECKING:
    from shiftbench.datasets.kind import DataReport

app = typer.Typer(no_args_is_help=True, help="Check datasets before using them; rebuild Icons-50.")
app.command("icons")(data_icons.icons_command)
app.command("factors")(data_factors.factors_command)
app.command("duplicates")(data_duplicates.duplicates_command)


@app.callback()
def _data() -> None:
    pass


@app.command("labels")
@grouped
def labels_command(
    path: Annotated[Location, path_or_url("Dataset with classes of your own.")],
    to: Annotated[str, typer.Option(help="Label space of the model: a name from `list spaces`, or a file.")] = (
        "imagenet-1k"
    ),
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
    from shiftbench.datasets.catalogue import open_dataset
    from shiftbench.labels.catalogue import FOLDERS, label_space
    from shiftbench.reports.label_proposals import proposal_table

    shown.show(proposal_table(open_dataset(path, space=FOLDERS).space, label_space(to)))


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
    from shiftbench.datasets.inspection import inspect_data
    from shiftbench.labels.catalogue import find_label_space

    options = {"allow_outside": True} if allow_outside else {}
    report = inspect_data(path, space=find_label_space(labels), **options)
    if json:
        print_json(report.as_dict())
    else:
        for part in report.parts or [report]:
            show_report(part, labels)
    if not report.ok:
        raise typer.Exit(1)


def show_report(report: DataReport, labels: str | None = None) -> None:
    good, bad = ("usable", "not usable") if report.what is None else ("complete", "incomplete")
    state = (good, "green") if report.ok else (bad, "bold red")
    output.print(Text.assemble((report.path, "bold"), f": {report.what or report.seen}, ", state))
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
    own = f" --labels {labels}" if labels else ""
    if report.suite:
        lines.append(("use", f"shiftbench eval MODEL --suite {report.suite} {_data_options(report)}{own}"))
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
