"""Shared by all pages: the application context, authentication, rendering, cached images, the audit of refusals."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, TypeVar
from urllib.parse import quote

from anyio import CapacityLimiter, to_thread
from fastapi import Depends, Request
from fastapi import Path as PathParameter
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse, Response

from shiftbench.errors import ShiftbenchError
from shiftbench.testsets.accounts import ROLES, Person, person_of_session
from shiftbench.testsets.audit import note
from shiftbench.testsets.errors import NotAllowedError
from shiftbench.testsets.project import Project
from shiftbench.testsets.web.security import (
    Cookies,
    Form,
    KnownHosts,
    Limits,
    form_token,
    new_visitor,
    origin_of,
    read_form,
)

_HERE = Path(__file__).parent
_KINDS = {".css": "text/css", ".js": "text/javascript"}
#: Paths of sign-in forms.
SIGN_IN_PATHS = ("/join", "/login", "/recruit/")
T = TypeVar("T")
ImagePaths = dict[str, Path]
log = logging.getLogger("shiftbench.testsets.web")


class SignedOutError(NotAllowedError):
    """Nobody is signed in; redirect to the sign-in page."""


class StaticFiles:
    """Stylesheet and scripts, read once; their URLs change with their content."""

    def __init__(self) -> None:
        paths = [path for path in (_HERE / "static").iterdir() if path.suffix in _KINDS]
        self._files = {path.name: (path.read_bytes(), _KINDS[path.suffix]) for path in paths}

    def address(self, name: str) -> str:
        return f"/static/{name}?{hashlib.sha256(self._files[name][0]).hexdigest()[:12]}"

    def get(self, name: str) -> tuple[bytes, str] | None:
        return self._files.get(name)


class ByteCache:
    """A thread-safe LRU cache of file contents."""

    def __init__(self, megabytes: float = 64) -> None:
        self._most, self._size = int(megabytes * 2**20), 0
        self._held: OrderedDict[Path, bytes] = OrderedDict()
        self._turn = threading.Lock()

    def get(self, path: Path) -> bytes | None:
        with self._turn:
            data = self._held.get(path)
            if data is not None:
                self._held.move_to_end(path)
            return data

    def read(self, path: Path) -> bytes:
        return self.get(path) or self._put(path, path.read_bytes())

    def fill(self, paths: Iterable[Path]) -> None:
        """Read the files of a grid; errors are reported when a file is requested."""
        for path in paths:
            try:
                self.read(path)
            except OSError:
                continue

    def _put(self, path: Path, data: bytes) -> bytes:
        with self._turn:
            self._size += len(data) - len(self._held.pop(path, b""))
            self._held[path] = data
            while self._size > self._most:
                self._size -= len(self._held.popitem(last=False)[1])
        return data


class TaskImageCache:
    """The images of recently requested tasks, by session and task.

    Sign-out and exclusion on these pages take effect at once. After an exclusion from the command line or another
    server process, images of the annotator's own task stay visible for a few seconds.
    """

    def __init__(self, seconds: float = 20.0, most: int = 1000) -> None:
        self._seconds, self._most = seconds, most
        self._known: OrderedDict[tuple[str, str], tuple[float, asyncio.Future[ImagePaths]]] = OrderedDict()
        self.shelf = ByteCache()

    def image(self, session: str, task: str, image: str) -> tuple[Path, bytes] | None:
        """The image, if it is in memory."""
        until, found = self._known.get((session, task), (0.0, None))
        if found is None or until < time.monotonic() or not found.done() or found.cancelled() or found.exception():
            return None
        path = found.result().get(image)
        data = None if path is None else self.shelf.get(path)
        return None if path is None or data is None else (path, data)

    async def images(self, session: str, task: str, find: Callable[[], ImagePaths]) -> ImagePaths:
        """The cached images, or the result of ``find``. Concurrent requests share one lookup."""
        key = (session, task)
        until, found = self._known.get(key, (0.0, None))
        if found is None or until < time.monotonic():
            found = asyncio.ensure_future(to_thread.run_sync(self._found, find))
            self._known[key] = (time.monotonic() + self._seconds, found)
            self._known.move_to_end(key)
            while len(self._known) > self._most:
                self._known.popitem(last=False)
        try:
            return await asyncio.shield(found)  # a cancelled request must not cancel the shared lookup
        except Exception:
            self._known.pop(key, None)  # errors are not cached
            raise

    def forget(self, session: str) -> None:
        """Drop the images of a session that has ended."""
        for key in [key for key in list(self._known) if key[0] == session]:
            self._known.pop(key, None)

    def clear(self) -> None:
        """Drop everything after a change of permissions."""
        self._known.clear()

    def _found(self, find: Callable[[], ImagePaths]) -> ImagePaths:
        images = find()
        self.shelf.fill(images.values())
        return images


@dataclass
class AppContext:
    """The state of the application, at ``request.app.state.context``."""

    project: Project
    #: The URL of the HTTPS proxy in front of the server, if any.
    public_url: str | None = None
    #: Whether the public link for crowd platforms is open.
    recruiting: bool = False
    hosts: KnownHosts = field(default_factory=KnownHosts.of)
    limits: Limits = field(default_factory=Limits)
    static: StaticFiles = field(default_factory=StaticFiles)
    task_images: TaskImageCache = field(default_factory=TaskImageCache)

    @cached_property
    def cookies(self) -> Cookies:
        return Cookies(secure=(self.public_url or "").startswith("https://"))

    @cached_property
    def image_readers(self) -> CapacityLimiter:
        """Separate threads, so that images do not wait behind requests that wait for the database."""
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

    @cached_property
    def titles(self) -> dict[str, str]:
        """Names of the classes by key."""
        return {"all": "All classes", **{entry.key: entry.title for entry in self.project.configuration.classes}}

    def origin(self, request: Request) -> str:
        return origin_of(self.public_url or str(request.base_url))

    def page(self, request: Request, template: str, *, code: int = 200, **values: Any) -> HTMLResponse:
        """Render a page with the CSRF token of its forms."""
        holder = _holder(request, self.cookies)
        fresh = not holder
        holder = holder or new_visitor()
        person = getattr(request.state, "person", None)
        text = self.templates.get_template(template).render(
            view=template.removesuffix(".html"), person=person, form_token=form_token(self.project, holder), **values
        )
        response = HTMLResponse(text, code)
        if fresh:
            self.cookies.set(response, self.cookies.visitor, holder)
        return response

    def note_refusal(self, request: Request, error: ShiftbenchError) -> None:
        """Add a refused request to the audit log, without secrets: no token, password or path that contains one."""
        if not self.limits.refusals.try_take("all"):
            log.warning("refused (%s); too many for the audit log", type(error).__name__)
            return
        person = getattr(request.state, "person", None)
        route = request.scope.get("route")
        note(
            self.project, "refused", by=None if person is None else person.id, what=error.message,
            method=request.method, page=getattr(route, "path", "unknown"), address=address_of(request),
        )  # fmt: skip


def _holder(request: Request, cookies: Cookies) -> str:
    """The session token if signed in, else the visitor id."""
    if getattr(request.state, "person", None) is not None:
        return request.cookies.get(cookies.session, "")
    return request.cookies.get(cookies.visitor, "")


def _holders(request: Request, cookies: Cookies) -> list[str]:
    """The sessions that a form may belong to. For sign-in forms also the visitor: SameSite=Strict cookies are not sent
    when an invitation is opened from a mail, but are sent with its form."""
    holders = [_holder(request, cookies)]
    if request.url.path.startswith(SIGN_IN_PATHS):
        holders.append(request.cookies.get(cookies.visitor, ""))
    return [holder for holder in holders if holder]


def address_of(request: Request) -> str:
    return request.client.host if request.client else "unknown"


# Dependencies that do not block are coroutines: plain functions would each need a thread.
async def app_context(request: Request) -> AppContext:
    found: AppContext = request.app.state.context
    return found


async def authenticate(request: Request, context: Annotated[AppContext, Depends(app_context)]) -> None:
    """Before every page: identify the account, and check the origin of forms."""
    token = request.cookies.get(context.cookies.session)
    request.state.person = await to_thread.run_sync(person_of_session, context.project, token) if token else None
    if request.method == "POST":
        person = request.state.person
        form = await read_form(request, context.project, _holders(request, context.cookies), context.origin(request))
        context.limits.posts.take(f"{person.id}" if person else address_of(request))
        request.state.form = form


async def form_of(request: Request) -> Form:
    found: Form = request.state.form
    return found


class RequireRole:
    """Dependency: the signed-in account, if it has one of the roles."""

    def __init__(self, *roles: str) -> None:
        self.roles = roles

    async def __call__(self, request: Request) -> Person:
        person: Person | None = request.state.person
        if person is None:
            raise SignedOutError("please sign in first")
        if person.role not in self.roles:
            raise NotAllowedError("permission denied", found=person.role, expected=" or ".join(self.roles))
        if person.excluded and set(self.roles) != set(ROLES):  # the account page stays accessible
            raise NotAllowedError("this account is excluded", hint="contact the project lead")
        return person


#: An id in a URL: larger numbers fit no database and lead to "not found".
Id = Annotated[int, PathParameter(ge=0, lt=2**31)]
Context = Annotated[AppContext, Depends(app_context)]
PostedForm = Annotated[Form, Depends(form_of)]
SignedIn = Annotated[Person, Depends(RequireRole(*ROLES))]
Annotator = Annotated[Person, Depends(RequireRole("annotator", "lead"))]
Reviewer = Annotated[Person, Depends(RequireRole("reviewer", "lead"))]
Lead = Annotated[Person, Depends(RequireRole("lead"))]


@dataclass(frozen=True)
class Pages:
    """The pages of a long list: the current one and the last."""

    number: int
    last: int


def one_page(items: Sequence[T], number: int, size: int) -> tuple[Sequence[T], Pages]:
    """The items of one page; numbers beyond the ends mean the first or the last page.

    >>> one_page("abcde", 2, 2)
    ('cd', Pages(number=2, last=3))
    """
    last = max(1, -(-len(items) // size))
    number = min(max(1, number), last)
    return items[(number - 1) * size : number * size], Pages(number, last)


def see_other(address: str) -> Response:
    """Redirect to the next page after a form, so that a reload does not resend it."""
    return Response(status_code=303, headers={"Location": address})


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.0f} %"


def _moment(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
