"""Classifiers of any framework behind one contract: uint8 images in, scores over a label space out.

Importing this package imports no framework; each loader does that when it is used.
"""

from shiftbench.classifiers.base import Classifier
from shiftbench.classifiers.function import FunctionClassifier
from shiftbench.classifiers.loading import classifier_loaders, load_classifier
from shiftbench.classifiers.preprocessing import Geometry, Normalisation, Preprocessing

__all__ = [
    "Classifier",
    "FunctionClassifier",
    "Geometry",
    "Normalisation",
    "Preprocessing",
    "classifier_loaders",
    "load_classifier",
]
