"""A classifier: a batch of uint8 images in, scores over its label space out. Any framework; we see NumPy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from shiftbench.arrays import Pixels
from shiftbench.classifiers.description import GEOMETRY_FACTS, Fact, FactSource, preprocessing_values
from shiftbench.classifiers.preprocessing import Preprocessing
from shiftbench.io import html
from shiftbench.io.hashing import digest
from shiftbench.labels.space import LabelSpace, Scores

if TYPE_CHECKING:
    from shiftbench.classifiers.recorded import RecordedPredictions

Outputs = Literal["logits", "probabilities"]


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
    #: Whether ``scores`` are logits (softmax still to come) or probabilities.
    outputs: Outputs = "logits"
    #: What the runner best passes at once; it shrinks when memory runs out.
    batch_size: int = 32
    #: What computes the scores, for provenance: "onnxruntime cpu", "torch cuda bfloat16", "python", ...
    engine: str = "python"
    #: (spec, options) of a classifier that was loaded by a spec: pickled as these, it is loaded again.
    origin: tuple[str, Any] | None = None
    #: What holds the torch classifier behind another engine's, where no spec could load it again.
    twin: Any = None
    #: Who states each fact; "library" where nothing is noted. Not part of ``describe``: a result is the same result
    #: whether its preprocessing was assumed or given.
    sources: Mapping[str, FactSource] = {}
    #: It takes uint8 pixels and normalises for itself.
    takes_pixels: bool = False
    #: ``fingerprint`` covers all that decides the scores. Otherwise (code may read a file or ask a server when it is
    #: called) a run also compares its scores on fixed images with those that its stored results were made with.
    self_contained: bool = False
    #: Distinguishes models of the same fingerprint and other scores on these images; set by a run.
    behaviour: str = ""

    @property
    def facts(self) -> tuple[Fact, ...]:
        """What is known about its preprocessing, labels and outputs, and where each fact comes from."""
        values = preprocessing_values(self.preprocessing)
        if self.recorded is not None:
            values = {}
        elif self.takes_pixels:
            values = {name: values[name] for name in GEOMETRY_FACTS}
        values |= {"labels": self.space.name, "outputs": self.outputs}
        return tuple(Fact(name, value, self.sources.get(name, "library")) for name, value in values.items())

    @property
    def assumed(self) -> tuple[str, ...]:
        """Names of the facts that had to be assumed ("resize", "mean", ...); empty if all are known or given."""
        return tuple(fact.name for fact in self.facts if fact.source == "assumed")

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """A hash of the weights and of everything else that decides the scores; paths and dates do not count."""

    @abstractmethod
    def scores(self, images: Pixels) -> Scores:
        """uint8 (N, H, W, 3) RGB to float32 (N, classes)."""

    def gradient_model(self) -> Any:
        """The network for those who need its gradients: a torch module with ``device``, from float32 RGB pixels
        (N, 3, H, W) in [0, 1] to scores, with the normalisation inside.

        A classifier that another engine runs gives the torch module it was made from. One that has none is
        refused by a ClassifierError.
        """
        from shiftbench.classifiers.torch_ import torch_twin

        return torch_twin(self).gradient_model()

    @property
    def recorded(self) -> RecordedPredictions | None:
        """Its predictions, if they were made elsewhere: a run looks them up and never asks for ``scores``."""
        return None

    def describe(self) -> dict[str, Any]:
        """JSON-able provenance."""
        return {
            "classifier": self.name,
            "fingerprint": digest(self.fingerprint, self.behaviour) if self.behaviour else self.fingerprint,
            "labels": self.space.name,
            "outputs": self.outputs,
            "engine": self.engine,
            "preprocessing": self.preprocessing.describe(),
        }

    def __reduce_ex__(self, protocol: Any) -> Any:
        if self.origin is None:
            return super().__reduce_ex__(protocol)
        from shiftbench.classifiers.loading import reload

        return reload, (*self.origin, self.name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}: {self._about}>"

    @property
    def _about(self) -> str:
        return f"{len(self.space)} classes of {self.space.name}, {self.engine}"

    def _repr_html_(self) -> str:
        """What is known about the model; what was only assumed is marked."""
        rows = [(html.text(one.name), html.text(one.value), html.small(one.source)) for one in self.facts]
        assumed = f"assumed, not known: {', '.join(self.assumed)}; scores are wrong if that is not how it was trained"
        return html.block(
            html.title(self.name, self._about),
            html.table(("", "", ""), rows, left=3),
            html.warning(assumed) if self.assumed else "",
        )
