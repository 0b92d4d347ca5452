"""``shiftbench testset``: the pages (``serve``, ``review``) and the people who work on them."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from json import dumps as json_text
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar
from urllib.parse import urlencode

import typer

from shiftbench.extend.commands import Commands, Json, TableOptions, errors, extra, output, print_json
from shiftbench.extend.io import write_bytes
from shiftbench.testsets.commands.options import Database, Folder, ProjectOptions, report

if TYPE_CHECKING:
    from shiftbench.testsets import Project

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
    """Print the addresses of the pages and a personal link, and serve until Ctrl-C.

    Args:
        server: The project and its server.
        reviewer: Whom the link is for; without one, it is for the lead, if none has signed in yet.
        recruit: Whether people of a platform may join by a public link.
    """
    from shiftbench.testsets import Project
    from shiftbench.testsets.accounts import invite
    from shiftbench.testsets.recruiting import recruiting_token

    with extra("testsets", "the pages of the workshop"):
        from shiftbench.testsets.web import app as web
    origin = None if server.public_url is None else web.public_origin(server.public_url)
    project = Project.open(server.folder, database=server.database)
    # The socket listens before anything is printed, so that a port that is in use creates no link.
    listener = web.bind(server.host, server.port)
    is_local = web.is_loopback(server.host)
    if origin is not None:
        address = origin
    else:
        host = "localhost" if is_local else server.host
        address = f"http://{host}:{listener.getsockname()[1]}"
        if not is_local:
            errors.print("warning: without HTTPS, sessions can be hijacked on the network", style="yellow")
    if reviewer is None:
        link = web.first_lead_link(project)
    else:
        link = invite(project, "reviewer", reviewer, days=web.LINK_DAYS)
    addresses = _Addresses(
        pages=address,
        name=None if link is None else link.name,
        joining=None if link is None else f"{address}/join/{link.token}",
        recruiting=f"{address}/recruit/{recruiting_token(project)}" if recruit else None,
    )
    _print_addresses(addresses, project, as_json=server.json)
    write_bytes(server.folder / ADDRESS, f"{address}\n".encode())
    if server.open_browser:
        typer.launch(addresses.joining or address)
    try:
        web.serve(project, listener, public_url=origin, recruiting=recruit)
    finally:
        project.close()


@dataclass(frozen=True)
class _Addresses:
    """The URLs of a server: of its pages, of a personal link with the name of the person, and for recruited people."""

    pages: str
    name: str | None
    joining: str | None
    recruiting: str | None


def _print_addresses(addresses: _Addresses, project: Project, *, as_json: bool) -> None:
    from shiftbench.testsets.recruiting import signing_key

    if as_json:
        print_json(
            {
                "address": addresses.pages,
                "name": addresses.name,
                "link": addresses.joining,
                "recruiting": addresses.recruiting,
            }
        )
    else:
        if addresses.joining is not None:
            _say(f"{addresses.name}: {addresses.joining}   (valid for one day, for one person)")
        if addresses.recruiting is not None:
            _say(f"recruiting: {addresses.recruiting}?PROLIFIC_PID=...   (for everybody)")
            if project.configuration.recruiting.signed_links:
                _say(f"signing key: {signing_key(project)}   (secret, for the platform)")
        _say(f"{addresses.pages}   (press Ctrl-C to stop)")
    # Whoever reads the addresses from a pipe must not wait until the server ends.
    sys.stdout.flush()


def _say(text: str) -> None:
    output.print(text, highlight=False, markup=False, soft_wrap=True)


def _base(at: ProjectOptions, base: str | None) -> str:
    """The base URL of the pages: as the user states it, else where they were served last."""
    if not base:
        last_address = at.folder / ADDRESS
        if last_address.is_file():
            base = last_address.read_text().strip()
        else:
            base = f"http://localhost:{PORT}"
    return base.rstrip("/")


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
        base = _base(at, base)
        # A link without a name is for whoever opens it. Without any option, one such link is made.
        people_names = [*(names or []), *([""] * people)] or [""]
        links = []
        for name in people_names:
            invitation = invite(project, role, name, days=days)  # type: ignore[arg-type]
            links.append(
                {
                    "name": invitation.name,
                    "role": invitation.role,
                    "link": f"{base}/join/{invitation.token}",
                    "expires": invitation.expires_at.isoformat(),
                }
            )
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


ClassKeys = Annotated[list[str] | None, "--class", "Class (repeatable; default: all classes)."]


@app.command("close")
def close_command(
    at: ProjectOptions,
    class_key: ClassKeys = None,
    enough: Annotated[
        str | None, "Close the classes that have all their images in the latest revision of a set."
    ] = None,
    json: Json = False,
) -> None:
    """Give out no more tasks, of some classes or at all. Grids that somebody holds may still be answered."""
    from shiftbench.testsets.collection import close
    from shiftbench.testsets.revisions import set_status

    with at.opened() as project:
        classes = class_key
        if enough is not None:
            status = set_status(project, enough)
            unmarked = [key for key in project.space.keys if not status.removed[key]]
            complete = [key for key in unmarked if key not in status.short]
            classes = [*(class_key or ()), *complete]
        count = close(project, classes)
    report({"tasks": count}, "closed: {tasks} tasks", json=json)


@app.command("reopen")
def reopen_command(at: ProjectOptions, class_key: ClassKeys = None, json: Json = False) -> None:
    """Give out the tasks of closed classes again."""
    from shiftbench.testsets.collection import reopen

    with at.opened() as project:
        count = reopen(project, class_key)
    report({"tasks": count}, "reopened: {tasks} tasks", json=json)


@app.command("top-up")
def top_up_command(
    at: ProjectOptions,
    annotators: Annotated[int, {"min": 1}, "Annotators per grid; a smaller number takes a top-up back."],
    class_key: ClassKeys = None,
    json: Json = False,
) -> None:
    """Ask for more answers to existing grids. New grids follow `annotators` in testset.toml."""
    from shiftbench.testsets.collection import top_up

    with at.opened() as project:
        count = top_up(project, annotators, class_key)
    report({"tasks": count, "annotators": annotators}, "{tasks} tasks want {annotators} annotators now", json=json)


@app.command("cancel")
def cancel_command(
    at: ProjectOptions,
    tasks: Annotated[list[int], typer.Argument(help="Numbers of grids, as in the column task of `answers`.")],
    because: Annotated[str, "Reason; recorded in the audit log."],
    undo: Annotated[bool, "--undo", "Count the answers of cancelled grids again."] = False,
    json: Json = False,
) -> None:
    """Withdraw grids: their answers are kept but not counted, and `tasks` puts their candidates into new grids."""
    from shiftbench.testsets.collection import cancel

    with at.opened() as project:
        count = cancel(project, tasks, because, undo=undo)
    message = "{tasks} grids count again" if undo else "cancelled: {tasks} grids"
    report({"tasks": count}, message, json=json)


@app.command("release")
def release_command(
    at: ProjectOptions,
    name: Annotated[str, typer.Argument(help="Name of the worker's account, such as 'mturk A1B2'.")],
    json: Json = False,
) -> None:
    """Let a recruited worker who lost their browser continue in another: the next visit gets the account."""
    from shiftbench.testsets.accounts import find_person
    from shiftbench.testsets.recruiting import release_browser

    with at.opened() as project:
        release_browser(project, find_person(project, name).id)
    report({"worker": name}, "{worker}: the next browser that opens their link gets the account", json=json)


@app.command("pay")
def pay_command(at: ProjectOptions, *, table: TableOptions) -> None:
    """List the assignments of recruited annotators: worker id, tasks, minutes, controls, completion code, pay."""
    from shiftbench.testsets.recruiting import pay_table

    with at.opened() as project:
        table.show(pay_table(project))


Site = Annotated[str | None, "production or sandbox of MTurk, with your AWS credentials; without it, nothing is sent."]


@app.command("hits")
def hits_command(
    at: ProjectOptions,
    address: Annotated[str, typer.Argument(help="The public link that `serve --recruit` prints, up to the `?`.")],
    site: Site = None,
    out: Annotated[Path | None, "--output", "-o", "File for the requests, one JSON object per line."] = None,
    title: Annotated[str | None, "Title of the HITs."] = None,
    description: Annotated[str | None, "Description of the HITs."] = None,
    minutes: Annotated[float, "Minutes that a worker has for an assignment."] = 60,
    days: Annotated[float, "Days for which the HITs are offered."] = 7,
    approved_percent: Annotated[
        int, {"min": 0, "max": 100}, "Only for workers of whose assignments at least so many percent were approved."
    ] = 0,
    approved_count: Annotated[int, {"min": 0}, "Only for workers with at least so many approved assignments."] = 0,
    json: Json = False,
) -> None:
    """Offer the missing answers on Amazon Mechanical Turk, or write the requests for it.

    One assignment is worth tasks_per_assignment grids, for pay_per_task each ([recruiting] in testset.toml). Run it
    again after excluding or readmitting annotators, closing, or topping up: it offers what is still missing,
    withdraws what is not needed any more, and hides the HITs from excluded workers.

    \b
    Examples:
      shiftbench testset hits pets https://pets.lab.example/recruit/TOKEN -o hits.jsonl
      shiftbench testset hits pets https://pets.lab.example/recruit/TOKEN --site sandbox
    """
    from shiftbench.testsets.mturk import HitRules, hit_requests, mturk_client, publish_hits

    rules = HitRules(minutes=minutes, days=days, approved_percent=approved_percent, approved_count=approved_count)
    rules = replace(rules, title=title or rules.title, description=description or rules.description)
    publication = None
    with at.opened() as project:
        if site is None:
            requests = hit_requests(project, address, rules)
        else:
            with extra("mturk", "Amazon Mechanical Turk"):
                client = mturk_client(site)
            publication = publish_hits(project, client, address, rules)
            requests = publication.created
    if out is not None:
        lines = [json_text(request) for request in requests]
        write_bytes(out, "".join(f"{line}\n" for line in lines).encode())
    assignments = sum(request["MaxAssignments"] for request in requests)
    done = {"hits": len(requests), "assignments": assignments, "published": site is not None}
    message = f"{'published' if site else 'to publish'}: {{hits}} HITs, {{assignments}} assignments"
    if publication is not None:
        done |= {
            "withdrawn": len(publication.withdrawn),
            "kept_away": publication.kept_away,
            "let_in": publication.let_in,
        }
        message += "; withdrawn: {withdrawn} HITs; workers kept away: {kept_away}, let in again: {let_in}"
    report(done, message, json=json)


@app.command("settle")
def settle_command(
    at: ProjectOptions,
    site: Annotated[str, typer.Argument(help="production or sandbox of MTurk, with your AWS credentials.")],
    approve: Annotated[bool, "--approve", "Approve the assignments that have answered tasks."] = False,
    reject: Annotated[bool, "--reject", "Reject those for which nothing was done, with the reason."] = False,
    overturn: Annotated[
        list[str] | None, "Approve this assignment although it was rejected (repeatable; within 30 days)."
    ] = None,
    *,
    table: TableOptions,
) -> None:
    """Compare the assignments submitted at MTurk with the work that was done, and approve or reject them.

    An assignment is approved if the same worker answered a task for it and sent its completion code, also if the
    answers do not count. Without --approve and --reject, the list is shown and nothing is sent.

    \b
    Example:
      shiftbench testset settle pets sandbox --approve
    """
    from shiftbench.testsets.mturk import mturk_client, settle, settlement_table

    with at.opened() as project:
        with extra("mturk", "Amazon Mechanical Turk"):
            client = mturk_client(site)
        settlements = settle(project, client, approve=approve, reject=reject, overturn=overturn or ())
        table.show(settlement_table(settlements))


@app.command("links")
def links_command(
    at: ProjectOptions,
    workers: Annotated[list[str], typer.Argument(help="Ids of people.")],
    base: Annotated[str | None, "Base URL of the pages (default: where `serve` last served them)."] = None,
    json: Json = False,
) -> None:
    """Print a signed link for each person, for a mailing list: nobody can use the id of another."""
    from shiftbench.testsets.recruiting import SIGNATURE, link_signature, recruiting_token

    with at.opened() as project:
        path = f"{_base(at, base)}/recruit/{recruiting_token(project)}"
        links = []
        for worker in workers:
            query = urlencode({"worker": worker, SIGNATURE: link_signature(project, worker)})
            links.append({"worker": worker, "link": f"{path}?{query}"})
    if json:
        print_json(links)
        return
    for link in links:
        _say(f"{link['worker']}: {link['link']}")


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
