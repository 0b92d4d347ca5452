"""Starting the pages: the first link, the address, the server."""

from __future__ import annotations

import socket
import sys
from urllib.parse import urlsplit

import uvicorn

from shiftbench.reports.page.server import bind, is_loopback
from shiftbench.testsets.accounts import Link, Role, invitations, invite, people, revoke_invitation
from shiftbench.testsets.errors import WorkshopError
from shiftbench.testsets.project import Project
from shiftbench.testsets.web.app import shielded, workshop_app

__all__ = ["bind", "first_lead_link", "is_loopback", "one_time_link", "public_origin", "serve"]

_FIRST_LINK_DAYS = 1


def first_lead_link(project: Project) -> Link | None:
    """For a project that nobody leads yet. Links of earlier starts that nobody has used lead nowhere any more."""
    if any(person.role == "lead" for person in people(project)):
        return None
    for unused in invitations(project):
        if unused.role == "lead" and unused.valid and unused.account is None:
            revoke_invitation(project, unused.id)
    return one_time_link(project, "lead", "lead")


def one_time_link(project: Project, role: Role, name: str) -> Link:
    """To be opened soon, by whoever sits at this machine."""
    return invite(project, role, name, days=_FIRST_LINK_DAYS)


def public_origin(url: str) -> str:
    """
    >>> public_origin("https://lab.example/")
    'https://lab.example'
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.path not in ("", "/") or parts.query:
        raise WorkshopError(
            "the public address can't be used", found=url[:200], expected="https://NAME, without a path",
            hint="give the pages a host name of their own in the proxy",
        )  # fmt: skip
    return f"{parts.scheme}://{parts.netloc}"


def serve(project: Project, listener: socket.socket, *, public_url: str | None = None) -> None:
    """Answer until Ctrl-C. There is no access log: addresses of invitations are secrets."""
    app = workshop_app(project, public_url=public_url)
    # Pictures wait while threads compute pages: let these give way sooner than after the usual 5 ms.
    sys.setswitchinterval(0.001)
    config = uvicorn.Config(
        shielded(app), log_level="warning", access_log=False, server_header=False, lifespan="off",
        proxy_headers=public_url is not None, forwarded_allow_ips="127.0.0.1", timeout_keep_alive=30, backlog=2048,
        h11_max_incomplete_event_size=32 << 10,
    )  # fmt: skip
    uvicorn.Server(config).run(sockets=[listener])
