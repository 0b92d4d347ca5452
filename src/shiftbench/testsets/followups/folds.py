"""Folds and samples that are balanced over classes, drawn by seed and image id alone."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Group = TypeVar("Group", bound=Hashable)


def shuffled_groups(ids: Sequence[str], groups: Iterable[Group], seed: int) -> dict[Group, list[int]]:
    """The images of each group in a random order that depends on the seed and their ids only.

    >>> shuffled_groups(["a", "b", "c"], ["x", "y", "x"], seed=0)
    {'x': [2, 0], 'y': [1]}
    """
    members: dict[Group, list[int]] = defaultdict(list)
    for i, group in enumerate(groups):
        members[group].append(i)
    return {group: sorted(found, key=lambda i: _rank(seed, ids[i])) for group, found in members.items()}


def deal(ids: Sequence[str], groups: Iterable[Hashable], folds: int, seed: int) -> NDArray[np.int64]:
    """The fold of every image. Within each group the folds differ by one image at most; what is left over of the
    groups is dealt out in turn, so that whole folds differ by one at most too.

    >>> deal(["a", "b", "c", "d"], "xxyy", 2, seed=0).tolist()
    [0, 1, 0, 1]
    """
    fold, turn = np.empty(len(ids), np.int64), 0
    for members in shuffled_groups(ids, groups, seed).values():
        for i in members:
            fold[i] = turn % folds
            turn += 1
    return fold


def _rank(seed: int, image: str) -> bytes:
    return hashlib.blake2b(f"{seed}/{image}".encode("utf-8", "surrogateescape"), digest_size=16).digest()
