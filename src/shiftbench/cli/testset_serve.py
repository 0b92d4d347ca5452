"""``shiftbench testset serve`` and ``review``: the pages for annotators, reviewers and the lead."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shiftbench.cli.console import errors, output
from shiftbench.cli.extras import extra
from shiftbench.cli.options import grouped

if TYPE_CHECKING:
    from shiftbench.testsets import Project
    from shiftbench.testsets.accounts import Link

PORT = 8780

Folder = Annotated[Path, typer.Argument(help="The project's folder.")]


@dataclass(frozen=True)
class Pages:
    """Where pages are served, and from which database."""

    host: Annotated[str, typer.Option(help="Where to listen; 0.0.0.0 for all who can reach this machine.")] = (
        "127.0.0.1"
    )
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes any that is free.")] = PORT
    public_url: Annotated[
        str | None,
        typer.Option(help="Where people reach the pages behind a proxy: https://NAME. Cookies then need HTTPS."),
    ] = None
    database: Annotated[
        str | None, typer.Option("--database", help="Default: SHIFTBENCH_DATABASE, then testset.toml.")
    ] = None
    open_browser: Annotated[bool, typer.Option("--open", help="Open them in the browser.")] = False


@grouped
def serve_command(folder: Folder, pages: Pages) -> None:
    """Serve the pages for annotators, reviewers and the lead, until Ctrl-C.

    The first start prints a link for the lead, who invites the others. People elsewhere need HTTPS: put a proxy in
    front, and say its address with --public-url.

    \b
    Examples:
      shiftbench testset serve pets
      shiftbench testset serve pets --public-url https://pets.lab.example
    """

    def link(project: Project) -> Link | None:
        from shiftbench.testsets.web.serving import first_lead_link

        return first_lead_link(project)

    _serve(folder, pages, link)


@grouped
def review_command(
    folder: Folder,
    pages: Pages,
    name: Annotated[str, typer.Option(help="Under which name you review.")] = "reviewer",
) -> None:
    """Serve the pages, with a link for a reviewer: the sampled images of each class above, references below.

    \b
    Example:
      shiftbench testset review pets --name anna --open
    """

    def link(project: Project) -> Link:
        from shiftbench.testsets.web.serving import one_time_link

        return one_time_link(project, "reviewer", name)

    _serve(folder, pages, link)


def _serve(folder: Path, pages: Pages, make_link: Callable[[Project], Link | None]) -> None:
    from shiftbench.testsets import Project

    with extra("testsets", "the pages of the workshop"):
        from shiftbench.testsets.web import serving
    origin = None if pages.public_url is None else serving.public_origin(pages.public_url)
    project = Project.open(folder, database=pages.database)
    listener = serving.bind(pages.host, pages.port)
    loopback = serving.is_loopback(pages.host)
    address = origin or f"http://{'localhost' if loopback else pages.host}:{listener.getsockname()[1]}"
    if origin is None and not loopback:
        errors.print("[yellow]warning:[/] without HTTPS, who listens on the network can take over sessions",
                     highlight=False)  # fmt: skip
    link = make_link(project)
    shown = address if link is None else f"{address}/join/{link.token}"
    if link is not None:
        _say(f"{link.name}: {shown}   (valid for a day, for one person)")
    _say(f"{address}   (Ctrl-C ends it)")
    if pages.open_browser:
        typer.launch(shown)
    try:
        serving.serve(project, listener, public_url=origin)
    finally:
        project.close()


def _say(text: str) -> None:
    output.print(text, highlight=False, markup=False, soft_wrap=True)
