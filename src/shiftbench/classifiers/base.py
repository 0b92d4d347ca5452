"""The interface of all classifiers, which take a batch of uint8 images and return scores over a label space.

A classifier may use any framework inside; NumPy arrays go in and out.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex

import numpy as np

from shiftbench.arrays import Pixels
from shiftbench.classifiers.description import (
    DECODING_FACTS,
    GEOMETRY_FACTS,
    STATING_SOURCES,
    Fact,
    FactSource,
    fact_text,
    preprocessing_values,
)
from shiftbench.classifiers.preprocessing import Normalisation, Preprocessing
from shiftbench.datasets.overlap import TrainedOn
from shiftbench.errors import ClassifierError, MissingExtraError, argument
from shiftbench.io import html
from shiftbench.io.hashing import digest
from shiftbench.labels.space import LabelSpace, Scores

if TYPE_CHECKING:
    from shiftbench.classifiers.recorded import RecordedPredictions

#: What ``scores`` are: logits (softmax still to come), probabilities, or answers. A row of answers is 1 for the class
#: that the model named and 0 for the others, and 0 throughout where it named none; it says nothing about confidence.
Outputs = Literal["logits", "probabilities", "answers"]
#: How a run orders the images of a setting for a stateful model.
IMAGE_ORDER = "shuffled by seed"
#: In ``Classifier.trained_with``: training on ImageNet-21K or -22K, which have the classes of ImageNet-O.
IMAGENET_21K = "imagenet-21k"
#: How a model is run that mixes the images of a batch.
ONE_AT_A_TIME = "one image at a time"
#: Images per batch of a stateful model, where nothing states another number.
STATEFUL_BATCH = 64
#: A hint for the errors about inputs.
OTHER_INPUTS = "for inputs other than images, evaluate a Python function that calls the model"
# Words in the error messages of the allocators of torch, onnxruntime and C++. The messages are searched because
# onnxruntime has no exception class for a lack of memory.
_MEMORY_WORDS = ("out of memory", "failed to allocate", "bad allocation", "bad_alloc", "not enough memory")


class Classifier(ABC):
    """The contract that ``shiftbench check classifier`` tests.

    Preprocessing has two halves. Its geometry (resize, crop) turns any image into the classifier's uint8
    input and is done once by the runner for all classifiers that share it; shifts act on that input. Its
    normalisation (scale, mean, colour order) belongs to the classifier and happens inside ``scores``.

    ``scores`` may be called from several threads at once. An image's scores do not depend on its neighbours
    in the batch. The object can be pickled, so that worker processes get their own.
    """

    name: str
    space: LabelSpace
    preprocessing: Preprocessing
    outputs: Outputs = "logits"
    batch_size: int = 32  #: Preferred number of images per call; reduced when memory runs out.
    #: What computes the scores, for provenance: "onnxruntime cpu", "torch cuda bfloat16", "python", ...
    engine: str = "python"
    #: (spec, options) of a classifier that was loaded by a spec. It is pickled as these, and loaded again from them.
    origin: tuple[str, Any] | None = None
    #: The address that its file was fetched from, and the file's hash.
    downloaded_from: str = ""
    #: An object that holds the torch classifier if another engine computes the scores and no spec could load it again.
    twin: Any = None
    #: Who states each fact; "library" where nothing is noted. This is not part of ``describe``, since a result is the
    #: same result whether its preprocessing was assumed or given.
    sources: Mapping[str, FactSource] = {}
    #: Name of the output that is read, if the model has several outputs that could be meant.
    output: str | None = None
    #: The prompts of a zero-shot model: their set, its version and size.
    prompts: str = ""
    takes_pixels: bool = False  #: Whether it takes uint8 pixels and normalises them itself.
    #: Whether ``fingerprint`` covers everything that decides the scores. Otherwise (code may read a file or ask a
    #: server when it is called) a run also compares its scores on fixed images with those of its stored results.
    self_contained: bool = False
    #: The images that it was trained on, if they are known.
    trained_on: TrainedOn | None = None
    #: What test sets measure and its training had, too: names of corruptions, or ``imagenet-21k``.
    trained_with: tuple[str, ...] = ()
    #: A text that distinguishes models that have the same fingerprint but different scores on the fixed images; set by
    #: a run.
    behaviour: str = ""
    #: Whether its scores depend on the images before and beside them, as the user states. Then a run gives it the
    #: images of a setting in a seeded random order, in batches of ``batch_size``, after ``reset``.
    stateful: bool = False
    #: Whether it gets one image at a time, because its scores depend on the other images of a batch without being
    #: meant to; set by a loader or by a run.
    one_at_a_time: bool = False
    #: Whether an image that the model gets alone has the same scores each time; measured by loaders of files.
    repeatable: bool = True
    #: The name of its label space in the workspace of a run; set by a run. It does not decide which version it is.
    labels_name: str = ""
    #: Whether the order of its classes is part of its version; set by a run, except for results that are older than
    #: this attribute.
    states_classes: bool = False

    @property
    def facts(self) -> tuple[Fact, ...]:
        """What is known about its preprocessing, labels and outputs, and where each fact comes from."""
        values: dict[str, object] = {}
        if self.recorded is None:
            values = preprocessing_values(self.preprocessing)
            if self.takes_pixels:
                values = {name: values[name] for name in (*GEOMETRY_FACTS, "colour order", *DECODING_FACTS)}
        values |= {"labels": self.space.name, "outputs": self.outputs}
        if self.output is not None:
            values["output"] = self.output
        sources: dict[str, FactSource] = dict.fromkeys(values, "library")
        sources |= dict.fromkeys(DECODING_FACTS, "default")
        sources |= self.sources
        facts = [Fact(name, value, sources[name]) for name, value in values.items()]
        if self.prompts:
            facts.append(Fact("prompts", self.prompts, "given"))
        if self.stateful:
            state = f"reset before each setting; images {IMAGE_ORDER} in batches of {self.batch_size}"
            facts.append(Fact("state", state, "given"))
        if self.one_at_a_time:
            facts.append(
                Fact("batch", f"{ONE_AT_A_TIME}: the images of a batch change each other's scores", "measured")
            )
        return tuple(facts)

    @property
    def assumed(self) -> tuple[str, ...]:
        """Names of the facts that had to be assumed ("resize", "mean", ...); empty if all are known or given."""
        return tuple(fact.name for fact in self.facts if fact.source == "assumed")

    @property
    def stated(self) -> tuple[str, ...]:
        """Names of the facts that someone states, whatever the images: the caller, a sidecar, the file, its library."""
        return tuple(fact.name for fact in self.facts if fact.source in STATING_SOURCES)

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """A hash of the weights and of everything else that decides the scores; paths and dates do not count."""

    @abstractmethod
    def scores(self, images: Pixels) -> Scores:
        """uint8 (N, H, W, 3) RGB to float32 (N, classes)."""

    @property
    def images_per_call(self) -> int:
        """The largest number of images that ``scores`` is called with."""
        if self.one_at_a_time:
            return 1
        return self.batch_size

    def reset(self) -> None:
        """Forget everything since the model was loaded; called before each setting if it is ``stateful``.

        Most classifiers have no state and therefore do nothing.
        """
        return

    def gradient_model(self) -> Any:
        """The network for those who need its gradients: a torch module with ``device``, from float32 RGB pixels
        (N, 3, H, W) in [0, 1] to scores, with the normalisation inside.

        If another engine runs the classifier, this is the torch module that it was made from; ClassifierError is raised
        if there is none.
        """
        from shiftbench.classifiers.torch_ import torch_twin

        return torch_twin(self).gradient_model()

    def take_usage(self) -> Mapping[str, float]:
        """What a server has counted for its answers since this was last called: requests, tokens, cost, ..."""
        return {}

    @property
    def recorded(self) -> RecordedPredictions | None:
        """Its predictions, if they were made elsewhere: a run looks them up and never asks for ``scores``."""
        return None

    def describe(self) -> dict[str, Any]:
        """JSON-able provenance."""
        fingerprint = self.fingerprint
        if self.behaviour:
            fingerprint = digest(fingerprint, self.behaviour)
        description: dict[str, Any] = {
            "classifier": self.name,
            "fingerprint": fingerprint,
            "labels": self.labels_name or self.space.name,
            "outputs": self.outputs,
            "engine": self.engine,
            "preprocessing": self.preprocessing.describe(),
        }
        if self.prompts:
            description["prompts"] = self.prompts
        if self.states_classes:
            description["classes"] = self.space.fingerprint
        if self.stateful:
            description["stateful"] = {"order": IMAGE_ORDER, "batch_size": self.batch_size}
        if self.one_at_a_time:
            description["batch"] = ONE_AT_A_TIME
        return description

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[object, ...]:
        if self.origin is None:
            return super().__reduce_ex__(protocol)
        from shiftbench.classifiers.loading import reload

        return reload, (*self.origin, self.name, self.fingerprint, self.one_at_a_time)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}: {self._summary}>"

    @property
    def _summary(self) -> str:
        return f"{len(self.space)} classes of {self.space.name}, {self.engine}"

    def _repr_html_(self) -> str:
        rows = []
        for fact in self.facts:
            rows.append((html.text(fact.name), html.text(fact_text(fact.value)), html.small(fact.source)))
        warning = ""
        if self.assumed:
            names = ", ".join(self.assumed)
            warning = html.warning(f"assumed, not known: {names}; scores are wrong if that is not how it was trained")
        return html.block(html.title(self.name, self._summary), html.table(("", "", ""), rows, left=3), warning)


def out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out, so that a smaller batch could help."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, Exception) and any(word in str(error).lower() for word in _MEMORY_WORDS)


class BatchedClassifier(Classifier):
    """Runs ``forward`` on pieces of at most ``batch_size`` images, and halves this number when memory runs out.

    Engines choose other kernels for other batch sizes, and then sum in another order. ``rows`` is the least number of
    rows with which the bits of the scores do not depend on that; smaller pieces are filled up with further images.

    ``_running`` is a lock for engines that take one call at a time.
    """

    #: Whether the model has one output for two classes: the score of the second class.
    single_output = False

    def __init__(self) -> None:
        self._shrinking = threading.Lock()
        self._running = threading.Lock()

    @abstractmethod
    def forward(self, images: Pixels) -> Scores:
        """Scores of one piece; called from several threads at once."""

    def rows(self) -> int:
        return 1

    def scores(self, images: Pixels) -> Scores:
        if images.dtype != np.uint8 or images.ndim != 4 or images.shape[-1] != 3:
            raise ClassifierError(
                f"{self.name}: expected a uint8 batch (N, H, W, 3)",
                found=f"{images.dtype} {images.shape}",
                expected="uint8 (N, height, width, 3)",
            )
        tables: list[Scores] = []
        start = 0
        while start < len(images):
            size = self.images_per_call
            piece = images[start : start + size]
            try:
                table = np.ascontiguousarray(self.padded_forward(piece), dtype=np.float32)
            except Exception as error:
                # A stateful model is not run on smaller batches, since it adapts to its batches and its results state
                # their size.
                if size == 1 or self.stateful or not out_of_memory(error):
                    raise
                self._shrink(size // 2)
                continue
            if table.shape != (len(piece), len(self.space)):
                raise ClassifierError(
                    f"{self.name} gave scores of the wrong shape",
                    found=table.shape,
                    expected=f"{(len(piece), len(self.space))}: one row per image, one column for each class of "
                    f"{self.space.name!r}",
                    hint=f"check the label space: {argument('labels')}",
                )
            tables.append(table)
            start += size
        if not tables:
            return np.empty((0, len(self.space)), np.float32)
        if len(tables) == 1:
            return tables[0]
        return np.concatenate(tables)

    def padded_forward(self, images: Pixels) -> Scores:
        """Run ``forward`` on as many rows as the engine needs, and return the scores without the added rows.

        The added images are black. A model that mixes the images of a batch gets copies of its one image instead.
        """
        count = len(images)
        missing = min(self.rows(), self.batch_size) - count
        if missing > 0:
            added = np.zeros((missing, *images.shape[1:]), np.uint8)
            if self.one_at_a_time:
                added[:] = images[-1]
            images = np.concatenate([images, added])
        scores = self.forward(images)
        if len(scores) != len(images):
            return scores  # The caller reports the wrong shape.
        scores = scores[:count]
        if not self.single_output:
            return scores
        second = scores.reshape(count, 1)
        first = 1 - second if self.outputs == "probabilities" else np.zeros_like(second)
        return np.concatenate([first, second], axis=1)

    def _shrink(self, size: int) -> None:
        # Several threads may run out of memory at once; the smallest of their sizes stays.
        with self._shrinking:
            self.batch_size = max(1, min(self.batch_size, size))

    def __getstate__(self) -> dict[str, object]:
        """All attributes but the locks, which cannot be pickled."""
        return {key: value for key, value in self.__dict__.items() if key not in ("_shrinking", "_running")}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._shrinking = threading.Lock()
        self._running = threading.Lock()


def trial_scores(name: str, images: Pixels, forward: Callable[[Pixels], Scores]) -> Scores:
    """Scores of a network that was never run before, to learn the number and the kind of its outputs.

    Raises ClassifierError if the network fails or does not return one row per image.
    """
    try:
        scores = forward(images)
    except (ClassifierError, MissingExtraError):
        raise
    except Exception as error:
        example = argument("preprocessing", "size=48x40,layout=nhwc", flag="--preprocess")
        text = " ".join(str(error).split())
        if len(text) > 300:
            # Both ends of a long message are shown, because TorchScript names the cause last.
            text = f"{text[:150]} ... {text[-150:]}"
        raise ClassifierError(
            f"{name} cannot be run on images of {images.shape[1]} x {images.shape[2]}",
            found=f"{type(error).__name__}: {text}",
            hint=f"state the input it was trained with (height x width, or one number), such as {example}; "
            f"colour=grey for one channel; {argument('batch_size', 1)} if it takes one image at a time; {OTHER_INPUTS}",
        ) from error
    if scores.shape == (len(images),) and scores.dtype.kind == "f":
        return scores[:, None]
    if scores.ndim != 2 or len(scores) != len(images):
        hint = None
        if scores.ndim == 1:
            hint = "np.eye(classes)[predicted] turns class numbers into scores"
        raise ClassifierError(
            f"{name} does not return scores",
            found=f"{scores.dtype} {scores.shape}",
            expected=f"({len(images)}, classes): one row per image, one score per class",
            hint=hint,
        )
    return scores


def network_fingerprint(weights: str, normalisation: Normalisation, outputs: str) -> str:
    """A hash of the weights, the normalisation, which happens inside ``scores``, and the kind of outputs."""
    names = ("mean", "std", "scale", "colour_order", "layout")
    return digest(weights, {name: getattr(normalisation, name) for name in names}, outputs)
