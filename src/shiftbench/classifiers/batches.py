"""Detect models whose scores for an image depend on the other images of its batch.

Dynamic quantisation takes the range of its numbers over the whole batch, and batch normalisation in training mode the
mean. The accuracy of such a model depends on the batch size and on which images happen to be neighbours. The model is
therefore evaluated one image at a time (``Classifier.one_at_a_time``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from shiftbench.arrays import Pixels
from shiftbench.classifiers.base import out_of_memory
from shiftbench.labels.space import Scores

Score = Callable[[Pixels], Scores]
#: Neighbours matter if they change a score by more than this share of the largest score. Half precision rounds
#: differently in batches of different sizes, and stays below this share.
_TOLERANCE = 5e-3
#: The same, for a second call with the same image; processors for graphs may add in another order.
_REPETITION_TOLERANCE = 1e-3
#: The same, for a value that all scores of an image have in common. It decides nothing, but its rounding remains.
_ROUNDING_TOLERANCE = 1e-5
#: How often some images are classified again: a random number of a few classes may come twice.
_REPETITIONS = 4
_REPEATED_IMAGES = 2


def scores_alone(score: Score, images: Pixels) -> Scores:
    """The scores of images that a model gets one at a time."""
    tables = [_as_table(score(images[row : row + 1]), 1) for row in range(len(images))]
    return np.concatenate(tables)


def is_repeatable(score: Score, images: Pixels, alone: Scores) -> bool:
    """Whether the first of some images, one at a time, have the scores ``alone`` again, after each other.

    A graph may draw random numbers, or keep variables from call to call.
    """
    images = images[:_REPEATED_IMAGES]
    alone = alone[:_REPEATED_IMAGES]
    for _ in range(_REPETITIONS):
        again = scores_alone(score, images[::-1])[::-1]
        if _scores_differ(alone, again, alone, _REPETITION_TOLERANCE):
            return False
    return True


def depends_on_neighbours(
    score: Score, images: Pixels, alone: Scores, batch_size: int, tolerance: float = _TOLERANCE
) -> bool:
    """Whether images have other scores in batches of ``batch_size``, beside black and white images, than ``alone``.

    Differences below the share ``tolerance`` of the largest score do not count. A model that runs out of memory is
    tried with smaller batches.
    """
    size = batch_size
    while size > 1:
        try:
            for crowd in _crowds(images, size):
                in_crowd = _as_table(score(crowd.batch), size)[crowd.places]
                if _scores_differ(alone[crowd.rows], in_crowd, alone, tolerance):
                    return True
            return False
        except Exception as error:
            if not out_of_memory(error):
                raise
        size //= 2
    return False


def _scores_differ(first: Scores, second: Scores, scale: Scores, tolerance: float) -> bool:
    """Whether two tables of scores differ by more than a share of the largest scores, in any row.

    A row is measured by its own scores, since dark images may have small ones, but by no less than a tenth of the
    largest of the scores ``scale``.
    """
    spread = np.maximum(_spread(first), 0.1 * _spread(scale).max(initial=0))
    rounding = _ROUNDING_TOLERANCE * np.abs(_finite(scale)).max(initial=0)
    difference = np.abs(_finite(first) - _finite(second)).max(axis=1, initial=0)
    return bool((difference > tolerance * spread + rounding).any())


def _spread(scores: Scores) -> Scores:
    """By row: the largest difference of a score from the mean of the row, or the only score."""
    table = _finite(scores)
    if table.shape[1] > 1:
        table = table - table.mean(axis=1, keepdims=True)
    spread: Scores = np.abs(table).max(axis=1, initial=0)
    return spread


def _finite(scores: Scores) -> Scores:
    finite: Scores = np.nan_to_num(scores.astype(np.float64), posinf=1e30, neginf=-1e30)
    return finite


def _as_table(scores: Scores, count: int) -> Scores:
    """The scores of ``count`` images as a table, of one column if there is one score per image."""
    return np.asarray(scores).reshape(count, -1)


class _Crowd(NamedTuple):
    """A batch of some images among black and white ones."""

    batch: Pixels
    #: Where the images are in the batch ...
    places: list[int]
    #: ... and which ones they are.
    rows: slice


def with_dark_images(images: Pixels) -> Pixels:
    """Images, and dark copies of them: a range that is taken over a batch hides these most."""
    dark: Pixels = (images // 16).astype(np.uint8)
    return np.concatenate([images, dark])


def _crowds(images: Pixels, size: int) -> Iterator[_Crowd]:
    """Batches of ``size`` images that have a black and a white one among them, or one of these if ``size`` is 2.

    The images are spread over the batch, since a model may treat its parts differently.
    """
    black = np.zeros_like(images[0])
    white = np.full_like(images[0], 255)
    if size == 2:
        for row, image in enumerate(images):
            yield _Crowd(np.stack([image, black]), [0], slice(row, row + 1))
            yield _Crowd(np.stack([white, image]), [1], slice(row, row + 1))
        return
    for start in range(0, len(images), size - 2):
        group = images[start : start + size - 2]
        places = [(i + 1) * size // (len(group) + 1) for i in range(len(group))]
        # The first and the last place of a batch are free, and so at least one image is black and one is white.
        crowd = [white if place % 2 else black for place in range(size)]
        crowd[-1] = white
        for place, image in zip(places, group, strict=True):
            crowd[place] = image
        yield _Crowd(np.stack(crowd), places, slice(start, start + len(group)))
