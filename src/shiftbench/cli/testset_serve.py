"""``shiftbench testset serve`` and ``review``: the pages for annotators, reviewers and leads."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shiftbench.cli.console import errors, extra, output, print_json, titled
from shiftbench.cli.options import grouped
from shiftbench.cli.testset_options import Database, Folder
from shiftbench.io.atomic import write_atomically

if TYPE_CHECKING:
    from shiftbench.testsets import Project
    from shiftbench.testsets.accounts import InvitationLink

PORT = 8780
#: The file in the project folder that says where the pages were served last; `invite` reads it.
ADDRESS = "address.txt"


@dataclass(frozen=True)
class ServerOptions:
    """Address, proxy and database of the server."""

    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all networks.")] = "127.0.0.1"
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 for any free port.")] = PORT
    public_url: Annotated[
        str | None,
        typer.Option(help="URL of the HTTPS proxy in front of the server: https://NAME."),
    ] = None
    database: Database = None
    open_browser: Annotated[bool, typer.Option("--open", help="Open the pages in the browser.")] = False
    json: Annotated[bool, typer.Option("--json", help="Print addresses and links as JSON once the server listens.")] = (
        False
    )


@grouped
def serve_command(
    folder: Folder,
    server: ServerOptions,
    recruit: Annotated[
        bool,
        typer.Option("--recruit", help="Open one public link for people of Prolific, MTurk or a mailing list."),
    ] = False,
) -> None:
    """Serve the pages for annotators, reviewers and leads, until Ctrl-C.

    The first start prints a link for the lead, who invites the others. For remote access, put an HTTPS proxy in front
    and pass its URL with --public-url.

    With --recruit, the printed link takes anybody whom a platform sends: Prolific's PROLIFIC_PID, MTurk's
    ExternalQuestion parameters, or ?worker=ID. Limits, qualification, completion code and pay are in [recruiting] of
    testset.toml; `testset pay` lists what is due.

    \b
    Examples:
      shiftbench testset serve pets
      shiftbench testset serve pets --public-url https://pets.lab.example
    """

    def link(project: Project) -> InvitationLink | None:
        from shiftbench.testsets.web.app import first_lead_link

        return first_lead_link(project)

    _serve(folder, server, link, recruit=recruit)


@grouped
def review_command(
    folder: Folder,
    server: ServerOptions,
    name: Annotated[str, typer.Option(help="Name of the reviewer.")] = "reviewer",
) -> None:
    """Serve the pages and print a link for a reviewer.

    \b
    Example:
      shiftbench testset review pets --name anna --open
    """

    def link(project: Project) -> InvitationLink:
        from shiftbench.testsets.web.app import one_time_link

        return one_time_link(project, "reviewer", name)

    _serve(folder, server, link)


def _serve(
    folder: Path, server: ServerOptions, make_link: Callable[[Project], InvitationLink | None], *, recruit: bool = False
) -> None:
    from shiftbench.testsets import Project

    with extra("testsets", "the pages of the workshop"):
        from shiftbench.testsets.web import app as web
    origin = None if server.public_url is None else web.public_origin(server.public_url)
    project = Project.open(folder, database=server.database)
    listener = web.bind(server.host, server.port)
    loopback = web.is_loopback(server.host)
    address = origin or f"http://{'localhost' if loopback else server.host}:{listener.getsockname()[1]}"
    if origin is None and not loopback:
        errors.print(titled("warning:", "without HTTPS, sessions can be hijacked on the network", "yellow"))
    link = make_link(project)
    joining = None if link is None else f"{address}/join/{link.token}"
    recruiting = None
    if recruit:
        from shiftbench.testsets.recruiting import recruiting_token

        recruiting = f"{address}/recruit/{recruiting_token(project)}"
    if server.json:
        print_json({"address": address, "name": link and link.name, "link": joining, "recruiting": recruiting})
    else:
        if link is not None:
            _say(f"{link.name}: {joining}   (valid for one day, for one person)")
        if recruiting is not None:
            _say(f"recruiting: {recruiting}?PROLIFIC_PID=...   (for everybody)")
        _say(f"{address}   (press Ctrl-C to stop)")
    sys.stdout.flush()
    write_atomically(folder / ADDRESS, lambda path: path.write_text(f"{address}\n"), durable=False)
    if server.open_browser:
        typer.launch(joining or address)
    try:
        web.serve(project, listener, public_url=origin, recruiting=recruit)
    finally:
        project.close()


def _say(text: str) -> None:
    output.print(text, highlight=False, markup=False, soft_wrap=True)
