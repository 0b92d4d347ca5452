"""What every page stands on: the project, who is there, how a page is rendered, how a refusal is noted."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

from anyio import CapacityLimiter, to_thread
from fastapi import Depends, Request
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse, Response

from shiftbench.errors import ShiftbenchError
from shiftbench.testsets.accounts import ROLES, Person, person_of_session
from shiftbench.testsets.audit import note
from shiftbench.testsets.errors import NotAllowedError
from shiftbench.testsets.project import Project
from shiftbench.testsets.web.cache import RecentTasks
from shiftbench.testsets.web.security import Cookies, Form, Limits, form_token, new_visitor, origin_of, read_form

_HERE = Path(__file__).parent
_KINDS = {".css": "text/css", ".js": "text/javascript"}
#: Where people come in.
DOORS = ("/join", "/login")
log = logging.getLogger("shiftbench.testsets.web")


class SignedOutError(NotAllowedError):
    """Nobody is signed in; the way is to the door, not to a refusal."""


class StaticFiles:
    """Our style and scripts, read once; their addresses change with their content."""

    def __init__(self) -> None:
        paths = [path for path in (_HERE / "static").iterdir() if path.suffix in _KINDS]
        self._files = {path.name: (path.read_bytes(), _KINDS[path.suffix]) for path in paths}

    def address(self, name: str) -> str:
        return f"/static/{name}?{hashlib.sha256(self._files[name][0]).hexdigest()[:12]}"

    def get(self, name: str) -> tuple[bytes, str] | None:
        return self._files.get(name)


@dataclass
class Desk:
    """One for the application; ``request.app.state.desk``."""

    project: Project
    #: Where people reach the pages, if not directly: behind a proxy that speaks HTTPS.
    public_url: str | None = None
    limits: Limits = field(default_factory=Limits)
    static: StaticFiles = field(default_factory=StaticFiles)
    recent_tasks: RecentTasks = field(default_factory=RecentTasks)

    @cached_property
    def cookies(self) -> Cookies:
        return Cookies(secure=(self.public_url or "").startswith("https://"))

    @cached_property
    def image_readers(self) -> CapacityLimiter:
        """Pictures don't wait behind answers that wait for the database."""
        return CapacityLimiter(8)

    @cached_property
    def templates(self) -> Environment:
        made = Environment(
            loader=FileSystemLoader(_HERE / "templates"), autoescape=True, undefined=StrictUndefined,
            trim_blocks=True, lstrip_blocks=True, auto_reload=False,
        )  # fmt: skip
        made.globals.update(project=self.project.configuration, static=self.static.address)
        made.filters.update(part=lambda text: quote(str(text), safe=""), percent=_percent, moment=_moment)
        return made

    def origin(self, request: Request) -> str:
        return origin_of(self.public_url or str(request.base_url))

    def page(self, request: Request, template: str, *, code: int = 200, **values: Any) -> HTMLResponse:
        """A page with the token that its forms must bring back."""
        holder = _holder(request, self.cookies)
        fresh = not holder
        holder = holder or new_visitor()
        person = getattr(request.state, "person", None)
        text = self.templates.get_template(template).render(
            person=person, form_token=form_token(self.project, holder), **values
        )
        response = HTMLResponse(text, code)
        if fresh:
            self.cookies.set_visitor(response, holder)
        return response

    def note_refusal(self, request: Request, error: ShiftbenchError) -> None:
        """Into the audit log, without anything secret: no token, no password, no path that holds one."""
        if not self.limits.refusals.try_take("all"):
            log.warning("refused (%s); too many to note in the audit log", type(error).__name__)
            return
        person = getattr(request.state, "person", None)
        route = request.scope.get("route")
        note(
            self.project, "refused", by=None if person is None else person.id, what=error.message,
            method=request.method, page=getattr(route, "path", "unknown"), address=address_of(request),
        )  # fmt: skip


def _holder(request: Request, cookies: Cookies) -> str:
    """The session's token of somebody signed in, else the visitor's number."""
    if getattr(request.state, "person", None) is not None:
        return request.cookies.get(cookies.session, "")
    return request.cookies.get(cookies.visitor, "")


def _holders(request: Request, cookies: Cookies) -> list[str]:
    """To whom a form may belong. At the door also to the visitor that somebody signed in is for a moment: a strict
    cookie does not come along when an invitation is opened from a mail, but does when its form is sent."""
    holders = [_holder(request, cookies)]
    if request.url.path in DOORS:
        holders.append(request.cookies.get(cookies.visitor, ""))
    return [holder for holder in holders if holder]


def address_of(request: Request) -> str:
    return request.client.host if request.client else "unknown"


# Dependencies that wait for nothing are coroutines all the same: as plain functions each would cost a thread's turn.
async def the_desk(request: Request) -> Desk:
    found: Desk = request.app.state.desk
    return found


async def look(request: Request, desk: Annotated[Desk, Depends(the_desk)]) -> None:
    """Before every page: who comes, and, for a form, whether one of our pages has sent it."""
    token = request.cookies.get(desk.cookies.session)
    request.state.person = await to_thread.run_sync(person_of_session, desk.project, token) if token else None
    if request.method == "POST":
        person = request.state.person
        form = await read_form(request, desk.project, _holders(request, desk.cookies), desk.origin(request))
        desk.limits.posts.take(f"{person.id}" if person else address_of(request))
        request.state.form = form


async def form_of(request: Request) -> Form:
    found: Form = request.state.form
    return found


class Allowed:
    """A dependency: the person, if signed in with one of the roles."""

    def __init__(self, *roles: str) -> None:
        self.roles = roles

    async def __call__(self, request: Request) -> Person:
        person: Person | None = request.state.person
        if person is None:
            raise SignedOutError("please sign in first")
        if person.role not in self.roles:
            raise NotAllowedError("this page is not for you", found=f"a {person.role}")
        if person.excluded and set(self.roles) != set(ROLES):  # their own account stays open to them
            raise NotAllowedError("this account has been excluded", hint="ask who leads the project")
        return person


TheDesk = Annotated[Desk, Depends(the_desk)]
TheForm = Annotated[Form, Depends(form_of)]
Anyone = Annotated[Person, Depends(Allowed(*ROLES))]
Annotator = Annotated[Person, Depends(Allowed("annotator", "lead"))]
Reviewer = Annotated[Person, Depends(Allowed("reviewer", "lead"))]
Lead = Annotated[Person, Depends(Allowed("lead"))]


def see_other(address: str) -> Response:
    """After a form: the next page, by GET, so that a reload sends nothing twice."""
    return Response(status_code=303, headers={"Location": address})


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.0f} %"


def _moment(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
