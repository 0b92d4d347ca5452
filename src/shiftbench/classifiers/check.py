"""The conformance suite: what every classifier must keep, for authors to run on their own."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from shiftbench.arrays import Pixels
from shiftbench.classifiers.base import Classifier
from shiftbench.classifiers.export import TOLERANCE
from shiftbench.classifiers.samples import sample_images
from shiftbench.datasets.check import CheckResult
from shiftbench.labels.space import Scores

Probe = Callable[[Classifier, Pixels, Scores], str | None]
_CHECKS: list[tuple[str, Probe]] = []


def check_classifier(classifier: Classifier, images: Pixels | None = None) -> list[CheckResult]:
    """Run every check; a failing one explains itself, and none stops the others.

    ``images`` are uint8 images in the classifier's geometry; built-in ones if not given.

    Args:
        classifier: The model.
        images: uint8 (N, H, W, 3) images to run it on; default: made up.

    Example:
        >>> from shiftbench.classifiers import load_classifier
        >>> from shiftbench.labels.space import LabelSpace
        >>> def light(images):
        ...     return images.reshape(len(images), -1)[:, :2].astype(np.float32)
        >>> classifier = load_classifier(light, labels=LabelSpace("pets", ("cat", "dog")))
        >>> all(check.ok for check in check_classifier(classifier) if check.name != "can be pickled")
        True
    """
    if images is None:
        images = sample_images(6, classifier.preprocessing.geometry.output or (224, 224))
    try:
        scores = classifier.scores(images.copy())
    except Exception as error:
        return [CheckResult("gives scores", False, f"{type(error).__name__}: {error}")]
    results = [CheckResult("gives scores", True, f"{len(images)} images")]
    for name, probe in _CHECKS:
        try:
            fault = probe(classifier, images, scores)
        except Exception as error:
            fault = f"{type(error).__name__}: {error}"
        results.append(CheckResult(name, fault is None, fault or "ok"))
    return results


def _check(name: str) -> Callable[[Probe], Probe]:
    def add(probe: Probe) -> Probe:
        _CHECKS.append((name, probe))
        return probe

    return add


@_check("scores are float32, one row per image and one column per class")
def _shape(classifier: Classifier, images: Pixels, scores: Scores) -> str | None:
    expected = (len(images), len(classifier.space))
    if not isinstance(scores, np.ndarray) or scores.shape != expected or scores.dtype != np.float32:
        return f"found {type(scores).__name__} {getattr(scores, 'dtype', '')} {getattr(scores, 'shape', '')}, " + (
            f"expected float32 {expected} for the {len(classifier.space)} classes of {classifier.space.name!r}"
        )
    return None


@_check("scores are finite")
def _finite(classifier: Classifier, images: Pixels, scores: Scores) -> str | None:
    bad = int((~np.isfinite(scores)).any(axis=1).sum())
    return f"{bad} of {len(scores)} images have infinite or undefined scores" if bad else None


@_check("scores are of the kind that is said")
def _outputs(classifier: Classifier, images: Pixels, scores: Scores) -> str | None:
    sums = scores.sum(axis=1)
    like_probabilities = bool((scores >= 0).all() and np.allclose(sums, 1, atol=1e-3))
    if classifier.outputs == "probabilities" and not like_probabilities:
        return (
            f"said to be probabilities, but rows sum to {sums.min():.4g} ... {sums.max():.4g}, least {scores.min():.4g}"
        )
    if classifier.outputs == "logits" and like_probabilities and scores.shape[1] > 1:
        return "said to be logits, but non-negative and every row sums to one: a softmax would be taken twice"
    return None


@_check("scores depend on the image")
def _varies(classifier: Classifier, images: Pixels, scores: Scores) -> str | None:
    return "all images get the same scores" if len(scores) > 1 and (scores == scores[0]).all() else None


@_check("the same again")
def _deterministic(classifier: Classifier, images: Pixels, scores: Scores) -> str | None:
    return _difference(scores, classifier.scores(images.copy()), exact=True)


@_check("neighbours in the batch do not matter")
def _independent(classifier: Classifier, images: Pixels, scores: Scores) -> str | None:
    backwards = classifier.scores(np.ascontiguousarray(images[::-1]))[::-1]
    return _difference(scores, backwards)


@_check("a batch of one works")
def _single(classifier: Classifier, images: Pixels, scores: Scores) -> str | None:
    single = np.concatenate([classifier.scores(images[i : i + 1].copy()) for i in range(len(images))])
    return _difference(scores, single)


@_check("more than a batch works")
def _many(classifier: Classifier, images: Pixels, scores: Scores) -> str | None:
    repeats = classifier.batch_size // len(images) + 2
    many = classifier.scores(np.concatenate([images] * repeats))
    return _difference(scores, many[-len(images) :])


@_check("an empty batch gives no rows")
def _empty(classifier: Classifier, images: Pixels, scores: Scores) -> str | None:
    shape = classifier.scores(images[:0]).shape
    return None if shape == (0, len(classifier.space)) else f"found {shape}, expected {(0, len(classifier.space))}"


@_check("the images are left as they are")
def _untouched(classifier: Classifier, images: Pixels, scores: Scores) -> str | None:
    given = images.copy()
    classifier.scores(given)
    return None if np.array_equal(given, images) else "scores() changed the pixels it was given"


@_check("read-only images are accepted")
def _read_only(classifier: Classifier, images: Pixels, scores: Scores) -> str | None:
    given = images.copy()
    given.flags.writeable = False
    return _difference(scores, classifier.scores(given))


@_check("several threads may ask at once")
def _threads(classifier: Classifier, images: Pixels, scores: Scores) -> str | None:
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(classifier.scores, [images.copy() for _ in range(8)]))
    return next((fault for answer in answers if (fault := _difference(scores, answer))), None)


@_check("the fingerprint is stable")
def _fingerprint(classifier: Classifier, images: Pixels, scores: Scores) -> str | None:
    first, again = classifier.fingerprint, classifier.fingerprint
    if not isinstance(first, str) or not first:
        return f"found {first!r}, expected text"
    return None if first == again else f"{first} became {again}"


@_check("can be pickled")
def _picklable(classifier: Classifier, images: Pixels, scores: Scores) -> str | None:
    twin = pickle.loads(pickle.dumps(classifier))
    if twin.fingerprint != classifier.fingerprint:
        return f"the copy's fingerprint is {twin.fingerprint}, not {classifier.fingerprint}"
    return _difference(scores, twin.scores(images.copy()))


@_check("describes itself in JSON")
def _describes(classifier: Classifier, images: Pixels, scores: Scores) -> str | None:
    description = json.loads(json.dumps(classifier.describe()))
    missing = {"classifier", "fingerprint", "labels", "preprocessing"} - set(description)
    return f"describe() lacks {', '.join(sorted(missing))}" if missing else None


def _difference(expected: Scores, found: Scores, exact: bool = False) -> str | None:
    if expected.shape != found.shape:
        return f"found scores of shape {found.shape}, expected {expected.shape}"
    with np.errstate(invalid="ignore"):
        gaps = np.where(expected == found, 0, np.abs(expected - found))
    worst, largest = float(np.nan_to_num(gaps, nan=np.inf).max(initial=0)), float(np.abs(expected).max(initial=0))
    if worst > (0 if exact else TOLERANCE * largest):
        return f"scores differ by up to {worst:.3g} (the largest is {largest:.3g})"
    return None
