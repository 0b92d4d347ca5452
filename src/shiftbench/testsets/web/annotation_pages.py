"""Annotation pages: a grid, a check of the selection, the answer, the next grid.

Everything works with plain forms; the script adds keyboard shortcuts and a timer. Pages, URLs and headers do not reveal
control images.
"""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import APIRouter, Depends, Request
from starlette.responses import JSONResponse, Response

from shiftbench.testsets import annotation
from shiftbench.testsets.accounts import Person, exclude
from shiftbench.testsets.errors import AnsweredError, MissingClassError, TooFastError, WorkshopError
from shiftbench.testsets.recruiting import set_finished, worker_status
from shiftbench.testsets.web.context import Annotator, Context, PostedForm, SignedIn, authenticate, see_other
from shiftbench.testsets.web.security import Form, loosen, origin_of

router = APIRouter(dependencies=[Depends(authenticate)])


@router.get("/task")
def task(request: Request, context: Context, person: SignedIn) -> Response:
    """The next task, or why there is none: recruited people see their completion code even after an exclusion."""
    project = context.project
    worker = worker_status(project, person.id)
    grid = None
    if worker is None or not worker.finished:
        grid = annotation.next_task(project, person.id)
    if grid is not None:
        return _grid_page(request, context, person, grid)
    progress = annotation.progress_of(project, person.id)
    last = annotation.last_answer(project, person.id)
    page = context.page(request, "done.html", own=progress, last=last, worker=worker)
    # MTurk takes the assignment from a form that is sent to its site.
    if worker is not None and worker.submit_to:
        loosen(page, "form-action", "'self'", origin_of(worker.submit_to))
    return page


@router.post("/tasks/{task}")
def back_to_grid(request: Request, context: Context, form: PostedForm, person: Annotator, task: str) -> Response:
    """From the check page back to the grid, with the selection unchanged."""
    grid = annotation.current_task(context.project, person.id, task)
    return _grid_page(request, context, person, grid, form)


@router.post("/tasks/{task}/check")
def check(request: Request, context: Context, form: PostedForm, person: Annotator, task: str) -> Response:
    """Show the selected images once more; nothing is stored yet."""
    grid = annotation.current_task(context.project, person.id, task)
    posted = set(form.all("image"))
    selected = [image for image in grid.images if image in posted]
    if form.text("none"):
        selected = []
    elif not selected:
        message = "Select the images that show the class, or choose “None of these”."
        return _grid_page(request, context, person, grid, form, message=message)
    return _check_page(request, context, grid, form, selected)


@router.post("/tasks/{task}/answer")
def answer(request: Request, context: Context, form: PostedForm, person: Annotator, task: str) -> Response:
    """Store the answer before redirecting to the next task. An empty selection must be explicit."""
    context.limits.answers.take(f"{person.id}")
    selected = form.all("image")
    # A grid without a class has a label for each shown image instead of selected images.
    labels = dict(zip(form.all("shown"), form.all("label"), strict=False))
    if not labels and bool(form.text("none")) == bool(selected):
        raise WorkshopError(
            "incomplete answer",
            found=f"{len(selected)} images",
            expected="selected images, or “None of these”",
        )
    try:
        annotation.submit(context.project, person.id, task, labels or selected, remarks=_remarks(form))
    except (TooFastError, MissingClassError) as error:
        # The annotator gets the same page again, with what they had selected.
        grid = annotation.current_task(context.project, person.id, task)
        message = f"{error.message[0].upper()}{error.message[1:]}: {error.expected}."
        if labels:
            return _grid_page(request, context, person, grid, form, selected=labels, message=message)
        return _check_page(request, context, grid, form, selected, message=message)
    worker = worker_status(context.project, person.id)
    # If somebody fails, none of their answers count, and others get their tasks.
    if worker is not None and not worker.qualified:
        exclude(context.project, person.id, "failed the qualification", action="disqualify")
    elif worker is not None and not worker.reliable:
        exclude(context.project, person.id, "fell below the limit on controls", action="disqualify")
    return see_other("/task")


@router.post("/tasks/{task}/undo")
def undo(request: Request, context: Context, person: Annotator, task: str) -> Response:
    """Withdraw the last answer and show its grid again, while the lease of the task lasts."""
    worker = worker_status(context.project, person.id)
    # By now they know that the first task was a test.
    if worker is not None and not (worker.qualified and worker.reliable):
        raise AnsweredError("the qualification cannot be answered again")
    answer = annotation.reopen(context.project, person.id, task)
    message = "Your answer was withdrawn. Please answer again."
    return _grid_page(
        request, context, person, answer.grid, selected=answer.selected, remarks=answer.remarks, message=message
    )


@router.post("/tasks/{task}/return")
def give_back(context: Context, person: Annotator, task: str) -> Response:
    """Return a task without an answer; somebody else gets it."""
    annotation.give_back(context.project, person.id, task)
    return see_other("/account")


@router.post("/finish")
def finish(context: Context, form: PostedForm, person: Annotator) -> Response:
    """A recruited worker stops, or goes on: the page of the tasks shows the completion code for what was done."""
    stops = not form.text("continue")
    if stops:
        annotation.give_back_held(context.project, person.id)
    set_finished(context.project, person.id, finished=stops)
    return see_other("/task")


@router.post("/tasks/{task}/renew")
def renew(context: Context, person: Annotator, task: str) -> Response:
    """Called by the script while the annotator is active."""
    expires = annotation.renew(context.project, person.id, task)
    return JSONResponse({"seconds": (expires - context.project.now()).total_seconds()})


def _check_page(
    request: Request,
    context: Context,
    grid: annotation.AnnotationGrid,
    form: Form,
    selected: list[str],
    message: str = "",
) -> Response:
    """The selected images, with a message if the answer was refused."""
    return context.page(
        request,
        "check.html",
        grid=grid,
        selected=selected,
        seconds=_seconds_left(context, grid),
        remarks=_remarks(form),
        message=message,
        code=400 if message else 200,
    )


def _remarks(form: Form) -> annotation.Remarks:
    return annotation.Remarks(form.text("comment"), frozenset(form.all("unsure")), frozenset(form.all("problem")))


def _grid_page(
    request: Request,
    context: Context,
    person: Person,
    grid: annotation.AnnotationGrid,
    form: Form | None = None,
    *,
    selected: Mapping[str, str | None] | None = None,
    remarks: annotation.Remarks | None = None,
    message: str = "",
) -> Response:
    """A grid to answer; what was selected and remarked before is given, or taken from the form."""
    if selected is None:
        selected = {} if form is None else dict.fromkeys(form.all("image"))
    if remarks is None:
        remarks = annotation.Remarks() if form is None else _remarks(form)
    return context.page(
        request,
        "task.html" if grid.class_key else "label.html",
        grid=grid,
        selected=selected,
        remarks=remarks,
        message=message,
        examples=annotation.examples(context.project, person.id, grid.task),
        own=annotation.progress_of(context.project, person.id),
        seconds=_seconds_left(context, grid),
        last=annotation.last_answer(context.project, person.id),
        worker=worker_status(context.project, person.id),
    )


def _seconds_left(context: Context, grid: annotation.AnnotationGrid) -> int:
    return max(0, int((grid.expires_at - context.project.now()).total_seconds()))
