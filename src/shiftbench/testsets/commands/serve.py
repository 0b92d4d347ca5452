"""``shiftbench testset``: the pages (``serve``, ``review``) and the people who work on them."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated, ClassVar

import typer

from shiftbench.cli.console import errors, extra, output, print_json, titled
from shiftbench.cli.options import Commands, Json, TableOptions
from shiftbench.io.atomic import write_bytes
from shiftbench.testsets.commands.options import Database, Folder, ProjectOptions, report

app = Commands("")
PORT = 8780
#: The file in the project folder that says where the pages were served last; `invite` reads it.
ADDRESS = "address.txt"


@dataclass(frozen=True)
class ServerOptions:
    """The project, and the address and proxy of its server."""

    panel: ClassVar[str] = "Server"
    folder: Folder
    host: Annotated[str, "Address to listen on; 0.0.0.0 for all networks."] = "127.0.0.1"
    port: Annotated[int, {"min": 0, "max": 65535}, "Port; 0 for any free port."] = PORT
    public_url: Annotated[str | None, "URL of the HTTPS proxy in front of the server: https://NAME."] = None
    database: Database = None
    open_browser: Annotated[bool, "--open", "Open the pages in the browser."] = False
    json: Annotated[bool, "--json", "Print addresses and links as JSON once the server listens."] = False


@app.command("serve")
def serve_command(
    server: ServerOptions,
    recruit: Annotated[
        bool, "--recruit", "Open one public link for people of Prolific, MTurk or a mailing list."
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
    _serve(server, recruit=recruit)


@app.command("review")
def review_command(
    server: ServerOptions,
    name: Annotated[str, "Name of the reviewer."] = "reviewer",
) -> None:
    """Serve the pages and print a link for a reviewer.

    \b
    Example:
      shiftbench testset review pets --name anna --open
    """
    _serve(server, reviewer=name)


def _serve(server: ServerOptions, *, reviewer: str | None = None, recruit: bool = False) -> None:
    from shiftbench.testsets import Project
    from shiftbench.testsets.accounts import invite
    from shiftbench.testsets.recruiting import recruiting_token

    with extra("testsets", "the pages of the workshop"):
        from shiftbench.testsets.web import app as web
    origin = None if server.public_url is None else web.public_origin(server.public_url)
    project = Project.open(server.folder, database=server.database)
    listener = web.bind(server.host, server.port)
    loopback = web.is_loopback(server.host)
    address = origin or f"http://{'localhost' if loopback else server.host}:{listener.getsockname()[1]}"
    if origin is None and not loopback:
        errors.print(titled("warning:", "without HTTPS, sessions can be hijacked on the network", "yellow"))
    if reviewer is None:
        link = web.first_lead_link(project)
    else:
        link = invite(project, "reviewer", reviewer, days=web.LINK_DAYS)
    joining = None if link is None else f"{address}/join/{link.token}"
    recruiting = f"{address}/recruit/{recruiting_token(project)}" if recruit else None
    if server.json:
        print_json({"address": address, "name": link and link.name, "link": joining, "recruiting": recruiting})
    else:
        if link is not None:
            _say(f"{link.name}: {joining}   (valid for one day, for one person)")
        if recruiting is not None:
            _say(f"recruiting: {recruiting}?PROLIFIC_PID=...   (for everybody)")
        _say(f"{address}   (press Ctrl-C to stop)")
    sys.stdout.flush()
    write_bytes(server.folder / ADDRESS, f"{address}\n".encode())
    if server.open_browser:
        typer.launch(joining or address)
    try:
        web.serve(project, listener, public_url=origin, recruiting=recruit)
    finally:
        project.close()


def _say(text: str) -> None:
    output.print(text, highlight=False, markup=False, soft_wrap=True)


@app.command("invite")
def invite_command(
    at: ProjectOptions,
    names: Annotated[list[str] | None, typer.Argument(help="Names of people; one link each.")] = None,
    role: Annotated[str, "annotator, reviewer or lead."] = "annotator",
    people: Annotated[int, "Number of additional links without names."] = 0,
    days: Annotated[float, "Days until the links expire."] = 30,
    base: Annotated[str | None, "Base URL of the pages (default: where `serve` last served them)."] = None,
    json: Json = False,
) -> None:
    """Create personal invitation links. They are shown only once; the database stores their hashes."""
    from shiftbench.testsets.accounts import invite

    with at.opened() as project:
        served = at.folder / ADDRESS
        base = base or (served.read_text().strip() if served.is_file() else f"http://localhost:{PORT}")
        wanted = [*(names or []), *([""] * people)] or [""]
        made = [invite(project, role, name, days=days) for name in wanted]  # type: ignore[arg-type]
    links = [
        {"name": link.name, "role": link.role, "link": f"{base.rstrip('/')}/join/{link.token}",
         "expires": link.expires_at.isoformat()}
        for link in made
    ]  # fmt: skip
    if json:
        print_json(links)
        return
    for link in links:
        output.print(f"{link['name'] or link['role']}: {link['link']}", highlight=False, soft_wrap=True, markup=False)


@app.command("exclude")
def exclude_command(
    at: ProjectOptions,
    name: Annotated[str, typer.Argument(help="Name of the annotator.")],
    because: Annotated[str, "Reason; recorded in the audit log."],
    readmit: Annotated[bool, "--readmit", "Undo an exclusion."] = False,
    json: Json = False,
) -> None:
    """Stop counting an annotator's answers. They are kept, and the tasks go to others."""
    from shiftbench.testsets import accounts

    with at.opened() as project:
        person = accounts.find_person(project, name)
        count = accounts.exclude(project, person.id, because, back=readmit)
    done = {"annotator": name, "excluded": not readmit, "tasks": count}
    report(done, f"{{annotator}}: {{tasks}} tasks {'count again' if readmit else 'returned to the queue'}", json=json)


@app.command("pay")
def pay_command(at: ProjectOptions, *, table: TableOptions) -> None:
    """List recruited annotators: platform and worker id, tasks, minutes, control images, completion code, pay."""
    from shiftbench.testsets.recruiting import pay_table

    with at.opened() as project:
        table.show(pay_table(project))


@app.command("log")
def log_command(
    at: ProjectOptions,
    last: Annotated[int, "Number of entries."] = 50,
    *,
    table: TableOptions,
) -> None:
    """Show the audit log, newest entries first."""
    from shiftbench.testsets.project import audit_log
    from shiftbench.testsets.reports import audit_table

    with at.opened() as project:
        table.show(audit_table(audit_log(project, last=last)))
