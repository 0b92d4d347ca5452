"""``shiftbench report`` and ``serve``: everything on one page, as a file or live."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shiftbench.cli.console import errors, output, print_json, stoppable
from shiftbench.cli.extras import extra
from shiftbench.cli.options import grouped, workspace_option
from shiftbench.io.paths import place

if TYPE_CHECKING:
    from shiftbench.api import Run
    from shiftbench.reports.page.build import Bar, Choices
    from shiftbench.reports.page.published import Published
    from shiftbench.reports.page.report import Written

_DEFAULT_WORKSPACE = Path("shiftbench-workspace")


@dataclass(frozen=True)
class Content:
    """What the page shows: a workspace, published results, pictures, and how much of each."""

    workspace: Annotated[
        Path | None,
        workspace_option("The folder that `eval` writes to. Default: shiftbench-workspace, if it is there."),
    ] = None
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            "-d",
            help="Published results on the same axes: a table of models by settings (.csv, .parquet), or a folder with "
            "results*.csv and models*.csv such as the ImageNet testbed's.",
        ),
    ] = None
    models: Annotated[
        Path | None,
        typer.Option("--models", "-m", help="What is known about the models: category, base_model, ... (.csv)"),
    ] = None
    images: Annotated[
        list[str] | None,
        typer.Option(
            "--images",
            "-i",
            help="Pictures of the mistakes: FOLDER, or NAME=FOLDER for one of several data sets. Repeatable. "
            "The demo's and CIFAR-10's are found without.",
        ),
    ] = None
    classifier: Annotated[list[str] | None, typer.Option("--classifier", "-c", help="Only these classifiers.")] = None
    setting: Annotated[list[str] | None, typer.Option("--setting", "-s", help="Only these settings.")] = None
    failures: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Mistakes shown of each classifier in each setting, with pictures. Default: up to 12, and pictures "
            "until the page has some 3 MB.",
        ),
    ] = None
    baseline: Annotated[str, typer.Option(help="Category of the models that the line goes through.")] = "standard"
    unit: Annotated[str | None, typer.Option(help="percent or fraction, where the table of --data leaves it open.")] = (
        None
    )
    training: Annotated[
        list[Path] | None,
        typer.Option("--training", help="Curves of `harden train`: a run's folder, or one of several. Repeatable."),
    ] = None
    title: Annotated[str, typer.Option(help="What stands on top of the page.")] = "shiftbench report"
    level: Annotated[float, typer.Option(help="Level of the intervals.")] = 0.95

    @property
    def folder(self) -> Path:
        return self.workspace or _DEFAULT_WORKSPACE

    def published(self) -> Published | None:
        from shiftbench.reports.page.published import read_published

        if self.data is None:
            return None
        return read_published(self.data, self.models, baseline=self.baseline, unit=self.unit)

    def choices(self) -> Choices:
        from shiftbench.hardening.training.log import training_curves
        from shiftbench.reports.page.build import Choices
        from shiftbench.studies.models import read_models

        known = None if self.models is None else read_models(self.models)
        images = parse_images(self.images or [])
        curves = training_curves(self.training or [])
        return Choices(self.title, self.level, self.baseline, self.failures, images, known, curves)

    def run(self) -> Run | None:
        """What a workspace holds; None where there is none and a published table is enough."""
        from shiftbench.api import Run
        from shiftbench.errors import StoreError

        needed = self.data is None
        if self.workspace is None and not needed and not (self.folder / "workspace.json").is_file():
            return None
        run = Run.open(self.folder)
        _check_names("classifier", self.classifier or (), run.classifiers)
        _check_names("setting", self.setting or (), run.settings)
        run = Run.open(run.workspace, self.classifier or (), self.setting or ())
        if not run.results and needed:
            raise StoreError(
                f"nothing to report: {self.folder} holds no finished results",
                hint="let `shiftbench eval` finish; `shiftbench serve` shows a run while it goes on",
            )
        return run


@grouped
def report_command(
    file: Annotated[Path, typer.Option("--output", "-o", help="The file to write.")] = Path("report.html"),
    *,
    content: Content,
    json: Annotated[bool, typer.Option("--json", help="Print what was written as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bars.")] = False,
) -> None:
    """Everything about a workspace in one HTML file that opens anywhere, without a network.

    Accuracy under shift against accuracy without, the line, corruption errors, calibration, the most confident
    mistakes as pictures, and how it was all measured. No model is run.

    \b
    Examples:
      what `eval` wrote
        shiftbench report -w shiftbench-workspace --images val=ImageNet/val -o report.html
      your classifiers among the 204 models of the ImageNet testbed
        shiftbench report -w shiftbench-workspace --data imagenet-testbed/
      a published table alone
        shiftbench report --data results.csv --models models.csv
    """
    from shiftbench.reports.page.report import write_report
    from shiftbench.reports.page.write import check_file_name

    check_file_name(file)
    run, choices, published = content.run(), content.choices(), content.published()
    with stoppable():
        written = write_report(file, run, published, choices, bar=bars(show=not quiet))
    if json:
        print_json(written.as_dict())
    else:
        show_written(written)


def show_written(written: Written) -> None:
    """What the page must admit, where it is, and how to look at it."""
    for note in written.notes:
        errors.print(f"note: {note}", style="dim", markup=False, highlight=False)
    about = f"{written.path}: {written.bytes / 1e6:.1f} MB, {written.counts}"
    output.print(about, markup=False, highlight=False, soft_wrap=True)
    address = Path(written.path).resolve().as_uri()
    output.print(f"open it in a browser: {address}", markup=False, highlight=False, soft_wrap=True)


def bars(*, show: bool = True) -> Bar:
    from shiftbench.jobs.progress import progress_bar

    return lambda what, total: progress_bar(what, total, show=show, console=errors)


def _check_names(kind: str, wanted: Sequence[str], known: Sequence[str]) -> None:
    from shiftbench.errors import UnknownNameError

    for name in wanted:
        if name not in known:
            raise UnknownNameError(kind, name, known)


def parse_images(values: Sequence[str]) -> dict[str, list[Path]]:
    """``FOLDER`` or ``NAME=FOLDER``, by name; "" for those without one."""
    folders: dict[str, list[Path]] = {}
    for value in values:
        name, separator, where = value.partition("=")
        if not separator or Path(value).exists():
            name, where = "", value
        folder = place(where)
        if not folder.exists():
            raise typer.BadParameter(f"there is nothing at {where}", param_hint="--images")
        folders.setdefault(name, []).append(folder)
    return folders


@grouped
def serve_command(
    content: Content,
    *,
    host: Annotated[str, typer.Option(help="Where to listen; anything but this machine needs a token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes any that is free.")] = 8765,
    open_browser: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> None:
    """The page of `report`, live: it follows a run while it goes on. Read-only.

    \b
    Example, in a second terminal:
      shiftbench eval model.onnx --suite corruptions --data photos/
      shiftbench serve --open
    """
    from shiftbench.reports.page.viewer import Viewer

    with extra("web", "the live viewer"):
        from shiftbench.reports.page import server
    published = content.published()
    viewer = Viewer(
        None if content.workspace is None and published is not None else content.folder,
        published,
        content.choices(),
        classifiers=content.classifier or (),
        settings=content.setting or (),
    )
    listener = server.bind(host, port)
    token = None if server.is_loopback(host) else server.new_token()
    address = _address(host, listener.getsockname()[1], token)
    if token is not None:
        errors.print(
            f"[yellow]warning:[/] anyone who can reach {host} and has this address sees the workspace; "
            "there is no encryption",
            highlight=False,
        )
    output.print(f"{address}   (Ctrl-C ends it)", markup=False, highlight=False, soft_wrap=True)
    viewer.snapshot()  # begins to read before anybody asks
    if open_browser:
        typer.launch(address)
    server.serve(server.viewer_app(viewer, token=token), listener)


def _address(host: str, port: int, token: str | None) -> str:
    """What to type into a browser; a server on all addresses is known by the machine's name."""
    import socket

    name = socket.gethostname() if host in ("0.0.0.0", "::") else host
    shown = f"[{name}]" if ":" in name else name
    return f"http://{shown}:{port}/" + (f"?token={token}" if token else "")
