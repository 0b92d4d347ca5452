"""Images with several labels: for each image the set of its classes, ascending, as indices into a label space."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from shiftbench.labels.space import Labels, LabelSpace

LabelSets = Sequence[tuple[int, ...]]


def single_labels(sets: LabelSets) -> Labels:
    """The class of images that have one; -1 where there is none or several: whatever scores one label leaves them out.

    >>> single_labels([(2,), (0, 1), ()]).tolist()
    [2, -1, -1]
    """
    return np.array([own[0] if len(own) == 1 else -1 for own in sets], dtype=np.int32)


def relabel_sets(sets: LabelSets, source: LabelSpace, target: LabelSpace) -> list[tuple[int, ...]]:
    """The same sets over ``target``, without the classes that it lacks.

    >>> animals, pets = LabelSpace("animals", ("ant", "cat", "dog")), LabelSpace("pets", ("dog", "cat"))
    >>> relabel_sets([(0, 1), (1, 2)], animals, pets)
    [(1,), (0, 1)]
    """
    table = target.relabel_from(source).tolist()
    return [tuple(sorted({table[label] for label in own} - {-1})) for own in sets]


def multi_hot(sets: LabelSets, classes: int) -> NDArray[np.bool_]:
    """(images, classes), true where an image has the class.

    >>> multi_hot([(2,), (0, 1), ()], 3).astype(int).tolist()
    [[0, 0, 1], [1, 1, 0], [0, 0, 0]]
    """
    table = np.zeros((len(sets), classes), dtype=np.bool_)
    rows = np.repeat(np.arange(len(sets)), [len(own) for own in sets])
    table[rows, [label for own in sets for label in own]] = True
    return table
