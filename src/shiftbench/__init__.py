"""What happens to an image classifier when the data shifts, and is that robustness or just accuracy?

>>> import shiftbench as sb
>>> sb.corruptions()[:3]
['gaussian_noise', 'shot_noise', 'impulse_noise']
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from shiftbench._version import __version__

if TYPE_CHECKING:
    from shiftbench.api import Run as Run
    from shiftbench.api import evaluate as evaluate
    from shiftbench.classifiers.base import Classifier as Classifier
    from shiftbench.classifiers.loading import load_classifier as load_classifier
    from shiftbench.classifiers.preprocessing import Geometry as Geometry
    from shiftbench.classifiers.preprocessing import Normalisation as Normalisation
    from shiftbench.classifiers.preprocessing import Preprocessing as Preprocessing
    from shiftbench.datasets.base import Dataset as Dataset
    from shiftbench.datasets.catalogue import open_dataset as open_dataset
    from shiftbench.errors import ShiftbenchError as ShiftbenchError
    from shiftbench.labels.catalogue import label_space as label_space
    from shiftbench.labels.space import LabelSpace as LabelSpace
    from shiftbench.metrics.base import Score as Score
    from shiftbench.runs.import_predictions import import_predictions as import_predictions
    from shiftbench.settings.base import Setting as Setting
    from shiftbench.settings.roles import Selection as Selection
    from shiftbench.shifts.base import Shift as Shift
    from shiftbench.shifts.corruptions import corrupt as corrupt
    from shiftbench.shifts.corruptions import corruptions as corruptions
    from shiftbench.shifts.write import write_corruptions as write_corruptions
    from shiftbench.store.predictions import Predictions as Predictions
    from shiftbench.store.workspace import Workspace as Workspace

# Found when used, so that importing the package costs next to nothing.
_HOMES = {
    "Classifier": "classifiers.base",
    "Dataset": "datasets.base",
    "Geometry": "classifiers.preprocessing",
    "LabelSpace": "labels.space",
    "Normalisation": "classifiers.preprocessing",
    "Predictions": "store.predictions",
    "Preprocessing": "classifiers.preprocessing",
    "Run": "api",
    "Score": "metrics.base",
    "Selection": "settings.roles",
    "Setting": "settings.base",
    "Shift": "shifts.base",
    "ShiftbenchError": "errors",
    "Workspace": "store.workspace",
    "corrupt": "shifts.corruptions",
    "corruptions": "shifts.corruptions",
    "evaluate": "api",
    "import_predictions": "runs.import_predictions",
    "label_space": "labels.catalogue",
    "load_classifier": "classifiers.loading",
    "open_dataset": "datasets.catalogue",
    "write_corruptions": "shifts.write",
}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    try:
        home = _HOMES[name]
    except KeyError:
        raise AttributeError(f"module 'shiftbench' has no attribute {name!r}") from None
    return getattr(importlib.import_module(f"shiftbench.{home}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
