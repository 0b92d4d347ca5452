"""The guard against wrong label maps, the field's most common error.

Before a run, folder names (or label columns) are recognised or rejected; after a run, ``outcome_warnings``
checks the result for signs that labels and predictions number the classes differently. That is meant for clean images:
under a strong attack or corruption, chance level is not an error; on images selected because models fail on them, only
the usual mistakes are checked.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shiftbench.errors import LabelError, ResultWarning, UnknownClassesError, argument, listed
from shiftbench.grouping import repeated
from shiftbench.labels.catalogue import (
    FOLDERS,
    classes_by_name,
    classes_named,
    label_space,
    label_spaces,
    plain,
    similarly_spelt,
)
from shiftbench.labels.space import AskedSpace, LabelSpace

_WNID = re.compile(r"n\d{8}")
#: The sets of class names that folders may be named after; subsets by wnid are found by ``_wnid_space``.
_NAMED_SPACES = ("imagenet-1k", "imagenet-a-200", "imagenet-o-200", "imagenet-r-200", "cifar-10", "cifar-100")
Ints = NDArray[np.integer]
#: A mapping must explain this much more of the predictions than the labels do.
_GAIN = 0.10
#: The error level of the intervals that are compared; small, as a dozen mappings are tried.
_ALPHA = 1e-3
#: Most cells of a confusion matrix: spaces of tens of thousands of classes are only searched for the usual mistakes.
_MAX_CELLS = 25_000_000


class Explanation(NamedTuple):
    """A mistake that would explain the predictions: the accuracy if it was made, and what it is."""

    accuracy: float
    mistake: str


def recognise_folders(names: Iterable[str], space: AskedSpace = None) -> tuple[LabelSpace, dict[str, int]]:
    """The label space that class folders belong to, and the index of each folder's class.

    Folders may be named by integers, by wnids or by class names. With ``space`` they must fit it;
    ``space="folders"`` takes the folder names themselves as the classes. Anything that leaves room for
    doubt is an error.
    """
    folders = sorted(set(names))
    if not folders:
        raise LabelError("no class folders", expected="one folder per class")
    if space == FOLDERS:
        classes = folder_space(folders)
        return classes, {folder: i for i, folder in enumerate(classes.keys)}
    if isinstance(space, str):
        space = label_space(space)
    if space is not None:
        return space, _fit(folders, space)
    if all(map(_is_integer, folders)):
        return _unnamed_integers(folders)
    if any(map(_WNID.fullmatch, folders)):
        target = _wnid_space(folders)
        return target, {folder: target.index(folder) for folder in folders}
    return _unnamed_words(folders)


def _fit(folders: Sequence[str], space: LabelSpace) -> dict[str, int]:
    """The index of each folder's class in a space that the user has named; folders that do not fit it are an error."""
    if all(folder in space for folder in folders):
        return {folder: space.index(folder) for folder in folders}
    if all(map(_is_integer, folders)):
        return _integers(folders, space)
    if any(map(_WNID.fullmatch, folders)) and any(map(_WNID.fullmatch, space.keys)):
        raise _foreign(folders, [folder for folder in folders if folder not in space], space)
    return _words(folders, space)


def recognise_names(
    names: Sequence[str], space: AskedSpace = None, *, own: str = FOLDERS
) -> tuple[LabelSpace, list[int]]:
    """As ``recognise_folders``, for class names that a file declares in order: label i means ``names[i]``.

    Here the order is known, so a few names spelt differently (or shared by two classes) are accepted when all
    others are at their positions. Unknown names become a space of their own, called ``own``, if no space
    was requested.
    """
    in_order = list(range(len(names)))
    if space == FOLDERS:
        return LabelSpace(own, tuple(names)), in_order
    if isinstance(space, str):
        space = label_space(space)
    candidates: Iterable[LabelSpace] = map(label_space, _NAMED_SPACES) if space is None else [space]
    for candidate in candidates:
        if _has_order_of(names, candidate):
            return candidate, in_order
    try:
        target, index = recognise_folders(names, space)
    except LabelError:
        if space is not None:
            raise
        return LabelSpace(own, tuple(names)), in_order
    return target, [index[name] for name in names]


def _has_order_of(names: Sequence[str], space: LabelSpace) -> bool:
    """Whether nearly all names are those of the space at the same positions, and none is that of another position."""
    if len(names) != len(space):
        return False
    right = 0
    for i, name in enumerate(names):
        classes = classes_named(name, space)
        if i in classes:
            right += 1
        elif classes:
            return False
    return right >= 0.95 * len(names)


def folder_space(folders: Iterable[str], name: str = FOLDERS) -> LabelSpace:
    """The space whose classes are the folders, sorted as text, or as numbers if all are."""
    folders = sorted(set(folders))
    if all(map(_is_integer, folders)):
        folders.sort(key=int)
    return LabelSpace(name, tuple(folders))


def _is_integer(name: str) -> bool:
    return name.isascii() and name.isdecimal()


def _integers(folders: Sequence[str], space: LabelSpace) -> dict[str, int]:
    """The class of each folder by its value, never by sorting: sorted as text, 0..999 begins 0, 1, 10, 100."""
    index = {folder: int(folder) for folder in folders}
    doubled = repeated(index.values())
    if doubled:
        raise LabelError("two folders have the same integer value", found=f"{doubled[0]} padded with zeros, and not")
    low = min(index.values())
    high = max(index.values())
    n = len(space)
    if high >= n:
        one_based = low == 1 and high == n
        raise LabelError(
            f"integer folders do not fit the label space {space.name!r}",
            found=f"{len(folders)} folders from {low} to {high}",
            expected=f"integers from 0 to {n - 1}",
            hint="the folders seem to count from 1: rename them to start at 0" if one_based else None,
        )
    return index


def _unnamed_integers(folders: Sequence[str]) -> tuple[LabelSpace, dict[str, int]]:
    """The classes of ImageNet if the folders are 0..999; other integers are ambiguous, as 10 could be CIFAR-10."""
    space = label_space("imagenet-1k")
    values = sorted(map(int, folders))
    if len(values) > 200 and values[-1] in (len(space) - 1, len(space)):
        if values[-1] == len(space) - 1 and values[0] == 0 and len(values) != len(space):
            missing = sorted(set(range(len(space))) - set(values))
            raise LabelError(
                "the folders look like the 1,000 ImageNet classes by index, but some are missing",
                found=f"{len(values)} of 1000 folders; missing {listed(map(str, missing))}",
                expected="0 to 999",
                hint=f"if that is intended, name the label space: {argument('labels', 'imagenet-1k')}",
            )
        return space, _integers(folders, space)
    raise UnknownClassesError(
        "integer folder names do not identify the classes",
        found=f"{len(values)} folders from {values[0]} to {values[-1]}",
        expected="0 to 999 (ImageNet), or a named label space",
        hint=f"{argument('labels', 'cifar-10')}, a file of classes, or {argument('labels', FOLDERS)}",
    )


def _wnid_space(folders: Sequence[str]) -> LabelSpace:
    """The 200 classes of ImageNet-A, -O or -R if the folders are exactly these, else the 1,000."""
    full = label_space("imagenet-1k")
    unknown = [folder for folder in folders if folder not in full]
    if unknown:
        raise _foreign(folders, unknown, full)
    for letter in "aor":
        subset = label_space(f"imagenet-{letter}-200")
        if set(folders) == set(subset.keys):
            return subset
    return full


def _foreign(folders: Sequence[str], unknown: Sequence[str], space: LabelSpace) -> LabelError:
    """The error for folders named by wnids, some of which are ``unknown`` in the space."""
    nearest = difflib.get_close_matches(unknown[0], space.keys, n=1, cutoff=0.8)
    are_imagenet = all(folder in label_space("imagenet-1k") for folder in unknown)
    hint = f"for your own classes: {argument('labels', FOLDERS)}, or a file of classes"
    if nearest and len(unknown) < 4:
        hint = f"{unknown[0]!r} is close to {nearest[0]!r}: a typo?"
    if are_imagenet and space.name != "imagenet-1k":
        hint = f"open it as {argument('labels', 'imagenet-1k')} and take the subset of classes"
    return LabelError(
        f"{len(unknown)} of {len(folders)} folders are not classes of {space.name!r}",
        found=listed(unknown),
        expected=f"wnids of {space.name!r}, such as {space.keys[0]}",
        hint=hint,
    )


def _words(folders: Sequence[str], space: LabelSpace) -> dict[str, int]:
    """The class of each folder by its name; unknown and ambiguous names, and two names of a class, are errors."""
    index: dict[str, int] = {}
    unknown = []
    for folder in folders:
        candidates = classes_named(folder, space)
        if len(candidates) > 1:
            descriptions = [f"{space.names[i]} = {space.keys[i]} (index {i})" for i in candidates]
            raise LabelError(
                f"the name {folder!r} is ambiguous: {len(candidates)} classes of {space.name!r}",
                found=", ".join(descriptions),
                hint="name the folder by its wnid or index",
            )
        if candidates:
            index[folder] = candidates[0]
        else:
            unknown.append(folder)
    if unknown:
        raise _unknown_words(folders, unknown, space)
    doubled = repeated(index.values())
    if doubled:
        same = [folder for folder in folders if index[folder] == doubled[0]]
        raise LabelError("two folders are the same class", found=", ".join(same), expected="one folder per class")
    return index


def _unknown_words(folders: Sequence[str], unknown: Sequence[str], space: LabelSpace) -> UnknownClassesError:
    hints = []
    for folder in unknown[:3]:
        for name in similarly_spelt(folder, space, 1):
            hints.append(f"did you mean {name!r} for {folder!r}?")
    if len(hints) < len(unknown) and space.name in label_spaces:
        draft = f"`shiftbench data labels FOLDER --to {space.name} -o mapping.csv`"
        hints.append(f"{draft} proposes the nearest classes, then pass {argument('labels', 'mapping.csv')}")
    return UnknownClassesError(
        f"{len(unknown)} of {len(folders)} folders are not classes of {space.name!r}",
        found=listed(unknown),
        expected=f"indices 0 to {len(space) - 1}, or names such as {listed(space.names)}",
        hint="; ".join(hints) or f"{argument('labels', FOLDERS)} takes the classes of the folders, in sorted order",
    )


def _unnamed_words(folders: Sequence[str]) -> tuple[LabelSpace, dict[str, int]]:
    """The space of which the folders are all classes, by their names.

    A part of a space must be confirmed by the user: two folders "cat" and "dog" are more likely a dataset of one's own
    than CIFAR-10.
    """
    containing = []
    nearest: LabelSpace | None = None
    most_hits = 0
    for name in _NAMED_SPACES:
        space = label_space(name)
        classes = classes_by_name(space)
        hits = sum(plain(folder) in classes for folder in folders)
        if hits == len(folders) == len(space):
            return space, _words(folders, space)
        if hits == len(folders):
            containing.append(space)
        elif hits >= max(2, 0.8 * len(folders)) and hits > most_hits:
            nearest = space
            most_hits = hits
    if containing:
        complete_spaces = [f"all {len(space)} classes of {space.name!r}" for space in containing[:2]]
        raise UnknownClassesError(
            "the folders are classes of a known space, but not all of them",
            found=f"{len(folders)} folders: {listed(folders)}",
            expected=" or ".join(complete_spaces),
            hint=f"{argument('labels', containing[0].name)}, or {argument('labels', FOLDERS)} if they are classes of "
            "your own",
        )
    if nearest is not None:
        unknown = [folder for folder in folders if not classes_named(folder, nearest)]
        raise _unknown_words(folders, unknown, nearest)
    mixture = ""
    integers = sum(map(_is_integer, folders))
    if integers:
        mixture = f" ({integers} integers among {len(folders)} names)"
    raise UnknownClassesError(
        "the class folders match no known label space",
        found=f"{len(folders)} folders: {listed(folders)}{mixture}",
        expected="integers 0 to 999, wnids such as n01440764, or the class names of a known space",
        hint=f"classes of your own: {argument('labels', FOLDERS)} (sorted), or a file of the classes in order",
    )


def outcome_warnings(
    labels: Ints,
    top1: Ints,
    space: LabelSpace,
    *,
    chosen_to_fool: bool = False,
    preprocessing_assumed: bool = False,
    about: str = "",
) -> list[ResultWarning]:
    """Warnings for the user; empty if nothing looks wrong.

    Images without a label or a prediction (-1) do not count. ``chosen_to_fool`` means that the images were
    selected for being misclassified: then low accuracy and systematic confusion of classes are expected.
    ``preprocessing_assumed`` means that the model may have been trained on other values or another order of the
    channels: classes that differ by colour are then exchanged as if the labels were. ``about`` begins the messages.
    """
    labels = np.asarray(labels)
    top1 = np.asarray(top1)
    valid = (labels >= 0) & (top1 >= 0)
    labels = labels[valid].astype(np.int64)
    top1 = top1[valid].astype(np.int64)
    if not len(labels) or len(space) < 2:
        return []
    explanation = _usual_mistake(labels, top1, space)
    if not chosen_to_fool:
        learnt = _learnt_mapping(labels, top1, space)
        # A usual mistake is the better explanation, unless it leaves much unexplained.
        if explanation is None or (learnt and learnt.accuracy > explanation.accuracy + _GAIN):
            explanation = learnt
    if explanation:
        direct = float((labels == top1).mean())
        text = (
            f"labels look permuted: top-1 is {100 * direct:.1f} % as labelled, but "
            f"{100 * explanation.accuracy:.1f} % if {explanation.mistake}"
        )
        advice = f"; {argument('labels')} takes the classes in the order of the model's outputs"
        if preprocessing_assumed:
            advice = (
                "; wrong preprocessing can look the same, and it is assumed: confirm it first (`shiftbench doctor` "
                f"tests both){advice}"
            )
        return [ResultWarning(f"{about}{text}{advice}", "permuted-labels")]
    if chosen_to_fool:
        return []
    message = _chance_level(labels, top1, space)
    if message is None:
        return []
    return [ResultWarning(about + message, "chance-level")]


def _chance_level(labels: Ints, top1: Ints, space: LabelSpace) -> str | None:
    """A message if the accuracy is that of chance, with the likely causes; None if it is better, or if there are too
    few images to tell."""
    hits = int((labels == top1).sum())
    n = len(labels)
    chance = 1 / len(space)
    low, high = _interval(hits, n, 0.05)
    # The second test asks whether there were enough images to distinguish a fair model from chance.
    if low > chance or high > (1 + chance) / 2:
        return None
    most_frequent = np.bincount(top1).max() / n
    causes = "labels in another order, wrong preprocessing, untrained weights, or images chosen to fool it"
    if most_frequent > 0.9 and len(np.unique(labels)) > 1:
        causes = f"{100 * most_frequent:.0f} % of predictions are one class: wrong preprocessing or untrained weights"
    return (
        f"top-1 is at chance level: {hits} of {n} right ({100 * hits / n:.2f} %, chance is {100 * chance:.2f} % for "
        f"{len(space)} classes); likely causes: {causes}"
    )


def _usual_mistake(labels: Ints, top1: Ints, space: LabelSpace) -> Explanation | None:
    """The usual mistake that explains the predictions best, if any."""
    best: Explanation | None = None
    for mistake, mapping in usual_mistakes(space):
        usable = labels < len(mapping)
        mapped = np.where(usable, mapping[np.minimum(labels, len(mapping) - 1)], -1)
        accuracy = float((mapped == top1).mean())
        if _explains(labels, top1, mapped) and (best is None or accuracy > best.accuracy):
            best = Explanation(accuracy, mistake)
    return best


def usual_mistakes(space: LabelSpace) -> Iterator[tuple[str, Ints]]:
    """Mistakes in words, each with a mapping: for a label, the class that is predicted if the mistake was made."""
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
    """Whether mapped labels explain more than chance could, by a margin, and not by one frequent class alone."""
    n = len(labels)
    hits = int((labels == top1).sum())
    mapped_hits = int((mapped == top1).sum())
    if mapped_hits - hits < _GAIN * n:
        return False
    _, high = _interval(hits, n, _ALPHA)
    mapped_low, _ = _interval(mapped_hits, n, _ALPHA)
    if mapped_low <= high:
        return False
    classes = len(np.unique(labels[mapped == top1]))
    return classes >= max(2, 0.25 * len(np.unique(labels)))


def _learnt_mapping(labels: Ints, top1: Ints, space: LabelSpace) -> Explanation | None:
    """The best one-to-one mapping, learnt on half of the images of each class and judged on the others.

    Judged on the same images it would always look good when classes have few of them.
    """
    if (labels == top1).mean() > 1 - _GAIN:
        return None
    half = _half_of_each_class(labels)
    n = len(space)
    if half.all() or not half.any() or not _could_gain(labels, top1, half, n):
        return None
    mapped = np.full_like(labels, -1)
    for learning in (half, ~half):
        mapped[~learning] = best_mapping(labels[learning], top1[learning], n)[labels[~learning]]
    if not _explains(labels, top1, mapped):
        return None
    mapping = best_mapping(labels, top1, n)
    present = np.unique(labels)
    moved = present[(mapping[present] != present) & (mapping[present] >= 0)]
    if len(moved) < 2:
        return None
    return Explanation(float((mapped == top1).mean()), _moved_text(moved, mapping, space))


def _half_of_each_class(labels: Ints) -> NDArray[np.bool_]:
    """True for every second image of each class."""
    order = np.argsort(labels, kind="stable")
    starts = np.searchsorted(labels[order], labels[order], side="left")
    half = np.empty(len(labels), dtype=bool)
    half[order] = (np.arange(len(labels)) - starts) % 2 == 0
    return half


def _moved_text(moved: Ints, mapping: Ints, space: LabelSpace) -> str:
    """Which classes are read as others, in words: most by the same distance, or each as another."""
    steps, counts = np.unique(mapping[moved] - moved, return_counts=True)
    if counts.max() / len(moved) > 0.8:
        step = int(steps[counts.argmax()])
        return (
            f"{len(moved)} classes, from {space.names[int(moved.min())]!r} on, are read as the class "
            f"{step:+d} from theirs: a missing or an extra class folder?"
        )
    pairs = []
    for label in moved[:3].tolist():
        read_as = int(mapping[label])
        # A prediction may lie outside the space: then its number stands for its name.
        read_as_name = repr(space.names[read_as]) if read_as < len(space) else str(read_as)
        pairs.append(f"{space.names[label]!r} as {read_as_name}")
    return f"{len(moved)} classes are consistently read as another one ({', '.join(pairs)}, ...)"


def _could_gain(labels: Ints, top1: Ints, half: NDArray[np.bool_], n: int) -> bool:
    """Whether any mapping could explain enough: it has at most the hits of each class's most frequent prediction.

    This is much quicker than the best mapping itself, which a classifier that is right most of the time never needs.
    """
    width = max(n, int(top1.max()) + 1)
    if n * width > _MAX_CELLS:
        return True
    most_hits = 0
    for images in (half, ~half):
        counts = np.bincount(labels[images] * width + top1[images], minlength=n * width)
        most_hits += int(counts.reshape(n, width).max(axis=1).sum())
    return most_hits - int((labels == top1).sum()) >= _GAIN * len(labels)


def best_mapping(labels: Ints, top1: Ints, n: int) -> Ints:
    """The one-to-one mapping from classes to predictions that explains most images; -1 for a class never seen."""
    from scipy.optimize import linear_sum_assignment

    present, row = np.unique(labels, return_inverse=True)
    predicted, column = np.unique(top1, return_inverse=True)
    mapping = np.full(n, -1, dtype=np.int64)
    if len(present) * len(predicted) > _MAX_CELLS:
        return mapping
    confusion = np.zeros((len(present), len(predicted)))
    np.add.at(confusion, (row, column), 1)
    rows, columns = linear_sum_assignment(confusion, maximize=True)
    used = confusion[rows, columns] > 0
    mapping[present[rows[used]]] = predicted[columns[used]]
    return mapping


def _interval(hits: int, n: int, alpha: float) -> tuple[float, float]:
    """The Clopper-Pearson interval of a proportion."""
    from scipy.special import betaincinv

    low = 0.0 if hits == 0 else float(betaincinv(hits, n - hits + 1, alpha / 2))
    high = 1.0 if hits == n else float(betaincinv(hits + 1, n - hits, 1 - alpha / 2))
    return low, high
