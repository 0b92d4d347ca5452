"""Sampling by keyword: the distribution of sub-classes matches the references, as in CIFAR-10.1."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
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


@samplings.register("keywords")
@dataclass(frozen=True)
class Keywords(Sampling):
    """The most frequent keywords of each class, each with its share of the reference images (004, B.1 and B.2.9).

    Unbalanced, as in version 4 of CIFAR-10.1: a keyword gets its share of the whole set (number of classes times images
    per class), rounded up; classes with many infrequent keywords end up smaller. ``balanced``, as in version 6: a
    keyword gets its share among the top keywords of its class, rounded down, then one more for the largest fractions
    until the class is full; missing images are taken from the keywords with the next largest fractions.
    """

    name: ClassVar[str] = "keywords"

    #: Keywords per class: in CIFAR-10.1 25, or 50 for the balanced version.
    top: int = 25
    balanced: bool = False
    #: Required annotations (none by default) and selection frequency of candidates.
    min_annotations: int = 0
    min_frequency: float = 0.0

    def sample(self, request: SamplingRequest) -> Sample:
        counts = self._counts(request)
        whole = sum(counter.total() for counter in counts.values())
        classes = []
        for key in request.classes:
            top = dict(sorted(counts[key].items(), key=lambda item: (-item[1], item[0]))[: self.top])
            if self.balanced:
                shares = largest_remainder(list(top.values()), request.per_class)
            else:
                size = request.per_class * len(request.classes)
                shares = [-(-size * count // whole) for count in top.values()]
            classes.append(self._class(request, key, top, dict(zip(top, shares, strict=True))))
        return Sample(tuple(classes), request.seed)

    def _counts(self, request: SamplingRequest) -> dict[str, Counter[str]]:
        counts: dict[str, Counter[str]] = {key: Counter() for key in request.classes}
        for image in request.references:
            if image.keyword and image.class_key in counts:
                counts[image.class_key][image.keyword] += 1
        without = [key for key in request.classes if not counts[key]]
        if without:
            raise WorkshopError(
                f"references without keywords in {len(without)} classes",
                found=", ".join(without[:5]),
                hint="import references from a manifest with a 'keyword' column",
            )
        return counts

    def _class(
        self, request: SamplingRequest, key: str, top: Mapping[str, int], wished: Mapping[str, int]
    ) -> ClassSample:
        target = sum(wished.values())
        choices = [choice for choice in request.kept_of(key) if choice.drawn_for in wished][:target]
        have = Counter(choice.drawn_for for choice in choices)
        taken = {choice.id for choice in choices}
        left: dict[str, list[AnnotatedImage]] = {word: [] for word in top}
        for image in request.candidates_of(key, self.min_annotations):
            if image.id not in taken and image.keyword in left and image.frequency >= self.min_frequency:
                left[image.keyword].append(image)
        for word, count in wished.items():
            drawn = draw(left[word], min(count - have[word], target - len(choices)), request.seed)
            choices += [Choice(image.id, key, word) for image in drawn]
            left[word] = [image for image in left[word] if image not in drawn]
        if self.balanced:
            choices += _stand_ins(request, key, top, left, target - len(choices))
        return ClassSample(key, tuple(choices), target, wished)


def _stand_ins(
    request: SamplingRequest, key: str, top: Mapping[str, int], left: dict[str, list[AnnotatedImage]], count: int
) -> list[Choice]:
    """One image per keyword in turn, the largest fractions first."""
    whole = sum(top.values())
    order = sorted(top, key=lambda word: (-(request.per_class * top[word] % whole), -top[word], word))
    choices: list[Choice] = []
    while len(choices) < count and any(left.values()):
        for word in order:
            if left[word] and len(choices) < count:
                image = draw(left[word], 1, request.seed)[0]
                left[word].remove(image)
                choices.append(Choice(image.id, key, word, fallback=True))
    return choices
