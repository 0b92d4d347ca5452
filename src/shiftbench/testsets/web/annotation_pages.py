"""Annotation: a grid, a look at what was selected, the answer, the next grid.

All of it works as plain forms; the script adds keys and a clock. Nothing on a page, in an address or in a header
differs between control images and others.
"""

from __future__ import annotations

from collections.abc import Collection

from fastapi import APIRouter, Depends, Request
from starlette.responses import JSONResponse, Response

from shiftbench.testsets import annotation
from shiftbench.testsets.accounts import Person
from shiftbench.testsets.errors import WorkshopError
from shiftbench.testsets.web.dependencies import Annotator, Desk, TheDesk, TheForm, look, see_other
from shiftbench.testsets.web.security import Form

router = APIRouter(dependencies=[Depends(look)])


@router.get("/task")
def task(request: Request, desk: TheDesk, person: Annotator) -> Response:
    """The grid in hand, or the next one."""
    grid = annotation.next_task(desk.project, person.id)
    if grid is None:
        return desk.page(request, "done.html", own=annotation.progress_of(desk.project, person.id))
    return _grid_page(request, desk, person, grid)


@router.post("/tasks/{task}")
def back_to_grid(request: Request, desk: TheDesk, form: TheForm, person: Annotator, task: str) -> Response:
    """From the second look back to the grid, with everything selected as it was."""
    grid = annotation.current_task(desk.project, person.id, task)
    return _grid_page(request, desk, person, grid, selected=form.all("image"))


@router.post("/tasks/{task}/check")
def check(request: Request, desk: TheDesk, form: TheForm, person: Annotator, task: str) -> Response:
    """A second look at the selected pictures; nothing is stored yet."""
    grid = annotation.current_task(desk.project, person.id, task)
    selected = [image for image in grid.images if image in set(form.all("image"))]
    if form.text("none"):
        selected = []
    elif not selected:
        message = "Select the pictures that show it, or choose “None of these”."
        return _grid_page(request, desk, person, grid, message=message)
    seconds = _seconds_left(desk, grid)
    return desk.page(request, "check.html", grid=grid, selected=selected, seconds=seconds)


@router.post("/tasks/{task}/answer")
def answer(desk: TheDesk, form: TheForm, person: Annotator, task: str) -> Response:
    """Stored when this is answered: whoever is sent on to the next task has lost nothing."""
    desk.limits.answers.take(f"{person.id}")
    annotation.submit(desk.project, person.id, task, _selected(form))
    return see_other("/task")


@router.post("/tasks/{task}/return")
def give_back(desk: TheDesk, person: Annotator, task: str) -> Response:
    annotation.give_back(desk.project, person.id, task)
    return see_other("/account")


@router.post("/tasks/{task}/renew")
def renew(desk: TheDesk, person: Annotator, task: str) -> Response:
    """Asked for by the script while somebody is active."""
    expires = annotation.renew(desk.project, person.id, task)
    return JSONResponse({"seconds": (expires - desk.project.now()).total_seconds()})


def _selected(form: Form) -> Collection[str]:
    """That nothing was selected is an answer of its own, never the absence of one."""
    selected = form.all("image")
    if bool(form.text("none")) == bool(selected):
        raise WorkshopError(
            "this is not an answer", found=f"{len(selected)} pictures",
            expected="the selected pictures, or “None of these”",
        )  # fmt: skip
    return selected


def _grid_page(
    request: Request,
    desk: Desk,
    person: Person,
    grid: annotation.Grid,
    *,
    selected: Collection[str] = (),
    message: str = "",
) -> Response:
    return desk.page(
        request, "task.html", grid=grid, selected=frozenset(selected), message=message,
        examples=annotation.examples(desk.project, person.id, grid.task),
        own=annotation.progress_of(desk.project, person.id), seconds=_seconds_left(desk, grid),
    )  # fmt: skip


def _seconds_left(desk: Desk, grid: annotation.Grid) -> int:
    return max(0, int((grid.expires_at - desk.project.now()).total_seconds()))
