"""Grouping of values by key, for all layers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def by_key(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """The values of each key; keys and values in the order in which they come.

    >>> by_key((len(word), word) for word in ("fog", "snow", "jpeg"))
    {3: ['fog'], 4: ['snow', 'jpeg']}
    """
    groups: dict[K, list[V]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def repeated(values: Iterable[K]) -> list[K]:
    """The values that occur more than once, each listed once, in the order in which they come first.

    >>> repeated(["fog", "snow", "fog", "jpeg"])
    ['fog']
    """
    return [value for value, count in Counter(values).items() if count > 1]
