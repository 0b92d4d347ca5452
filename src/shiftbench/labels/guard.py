"""The guard against wrong label maps, the field's most common error.

Before a run, folder names (or label columns) are recognised or rejected; after a run, ``outcome_warnings``
checks the result for signs that labels and predictions number the classes differently.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Sequence

from shiftbench.errors import LabelError, UnknownClassesError, argument, listed
from shiftbench.labels.catalogue import FOLDERS, label_space, label_spaces
from shiftbench.labels.names import classes_by_name, classes_named, nearest_names, plain
from shiftbench.labels.sanity_checks import outcome_warnings
from shiftbench.labels.space import AskedSpace, LabelSpace

__all__ = ["folder_space", "outcome_warnings", "recognise_folders", "recognise_names"]

_WNID = re.compile(r"n\d{8}")
#: The sets of class names that folders may be named after; subsets by wnid are found by ``_wnid_space``.
_NAMED_SPACES = ("imagenet-1k", "imagenet-a-200", "imagenet-o-200", "imagenet-r-200", "cifar-10", "cifar-100")


def recognise_folders(names: Iterable[str], space: AskedSpace = None) -> tuple[LabelSpace, dict[str, int]]:
    """The label space that class folders belong to, and the index of each folder's class.

    Folders may be named by integers, by wnids or by class names. With ``space`` they must fit it;
    ``space="folders"`` takes the folder names themselves as the classes. Anything that leaves room for
    doubt is an error.

    >>> space, index = recognise_folders(str(i) for i in range(1000))
    >>> space.name, index["10"], index["2"]
    ('imagenet-1k', 10, 2)
    >>> recognise_folders(["n01440764", "n01443537"], "imagenet-1k")[1]
    {'n01440764': 0, 'n01443537': 1}
    """
    folders = sorted(set(names))
    if not folders:
        raise LabelError("no class folders", expected="one folder per class")
    if space == FOLDERS:
        own = folder_space(folders)
        return own, {folder: i for i, folder in enumerate(own.keys)}
    if space is not None:
        target = label_space(space) if isinstance(space, str) else space
        return target, _fit(folders, target)
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
        if _in_order(names, target):
            return target, list(range(len(names)))
    try:
        target, index = recognise_folders(names, asked)
    except LabelError:
        if asked is not None:
            raise
        return LabelSpace(own, tuple(names)), list(range(len(names)))
    return target, [index[name] for name in names]


def _in_order(names: Sequence[str], space: LabelSpace) -> bool:
    """All classes, 95 % of the names at their positions, and no name at the position of another class."""
    if len(names) != len(space):
        return False
    found = [classes_named(name, space) for name in names]
    right = sum(i in candidates for i, candidates in enumerate(found))
    wrong = sum(bool(candidates) and i not in candidates for i, candidates in enumerate(found))
    return wrong == 0 and right >= 0.95 * len(names)


def folder_space(folders: Iterable[str], name: str = FOLDERS) -> LabelSpace:
    """The space whose classes are the folders, sorted as text, or as numbers if all are."""
    folders = sorted(set(folders))
    if all(map(_is_integer, folders)):
        folders.sort(key=int)
    return LabelSpace(name, tuple(folders))


def _is_integer(name: str) -> bool:
    return name.isascii() and name.isdecimal()


def _fit(folders: Sequence[str], space: LabelSpace) -> dict[str, int]:
    """Folders to indices of a space the user named: by key, else by integer, else by name."""
    if all(folder in space for folder in folders):
        return {folder: space.index(folder) for folder in folders}
    if all(map(_is_integer, folders)):
        return _integers(folders, space)
    if any(map(_WNID.fullmatch, folders)) and any(map(_WNID.fullmatch, space.keys)):
        raise _foreign(folders, [f for f in folders if f not in space], space, "wnids")
    return _words(folders, space)


def _integers(folders: Sequence[str], space: LabelSpace) -> dict[str, int]:
    """Always by value, never by sorting: sorted as text, 0..999 begins 0, 1, 10, 100."""
    index = {folder: int(folder) for folder in folders}
    doubled = [folder for folder, count in Counter(index.values()).items() if count > 1]
    if doubled:
        raise LabelError("two folders have the same integer value", found=f"{doubled[0]} with and without zeros")
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
        raise _foreign(folders, unknown, full, "wnids")
    for letter in "aor":
        subset = label_space(f"imagenet-{letter}-200")
        if set(folders) == set(subset.keys):
            return subset
    return full


def _foreign(folders: Sequence[str], unknown: Sequence[str], space: LabelSpace, what: str) -> LabelError:
    near = difflib.get_close_matches(unknown[0], space.keys, n=1, cutoff=0.8)
    inside_1k = all(f in label_space("imagenet-1k") for f in unknown)
    hint = f"{unknown[0]!r} is close to {near[0]!r}: a typo?" if near and len(unknown) < 4 else None
    if inside_1k and space.name != "imagenet-1k":
        hint = f"open it as {argument('labels', 'imagenet-1k')} and take the subset of classes"
    return LabelError(
        f"{len(unknown)} of {len(folders)} folders are not classes of {space.name!r}",
        found=listed(unknown),
        expected=f"{what} of {space.name!r}, such as {space.keys[0]}",
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
        hint="; ".join(hints) or None,
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
    raise UnknownClassesError(
        "the class folders match no known label space",
        found=f"{len(folders)} folders: {listed(folders)}{_mixture(folders)}",
        expected="integers 0 to 999, wnids such as n01440764, or the class names of a known space",
        hint=f"classes of your own: {argument('labels', FOLDERS)} (sorted), or a file of the classes in order",
    )


def _mixture(folders: Sequence[str]) -> str:
    integers = sum(map(_is_integer, folders))
    return f" ({integers} integers among {len(folders)} names)" if integers else ""
