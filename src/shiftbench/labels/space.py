"""Label spaces: ordered classes, how scores over one space become scores over another, and images of several labels."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from shiftbench.errors import LabelError, MissingClassesError, argument, listed
from shiftbench.grouping import repeated
from shiftbench.io import html

Scores = NDArray[np.float32]
Labels = NDArray[np.int32]
#: The prediction for an image of which a model named none of the classes, where it was free to: it counts as wrong.
NO_ANSWER = -2
#: Number of classes that a notebook lists.
_MAX_ROWS = 12


@dataclass(frozen=True)
class LabelSpace:
    """Ordered classes.

    Attributes:
        name: Name of the space.
        keys: Stable identifiers of the classes (wnids for ImageNet), in the order of a model's outputs.
        names: Names for people; default: the keys.
        members: For a space of super-classes: for each class, the keys of its finer classes. A class that has none
            (YTBB-Robust has frames of giraffes, ImageNet has no such class) can be a label, never a prediction.

    Example:
        >>> pets = LabelSpace("pets", ("cat", "dog"))
        >>> pets.index("dog")
        1
    """

    name: str
    keys: tuple[str, ...]
    names: tuple[str, ...] = ()
    members: tuple[tuple[str, ...], ...] | None = None
    _positions: dict[str, int] = field(init=False, repr=False, compare=False, hash=False)

    def __post_init__(self) -> None:
        if not self.names:
            object.__setattr__(self, "names", self.keys)
        object.__setattr__(self, "_positions", {key: i for i, key in enumerate(self.keys)})
        # A name with an accent has two spellings in Unicode; copies between systems turn one into the other.
        doubled = sorted(repeated(unicodedata.normalize("NFC", key) for key in self.keys))
        if doubled:
            raise LabelError(f"label space {self.name!r} names a class twice", found=", ".join(doubled[:5]))
        for field_name, values in (("names", self.names), ("members", self.members)):
            if values is not None and len(values) != len(self.keys):
                raise LabelError(
                    f"label space {self.name!r}: {field_name} and keys differ in number",
                    found=len(values),
                    expected=len(self.keys),
                )

    def __len__(self) -> int:
        return len(self.keys)

    def __repr__(self) -> str:
        return f"<LabelSpace {self.name!r}: {len(self)} classes: {listed(self.names, 3)}>"

    def _repr_html_(self) -> str:
        rows = []
        for i, key in enumerate(self.keys[:_MAX_ROWS]):
            rows.append((html.text(i), html.text(key), html.text(self.names[i])))
        notes = []
        if len(self) > _MAX_ROWS:
            notes.append(f"and {len(self) - _MAX_ROWS} more")
        return html.block(
            html.title(f"label space {self.name}", f"{len(self)} classes"),
            html.table(("index", "key", "name"), rows, left=3),
            html.notes(notes),
        )

    def __contains__(self, key: str) -> bool:
        return key in self._positions

    def index(self, key: str) -> int:
        """The position of a class.

        Args:
            key: Key of the class.

        Raises:
            LabelError: No such class.
        """
        try:
            return self._positions[key]
        except KeyError:
            raise LabelError(
                f"label space {self.name!r} has no class {key!r}", expected=f"one of its {len(self)} classes"
            ) from None

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the classes, their order and their members.

        Neither the name of the space nor the names for people count, so that a folder, a table and a list of the same
        classes have the same one.
        """
        text = "\n".join(self.keys)
        if self.members is not None:
            text += "\n--\n" + "\n".join(",".join(sorted(group)) for group in self.members)
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    def subset(self, keys: tuple[str, ...], name: str) -> LabelSpace:
        """The classes ``keys`` in this space's order.

        Args:
            keys: Keys of the classes.
            name: Name of the new space.
        """
        positions = sorted(self.index(key) for key in keys)
        keys_in_order = tuple(self.keys[i] for i in positions)
        names_in_order = tuple(self.names[i] for i in positions)
        return LabelSpace(name, keys_in_order, names_in_order)

    def projection_from(self, source: LabelSpace) -> Projection:
        """How scores over ``source`` become scores over this space: as they are, by subset, or by max.

        Args:
            source: The space that a model's scores are over.

        Raises:
            MissingClassesError: The source lacks classes of this space.
        """
        if source.keys == self.keys:
            return Projection("identity", tuple((i,) for i in range(len(self))))
        if self.members is not None:
            groups = tuple(_indices(source, group) for group in self.members)
            empty = []
            for key, members, group in zip(self.keys, self.members, groups, strict=True):
                # A class that is declared without members is meant so; one whose members the source lacks is not.
                if members and not group:
                    empty.append(key)
            if empty or not any(groups):
                raise MissingClassesError(
                    f"{len(empty)} classes of {self.name!r} have no member in {source.name!r}",
                    len(empty),
                    found=", ".join(empty[:5]),
                )
            return Projection("max", groups)
        missing = [key for key in self.keys if key not in source]
        if missing:
            raise MissingClassesError(
                f"a model over {source.name!r} can't be scored over {self.name!r}: "
                f"{len(missing)} of {len(self)} classes are missing",
                len(missing),
                found=f"no {', '.join(missing[:5])}",
                expected=f"all classes of {self.name!r}",
                hint=f"check the model's label space: {argument('labels')}",
            )
        return Projection("subset", tuple((source.index(key),) for key in self.keys))

    def relabel_from(self, source: LabelSpace) -> Labels:
        """For each class of ``source`` its index here, or -1 where this space lacks it.

        Args:
            source: The space that the labels are in.
        """
        if self.members is None:
            return np.array([self._positions.get(key, -1) for key in source.keys], dtype=np.int32)
        positions = dict(self._positions)
        for i, group in enumerate(self.members):
            positions |= dict.fromkeys(group, i)
        return np.array([positions.get(key, -1) for key in source.keys], dtype=np.int32)


def _indices(space: LabelSpace, keys: Sequence[str]) -> tuple[int, ...]:
    """The positions of the keys in the space; keys that it lacks are left out."""
    return tuple(space.index(key) for key in keys if key in space)


#: What a user may ask for: a space, its name, or nothing.
AskedSpace = LabelSpace | str | None


@dataclass(frozen=True)
class Projection:
    """Columns of the target as groups of columns of the source.

    Attributes:
        kind: ``"identity"``, ``"subset"`` or ``"max"``.
        groups: For each class of the target, the columns of the source.
    """

    kind: str
    groups: tuple[tuple[int, ...], ...]

    def __call__(self, scores: Scores) -> Scores:
        """Restrict before softmax and argmax: the left-out classes must not compete.

        >>> Projection("subset", ((2,), (0,)))(np.array([[1.0, 9.0, 3.0]], dtype=np.float32))
        array([[3., 1.]], dtype=float32)
        >>> Projection("max", ((0, 1), (2,)))(np.array([[1.0, 9.0, 3.0]], dtype=np.float32))
        array([[9., 3.]], dtype=float32)

        A class without members gets the least score that any member has, so that it is never the best.

        >>> Projection("max", ((0, 1), (), (2,)))(np.array([[1.0, 9.0, 3.0]], dtype=np.float32))
        array([[9., 1., 3.]], dtype=float32)
        """
        if self.kind == "identity":
            return scores
        if self.kind == "subset":
            return scores[:, [group[0] for group in self.groups]]
        members = sorted(set(chain.from_iterable(self.groups)))
        least = scores[:, members].min(axis=1)
        columns = []
        for group in self.groups:
            if group:
                columns.append(scores[:, list(group)].max(axis=1))
            else:
                columns.append(least)
        return np.stack(columns, axis=1)


LabelSets = Sequence[tuple[int, ...]]


def single_labels(sets: LabelSets) -> Labels:
    """The class of each image that has exactly one; -1 for the others, which scores of one label leave out."""
    labels = np.full(len(sets), -1, dtype=np.int32)
    for i, classes in enumerate(sets):
        if len(classes) == 1:
            labels[i] = classes[0]
    return labels


def relabel_sets(sets: LabelSets, source: LabelSpace, target: LabelSpace) -> list[tuple[int, ...]]:
    """The same sets over ``target``, without the classes that it lacks."""
    table = target.relabel_from(source).tolist()
    relabelled = []
    for classes in sets:
        target_classes = {table[label] for label in classes}
        relabelled.append(tuple(sorted(target_classes - {-1})))
    return relabelled


def multi_hot(sets: LabelSets, classes: int) -> NDArray[np.bool_]:
    """A table (images, classes) that is true where an image has the class."""
    table = np.zeros((len(sets), classes), dtype=np.bool_)
    rows = np.repeat(np.arange(len(sets)), [len(labels) for labels in sets])
    table[rows, list(chain.from_iterable(sets))] = True
    return table
