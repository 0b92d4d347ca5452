"""TopImages: the images that most annotators selected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from shiftbench.testsets.sampling.base import Choice, ClassSample, Request, Sample, Sampling, samplings


@samplings.register("top-images")
@dataclass(frozen=True)
class TopImages(Sampling):
    """Per class the candidates of the highest selection frequency (004).

    Equal frequencies: more annotations first, then images of the revision before, then the id. Nothing is left to
    chance, and an image of the revision before gives way to a better one.
    """

    name: ClassVar[str] = "top-images"

    min_annotations: int = 10

    def sample(self, request: Request) -> Sample:
        return Sample(tuple(self._class(request, key) for key in request.classes), request.seed)

    def _class(self, request: Request, key: str) -> ClassSample:
        before = {choice.id for choice in request.kept_of(key)}
        best = sorted(
            request.candidates_of(key, max(1, self.min_annotations)),
            key=lambda image: (image.frequency, image.annotations, image.id in before, image.id),
            reverse=True,
        )
        choices = tuple(Choice(image.id, key, "top") for image in best[: request.per_class])
        return ClassSample(key, choices, request.per_class, {"top": request.per_class})
