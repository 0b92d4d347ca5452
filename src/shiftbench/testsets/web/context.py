"""Shared by all pages: the application context, authentication, rendering, cached images, the audit of refusals."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property, lru_cache, partial, wraps
from pathlib import Path
from typing import Annotated, Any, TypeVar
from urllib.parse import quote

from anyio import CapacityLimiter, to_thread
from fastapi import Depends, Request
from fastapi import Path as PathParameter
from fastapi.routing import APIRoute
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse, Response

from shiftbench import ShiftbenchError
from shiftbench.testsets.accounts import ROLES, Person, person_of_session
from shiftbench.testsets.errors import NotAllowedError, WorkshopError
from shiftbench.testsets.project import Project, note
from shiftbench.testsets.web.security import Cookies, Form, KnownHosts, Limits, form_token, origin_of, read_form

_HERE = Path(__file__).parent
_MEDIA_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
#: Paths of sign-in forms.
SIGN_IN_PATHS = ("/join", "/login", "/recruit/")
T = TypeVar("T")
#: The files of a task by the opaque ids of their images.
ImagePaths = dict[str, Path]
log = logging.getLogger("shiftbench.testsets.web")


class SignedOutError(NotAllowedError):
    """Nobody is signed in; redirect to the sign-in page."""


@dataclass(frozen=True)
class _Lookup:
    """The images of a task, which may still be looked up, and how long they are valid."""

    #: By the monotonic clock.
    valid_until: float
    images: asyncio.Future[ImagePaths]

    @property
    def valid(self) -> bool:
        return self.valid_until >= time.monotonic()


class TaskImageCache:
    """The images of recently requested tasks, by session and task, and the bytes of recently shown copies.

    Sign-out and exclusion on these pages take effect at once. After an exclusion from the command line or another
    server process, images of the annotator's own task stay visible for a few seconds.
    """

    def __init__(self, seconds: float = 20.0, most: int = 1000, copies: int = 1500) -> None:
        self._seconds = seconds
        self._most = most
        self._lookups: OrderedDict[tuple[str, str], _Lookup] = OrderedDict()
        #: The content of a copy, some 40 kB.
        self.read = lru_cache(copies)(Path.read_bytes)

    def image(self, session: str, task: str, image: str) -> Path | None:
        """The file of an image, if it is known without a lookup."""
        lookup = self._lookups.get((session, task))
        if lookup is None or not lookup.valid:
            return None
        images = lookup.images
        if not images.done() or images.cancelled() or images.exception():
            return None
        return images.result().get(image)

    async def images(self, session: str, task: str, find: Callable[[], ImagePaths]) -> ImagePaths:
        """The cached images, or the result of ``find``. Concurrent requests share one lookup."""
        key = (session, task)
        lookup = self._lookups.get(key)
        if lookup is None or not lookup.valid:
            future = asyncio.ensure_future(to_thread.run_sync(self._found, find))
            lookup = _Lookup(time.monotonic() + self._seconds, future)
            self._lookups[key] = lookup
            self._lookups.move_to_end(key)
            while len(self._lookups) > self._most:
                self._lookups.popitem(last=False)
        try:
            # A cancelled request must not cancel the shared lookup.
            return await asyncio.shield(lookup.images)
        except Exception:
            # Errors are not cached.
            self._lookups.pop(key, None)
            raise

    def forget(self, session: str | None = None) -> None:
        """Drop the images of a session that has ended, or all after a change of permissions."""
        for key in list(self._lookups):
            if session is None or key[0] == session:
                self._lookups.pop(key, None)

    def _found(self, find: Callable[[], ImagePaths]) -> ImagePaths:
        """The result of ``find``, whose files are read ahead."""
        images = find()
        for path in images.values():
            # A file that cannot be read is reported when it is requested.
            with suppress(OSError):
                self.read(path)
        return images


def _url_part(text: object) -> str:
    return quote(str(text), safe="")


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.0f}\u00a0%"


def _moment(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


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
    task_images: TaskImageCache = field(default_factory=TaskImageCache)

    @cached_property
    def cookies(self) -> Cookies:
        return Cookies(secure=(self.public_url or "").startswith("https://"))

    @cached_property
    def static(self) -> dict[str, tuple[bytes, str]]:
        """The static files by name: content and media type."""
        paths = [path for path in (_HERE / "static").iterdir() if path.suffix in _MEDIA_TYPES]
        return {path.name: (path.read_bytes(), _MEDIA_TYPES[path.suffix]) for path in paths}

    @cached_property
    def image_readers(self) -> CapacityLimiter:
        """Separate threads, so that images do not wait behind requests that wait for the database."""
        return CapacityLimiter(8)

    @cached_property
    def lead_threads(self) -> CapacityLimiter:
        """Threads for the pages of leads and reviewers, which read the whole project.

        If many of them were made at once, annotators would wait for a thread, and then for a share of the processor.
        """
        return CapacityLimiter(2)

    @cached_property
    def templates(self) -> Environment:
        environment = Environment(
            loader=FileSystemLoader(_HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        # The URLs of static files change with their content, because browsers keep them for a year.
        addresses = {}
        for name, (data, _) in self.static.items():
            addresses[name] = f"/static/{name}?{hashlib.sha256(data).hexdigest()[:12]}"
        environment.globals.update(project=self.project.configuration, static=addresses.__getitem__)
        environment.filters.update(part=_url_part, percent=_percent, moment=_moment)
        return environment

    @cached_property
    def titles(self) -> dict[str, str]:
        """The titles of the classes by key, and of all classes together."""
        titles = {"all": "All classes", "": "All classes"}
        for entry in self.project.configuration.classes:
            titles[entry.key] = entry.title
        return titles

    def address_of(self, request: Request) -> str:
        return request.client.host if request.client else "unknown"

    def origin(self, request: Request) -> str:
        return origin_of(self.public_url or str(request.base_url))

    def page(self, request: Request, template: str, *, code: int = 200, **values: object) -> HTMLResponse:
        """Render a page with the CSRF token of its forms."""
        person = getattr(request.state, "person", None)
        cookie = request.cookies.get(self.cookies.visitor if person is None else self.cookies.session, "")
        # Forms belong to the session, or to the visitor, who becomes known by this page.
        holder = cookie or secrets.token_urlsafe(18)
        text = self.templates.get_template(template).render(
            view=template.removesuffix(".html"), person=person, form_token=form_token(self.project, holder), **values
        )
        response = HTMLResponse(text, code)
        if not cookie:
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
            self.project,
            "refused",
            by=None if person is None else person.id,
            what=error.message,
            method=request.method,
            page=getattr(route, "path", "unknown"),
            address=self.address_of(request),
        )


class LeadRoute(APIRoute):
    """A page for leads or reviewers: made in one of their threads, after the form was read and the role checked."""

    def __init__(self, path: str, endpoint: Callable[..., Response], **options: Any) -> None:
        @wraps(endpoint)
        async def in_own_thread(**values: Any) -> Response:
            context: AppContext = values["context"]
            return await to_thread.run_sync(partial(endpoint, **values), limiter=context.lead_threads)

        super().__init__(path, in_own_thread, **options)


# Dependencies that do not block are coroutines: plain functions would each need a thread.
async def app_context(request: Request) -> AppContext:
    context: AppContext = request.app.state.context
    return context


async def authenticate(request: Request, context: Annotated[AppContext, Depends(app_context)]) -> None:
    """Before every page: identify the account, and check the origin of forms."""
    token = request.cookies.get(context.cookies.session, "")
    visitor = request.cookies.get(context.cookies.visitor, "")
    person = None
    if token:
        person = await to_thread.run_sync(person_of_session, context.project, token)
    request.state.person = person
    if request.method == "POST":
        # Sign-in forms may also belong to the visitor: SameSite=Strict cookies are not sent when an invitation is
        # opened from a mail, but are sent with its form.
        holders = [visitor if person is None else token]
        if request.url.path.startswith(SIGN_IN_PATHS):
            holders.append(visitor)
        form = await read_form(request, context.project, filter(None, holders), context.origin(request))
        context.limits.posts.take(f"{person.id}" if person else context.address_of(request))
        request.state.form = form


async def form_of(request: Request) -> Form:
    form: Form = request.state.form
    return form


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


async def known_class(request: Request, key: str) -> str:
    """Dependency: the class key in a URL, if the project has such a class."""
    if key not in request.app.state.context.project.space:
        raise WorkshopError("unknown class", found=repr(key[:80]))
    return key


ClassKey = Annotated[str, Depends(known_class)]


@dataclass(frozen=True)
class Pages:
    """The number of a page, and of the last one."""

    number: int
    last: int


def one_page(items: Sequence[T], number: int, size: int) -> tuple[Sequence[T], Pages]:
    """The items of one page; numbers beyond the ends mean the first or the last page.

    >>> one_page("abcde", 2, 2)
    ('cd', Pages(number=2, last=3))
    """
    last = max(1, math.ceil(len(items) / size))
    number = min(max(1, number), last)
    return items[(number - 1) * size : number * size], Pages(number, last)


def see_other(address: str) -> Response:
    """Redirect to the next page after a form, so that a reload does not resend it."""
    return Response(status_code=303, headers={"Location": address})
