"""Strategies that sample by selection frequency: matched to the references, above a threshold, or the highest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from shiftbench.testsets.errors import WorkshopError
from shiftbench.testsets.sampling.base import (
    AnnotatedImage,
    Choice,
    ClassSample,
    Sample,
    Sampling,
    SamplingRequest,
    draw,
    largest_remainder,
    samplings,
)


@samplings.register("matched-frequency")
@dataclass(frozen=True)
class MatchedFrequency(Sampling):
    """The references' histogram over five bins, scaled to the number of images per class (004, C.1.2).

    Bins are [0, .2), [.2, .4), [.4, .6), [.6, .8), [.8, 1]. Targets are rounded by largest remainder, ties to the
    higher bin. A bin that runs out of candidates takes from the next higher one that has some left, which makes the
    set easier, never harder; these fallbacks are counted.
    """

    name: ClassVar[str] = "matched-frequency"

    bins: int = 5
    #: Required annotations per image, and annotated references per class.
    min_annotations: int = 10
    min_references: int = 20
    upward: bool = True

    def sample(self, request: SamplingRequest) -> Sample:
        histograms = self._histograms(request)
        classes = (self._class(request, key, histograms[key]) for key in request.classes)
        return Sample(tuple(classes), request.seed)

    def bin_of(self, image: AnnotatedImage) -> int:
        """Computed in integers: 6 of 10 is exactly on the edge of a bin.

        >>> [MatchedFrequency().bin_of(AnnotatedImage("", "", k, 10)) for k in (0, 1, 2, 6, 10)]
        [0, 0, 1, 3, 4]
        """
        return min(self.bins - 1, self.bins * image.selected // image.annotations)

    def bin_name(self, place: int) -> str:
        """
        >>> MatchedFrequency().bin_name(0), MatchedFrequency().bin_name(4)
        ('[0, 0.2)', '[0.8, 1]')
        """
        end = "]" if place == self.bins - 1 else ")"
        return f"[{place / self.bins:g}, {(place + 1) / self.bins:g}{end}"

    def _histograms(self, request: SamplingRequest) -> dict[str, list[int]]:
        counts: dict[str, Counter[int]] = {key: Counter() for key in request.classes}
        for image in request.references:
            if image.annotations >= self.min_annotations and image.class_key in counts:
                counts[image.class_key][self.bin_of(image)] += 1
        few = [key for key in request.classes if counts[key].total() < max(1, self.min_references)]
        if few:
            raise WorkshopError(
                f"too few annotated reference images in {len(few)} classes",
                found=", ".join(f"{key}: {counts[key].total()}" for key in few[:5]),
                expected=f"at least {self.min_references} with {self.min_annotations} annotations each",
                hint="annotate more references, or lower min_references",
            )
        return {key: [counts[key][place] for place in range(self.bins)] for key in request.classes}

    def _class(self, request: SamplingRequest, key: str, histogram: Sequence[int]) -> ClassSample:
        targets = largest_remainder(histogram, request.per_class, ties_to_last=True)
        names = [self.bin_name(place) for place in range(self.bins)]
        kept = request.kept_of(key)[: request.per_class]
        needs = _needs(targets, kept, names, request.per_class)
        taken = {choice.id for choice in kept}
        left: list[list[AnnotatedImage]] = [[] for _ in names]
        for image in request.candidates_of(key, self.min_annotations):
            if image.id not in taken:
                left[self.bin_of(image)].append(image)
        choices = list(kept)
        # First every bin from its own images; what is left over can replace images of lower bins.
        missing = [0] * self.bins
        for place, need in enumerate(needs):
            drawn = draw(left[place], need, request.seed)
            missing[place] = need - len(drawn)
            choices += [Choice(image.id, key, names[place]) for image in drawn]
            left[place] = [image for image in left[place] if image not in drawn]
        if self.upward:
            choices += self._stand_ins(request, key, missing, left, names)
        return ClassSample(key, tuple(choices), request.per_class, dict(zip(names, targets, strict=True)))

    def _stand_ins(
        self,
        request: SamplingRequest,
        key: str,
        missing: Sequence[int],
        left: list[list[AnnotatedImage]],
        names: Sequence[str],
    ) -> list[Choice]:
        choices = []
        for place, count in enumerate(missing):
            for _ in range(count):
                higher = next((b for b in range(place + 1, self.bins) if left[b]), None)
                if higher is None:
                    break
                image = draw(left[higher], 1, request.seed)[0]
                left[higher].remove(image)
                choices.append(Choice(image.id, key, names[place], fallback=True))
        return choices


def _needs(targets: Sequence[int], kept: Sequence[Choice], names: Sequence[str], per_class: int) -> list[int]:
    """Images still needed in each bin, besides those that are kept.

    If new answers have changed the targets, a bin may already hold more than its target: then the lowest bins get
    fewer, so that the size of the class stays the same.
    """
    have = Counter(choice.drawn_for for choice in kept)
    needs = [max(0, target - have[name]) for target, name in zip(targets, names, strict=True)]
    surplus = sum(needs) - (per_class - len(kept))
    for place in range(len(needs)):
        cut = min(needs[place], max(0, surplus))
        needs[place] -= cut
        surplus -= cut
    return needs


@samplings.register("threshold")
@dataclass(frozen=True)
class Threshold(Sampling):
    """A uniform sample per class of the candidates with a selection frequency of at least 0.7 (Threshold0.7 of 004).

    ``overrides`` sets other thresholds for classes in which too few candidates reach the common one.
    """

    name: ClassVar[str] = "threshold"

    threshold: float = 0.7
    overrides: Mapping[str, float] = field(default_factory=dict)
    min_annotations: int = 10

    def __post_init__(self) -> None:
        for value in (self.threshold, *self.overrides.values()):
            if not 0 <= value <= 1:
                raise WorkshopError("invalid threshold", found=value, expected="0 to 1")

    def sample(self, request: SamplingRequest) -> Sample:
        unknown = sorted(set(self.overrides) - set(request.classes))
        if unknown:
            raise WorkshopError("threshold for an unknown class", found=unknown[0])
        return Sample(tuple(self._class(request, key) for key in request.classes), request.seed)

    def _class(self, request: SamplingRequest, key: str) -> ClassSample:
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


@samplings.register("top-images")
@dataclass(frozen=True)
class TopImages(Sampling):
    """The candidates with the highest selection frequencies per class (004).

    Ties are broken by the number of annotations, then in favour of the previous revision, then by id. The strategy is
    deterministic, and an image of the previous revision is replaced by a better one.
    """

    name: ClassVar[str] = "top-images"

    min_annotations: int = 10

    def sample(self, request: SamplingRequest) -> Sample:
        return Sample(tuple(self._class(request, key) for key in request.classes), request.seed)

    def _class(self, request: SamplingRequest, key: str) -> ClassSample:
        before = {choice.id for choice in request.kept_of(key)}
        best = sorted(
            request.candidates_of(key, max(1, self.min_annotations)),
            key=lambda image: (image.frequency, image.annotations, image.id in before, image.id),
            reverse=True,
        )
        choices = tuple(Choice(image.id, key, "top") for image in best[: request.per_class])
        return ClassSample(key, choices, request.per_class, {"top": request.per_class})
