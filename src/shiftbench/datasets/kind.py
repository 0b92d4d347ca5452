"""A kind of dataset: how a path of it is recognised, opened and checked."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from fnmatch import translate
from itertools import islice
from typing import Any

from shiftbench.datasets.base import Dataset
from shiftbench.errors import DatasetError
from shiftbench.io.paths import Location, is_object, local
from shiftbench.labels.catalogue import label_space
from shiftbench.labels.space import AskedSpace, LabelSpace


@dataclass
class DataReport:
    """What lies at a path, and what is missing from it.

    Attributes:
        path: The path that was looked at.
        what: Title of the dataset that it is.
        seen: What was found there.
        role: The role that it can fill.
        suite: A suite that uses it.
        images: Number of images.
        images_expected: Number of images of the published dataset.
        classes: Number of classes.
        classes_expected: Number of classes of the published dataset.
        space: Name of its label space.
        notes: Further remarks.
        missing: What is missing or wrong.
        home: Web page of the dataset.
        parts: Reports on the datasets below it.
        kind: Name of the dataset kind.
    """

    path: str
    what: str | None
    seen: str
    role: str | None = None
    suite: str | None = None
    images: int = 0
    images_expected: int | None = None
    classes: int = 0
    classes_expected: int | None = None
    space: str | None = None
    notes: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    home: str | None = None
    parts: list[DataReport] = field(default_factory=list)
    kind: str | None = None

    @property
    def ok(self) -> bool:
        return not self.missing and all(part.ok for part in self.parts)

    def as_dict(self) -> dict[str, Any]:
        """JSON-able."""
        parts = [part.as_dict() for part in self.parts]
        return {**asdict(self), "parts": parts, "ok": self.ok}

    def count(self, dataset: Dataset) -> None:
        """Fill in the images and classes of an opened dataset."""
        self.images, self.space = len(dataset), dataset.space.name
        self.classes, self.classes_expected = len(set(dataset.labels.tolist()) - {-1}), len(dataset.space)

    def expect_images(self, expected: int) -> None:
        """Note the number of images that the published dataset has."""
        self.images_expected = expected
        if self.images < expected:
            self.missing.append(f"{expected - self.images:,} of {expected:,} images")


class DatasetKind:
    """How datasets of one kind are recognised, opened and checked.

    Args:
        recognise: Describes in a few words what lies at a path of this kind; None for any other path. It looks at file
            names, not at contents, and also recognises incomplete datasets.
        open: ``open(path, *, space, name, ...)`` opens it; its further keyword parameters are the options of the kind.
        check: Compares a recognised path with the published dataset; None if it is not a published one.
        by_url: Whether it reads ``shiftbench.io.paths.place(path)`` and so opens s3://bucket/folder as well.
        first: Whether it is tried before the built-in kinds.
    """

    def __init__(
        self,
        recognise: Callable[[Location], str | None],
        open: Callable[..., Dataset],
        check: Callable[[Location], DataReport | None] = lambda path: None,
        *,
        by_url: bool = False,
        first: bool = False,
    ) -> None:
        self.recognise, self.open, self.check = recognise, open, check
        self.by_url, self.first = by_url, first

    def may_be(self, own: Iterable[str], entries: Iterable[str]) -> bool:
        """Whether a path with these names (its own, and those of its entries) is worth asking ``recognise`` about."""
        return True


class LazyKind(DatasetKind):
    """A built-in kind, whose module is imported only for paths that could be of this kind.

    ``home`` is ``module:NAME``. ``marks`` are name patterns: every path of the kind has such a name, or, for patterns
    that begin with a slash, an entry of such a name.
    """

    first = False

    def __init__(self, home: str, marks: str) -> None:
        self._home = home
        self._own = _any_of([mark for mark in marks.split() if not mark.startswith("/")])
        self._entries = _any_of([mark[1:] for mark in marks.split() if mark.startswith("/")])

    def may_be(self, own: Iterable[str], entries: Iterable[str]) -> bool:
        return any(map(self._own, own)) or any(map(self._entries, entries))

    def __getattr__(self, name: str) -> Any:
        """On first use, become the kind that the module defines."""
        module, _, variable = self._home.partition(":")
        loaded: DatasetKind = getattr(importlib.import_module(f"shiftbench.datasets.{module}"), variable)
        vars(self).update(vars(loaded))
        return getattr(loaded, name)


def _any_of(patterns: Iterable[str]) -> Callable[[str], object]:
    return re.compile("|".join(map(translate, patterns)) or "(?!)").match


def own_space(own: str, asked: AskedSpace, *, projectable: bool = False) -> LabelSpace:
    """The label space of a dataset whose files determine its classes; asking for another one is an error.

    ``projectable`` accepts the label space of a model whose predictions can be projected onto it, such as imagenet-1k.
    """
    target = label_space(own)
    wanted = label_space(asked) if isinstance(asked, str) else asked
    if wanted is None or wanted.keys == target.keys:
        return wanted or target
    if not projectable:
        raise DatasetError(
            f"the labels of these files are {own}", found=f"the label space {wanted.name!r}", expected=own
        )
    target.projection_from(wanted)  # raises for unrelated spaces
    return target


def entry_names(path: Location, most: int = 4096) -> Iterator[str]:
    """Names of a folder's entries; a few thousand are enough to recognise it."""
    if is_object(path):
        yield from (entry.name for entry in islice(path.iterdir(), most))
        return
    try:
        with os.scandir(local(path)) as entries:
            yield from (entry.name for entry in islice(entries, most))
    except OSError:  # not a folder, or not readable: opening it reports the reason
        return
