"""One evaluation as a process of its own, so that tests can kill it: WORKSPACE DATA WORKERS ENGINE [SHARD].

ENGINE is threads, processes, or the address of a Ray cluster.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import shiftbench as sb
from shiftbench.jobs.base import Executor
from shiftbench.jobs.ray_executor import RayExecutor
from tests.runs.helpers import COLOURS, brightest_channel


def slow_channel(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Slow enough that there is always something to interrupt."""
    time.sleep(0.004 * len(images))
    return brightest_channel(images)


def classifier() -> sb.Classifier:
    preprocessing = sb.Preprocessing(sb.Geometry(resize=36, crop=32))
    return sb.load_classifier(slow_channel, labels=COLOURS, preprocessing=preprocessing, name="slow")


def executor(engine: str) -> str | Executor:
    return RayExecutor(engine) if ":" in engine else engine


def evaluate_slowly(
    workspace: str | Path, data: str | Path, workers: int = 2, engine: str = "threads", share: str | None = None
) -> None:
    sb.evaluate(
        classifier(),
        "corruptions",
        data,
        workspace,
        labels=COLOURS,
        severities=(1, 3),
        corruptions=("gaussian_noise", "motion_blur", "fog"),
        workers=workers,
        executor=executor(engine),  # type: ignore[arg-type]
        progress=False,
        shard=share,
    )


if __name__ == "__main__":
    place, pictures, count, *others = sys.argv[1:]
    evaluate_slowly(place, pictures, int(count), *others)
