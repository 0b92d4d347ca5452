"""Fingerprints of what decides a classifier's scores."""

from __future__ import annotations

from typing import Any

from shiftbench.classifiers.preprocessing import Normalisation
from shiftbench.io.hashing import digest as digest
from shiftbench.io.hashing import file_digest as file_digest


def fingerprint(weights: str, normalisation: Normalisation, outputs: str) -> str:
    """Weights and architecture first; the normalisation counts too, for it happens inside ``scores``."""
    values: dict[str, Any] = {
        "mean": normalisation.mean,
        "std": normalisation.std,
        "scale": normalisation.scale,
        "colour_order": normalisation.colour_order,
        "layout": normalisation.layout,
    }
    return digest(weights, values, outputs)
