"""Classes found by name: however it is spelt, by a synonym, or the nearest one."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

from shiftbench.labels.space import LabelSpace

#: Groups of ImageNet classes that other datasets have made, the most careful first.
_GROUPS = ("objectnet-113", "vid-robust-30", "ytbb-robust-24", "imagenet-22k-25")


def plain(name: str) -> str:
    """A name without what does not distinguish class names: case, spaces, underscores, hyphens, apostrophes."""
    return re.sub(r"[^\w]|_", "", name).casefold()


@lru_cache(maxsize=16)
def classes_by_name(space: LabelSpace) -> dict[str, list[int]]:
    """Each plain name with the classes it may mean; "crane (bird)" is also found under "crane".

    Synonyms of ImageNet's classes count where no class has the name itself.
    """
    found: dict[str, list[int]] = {}
    for i, (key, name) in enumerate(zip(space.keys, space.names, strict=True)):
        for one in {plain(key), plain(name), plain(name.split("(")[0])}:
            found.setdefault(one, []).append(i)
    others: dict[str, list[int]] = {}
    for i, key in enumerate(space.keys):
        for one in {plain(name) for name in _synonyms(key)} - found.keys():
            others.setdefault(one, []).append(i)
    return others | found


def _synonyms(key: str) -> tuple[str, ...]:
    from shiftbench.labels.builtin import imagenet_synonyms

    return imagenet_synonyms().get(key, ())


def classes_named(name: str, space: LabelSpace) -> list[int]:
    """The classes that a name may mean, none if it is unknown.

    "tench, Tinca tinca" is how full ImageNet synsets are often written: the first name counts.

    >>> from shiftbench.labels.catalogue import label_space
    >>> imagenet = label_space("imagenet-1k")
    >>> [imagenet.names[i] for i in classes_named("tabby_cat", imagenet)]
    ['tabby']
    """
    known = classes_by_name(space)
    return known.get(plain(name)) or known.get(plain(name.split(",")[0])) or []


def nearest_names(name: str, space: LabelSpace, most: int = 3) -> list[str]:
    """Names of classes that are spelt similarly, or contain the name; none for names too short to tell."""
    wanted, known = plain(name), classes_by_name(space)
    if len(wanted) < 4:
        return []
    close = difflib.get_close_matches(wanted, known, n=most, cutoff=0.75)
    close += [one for one in known if wanted in one]
    found = dict.fromkeys(space.names[i] for one in close for i in known[one])
    return list(found)[:most]


@dataclass(frozen=True)
class Proposal:
    """The classes of a space that one of the user's own classes may be.

    Attributes:
        own: The user's class.
        members: Keys of the proposed classes; empty if none is certain enough to be used unseen.
        why: "name" or "synonym" (exact), "group" (classes that another dataset groups under that name), "ambiguous"
            or "similar" (to be decided by the user), or "" (nothing found).
        candidates: Names of the members, or of what the user may choose from.
    """

    own: str
    members: tuple[str, ...]
    why: str
    candidates: tuple[str, ...]


def propose_members(own: Iterable[str], space: LabelSpace) -> list[Proposal]:
    """For each of the user's classes the classes of ``space`` that it may be.

    Args:
        own: Names of the user's classes, such as folders.
        space: The classes of the model.

    Returns:
        One proposal per class, in order.

    Example:
        >>> from shiftbench.labels.catalogue import label_space
        >>> found = propose_members(["tabby cat", "bannana"], label_space("imagenet-1k"))
        >>> [(one.why, one.candidates[0]) for one in found]
        [('synonym', 'tabby'), ('similar', 'banana')]
    """
    found = [_proposal(name, space) for name in own]
    exact = {one.members[0] for one in found if one.why in ("name", "synonym")}
    return [_without(one, exact, space) if one.why == "group" else one for one in found]


def _proposal(own: str, space: LabelSpace) -> Proposal:
    found = classes_named(own, space)
    names = tuple(space.names[i] for i in found)
    if len(found) == 1:
        exact = plain(own) in (plain(names[0]), plain(space.keys[found[0]]))
        return Proposal(own, (space.keys[found[0]],), "name" if exact else "synonym", names)
    if found:
        return Proposal(own, (), "ambiguous", names)
    grouped = _group(own, space)
    if grouped:
        return Proposal(own, grouped, "group", tuple(space.names[space.index(key)] for key in grouped))
    near = tuple(nearest_names(own, space))
    return Proposal(own, (), "similar" if near else "", near)


def _without(group: Proposal, exact: set[str], space: LabelSpace) -> Proposal:
    """A group without the classes that are classes of the user's own: `dog` beside `golden retriever`."""
    members = tuple(key for key in group.members if key not in exact)
    return replace(group, members=members, candidates=tuple(space.names[space.index(key)] for key in members))


def _group(own: str, space: LabelSpace) -> tuple[str, ...]:
    from shiftbench.labels.catalogue import label_space

    for groups in map(label_space, _GROUPS):
        for i in classes_by_name(groups).get(plain(own), []):
            members = tuple(key for key in (groups.members or ())[i] if key in space)
            if members:
                return members
    return ()
