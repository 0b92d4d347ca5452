"""``model.pkl``, ``model.joblib``: pickled estimators and modules, only where trusted."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

from shiftbench.classifiers.base import Classifier
from shiftbench.classifiers.loading import from_object
from shiftbench.classifiers.options import Options
from shiftbench.classifiers.weights import untrusted
from shiftbench.errors import ClassifierError, MissingExtraError


def load_pickled_object(target: str, options: Options) -> Classifier:
    """A pickle can run any code when it is loaded: refused unless ``trust``."""
    path = Path(target)
    if not path.is_file():
        raise ClassifierError(f"file not found: {target}")
    if not options.trust:
        raise untrusted(path, "a pickle")
    from dataclasses import replace

    return from_object(_load(path), replace(options, name=options.name or path.stem))


def _load(path: Path) -> Any:
    try:
        if path.suffix == ".pkl":
            with path.open("rb") as stream:
                return pickle.load(stream)
        try:
            import joblib  # type: ignore[import-untyped]
        except ImportError as error:
            raise MissingExtraError("joblib", "sklearn", "reading .joblib") from error
        return joblib.load(path)
    except (pickle.UnpicklingError, EOFError, AttributeError, ImportError, ValueError) as error:
        raise ClassifierError(f"{path.name} cannot be unpickled", found=f"{type(error).__name__}: {error}") from error
