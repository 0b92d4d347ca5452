"""What a training says within an epoch: loss, images per second, time spent waiting for data, memory, estimated end.

These numbers are shown and sent to trackers, and decide nothing.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice

import torch

from shiftbench.hardening.training.batches import Batch

_BYTES_PER_GB = 1e9


@dataclass(frozen=True)
class PaceReport:
    """The steps since the last report; loss and accuracy are those of this rank's images."""

    loss: float
    accuracy: float
    #: Over all ranks, as if each were as fast as this one.
    images_per_second: float
    #: The share of the time in which the loop waited for the loader.
    waiting: float
    #: Largest memory so far: of the GPU where there is one, else of this process; None on Windows.
    memory_gb: float | None
    #: Until the last epoch is trained, at this pace; without the validation after each epoch.
    seconds_left: float

    def metrics(self) -> dict[str, float]:
        """The numbers by the names that trackers get."""
        numbers = {name: value for name, value in vars(self).items() if value is not None}
        return {f"train/within_epoch/{name}": value for name, value in numbers.items()}

    def line(self, epoch: int, batch: int, batches: int) -> str:
        """The numbers as the user reads them."""
        memory = "" if self.memory_gb is None else f"{self.memory_gb:.1f} GB, "
        end = datetime.now().astimezone() + timedelta(seconds=self.seconds_left)
        return (
            f"epoch {epoch}, batch {batch:,} of {batches:,}: loss {self.loss:.4f}, "
            f"accuracy {100 * self.accuracy:.1f} %, {self.images_per_second:,.0f} images/s, "
            f"{100 * self.waiting:.0f} % of the time waiting for data, "
            f"{memory}end about {end:%a %H:%M}"
        )


class Pace:
    """Measures the steps of an epoch, and tells when a report is due.

    ``every``: seconds between reports; 0: never. ``sums``: the run's sums over the epoch when it begins.
    """

    def __init__(self, every: float, sums: Sequence[float]) -> None:
        self.every = every
        self._begin(sums)

    def _begin(self, sums: Sequence[float]) -> None:
        self.sums = list(sums)
        self.began = time.monotonic()
        self.waited = 0.0
        self.steps = 0

    def next_batch(self, parts: Iterator[Batch], count: int) -> list[Batch]:
        """This rank's parts of the next batch, at most ``count``; the time until they are there is noted."""
        began = time.monotonic()
        batch = list(islice(parts, count))
        self.waited += time.monotonic() - began
        self.steps += len(batch) > 0
        return batch

    @property
    def due(self) -> bool:
        return self.every > 0 and time.monotonic() - self.began >= self.every

    def report(self, sums: Sequence[float], steps_left: int, world: int, device: torch.device) -> PaceReport:
        """The steps since the last report, from the run's sums over the epoch: loss, correct answers, images."""
        seconds = max(time.monotonic() - self.began, 1e-9)
        loss, correct, images = (now - before for now, before in zip(sums, self.sums, strict=True))
        images = max(images, 1.0)
        report = PaceReport(
            loss=loss / images,
            accuracy=correct / images,
            images_per_second=world * images / seconds,
            waiting=min(1.0, self.waited / seconds),
            memory_gb=_largest_memory(device),
            seconds_left=steps_left * seconds / max(self.steps, 1),
        )
        self._begin(sums)
        return report


def _largest_memory(device: torch.device) -> float | None:
    """The peak of torch's memory on a GPU, or of this process, in GB; None on Windows, which does not tell it."""
    if device.type == "cuda":
        return float(torch.cuda.max_memory_allocated(device)) / _BYTES_PER_GB
    if sys.platform == "win32":
        return None
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Linux counts in kilobytes, macOS in bytes.
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * peak / _BYTES_PER_GB
