"""MatchedFrequency: the selection frequencies of each class are distributed as those of its reference images."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from shiftbench.testsets.errors import WorkshopError
from shiftbench.testsets.sampling.base import (
    Annotated,
    Choice,
    ClassSample,
    Request,
    Sample,
    Sampling,
    draw,
    largest_remainder,
    samplings,
)


@samplings.register("matched-frequency")
@dataclass(frozen=True)
class MatchedFrequency(Sampling):
    """Per class: the references' histogram over five bins, scaled to the class's number of images (004, C.1.2).

    Bins are [0, .2), [.2, .4), [.4, .6), [.6, .8), [.8, 1]. Targets are rounded by largest remainder, ties to the
    higher bin. A bin that runs out of candidates takes from the next higher one that has some left, which makes
    the set easier, never harder; how often is counted.
    """

    name: ClassVar[str] = "matched-frequency"

    bins: int = 5
    #: An image counts with at least so many annotations, a class's histogram with at least so many references.
    min_annotations: int = 10
    min_references: int = 20
    upward: bool = True

    def sample(self, request: Request) -> Sample:
        histograms = self._histograms(request)
        classes = (self._class(request, key, histograms[key]) for key in request.classes)
        return Sample(tuple(classes), request.seed)

    def bin_of(self, image: Annotated) -> int:
        """In whole numbers: 6 of 10 is at the edge of a bin, not beside it.

        >>> [MatchedFrequency().bin_of(Annotated("", "", k, 10)) for k in (0, 1, 2, 6, 10)]
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

    def _histograms(self, request: Request) -> dict[str, list[int]]:
        counts: dict[str, Counter[int]] = {key: Counter() for key in request.classes}
        for image in request.references:
            if image.annotations >= self.min_annotations and image.class_key in counts:
                counts[image.class_key][self.bin_of(image)] += 1
        few = [key for key in request.classes if counts[key].total() < max(1, self.min_references)]
        if few:
            raise WorkshopError(
                f"{len(few)} classes have too few annotated reference images to match",
                found=", ".join(f"{key}: {counts[key].total()}" for key in few[:5]),
                expected=f"at least {self.min_references} with {self.min_annotations} annotations each",
                hint="annotate more references, or lower min_references",
            )
        return {key: [counts[key][place] for place in range(self.bins)] for key in request.classes}

    def _class(self, request: Request, key: str, histogram: Sequence[int]) -> ClassSample:
        targets = largest_remainder(histogram, request.per_class, ties_to_last=True)
        names = [self.bin_name(place) for place in range(self.bins)]
        kept = request.kept_of(key)[: request.per_class]
        needs = _needs(targets, kept, names, request.per_class)
        taken = {choice.id for choice in kept}
        left: list[list[Annotated]] = [[] for _ in names]
        for image in request.candidates_of(key, self.min_annotations):
            if image.id not in taken:
                left[self.bin_of(image)].append(image)
        choices = list(kept)
        # First every bin from its own images; what then is left over may stand in for lower bins.
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
        request: Request,
        key: str,
        missing: Sequence[int],
        left: list[list[Annotated]],
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
    """Images still wanted in each bin, beside those that stay.

    Where more answers have moved the targets since, a bin may hold more than its target: then the lowest bins
    get less, so that the class keeps its number.
    """
    have = Counter(choice.drawn_for for choice in kept)
    needs = [max(0, target - have[name]) for target, name in zip(targets, names, strict=True)]
    surplus = sum(needs) - (per_class - len(kept))
    for place in range(len(needs)):
        cut = min(needs[place], max(0, surplus))
        needs[place] -= cut
        surplus -= cut
    return needs
