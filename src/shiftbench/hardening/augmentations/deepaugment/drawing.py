"""What the tables of distortions share: how one is registered, and how it draws.

All draws come from one NumPy generator and are moved to the device of the tensor they are for, so that an image's
distortion depends on that generator alone. Counts of the paper (five convolutions of sixteen, 32 filters of 64) are
kept as shares, so that the same table distorts a smaller network as much.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

F = TypeVar("F", bound=Callable[..., object])


@dataclass(frozen=True)
class Distortion(Generic[F]):
    """A function under its name; its docstring is what it does."""

    name: str
    apply: F

    @property
    def summary(self) -> str:
        return " ".join((self.apply.__doc__ or "").split())


class DistortionTable(list[Distortion[F]]):
    """Distortions in the order of the published numbers."""

    def add(self, name: str) -> Callable[[F], F]:
        """Decorator: ``@table.add("flip-filters")``."""

        def added(function: F) -> F:
            self.append(Distortion(name, function))
            return function

        return added

    def named(self, name: str) -> F:
        return next(entry.apply for entry in self if entry.name == name)


@dataclass(frozen=True)
class Draw:
    """Random choices of one distortion; ``published`` repeats the slips of the published code."""

    generator: np.random.Generator
    published: bool = False

    def uniform(self, like: Tensor) -> Tensor:
        """U(0, 1) in the shape of ``like``."""
        numbers = torch.from_numpy(self.generator.random(tuple(like.shape), dtype=np.float32))
        return numbers.to(like.device)

    def number(self) -> float:
        """One U(0, 1)."""
        return float(self.generator.random())

    def happens(self, probability: float) -> bool:
        return self.number() < probability

    def one_of(self, choices: Sequence[int]) -> int:
        return int(choices[int(self.generator.integers(len(choices)))])

    def several(self, count: int, total: int) -> list[int]:
        """``count`` different ones of ``total``. The published code draws with replacement, so some come twice."""
        return [int(i) for i in self.generator.choice(total, count, replace=self.published)]

    def signs(self, like: Tensor) -> Tensor:
        """+1 or -1, even odds, in the shape of ``like``."""
        return self.uniform(like).round() * 2 - 1


def share(count: int, published_total: int, total: int) -> int:
    """``count`` of the paper's network in proportion, at least one.

    >>> share(32, 64, 64), share(32, 64, 24), share(3, 15, 2)
    (32, 12, 1)
    """
    return min(total, max(1, round(count * total / published_total)))
