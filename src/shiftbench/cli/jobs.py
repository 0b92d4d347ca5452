"""``shiftbench jobs`` and ``launch``: runs without a terminal, and evaluations as job arrays."""

from __future__ import annotations

import json as json_format
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from shiftbench.cli.console import errors, output, print_json, show
from shiftbench.cli.options import Commands, Json
from shiftbench.errors import SettingError
from shiftbench.io.atomic import write_private
from shiftbench.jobs.detached import DetachedJob, cancel, detached_jobs, find_job, follow

app = Commands("Runs without a terminal (`eval --detach`): list, attach, cancel.")
launch = Commands("Write, and submit, an evaluation as an array of jobs that share its blocks: SLURM, Kubernetes.")

Arguments = Annotated[list[str], typer.Argument(help="The arguments of `shiftbench eval`, after --.")]
Jobs = Annotated[int, "--jobs", "-n", {"min": 1}, "Number of jobs in the array."]
Name = Annotated[str, "Name of the job."]
Submit = Annotated[bool, "Submit it, too: needs sbatch or kubectl."]
JobId = Annotated[str | None, typer.Argument(help="Id of a job, or its beginning (default: the last job).")]
#: Options of eval that an array sets itself, or that make no sense in it.
_REFUSED_OPTIONS = ("--shard", "--rebalance", "--detach", "--dry-run")

_SCRIPT = """#!/bin/bash
#SBATCH --job-name={name}
#SBATCH --array=1-{jobs}
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output={name}-%A_%a.log
{options}
# A task that is requeued, resubmitted or run twice continues where it was: finished blocks are in the workspace.
cd {folder} || exit 1
exec {command} --shard "$SLURM_ARRAY_TASK_ID/{jobs}" --rebalance
"""


@app.command("list")
def list_command(json: Json = False) -> None:
    """List the detached runs of this machine, the last one first: id, status, command.

    `lost` runs were killed or ended with the machine; rerun their command, it resumes.
    """
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
    running = find_job(job)
    try:
        for text in follow(running):
            sys.stdout.write(text)
            sys.stdout.flush()
    except KeyboardInterrupt:
        errors.print(f"\ndetached; {running.id} goes on")
        raise typer.Exit(130) from None
    ended = find_job(running.id)
    if ended.status == "lost":
        errors.print(f"lost; rerun, it resumes: {ended.command}", soft_wrap=True)
    code = 1 if ended.exit_code is None else ended.exit_code
    # A process that a signal ended has minus the signal as its code; shells report 128 plus the signal.
    raise typer.Exit(code if code >= 0 else 128 - code)


@app.command("cancel")
def cancel_command(job: JobId = None, json: Json = False) -> None:
    """Stop a job as Ctrl-C does; what is done is kept, and the same command resumes."""
    ended = cancel(find_job(job))
    show(describe(ended), f"{ended.id}: {ended.status}", as_json=json)


def _command(program: str, arguments: Sequence[str]) -> str:
    """The command that every job of an array runs, without its shard."""
    for argument in arguments:
        option, _, _ = argument.partition("=")
        if option in _REFUSED_OPTIONS:
            raise SettingError(f"{argument} can't be launched", expected="arguments of `shiftbench eval` without it")
    return shlex.join([program, "eval", *arguments, "--quiet"])


def slurm_script(arguments: Sequence[str], jobs: int, name: str, options: Sequence[str] = ()) -> str:
    """A batch script for ``sbatch``; its tasks run the present installation in the present folder."""
    program = Path(sys.executable).with_name("shiftbench")
    command = _command(str(program) if program.exists() else program.name, arguments)
    lines = "".join(f"#SBATCH --{option.removeprefix('--')}\n" for option in options)
    return _SCRIPT.format(name=name, jobs=jobs, options=lines, folder=shlex.quote(str(Path.cwd())), command=command)


def kubernetes_job(
    arguments: Sequence[str], jobs: int, name: str, image: str, claims: Mapping[str, str], limits: Mapping[str, str]
) -> dict[str, object]:
    """An indexed Job; pods that were evicted are replaced without being counted as failures."""
    shard = f'--shard "$((JOB_COMPLETION_INDEX + 1))/{jobs}" --rebalance'
    container = {
        "name": "shiftbench",
        "image": image,
        "command": ["/bin/sh", "-c", f"exec {_command('shiftbench', arguments)} {shard}"],
        "resources": {"limits": dict(limits)},
        "volumeMounts": [{"name": claim, "mountPath": path} for claim, path in claims.items()],
    }
    volumes = [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
    pod = {"restartPolicy": "Never", "containers": [container], "volumes": volumes}
    evicted = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
    spec = {
        "completions": jobs,
        "parallelism": jobs,
        "completionMode": "Indexed",
        "backoffLimitPerIndex": 3,
        "podFailurePolicy": {"rules": [evicted]},
        "template": {"spec": pod},
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


@launch.command("slurm")
def slurm_command(
    arguments: Arguments,
    jobs: Jobs,
    name: Name = "shiftbench",
    option: Annotated[list[str] | None, "Option of sbatch, such as gpus=1 (repeatable)."] = None,
    out: Annotated[Path, "-o", "The script to write."] = Path("shiftbench.sbatch"),
    submit: Submit = False,
    json: Json = False,
) -> None:
    """Write a SLURM array whose tasks share the blocks of an evaluation.

    Tasks take over blocks that other tasks have not begun; the last one joins the results. Preempted tasks are requeued
    and resume. Data and workspace must be on a file system that all nodes see, or in an object store.

    \b
    Example:
      shiftbench launch slurm --jobs 32 --option gpus=1 --submit -- \\
        timm:resnet50 --suite imagenet-c --data /shared/val -w /shared/workspace
    """
    # The arguments may hold credentials, such as the query of a signed URL.
    write_private(out, slurm_script(arguments, jobs, name, option or ()).encode())
    _finish(out, ["sbatch", str(out)], submit, json)


@launch.command("k8s")
def kubernetes_command(
    arguments: Arguments,
    jobs: Jobs,
    image: Annotated[str, "Container image with shiftbench in it."],
    name: Name = "shiftbench",
    claim: Annotated[
        list[str] | None, "CLAIM:PATH, a persistent volume claim and where it is mounted (repeatable)."
    ] = None,
    limit: Annotated[list[str] | None, "RESOURCE=AMOUNT per pod: nvidia.com/gpu=1 (repeatable)."] = None,
    out: Annotated[Path, "-o", "The manifest to write (JSON)."] = Path("shiftbench.json"),
    submit: Submit = False,
    json: Json = False,
) -> None:
    """Write a Kubernetes Job whose pods share the blocks of an evaluation.

    An indexed Job, as a manifest for `kubectl apply`. Pods that are evicted are started again and resume. Data and
    workspace are on a volume that all pods mount, or in an object store.

    \b
    Example:
      shiftbench launch k8s --jobs 8 --image example/shiftbench --claim shared:/shared \\
        --limit nvidia.com/gpu=1 -- timm:resnet50 --suite imagenet-c \\
        --data /shared/val -w /shared/workspace
    """
    claims = _pairs(claim or (), ":", "--claim")
    manifest = kubernetes_job(arguments, jobs, name, image, claims, _pairs(limit or (), "=", "--limit"))
    write_private(out, f"{json_format.dumps(manifest, indent=2)}\n".encode())
    _finish(out, ["kubectl", "apply", "-f", str(out)], submit, json)


def _pairs(texts: Sequence[str], separator: str, flag: str) -> dict[str, str]:
    """The values of an option that are pairs, such as ``CLAIM:PATH``; neither side may be empty."""
    pairs = {}
    for text in texts:
        name, _, value = text.partition(separator)
        if not name or not value:
            raise typer.BadParameter(f"expected NAME{separator}VALUE", param_hint=flag)
        pairs[name] = value
    return pairs


def _finish(out: Path, command: Sequence[str], submit: bool, as_json: bool) -> None:
    """Submit the file with the command if ``submit`` says so, and report what was done."""
    if submit and shutil.which(command[0]) is None:
        raise SettingError(
            f"{command[0]} is not installed here",
            found=f"{out} is written",
            hint=f"on a login node: {shlex.join(command)}",
        )
    answer = ""
    if submit:
        completed = subprocess.run(command, capture_output=True, text=True)
        answer = (completed.stdout + completed.stderr).strip()
        if completed.returncode:
            raise SettingError(f"{command[0]} refused {out}", found=answer)
    if as_json:
        print_json({"file": str(out), "submitted": submit, "answer": answer})
    else:
        errors.print(answer or f"written: {out}; submit it with: {shlex.join(command)}", soft_wrap=True)
