"""Detect that a model has changed since its results were stored, by its scores on fixed images.

A fingerprint covers files and code. Code may also read a file or query a server when called, and then the same code is
another model. So a workspace keeps, for each model whose fingerprint cannot cover everything, its scores on eight
images, in ``behaviour/<version>.json``. A run compares them with the scores of the model that it has loaded. A model
with other scores is another version, with its own id and results; earlier results keep their id. The scores are part of
the id, rounded to some percent, so that two models with the same code stay distinct when workspaces are merged or two
runs begin at once. During a run, ``ModelWatch`` compares again, in every worker.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np

from shiftbench.arrays import FloatArray, Pixels
from shiftbench.classifiers.base import Classifier
from shiftbench.classifiers.defences import Defended
from shiftbench.classifiers.samples import sample_images
from shiftbench.errors import ClassifierError, ResultWarning, StoreError, argument
from shiftbench.io.atomic import write_bytes
from shiftbench.io.hashing import digest
from shiftbench.io.locks import file_lock
from shiftbench.io.paths import Location, UnwritableError
from shiftbench.labels.catalogue import label_space, label_spaces
from shiftbench.store.prediction_files import read_spec
from shiftbench.store.sealed import read_catalogue
from shiftbench.store.spec import ClassifierRecord, ResultSpec
from shiftbench.store.workspace import Workspace

_IMAGES = 8
#: Scores of more classes are kept as sums over this many groups of classes, each with every 64th class.
_GROUPS = 64
#: Scores that differ by less are equal: relative to the score, and to the larger ones of all. In single precision,
#: other machines, libraries and thread counts stay below by a factor of ten and more. What all scores of an image have
#: in common decides nothing, and does not count; but its rounding does.
_RELATIVE, _ABSOLUTE, _ROUNDING, _ELSEWHERE = 1e-3, 1e-4, 1e-6, 50
#: A run compares some of them again after this many images per model and process.
_EVERY, _SOME = 1024, slice(None, None, 4)


class Seen(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One behaviour of the same code."""

    id: str = ""  #: Part of the fingerprint; empty where results were there before any scores.
    scores: list[list[float]]  #: Of each image, by class or group of classes.
    #: A second call with some of the images gave the same scores. If not, nothing is compared.
    steady: bool = True


class ModelWatch:
    """Whether models stay what they were when a run began: code may keep state, read a file that is replaced
    meanwhile, or find other files on the machine of a worker. Blocks since the last comparison are removed then.

    Args:
        expected: By name of a model, its engine and its scores on the fixed images.
        here: In the process that loaded the models. In others the first comparison follows the first block, and a
            processor with other integer or half-precision arithmetic is not a change.
    """

    def __init__(self, expected: Mapping[str, tuple[str, FloatArray]] | None = None, here: bool = False) -> None:
        self.expected, self._here = expected or {}, here
        self._left: dict[str, int] = {}
        self._written: dict[str, list[Location]] = {}
        self._turn = threading.Lock()

    def __reduce__(self) -> tuple[object, ...]:
        return ModelWatch, (self.expected,)

    def check(self, classifier: Classifier, images: int = _EVERY, written: Sequence[Location] = ()) -> None:
        """Note a block that was written, and compare if it is time; ClassifierError if the model has changed."""
        name = classifier.name
        engine, scores = self.expected.get(name, (None, None))
        if scores is None or engine != classifier.engine:  # another precision has other scores
            return
        with self._turn:
            paths = self._written.setdefault(name, [])
            paths += written
            self._left[name] = self._left.get(name, _EVERY if self._here else 0) - images
            if self._left[name] > 0:
                return
            now = _probe(classifier, _SOME)
            same = now is None or _same(scores[_SOME], now, 1 if self._here else _ELSEWHERE)
            for path in () if same else paths:
                path.unlink(missing_ok=True)
            self._left[name], self._written[name] = _EVERY if same else 0, []
        if not same:
            raise ClassifierError(
                f"{name} changed while the run used it: its scores on fixed images are different now",
                hint="it keeps state from call to call, or reads files that have changed or differ on this machine; "
                "rerun the same command to evaluate it as it is now",
            )


def settle_behaviour(classifiers: Iterable[Classifier], workspace: Workspace) -> tuple[list[ResultWarning], ModelWatch]:
    """Make models that have changed behind the same fingerprint other versions, and report it."""
    found: list[ResultWarning] = []
    steady: dict[str, tuple[str, FloatArray]] = {}
    for one in classifiers:
        if _is_outdated(one.classifier if isinstance(one, Defended) else one):
            raise ClassifierError(
                f"weights or code of {one.name} have changed since it was loaded, and its export has the old ones",
                hint="pass the module itself, or load it again: load_classifier(module)",
            )
        if one.recorded is None:
            one.behaviour = one.labels_name = ""
            one.states_classes = False
            stored = list(_stored_specs(workspace, one.name))
            # Results of version 0.1 are found again: its ids had no scores and no classes, which the data stated.
            before = any(_is_same_model(spec, one) for spec in stored)
            one.states_classes = not before
            one.labels_name = _stored_labels_name(stored, one)
            # A model that changes on purpose is known by its weights and code alone.
            steady_scores = not one.self_contained and not one.stateful
            if steady_scores and (warning := _settle(one, workspace, steady, before)):
                found.append(warning)
            # Once more, for its scores on fixed images may have made it another version.
            one.labels_name = _stored_labels_name(stored, one)
    return found, ModelWatch(steady, here=True)


def _stored_specs(workspace: Workspace, name: str) -> Iterator[ResultSpec]:
    """Of the results of all models of this name; without damaged ones, which are computed again."""
    listed = read_catalogue(workspace.files)
    for _, _, path in workspace.prediction_files([name]):
        with suppress(FileNotFoundError, StoreError):
            known = path.stem in listed
            yield ResultSpec.from_json(json.loads(listed[path.stem])) if known else read_spec(path)


def _is_same_model(spec: ResultSpec, classifier: Classifier) -> bool:
    """Whether a stored result is of this version of the model, whatever its label space was called."""
    here = ClassifierRecord({**classifier.describe(), "labels": None})
    if here != ClassifierRecord({**spec.classifier.values, "labels": None}):
        return False
    if classifier.states_classes:
        return True
    # The record of version 0.1 says what the classes are called, and the result whether the data has the same ones.
    space = classifier.space
    known = space.name in label_spaces and label_space(space.name) == space
    return (known and spec.classifier.labels == space.name) or spec.space == (
        f"{spec.classifier.labels}-{space.fingerprint}"
    )


def _stored_labels_name(stored: Iterable[ResultSpec], classifier: Classifier) -> str:
    """What stored results of the model call its label space, so that they are found again by their keys: as it is
    called now, if some of them do."""
    names = {spec.classifier.labels for spec in stored if _is_same_model(spec, classifier)}
    if not names or classifier.space.name in names:
        return classifier.space.name
    return min(names)


def _is_outdated(classifier: Classifier) -> bool:
    """Whether the module behind an export has changed since: its tensors, or what else decides its scores."""
    if classifier.twin is None or classifier.twin.classifier is None:
        return False
    exported, now = _probe(classifier), _probe(classifier.twin.classifier)
    other = exported is not None and now is not None and not _same(exported, now, _ELSEWHERE)
    return other or bool(classifier.twin.tensors() != classifier.twin.exported)


def copy_behaviour(source: Workspace, target: Workspace) -> None:
    """Make ``target`` know the models that ``source`` knows, damaged records included."""
    for path in (source.root / "behaviour").glob("*.json"):
        write_bytes(target.root / "behaviour" / path.name, path.read_bytes())


def _settle(
    classifier: Classifier, workspace: Workspace, steady: dict[str, tuple[str, FloatArray]], before: bool
) -> ResultWarning | None:
    """``before``: the workspace has results of this version from before any scores on fixed images were kept."""
    name, record = classifier.name, ClassifierRecord(classifier.describe())
    version = record.version
    path = workspace.root / "behaviour" / f"{version}.json"
    # Versions up to 0.2 wrote the file under another hash.
    known = _read_seen(workspace, path) or _read_seen(workspace, path.with_name(f"{record.former_version}.json"))
    unsteady = ResultWarning(
        f"{name} returns different scores for the same images in another batch: it is random, keeps state, or mixes "
        "the images of a batch (batch normalisation in training mode, dynamic quantisation), so its numbers depend on "
        f"the batch size. If that is meant, {argument('stateful', True)} evaluates it on images in random order, and "
        "resets it before each setting. Stored results are reused; a change of what the model reads when it is called "
        "goes unnoticed",
        "unsteady-model",
    )
    unverified = ResultWarning(
        f"{name}: the workspace holds results from before its scores on fixed images were kept; whether they are of "
        "the same model is known from its code alone. To compute them again, first remove them: `shiftbench store "
        f"remove {name}@{version}`",
        "unverified-model",
    )
    if known and not known[-1].steady:
        return unsteady
    scores = _probe(classifier)
    if scores is None:
        text = f"{name} fails on the fixed images by which a run recognises it, so a change of what it reads when it is"
        return ResultWarning(f"{text} called goes unnoticed. Stored results are reused", unverified.code)
    same = next((one for one in known if _same(np.array(one.scores), scores)), None)
    # In the reverse order and without the first: with other neighbours and in other places, whatever the batch size.
    again = _probe(classifier, slice(None, 0, -1)) if same is None else None
    if same is not None or (again is not None and _same(scores[:0:-1], again)):
        steady[name] = classifier.engine, scores
    new = same or Seen(scores=scores.tolist(), steady=name in steady)
    if same is None:
        if new.steady and (known or not before):
            taken, new.id = {one.id for one in known}, _coarse(scores)
            new.id = digest(new.scores) if new.id in taken else new.id
        with (
            suppress(UnwritableError),  # complete results of a read-only workspace are read all the same
            file_lock(workspace.lock_path(f"behaviour-{version}"), wait=True),
        ):
            workspace.write_json(path, {"seen": msgspec.to_builtins([*known, new])})
    classifier.behaviour = new.id
    if not new.steady:
        return unsteady
    if same is not None or not known:
        return unverified if before and not new.id else None
    nearest = min(float(np.abs(np.array(one.scores) - scores).max()) for one in known)
    changed = ClassifierRecord(classifier.describe()).version
    return ResultWarning(
        f"{name} has changed: its code is the same, but its scores on {_IMAGES} fixed images differ by up to "
        f"{nearest:.3g} from those that its stored results were made with; something that it reads or asks when it is "
        f"called is different. Its results are now those of {name}@{changed}; earlier ones stay under their ids",
        "changed-model",
    )


def _read_seen(workspace: Workspace, path: Location) -> list[Seen]:
    try:
        return msgspec.convert(workspace.files.read_json(path)["seen"], list[Seen])
    except (FileNotFoundError, StoreError, msgspec.MsgspecError, KeyError) as error:
        if isinstance(error.__cause__, OSError):
            raise  # a failing disk says nothing about the model
        return []


@lru_cache(maxsize=4)
def _scenes(size: tuple[int, int]) -> Pixels:
    """Of different brightness and tint."""
    light = np.linspace(0.3, 1.7, _IMAGES)[:, None] * [np.roll([1.3, 1.0, 0.7], i) for i in range(_IMAGES)]
    lit: Pixels = np.clip(sample_images(_IMAGES, size) * light[:, None, None], 0, 255).astype(np.uint8)
    return lit


def _probe(classifier: Classifier, chosen: slice = slice(None)) -> FloatArray | None:
    try:
        scores = classifier.scores(_scenes(classifier.preprocessing.geometry.output or (224, 224))[chosen].copy())
    except Exception:
        return None
    table: Any = np.nan_to_num(scores.astype(np.float64), posinf=1e30, neginf=-1e30)
    if table.shape[1] > _GROUPS:
        table *= 1 + np.arange(table.shape[1]) // _GROUPS  # other weights for those of one group
        table = np.stack([table[:, group::_GROUPS].sum(axis=1) for group in range(_GROUPS)], axis=1)
    return np.array([[float(f"{value:.7g}") for value in row] for row in table])


def _same(first: FloatArray, second: FloatArray, tolerance: float = 1) -> bool:
    if first.shape != second.shape:
        return False
    own, other = _centred(first), _centred(second)
    level = max(_ABSOLUTE * float(np.quantile(np.abs(own), 0.9)), _ROUNDING * float(np.abs(first).max()))
    return np.allclose(own, other, rtol=tolerance * _RELATIVE, atol=tolerance * level)


def _centred(scores: FloatArray) -> FloatArray:
    centred: FloatArray = scores - scores.mean(axis=1, keepdims=True)
    return centred


def _coarse(scores: FloatArray) -> str:
    """The same on other machines, but for a rare chance: a number per image, to some percent of the largest."""
    numbers = _centred(scores) @ np.cos(np.arange(scores.shape[1]))
    digits = 1 - int(np.floor(np.log10(max(float(np.abs(numbers).max()), 1e-30))))
    return digest([round(float(number), digits) + 0.0 for number in numbers])
