"""Threshold: images that enough annotators selected, at random among these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from shiftbench.testsets.errors import WorkshopError
from shiftbench.testsets.sampling.base import Choice, ClassSample, Request, Sample, Sampling, draw, samplings


@samplings.register("threshold")
@dataclass(frozen=True)
class Threshold(Sampling):
    """Per class a uniform sample of the candidates whose selection frequency is at least 0.7 (Threshold0.7 of 004).

    ``overrides`` has thresholds of its own for classes where too few candidates reach the common one.
    """

    name: ClassVar[str] = "threshold"

    threshold: float = 0.7
    overrides: Mapping[str, float] = field(default_factory=dict)
    min_annotations: int = 10

    def __post_init__(self) -> None:
        for value in (self.threshold, *self.overrides.values()):
            if not 0 <= value <= 1:
                raise WorkshopError("a threshold is a share of annotators", found=value, expected="0 to 1")

    def sample(self, request: Request) -> Sample:
        unknown = sorted(set(self.overrides) - set(request.classes))
        if unknown:
            raise WorkshopError("a threshold for a class that is not there", found=unknown[0])
        return Sample(tuple(self._class(request, key) for key in request.classes), request.seed)

    def _class(self, request: Request, key: str) -> ClassSample:
        least = self.overrides.get(key, self.threshold)
        kept = request.kept_of(key)[: request.per_class]
        taken = {choice.id for choice in kept}
        good = [
            image
            for image in request.candidates_of(key, max(1, self.min_annotations))
            if image.frequency >= least and image.id not in taken
        ]
        name = f"at least {least:g}"
        drawn = draw(good, request.per_class - len(kept), request.seed)
        choices = (*kept, *(Choice(image.id, key, name) for image in drawn))
        return ClassSample(key, choices, request.per_class, {name: request.per_class})
