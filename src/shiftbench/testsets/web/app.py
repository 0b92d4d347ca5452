"""The application of a project: its pages, and what is said when something goes wrong."""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from shiftbench.errors import ShiftbenchError
from shiftbench.testsets.errors import (
    AnsweredError,
    BlindnessError,
    FrozenError,
    LeaseExpiredError,
    NotAllowedError,
    UnknownTaskError,
)
from shiftbench.testsets.project import Project
from shiftbench.testsets.web import annotation_pages, auth, images, lead_pages, review_pages
from shiftbench.testsets.web.dependencies import Desk, SignedOutError, see_other
from shiftbench.testsets.web.security import Application, BodyTooLargeError, Shield, TooManyError

#: The first that fits.
_STATUS: tuple[tuple[type[ShiftbenchError], int], ...] = (
    (TooManyError, 429),
    (BodyTooLargeError, 413),
    (UnknownTaskError, 404),
    (LeaseExpiredError, 410),
    (AnsweredError, 409),
    (FrozenError, 409),
    (BlindnessError, 403),
    (NotAllowedError, 403),
)


def workshop_app(project: Project, *, public_url: str | None = None) -> FastAPI:
    """The pages alone; ``shielded`` is what is served."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.state.desk = Desk(project, public_url)
    for router in (  # pictures first: most requests are for them
        images.tasks_router, images.review_router, annotation_pages.router, auth.router, lead_pages.router,
        review_pages.router,
    ):  # fmt: skip
        app.include_router(router)
    app.add_api_route("/static/{name}", _static, methods=["GET"])
    app.add_exception_handler(ShiftbenchError, _refused)  # type: ignore[arg-type]
    app.add_exception_handler(HTTPException, _no_page)
    app.add_exception_handler(RequestValidationError, _no_page)  # a number in an address that is none
    app.add_exception_handler(Exception, _broken)
    return app


def shielded(app: FastAPI) -> Application:
    desk: Desk = app.state.desk
    return Shield(images.FromMemory(app, desk), https=desk.cookies.secure)


async def _static(request: Request, name: str) -> Response:
    found = request.app.state.desk.static.get(name)
    if found is None:
        raise HTTPException(404)
    data, kind = found
    return Response(data, media_type=kind, headers={"Cache-Control": "public, max-age=31536000, immutable"})


def _refused(request: Request, error: ShiftbenchError) -> Response:
    desk: Desk = request.app.state.desk
    if isinstance(error, SignedOutError) and request.method == "GET":
        return see_other("/login")
    status = next((status for kind, status in _STATUS if isinstance(error, kind)), 400)
    desk.note_refusal(request, error)
    return desk.page(request, "refused.html", code=status, error=error)


def _no_page(request: Request, error: Exception) -> Response:
    desk: Desk = request.app.state.desk
    status = error.status_code if isinstance(error, HTTPException) else 404
    message = "This page can't be used that way." if status == 405 else "There is no such page."
    return desk.page(request, "refused.html", code=status, error=ShiftbenchError(message))


def _broken(request: Request, error: Exception) -> Response:
    """The trace goes to the server's log, never to a page."""
    desk: Desk = request.app.state.desk
    plain = ShiftbenchError("Something went wrong on our side.", hint="try again; if it stays, tell who invited you")
    return desk.page(request, "refused.html", code=500, error=plain)
