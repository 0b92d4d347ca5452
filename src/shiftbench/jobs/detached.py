"""Commands that outlive their terminal: each has a record, a log and, in the end, an exit code in the cache folder.

A keeper process holds a lock while the command runs, so that neither a job of a restarted machine nor an unrelated
process is mistaken for a running job.
"""

from __future__ import annotations

import os
import platform
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec

from shiftbench.errors import ShiftbenchError, UnknownNameError, argument, command_without_credentials, shell_command
from shiftbench.io.atomic import write_private
from shiftbench.io.cache import cache_folder
from shiftbench.io.locks import file_lock

JobStatus = Literal["running", "done", "failed", "cancelled", "lost"]
#: Seconds between two polls of a job.
_POLL_SECONDS = 0.1
#: Seconds until the keeper of a job must have started.
_START_SECONDS = 60.0
#: Number of finished jobs whose files are kept.
_KEPT_JOBS = 50
#: The exit code of a command that was stopped by Ctrl-C.
_INTERRUPTED = 130
#: What the process of a job runs; its arguments come by its standard input.
_COMMAND = "import json, sys; sys.argv[1:] = json.load(sys.stdin); from shiftbench.cli import main; main()"


class DetachedJob(msgspec.Struct, kw_only=True):
    """A command that runs, or ran, without a terminal."""

    id: str
    arguments: list[str]  #: Without credentials, which only the processes of the job know.
    folder: str
    started: str
    process: int  #: The id of the keeper, which leads the group of processes.
    exit_code: int | None = None

    @property
    def log(self) -> Path:
        """The file with everything that the command printed."""
        return _file(self.id, "log")

    @property
    def command(self) -> str:
        """The command as a user would type it, without credentials."""
        # Records of earlier versions may hold credentials.
        return shell_command(*command_without_credentials(self.arguments))

    @property
    def status(self) -> JobStatus:
        """Whether the job runs, or how it ended.

        A "lost" job was killed, or its machine restarted; the same command resumes.
        """
        if self.exit_code is not None:
            codes: dict[int, JobStatus] = {0: "done", _INTERRUPTED: "cancelled"}
            return codes.get(self.exit_code, "failed")
        with file_lock(_file(self.id, "lock"), wait=False) as is_free:
            # The keeper holds the lock as long as it lives.
            return "lost" if is_free else "running"


def _file(job_id: str, kind: Literal["log", "lock", "json"]) -> Path:
    return cache_folder("jobs") / f"{job_id}.{kind}"


def start_job(arguments: Sequence[str]) -> DetachedJob:
    """Run ``shiftbench`` with these arguments in a session of its own.

    Raises:
        ShiftbenchError: This system has no sessions, or the job did not start.
    """
    if not hasattr(os, "setsid"):
        raise ShiftbenchError(
            f"{argument('detach', True)} does not work on {platform.system()}",
            hint="run the same command without it; an interrupted run resumes",
        )
    _remove_old_jobs()
    job_id = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(2)}"
    log = _file(job_id, "log")
    log.touch(mode=0o600)
    with log.open("wb") as output:
        keeper = subprocess.Popen(
            [sys.executable, "-m", __name__, job_id],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    _hand_over(keeper, arguments)
    limit = time.monotonic() + _START_SECONDS
    while not _file(job_id, "json").exists():
        if keeper.poll() is not None or time.monotonic() > limit:
            raise ShiftbenchError("the job did not start", found=log.read_text(errors="replace")[-500:])
        time.sleep(_POLL_SECONDS)
    return find_job(job_id)


def _hand_over(process: subprocess.Popen[bytes], arguments: Sequence[str]) -> None:
    """Send arguments to a process by its standard input: other users can list the words of every command."""
    assert process.stdin is not None
    # A process that ended at once is noticed where it is waited for.
    with suppress(BrokenPipeError), process.stdin:
        process.stdin.write(msgspec.json.encode(list(arguments)))


def _remove_old_jobs() -> None:
    """Remove the files of all finished jobs but the last ones."""
    finished = [job for job in detached_jobs() if job.status != "running"]
    for job in finished[_KEPT_JOBS:]:
        for path in cache_folder("jobs").glob(f"{job.id}.*"):
            path.unlink(missing_ok=True)


def detached_jobs() -> list[DetachedJob]:
    """The jobs of this user on this machine, the last one first."""
    jobs = []
    for path in sorted(cache_folder("jobs").glob("*.json"), reverse=True):
        with suppress(OSError, msgspec.MsgspecError):
            jobs.append(msgspec.json.decode(path.read_bytes(), type=DetachedJob))
    return jobs


def find_job(job_id: str | None = None) -> DetachedJob:
    """A job by its id or the beginning of it; by default the last one. Raises UnknownNameError if there is none."""
    start = job_id or ""
    jobs = detached_jobs()
    for job in jobs:
        if job.id.startswith(start):
            return job
    raise UnknownNameError("job", start, [job.id for job in jobs])


def follow(job: DetachedJob) -> Iterator[str]:
    """The log of a job as it grows, until the job ends."""
    with job.log.open(encoding="utf-8", errors="replace") as log:
        while True:
            ended = find_job(job.id).status != "running"
            if text := log.read():
                yield text
            elif ended:
                return
            else:
                time.sleep(_POLL_SECONDS)


def cancel(job: DetachedJob) -> DetachedJob:
    """Stop a job as Ctrl-C does, and wait for its end; what is done is kept."""
    if job.status == "running":
        os.killpg(job.process, signal.SIGINT)
        while find_job(job.id).status == "running":
            time.sleep(_POLL_SECONDS)
    return find_job(job.id)


def _keep(job_id: str, arguments: list[str]) -> None:
    """Be the keeper of a job: run its command, and record its start and its end."""
    received: list[int] = []
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        # The keeper must live until the command has stopped. It does not ignore the signals, because the command would
        # inherit that.
        signal.signal(signal_number, lambda number, _: received.append(number))
    started = datetime.now(UTC).isoformat(timespec="seconds")
    with file_lock(_file(job_id, "lock"), wait=True):
        job = DetachedJob(
            id=job_id,
            arguments=command_without_credentials(arguments),
            folder=str(Path.cwd()),
            started=started,
            process=os.getpid(),
        )
        with subprocess.Popen([sys.executable, "-c", _COMMAND], stdin=subprocess.PIPE) as process:
            _hand_over(process, arguments)
            write_private(_file(job_id, "json"), msgspec.json.encode(job))
            job.exit_code = process.wait()
        # A command that is interrupted while Python starts exits with other codes.
        if job.exit_code and received:
            job.exit_code = _INTERRUPTED
        write_private(_file(job_id, "json"), msgspec.json.encode(job))


if __name__ == "__main__":
    _keep(sys.argv[1], msgspec.json.decode(sys.stdin.buffer.read(), type=list[str]))
