"""Why two models answer differently: another order of the outputs, other channels, or another range of values.

These are the usual faults of an export, and with the original at hand each of them is one comparison: if one model is
read or fed in another way, do the two agree?
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import FloatArray, IntArray, Pixels
from shiftbench.classifiers.base import Classifier
from shiftbench.classifiers.preprocessing import Normalisation
from shiftbench.diagnosis.images import finite_scores, fixed_classifier, fixing_description, with_preprocessing
from shiftbench.diagnosis.search import one_sided
from shiftbench.diagnosis.wiring import other_colour_order
from shiftbench.errors import listed
from shiftbench.labels.space import LabelSpace, Scores
from shiftbench.metrics.arrays import softmax

#: A cause must explain at least this share of the images on which the two models disagree.
_EXPLAINED = 0.5
#: With fewer different answers, chance explains everything: 0.5 ** 10 is the level of the test.
_LEAST_DIFFERENCES = 10
#: Images on which a way to feed a model must agree more often before it is tried on all.
_FEW_IMAGES = 32
#: Level of the exact test that the two agree more often than before.
_LEVEL = 1e-3
#: Two engines round differently by less than this.
SAME_PROBABILITY = 1e-4
#: A group of outputs is exchanged only if that brings the scores this much closer.
_CLOSER = 0.5
#: Exchanged pairs of classes that are named.
_NAMED = 3
_UNIT_SCALE = 1 / 255
_NO_MEAN = (0.0, 0.0, 0.0)
_NO_STD = (1.0, 1.0, 1.0)


@dataclass(frozen=True)
class Cause:
    """What makes one of two models answer like the other.

    Attributes:
        model: Name of the model that is read or fed in the wrong way.
        text: What is wrong, in one sentence.
        before: Share of images on which both answer the same, as they are.
        after: The share with the fix.
        distance: Mean difference between the probabilities of both with the fix; of several causes that explain the
            answers, the one with the smallest distance is named.
        preprocess: Value for ``preprocessing`` (``--preprocess``) that fixes it; empty if that is right.
        labels: The classes in the order of the model's outputs; None if that is right.
        classifier: The model with the fix applied, as a sidecar would describe it.
    """

    model: str
    text: str
    before: float
    after: float
    distance: float
    classifier: Classifier = field(repr=False, compare=False)
    preprocess: Mapping[str, object] = field(default_factory=dict)
    labels: tuple[str, ...] | None = None


@dataclass(frozen=True)
class _Side:
    """One of the two models: its pixels, and its scores as it is."""

    classifier: Classifier
    pixels: Sequence[Pixels]
    scores: Scores

    @property
    def probabilities(self) -> FloatArray:
        return _probabilities(self.classifier, self.scores)


def find_cause(
    models: Sequence[Classifier], pixels: Sequence[Sequence[Pixels]], scores: Sequence[Scores], true: IntArray | None
) -> Cause | None:
    """The first of the usual faults that explains most of the differences between two models, or None.

    Args:
        models: The original and its export.
        pixels: The resized and cropped images of each.
        scores: The scores of each, in the order of its outputs.
        true: The right class of each image, as a class of the original; None if that is not known. The less accurate
            model is taken for the wrong one, otherwise the export.
    """
    first, second = (_Side(*side) for side in zip(models, pixels, scores, strict=True))
    answers = first.probabilities.argmax(axis=1)
    columns = _columns_by_name(first.classifier.space, second.classifier.space)
    other_answers = second.probabilities[:, columns].argmax(axis=1)
    agree = answers == other_answers
    if _are_same(first.probabilities, second.probabilities[:, columns]):
        return None
    sides = [second, first]
    if true is not None and _is_worse(answers == true, other_answers == true):
        sides.reverse()
    wrong, right = sides
    causes = []
    for cause in _causes(right, wrong, agree):
        if cause.distance <= SAME_PROBABILITY:
            return cause
        causes.append(cause)
    return min(causes, key=lambda cause: cause.distance, default=None)


def _causes(right: _Side, wrong: _Side, agree: NDArray[np.bool_]) -> Iterator[Cause]:
    """The faults that would explain the different answers; the model that is probably wrong is changed first."""
    order = _other_order(right, wrong, agree)
    if order is not None:
        yield order
    yield from _other_inputs(right, wrong, agree)
    yield from _other_inputs(wrong, right, agree)


def _is_worse(hits: NDArray[np.bool_], other_hits: NDArray[np.bool_]) -> bool:
    gained = int((other_hits & ~hits).sum())
    lost = int((hits & ~other_hits).sum())
    return one_sided(gained, lost) <= 0.05


def _are_same(first: FloatArray, second: FloatArray) -> bool:
    return bool(np.abs(first - second).max() <= SAME_PROBABILITY)


def _explains(agree: NDArray[np.bool_], agree_then: NDArray[np.bool_]) -> bool:
    """Whether most of the different answers vanish, and more than by chance."""
    gained = int((agree_then & ~agree).sum())
    lost = int((agree & ~agree_then).sum())
    remaining = int((~agree_then).sum())
    return remaining <= (1 - _EXPLAINED) * int((~agree).sum()) and one_sided(gained, lost) <= _LEVEL


def _probabilities(classifier: Classifier, scores: Scores) -> FloatArray:
    if classifier.outputs == "probabilities":
        return scores.astype(np.float64)
    return softmax(scores.astype(np.float64))


def _columns_by_name(space: LabelSpace, other: LabelSpace) -> IntArray:
    """For each class of the first space, its place in the other."""
    columns = {key: column for column, key in enumerate(other.keys)}
    return np.array([columns[key] for key in space.keys])


def _other_order(right: _Side, wrong: _Side, agree: NDArray[np.bool_]) -> Cause | None:
    """The outputs of one model are those of the other in another order."""
    reference = right.probabilities
    columns = _columns_by_name(right.classifier.space, wrong.classifier.space)
    scores = wrong.probabilities[:, columns]
    order = matching_order(reference, scores)
    agree_then = reference.argmax(axis=1) == scores[:, order].argmax(axis=1)
    if not (_are_same(reference, scores[:, order]) or _explains(agree, agree_then)):
        return None
    space = right.classifier.space
    keys = list(wrong.classifier.space.keys)
    names = list(wrong.classifier.space.names)
    for label, column in enumerate(columns[order].tolist()):
        keys[column] = space.keys[label]
        names[column] = space.names[label]
    fixed = with_preprocessing(wrong.classifier, wrong.classifier.preprocessing, copy=True)
    fixed.space = LabelSpace(f"{wrong.classifier.space.name}, reordered", tuple(keys), tuple(names))
    text = f"the outputs of {wrong.classifier.name} are those of {right.classifier.name} in another order: "
    text += _order_text(order, space.names)
    return Cause(
        wrong.classifier.name,
        text,
        before=float(agree.mean()),
        after=float(agree_then.mean()),
        distance=float(np.abs(reference - scores[:, order]).mean()),
        labels=tuple(keys),
        classifier=fixed,
    )


def matching_order(reference: FloatArray, scores: FloatArray) -> IntArray:
    """For each column of ``reference``, the column of ``scores`` that has its values; its own unless another is clearly
    closer.

    Columns of classes that hardly occur are alike, and the best assignment exchanges some of them by chance. So each
    cycle of the assignment is kept only if it brings its columns at least to half of their distance.

    >>> first = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.3, 0.1, 0.6]])
    >>> matching_order(first, first[:, [1, 0, 2]])
    array([1, 0, 2])
    """
    from scipy.optimize import linear_sum_assignment

    classes = reference.shape[1]
    distances = np.empty((classes, scores.shape[1]))
    for label in range(classes):
        distances[label] = np.abs(reference[:, [label]] - scores).mean(axis=0)
    assigned = linear_sum_assignment(distances)[1]
    order = np.arange(classes)
    for cycle in _cycles(assigned):
        distance = distances[cycle, cycle].sum()
        exchanged_distance = distances[cycle, assigned[cycle]].sum()
        if exchanged_distance <= _CLOSER * distance:
            order[cycle] = assigned[cycle]
    return order


def _cycles(permutation: IntArray) -> Iterator[list[int]]:
    """Places that a permutation moves around among themselves."""
    remaining = {start for start, target in enumerate(permutation.tolist()) if start != target}
    while remaining:
        cycle = [min(remaining)]
        while (target := int(permutation[cycle[-1]])) != cycle[0]:
            cycle.append(target)
        remaining -= set(cycle)
        yield cycle


def _order_text(order: IntArray, names: Sequence[str]) -> str:
    """Which classes are exchanged, or by how much all of them are moved."""
    classes = len(order)
    offsets = np.unique((order - np.arange(classes)) % classes)
    cycles = list(_cycles(order))
    if len(offsets) == 1 and classes > 2:
        return f"each is {int(offsets[0])} places further, counted around"
    if all(len(cycle) == 2 for cycle in cycles):
        pairs = [f"{names[first]} and {names[second]}" for first, second in cycles]
        return f"{listed(pairs, _NAMED)} are swapped"
    moved = int((order != np.arange(classes)).sum())
    label = cycles[0][0]
    return f"{moved} classes are moved, such as {names[label]}, which is in the place of {names[order[label]]}"


def _other_inputs(right: _Side, suspect: _Side, agree: NDArray[np.bool_]) -> Iterator[Cause]:
    """One model expects other channels or another range of values.

    Each way of feeding it is tried on a few images first, and on all of them only if it agrees more often there.
    """
    if int((~agree).sum()) < _LEAST_DIFFERENCES:
        return
    columns = _columns_by_name(right.classifier.space, suspect.classifier.space)
    reference = right.probabilities
    answers = reference.argmax(axis=1)
    few = np.arange(_FEW_IMAGES) * len(answers) // _FEW_IMAGES  # evenly spread over the classes
    for way in _other_ways(suspect.classifier):
        on_few = way.probabilities([suspect.pixels[row] for row in few.tolist()], columns)
        if on_few is None or (on_few.argmax(axis=1) == answers[few]).sum() < agree[few].sum():
            continue
        probabilities = way.probabilities(suspect.pixels, columns)
        if probabilities is None:
            continue
        agree_then = probabilities.argmax(axis=1) == answers
        if _explains(agree, agree_then):
            name = suspect.classifier.name
            yield Cause(
                name,
                f"{name} {way.expectation}: then it answers as {right.classifier.name} does",
                before=float(agree.mean()),
                after=float(agree_then.mean()),
                distance=float(np.abs(reference - probabilities).mean()),
                preprocess=fixing_description(suspect.classifier, way.classifier.preprocessing),
                classifier=way.classifier,
            )


@dataclass(frozen=True)
class _Way:
    """What a model may expect instead of what it gets."""

    expectation: str
    classifier: Classifier

    def probabilities(self, pixels: Sequence[Pixels], columns: IntArray) -> FloatArray | None:
        """Of the images, with these columns; None if the model refuses this input."""
        try:
            scores = finite_scores(self.classifier, pixels)
        except Exception:  # engines raise whatever they like
            return None
        return _probabilities(self.classifier, scores)[:, columns]


def _other_ways(classifier: Classifier) -> Iterator[_Way]:
    normalisation = classifier.preprocessing.normalisation
    others = _other_colours(normalisation) if classifier.takes_pixels else _other_values(normalisation)
    for expectation, values in others:
        preprocessing = replace(classifier.preprocessing, normalisation=values)
        yield _Way(expectation, fixed_classifier(classifier, preprocessing))


def _other_colours(present: Normalisation) -> Iterator[tuple[str, Normalisation]]:
    if present.channels == 3:
        order = other_colour_order(present)
        yield f"expects {order.upper()}", replace(present, colour_order=order)


def _other_values(present: Normalisation) -> Iterator[tuple[str, Normalisation]]:
    yield from _other_colours(present)
    if present.channels == 3:
        order = other_colour_order(present)
        expectation = f"expects {order.upper()}"
        yield expectation, replace(present, colour_order=order, mean=present.mean[::-1], std=present.std[::-1])
    if present.scale == 1:
        yield "expects values from 0 to 1", replace(present, scale=_UNIT_SCALE)
        yield "expects values from 0 to 1", replace(present, scale=_UNIT_SCALE, mean=_NO_MEAN, std=_NO_STD)
    else:
        yield "expects values from 0 to 255", replace(present, scale=1.0)
        yield "expects values from 0 to 255", replace(present, scale=1.0, mean=_NO_MEAN, std=_NO_STD)
