"""Detect that a model has changed since its results were stored, by its scores on fixed images.

A fingerprint covers files and code. Code may also read a file or query a server when called, and then the same code is
another model. So a workspace keeps, for each model whose fingerprint cannot cover everything, its scores on eight
images, in ``behaviour/<version>.json``. A run compares them with the scores of the model that it has loaded. A model
with other scores is another version, with its own id and results; earlier results keep their id. The scores are part of
the id, rounded to some percent, so that two models with the same code stay distinct when workspaces are merged or two
runs begin at once. During a run, ``ModelWatch`` compares again, in every worker.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
import numpy as np

from shiftbench.arrays import FloatArray, Pixels
from shiftbench.classifiers.base import Classifier
from shiftbench.classifiers.batches import depends_on_neighbours, scores_alone, with_dark_images
from shiftbench.classifiers.defences import Defended
from shiftbench.datasets.samples import sample_images
from shiftbench.errors import ClassifierError, ResultWarning, StoreError, argument
from shiftbench.io.atomic import write_bytes
from shiftbench.io.hashing import digest
from shiftbench.io.locks import file_lock
from shiftbench.io.paths import Location, UnwritableError, inside
from shiftbench.labels.catalogue import label_space, label_spaces
from shiftbench.store.sealed import file_content, read_catalogue
from shiftbench.store.spec import ClassifierRecord, ResultSpec
from shiftbench.store.unchecked import UncheckedBlocks
from shiftbench.store.workspace import Workspace

#: Number of fixed images.
_IMAGES = 8
#: Scores of more classes are kept as sums over this many groups of classes, each with every 64th class.
_GROUPS = 64
#: Scores are equal if they differ by less than this, relative to the score ...
_RELATIVE_TOLERANCE = 1e-3
#: ... or relative to the larger scores of all images. In single precision, other machines, libraries and thread counts
#: stay below these tolerances by a factor of ten and more.
_ABSOLUTE_TOLERANCE = 1e-4
#: A value that all scores of an image have in common decides nothing and is subtracted; its rounding error remains,
#: and is at most this share of the largest score.
_ROUNDING_TOLERANCE = 1e-6
#: Another processor, with other integer or half-precision arithmetic, may differ by this many times as much.
_FACTOR_ELSEWHERE = 50
#: Whether a model mixes the images of a batch is tried with these of the fixed images ...
_CROWDED_IMAGES = slice(2, None, 4)
#: ... in full batches and in batches of this odd size. Neighbours matter if they change a score by more than this share
#: of the largest score: half precision with eight bits rounds differently in batches of different sizes.
_ODD_BATCH = 9
_MIXING_TOLERANCE = 2e-2
#: A run compares some of the scores again after this many images per model and process ...
_IMAGES_BETWEEN_CHECKS = 1024
#: ... on these of the fixed images.
_CHECKED_IMAGES = slice(None, None, 4)


class Seen(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One behaviour of the same code."""

    #: Part of the model's fingerprint; empty if the workspace had results of the model before any scores were kept.
    id: str = ""
    #: By image, then by class or group of classes.
    scores: list[list[float]]
    #: Whether a second call with some of the images gave the same scores. If not, nothing is compared.
    steady: bool = True
    #: Whether the model mixes the images of a batch, so that the scores are those of each image alone.
    alone: bool = False


class ExpectedScores(NamedTuple):
    """The scores of a model on the fixed images, and the engine that computed them."""

    engine: str
    scores: FloatArray


class ModelWatch:
    """Whether models stay what they were when a run began: code may keep state, read a file that is replaced
    meanwhile, or find other files on the machine of a worker. Blocks since the last comparison are removed then.

    Args:
        expected: By name of a model, its scores on the fixed images.
        unchecked: The list of the blocks since the last comparison, if one is kept for the case that the run is killed.
        here: In the process that loaded the models. In others the first comparison follows the first block, and a
            processor with other integer or half-precision arithmetic is not a change.
    """

    def __init__(
        self,
        expected: Mapping[str, ExpectedScores] | None = None,
        unchecked: UncheckedBlocks | None = None,
        here: bool = False,
    ) -> None:
        self.expected = expected or {}
        self.unchecked = unchecked
        self._here = here
        #: By model: images until the next comparison, and the blocks written since the last one.
        self._images_left: dict[str, int] = {}
        self._written: dict[str, list[Location]] = {}
        self._turn = threading.Lock()

    def __reduce__(self) -> tuple[object, ...]:
        return ModelWatch, (self.expected, self.unchecked)

    def begin(self, classifier: Classifier, blocks: Sequence[Location]) -> None:
        """Note that blocks are about to be written, so that a killed run leaves none that was never compared."""
        if self.unchecked is not None and self._is_watched(classifier):
            with self._turn:
                self.unchecked.add(blocks)

    def _is_watched(self, classifier: Classifier) -> bool:
        """Whether there are scores to compare with: another engine has another precision, and so other scores."""
        expected = self.expected.get(classifier.name)
        return expected is not None and expected.engine == classifier.engine

    def check(
        self, classifier: Classifier, images: int = _IMAGES_BETWEEN_CHECKS, written: Sequence[Location] = ()
    ) -> None:
        """Note that blocks of this many images were written, and compare if it is time; by default, it is.

        Raises:
            ClassifierError: The model has changed.
        """
        name = classifier.name
        if not self._is_watched(classifier):
            return
        expected = self.expected[name]
        with self._turn:
            paths = self._written.setdefault(name, [])
            paths += written
            images_left = self._images_left.get(name, _IMAGES_BETWEEN_CHECKS if self._here else 0)
            self._images_left[name] = images_left - images
            if self._images_left[name] > 0:
                return
            present_scores = _probe(classifier, _CHECKED_IMAGES)
            tolerance = 1 if self._here else _FACTOR_ELSEWHERE
            is_same = present_scores is None or _same(expected.scores[_CHECKED_IMAGES], present_scores, tolerance)
            if not is_same:
                for path in paths:
                    path.unlink(missing_ok=True)
            if self.unchecked is not None:
                self.unchecked.remove(paths)
            self._images_left[name] = _IMAGES_BETWEEN_CHECKS if is_same else 0
            self._written[name] = []
        if not is_same:
            raise ClassifierError(
                f"{name} changed while the run used it: its scores on fixed images are different now",
                hint="it keeps state from call to call, or reads files that have changed or differ on this machine; "
                "rerun the same command to evaluate it as it is now",
            )


def settle_behaviour(classifiers: Iterable[Classifier], workspace: Workspace) -> tuple[list[ResultWarning], ModelWatch]:
    """Make models that have changed behind the same fingerprint other versions, and report it."""
    warnings: list[ResultWarning] = []
    steady: dict[str, ExpectedScores] = {}
    for classifier in classifiers:
        if _is_outdated(classifier.classifier if isinstance(classifier, Defended) else classifier):
            raise ClassifierError(
                f"weights or code of {classifier.name} have changed since it was loaded, and its export has the old "
                "ones",
                hint="pass the module itself, or load it again: load_classifier(module)",
            )
        if classifier.recorded is not None:
            continue
        classifier.behaviour = ""
        if not classifier.self_contained:
            classifier.one_at_a_time = False
        classifier.labels_name = ""
        classifier.states_classes = False
        stored = list(_stored_specs(workspace, classifier.name))
        # Results of version 0.1 are found again: its ids had no scores and no classes, which the data stated.
        has_old_results = any(_is_same_model(spec, classifier) for spec in stored)
        classifier.states_classes = not has_old_results
        classifier.labels_name = _stored_labels_name(stored, classifier)
        # A model that changes on purpose is known by its weights and code alone.
        if not classifier.self_contained and not classifier.stateful:
            warning = _settle(classifier, workspace, steady, has_old_results)
            if warning is not None:
                warnings.append(warning)
        if not classifier.repeatable and not classifier.stateful:
            warnings.append(_unrepeatable(classifier.name))
        elif classifier.one_at_a_time:
            warnings.append(_mixing(classifier.name))
        # The name is looked up again, because the scores on fixed images may have made the model another version.
        classifier.labels_name = _stored_labels_name(stored, classifier)
    return warnings, ModelWatch(steady, here=True)


def _stored_specs(workspace: Workspace, name: str) -> Iterator[ResultSpec]:
    """The specs of all models of this name; without those of damaged results, which are computed again."""
    catalogue = read_catalogue(workspace.files)
    for _, _, path in workspace.prediction_files([name]):
        with suppress(FileNotFoundError, StoreError):
            if path.stem in catalogue:
                yield catalogue[path.stem]
            else:
                yield workspace.spec_in(path)


def _is_same_model(spec: ResultSpec, classifier: Classifier) -> bool:
    """Whether a stored result is of this version of the model, whatever its label space was called."""
    record = ClassifierRecord({**classifier.describe(), "labels": None})
    if record != ClassifierRecord({**spec.classifier.values, "labels": None}):
        return False
    if classifier.states_classes:
        return True
    # The record of version 0.1 says what the classes are called, and the result whether the data has the same ones.
    space = classifier.space
    is_registered = space.name in label_spaces and label_space(space.name) == space
    if is_registered and spec.classifier.labels == space.name:
        return True
    return spec.space == f"{spec.classifier.labels}-{space.fingerprint}"


def _stored_labels_name(stored: Iterable[ResultSpec], classifier: Classifier) -> str:
    """The name of the model's label space in its stored results, so that they are found again by their keys.

    It is the present name if some of the stored results have it, or if there are none.
    """
    names = {spec.classifier.labels for spec in stored if _is_same_model(spec, classifier)}
    if not names or classifier.space.name in names:
        return classifier.space.name
    return min(names)


def _is_outdated(classifier: Classifier) -> bool:
    """Whether the module behind an export has changed since: its tensors, or what else decides its scores."""
    if classifier.twin is None or classifier.twin.classifier is None:
        return False
    exported = _probe(classifier)
    present = _probe(classifier.twin.classifier)
    if exported is not None and present is not None and not _same(exported, present, _FACTOR_ELSEWHERE):
        return True
    return bool(classifier.twin.tensors() != classifier.twin.exported)


def copy_behaviour(source: Workspace, target: Workspace) -> None:
    """Make ``target`` know the models that ``source`` knows, damaged records included."""
    for path in source.glob("behaviour/*.json"):
        write_bytes(inside(target.root / "behaviour" / path.name, target.root), file_content(path))


def _settle(
    classifier: Classifier, workspace: Workspace, steady: dict[str, ExpectedScores], has_old_results: bool
) -> ResultWarning | None:
    """Give a model the id of its behaviour, and keep its scores in ``steady`` if they can be compared during the run.

    ``has_old_results``: the workspace has results of this version from before any scores on fixed images were kept.
    """
    name = classifier.name
    record = ClassifierRecord(classifier.describe())
    path = workspace.root / "behaviour" / f"{record.version}.json"
    # Versions up to 0.2 wrote the file under another hash.
    former_path = path.with_name(f"{record.former_version}.json")
    behaviours = _read_seen(workspace, path) or _read_seen(workspace, former_path)
    if behaviours and not behaviours[-1].steady:
        return _unsteady(name)
    # The scores of each image alone are compared with the scores of each image alone.
    classifier.one_at_a_time = bool(behaviours) and behaviours[-1].alone
    scores = _probe(classifier)
    if scores is None:
        text = f"{name} fails on the fixed images by which a run recognises it, so a change of what it reads when it is"
        return ResultWarning(f"{text} called goes unnoticed. Stored results are reused", "unverified-model")
    behaviour = next((seen for seen in behaviours if _same(np.array(seen.scores), scores)), None)
    has_changed = False
    if behaviour is None:
        has_changed = bool(behaviours)
        behaviour = _first_seen(classifier, scores)
        scores = np.array(behaviour.scores)
        # The first behaviour of a model with old results has no id, so that these results are found again.
        if behaviour.steady and (behaviours or not has_old_results):
            behaviour.id = _new_id(scores, behaviours)
        with (
            suppress(UnwritableError),  # complete results of a read-only workspace are read all the same
            file_lock(workspace.lock_path(f"behaviour-{record.version}"), wait=True),
        ):
            workspace.write_json(path, {"seen": msgspec.to_builtins([*behaviours, behaviour])})
    classifier.behaviour = behaviour.id
    if not behaviour.steady:
        return _unsteady(name)
    steady[name] = ExpectedScores(classifier.engine, scores)
    if has_changed:
        return _changed(classifier, scores, behaviours)
    if has_old_results and not behaviour.id:
        return _unverified(name, record.version)
    return None


def _first_seen(classifier: Classifier, scores: FloatArray) -> Seen:
    """The behaviour of a model with these scores on the fixed images, which was not seen before.

    A model that mixes the images of a batch, and is steady with one image at a time, is run so from now on.
    """
    mixes_images = not classifier.one_at_a_time and _mixes_images(classifier)
    if not mixes_images:
        is_steady = _is_steady(classifier, scores)
        return Seen(scores=scores.tolist(), steady=is_steady, alone=is_steady and classifier.one_at_a_time)
    classifier.one_at_a_time = True
    alone = _probe(classifier)
    if alone is not None and _is_steady(classifier, alone):
        return Seen(scores=alone.tolist(), alone=True)
    classifier.one_at_a_time = False
    return Seen(scores=scores.tolist(), steady=False)


def _is_steady(classifier: Classifier, scores: FloatArray) -> bool:
    """Whether the images have the same scores in the reverse order and without the first one: they have other
    neighbours and other positions then, whatever the batch size. The images that are compared during a run have the
    neighbours that they have then."""
    reversed_scores = _probe(classifier, slice(None, 0, -1))
    if reversed_scores is None or not _same(scores[:0:-1], reversed_scores):
        return False
    checked_scores = _probe(classifier, _CHECKED_IMAGES)
    return checked_scores is not None and _same(scores[_CHECKED_IMAGES], checked_scores)


def _mixes_images(classifier: Classifier) -> bool:
    """Whether images have other scores in a batch than alone; False for a model that fails on the fixed images.

    Most batches of a run are full, and the last one of a block may have any size.
    """
    if classifier.batch_size < 2:
        return False
    images = with_dark_images(_scenes(_input_size(classifier))[_CROWDED_IMAGES])
    sizes = {classifier.batch_size, min(classifier.batch_size, _ODD_BATCH)}
    try:
        classifier.one_at_a_time = True
        alone = scores_alone(classifier.scores, images)
        classifier.one_at_a_time = False
        return any(depends_on_neighbours(classifier.scores, images, alone, size, _MIXING_TOLERANCE) for size in sizes)
    except Exception:
        return False
    finally:
        classifier.one_at_a_time = False


def _new_id(scores: FloatArray, behaviours: Iterable[Seen]) -> str:
    """An id that none of the other behaviours has."""
    coarse_id = _coarse(scores)
    if coarse_id in {seen.id for seen in behaviours}:
        return digest(scores.tolist())
    return coarse_id


def _unsteady(name: str) -> ResultWarning:
    return ResultWarning(
        f"{name} returns different scores for the same images in another batch: it is random, keeps state, or mixes "
        "the images of a batch, so its numbers depend on the batch size. If that is meant, "
        f"{argument('stateful', True)} evaluates it on images in random order, and resets it before each setting. "
        "Stored results are reused; a change of what the model reads when it is called "
        "goes unnoticed",
        "unsteady-model",
    )


def _unrepeatable(name: str) -> ResultWarning:
    """The warning about a file that gives the same image, alone, other scores in another call."""
    return ResultWarning(
        f"{name} returns different scores for the same image from call to call: it is random or keeps state, as does a "
        "graph that was exported in training mode (dropout is random, and batch normalisation changes its running "
        "means). Its numbers depend on the order of the images and on chance. Export it again in inference mode, with "
        "torch after `model.eval()`. If state is meant, pass the torch module or the function with "
        f"{argument('stateful', True)}. "
        "Stored results are reused",
        "unsteady-model",
    )


def _mixing(name: str) -> ResultWarning:
    return ResultWarning(
        f"{name} mixes the images of a batch (dynamic quantisation, batch normalisation in training mode): an image "
        "has other scores beside other images. It is evaluated one image at a time, so that its numbers do not depend "
        "on the batch size. If adapting to the batch is meant, pass the torch module or the function with "
        f"{argument('stateful', True)}",
        "mixing-model",
    )


def _unverified(name: str, version: str) -> ResultWarning:
    return ResultWarning(
        f"{name}: the workspace holds results from before its scores on fixed images were kept; whether they are of "
        "the same model is known from its code alone. To compute them again, first remove them: `shiftbench store "
        f"remove {name}@{version}`",
        "unverified-model",
    )


def _changed(classifier: Classifier, scores: FloatArray, earlier: Iterable[Seen]) -> ResultWarning:
    """The note that a model answers otherwise than under its name before, by how much from the nearest version."""
    name = classifier.name
    differences = [float(np.abs(np.array(seen.scores) - scores).max()) for seen in earlier]
    nearest = min(differences)
    version = ClassifierRecord(classifier.describe()).version
    return ResultWarning(
        f"{name} has changed: its code is the same, but its scores on {_IMAGES} fixed images differ by up to "
        f"{nearest:.3g} from those that its stored results were made with; something that it reads or asks when it is "
        f"called is different. Its results are now those of {name}@{version}; earlier ones stay under their ids",
        "changed-model",
    )


def _read_seen(workspace: Workspace, path: Location) -> list[Seen]:
    """The behaviours in a file; none if it is missing or damaged."""
    try:
        return msgspec.convert(workspace.files.read_json(path)["seen"], list[Seen])
    except (FileNotFoundError, StoreError, msgspec.MsgspecError, KeyError) as error:
        if isinstance(error.__cause__, OSError):
            raise  # a failing disk says nothing about the model
        return []


@lru_cache(maxsize=4)
def _scenes(size: tuple[int, int]) -> Pixels:
    """The fixed images, of different brightness and tint."""
    light = np.linspace(0.3, 1.7, _IMAGES)[:, None] * [np.roll([1.3, 1.0, 0.7], i) for i in range(_IMAGES)]
    scenes: Pixels = np.clip(sample_images(_IMAGES, size) * light[:, None, None], 0, 255).astype(np.uint8)
    return scenes


def _input_size(classifier: Classifier) -> tuple[int, int]:
    return classifier.preprocessing.geometry.output or (224, 224)


def _probe(classifier: Classifier, images: slice = slice(None)) -> FloatArray | None:
    """The scores of some of the fixed images, to seven digits; None if the model fails on them."""
    scenes = _scenes(_input_size(classifier))[images].copy()
    try:
        if classifier.one_at_a_time:
            scores = scores_alone(classifier.scores, scenes)
        else:
            scores = classifier.scores(scenes)
    except Exception:
        return None
    table: Any = np.nan_to_num(scores.astype(np.float64), posinf=1e30, neginf=-1e30)
    if table.shape[1] > _GROUPS:
        table *= 1 + np.arange(table.shape[1]) // _GROUPS  # the classes of one group have different weights
        table = np.stack([table[:, group::_GROUPS].sum(axis=1) for group in range(_GROUPS)], axis=1)
    rounded = [float(f"{value:.7g}") for value in table.ravel()]
    return np.array(rounded, np.float64).reshape(table.shape)


def _same(first: FloatArray, second: FloatArray, tolerance: float = 1) -> bool:
    """Whether scores are equal up to so many times the usual differences in rounding."""
    if first.shape != second.shape:
        return False
    first_centred = _centred(first)
    second_centred = _centred(second)
    level = max(
        _ABSOLUTE_TOLERANCE * float(np.quantile(np.abs(first_centred), 0.9)),
        _ROUNDING_TOLERANCE * float(np.abs(first).max()),
    )
    return np.allclose(first_centred, second_centred, rtol=tolerance * _RELATIVE_TOLERANCE, atol=tolerance * level)


def _centred(scores: FloatArray) -> FloatArray:
    """The scores without the mean of each image."""
    centred: FloatArray = scores - scores.mean(axis=1, keepdims=True)
    return centred


def _coarse(scores: FloatArray) -> str:
    """A digest of one number per image, rounded to some percent of the largest: with rare exceptions, it is the same
    on other machines."""
    numbers = _centred(scores) @ np.cos(np.arange(scores.shape[1]))
    digits = 1 - int(np.floor(np.log10(max(float(np.abs(numbers).max()), 1e-30))))
    return digest([round(float(number), digits) + 0.0 for number in numbers])
