"""Sampling strategies: which candidates make the test set, given what annotators said. All draws are reproducible."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import ClassVar

from shiftbench.extend.registration import Registry
from shiftbench.testsets.errors import WorkshopError

#: Classes that an error names.
_CLASSES_NAMED = 5


@dataclass(frozen=True)
class AnnotatedImage:
    """An image with its counts of answers."""

    #: The digest of the image.
    id: str
    class_key: str
    #: How many annotators selected it, and how many saw it.
    selected: int
    annotations: int
    keyword: str | None = None

    @property
    def frequency(self) -> float:
        """The selection frequency; 0 without answers."""
        return self.selected / self.annotations if self.annotations else 0.0


@dataclass(frozen=True)
class Choice:
    """A sampled image: the bin or keyword it was drawn for, and whether it is a fallback for one that ran out."""

    #: The digest of the image.
    id: str
    class_key: str
    #: The name of the bin or keyword.
    drawn_for: str = ""
    fallback: bool = False


@dataclass(frozen=True)
class SamplingRequest:
    """What a strategy samples from, and how many images it should sample."""

    candidates: Sequence[AnnotatedImage]
    references: Sequence[AnnotatedImage]
    #: Class keys in the order of the project.
    classes: Sequence[str]
    #: Images to sample per class.
    per_class: int
    seed: int = 0
    #: Images of the previous revision. Those that still fit, by their present counts, are drawn before others.
    kept: Sequence[Choice] = ()
    #: The only classes to sample, for strategies that sample each class by itself; all classes if empty.
    only: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.per_class < 1:
            raise WorkshopError("invalid number of images per class", found=self.per_class, expected="at least 1")

    @property
    def sampled_classes(self) -> Sequence[str]:
        return self.only or self.classes

    @cached_property
    def _by_class(self) -> dict[str, list[AnnotatedImage]]:
        by_class: dict[str, list[AnnotatedImage]] = {key: [] for key in self.sampled_classes}
        for image in sorted(self.candidates, key=lambda image: image.id):
            if image.class_key in by_class:
                by_class[image.class_key].append(image)
        return by_class

    def candidates_of(self, key: str, least: int) -> list[AnnotatedImage]:
        """The candidates of a class with at least ``least`` annotations, by id."""
        return [image for image in self._by_class[key] if image.annotations >= least]

    @cached_property
    def _kept_for(self) -> dict[tuple[str, str], str]:
        """The bin or keyword of each kept image, by class and id."""
        return {(choice.class_key, choice.id): choice.drawn_for for choice in self.kept}

    def draw(self, candidates: Iterable[AnnotatedImage], count: int, drawn_for: str) -> list[AnnotatedImage]:
        """``count`` candidates for a bin or keyword, or all if there are fewer.

        Images that were drawn for it before come first, then the other kept images, then new ones at random.
        """
        if count <= 0:
            return []

        def rank(image: AnnotatedImage) -> tuple[int, bytes]:
            kept_for = self._kept_for.get((image.class_key, image.id))
            if kept_for is None:
                turn = 2
            elif kept_for == drawn_for:
                turn = 0
            else:
                turn = 1
            return turn, draw_rank(self.seed, image.class_key, image.id)

        return sorted(candidates, key=rank)[:count]


@dataclass(frozen=True)
class ClassSample:
    """The sample of one class; ``wished`` is the target per bin or keyword."""

    class_key: str
    choices: tuple[Choice, ...]
    #: How many images should have been sampled.
    target: int
    wished: Mapping[str, int] = field(default_factory=dict)

    @property
    def short(self) -> int:
        return max(0, self.target - len(self.choices))

    @property
    def fallbacks(self) -> int:
        return sum(choice.fallback for choice in self.choices)


@dataclass(frozen=True)
class Sample:
    """The sampled images of all classes, in random order."""

    classes: tuple[ClassSample, ...]
    seed: int

    @property
    def choices(self) -> list[Choice]:
        choices: list[Choice] = []
        for class_sample in self.classes:
            choices += class_sample.choices
        return sorted(choices, key=lambda choice: draw_rank(self.seed, "order", choice.class_key, choice.id))

    @property
    def short(self) -> dict[str, int]:
        """How many images are missing, by class; only classes that miss some."""
        return {class_sample.class_key: class_sample.short for class_sample in self.classes if class_sample.short}

    @property
    def fallbacks(self) -> int:
        return sum(class_sample.fallbacks for class_sample in self.classes)

    def as_data(self) -> dict[str, object]:
        """The counts that are stored with a revision."""
        classes = {}
        for class_sample in self.classes:
            classes[class_sample.class_key] = {
                "target": class_sample.target,
                "chosen": len(class_sample.choices),
                "fallbacks": class_sample.fallbacks,
                "short": class_sample.short,
                "wished": dict(class_sample.wished),
            }
        return {"images": len(self.choices), "fallbacks": self.fallbacks, "short": self.short, "classes": classes}


class Sampling(ABC):
    """A strategy: a frozen dataclass whose fields are its options."""

    name: ClassVar[str]
    #: Whether the sample of a class depends on the images of that class only.
    by_class: ClassVar[bool] = True

    @abstractmethod
    def sample(self, request: SamplingRequest) -> Sample:
        """The sample. Images of the previous revision that fit by their present counts are drawn before others."""

    @abstractmethod
    def misfit(self, image: AnnotatedImage, choice: Choice) -> str:
        """Why the present counts of an image no longer fit what it was drawn for; "" if they do."""

    def options(self) -> dict[str, object]:
        """The options as they are stored with a revision."""
        return asdict(self)  # type: ignore[call-overload, no-any-return]


samplings: Registry[type[Sampling]] = Registry("sampling strategy")


def make_sampling(name: str, **options: object) -> Sampling:
    """A strategy by name, with options."""
    names = option_names(name)
    unknown = sorted(set(options) - names)
    if unknown:
        raise WorkshopError(
            f"unknown option {unknown[0]!r} of the sampling strategy {name!r}",
            expected=", ".join(sorted(names)) or "none",
        )
    return samplings.get(name)(**options)


def option_names(name: str) -> set[str]:
    return {entry.name for entry in fields(samplings.get(name))}  # type: ignore[arg-type]


def draw_rank(seed: int, *parts: str) -> bytes:
    """An image's rank in a draw. It depends only on the seed and the image, so the rest of the pool and the number of
    drawn images do not matter: the next image drawn is always the next in rank."""
    text = "\0".join([str(seed), *parts])
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=16).digest()


def listed_classes(descriptions: Sequence[str]) -> str:
    """The descriptions of the first classes, and how many there are, for an error."""
    first = ", ".join(descriptions[:_CLASSES_NAMED])
    more = len(descriptions) - _CLASSES_NAMED
    return f"{first} and {more:,} more classes" if more > 0 else first


def _too_few_annotations(image: AnnotatedImage, least: int) -> str:
    """The reason why an image with fewer than ``least`` annotations cannot be sampled; "" if it has enough."""
    if image.annotations >= least:
        return ""
    return f"{image.annotations} annotations, fewer than {least}"


def largest_remainder(weights: Sequence[int], total: int, *, ties_to_last: bool = False) -> list[int]:
    """Split ``total`` in proportion to integer weights: round down, then add one to the largest fractions.

    Exact, without floating point. Ties go to the first, or with ``ties_to_last`` to the last.

    >>> largest_remainder([1, 1, 2], 10), largest_remainder([1, 1, 2], 10, ties_to_last=True)
    ([3, 2, 5], [2, 3, 5])
    """
    weight_sum = sum(weights)
    if weight_sum <= 0 or min(weights) < 0:
        raise WorkshopError("invalid weights", found=list(weights), expected="non-negative, not all 0")
    shares = [total * weight // weight_sum for weight in weights]
    remainders = [total * weight % weight_sum for weight in weights]
    order = sorted(range(len(weights)), key=lambda i: (-remainders[i], -i if ties_to_last else i))
    for i in order[: total - sum(shares)]:
        shares[i] += 1
    return shares


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
    #: Whether a bin that runs out takes images from higher bins; otherwise the class gets too few images.
    upward: bool = True

    def sample(self, request: SamplingRequest) -> Sample:
        histograms: dict[str, Counter[int]] = {key: Counter() for key in request.sampled_classes}
        for image in request.references:
            if image.annotations >= self.min_annotations and image.class_key in histograms:
                histograms[image.class_key][self.bin_of(image)] += 1
        counts = {key: histogram.total() for key, histogram in histograms.items()}
        small_classes = [f"{key}: {count}" for key, count in counts.items() if count < max(1, self.min_references)]
        if small_classes:
            raise WorkshopError(
                "too few annotated reference images",
                found=listed_classes(small_classes),
                expected=f"at least {self.min_references} with {self.min_annotations} annotations each",
                hint="annotate more references, or lower min_references",
            )
        classes = tuple(self._class(request, key, histogram) for key, histogram in histograms.items())
        return Sample(classes, request.seed)

    def bin_of(self, image: AnnotatedImage) -> int:
        """Computed in integers: 6 of 10 is exactly on the edge of a bin."""
        return min(self.bins - 1, self.bins * image.selected // image.annotations)

    def bin_name(self, place: int) -> str:
        end = "]" if place == self.bins - 1 else ")"
        return f"[{place / self.bins:g}, {(place + 1) / self.bins:g}{end}"

    def misfit(self, image: AnnotatedImage, choice: Choice) -> str:
        too_few = _too_few_annotations(image, max(1, self.min_annotations))
        if too_few:
            return too_few
        present = self.bin_name(self.bin_of(image))
        if present == choice.drawn_for or choice.fallback:
            return ""
        return f"drawn for {choice.drawn_for}, now {image.selected} of {image.annotations}"

    def _class(self, request: SamplingRequest, key: str, histogram: Mapping[int, int]) -> ClassSample:
        """The sample of one class: every bin from its own images, then fallbacks."""
        bins = range(self.bins)
        names = [self.bin_name(bin_index) for bin_index in bins]
        targets = largest_remainder([histogram[bin_index] for bin_index in bins], request.per_class, ties_to_last=True)
        available: list[list[AnnotatedImage]] = [[] for _ in bins]
        for image in request.candidates_of(key, max(1, self.min_annotations)):
            available[self.bin_of(image)].append(image)
        needs = list(targets)
        choices: list[Choice] = []
        # Every bin is filled before any fallback: only images that their own bin leaves over replace others.
        for bin_index in bins:
            drawn = request.draw(available[bin_index], needs[bin_index], names[bin_index])
            needs[bin_index] -= len(drawn)
            choices += [Choice(image.id, key, names[bin_index]) for image in drawn]
            available[bin_index] = [image for image in available[bin_index] if image not in drawn]
        if self.upward:
            for bin_index in bins:
                higher_bins = available[bin_index + 1 :]
                fallbacks = _draw_fallbacks(request, higher_bins, needs[bin_index], names[bin_index])
                choices += [Choice(image.id, key, names[bin_index], fallback=True) for image in fallbacks]
        return ClassSample(key, tuple(choices), request.per_class, dict(zip(names, targets, strict=True)))


def _draw_fallbacks(
    request: SamplingRequest, higher_bins: Sequence[list[AnnotatedImage]], count: int, drawn_for: str
) -> list[AnnotatedImage]:
    """Draw images from the lowest of these bins that has some left, and remove them from it."""
    fallbacks: list[AnnotatedImage] = []
    for images in higher_bins:
        drawn = request.draw(images, count - len(fallbacks), drawn_for)
        for image in drawn:
            images.remove(image)
        fallbacks += drawn
    return fallbacks


@samplings.register("threshold")
@dataclass(frozen=True)
class Threshold(Sampling):
    """A uniform sample per class of the candidates with a selection frequency of at least 0.7 (Threshold0.7 of 004).

    ``overrides`` sets other thresholds for classes in which too few candidates reach the common one.
    """

    name: ClassVar[str] = "threshold"

    #: The lowest selection frequency.
    threshold: float = 0.7
    overrides: Mapping[str, float] = field(default_factory=dict)
    min_annotations: int = 10

    def __post_init__(self) -> None:
        for value in (self.threshold, *self.overrides.values()):
            if not 0 <= value <= 1:
                raise WorkshopError("invalid threshold", found=value, expected="0 to 1")

    def sample(self, request: SamplingRequest) -> Sample:
        unknown = [key for key in self.overrides if key not in request.classes]
        if unknown:
            raise WorkshopError("threshold for an unknown class", found=unknown[0])
        classes = []
        for key in request.sampled_classes:
            threshold = self._threshold_of(key)
            name = f"at least {threshold:g}"
            annotated = request.candidates_of(key, max(1, self.min_annotations))
            good = [image for image in annotated if image.frequency >= threshold]
            drawn = request.draw(good, request.per_class, name)
            choices = tuple(Choice(image.id, key, name) for image in drawn)
            classes.append(ClassSample(key, choices, request.per_class, {name: request.per_class}))
        return Sample(tuple(classes), request.seed)

    def _threshold_of(self, key: str) -> float:
        return self.overrides.get(key, self.threshold)

    def misfit(self, image: AnnotatedImage, choice: Choice) -> str:
        too_few = _too_few_annotations(image, max(1, self.min_annotations))
        if too_few:
            return too_few
        threshold = self._threshold_of(image.class_key)
        if image.frequency >= threshold:
            return ""
        return f"selected by {image.selected} of {image.annotations}, below {threshold:g}"


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
        kept = {(choice.class_key, choice.id) for choice in request.kept}

        def merit(image: AnnotatedImage) -> tuple[float, int, bool, str]:
            return image.frequency, image.annotations, (image.class_key, image.id) in kept, image.id

        classes = []
        for key in request.sampled_classes:
            annotated = request.candidates_of(key, max(1, self.min_annotations))
            best = sorted(annotated, key=merit, reverse=True)[: request.per_class]
            choices = tuple(Choice(image.id, key, "top") for image in best)
            classes.append(ClassSample(key, choices, request.per_class, {"top": request.per_class}))
        return Sample(tuple(classes), request.seed)

    def misfit(self, image: AnnotatedImage, choice: Choice) -> str:
        return _too_few_annotations(image, max(1, self.min_annotations))


@samplings.register("keywords")
@dataclass(frozen=True)
class Keywords(Sampling):
    """The most frequent keywords of each class, each with its share of the reference images (004, B.1 and B.2.9).

    Unbalanced: a keyword gets its share among the top keywords of all classes, so that the set has as many images as
    the number of classes times ``per_class``; classes with many infrequent keywords end up smaller. ``round_up``, as in
    version 4 of CIFAR-10.1: a keyword gets its share of all references, rounded up; small sets get much larger by
    that, because every keyword gets an image. ``balanced``, as in version 6: a keyword gets its share among the top
    keywords of its class. Shares are rounded down, then one more is added for the largest fractions; missing images of
    a balanced class are taken from the keywords with the next largest fractions.
    """

    name: ClassVar[str] = "keywords"
    by_class: ClassVar[bool] = False

    #: Keywords per class: in CIFAR-10.1 25, or 50 for the balanced version.
    top: int = 25
    balanced: bool = False
    round_up: bool = False
    #: Required annotations, none by default.
    min_annotations: int = 0
    #: Required selection frequency of candidates that have annotations: annotators rejected those below it.
    min_frequency: float = 0.5

    def sample(self, request: SamplingRequest) -> Sample:
        counts: dict[str, Counter[str]] = {key: Counter() for key in request.classes}
        for image in request.references:
            if image.keyword and image.class_key in counts:
                counts[image.class_key][image.keyword] += 1
        without_keywords = [key for key in request.classes if not counts[key]]
        if without_keywords:
            raise WorkshopError(
                f"references without keywords in {len(without_keywords)} classes",
                found=", ".join(without_keywords[:5]),
                hint="shiftbench testset keywords DIR DATASET, the review page Keywords, or a column of the manifest",
            )
        top_keywords = {}
        for key in request.classes:
            most_frequent = sorted(counts[key].items(), key=lambda item: (-item[1], item[0]))
            top_keywords[key] = dict(most_frequent[: self.top])
        reference_count = sum(counter.total() for counter in counts.values())
        shares = self._shares(request, top_keywords, reference_count)
        classes = [self._class(request, key, top_keywords[key], shares[key]) for key in request.classes]
        return Sample(tuple(classes), request.seed)

    def _shares(
        self, request: SamplingRequest, top_keywords: Mapping[str, Mapping[str, int]], reference_count: int
    ) -> dict[str, dict[str, int]]:
        """How many images each keyword of each class should have."""
        shares: dict[str, dict[str, int]] = {}
        set_size = request.per_class * len(request.classes)
        if self.balanced:
            for key, top in top_keywords.items():
                counts = largest_remainder(list(top.values()), request.per_class)
                shares[key] = dict(zip(top, counts, strict=True))
        elif self.round_up:
            for key, top in top_keywords.items():
                # The negation of a negated floor division rounds up, in integers.
                shares[key] = {word: -(-set_size * count // reference_count) for word, count in top.items()}
        else:
            all_counts: list[int] = []
            for top in top_keywords.values():
                all_counts += top.values()
            targets = iter(largest_remainder(all_counts, set_size))
            for key, top in top_keywords.items():
                shares[key] = {word: next(targets) for word in top}
        return shares

    def _class(
        self, request: SamplingRequest, key: str, top: Mapping[str, int], wished: Mapping[str, int]
    ) -> ClassSample:
        """The sample of one class, from the counts of its top keywords and their targets."""
        target = sum(wished.values())
        choices: list[Choice] = []
        available = self._available(request, key, top)
        for keyword, count in wished.items():
            drawn = request.draw(available[keyword], count, keyword)
            choices += [Choice(image.id, key, keyword) for image in drawn]
            available[keyword] = [image for image in available[keyword] if image not in drawn]
        if self.balanced:
            # Replacements are one image per keyword in turn, the largest fractions first.
            top_count = sum(top.values())
            order = sorted(top, key=lambda word: (-(request.per_class * top[word] % top_count), -top[word], word))
            while len(choices) < target and any(available.values()):
                for keyword in order:
                    if available[keyword] and len(choices) < target:
                        image = request.draw(available[keyword], 1, keyword)[0]
                        available[keyword].remove(image)
                        choices.append(Choice(image.id, key, keyword, fallback=True))
        return ClassSample(key, tuple(choices), target, wished)

    def _available(
        self, request: SamplingRequest, key: str, keywords: Iterable[str]
    ) -> dict[str, list[AnnotatedImage]]:
        """The candidates of a class that are good enough, by keyword."""
        available: dict[str, list[AnnotatedImage]] = {keyword: [] for keyword in keywords}
        for image in request.candidates_of(key, self.min_annotations):
            if image.keyword in available and not self._rejected(image):
                available[image.keyword].append(image)
        return available

    def misfit(self, image: AnnotatedImage, choice: Choice) -> str:
        too_few = _too_few_annotations(image, self.min_annotations)
        if too_few:
            return too_few
        if self._rejected(image):
            return f"selected by {image.selected} of {image.annotations}, below {self.min_frequency:g}"
        if image.keyword != choice.drawn_for:
            return f"drawn for {choice.drawn_for!r}, now {image.keyword!r}"
        return ""

    def _rejected(self, image: AnnotatedImage) -> bool:
        """Whether annotators saw an image and too few of them selected it."""
        return image.annotations > 0 and image.frequency < self.min_frequency
