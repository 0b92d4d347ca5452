"""Any Python function from a uint8 batch to scores."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from shiftbench.arrays import Pixels
from shiftbench.classifiers.base import Outputs
from shiftbench.classifiers.batching import BatchedClassifier, trial_scores
from shiftbench.classifiers.facts import assumed_facts
from shiftbench.classifiers.options import Options, space_for
from shiftbench.classifiers.preprocessing import Preprocessing
from shiftbench.classifiers.samples import sample_images
from shiftbench.errors import ClassifierError, argument
from shiftbench.io.hashing import digest
from shiftbench.labels.space import LabelSpace, Scores

ScoreFunction = Callable[[Pixels], object]


class FunctionClassifier(BatchedClassifier):
    """A function that gets RGB uint8 (N, H, W, 3) after the geometry and does everything else itself.

    The fingerprint is the name and a hash of the function's source text. Data that the function closes over
    is not seen: give another ``name`` when it changes.

    >>> pets = LabelSpace("pets", ("cat", "dog"))
    >>> def brightness(images):
    ...     light = images.mean(axis=(1, 2, 3)) / 255
    ...     return np.stack([1 - light, light], axis=1)
    >>> grey = FunctionClassifier(brightness, name="brightness", space=pets, outputs="probabilities")
    >>> grey.scores(np.full((1, 8, 8, 3), 255, np.uint8))
    array([[0., 1.]], dtype=float32)
    """

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
        self.batch_size = batch_size or 32
        self.engine = "python"
        self.source = source_of(function) if source is None else source

    @property
    def fingerprint(self) -> str:
        return digest("function", self.name, self.source, self.outputs)

    def forward(self, images: Pixels) -> Scores:
        # A copy: the runner uses the pixels again, whatever the function does to its argument. One call at a
        # time: a stranger's function may keep state.
        with self._running:
            scores = self.function(images.copy())
        if hasattr(scores, "detach"):  # a torch tensor
            scores = scores.detach().cpu().numpy()
        return np.asarray(scores, dtype=np.float32)


def from_function(function: ScoreFunction, options: Options) -> FunctionClassifier:
    name = options.name or str(getattr(function, "__qualname__", type(function).__name__))
    space = options.labels or options.default_labels
    if space is None:
        raise ClassifierError(f"unknown label space of {name}", hint=f"pass {argument('labels', 'imagenet-1k')}")
    classifier = FunctionClassifier(
        function,
        name=name,
        space=space,
        preprocessing=options.preprocessing,
        outputs=options.outputs or "logits",
        batch_size=options.batch_size,
    )
    if options.labels is None:
        side = classifier.preprocessing.geometry.output or (224, 224)
        classes = trial_scores(name, sample_images(2, side), classifier.forward).shape[1]
        classifier.space = space_for(name, classes, None, space)
    if options.preprocessing is None:
        # The function normalises for itself.
        classifier.facts = assumed_facts(classifier.preprocessing, "resize", "crop")
    return classifier


def source_of(function: Any) -> str:
    """The text of a function, or of the class of a callable object; "" where there is none to read."""
    for thing in (function, type(function)):
        try:
            return inspect.getsource(thing)
        except (OSError, TypeError):
            continue
    return ""
