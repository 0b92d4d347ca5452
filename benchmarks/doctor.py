"""Whether the loss that `shiftbench doctor` prints as detectable is found as often as promised: docs/doctor.md.

    python -m benchmarks.doctor [--samples 40]

Real faults of the ResNet-8 on CIFAR-10's test images. For each of them its cost and the share of images on which
exactly one of the faulty and the right network is right are measured on all 10,000 images. The doctor then gets random
samples of the size at which this cost is the detectable loss, and should find the fault in at least 80 % of them.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import shiftbench as sb
from benchmarks.page import save, table
from shiftbench.arrays import Pixels
from shiftbench.classifiers.demo import CIFAR_CLASSIFIERS
from shiftbench.classifiers.loading import load_classifier
from shiftbench.datasets import from_arrays, open_dataset
from shiftbench.datasets.base import Dataset
from shiftbench.diagnosis.search import POWER, detectable

LEVEL = 0.95
#: Half-width of a 95 % interval, in standard errors.
_Z = 1.96


@dataclass(frozen=True)
class Fault:
    """A wrong preprocessing beside the right one, on images of one size."""

    name: str
    right: str
    wrong: str
    #: Side of the images; the network's input has 32 pixels.
    side: int = 32


_RIGHT = "size=32,mean=128,std=128,scale=1"
FAULTS = (
    Fault("std of 64 instead of 128", _RIGHT, "size=32,mean=128,std=64,scale=1"),
    Fault(
        "nearest instead of bicubic resize",
        f"{_RIGHT},interpolation=bicubic",
        f"{_RIGHT},interpolation=nearest",
        side=40,
    ),
    Fault("std of 80 instead of 128", _RIGHT, "size=32,mean=128,std=80,scale=1"),
)


def images_of(cifar: Dataset, side: int) -> Dataset:
    pixels: list[Pixels] = []
    for row in range(len(cifar)):
        image = Image.fromarray(cifar.read(row).pixels)
        pixels.append(np.asarray(image.resize((side, side), Image.Resampling.BICUBIC)))
    return from_arrays(np.stack(pixels), np.asarray(cifar.labels), space="cifar-10", name=f"photos-{side}")


def hits(model: Path, preprocessing: str, data: Dataset) -> np.ndarray:
    classifier = load_classifier(str(model), labels="cifar-10", preprocessing=preprocessing)
    correct = []
    for start in range(0, len(data), 500):
        rows = range(start, min(start + 500, len(data)))
        pixels = np.stack([classifier.preprocessing.geometry(data.read(row).pixels) for row in rows])
        correct.append(classifier.scores(pixels).argmax(axis=1) == np.asarray(data.labels)[list(rows)])
    return np.concatenate(correct)


def images_for(loss: float, disagreement: float) -> int:
    """Images of each half at which this loss is the detectable one."""
    too_few = 20
    enough = 5000
    while enough - too_few > 1:
        images = (too_few + enough) // 2
        if detectable(images, images, LEVEL, disagreement) > loss:
            too_few = images
        else:
            enough = images
    return enough


def measure(fault: Fault, model: Path, data: Dataset, samples: int) -> Mapping[str, Any]:
    right = hits(model, fault.right, data)
    wrong = hits(model, fault.wrong, data)
    loss = float(right.mean() - wrong.mean())
    disagreement = float((right != wrong).mean())
    images = images_for(loss, disagreement)
    found = 0
    limits = []
    for seed in range(samples):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            diagnosis = sb.doctor(
                str(model),
                data,
                sample=2 * images,
                seed=seed,
                labels="cifar-10",
                preprocessing=fault.wrong,
                progress=False,
                level=LEVEL,
            )
        found += diagnosis.status == "fault"
        if diagnosis.detectable_loss is not None:
            limits.append(diagnosis.detectable_loss)
        print(f"{fault.name}: {found} of {seed + 1}", flush=True)
    share = found / samples
    return {
        "fault": fault.name,
        "loss": loss,
        "disagreement": disagreement,
        "images": 2 * images,
        "samples": samples,
        "found": share,
        "error": _Z * math.sqrt(share * (1 - share) / samples),
        "printed": float(np.median(limits)) if limits else None,
    }


def main(samples: int) -> None:
    demo = CIFAR_CLASSIFIERS["resnet8-cifar10"]
    cifar = open_dataset("cifar-10-test")
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "resnet8.onnx"
        demo.graph(demo.weights(), None).save(model)
        rows = [measure(fault, model, images_of(cifar, fault.side), samples) for fault in FAULTS]
    shown = []
    for row in rows:
        printed = "–" if row["printed"] is None else f"{100 * row['printed']:.1f}"
        found = f"{100 * row['found']:.0f} ± {100 * row['error']:.0f} %"
        shown.append(
            [
                row["fault"],
                f"{100 * row['loss']:.1f}",
                f"{100 * row['disagreement']:.1f} %",
                row["images"],
                found,
                printed,
            ]
        )
    header = ["fault", "costs, points", "changes", "images", "found", "limit printed where it was missed, points"]
    text = f"Promised: at least {100 * POWER:g} %; {samples} random samples each, ± is the 95 % Monte Carlo error.\n\n"
    save("doctor", "The doctor's detection limit", rows, text + table(header, shown))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=40)
    main(parser.parse_args().samples)
