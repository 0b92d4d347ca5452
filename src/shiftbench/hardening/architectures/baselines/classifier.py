"""A baseline as a classifier: features that were fitted once, and a linear layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import cached_property
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import Pixels
from shiftbench.classifiers.batching import BatchedClassifier
from shiftbench.classifiers.hashing import digest
from shiftbench.hardening.architectures.baselines.examples import Examples, preprocessing_for
from shiftbench.hardening.architectures.baselines.ridge import Floats, Linear, StreamingRidge
from shiftbench.hardening.errors import ArchitectureError
from shiftbench.io.schema import decode
from shiftbench.jobs.progress import progress_bar
from shiftbench.labels.space import LabelSpace, Scores

T = TypeVar("T")
#: Images whose features are made at once.
BATCH = 32


class FittingOptions(Protocol):
    """What the options of all kinds have in common; they are dataclasses."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def size(self) -> int: ...

    @property
    def ridge(self) -> float: ...

    @property
    def flips(self) -> bool: ...


class Features(Protocol):
    """uint8 pictures (N, size, size, 3) to float32 features (N, count)."""

    #: The name in files, and the classifier's unless another is given.
    kind: ClassVar[str]

    @property
    def options(self) -> FittingOptions: ...

    @property
    def count(self) -> int: ...

    @property
    def arrays(self) -> Mapping[str, Floats]: ...

    def __call__(self, images: Pixels) -> Floats: ...


class BaselineClassifier(BatchedClassifier):
    """Its scores are least-squares estimates of 0 and 1, good for ranking; their softmax is no confidence."""

    def __init__(self, features: Features, head: Linear, *, space: LabelSpace, name: str | None = None) -> None:
        super().__init__()
        self.features, self.head, self.space = features, head, space
        self.name = name or features.kind
        self.preprocessing = preprocessing_for(features.options.size)
        self.batch_size, self.engine = BATCH, "numpy"

    @cached_property
    def fingerprint(self) -> str:
        arrays = {**self.features.arrays, "weights": self.head.weights, "bias": self.head.bias}
        contents = (part for name in sorted(arrays) for part in (name, np.ascontiguousarray(arrays[name]).tobytes()))
        return digest(self.features.kind, asdict(self.features.options), *contents)

    def rows(self) -> int:
        """Matrix products round differently for other shapes, so all batches have one."""
        return self.batch_size

    def forward(self, images: Pixels) -> Scores:
        if images.shape[1:3] != self.preprocessing.geometry.output:
            raise ArchitectureError(
                f"{self.name} was fitted on pictures of another size",
                found=images.shape[1:3],
                expected=self.preprocessing.geometry.output,
            )
        return self.head(self.features(images))


def fit_classifier(features: Features, examples: Examples, *, name: str | None, show: bool) -> BaselineClassifier:
    """Least squares over all examples and, with ``flips``, their mirror images."""
    solver = StreamingRidge(features.count, len(examples.dataset.space))
    with progress_bar(f"fitting {features.kind}", len(examples), show=show) as advance:
        for images, labels in examples.batches(BATCH):
            for pictures in (images, images[:, :, ::-1]) if features.options.flips else (images,):
                solver.add(features(pictures), labels)
            advance(len(images))
    head = solver.solve(features.options.ridge)
    return BaselineClassifier(features, head, space=examples.dataset.space, name=name)


def checked_options(kind: type[T], options: Mapping[str, Any], what: str) -> T:
    """Options from a recipe or file. Numbers stay as they are written: they enter the fingerprint."""
    decode(options, kind, what, ArchitectureError)
    return kind(**options)


def check_arrays(kind: str, arrays: Mapping[str, NDArray[Any]], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Arrays of a file may be anything: these are there, float32, finite, and of the shapes the options ask for."""
    for name, shape in shapes.items():
        array = arrays.get(name)
        if array is None or array.shape != shape or array.dtype != np.float32 or not np.isfinite(array).all():
            found = "none" if array is None else f"{array.dtype} {array.shape}"
            raise ArchitectureError(
                f"the array {name!r} does not fit {kind}", found=found, expected=f"finite float32 {shape}"
            )
