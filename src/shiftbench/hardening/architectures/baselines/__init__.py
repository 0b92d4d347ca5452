"""The classifiers of paper 004 that are not deep: random features and Fisher vectors, each with a linear layer.

``fit_random_features`` and ``fit_fisher_vectors`` make classifiers like any other; ``save_baseline`` and
``load_baseline`` keep them in npz files without pickles.
"""

from __future__ import annotations

from shiftbench.hardening.architectures.baselines.fisher_vectors import FisherVectorOptions, fit_fisher_vectors
from shiftbench.hardening.architectures.baselines.random_features import RandomFeatureOptions, fit_random_features
from shiftbench.hardening.architectures.baselines.saving import load_baseline, save_baseline

__all__ = [
    "FisherVectorOptions",
    "RandomFeatureOptions",
    "fit_fisher_vectors",
    "fit_random_features",
    "load_baseline",
    "save_baseline",
]
