"""``shiftbench report`` and ``serve``: all results on one page, as a file or live."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import shiftbench as sb
from shiftbench.cli.console import errors, extra, output, print_json, stoppable, titled
from shiftbench.cli.options import DEFAULT_WORKSPACE, Json, Level, ModelNames, Quiet, SettingNames, workspace_option
from shiftbench.io.paths import Location, place

if TYPE_CHECKING:
    from shiftbench.reports.page.published import Published
    from shiftbench.reports.page.report_data import ReportOptions
    from shiftbench.reports.page.write import ReportSummary

#: Notes that the terminal shows; the page has all of them.
_MOST_NOTES = 12


@dataclass(frozen=True)
class ReportContent:
    """What the page shows: a workspace, published results, images, and how much of each."""

    workspace: Annotated[
        Location | None,
        workspace_option("Workspace to report on (default: shiftbench-workspace, if it exists)."),
    ] = None
    data: Annotated[
        Path | None,
        "-d",
        {"panel": "Published results"},
        "Published results to show on the same axes: a table of models by settings (.csv, .parquet), or a folder that "
        "holds one, such as the ImageNet testbed's.",
    ] = None
    all_models: Annotated[
        bool, {"panel": "Published results"}, "All models of the testbed's public table, not only the paper's 204."
    ] = False
    models: Annotated[
        Path | None, "-m", {"panel": "Published results"}, "Table of the models' category, base_model, ... (.csv)"
    ] = None
    images: Annotated[
        list[str] | None,
        "-i",
        {"panel": "Images"},
        "Where the images are, to show misclassified ones: FOLDER, or NAME=FOLDER for one of several datasets "
        "(repeatable). Not needed if they are still where `eval` read them.",
    ] = None
    classifier: ModelNames = None
    setting: SettingNames = None
    failures: Annotated[
        int | None,
        {"panel": "Images", "min": 0},
        "Misclassified images per model and setting (default: up to 12, within a page of about 3 MB).",
    ] = None
    baseline: Annotated[str, {"panel": "Published results"}, "Category of the models that the line goes through."] = (
        "standard"
    )
    unit: Annotated[
        str | None, {"panel": "Published results"}, "Unit of --data, if ambiguous: percent or fraction."
    ] = None
    training: Annotated[
        list[Path] | None, "Folder of a `harden train` run, or of several, to show as curves (repeatable)."
    ] = None
    title: Annotated[str, "Report title."] = "shiftbench report"
    level: Level = 0.95

    @property
    def folder(self) -> Location:
        return self.workspace or DEFAULT_WORKSPACE

    def published(self) -> Published | None:
        from shiftbench.published.importers import open_table
        from shiftbench.reports.page.published import Published

        if self.data is None:
            return None
        study = open_table(self.data, self.models, baseline=self.baseline, unit=self.unit, all_models=self.all_models)
        return Published(self.data.name, study)

    def options(self) -> ReportOptions:
        from shiftbench.reports.page.report_data import ReportOptions
        from shiftbench.reports.page.sections.training import training_curves
        from shiftbench.studies.models import read_models

        models = None if self.models is None else read_models(self.models)
        images = parse_images(self.images or [])
        curves = training_curves(self.training or [])
        return ReportOptions(self.title, self.level, self.baseline, self.failures, images, models, curves)

    def run(self) -> sb.Run | None:
        """The results of the workspace; None if there is none and a published table is enough."""
        from shiftbench.errors import StoreError

        is_needed = self.data is None
        if self.workspace is None and not is_needed and not (self.folder / "workspace.json").is_file():
            return None
        run = sb.Run.open(self.folder, self.classifier or (), self.setting or ())
        if not run.results and is_needed:
            raise StoreError(
                f"nothing to report: {self.folder} holds no finished results",
                hint="wait for `shiftbench eval` to finish; `shiftbench serve` shows a run while it is in progress",
            )
        return run


def report_command(
    file: Annotated[Path, "--output", "-o", "HTML file to write."] = Path("report.html"),
    *,
    content: ReportContent,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write a self-contained HTML report of a workspace; it opens in any browser, offline.

    It opens with a summary and shows accuracy under shift against accuracy without shift, effective robustness,
    corruption errors, calibration, the most confident mistakes as images, and the methods. No model is run.

    \b
    Examples:
      the results of `eval`
        shiftbench report -w W --images val=ImageNet/val -o report.html
      your models among the 204 models of the ImageNet testbed
        shiftbench report -w W --data imagenet-testbed/
      a published table without a workspace
        shiftbench report --data results.csv --models models.csv
    """
    from shiftbench.jobs.progress import progress_bar
    from shiftbench.reports.page.write import write_report

    run = content.run()
    options = content.options()
    published = content.published()
    with stoppable():
        written = write_report(file, run, published, options, bar=partial(progress_bar, show=not quiet))
    if json:
        print_json(written.as_dict())
    else:
        show_written(written)


def show_written(written: ReportSummary) -> None:
    """Print the report's first notes, its path and its address."""
    for note in written.notes[:_MOST_NOTES]:
        errors.print(f"note: {note}", style="dim")
    further = len(written.notes) - _MOST_NOTES
    if further > 0:
        errors.print(f"note: {further} more on the page, under Warnings", style="dim")
    output.print(f"{written.path}: {written.bytes / 1e6:.1f} MB, {written.counts}", soft_wrap=True)
    address = Path(written.path).resolve().as_uri()
    output.print(f"open in a browser: {address}", soft_wrap=True)


def parse_images(values: Sequence[str]) -> dict[str, list[Location]]:
    """Parse ``FOLDER`` and ``NAME=FOLDER``; folders without a name are under ""."""
    folders: dict[str, list[Location]] = {}
    for value in values:
        name, separator, path = value.partition("=")
        # A folder may have "=" in its name.
        if not separator or Path(value).exists():
            name = ""
            path = value
        folder = place(path)
        if not folder.exists():
            raise typer.BadParameter(f"{path} does not exist", param_hint="--images")
        folders.setdefault(name, []).append(folder)
    return folders


def serve_command(
    content: ReportContent,
    *,
    host: Annotated[
        str, {"panel": "Server"}, "Address to listen on. Other than loopback, readers need the printed token."
    ] = "127.0.0.1",
    port: Annotated[int, {"panel": "Server", "min": 0, "max": 65535}, "Port to listen on; 0 picks a free one."] = 8765,
    open_browser: Annotated[bool, "--open", {"panel": "Server"}, "Open the page in the browser."] = False,
    read_only: Annotated[bool, {"panel": "Server"}, "Do not let readers tag images."] = False,
) -> None:
    """Serve the page of `report` live: it follows a run in progress, and readers can tag misclassified images.

    Tags are kept in the workspace; `study tags` counts them. Nothing else is written.

    \b
    Example, in a second terminal:
      shiftbench eval model.onnx --suite corruptions --data photos/
      shiftbench serve --open
    """
    from shiftbench.reports.page.viewer import Viewer

    with extra("web", "the live viewer"):
        from shiftbench.reports.page import server
    published = content.published()
    # Published results alone need no workspace.
    is_published_only = content.workspace is None and published is not None
    viewer = Viewer(
        None if is_published_only else content.folder,
        published,
        content.options(),
        classifiers=content.classifier or (),
        settings=content.setting or (),
        read_only=read_only,
    )
    listener = server.bind(host, port)
    token = None if server.is_loopback(host) else server.new_token()
    address = _address(host, listener.getsockname()[1], token)
    if token is not None:
        permission = "read the workspace"
        if not read_only:
            permission += " and tag its images (--read-only forbids it)"
        text = f"anyone who can reach {host} and has this address can {permission}; it is not encrypted"
        errors.print(titled("warning:", text, "yellow"))
    output.print(f"{address}   (stop with Ctrl-C)", soft_wrap=True)
    # The viewer starts to read before the first request.
    viewer.snapshot()
    if open_browser:
        typer.launch(address)
    server.serve(server.viewer_app(viewer, token=token), listener)


def _address(host: str, port: int, token: str | None) -> str:
    """The URL of the page; a server on all addresses is reached by the machine's name."""
    import socket

    name = socket.gethostname() if host in ("0.0.0.0", "::") else host
    if ":" in name:
        # An IPv6 address is in brackets, so that its colons are not read as that of the port.
        name = f"[{name}]"
    address = f"http://{name}:{port}/"
    if token:
        address += f"?token={token}"
    return address
