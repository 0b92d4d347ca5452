"""Pictures, the bulk of all requests: by opaque id, to those who hold their task or may review."""

from __future__ import annotations

import re
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

from anyio import to_thread
from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from shiftbench.testsets.accounts import person_of_session
from shiftbench.testsets.annotation import shown_images
from shiftbench.testsets.errors import UnknownTaskError
from shiftbench.testsets.project import Project
from shiftbench.testsets.review import review_image
from shiftbench.testsets.web.dependencies import Desk, Reviewer, SignedOutError, TheDesk, look
from shiftbench.testsets.web.security import Application, Receive, Send

#: Without the look that other pages take: a grid asks for 48 pictures at once, and one look will do for all.
tasks_router = APIRouter()
review_router = APIRouter(dependencies=[Depends(look)])
_TASK_PICTURE = re.compile("/tasks/(?P<task>[^/]+)/pictures/(?P<image>[^/]+)")
_KINDS = {".jpg": "image/jpeg", ".png": "image/png", ".webp": "image/webp", ".bmp": "image/bmp", ".tif": "image/tiff"}


@tasks_router.get("/tasks/{task}/pictures/{image}")
async def task_picture(request: Request, desk: TheDesk, task: str, image: str) -> Response:
    session = request.cookies.get(desk.cookies.session, "")
    found = await desk.recent_tasks.pictures(session, task, lambda: _pictures_of(desk.project, session, task))
    if image not in found:
        raise UnknownTaskError("there is no such picture in this task")
    return await _picture(desk, found[image])


@review_router.get("/review/pictures/{entry}")
async def review_picture(desk: TheDesk, person: Reviewer, entry: int) -> Response:
    return await _picture(desk, await to_thread.run_sync(review_image, desk.project, person.id, entry))


@review_router.get("/review/originals/{entry}")
async def review_original(desk: TheDesk, person: Reviewer, entry: int) -> Response:
    """To look closer."""
    path = await to_thread.run_sync(lambda: review_image(desk.project, person.id, entry, original=True))
    return await _picture(desk, path)


def _pictures_of(project: Project, session: str, task: str) -> dict[str, Path]:
    person = person_of_session(project, session)
    if person is None:
        raise SignedOutError("please sign in first")
    return shown_images(project, person.id, task)


async def _picture(desk: Desk, path: Path) -> Response:
    data = await to_thread.run_sync(desk.recent_tasks.shelf.read, path, limiter=desk.image_readers)
    return _answer(path, data)


def _answer(path: Path, data: bytes) -> Response:
    """Neither date nor tag: the file's own would tell when a picture was imported, and so what it is there for."""
    kind = _KINDS.get(path.suffix, "application/octet-stream")
    return Response(data, media_type=kind, headers={"Cache-Control": "private, max-age=86400, immutable"})


class FromMemory:
    """Before the pages: a picture whose task was looked up a moment ago is answered without them.

    A grid asks for 48 pictures at once, and the way through the pages would cost more than the answer. Whatever is
    not at hand, or not for whoever asks, goes that way, and is found or refused there.
    """

    def __init__(self, app: Application, desk: Desk) -> None:
        self._app, self._desk = app, desk

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        await (self._remembered(scope) or self._app)(scope, receive, send)

    def _remembered(self, scope: MutableMapping[str, Any]) -> Response | None:
        address = _TASK_PICTURE.fullmatch(scope["path"]) if scope["type"] == "http" else None
        if address is None or scope["method"] != "GET":
            return None
        session = Request(scope).cookies.get(self._desk.cookies.session, "")
        found = self._desk.recent_tasks.picture(session, address["task"], address["image"])
        return None if found is None else _answer(*found)
