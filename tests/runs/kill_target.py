"""One evaluation as a process of its own, so that tests can kill it: WORKSPACE DATA WORKERS ENGINE."""

from __future__ import annotations

import sys
import time

import numpy as np
from numpy.typing import NDArray

import shiftbench as sb
from tests.runs.helpers import COLOURS, brightest_channel


def slow_channel(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Slow enough that there is always something to interrupt."""
    time.sleep(0.004 * len(images))
    return brightest_channel(images)


def classifier() -> sb.Classifier:
    preprocessing = sb.Preprocessing(sb.Geometry(resize=36, crop=32))
    return sb.load_classifier(slow_channel, labels=COLOURS, preprocessing=preprocessing, name="slow")


if __name__ == "__main__":
    workspace, data, workers, engine = sys.argv[1:]
    sb.evaluate(
        classifier(),
        "corruptions",
        data,
        workspace,
        labels=COLOURS,
        severities=(1, 3),
        corruptions=("gaussian_noise", "motion_blur", "fog"),
        workers=int(workers),
        engine=engine,  # type: ignore[arg-type]
        progress=False,
    )
