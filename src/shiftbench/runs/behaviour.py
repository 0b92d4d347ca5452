"""Is a model still the one that its stored results are of? Its scores on fixed images tell.

A fingerprint covers files and code. Code may also read a file or ask a server when it is called, and then the same code
is another model. So a workspace keeps, for each model whose fingerprint cannot cover everything, its scores on eight
images, in ``behaviour/<version>.json``. A run compares them with those of the model that it has loaded. Other scores
make it another version, with an id and results of its own; the earlier results stay under theirs.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np

from shiftbench.arrays import FloatArray, Pixels
from shiftbench.classifiers.base import Classifier
from shiftbench.classifiers.samples import sample_images
from shiftbench.errors import ClassifierError, ResultWarning, StoreError
from shiftbench.io.atomic import write_bytes
from shiftbench.io.hashing import digest
from shiftbench.io.locks import file_lock
from shiftbench.io.paths import UnwritableError
from shiftbench.store.spec import ClassifierRecord
from shiftbench.store.workspace import Workspace

_IMAGES = 8
#: Scores of more classes are kept as sums over this many groups of classes, each with every 64th class.
_GROUPS = 64
#: Scores that differ by less are equal: relative to the score, and to the larger ones of all. In single precision,
#: other machines, libraries and thread counts stay below by a factor of ten and more.
_RELATIVE, _ABSOLUTE = 1e-3, 1e-4


class Seen(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One behaviour of the same code."""

    id: str = ""  #: Part of the fingerprint; empty for the first one.
    scores: list[list[float]]  #: Of each image, by class or group of classes.
    #: A second call with some of the images gave the same scores. If not, nothing is compared.
    steady: bool = True


def settle_behaviour(classifiers: Iterable[Classifier], workspace: Workspace) -> list[ResultWarning]:
    """Make models that have changed behind the same fingerprint other versions, and report it."""
    classifiers = list(classifiers)
    for one in classifiers:
        if one.twin is not None and one.twin.is_outdated:
            raise ClassifierError(
                f"the weights of {one.name} have changed since it was loaded, and its export has the old ones",
                hint="pass the module itself, or load it again: load_classifier(module)",
            )
    opaque = [one for one in classifiers if one.recorded is None and not one.self_contained]
    return [warning for one in opaque if (warning := _settle(one, workspace)) is not None]


def copy_behaviour(source: Workspace, target: Workspace) -> None:
    """Make ``target`` know the models that ``source`` knows, damaged records included."""
    for path in (source.root / "behaviour").glob("*.json"):
        write_bytes(target.root / "behaviour" / path.name, path.read_bytes())


def _settle(classifier: Classifier, workspace: Workspace) -> ResultWarning | None:
    classifier.behaviour, name = "", classifier.name
    record = ClassifierRecord(classifier.describe())
    path = workspace.root / "behaviour" / f"{record.version}.json"
    known: list[Seen] | None = []
    try:
        known = msgspec.convert(workspace.files.read_json(path)["seen"], list[Seen])
    except FileNotFoundError:
        known = None
    except (StoreError, msgspec.MsgspecError, KeyError) as error:
        if isinstance(error.__cause__, OSError):
            raise  # a disk that fails says nothing about the model
        # damaged: nothing that is stored can be trusted to be of this model
    unsteady = ResultWarning(
        f"{name} returns different scores for the same images in another batch: it is random, keeps state, or mixes "
        "the images of a batch (batch normalisation in training mode, dynamic quantisation), so its numbers depend on "
        "the batch size. Stored results are reused; a change of what the model reads when it is called goes unnoticed",
        "unsteady-model",
    )
    if known and not known[-1].steady:
        return unsteady
    scores = _probe(classifier)
    if scores is None:  # the run itself reports why
        return None
    for seen in known or ():
        if _same(np.array(seen.scores), scores):
            classifier.behaviour = seen.id
            return None
    again = _probe(classifier, first=1)  # with other neighbours, whatever the batch size
    new = Seen(scores=scores.tolist(), steady=again is not None and _same(scores[1:], again))
    if new.steady and known is not None:
        new.id = classifier.behaviour = digest(new.scores)
    with (
        suppress(UnwritableError),  # complete results of a read-only workspace are read all the same
        file_lock(workspace.lock_path(f"behaviour-{record.version}"), wait=True),
    ):
        workspace.write_json(path, {"seen": msgspec.to_builtins([*(known or ()), new])})
    if not new.steady:
        return unsteady
    if known is None:
        stored = (one.spec.classifier.version for one in workspace.results([name]))
        text = f"{name}: the workspace holds results from before its scores on fixed images were kept; whether they "
        text += "are of the same model is known from its code alone"
        return ResultWarning(text, "unverified-model") if record.version in stored else None
    nearest = min((float(np.abs(np.array(one.scores) - scores).max()) for one in known), default=float("nan"))
    by = f"differ by up to {nearest:.3g} from those" if known else "cannot be compared with those"
    version = ClassifierRecord(classifier.describe()).version
    return ResultWarning(
        f"{name} has changed: its code is the same, but its scores on {_IMAGES} fixed images {by} that its stored "
        "results were made with; something that it reads or asks when it is called is different. Its results are "
        f"computed anew as {name}@{version}; earlier ones stay under {name}@{record.version}",
        "changed-model",
    )


@lru_cache(maxsize=4)
def _scenes(size: tuple[int, int]) -> Pixels:
    """Of different brightness and tint."""
    light = np.linspace(0.3, 1.7, _IMAGES)[:, None] * [np.roll([1.3, 1.0, 0.7], i) for i in range(_IMAGES)]
    lit: Pixels = np.clip(sample_images(_IMAGES, size) * light[:, None, None], 0, 255).astype(np.uint8)
    return lit


def _probe(classifier: Classifier, first: int = 0) -> FloatArray | None:
    try:
        scores = classifier.scores(_scenes(classifier.preprocessing.geometry.output or (224, 224))[first:].copy())
    except Exception:
        return None
    table: Any = np.nan_to_num(scores.astype(np.float64))
    if table.shape[1] > _GROUPS:
        table = np.stack([table[:, group::_GROUPS].sum(axis=1) for group in range(_GROUPS)], axis=1)
    return np.array([[float(f"{value:.7g}") for value in row] for row in table])


def _same(first: FloatArray, second: FloatArray) -> bool:
    level = _ABSOLUTE * float(np.quantile(np.abs(first), 0.9))
    return first.shape == second.shape and np.allclose(first, second, rtol=_RELATIVE, atol=level)
