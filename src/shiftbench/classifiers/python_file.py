"""``file.py`` or ``file.py:factory``: a classifier made by the user's own code."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

from shiftbench.classifiers.base import Classifier
from shiftbench.classifiers.function import FunctionClassifier
from shiftbench.classifiers.hashing import digest, file_digest
from shiftbench.classifiers.loading import from_object, load_spec
from shiftbench.classifiers.options import Options
from shiftbench.errors import ClassifierError

#: What is called when the spec names no factory.
DEFAULT_FACTORY = "classifier"


def load_python_file(target: str, options: Options) -> Classifier:
    """Call the factory (without arguments) and take what it gives: anything ``load_classifier`` takes.

    A file that is named on the command line is meant to be run, so no ``trust`` is asked for. For functions
    the whole file counts in the fingerprint, since they may use anything in it.
    """
    stem, _, factory = target.rpartition(".py")
    path = Path(f"{stem}.py")
    if not path.is_file():
        raise ClassifierError(f"file not found: {path}")
    made = _call(_import(path), factory.removeprefix(":") or DEFAULT_FACTORY, path)
    if isinstance(made, Classifier):
        return made
    classifier = load_spec(made, options) if isinstance(made, str) else from_object(made, options)
    if isinstance(classifier, FunctionClassifier):
        classifier.source = file_digest(path)
    return classifier


def _import(path: Path) -> Any:
    # A name of its own, so that two files called model.py do not stand in for each other.
    name = f"_shiftbench_{path.stem}_{digest(str(path.resolve()))}"
    found = importlib.util.spec_from_file_location(name, path)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module
    try:
        found.loader.exec_module(module)
    except Exception as error:
        sys.modules.pop(name, None)
        raise ClassifierError(f"{path.name} fails when it is run", found=f"{type(error).__name__}: {error}") from error
    return module


def _call(module: Any, factory: str, path: Path) -> Any:
    function = getattr(module, factory, None)
    if not callable(function):
        own = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
        raise ClassifierError(
            f"{path.name} has no factory {factory!r}",
            found=", ".join(own) or "no function",
            expected=f"def {factory}(): ... that gives a module, an estimator, a function or a Classifier",
            hint=f"name another one: {path.name}:NAME",
        )
    try:
        return function()
    except Exception as error:
        raise ClassifierError(f"{factory}() of {path.name} fails", found=f"{type(error).__name__}: {error}") from error
