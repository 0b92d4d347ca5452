"""One training on several devices: torchrun starts a process for each, and this one waits for them.

`harden train --devices` does the same with its own command line. An experiment has no command line for a single run, so
the run is handed over in a file.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import torch

from shiftbench import Dataset
from shiftbench.extend.errors import argument
from shiftbench.extend.io import cache_folder, file_lock
from shiftbench.extend.tables import read_log
from shiftbench.hardening.errors import BusyError, TrainingError
from shiftbench.hardening.experiments.base import PlannedRun
from shiftbench.hardening.training.devices import read_failure
from shiftbench.hardening.training.train import train
from shiftbench.jobs import Advance

#: Seconds between two looks at the log, for the progress bar.
_PERIOD = 0.5
#: Seconds in which the ranks may end by themselves when they are stopped.
_PATIENCE = 10.0


@contextmanager
def free_gpus(count: int) -> Iterator[list[int]]:
    """The first ``count`` GPUs on which no other run of this machine trains; fewer if fewer are free."""
    with ExitStack() as held:
        numbers: list[int] = []
        for number in range(torch.cuda.device_count()):
            if len(numbers) == count:
                break
            if held.enter_context(file_lock(cache_folder("hardening", "gpus") / f"{number}.lock", wait=False)):
                numbers.append(number)
        yield numbers


def train_on_devices(run: PlannedRun, data: str | Dataset, devices: int, report: Advance, *, wait: bool) -> None:
    """Trains a run on several GPUs of this machine, or on as many processes where there is none.

    Args:
        run: The run.
        data: Its training data.
        devices: The number of processes, with a GPU each.
        report: Called with the number of epochs that were finished since the last call.
        wait: Where another process trains in the same folder, wait for its end instead of raising BusyError.

    Raises:
        TrainingError: Too few GPUs are free, or a rank failed.
    """
    run.folder.mkdir(parents=True, exist_ok=True)
    with file_lock(run.folder / ".lock", wait=wait) as free:
        if not free:
            raise BusyError(f"another process is training in {run.folder}", hint="wait for it")
    with free_gpus(devices) as gpus, tempfile.TemporaryDirectory(prefix="shiftbench-") as folder:
        # The bits of a sum depend on the number of threads.
        environment = {"OMP_NUM_THREADS": "1", **os.environ}
        if torch.cuda.device_count():
            if len(gpus) < devices:
                raise TrainingError(
                    "too few GPUs are free", found=len(gpus), expected=devices, hint=argument("devices", len(gpus))
                )
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(_visible(gpus))
        task = Path(folder) / "run.pkl"
        task.write_bytes(pickle.dumps((run, data)))
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={devices}"]
        command += ["-m", "shiftbench.hardening.experiments.ranks", str(task)]
        with (Path(folder) / "output.txt").open("w+b") as output:
            process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
            try:
                _wait(process, run.folder, report)
            finally:
                _end(process)
            if process.returncode:
                output.seek(0)
                lines = output.read().decode("utf-8", "replace").strip().splitlines()
                raise read_failure(run.folder) or TrainingError(
                    f"torchrun ended with {process.returncode}", found=lines[-1] if lines else "no output"
                )


def _visible(gpus: Sequence[int]) -> list[str]:
    """The names of GPUs for the processes that are started, which may see only some of those of the machine."""
    names = os.environ.get("CUDA_VISIBLE_DEVICES")
    if not names:
        return [str(number) for number in gpus]
    visible = names.split(",")
    return [visible[number] for number in gpus]


def _wait(process: subprocess.Popen[bytes], folder: Path, report: Advance) -> None:
    """Returns when the process has ended; reports the epochs that are added to the log meanwhile."""
    epochs = len(read_log(folder))
    while True:
        try:
            process.wait(_PERIOD)
        except subprocess.TimeoutExpired:
            ended = False
        else:
            ended = True
        now = len(read_log(folder))
        if now > epochs:
            report(now - epochs)
        epochs = max(epochs, now)
        if ended:
            return


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends torchrun and its ranks if they still run, as after Ctrl-C."""
    if process.poll() is not None:
        return
    process.terminate()  # torchrun passes it on to its ranks
    try:
        process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def main(task: str) -> None:
    """One rank: trains the run in a file that ``train_on_devices`` of the parent process has just written."""
    run, data = pickle.loads(Path(task).read_bytes())
    train(run.recipe, run.folder, data=data, name=run.name, progress=False)


if __name__ == "__main__":
    main(sys.argv[1])
