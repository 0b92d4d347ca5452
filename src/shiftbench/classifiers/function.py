"""The user's own code: a function from a uint8 batch to scores, ``file.py``, ``file.py:factory``, or a pickle."""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import pickle
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import Pixels
from shiftbench.classifiers.base import STATEFUL_BATCH, BatchedClassifier, Classifier, Outputs, trial_scores
from shiftbench.classifiers.loading import from_object, load_spec
from shiftbench.classifiers.options import (
    KnownInput,
    Options,
    existing_file,
    looks_like_probabilities,
    looks_like_sigmoids,
    settle,
)
from shiftbench.classifiers.preprocessing import Preprocessing, in_colour_order
from shiftbench.errors import ClassifierError, MissingExtraError, ResultWarning, argument, required, warn_user
from shiftbench.io.code_state import code_state, is_own, known_state, note_changes, source_of
from shiftbench.io.hashing import digest, file_digest
from shiftbench.labels.space import LabelSpace, Scores

ScoreFunction = Callable[[Pixels], object]
#: Kinds of NumPy's types: truth values, integers, real numbers, and objects, as mixed data frames have.
_KINDS_OF_SCORES = "biufO"


class FunctionClassifier(BatchedClassifier):
    """A function that gets RGB uint8 (N, H, W, 3) after the geometry and does everything else itself.

    The fingerprint is a hash of the name, of the function's source text, and of what the function uses when the
    classifier is made: closure, defaults, attributes, global names, helpers in the user's own modules. What it reads
    when it is called shows in its scores on fixed images, which every run compares with those of its stored results.

    Args:
        function: From uint8 (N, H, W, 3) to scores (N, classes).
        name: The name that tables and provenance show.
        space: Label space of the scores.
        preprocessing: Its geometry is applied before the function is called, and so is its colour order.
        outputs: ``"logits"`` or ``"probabilities"``.
        batch_size: Images per call.
        source: Text for the fingerprint; default: the source code of the function.

    Example:
        >>> pets = LabelSpace("pets", ("cat", "dog"))
        >>> def brightness(images):
        ...     light = images.mean(axis=(1, 2, 3)) / 255
        ...     return np.stack([1 - light, light], axis=1)
        >>> grey = FunctionClassifier(brightness, name="brightness", space=pets, outputs="probabilities")
        >>> grey.scores(np.full((1, 8, 8, 3), 255, np.uint8))
        array([[0., 1.]], dtype=float32)
    """

    #: Whether nothing states that the scores are logits, and no batch has been looked at yet.
    check_outputs = False
    #: Whether the function has been called.
    _called = False
    #: Whether rounding to float32 has changed the best class of an image.
    _rounded = False

    def __init__(
        self,
        function: ScoreFunction,
        *,
        name: str,
        space: LabelSpace,
        preprocessing: Preprocessing | None = None,
        outputs: Outputs = "logits",
        batch_size: int | None = None,
        source: str | None = None,
    ) -> None:
        super().__init__()
        self.function = function
        self.name = name
        self.space = space
        self.outputs = outputs
        self.preprocessing = preprocessing or Preprocessing()
        self.batch_size = batch_size or 32
        self.engine = "python"
        self.takes_pixels = True
        if source is None:
            self.source = source_of(function)
            # The state is read once, before the first call: functions may keep state that changes with each call.
            self.state = known_state(function)
        else:
            self.source = source
            self.state = {}

    @property
    def fingerprint(self) -> str:
        hashed_parts: list[object] = [self.name, self.source, self.outputs]
        if self.state:
            hashed_parts.append(sorted(self.state.items()))
        # Functions get RGB images unless somebody states another order; only then it is part of the fingerprint.
        if self.preprocessing.normalisation.colour_order != "rgb":
            hashed_parts.append(self.preprocessing.normalisation.colour_order)
        return digest("function", *hashed_parts)

    def forward(self, images: Pixels) -> Scores:
        """The function's scores, as they are."""
        # The images are copied because the runner uses them again, whatever the function does to its argument. The
        # scores are copied because the function may return the same array each time. The lock allows one call at a
        # time because the function may keep state.
        arranged = in_colour_order(images, self.preprocessing.normalisation.colour_order)
        with self._running:
            scores = self.function(arranged.copy())
            if not self._called:
                self._called = True
                note_changes(self.function, self.state)
            exact = self._as_array(scores)
            table = np.array(exact, dtype=np.float32)
        self._warn_if_rounded(exact, table)
        if self.check_outputs and self.outputs == "logits" and table.ndim == 2:
            self._warn_if_probabilities(table)
        self.check_outputs = False
        return table

    def _warn_if_probabilities(self, table: Scores) -> None:
        if looks_like_probabilities(table):
            description = "what looks like probabilities"
        elif looks_like_sigmoids(table):
            description = "scores between 0 and 1"
        else:
            return
        warn_user(
            f"{self.name} returns {description}, but is read as logits; if these are probabilities, its confidences "
            f"are wrong unless you state {argument('preprocessing', 'outputs=probabilities', flag='--preprocess')}"
        )

    def _as_array(self, scores: Any) -> NDArray[Any]:
        """Scores that the function returned as a tensor, data frame, masked array or list.

        The columns of a data frame may name the classes, in any order.
        """
        if hasattr(scores, "detach"):  # a torch tensor
            scores = scores.detach().cpu().numpy()
        columns = list(map(str, getattr(scores, "columns", ())))
        if set(columns) == set(self.space.keys):
            scores = np.asarray(scores)[:, [columns.index(key) for key in self.space.keys]]
        array: NDArray[Any] = np.ma.filled(scores, np.nan)
        if array.dtype.kind not in _KINDS_OF_SCORES:
            raise ClassifierError(f"{self.name} does not return scores", found=array.dtype, expected="real numbers")
        return array

    def _warn_if_rounded(self, exact: NDArray[Any], rounded: Scores) -> None:
        """Warn once if rounding to float32 changes the best class of an image."""
        if self._rounded or exact.dtype == np.float32 or exact.ndim != 2:
            return
        self._rounded = bool((exact.argmax(axis=1) != rounded.argmax(axis=1)).any())
        if self._rounded:
            text = f"{self.name} returns {exact.dtype} scores. Rounded to float32, images have other best classes: "
            warn_user(ResultWarning(f"{text}subtract the largest score of each image", "rounded-scores"))


class StatefulFunctionClassifier(FunctionClassifier):
    """A function or callable object that changes while it runs, on purpose.

    ``reset`` calls the method or attribute ``reset`` of the function, if it has one; otherwise it replaces a callable
    object by a copy of what it was in the beginning.
    """

    stateful = True

    def __init__(self, function: ScoreFunction, *, batch_size: int | None = None, **options: Any) -> None:
        super().__init__(function, batch_size=batch_size or STATEFUL_BATCH, **options)
        self._own_reset: Callable[[], object] | None = getattr(function, "reset", None)
        self._original = function
        if self._own_reset is None:
            self.function = self._copied()

    def reset(self) -> None:
        if self._own_reset is not None:
            self._own_reset()
        else:
            self.function = self._copied()

    def _copied(self) -> ScoreFunction:
        try:
            duplicate = copy.deepcopy(self._original)
        except Exception as error:  # The object's attributes may be anything, and may raise anything.
            raise self._not_resettable(f"{type(error).__name__}: {error}") from error
        # Python does not copy functions, nor what they refer to.
        if duplicate is self._original:
            raise self._not_resettable(type(self._original).__name__)
        return duplicate

    def _not_resettable(self, reason: str) -> ClassifierError:
        return ClassifierError(
            f"{self.name} can't be reset before each setting",
            found=reason,
            expected="a torch module, a callable object that can be copied, or a function with an attribute reset",
            hint=f"set {self.name}.reset to a function that puts weights and buffers back",
        )


def from_function(function: ScoreFunction, options: Options) -> FunctionClassifier:
    """A classifier that calls ``function``.

    A function may be slow or cost money, so it is called in advance only to count its outputs if the classes are
    unknown.
    """
    qualified_name = str(getattr(function, "__qualname__", type(function).__name__))
    name = options.name or qualified_name.rpartition("<locals>.")[2].strip("<>")
    space = options.labels
    unknown_space = LabelSpace("outputs", ("?",))
    kind = StatefulFunctionClassifier if options.stateful else FunctionClassifier
    classifier = kind(function, name=name, space=unknown_space, batch_size=options.batch_size)

    def trial(preprocessing: Preprocessing) -> Scores:
        if space is not None:
            return np.empty((0, len(space)), np.float32)
        classifier.preprocessing = preprocessing
        images = options.trial_images(preprocessing)[: classifier.batch_size]
        return trial_scores(name, images, classifier.forward)

    settled, scores = settle(name, options, KnownInput(assumed=(), pixels=True), trial)
    if settled.outputs is None and space is not None:
        classifier.check_outputs = True
        settled = replace(settled, outputs="logits", sources={"outputs": "library", **settled.sources})
    classifier = settled.finish(classifier, scores)
    if classifier.sources.get("colour order") == "library":
        classifier.sources = {**classifier.sources, "colour order": "default"}
    return classifier


def load_python_file(target: str, options: Options) -> Classifier:
    """Call the factory (without arguments) in a file and load what it returns: anything ``load_classifier`` takes.

    A file that is named on the command line is meant to be run, so no ``trust`` is asked for. The fingerprint of a
    function covers the whole file, since the function may use anything in it, and the values that the function uses.
    """
    stem, _, suffix = target.rpartition(".py")
    path = existing_file(f"{stem}.py").absolute()
    factory = suffix.removeprefix(":")
    # The module's name contains the path, so that two files called model.py do not stand in for each other.
    module_name = f"_shiftbench_{path.stem}_{digest(str(path.resolve()))}"
    modules_before = set(sys.modules)
    with contextlib.chdir(Path.cwd()):  # The present folder is restored if the file changes it.
        module = _run_file(path, module_name)
        product = _call_factory(module, factory or "classifier", path.name)
    _note_helpers(set(sys.modules) - modules_before - {module_name})
    if isinstance(product, Classifier):
        return product
    # The product's own name is rarely meaningful ("factory.<locals>.f"), so it is named after the file.
    default_name = f"{path.stem}.{factory}" if factory else path.stem
    named_options = replace(options, name=options.name or default_name)
    if isinstance(product, str):
        classifier = load_spec(product, named_options)
    else:
        classifier = from_object(product, named_options)
    if isinstance(classifier, FunctionClassifier):
        classifier.source = file_digest(path)
        classifier.state = code_state(classifier.function, path)
    return classifier


def _run_file(path: Path, module_name: str) -> ModuleType:
    """Run a Python file as a module of this name; a ClassifierError says how it failed."""
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    try:
        # The file is compiled here and not by its loader, which would take cached bytecode as current if the file's
        # size and second of modification are the same.
        code = compile(path.read_bytes(), path, "exec")
        _check_helpers(path, code.co_names)
        sys.modules[module_name] = module
        exec(code, vars(module))
    except (ClassifierError, MissingExtraError):
        raise
    except Exception as error:
        sys.modules.pop(module_name, None)
        message = f"{path.name} fails when it is run"
        raise ClassifierError(message, found=f"{type(error).__name__}: {error}") from error
    return module


def _call_factory(module: ModuleType, factory: str, file_name: str) -> object:
    """What the function ``factory`` of a module returns; a ClassifierError says if it is missing or how it failed."""
    function = getattr(module, factory, None)
    if not callable(function):
        public_names = [name for name in vars(module) if not name.startswith("_")]
        factories = [name for name in public_names if callable(getattr(module, name))]
        raise ClassifierError(
            f"{file_name} has no factory {factory!r}",
            found=", ".join(factories) or "no function",
            expected=f"def {factory}(): ... that gives a module, an estimator, a function or a Classifier",
            hint=f"name another one: {file_name}:NAME",
        )
    try:
        return function()
    except MissingExtraError:
        raise
    except Exception as error:
        message = f"{factory}() of {file_name} fails"
        raise ClassifierError(message, found=f"{type(error).__name__}: {error}") from error


class _Helper(NamedTuple):
    """A module of the user's own that a Python file has imported."""

    file: Path
    digest: str  #: That of the file when it was imported.

    def is_current(self) -> bool:
        return self.file.is_file() and file_digest(self.file) == self.digest


#: The helpers of all files that were loaded, by the name of their module.
_helpers: dict[str, _Helper] = {}


def _note_helpers(module_names: Iterable[str]) -> None:
    """Remember the files of the user's own modules among newly imported ones."""
    for name in module_names:
        file = Path(getattr(sys.modules[name], "__file__", None) or "")
        if is_own(name) and file.is_file():  # A module in a zip archive has no file.
            _helpers[name] = _Helper(file, file_digest(file))


def _check_helpers(path: Path, mentioned: Iterable[str]) -> None:
    """Make sure that a file which is about to be run gets its own helpers, in their present state.

    Python imports a module only once, by its name. If a helper was edited since, all helpers are forgotten and so
    imported again. If a module of the same name in another folder is already imported, a ClassifierError is raised.
    """
    if not all(helper.is_current() for helper in _helpers.values()):
        for name in _helpers:
            sys.modules.pop(name, None)
        _helpers.clear()
    imported_files: dict[str, Path] = {}
    for name in mentioned:
        file_name = getattr(sys.modules.get(name), "__file__", None)
        if file_name is not None and is_own(name):
            imported_files[name] = Path(file_name)
    for name, helper in _helpers.items():
        imported_files[name] = helper.file
    for name, file in imported_files.items():
        expected_file = _module_file(path.parent, name)
        if expected_file is not None and not (file.is_file() and expected_file.samefile(file)):
            raise ClassifierError(
                f"{path.name} cannot import its module {name}: another module of that name is already imported",
                found=str(file),
                expected=str(expected_file),
                hint="evaluate the models by separate commands, or rename one of the modules",
            )


def _module_file(folder: Path, name: str) -> Path | None:
    """The file that a module of this name has in a folder, or None if there is none."""
    stem = folder.joinpath(*name.split("."))
    for file in (stem.with_suffix(".py"), stem / "__init__.py"):
        if file.is_file():
            return file
    return None


def load_pickled_object(target: str, options: Options) -> Classifier:
    """Load ``model.pkl`` or ``model.joblib``.

    A pickle can run any code when it is loaded, so it is refused unless ``options.trust`` is set.
    """
    path = existing_file(target)
    if not options.trust:
        from shiftbench.classifiers.weights import untrusted

        raise untrusted(path, "a pickle")
    try:
        if path.suffix == ".pkl":
            content = pickle.loads(path.read_bytes())
        else:
            content = required("joblib", "sklearn", "reading .joblib").load(path)
    except (pickle.UnpicklingError, EOFError, AttributeError, ImportError, ValueError) as error:
        raise ClassifierError(f"{path.name} cannot be unpickled", found=f"{type(error).__name__}: {error}") from error
    return from_object(content, replace(options, name=options.name or path.stem))
