"""The conformance suite: what every classifier must keep, for authors to run on their own."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from shiftbench.arrays import Pixels
from shiftbench.classifiers.base import Classifier
from shiftbench.classifiers.onnx_ import TOLERANCE
from shiftbench.classifiers.options import looks_like_probabilities
from shiftbench.classifiers.samples import sample_images
from shiftbench.datasets.check import CheckResult
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
    try:
        scores = classifier.scores(images.copy())
    except Exception as error:
        return [CheckResult("gives scores", False, f"{type(error).__name__}: {error}")]
    results = [CheckResult("gives scores", True, f"{len(images)} images")]
    for name, fault_of in _CHECKS.items():
        try:
            fault = fault_of(_Case(classifier, images, scores))
        except Exception as error:
            fault = f"{type(error).__name__}: {error}"
        results.append(CheckResult(name, fault is None, fault or "ok"))
    return results


@dataclass(frozen=True)
class _Case:
    """A classifier with images and their scores. Methods say what is wrong, None if nothing is."""

    classifier: Classifier
    images: Pixels
    scores: Scores

    def differs(self, found: Scores, exact: bool = False) -> str | None:
        expected = self.scores
        if expected.shape != found.shape:
            return f"found scores of shape {found.shape}, expected {expected.shape}"
        with np.errstate(invalid="ignore"):
            gaps = np.where(expected == found, 0, np.abs(expected - found))
        worst, largest = float(np.nan_to_num(gaps, nan=np.inf).max(initial=0)), float(np.abs(expected).max(initial=0))
        if worst > (0 if exact else TOLERANCE * largest):
            return f"scores differ by up to {worst:.3g} (the largest is {largest:.3g})"
        return None

    def shape(self) -> str | None:
        scores, space = self.scores, self.classifier.space
        expected = (len(self.images), len(space))
        if not isinstance(scores, np.ndarray) or scores.shape != expected or scores.dtype != np.float32:
            return f"found {type(scores).__name__} {getattr(scores, 'dtype', '')} {getattr(scores, 'shape', '')}, " + (
                f"expected float32 {expected} for the {len(space)} classes of {space.name!r}"
            )
        return None

    def finite(self) -> str | None:
        bad = int((~np.isfinite(self.scores)).any(axis=1).sum())
        return f"{bad} of {len(self.scores)} images have infinite or undefined scores" if bad else None

    def outputs(self) -> str | None:
        sums, probabilities = self.scores.sum(axis=1), looks_like_probabilities(self.scores)
        if self.classifier.outputs == "probabilities" and not probabilities:
            rows = f"rows sum to {sums.min():.4g} ... {sums.max():.4g}, least {self.scores.min():.4g}"
            return f"declared as probabilities, but {rows}"
        if self.classifier.outputs == "logits" and probabilities and self.scores.shape[1] > 1:
            return "declared as logits, but non-negative and every row sums to one: a softmax would be applied twice"
        return None

    def varies(self) -> str | None:
        same = len(self.scores) > 1 and (self.scores == self.scores[0]).all()
        return "all images get the same scores" if same else None

    def single(self) -> str | None:
        return self.differs(np.concatenate([self.classifier.scores(one[None].copy()) for one in self.images]))

    def many(self) -> str | None:
        repeats = self.classifier.batch_size // len(self.images) + 2
        return self.differs(self.classifier.scores(np.concatenate([self.images] * repeats))[-len(self.images) :])

    def empty(self) -> str | None:
        shape, expected = self.classifier.scores(self.images[:0]).shape, (0, len(self.classifier.space))
        return None if shape == expected else f"found {shape}, expected {expected}"

    def untouched(self) -> str | None:
        given = self.images.copy()
        self.classifier.scores(given)
        return None if np.array_equal(given, self.images) else "scores() changed the pixels it was given"

    def read_only(self) -> str | None:
        given = self.images.copy()
        given.flags.writeable = False
        return self.differs(self.classifier.scores(given))

    def threads(self) -> str | None:
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(self.classifier.scores, [self.images.copy() for _ in range(8)]))
        return next((fault for answer in answers if (fault := self.differs(answer))), None)

    def fingerprint(self) -> str | None:
        first, again = self.classifier.fingerprint, self.classifier.fingerprint
        if not isinstance(first, str) or not first:
            return f"found {first!r}, expected text"
        return None if first == again else f"{first} became {again}"

    def pickled(self) -> str | None:
        twin = pickle.loads(pickle.dumps(self.classifier))
        if twin.fingerprint != self.classifier.fingerprint:
            return f"the copy's fingerprint is {twin.fingerprint}, not {self.classifier.fingerprint}"
        return self.differs(twin.scores(self.images.copy()))

    def description(self) -> str | None:
        description = json.loads(json.dumps(self.classifier.describe()))
        missing = {"classifier", "fingerprint", "labels", "preprocessing"} - set(description)
        return f"describe() lacks {', '.join(sorted(missing))}" if missing else None


_CHECKS: dict[str, Callable[[_Case], str | None]] = {
    "scores are float32, one row per image and one column per class": _Case.shape,
    "scores are finite": _Case.finite,
    "scores are of the declared kind": _Case.outputs,
    "scores depend on the image": _Case.varies,
    "the same again": lambda case: case.differs(case.classifier.scores(case.images.copy()), exact=True),
    "neighbours in the batch do not matter": lambda case: case.differs(
        case.classifier.scores(case.images[::-1].copy())[::-1]
    ),
    "a batch of one works": _Case.single,
    "more than a batch works": _Case.many,
    "an empty batch gives no rows": _Case.empty,
    "the images are left as they are": _Case.untouched,
    "read-only images are accepted": _Case.read_only,
    "several threads may ask at once": _Case.threads,
    "the fingerprint is stable": _Case.fingerprint,
    "can be pickled": _Case.pickled,
    "describes itself in JSON": _Case.description,
}
