"""Image requests, most of the load: by opaque id, for holders of the task and for reviewers."""

from __future__ import annotations

import re
from pathlib import Path

from anyio import to_thread
from fastapi import APIRouter, Depends, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from shiftbench.testsets.accounts import person_of_session
from shiftbench.testsets.annotation import shown_images
from shiftbench.testsets.errors import UnknownTaskError
from shiftbench.testsets.project import Project
from shiftbench.testsets.review import pair_image, review_image
from shiftbench.testsets.web.context import AppContext, Context, Id, Reviewer, SignedOutError, authenticate

#: Without ``authenticate``: the 48 image requests of a grid share one lookup.
tasks_router = APIRouter()
review_router = APIRouter(dependencies=[Depends(authenticate)])
_TASK_IMAGE = re.compile("/tasks/(?P<task>[^/]+)/images/(?P<image>[^/]+)")
_MEDIA_TYPES = {
    ".jpg": "image/jpeg",
    ".png": "image/png",
    ".webp": "image/webp",
    ".bmp": "image/bmp",
    ".tif": "image/tiff",
}


@tasks_router.get("/tasks/{task}/images/{image}")
async def task_image(request: Request, context: Context, task: str, image: str) -> Response:
    """An image of a task that the session's annotator holds or has answered."""
    session = request.cookies.get(context.cookies.session, "")
    paths = await context.task_images.images(session, task, lambda: _images_of(context.project, session, task))
    if image not in paths:
        raise UnknownTaskError("unknown image")
    return await _image(context, paths[image])


@review_router.get("/review/images/{entry}")
async def review_copy(context: Context, person: Reviewer, entry: Id) -> Response:
    return await _image(context, await to_thread.run_sync(review_image, context.project, person.id, entry))


@review_router.get("/review/originals/{entry}")
async def review_original(context: Context, person: Reviewer, entry: Id) -> Response:
    path = await to_thread.run_sync(lambda: review_image(context.project, person.id, entry, original=True))
    return await _image(context, path, cached=False)


@review_router.get("/review/pairs/{pair}/other")
async def pair_other(context: Context, person: Reviewer, pair: Id) -> Response:
    return await _image(context, await to_thread.run_sync(pair_image, context.project, person.id, pair))


def _images_of(project: Project, session: str, task: str) -> dict[str, Path]:
    person = person_of_session(project, session)
    if person is None:
        raise SignedOutError("please sign in first")
    return shown_images(project, person.id, task)


async def _image(context: AppContext, path: Path, *, cached: bool = True) -> Response:
    read = context.task_images.read if cached else Path.read_bytes
    return _answer(path, await to_thread.run_sync(read, path, limiter=context.image_readers))


def _answer(path: Path, data: bytes) -> Response:
    """No Last-Modified or ETag: the file's date could reveal control images."""
    media_type = _MEDIA_TYPES.get(path.suffix, "application/octet-stream")
    return Response(data, media_type=media_type, headers={"Cache-Control": "private, max-age=86400, immutable"})


class CachedImageMiddleware:
    """Answers image requests from memory, without the overhead of the framework.

    A grid requests 48 images at once. Requests that miss the cache, and those without permission, go to the
    application.
    """

    def __init__(self, app: ASGIApp, context: AppContext) -> None:
        self._app = app
        self._context = context

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = self._cached_path(scope)
        if path is None:
            await self._app(scope, receive, send)
        else:
            await _answer(path, self._context.task_images.read(path))(scope, receive, send)

    def _cached_path(self, scope: Scope) -> Path | None:
        """The file that a request asks for, if it is an image request and the cache has its task."""
        if scope["type"] != "http" or scope["method"] != "GET":
            return None
        address = _TASK_IMAGE.fullmatch(scope["path"])
        if address is None:
            return None
        session = Request(scope).cookies.get(self._context.cookies.session, "")
        path = self._context.task_images.image(session, address["task"], address["image"])
        if path is None or not path.is_file():
            return None
        return path
