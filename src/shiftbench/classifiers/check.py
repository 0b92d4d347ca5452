"""Conformance checks for classifiers, for authors to run on their own."""

from __future__ import annotations

import json
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from shiftbench.arrays import Pixels
from shiftbench.classifiers.base import Classifier
from shiftbench.classifiers.onnx_ import TOLERANCE
from shiftbench.classifiers.options import looks_like_probabilities
from shiftbench.conformance import CheckResult, require, require_own_randomness, requirement
from shiftbench.datasets.samples import sample_images
from shiftbench.labels.space import Scores


def check_classifier(classifier: Classifier, images: Pixels | None = None) -> list[CheckResult]:
    """Run every check; a failing one explains itself, and none stops the others.

    Args:
        classifier: The model.
        images: uint8 (N, H, W, 3) images in its geometry to run it on; default: built-in ones.

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
    results: list[CheckResult] = []
    with requirement("gives scores", results) as notes:
        scores = classifier.scores(images.copy())
        notes.append(f"{len(images)} images")
    if not results[0].ok:
        return results
    _check_scores(classifier, images, scores, results)
    _check_batches(classifier, images, scores, results)
    with requirement("the fingerprint is stable", results):
        first = classifier.fingerprint
        second = classifier.fingerprint
        require(isinstance(first, str) and bool(first), f"found {first!r}, expected text")
        require(first == second, f"{first} became {second}")
    with requirement("can be pickled", results):
        twin = pickle.loads(pickle.dumps(classifier))
        message = f"the copy's fingerprint is {twin.fingerprint}, not {classifier.fingerprint}"
        require(twin.fingerprint == classifier.fingerprint, message)
        _require_close(scores, twin.scores(images.copy()))
    with requirement("describes itself in JSON", results):
        description = json.loads(json.dumps(classifier.describe()))
        missing = {"classifier", "fingerprint", "labels", "preprocessing"} - set(description)
        require(not missing, f"describe() lacks {', '.join(sorted(missing))}")
    return results


def _check_scores(classifier: Classifier, images: Pixels, scores: Scores, results: list[CheckResult]) -> None:
    with requirement("scores are float32, one row per image and one column per class", results):
        actual = f"{type(scores).__name__} {getattr(scores, 'dtype', '')} {getattr(scores, 'shape', '')}"
        space = classifier.space
        shape = (len(images), len(space))
        fits = isinstance(scores, np.ndarray) and scores.shape == shape and scores.dtype == np.float32
        require(fits, f"found {actual}, expected float32 {shape} for the {len(space)} classes of {space.name!r}")
    with requirement("scores are finite", results):
        bad = int((~np.isfinite(scores)).any(axis=1).sum())
        require(not bad, f"{bad} of {len(scores)} images have infinite or undefined scores")
    with requirement("scores are of the declared kind", results):
        sums = scores.sum(axis=1)
        are_probabilities = looks_like_probabilities(scores)
        rows = f"rows sum to {sums.min():.4g} ... {sums.max():.4g}, least {scores.min():.4g}"
        if classifier.outputs == "probabilities":
            require(are_probabilities, f"declared as probabilities, but {rows}")
        if classifier.outputs == "logits":
            twice = "declared as logits, but non-negative and every row sums to one: a softmax would be applied twice"
            require(not are_probabilities or scores.shape[1] == 1, twice)
    with requirement("scores depend on the image", results):
        require(len(scores) < 2 or bool((scores != scores[0]).any()), "all images get the same scores")


def _check_batches(classifier: Classifier, images: Pixels, scores: Scores, results: list[CheckResult]) -> None:
    with requirement("the same again", results):
        _require_close(scores, classifier.scores(images.copy()), exact=True)
    with requirement("the global random numbers are left alone", results):
        hint = "a generator of its own with a fixed seed: np.random.default_rng(0), torch.Generator().manual_seed(0)"
        require_own_randomness(lambda: classifier.scores(images.copy()), hint)
    with requirement("neighbours in the batch do not matter", results):
        _require_close(scores, classifier.scores(images[::-1].copy())[::-1])
    with requirement("a batch of one works", results):
        _require_close(scores, np.concatenate([classifier.scores(image[None].copy()) for image in images]))
    with requirement("more than a batch works", results):
        repeats = classifier.batch_size // len(images) + 2
        _require_close(scores, classifier.scores(np.concatenate([images] * repeats))[-len(images) :])
    with requirement("an empty batch gives no rows", results):
        shape = classifier.scores(images[:0]).shape
        expected = (0, len(classifier.space))
        require(shape == expected, f"found {shape}, expected {expected}")
    with requirement("the images are left as they are", results):
        passed = images.copy()
        classifier.scores(passed)
        require(np.array_equal(passed, images), "scores() changed the pixels it was given")
    with requirement("read-only images are accepted", results):
        read_only = images.copy()
        read_only.flags.writeable = False
        _require_close(scores, classifier.scores(read_only))
    with requirement("several threads may ask at once", results), ThreadPoolExecutor(4) as pool:
        for answer in pool.map(classifier.scores, [images.copy() for _ in range(8)]):
            _require_close(scores, answer)


def _require_close(expected: Scores, actual: Scores, exact: bool = False) -> None:
    """Require that two tables of scores agree, within the tolerance for two engines or exactly."""
    require(expected.shape == actual.shape, f"found scores of shape {actual.shape}, expected {expected.shape}")
    with np.errstate(invalid="ignore"):
        gaps = np.where(expected == actual, 0, np.abs(expected - actual))
    worst = float(np.nan_to_num(gaps, nan=np.inf).max(initial=0))
    largest = float(np.abs(expected).max(initial=0))
    tolerance = 0 if exact else TOLERANCE * largest
    require(worst <= tolerance, f"scores differ by up to {worst:.3g} (the largest is {largest:.3g})")
