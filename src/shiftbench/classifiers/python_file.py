"""Classifiers made by the user's own code: ``file.py``, ``file.py:factory``, or a pickle of an object."""

from __future__ import annotations

import importlib.util
import pickle
import sys
from dataclasses import replace
from pathlib import Path

from shiftbench.classifiers.base import Classifier
from shiftbench.classifiers.code_state import code_state
from shiftbench.classifiers.function import FunctionClassifier
from shiftbench.classifiers.loading import from_object, load_spec
from shiftbench.classifiers.options import Options, existing_file
from shiftbench.errors import ClassifierError, required
from shiftbench.io.hashing import digest, file_digest

#: What is called when the spec names no factory.
DEFAULT_FACTORY = "classifier"


def load_python_file(target: str, options: Options) -> Classifier:
    """Call the factory (without arguments) and take what it gives: anything ``load_classifier`` takes.

    A file that is named on the command line is meant to be run, so no ``trust`` is asked for. For functions
    the whole file counts in the fingerprint, since they may use anything in it, and the values that they use.
    """
    stem, _, factory = target.rpartition(".py")
    path = existing_file(f"{stem}.py")
    chosen = factory.removeprefix(":")
    made = _call(_import(path), chosen or DEFAULT_FACTORY, path)
    if isinstance(made, Classifier):
        return made
    # What a factory gives has a name of its own at best by chance ("factory.<locals>.f").
    named = replace(options, name=options.name or (f"{path.stem}.{chosen}" if chosen else path.stem))
    classifier = load_spec(made, named) if isinstance(made, str) else from_object(made, named)
    if isinstance(classifier, FunctionClassifier):
        classifier.source, classifier.state = file_digest(path), code_state(classifier.function, path)
    return classifier


def _import(path: Path) -> object:
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


def _call(module: object, factory: str, path: Path) -> object:
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


def load_pickled_object(target: str, options: Options) -> Classifier:
    """``model.pkl``, ``model.joblib``. A pickle can run any code when it is loaded: refused unless ``trust``."""
    path = existing_file(target)
    if not options.trust:
        from shiftbench.classifiers.weights import untrusted

        raise untrusted(path, "a pickle")
    return from_object(_unpickle(path), replace(options, name=options.name or path.stem))


def _unpickle(path: Path) -> object:
    try:
        if path.suffix == ".pkl":
            with path.open("rb") as stream:
                return pickle.load(stream)
        found: object = required("joblib", "sklearn", "reading .joblib").load(path)
        return found
    except (pickle.UnpicklingError, EOFError, AttributeError, ImportError, ValueError) as error:
        raise ClassifierError(f"{path.name} cannot be unpickled", found=f"{type(error).__name__}: {error}") from error
