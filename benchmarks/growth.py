"""How the cost of a run grows with models, settings, images and workers: a model fitted to real runs.

python -m benchmarks.growth [--images 8,24]

    seconds = start + decode N + shift N S G + sum over models (inference N S) + file M S

N images, S settings, M models of G different input sizes. Fitted by non-negative least squares to runs of one worker;
more workers, and then GPUs, are held against it.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

import shiftbench as sb
from benchmarks.page import save, table
from shiftbench.classifiers.base import Classifier
from shiftbench.classifiers.loading import load_classifier
from shiftbench.settings.roles import Selection

#: Real classifiers; those of one network have one input size, and share decoding and shifts.
NETWORKS = ("demo:squeezenet1_1", "demo:efficientnet-lite0")
CREWS = ((1, 0), (2, 0), (3, 0), (0, 1), (1, 1), (0, 2))
SEVERITIES: tuple[tuple[int, ...], ...] = ((), (3,), (3, 5))
TERMS = ("start", "decode", "shift", *(f"inference {name.partition(':')[2]}" for name in NETWORKS), "file")
#: What is asked of the model: the testbed with 1,000 models on a hundred GPUs.
MODELS, SETTINGS, IMAGES, GPUS = 1000, 213, 50_000, 100
#: Images per second of one GPU; nothing here could measure it. Between a large and a small network of today.
GPU_SPEED = (500.0, 2500.0)
#: CPU cores beside each GPU, which decode and shift.
CORES_PER_GPU = 8
GEOMETRIES = 4


@dataclass(frozen=True)
class Measured:
    """One run of one worker."""

    crew: tuple[int, ...]
    settings: int
    images: int
    seconds: float

    @property
    def row(self) -> list[float]:
        n, s = self.images, self.settings
        return [1, n, n * (s - 1) * sum(map(bool, self.crew)), *(n * s * m for m in self.crew), s * sum(self.crew)]


def classifiers(crew: tuple[int, ...]) -> list[Classifier]:
    return [
        load_classifier(spec, name=f"{spec.partition(':')[2]}-{number}", threads=1)
        for spec, count in zip(NETWORKS, crew, strict=True)
        for number in range(count)
    ]


def timed(crew: list[Classifier], severities: tuple[int, ...], images: int, workers: int) -> tuple[float, int]:
    """(seconds, settings) of one run on real photographs."""
    suite = "corruptions" if severities else "clean"
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        run = sb.evaluate(
            crew, suite, "demo", folder, severities=severities or (1,), select=Selection(sample=images),
            workers=workers, progress=False,
        )  # fmt: skip
        return time.perf_counter() - begin, len(run.settings)


def measure(sizes: list[int]) -> tuple[list[Measured], dict[str, float]]:
    timed(classifiers((1, 1)), (3,), 4, 1)  # compiles what the first run would pay for
    found = []
    for crew, severities, images in itertools.product(CREWS, SEVERITIES, sizes):
        seconds, settings = timed(classifiers(crew), severities, images, 1)
        found.append(Measured(crew, settings, images, seconds))
    one, _ = timed(classifiers((1, 1)), (3, 5), max(sizes), 1)
    two, _ = timed(classifiers((1, 1)), (3, 5), max(sizes), 2)
    return found, {"workers_1": one, "workers_2": two}


def fit(found: list[Measured]) -> tuple[dict[str, float], NDArray[np.float64]]:
    """The terms in seconds, and the relative residuals. Runs count alike, however long they are."""
    rows, seconds = np.array([one.row for one in found]), np.array([one.seconds for one in found])
    terms, _ = nnls(rows / seconds[:, None], np.ones(len(found)))
    return dict(zip(TERMS, map(float, terms), strict=True)), (rows @ terms - seconds) / seconds


def at_scale(terms: dict[str, float]) -> dict[str, float]:
    """Hours for 1,000 models on 100 GPUs, and how many files; inference as assumed, the rest as measured here."""
    shifted = IMAGES * (SETTINGS - 1) * GEOMETRIES
    cores = GPUS * CORES_PER_GPU
    predictions = MODELS * SETTINGS * IMAGES
    hours = {
        f"inference at {speed:,.0f} images/s per GPU, hours": predictions / speed / GPUS / 3600 for speed in GPU_SPEED
    }
    return {
        "predictions": predictions,
        **hours,
        "decoding, minutes of all cores": terms["decode"] * IMAGES / cores / 60,
        "shifts, minutes of all cores": terms["shift"] * shifted / cores / 60,
        "files, minutes of all cores": terms["file"] * MODELS * SETTINGS / cores / 60,
        "gigabytes on disk": 3 * predictions / 1e9,
    }


def markdown(data: dict[str, Any]) -> str:
    terms, scale = data["terms"], data["scale"]
    units = {"start": "run", "decode": "image", "file": "model and setting"}
    rows = [(name, f"{1000 * value:.2f} ms", units.get(name, "image and setting")) for name, value in terms.items()]
    big = [(name, f"{value:,.2f}" if value < 1000 else f"{value:,.0f}") for name, value in scale.items()]
    speed = data["workers"]["workers_1"] / data["workers"]["workers_2"]
    return (
        f"{len(data['runs'])} real runs of one worker on the demo photographs. The model's relative errors: half "
        f"below {data['residual_median']:.0%}, the worst {data['residual_worst']:.0%}. Two workers were "
        f"{speed:.2f} times as fast as one.\n\n"
        + table(("term", "cost", "per"), rows)
        + f"\n\n{MODELS:,} models x {SETTINGS} settings x {IMAGES:,} images on {GPUS} GPUs with {CORES_PER_GPU} cores "
        f"each and {GEOMETRIES} input sizes; the GPUs' speed is assumed, not measured:\n\n" + table(("", ""), big)
    )


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--images", default="8,24", help="sizes of the runs")
    arguments.add_argument("--dry", action="store_true", help="write nothing")
    given = arguments.parse_args()
    found, workers = measure([int(one) for one in given.images.split(",")])
    terms, residuals = fit(found)
    data = {
        "terms": terms, "residual_median": float(np.median(abs(residuals))),
        "residual_worst": float(abs(residuals).max()), "workers": workers, "scale": at_scale(terms),
        "runs": [asdict(one) for one in found],
    }  # fmt: skip
    text = markdown(data)
    print(text)
    if not given.dry:
        save("growth", "How the cost of a run grows", data, text)


if __name__ == "__main__":
    main()
