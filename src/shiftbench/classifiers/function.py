"""Any Python function from a uint8 batch to scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from shiftbench.arrays import Pixels
from shiftbench.classifiers.base import Outputs
from shiftbench.classifiers.batching import BatchedClassifier, trial_scores
from shiftbench.classifiers.code_state import known_state, note_changes, source_of
from shiftbench.classifiers.options import Options, looks_like_probabilities
from shiftbench.classifiers.policy import KnownInput, settle
from shiftbench.classifiers.preprocessing import Preprocessing
from shiftbench.classifiers.samples import sample_images
from shiftbench.errors import argument, warn_user
from shiftbench.io.hashing import digest
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
        source: What stands for the function in the fingerprint; read from it by default.

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
    _called = False

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
        self.engine, self.takes_pixels = "python", True
        self.source = source_of(function) if source is None else source
        # Now, once: functions may keep state that changes when they are called.
        self.state = known_state(function) if source is None else {}

    @property
    def fingerprint(self) -> str:
        used = [sorted(self.state.items())] if self.state else []
        return digest("function", self.name, self.source, self.outputs, *used)

    def forward(self, images: Pixels) -> Scores:
        # A copy: the runner uses the pixels again, whatever the function does to its argument. One call at a
        # time: a stranger's function may keep state.
        """The function's scores, as they are."""
        with self._running:
            scores = self.function(images.copy())
            if not self._called:
                self._called = True
                note_changes(self.function, self.state)
        if hasattr(scores, "detach"):  # a torch tensor
            scores = scores.detach().cpu().numpy()
        table = np.asarray(scores, dtype=np.float32)
        if self.check_outputs:
            self.check_outputs = False
            self._warn_of_probabilities(table)
        return table

    def _warn_of_probabilities(self, scores: Scores) -> None:
        if self.outputs == "logits" and scores.ndim == 2 and looks_like_probabilities(scores):
            warn_user(
                f"{self.name} returns what looks like probabilities, but is read as logits; its confidences are wrong "
                f"unless you state {argument('preprocessing', 'outputs=probabilities', flag='--preprocess')}"
            )


def from_function(function: ScoreFunction, options: Options) -> FunctionClassifier:
    """A function may be slow or cost money, so it is run in advance only to count the outputs of unknown classes."""
    name, space = options.name or function_name(function), options.labels
    unknown = LabelSpace("outputs", ("?",))
    classifier = FunctionClassifier(function, name=name, space=unknown, batch_size=options.batch_size)

    def trial(preprocessing: Preprocessing) -> Scores:
        if space is not None:
            return np.empty((0, len(space)), np.float32)
        images = sample_images(min(4, classifier.batch_size), preprocessing.geometry.output or (224, 224))
        return trial_scores(name, images, classifier.forward)

    settled, scores = settle(name, options, KnownInput(assumed=(), pixels=True), trial)
    if settled.outputs is None and space is not None:
        classifier.check_outputs = True
        settled = replace(settled, outputs="logits", sources={"outputs": "library", **settled.sources})
    return settled.finish(classifier, scores)


def function_name(function: object) -> str:
    """
    >>> function_name(function_name), function_name(lambda images: images)
    ('function_name', 'lambda')
    """
    name = str(getattr(function, "__qualname__", type(function).__name__))
    return name.rpartition("<locals>.")[2].strip("<>")
