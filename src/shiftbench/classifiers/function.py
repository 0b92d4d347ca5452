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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import Pixels
from shiftbench.classifiers.base import STATEFUL_BATCH, BatchedClassifier, Classifier, Outputs, trial_scores
from shiftbench.classifiers.loading import from_object, load_spec
from shiftbench.classifiers.options import KnownInput, Options, existing_file, looks_like_probabilities, settle
from shiftbench.classifiers.preprocessing import Preprocessing
from shiftbench.errors import ClassifierError, MissingExtraError, ResultWarning, argument, required, warn_user
from shiftbench.io.code_state import code_state, is_own, known_state, note_changes, source_of
from shiftbench.io.hashing import digest, file_digest
from shiftbench.labels.space import LabelSpace, Scores

ScoreFunction = Callable[[Pixels], object]


class FunctionClassifier(BatchedClassifier):
    """A function that gets RGB uint8 (N, H, W, 3) after the geometry and does everything else itself.

    The fingerprint is a hash of the name, of the function's source text, and of what the function uses when the
    classifier is made: closure, defaults, attributes, global names, helpers in the user's own modules. What it reads
    when it is called shows in its scores on fixed images, which every run compares with those of its stored results.

    Args:
        function: From uint8 (N, H, W, 3) to scores (N, classes).
        name: The name that tables and provenance show.
        space: Label space of the scores.
        preprocessing: Its geometry is applied before the function is called.
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

    #: Whether nothing states that the scores are logits, and no batch was looked at yet.
    check_outputs = False
    _called = _rounded = False

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
        self.name, self.space, self.outputs = name, space, outputs
        self.preprocessing = preprocessing or Preprocessing()
        self.batch_size, self.engine, self.takes_pixels = batch_size or 32, "python", True
        self.source = source_of(function) if source is None else source
        # Now, once: functions may keep state that changes when they are called.
        self.state = known_state(function) if source is None else {}

    @property
    def fingerprint(self) -> str:
        used = [sorted(self.state.items())] if self.state else []
        return digest("function", self.name, self.source, self.outputs, *used)

    def forward(self, images: Pixels) -> Scores:
        """The function's scores, as they are."""
        # Copies: the runner uses the pixels again, whatever the function does to its argument, and the function may
        # return the same array each time. One call at a time: the function may keep state.
        with self._running:
            scores = self.function(images.copy())
            if not self._called:
                self._called = True
                note_changes(self.function, self.state)
            exact = self._as_array(scores)
            table = np.array(exact, dtype=np.float32)
        if exact.dtype != np.float32 and exact.ndim == 2 and not self._rounded:
            self._rounded = bool((exact.argmax(axis=1) != table.argmax(axis=1)).any())
            if self._rounded:
                text = f"{self.name} returns {exact.dtype} scores. Rounded to float32, images have other best classes: "
                warn_user(ResultWarning(f"{text}subtract the largest score of each image", "rounded-scores"))
        if self.check_outputs and self.outputs == "logits" and table.ndim == 2 and looks_like_probabilities(table):
            warn_user(
                f"{self.name} returns what looks like probabilities, but is read as logits; its confidences are wrong "
                f"unless you state {argument('preprocessing', 'outputs=probabilities', flag='--preprocess')}"
            )
        self.check_outputs = False
        return table

    def _as_array(self, scores: Any) -> NDArray[Any]:
        """Of tensors, data frames (whose columns may name the classes, in any order), masked arrays or lists."""
        if hasattr(scores, "detach"):  # a torch tensor
            scores = scores.detach().cpu().numpy()
        columns = list(map(str, getattr(scores, "columns", ())))
        if set(columns) == set(self.space.keys):
            scores = np.asarray(scores)[:, [columns.index(key) for key in self.space.keys]]
        found: NDArray[Any] = np.ma.filled(scores, np.nan)
        return found


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
        except Exception as error:  # its attributes may be anything
            raise self._not_resettable(f"{type(error).__name__}: {error}") from error
        # Python does not copy functions, nor what they refer to.
        if duplicate is self._original:
            raise self._not_resettable(type(self._original).__name__)
        return duplicate

    def _not_resettable(self, found: str) -> ClassifierError:
        return ClassifierError(
            f"{self.name} can't be reset before each setting",
            found=found,
            expected="a torch module, a callable object that can be copied, or a function with an attribute reset",
            hint=f"set {self.name}.reset to a function that puts weights and buffers back",
        )


def from_function(function: ScoreFunction, options: Options) -> FunctionClassifier:
    """A function may be slow or cost money, so it is run in advance only to count the outputs of unknown classes."""
    own = str(getattr(function, "__qualname__", type(function).__name__)).rpartition("<locals>.")[2].strip("<>")
    name, space = options.name or own, options.labels
    unknown = LabelSpace("outputs", ("?",))
    kind = StatefulFunctionClassifier if options.stateful else FunctionClassifier
    classifier = kind(function, name=name, space=unknown, batch_size=options.batch_size)

    def trial(preprocessing: Preprocessing) -> Scores:
        if space is not None:
            return np.empty((0, len(space)), np.float32)
        images = options.trial_images(preprocessing)[: classifier.batch_size]
        return trial_scores(name, images, classifier.forward)

    settled, scores = settle(name, options, KnownInput(assumed=(), pixels=True), trial)
    if settled.outputs is None and space is not None:
        classifier.check_outputs = True
        settled = replace(settled, outputs="logits", sources={"outputs": "library", **settled.sources})
    return settled.finish(classifier, scores)


def load_python_file(target: str, options: Options) -> Classifier:
    """Call the factory (without arguments) and take what it gives: anything ``load_classifier`` takes.

    A file that is named on the command line is meant to be run, so no ``trust`` is asked for. For functions
    the whole file counts in the fingerprint, since they may use anything in it, and the values that they use.
    """
    stem, _, chosen = target.rpartition(".py")
    path, chosen = existing_file(f"{stem}.py").absolute(), chosen.removeprefix(":")
    # A name of its own, so that two files called model.py do not stand in for each other.
    name = f"_shiftbench_{path.stem}_{digest(str(path.resolve()))}"
    found = importlib.util.spec_from_file_location(name, path)
    assert found is not None
    module, before = importlib.util.module_from_spec(found), set(sys.modules)
    factory = chosen or "classifier"
    with contextlib.chdir(Path.cwd()):  # a file that goes elsewhere does not take the run with it
        try:
            # Not by its loader: cached bytecode passes for current if size and second of the file are the same.
            code = compile(path.read_bytes(), path, "exec")
            _check_helpers(path, code.co_names)
            sys.modules[name] = module
            exec(code, vars(module))
        except (ClassifierError, MissingExtraError):
            raise
        except Exception as error:
            sys.modules.pop(name, None)
            message = f"{path.name} fails when it is run"
            raise ClassifierError(message, found=f"{type(error).__name__}: {error}") from error
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
            made = function()
        except MissingExtraError:
            raise
        except Exception as error:
            message = f"{factory}() of {path.name} fails"
            raise ClassifierError(message, found=f"{type(error).__name__}: {error}") from error
    for helper in set(sys.modules) - before - {name}:
        file = Path(getattr(sys.modules[helper], "__file__", None) or "")
        if is_own(helper) and file.is_file():  # not so in a zip archive
            _helpers[helper] = file, file_digest(file)
    if isinstance(made, Classifier):
        return made
    # What a factory gives has a name of its own at best by chance ("factory.<locals>.f").
    named = replace(options, name=options.name or (f"{path.stem}.{chosen}" if chosen else path.stem))
    classifier = load_spec(made, named) if isinstance(made, str) else from_object(made, named)
    if isinstance(classifier, FunctionClassifier):
        classifier.source, classifier.state = file_digest(path), code_state(classifier.function, path)
    return classifier


#: Modules that files of Python have imported, and the digests of their files.
_helpers: dict[str, tuple[Path, str]] = {}


def _check_helpers(path: Path, mentioned: Iterable[str]) -> None:
    """Python imports a module once, by its name: a helper that was edited since is imported again, and one of the same
    name in another folder is refused."""
    if any(not file.is_file() or file_digest(file) != known for file, known in _helpers.values()):
        for name in _helpers:
            sys.modules.pop(name, None)
        _helpers.clear()
    imported = {name: getattr(sys.modules[name], "__file__", None) for name in mentioned if name in sys.modules}
    known = {name: Path(file) for name, file in imported.items() if file is not None and is_own(name)}
    for name, file in {**known, **{name: file for name, (file, _) in _helpers.items()}}.items():
        parts = path.parent.joinpath(*name.split("."))
        beside = next((one for one in (parts.with_suffix(".py"), parts / "__init__.py") if one.is_file()), None)
        if beside is not None and not (file.is_file() and beside.samefile(file)):
            raise ClassifierError(
                f"{path.name} cannot import its module {name}: another module of that name is already imported",
                found=str(file),
                expected=str(beside),
                hint="evaluate the models by separate commands, or rename one of the modules",
            )


def load_pickled_object(target: str, options: Options) -> Classifier:
    """``model.pkl``, ``model.joblib``. A pickle can run any code when it is loaded: refused unless ``trust``."""
    path = existing_file(target)
    if not options.trust:
        from shiftbench.classifiers.weights import untrusted

        raise untrusted(path, "a pickle")
    try:
        if path.suffix == ".pkl":
            found = pickle.loads(path.read_bytes())
        else:
            found = required("joblib", "sklearn", "reading .joblib").load(path)
    except (pickle.UnpicklingError, EOFError, AttributeError, ImportError, ValueError) as error:
        raise ClassifierError(f"{path.name} cannot be unpickled", found=f"{type(error).__name__}: {error}") from error
    return from_object(found, replace(options, name=options.name or path.stem))
