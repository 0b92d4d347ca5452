"""Signs in a result that labels and predictions number the classes differently.

Meant for clean images. Under a strong attack or corruption, chance level is not an error; on images selected
because models fail on them, only the usual mistakes are checked.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from shiftbench.errors import ResultWarning
from shiftbench.labels.catalogue import label_space
from shiftbench.labels.space import LabelSpace

Ints = NDArray[np.integer]
#: A mapping must explain this much more of the predictions than the labels do.
_GAIN = 0.10
#: The error level of the intervals that are compared; small, as a dozen mappings are tried.
_ALPHA = 1e-3
#: Spaces of tens of thousands of classes are only searched for the usual mistakes.
_MOST_CELLS = 25_000_000


def outcome_warnings(
    labels: Ints, top1: Ints, space: LabelSpace, *, chosen_to_fool: bool = False, about: str = ""
) -> list[ResultWarning]:
    """Warnings for the user; empty if nothing looks wrong.

    Images without a label or a prediction (-1) do not count. ``chosen_to_fool`` means that the images were
    selected for being misclassified: then low accuracy and systematic confusion of classes are expected.
    ``about`` begins the messages.

    >>> right = np.arange(10).repeat(20)
    >>> outcome_warnings(right, right, label_space("cifar-10"))
    []
    >>> outcome_warnings(right, (right + 1) % 10, label_space("cifar-10"))[0].code
    'permuted-labels'
    """
    labels, top1 = np.asarray(labels), np.asarray(top1)
    valid = (labels >= 0) & (top1 >= 0)
    labels, top1 = labels[valid].astype(np.int64), top1[valid].astype(np.int64)
    if not len(labels) or len(space) < 2:
        return []
    known = _known_mapping(labels, top1, space)
    learnt = None if chosen_to_fool else _learnt_mapping(labels, top1, space)
    # a usual mistake is the better explanation, unless it leaves much unexplained
    best = learnt if known is None or (learnt and learnt[0] > known[0] + _GAIN) else known
    if best:
        direct = float((labels == top1).mean())
        text = f"labels look permuted: top-1 is {direct:.1%} as labelled, but {best[0]:.1%} if {best[1]}"
        return [ResultWarning(about + text.replace("%", " %"), "permuted-labels")]
    chance = None if chosen_to_fool else _chance_level(labels, top1, space)
    return [ResultWarning(about + chance, "chance-level")] if chance else []


def _chance_level(labels: Ints, top1: Ints, space: LabelSpace) -> str | None:
    hits, n, chance = int((labels == top1).sum()), len(labels), 1 / len(space)
    low, high = _interval(hits, n, 0.05)
    # the second test: were there enough images to distinguish a fair model from chance?
    if low > chance or high > (1 + chance) / 2:
        return None
    single = np.bincount(top1).max() / n
    causes = "labels in another order, wrong preprocessing, untrained weights, or images chosen to fool it"
    if single > 0.9 and len(np.unique(labels)) > 1:
        causes = f"{100 * single:.0f} % of predictions are one class: wrong preprocessing or untrained weights"
    return (
        f"top-1 is at chance level: {hits} of {n} right ({100 * hits / n:.2f} %, chance is "
        f"{100 * chance:.2f} % for "
        f"{len(space)} classes); likely causes: {causes}"
    )


def _known_mapping(labels: Ints, top1: Ints, space: LabelSpace) -> tuple[float, str] | None:
    """Does one of the usual mistakes explain the predictions?"""
    best: tuple[float, str] | None = None
    for words, mapping in usual_mistakes(space):
        usable = labels < len(mapping)
        mapped = np.where(usable, mapping[np.minimum(labels, len(mapping) - 1)], -1)
        if _explains(labels, top1, mapped) and (best is None or (mapped == top1).mean() > best[0]):
            best = (float((mapped == top1).mean()), words)
    return best


def usual_mistakes(space: LabelSpace) -> Iterator[tuple[str, Ints]]:
    """Each mapping gives, for a label, the class that is predicted if that mistake was made."""
    n = len(space)
    order = np.arange(n)
    yield "predictions are one class ahead of the labels", (order + 1) % n
    if n > 2:
        yield "predictions are one class behind the labels", (order - 1) % n
        yield "the order of the classes is reversed", order[::-1]
    as_text = np.array(sorted(range(n), key=str))
    if n > 10:
        yield "integer folders were sorted as text (0, 1, 10, 100, ...) to make the labels", as_text
        yield "the classifier's classes are integers sorted as text (0, 1, 10, 100, ...)", np.argsort(as_text)
    by_name = np.array(sorted(range(n), key=lambda i: space.names[i].casefold()))
    if not np.array_equal(by_name, order):
        yield "classes were sorted by name to make the labels", by_name
        yield "the classifier's classes are sorted by name", np.argsort(by_name)
    if space.name == "imagenet-1k":
        for letter in "aor":
            subset = label_space(f"imagenet-{letter}-200")
            yield f"the labels are indices into the 200 classes {subset.name}", space.relabel_from(subset)


def _explains(labels: Ints, top1: Ints, mapped: Ints) -> bool:
    """More than chance could, by a margin, and not through one frequent class alone."""
    n = len(labels)
    direct, other = int((labels == top1).sum()), int((mapped == top1).sum())
    if other - direct < _GAIN * n or _interval(other, n, _ALPHA)[0] <= _interval(direct, n, _ALPHA)[1]:
        return False
    classes = len(np.unique(labels[mapped == top1]))
    return classes >= max(2, 0.25 * len(np.unique(labels)))


def _learnt_mapping(labels: Ints, top1: Ints, space: LabelSpace) -> tuple[float, str] | None:
    """The best one-to-one mapping, learnt on half of the images of each class and judged on the others.

    Judged on the same images it would always look good when classes have few of them.
    """
    half = _alternate(labels)
    if (labels == top1).mean() > 1 - _GAIN:
        return None
    if half.all() or not half.any() or not _could_gain(labels, top1, half, len(space)):
        return None
    mapped = np.full_like(labels, -1)
    for part in (half, ~half):
        mapping = best_mapping(labels[part], top1[part], len(space))
        mapped[~part] = mapping[labels[~part]]
    if not _explains(labels, top1, mapped):
        return None
    mapping = best_mapping(labels, top1, len(space))
    present = np.unique(labels)
    moved = present[(mapping[present] != present) & (mapping[present] >= 0)]
    if len(moved) < 2:
        return None
    return float((mapped == top1).mean()), _describe(moved, mapping, space)


def _could_gain(labels: Ints, top1: Ints, half: NDArray[np.bool_], n: int) -> bool:
    """Whether any mapping could explain enough: no more hits than the most frequent prediction of each class gives.

    Much quicker than the best mapping itself, which a classifier that is right most of the time never needs.
    """
    width = max(n, int(top1.max()) + 1)
    if n * width > _MOST_CELLS:
        return True
    most = 0
    for part in (half, ~half):
        counts = np.bincount(labels[part] * width + top1[part], minlength=n * width)
        most += int(counts.reshape(n, width).max(axis=1).sum())
    return most - int((labels == top1).sum()) >= _GAIN * len(labels)


def _describe(moved: Ints, mapping: Ints, space: LabelSpace) -> str:
    steps, counts = np.unique(mapping[moved] - moved, return_counts=True)
    step, share = int(steps[counts.argmax()]), counts.max() / len(moved)
    if share > 0.8:
        return (
            f"{len(moved)} classes, from {space.names[int(moved.min())]!r} on, are read as the class "
            f"{step:+d} from theirs: a missing or an extra class folder?"
        )
    names = {i: repr(name) for i, name in enumerate(space.names)}
    pairs = [f"{names[int(i)]} as {names.get(int(mapping[i]), mapping[i])}" for i in moved[:3]]
    return f"{len(moved)} classes are consistently read as another one ({', '.join(pairs)}, ...)"


def _alternate(labels: Ints) -> NDArray[np.bool_]:
    """Every second image of each class."""
    order = np.argsort(labels, kind="stable")
    ordered = labels[order]
    starts = np.searchsorted(ordered, ordered, side="left")
    half = np.empty(len(labels), dtype=bool)
    half[order] = (np.arange(len(labels)) - starts) % 2 == 0
    return half


def best_mapping(labels: Ints, top1: Ints, n: int) -> Ints:
    """For each class the prediction that it is given one-to-one; -1 for a class never seen."""
    from scipy.optimize import linear_sum_assignment

    present, row = np.unique(labels, return_inverse=True)
    predicted, column = np.unique(top1, return_inverse=True)
    mapping = np.full(n, -1, dtype=np.int64)
    if len(present) * len(predicted) > _MOST_CELLS:
        return mapping
    confusion = np.zeros((len(present), len(predicted)))
    np.add.at(confusion, (row, column), 1)
    rows, columns = linear_sum_assignment(confusion, maximize=True)
    used = confusion[rows, columns] > 0
    mapping[present[rows[used]]] = predicted[columns[used]]
    return mapping


def _interval(hits: int, n: int, alpha: float) -> tuple[float, float]:
    """Clopper-Pearson."""
    from scipy.special import betaincinv

    low = 0.0 if hits == 0 else float(betaincinv(hits, n - hits + 1, alpha / 2))
    high = 1.0 if hits == n else float(betaincinv(hits + 1, n - hits, 1 - alpha / 2))
    return low, high
