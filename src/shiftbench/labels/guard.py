"""The guard against wrong label maps, the field's most common error.

Before a run, folder names (or label columns) are recognised or rejected; after a run, ``outcome_warnings``
checks the result for signs that labels and predictions number the classes differently. That is meant for clean images:
under a strong attack or corruption, chance level is not an error; on images selected because models fail on them, only
the usual mistakes are checked.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from shiftbench.errors import LabelError, ResultWarning, UnknownClassesError, argument, listed
from shiftbench.labels.catalogue import (
    FOLDERS,
    classes_by_name,
    classes_named,
    label_space,
    label_spaces,
    nearest_names,
    plain,
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
#: Spaces of tens of thousands of classes are only searched for the usual mistakes.
_MOST_CELLS = 25_000_000


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
        own = folder_space(folders)
        return own, {folder: i for i, folder in enumerate(own.keys)}
    if space is not None:
        target = label_space(space) if isinstance(space, str) else space
        if all(folder in target for folder in folders):
            return target, {folder: target.index(folder) for folder in folders}
        if all(map(_is_integer, folders)):
            return target, _integers(folders, target)
        if any(map(_WNID.fullmatch, folders)) and any(map(_WNID.fullmatch, target.keys)):
            raise _foreign(folders, [folder for folder in folders if folder not in target], target)
        return target, _words(folders, target)
    if all(map(_is_integer, folders)):
        return _unnamed_integers(folders)
    if any(map(_WNID.fullmatch, folders)):
        target = _wnid_space(folders)
        return target, {folder: target.index(folder) for folder in folders}
    return _unnamed_words(folders)


def recognise_names(
    names: Sequence[str], space: AskedSpace = None, *, own: str = FOLDERS
) -> tuple[LabelSpace, list[int]]:
    """As ``recognise_folders``, for class names that a file declares in order: label i means ``names[i]``.

    Here the order is known, so a few names spelt differently (or shared by two classes) are accepted when all
    others are at their positions. Unknown names become a space of their own, called ``own``, if no space
    was requested.
    """
    if space == FOLDERS:
        return LabelSpace(own, tuple(names)), list(range(len(names)))
    asked = label_space(space) if isinstance(space, str) else space
    for target in [asked] if asked is not None else map(label_space, _NAMED_SPACES):
        if len(names) == len(target):
            found = [classes_named(name, target) for name in names]
            right = sum(i in candidates for i, candidates in enumerate(found))
            wrong = sum(bool(candidates) and i not in candidates for i, candidates in enumerate(found))
            if wrong == 0 and right >= 0.95 * len(names):
                return target, list(range(len(names)))
    try:
        target, index = recognise_folders(names, asked)
    except LabelError:
        if asked is not None:
            raise
        return LabelSpace(own, tuple(names)), list(range(len(names)))
    return target, [index[name] for name in names]


def folder_space(folders: Iterable[str], name: str = FOLDERS) -> LabelSpace:
    """The space whose classes are the folders, sorted as text, or as numbers if all are."""
    folders = sorted(set(folders))
    if all(map(_is_integer, folders)):
        folders.sort(key=int)
    return LabelSpace(name, tuple(folders))


def _is_integer(name: str) -> bool:
    return name.isascii() and name.isdecimal()


def _integers(folders: Sequence[str], space: LabelSpace) -> dict[str, int]:
    """Always by value, never by sorting: sorted as text, 0..999 begins 0, 1, 10, 100."""
    index = {folder: int(folder) for folder in folders}
    doubled = [folder for folder, count in Counter(index.values()).items() if count > 1]
    if doubled:
        raise LabelError("two folders have the same integer value", found=f"{doubled[0]} padded with zeros, and not")
    low, high, n = min(index.values()), max(index.values()), len(space)
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
    """Without a named space only the full 0..999 is unambiguous: 10 folders could be CIFAR-10 or digits."""
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
    """The 200 of ImageNet-A, -O or -R if they are exactly these, else the 1,000."""
    full = label_space("imagenet-1k")
    unknown = [folder for folder in folders if folder not in full]
    if unknown:
        raise _foreign(folders, unknown, full)
    subsets = (label_space(f"imagenet-{letter}-200") for letter in "aor")
    return next((subset for subset in subsets if set(folders) == set(subset.keys)), full)


def _foreign(folders: Sequence[str], unknown: Sequence[str], space: LabelSpace) -> LabelError:
    near = difflib.get_close_matches(unknown[0], space.keys, n=1, cutoff=0.8)
    inside_1k = all(f in label_space("imagenet-1k") for f in unknown)
    hint = f"{unknown[0]!r} is close to {near[0]!r}: a typo?" if near and len(unknown) < 4 else None
    if inside_1k and space.name != "imagenet-1k":
        hint = f"open it as {argument('labels', 'imagenet-1k')} and take the subset of classes"
    return LabelError(
        f"{len(unknown)} of {len(folders)} folders are not classes of {space.name!r}",
        found=listed(unknown),
        expected=f"wnids of {space.name!r}, such as {space.keys[0]}",
        hint=hint or f"for your own classes: {argument('labels', FOLDERS)}, or a file of classes",
    )


def _words(folders: Sequence[str], space: LabelSpace) -> dict[str, int]:
    index: dict[str, int] = {}
    unknown = []
    for folder in folders:
        candidates = classes_named(folder, space)
        if len(candidates) > 1:
            raise LabelError(
                f"the name {folder!r} is ambiguous: {len(candidates)} classes of {space.name!r}",
                found=", ".join(f"{space.names[i]} = {space.keys[i]} (index {i})" for i in candidates),
                hint="name the folder by its wnid or index",
            )
        if candidates:
            index[folder] = candidates[0]
        else:
            unknown.append(folder)
    if unknown:
        raise _unknown_words(folders, unknown, space)
    doubled = [i for i, count in Counter(index.values()).items() if count > 1]
    if doubled:
        same = [folder for folder in folders if index[folder] == doubled[0]]
        raise LabelError("two folders are the same class", found=", ".join(same), expected="one folder per class")
    return index


def _unknown_words(folders: Sequence[str], unknown: Sequence[str], space: LabelSpace) -> UnknownClassesError:
    near = {folder: names[0] for folder in unknown[:3] if (names := nearest_names(folder, space, 1))}
    hints = [f"did you mean {name!r} for {folder!r}?" for folder, name in near.items()]
    if len(near) < len(unknown) and space.name in label_spaces:
        draft = f"`shiftbench data labels FOLDER --to {space.name} -o mapping.csv`"
        hints.append(f"{draft} proposes the nearest classes, then pass {argument('labels', 'mapping.csv')}")
    return UnknownClassesError(
        f"{len(unknown)} of {len(folders)} folders are not classes of {space.name!r}",
        found=listed(unknown),
        expected=f"indices 0 to {len(space) - 1}, or names such as {listed(space.names)}",
        hint="; ".join(hints) or f"{argument('labels', FOLDERS)} takes the classes of the folders, in sorted order",
    )


def _unnamed_words(folders: Sequence[str]) -> tuple[LabelSpace, dict[str, int]]:
    """Names are recognised when they are all the classes of one space. A part of it must be confirmed by the user:
    two folders "cat" and "dog" are more likely a dataset of one's own than CIFAR-10."""
    inside, near_misses = [], []
    for name in _NAMED_SPACES:
        space = label_space(name)
        known = classes_by_name(space)
        hits = [folder for folder in folders if plain(folder) in known]
        if len(hits) == len(folders):
            if len(folders) == len(space):
                return space, _words(folders, space)
            inside.append(name)
        elif len(hits) >= max(2, 0.8 * len(folders)):
            near_misses.append((len(hits), space))
    if inside:
        raise UnknownClassesError(
            "the folders are classes of a known space, but not all of them",
            found=f"{len(folders)} folders: {listed(folders)}",
            expected=" or ".join(f"all {len(label_space(n))} classes of {n!r}" for n in inside[:2]),
            hint=f"{argument('labels', inside[0])}, or {argument('labels', FOLDERS)} if they are classes of your own",
        )
    if near_misses:
        nearest = max(near_misses, key=lambda pair: pair[0])[1]
        unknown = [folder for folder in folders if not classes_named(folder, nearest)]
        raise _unknown_words(folders, unknown, nearest)
    integers = sum(map(_is_integer, folders))
    mixture = f" ({integers} integers among {len(folders)} names)" if integers else ""
    raise UnknownClassesError(
        "the class folders match no known label space",
        found=f"{len(folders)} folders: {listed(folders)}{mixture}",
        expected="integers 0 to 999, wnids such as n01440764, or the class names of a known space",
        hint=f"classes of your own: {argument('labels', FOLDERS)} (sorted), or a file of the classes in order",
    )


def outcome_warnings(
    labels: Ints, top1: Ints, space: LabelSpace, *, chosen_to_fool: bool = False, about: str = ""
) -> list[ResultWarning]:
    """Warnings for the user; empty if nothing looks wrong.

    Images without a label or a prediction (-1) do not count. ``chosen_to_fool`` means that the images were
    selected for being misclassified: then low accuracy and systematic confusion of classes are expected.
    ``about`` begins the messages.
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
        advice = f"; {argument('labels')} takes the classes in the order of the model's outputs"
        return [ResultWarning(about + text.replace("%", " %") + advice, "permuted-labels")]
    hits, n, chance = int((labels == top1).sum()), len(labels), 1 / len(space)
    low, high = _interval(hits, n, 0.05)
    # the second test: were there enough images to distinguish a fair model from chance?
    if chosen_to_fool or low > chance or high > (1 + chance) / 2:
        return []
    single = np.bincount(top1).max() / n
    causes = "labels in another order, wrong preprocessing, untrained weights, or images chosen to fool it"
    if single > 0.9 and len(np.unique(labels)) > 1:
        causes = f"{100 * single:.0f} % of predictions are one class: wrong preprocessing or untrained weights"
    text = (
        f"top-1 is at chance level: {hits} of {n} right ({100 * hits / n:.2f} %, chance is {100 * chance:.2f} % for "
        f"{len(space)} classes); likely causes: {causes}"
    )
    return [ResultWarning(about + text, "chance-level")]


def _known_mapping(labels: Ints, top1: Ints, space: LabelSpace) -> tuple[float, str] | None:
    """The usual mistake that explains the predictions best, if any."""
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
    if (labels == top1).mean() > 1 - _GAIN:
        return None
    # Every second image of each class.
    order = np.argsort(labels, kind="stable")
    starts = np.searchsorted(labels[order], labels[order], side="left")
    half = np.empty(len(labels), dtype=bool)
    half[order] = (np.arange(len(labels)) - starts) % 2 == 0
    n = len(space)
    if half.all() or not half.any() or not _could_gain(labels, top1, half, n):
        return None
    mapped = np.full_like(labels, -1)
    for part in (half, ~half):
        mapped[~part] = best_mapping(labels[part], top1[part], n)[labels[~part]]
    if not _explains(labels, top1, mapped):
        return None
    mapping = best_mapping(labels, top1, n)
    present = np.unique(labels)
    moved = present[(mapping[present] != present) & (mapping[present] >= 0)]
    if len(moved) < 2:
        return None
    steps, counts = np.unique(mapping[moved] - moved, return_counts=True)
    step, share = int(steps[counts.argmax()]), counts.max() / len(moved)
    if share > 0.8:
        words = (
            f"{len(moved)} classes, from {space.names[int(moved.min())]!r} on, are read as the class "
            f"{step:+d} from theirs: a missing or an extra class folder?"
        )
    else:
        names = {i: repr(name) for i, name in enumerate(space.names)}
        pairs = [f"{names[int(i)]} as {names.get(int(mapping[i]), mapping[i])}" for i in moved[:3]]
        words = f"{len(moved)} classes are consistently read as another one ({', '.join(pairs)}, ...)"
    return float((mapped == top1).mean()), words


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
