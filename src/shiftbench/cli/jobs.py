"""``shiftbench jobs``: runs that were started with ``eval --detach``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from shiftbench.cli.console import errors, output, print_json
from shiftbench.cli.options import Json

if TYPE_CHECKING:
    from shiftbench.jobs.detached import DetachedJob

app = typer.Typer(no_args_is_help=True, help="Runs without a terminal (`eval --detach`): list, attach, cancel.")

JobId = Annotated[str | None, typer.Argument(help="Id of a job, or its beginning (default: the last job).")]


@app.command("list")
def list_command(json: Json = False) -> None:
    """List the detached runs of this machine, the last one first: id, status, command.

    `lost` runs were killed or ended with the machine; rerun their command, it resumes.
    """
    from shiftbench.jobs.detached import detached_jobs

    jobs = detached_jobs()
    if json:
        print_json([describe(job) for job in jobs])
        return
    for job in jobs:
        output.print(f"{job.id}  {job.status:<9}  {job.command}", soft_wrap=True)
    if not jobs:
        errors.print("no jobs; start one with `shiftbench eval ... --detach`")


def describe(job: DetachedJob) -> dict[str, object]:
    """A job as JSON-able data."""
    names = ("id", "status", "command", "folder", "started", "process", "exit_code")
    return {**{name: getattr(job, name) for name in names}, "log": str(job.log)}


@app.command("attach")
def attach_command(job: JobId = None) -> None:
    """Show the output of a job, from its start, until it ends; exits with its exit code.

    Ctrl-C detaches again: the job goes on.
    """
    from shiftbench.jobs.detached import find_job, follow

    found = find_job(job)
    try:
        for text in follow(found):
            sys.stdout.write(text)
            sys.stdout.flush()
    except KeyboardInterrupt:
        errors.print(f"\ndetached; {found.id} goes on")
        raise typer.Exit(130) from None
    found = find_job(found.id)
    if found.status == "lost":
        errors.print(f"lost; rerun, it resumes: {found.command}", soft_wrap=True)
    code = 1 if found.exit_code is None else found.exit_code
    raise typer.Exit(code if code >= 0 else 128 - code)


@app.command("cancel")
def cancel_command(job: JobId = None, json: Json = False) -> None:
    """Stop a job as Ctrl-C does; what is done is kept, and the same command resumes."""
    from shiftbench.jobs.detached import cancel, find_job

    ended = cancel(find_job(job))
    if json:
        print_json(describe(ended))
    else:
        output.print(f"{ended.id}: {ended.status}")
