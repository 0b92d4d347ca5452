"""The interface of sampling strategies, and reproducible random draws."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import ClassVar

from shiftbench.registry import Registry
from shiftbench.testsets.errors import WorkshopError


@dataclass(frozen=True)
class AnnotatedImage:
    """An image, its class, and its answers."""

    id: str
    class_key: str
    selected: int
    annotations: int
    keyword: str | None = None

    @property
    def frequency(self) -> float:
        return self.selected / self.annotations if self.annotations else 0.0


@dataclass(frozen=True)
class Choice:
    """A sampled image: the bin or keyword it was drawn for, and whether it is a fallback for one that ran out."""

    id: str
    class_key: str
    drawn_for: str = ""
    fallback: bool = False


@dataclass(frozen=True)
class SamplingRequest:
    """What to sample, and from which images."""

    candidates: Sequence[AnnotatedImage]
    references: Sequence[AnnotatedImage]
    classes: Sequence[str]
    per_class: int
    seed: int = 0
    #: Images of the previous revision that are still valid; they are kept.
    kept: Sequence[Choice] = ()

    def __post_init__(self) -> None:
        if self.per_class < 1:
            raise WorkshopError("invalid number of images per class", found=self.per_class, expected="at least 1")

    @cached_property
    def _by_class(self) -> dict[str, list[AnnotatedImage]]:
        found: dict[str, list[AnnotatedImage]] = {key: [] for key in self.classes}
        for one in sorted(self.candidates, key=lambda one: one.id):
            if one.class_key in found:
                found[one.class_key].append(one)
        return found

    def candidates_of(self, key: str, least: int) -> list[AnnotatedImage]:
        """The candidates of a class with at least ``least`` annotations, by id."""
        return [one for one in self._by_class[key] if one.annotations >= least]

    def kept_of(self, key: str) -> list[Choice]:
        return [choice for choice in self.kept if choice.class_key == key]


@dataclass(frozen=True)
class ClassSample:
    """The sample of one class; ``wished`` is the target per bin or keyword."""

    class_key: str
    choices: tuple[Choice, ...]
    target: int
    wished: Mapping[str, int] = field(default_factory=dict)

    @property
    def short(self) -> int:
        """Number of missing images."""
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
        found = [choice for one in self.classes for choice in one.choices]
        return sorted(found, key=lambda choice: draw_rank(self.seed, "order", choice.class_key, choice.id))

    @property
    def short(self) -> dict[str, int]:
        return {one.class_key: one.short for one in self.classes if one.short}

    @property
    def fallbacks(self) -> int:
        return sum(one.fallbacks for one in self.classes)

    def as_data(self) -> dict[str, object]:
        classes = {
            one.class_key: {
                "target": one.target,
                "chosen": len(one.choices),
                "fallbacks": one.fallbacks,
                "short": one.short,
                "wished": dict(one.wished),
            }
            for one in self.classes
        }
        return {"images": len(self.choices), "fallbacks": self.fallbacks, "short": self.short, "classes": classes}


class Sampling(ABC):
    """A strategy: a frozen dataclass whose fields are its options."""

    name: ClassVar[str]

    @abstractmethod
    def sample(self, request: SamplingRequest) -> Sample: ...

    def options(self) -> dict[str, object]:
        return asdict(self)  # type: ignore[call-overload, no-any-return]


samplings: Registry[type[Sampling]] = Registry(
    "sampling strategy",
    builtin=(
        "shiftbench.testsets.sampling.selection_frequency",
        "shiftbench.testsets.sampling.selection_frequency",
        "shiftbench.testsets.sampling.selection_frequency",
        "shiftbench.testsets.sampling.keywords",
    ),
)


def make_sampling(name: str, **options: object) -> Sampling:
    """A strategy by name, with options.

    >>> make_sampling("threshold", threshold=0.8).options()["threshold"]
    0.8
    """
    kind = samplings.get(name)
    known = {entry.name for entry in fields(kind)}  # type: ignore[arg-type]
    unknown = sorted(set(options) - known)
    if unknown:
        raise WorkshopError(
            f"unknown option {unknown[0]!r} of the sampling strategy {name!r}",
            expected=", ".join(sorted(known)) or "none",
        )
    return kind(**options)


def draw_rank(seed: int, *parts: str) -> bytes:
    """An image's rank in a draw. It depends only on the seed and the image, so the rest of the pool and the number of
    drawn images do not matter: the next image drawn is always the next in rank."""
    text = "\0".join([str(seed), *parts])
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=16).digest()


def draw(candidates: Iterable[AnnotatedImage], count: int, seed: int) -> list[AnnotatedImage]:
    """``count`` random candidates, or all if there are fewer."""
    ranked = sorted(candidates, key=lambda one: draw_rank(seed, one.class_key, one.id))
    return ranked[: max(0, count)]


def largest_remainder(weights: Sequence[int], total: int, *, ties_to_last: bool = False) -> list[int]:
    """Split ``total`` in proportion to integer weights: round down, then add one to the largest fractions.

    Exact, without floating point. Ties go to the first, or with ``ties_to_last`` to the last.

    >>> largest_remainder([1, 1, 2], 10), largest_remainder([1, 1, 2], 10, ties_to_last=True)
    ([3, 2, 5], [2, 3, 5])
    """
    whole = sum(weights)
    if whole <= 0 or min(weights) < 0:
        raise WorkshopError("invalid weights", found=list(weights), expected="non-negative, not all 0")
    shares = [total * weight // whole for weight in weights]
    places = range(len(weights))
    order = sorted(places, key=lambda i: (-(total * weights[i] % whole), -i if ties_to_last else i))
    for i in order[: total - sum(shares)]:
        shares[i] += 1
    return shares
