"""Devices and ranks, by Hugging Face Accelerate: one process per device, started by torchrun or ``--devices``.

Everything that depends on the number of ranks is here. A step's gradient is the sum over the parts of its batch, so it
is the same whether one rank computes the parts one after the other or each of several ranks computes some of them.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from datetime import timedelta
from pathlib import Path

import torch
from accelerate import Accelerator, DistributedDataParallelKwargs, InitProcessGroupKwargs
from accelerate.state import AcceleratorState
from torch import nn
from torch.distributed import DistError, all_reduce
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from shiftbench import ShiftbenchError
from shiftbench.extend.errors import argument
from shiftbench.extend.io import file_lock, write_atomically
from shiftbench.hardening.errors import BusyError, RankError, TrainingError

_PRECISIONS = {"float32": "no", "bfloat16": "bf16", "float16": "fp16"}
#: The first generation of NVIDIA's GPUs that computes in bfloat16; torch emulates it on older ones.
_NATIVE_BFLOAT16 = (8, 0)
#: A rank that fails leaves this file in the folder of the run, for the others.
FAILURE = "failure.json"
#: For this many seconds, the other ranks look for that file.
_PATIENCE = 5.0
#: The fields of an error beside its message.
_ERROR_FIELDS = ("found", "expected", "hint")
#: The hint of an error whose cause may be another rank.
_LOST = "if another rank was killed or its machine is gone, rerun the same command; it resumes"


class Devices:
    """This rank's device, and what it shares with the other ranks."""

    def __init__(self, device: str, precision: str, rank_timeout: float = 1800.0) -> None:
        if precision == "auto":
            precision = _native_precision(device)
        # Accelerate keeps its state for the whole process, in which an earlier run may have had another device.
        os.environ.pop("ACCELERATE_TORCH_DEVICE", None)
        if device not in ("cpu", "cuda"):
            os.environ["ACCELERATE_TORCH_DEVICE"] = device
        AcceleratorState._reset_state(reset_partial_state=True)
        # Buffers are averaged below: the default would copy rank 0's batch norm statistics over the others'.
        buffers = DistributedDataParallelKwargs(broadcast_buffers=False)
        # A host that vanishes closes no connection: only the time tells that its ranks are gone.
        waiting = InitProcessGroupKwargs(timeout=timedelta(seconds=rank_timeout))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "OMP_NUM_THREADS")
            emulated = precision == "float16" and device == "cpu"
            mixed = "no" if emulated else _PRECISIONS[precision]
            self.accelerator = Accelerator(
                cpu=device == "cpu", mixed_precision=mixed, kwargs_handlers=[buffers, waiting]
            )
        if emulated:
            # Accelerate refuses float16 without a GPU; torch has it for CPUs, with loss scaling, slow but the same.
            self.accelerator.state._mixed_precision = "fp16"
            self.accelerator.native_amp = True
            self.accelerator.scaler = torch.amp.GradScaler("cpu")
        self.rank: int = self.accelerator.process_index
        self.world: int = self.accelerator.num_processes
        self.device = self.accelerator.device

    @property
    def sum_type(self) -> torch.dtype:
        """The type in which losses and counts are added up; MPS has no float64."""
        return torch.float32 if self.device.type == "mps" else torch.float64

    @property
    def first(self) -> bool:
        """Whether this is rank 0, which writes all files and prints all messages."""
        return self.rank == 0

    def check_splits(self, splits: int) -> None:
        if splits % self.world:
            raise TrainingError(
                "a batch can't be divided evenly among the devices",
                found=f"train.splits = {splits} on {self.world} devices",
                expected="a multiple of the number of devices",
                hint=argument("changes", {"train.splits": self.world}, flag="--set"),
            )

    @contextmanager
    def sharing(self, folder: Path, wait: bool) -> Iterator[None]:
        """Rank 0 holds the folder's lock for all. When a rank fails, each raises an error with that rank's cause."""
        with file_lock(folder / ".lock", wait=wait) if self.first else nullcontext(True) as locked:
            if self.first and locked:
                # A killed process leaves a half-written file.
                for leftover in (folder / FAILURE, *folder.rglob(".*.tmp")):
                    leftover.unlink(missing_ok=True)
            if not self.gathered([locked])[0][0]:
                hint = f"wait for it, or choose another folder ({argument('out')})"
                raise BusyError(f"another process is training in {folder}", hint=hint)
            try:
                yield
            except Exception as error:
                if self.world == 1:
                    raise
                raise self._failure(folder, error) from error

    def _failure(self, folder: Path, error: Exception) -> RankError:
        """The failure of the rank that failed first: this one's, unless another has left a note."""
        found = f"{type(error).__name__}: {error}"
        cause = error if isinstance(error, ShiftbenchError) else TrainingError(found, hint=_LOST)
        if type(error) is RuntimeError or isinstance(error, DistError):
            # gloo and NCCL report no more than this of a lost rank. If it was killed, torchrun ends this one meanwhile.
            cause = TrainingError("another rank has ended, or torch cannot continue", found=found, hint=_LOST)
            deadline = time.monotonic() + _PATIENCE
            while not (folder / FAILURE).exists() and time.monotonic() < deadline:
                time.sleep(0.1)
        note = {"rank": self.rank, "host": socket.gethostname(), "message": cause.message}
        note |= {key: getattr(cause, key) for key in _ERROR_FIELDS}
        with suppress(OSError, ShiftbenchError):  # A full disk, for example, must not hide the cause.
            text = json.dumps(note, default=str)
            write_atomically(
                folder / FAILURE, lambda path: path.write_bytes(text.encode()), durable=False, exclusive=True
            )
        return read_failure(folder, self.rank) or RankError(f"rank {self.rank} failed: {cause}")

    def prepare(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[nn.Module, torch.optim.Optimizer]:
        """The model and the optimizer, wrapped for training on several ranks and in mixed precision."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*broadcast_buffers", FutureWarning)
            wrapped_model, wrapped_optimizer = self.accelerator.prepare(model, optimizer)
        if isinstance(wrapped_model, DistributedDataParallel):
            # Gradients are added, not averaged: losses are scaled alike on any number of ranks, which float16 needs.
            wrapped_model.register_comm_hook(None, lambda _, bucket: _sum_of_ranks(bucket.buffer()))
        return wrapped_model, wrapped_optimizer

    def summed(self, values: Sequence[float]) -> list[float]:
        """The sums of the values over all ranks."""
        return [sum(column) for column in zip(*self.gathered(values), strict=True)]

    def gathered(self, values: Sequence[float]) -> list[list[float]]:
        """Each rank's values, in the order of the ranks."""
        row = torch.tensor([values], dtype=self.sum_type, device=self.device)
        return self.accelerator.gather(row).tolist()  # type: ignore[no-any-return]


@contextmanager
def backend_settings(cudnn_benchmark: bool, tf32: str) -> Iterator[None]:
    """Sets what torch's GPU libraries may do for the whole process, and puts it back in the end."""
    cudnn = torch.backends.cudnn
    matmul = torch.backends.cuda.matmul
    before = (cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32)
    cudnn.benchmark = cudnn_benchmark
    cudnn.allow_tf32 = tf32 != "none"
    matmul.allow_tf32 = tf32 == "all"
    try:
        yield
    finally:
        cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32 = before


@contextmanager
def kept_statistics(norms: Sequence[_BatchNorm]) -> Iterator[None]:
    """Batch norms leave their running statistics as they are, also where a forward pass is computed once more."""
    momenta = [norm.momentum for norm in norms]
    counts = [None if norm.num_batches_tracked is None else norm.num_batches_tracked.clone() for norm in norms]
    for norm in norms:
        norm.momentum = 0.0
    try:
        yield
    finally:
        for norm, momentum, count in zip(norms, momenta, counts, strict=True):
            norm.momentum = momentum
            if norm.num_batches_tracked is not None and count is not None:
                norm.num_batches_tracked.copy_(count)


def _native_precision(device: str) -> str:
    """The fastest precision that the device computes in without emulation."""
    if not device.startswith("cuda"):
        return "float32"
    if torch.cuda.get_device_capability() >= _NATIVE_BFLOAT16:
        return "bfloat16"
    return "float16"


def _sum_of_ranks(gradients: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
    return all_reduce(gradients, async_op=True).get_future().then(lambda done: done.value()[0])  # type: ignore[no-any-return]


class Statistics:
    """Averages the batch norm statistics of a batch in several parts.

    Every part starts from the statistics before the batch, and the mean over the parts is kept. ``begin``, ``add``
    after each part and ``end`` do nothing if there is one part only.
    """

    def __init__(self, model: nn.Module, devices: Devices, splits: int) -> None:
        self.devices = devices
        self.splits = splits
        self.buffers: list[torch.Tensor] = []
        self.counts: list[torch.Tensor] = []
        for module in model.modules():
            if isinstance(module, _BatchNorm) and module.running_mean is not None:
                self.buffers.append(module.running_mean)
                if module.running_var is not None:
                    self.buffers.append(module.running_var)
                if module.num_batches_tracked is not None:
                    self.counts.append(module.num_batches_tracked)
        self.needed = splits > 1 and bool(self.buffers)

    def begin(self) -> None:
        if self.needed:
            self.start = [buffer.clone() for buffer in (*self.buffers, *self.counts)]
            self.total = [torch.zeros_like(buffer) for buffer in self.buffers]

    def add(self, last: bool) -> None:
        """Adds the statistics after a part, and goes back to the start for the next part."""
        if not self.needed:
            return
        torch._foreach_add_(self.total, self.buffers)
        if not last:
            torch._foreach_copy_([*self.buffers, *self.counts], self.start)

    def end(self) -> None:
        if not self.needed:
            return
        flat = torch.cat([buffer.flatten() for buffer in self.total])
        flat = self.devices.accelerator.reduce(flat, "sum") / self.splits
        means = flat.split([buffer.numel() for buffer in self.buffers])
        shaped = [mean.view_as(buffer) for mean, buffer in zip(means, self.buffers, strict=True)]
        torch._foreach_copy_(self.buffers, shaped)


def launch(devices: int) -> None:
    """Runs this very command once per device, by torchrun, and returns when all have ended."""
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import main

    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # the message is below
    try:
        main(["--standalone", f"--nproc-per-node={devices}", *sys.argv])
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        if failure.exitcode > 0:  # The rank itself has printed the reason.
            sys.exit(failure.exitcode)
        raise TrainingError(
            f"rank {rank} was killed, and so all ranks were ended",
            found=f"signal {-failure.exitcode}",
            hint="rerun the same command; it resumes",
        ) from error


def read_failure(folder: Path, rank: int | None = None) -> RankError | None:
    """The failure that a rank has left a note about; ``rank`` is the rank that asks."""
    if not (folder / FAILURE).is_file():
        return None
    note = json.loads((folder / FAILURE).read_text())
    fields = {key: note[key] for key in _ERROR_FIELDS}
    error = RankError(f"rank {note['rank']} failed: {note['message']}", **fields)
    # A rank of the same machine has printed its error already.
    error.reported = rank not in (None, note["rank"]) and note["host"] == socket.gethostname()
    return error
