"""The web application of a project, its error pages, and the server."""

from __future__ import annotations

import socket
import sys
from urllib.parse import urlsplit

import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp

from shiftbench import ShiftbenchError
from shiftbench.extend.web import DeadlineProtocol, bind, is_loopback
from shiftbench.testsets.accounts import InvitationLink, invitations, invite, people, revoke_invitation
from shiftbench.testsets.errors import DatabaseUnreachableError, WorkshopError
from shiftbench.testsets.project import Project
from shiftbench.testsets.web import annotation_pages, auth, images, lead_pages, review_pages
from shiftbench.testsets.web.context import AppContext, SignedOutError, log, see_other
from shiftbench.testsets.web.security import KnownHosts, SecurityMiddleware

#: How long a link that `serve` or `review` prints is valid.
LINK_DAYS = 1
#: The name of the account that the link of the first start creates.
_FIRST_LEAD = "lead"
__all__ = ["LINK_DAYS", "bind", "first_lead_link", "is_loopback", "public_origin", "serve", "shielded", "workshop_app"]


def workshop_app(
    project: Project, *, public_url: str | None = None, bound: str = "127.0.0.1", recruiting: bool = False
) -> FastAPI:
    """The pages without middleware; ``shielded`` adds it. ``bound``: the address that the server listens on."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    app.state.context = AppContext(project, public_url, recruiting, KnownHosts.of(public_url, bound))
    # Images come first, because they are most of the requests.
    app.include_router(images.tasks_router)
    app.include_router(images.review_router)
    app.include_router(annotation_pages.router)
    app.include_router(auth.router)
    app.include_router(lead_pages.router)
    app.include_router(review_pages.router)
    app.add_api_route("/static/{name}", _static, methods=["GET"])
    # Browsers look for this file if a page names no icon, such as a bare image.
    app.add_api_route("/favicon.ico", _static, methods=["GET"])
    app.add_exception_handler(ShiftbenchError, _refused)  # type: ignore[arg-type]
    app.add_exception_handler(HTTPException, _no_page)
    app.add_exception_handler(RequestValidationError, _no_page)  # such as an invalid number in a URL
    app.add_exception_handler(Exception, _broken)
    return app


def shielded(app: FastAPI) -> ASGIApp:
    """The application behind its middleware."""
    context: AppContext = app.state.context
    return SecurityMiddleware(
        images.CachedImageMiddleware(app, context), https=context.cookies.secure, hosts=context.hosts
    )


async def _static(request: Request, name: str = "icon.svg") -> Response:
    context: AppContext = request.app.state.context
    if name not in context.static:
        raise HTTPException(404)
    data, media_type = context.static[name]
    return Response(data, media_type=media_type, headers={"Cache-Control": "public, max-age=31536000, immutable"})


def _refused(request: Request, error: ShiftbenchError) -> Response:
    """The page of an error; somebody who is signed out is sent to the sign-in page instead."""
    context: AppContext = request.app.state.context
    if isinstance(error, SignedOutError) and request.method == "GET":
        return see_other("/login")
    status = getattr(error, "status", 400)
    if isinstance(error, DatabaseUnreachableError):
        # The audit log is out of reach as well, and visitors are not told where the database is.
        log.warning("%s", error)
        error = ShiftbenchError("The database can't be reached.", hint="try again in a minute; stored answers are kept")
    else:
        context.note_refusal(request, error)
    return context.page(request, "refused.html", code=status, error=error)


def _no_page(request: Request, error: Exception) -> Response:
    context: AppContext = request.app.state.context
    status = error.status_code if isinstance(error, HTTPException) else 404
    message = "Method not allowed." if status == 405 else "Page not found."
    return context.page(request, "refused.html", code=status, error=ShiftbenchError(message))


def _broken(request: Request, error: Exception) -> Response:
    """The traceback goes to the server's log, never to a page."""
    context: AppContext = request.app.state.context
    plain = ShiftbenchError("Internal server error.", hint="try again; if the error persists, contact the project lead")
    return context.page(request, "refused.html", code=500, error=plain)


def first_lead_link(project: Project) -> InvitationLink | None:
    """A link for the first lead of a project; revokes unused links of earlier starts. None if there is a lead."""
    if any(person.role == "lead" for person in people(project)):
        return None
    for invitation in invitations(project):
        unused = invitation.valid(project.now()) and invitation.account is None
        # Leads who were invited by name keep their links.
        if unused and (invitation.role, invitation.name) == ("lead", _FIRST_LEAD):
            revoke_invitation(project, invitation.id)
    return invite(project, "lead", _FIRST_LEAD, days=LINK_DAYS)


def public_origin(url: str) -> str:
    """Scheme and host of the proxy's URL; raises WorkshopError if it has a path or is no URL."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.path not in ("", "/") or parts.query:
        raise WorkshopError(
            "invalid public URL",
            found=url[:200],
            expected="https://NAME, without a path",
            hint="configure a separate host name in the proxy",
        )
    return f"{parts.scheme}://{parts.netloc}"


def serve(
    project: Project, listener: socket.socket, *, public_url: str | None = None, recruiting: bool = False
) -> None:
    """Serve until Ctrl-C. There is no access log, because invitation URLs are secret."""
    app = workshop_app(project, public_url=public_url, bound=str(listener.getsockname()[0]), recruiting=recruiting)
    # Image requests wait while threads render pages: switch threads more often than every 5 ms.
    sys.setswitchinterval(0.001)
    config = uvicorn.Config(
        shielded(app),
        http=DeadlineProtocol,
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="off",
        proxy_headers=public_url is not None,
        forwarded_allow_ips="127.0.0.1",
        timeout_keep_alive=30,
        backlog=2048,
        h11_max_incomplete_event_size=32 << 10,
    )
    uvicorn.Server(config).run(sockets=[listener])
