"""What is known about a model, and where each fact comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from shiftbench.classifiers.preprocessing import Preprocessing

#: The caller's own arguments, a sidecar, the model file, the library the model comes from, a trial run, or nothing.
FactSource = Literal["given", "sidecar", "file", "library", "measured", "assumed"]


@dataclass(frozen=True)
class Fact:
    """One fact about a model: ``Fact("mean", (0.485, 0.456, 0.406), "assumed")``."""

    name: str
    value: object
    source: FactSource


def assumed_facts(preprocessing: Preprocessing, *names: str) -> tuple[Fact, ...]:
    """The facts of a preprocessing that nothing states; all of them, or those named."""
    geometry, normalisation = preprocessing.geometry, preprocessing.normalisation
    values: dict[str, object] = {
        "resize": geometry.resize,
        "crop": geometry.crop,
        "mean": normalisation.mean,
        "std": normalisation.std,
        "colour order": normalisation.colour_order,
    }
    return tuple(Fact(name, values[name], "assumed") for name in names or values)
