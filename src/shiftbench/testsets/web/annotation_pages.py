"""Annotation pages: a grid, a check of the selection, the answer, the next grid.

Everything works with plain forms; the script adds keyboard shortcuts and a timer. Pages, URLs and headers do not reveal
control images.
"""

from __future__ import annotations

from collections.abc import Collection

from fastapi import APIRouter, Depends, Request
from starlette.responses import JSONResponse, Response

from shiftbench.testsets import annotation
from shiftbench.testsets.accounts import Person
from shiftbench.testsets.errors import WorkshopError
from shiftbench.testsets.web.dependencies import Annotator, AppContext, Context, PostedForm, authenticate, see_other
from shiftbench.testsets.web.security import Form

router = APIRouter(dependencies=[Depends(authenticate)])


@router.get("/task")
def task(request: Request, context: Context, person: Annotator) -> Response:
    """The current grid, or the next one."""
    grid = annotation.next_task(context.project, person.id)
    if grid is None:
        return context.page(request, "done.html", own=annotation.progress_of(context.project, person.id))
    return _grid_page(request, context, person, grid)


@router.post("/tasks/{task}")
def back_to_grid(request: Request, context: Context, form: PostedForm, person: Annotator, task: str) -> Response:
    """From the check page back to the grid, with the selection unchanged."""
    grid = annotation.current_task(context.project, person.id, task)
    return _grid_page(request, context, person, grid, selected=form.all("image"))


@router.post("/tasks/{task}/check")
def check(request: Request, context: Context, form: PostedForm, person: Annotator, task: str) -> Response:
    """Show the selected images once more; nothing is stored yet."""
    grid = annotation.current_task(context.project, person.id, task)
    selected = [image for image in grid.images if image in set(form.all("image"))]
    if form.text("none"):
        selected = []
    elif not selected:
        message = "Select the images that show the class, or choose “None of these”."
        return _grid_page(request, context, person, grid, message=message)
    seconds = _seconds_left(context, grid)
    return context.page(request, "check.html", grid=grid, selected=selected, seconds=seconds)


@router.post("/tasks/{task}/answer")
def answer(context: Context, form: PostedForm, person: Annotator, task: str) -> Response:
    """Store the answer before redirecting to the next task."""
    context.limits.answers.take(f"{person.id}")
    annotation.submit(context.project, person.id, task, _selected(form))
    return see_other("/task")


@router.post("/tasks/{task}/return")
def give_back(context: Context, person: Annotator, task: str) -> Response:
    annotation.give_back(context.project, person.id, task)
    return see_other("/account")


@router.post("/tasks/{task}/renew")
def renew(context: Context, person: Annotator, task: str) -> Response:
    """Called by the script while the annotator is active."""
    expires = annotation.renew(context.project, person.id, task)
    return JSONResponse({"seconds": (expires - context.project.now()).total_seconds()})


def _selected(form: Form) -> Collection[str]:
    """An empty selection must be explicit ("None of these")."""
    selected = form.all("image")
    if bool(form.text("none")) == bool(selected):
        raise WorkshopError(
            "incomplete answer", found=f"{len(selected)} images", expected="selected images, or “None of these”",
        )  # fmt: skip
    return selected


def _grid_page(
    request: Request,
    context: AppContext,
    person: Person,
    grid: annotation.AnnotationGrid,
    *,
    selected: Collection[str] = (),
    message: str = "",
) -> Response:
    return context.page(
        request, "task.html", grid=grid, selected=frozenset(selected), message=message,
        examples=annotation.examples(context.project, person.id, grid.task),
        own=annotation.progress_of(context.project, person.id), seconds=_seconds_left(context, grid),
    )  # fmt: skip


def _seconds_left(context: AppContext, grid: annotation.AnnotationGrid) -> int:
    return max(0, int((grid.expires_at - context.project.now()).total_seconds()))
