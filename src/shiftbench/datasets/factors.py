"""Factor-split sets: a table of metadata and a protocol make one training set, one test set like it, and test sets
that differ from it in one factor each.

A protocol is a TOML file (see ``protocols/`` beside this one)::

    name = "shops"            # what the sets are called: shops.train, shops.test, shops.year-2018, ...
    label = "business"        # the column of classes
    [parts]                   # which rows may train, which may test; leave it out if all may do both
    column = "part"
    train = ["train"]
    test = ["test"]
    shifted = ["test"]
    [base]                    # the factors, and their values in training and in the test set like it
    country = ["US", "CA"]
    year = [2019]
    [shifts.year-2018]        # one factor, and its other values
    year = [2018]

A picture may have several rows, one an object (``several_labels``): it belongs to a set if one of its rows does, and
its labels are those of the rows that do.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftbench.datasets.base import Dataset
from shiftbench.datasets.files import FileDataset
from shiftbench.datasets.manifest import PATH_COLUMNS, read_rows
from shiftbench.errors import DatasetError
from shiftbench.labels.guard import folder_space, recognise_folders
from shiftbench.labels.space import LabelSpace

Row = Mapping[str, Any]
Values = Mapping[str, tuple[str, ...]]
TRAIN, TEST = "train", "test"


@dataclass(frozen=True)
class Protocol:
    """How a table is split by factors. Values are compared as text, for a CSV file knows nothing else."""

    name: str
    label: str
    base: Values
    #: Set name to the one factor that differs and its values.
    shifts: Mapping[str, tuple[str, tuple[str, ...]]]
    part_column: str | None = None
    #: "train", "test" and "shifted" to values of the part column.
    parts: Values = field(default_factory=dict)
    several_labels: bool = False
    metric: str = "top1"

    @property
    def sets(self) -> tuple[str, ...]:
        """Training, the test set like it, then the shifted ones."""
        return (TRAIN, TEST, *self.shifts)

    def conditions(self, which: str) -> dict[str, tuple[str, ...]]:
        """Column to the values that a row of this set may have.

        >>> read_protocol("streetview-storefronts").conditions("year-2018")["year"]
        ('2018',)
        """
        wanted = dict(self.base)
        if which in self.shifts:
            factor, values = self.shifts[which]
            wanted[factor] = values
        elif which not in (TRAIN, TEST):
            raise DatasetError(f"{self.name!r} has no set {which!r}", expected=", ".join(self.sets))
        if self.part_column is not None:
            wanted[self.part_column] = self.parts["shifted" if which in self.shifts else which]
        return wanted


def protocols() -> list[str]:
    """The protocols that come with the package.

    >>> protocols()
    ['deepfashion-remixed', 'streetview-storefronts']
    """
    folder = resources.files("shiftbench.datasets").joinpath("protocols")
    return sorted(file.name.removesuffix(".toml") for file in folder.iterdir() if file.name.endswith(".toml"))


def read_protocol(source: str | Path) -> Protocol:
    """A protocol of the package by its name, or one of your own by the path of its TOML file."""
    if str(source) in protocols():
        text = resources.files("shiftbench.datasets").joinpath(f"protocols/{source}.toml").read_text("utf-8")
    else:
        try:
            text = Path(source).read_text("utf-8")
        except OSError as error:
            known = f"a TOML file, or one of {', '.join(protocols())}"
            raise DatasetError(f"there is no protocol {source}", expected=known) from error
    try:
        return _protocol(tomllib.loads(text), str(source))
    except (tomllib.TOMLDecodeError, KeyError, AttributeError, TypeError) as error:
        raise DatasetError(f"the protocol {source} can't be used", found=f"{type(error).__name__}: {error}") from error


def _protocol(value: Mapping[str, Any], source: str) -> Protocol:
    shifts = {}
    for name, changed in value["shifts"].items():
        if len(changed) != 1 or next(iter(changed)) not in value["base"]:
            raise DatasetError(
                f"the shift {name!r} of protocol {source} must change one factor",
                found=", ".join(changed) or "none",
                expected=f"one of {', '.join(value['base'])}",
            )
        factor, values = next(iter(changed.items()))
        shifts[name] = (factor, _texts(values))
    parts = dict(value.get("parts", {}))
    column = parts.pop("column", None)
    missing = {TRAIN, TEST, "shifted"} - set(parts)
    if column is not None and missing:
        raise DatasetError(f"protocol {source}: [parts] lacks {', '.join(sorted(missing))}")
    return Protocol(
        value["name"],
        value["label"],
        {factor: _texts(values) for factor, values in value["base"].items()},
        shifts,
        column,
        {part: _texts(values) for part, values in parts.items()},
        bool(value.get("several_labels", False)),
        value.get("metric", "top1"),
    )


def _texts(values: Any) -> tuple[str, ...]:
    return tuple(_text(value) for value in (values if isinstance(values, list) else [values]))


def _text(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value).strip()


def split_rows(rows: Sequence[Row], protocol: Protocol) -> dict[str, list[int]]:
    """For each set the rows that belong to it.

    >>> shops = [{"country": "US", "year": y, "camera": "new", "part": "test"} for y in (2019, 2018)]
    >>> split_rows(shops, read_protocol("streetview-storefronts"))["year-2018"]
    [1]
    """
    columns = {*protocol.base, *([protocol.part_column] if protocol.part_column else [])}
    lacking = sorted(column for column in columns if rows and column not in rows[0])
    if lacking or not rows:
        raise DatasetError(
            f"the table lacks what the protocol {protocol.name!r} splits by",
            found=f"columns {', '.join(rows[0])}" if rows else "no rows",
            expected=f"columns {', '.join(sorted(columns))}",
        )
    table = {column: [_text(row[column]) for row in rows] for column in columns}
    sets = {}
    for which in protocol.sets:
        wanted = protocol.conditions(which)
        sets[which] = [i for i in range(len(rows)) if all(table[c][i] in values for c, values in wanted.items())]
    return sets


def open_splits(
    table: str | Path | Sequence[Row],
    protocol: str | Path | Protocol,
    *,
    root: str | Path | None = None,
    space: LabelSpace | str | None = None,
) -> dict[str, Dataset]:
    """The data sets of a protocol, named ``<protocol>.<set>``; sets without a picture are left out.

    ``table`` is a CSV or JSONL file with a column ``path``, or rows; paths are relative to ``root``, else to the
    table's folder. Without a ``space`` the classes are those of the whole table, sorted. All factor columns are
    metadata of the pictures, for scores by group.
    """
    chosen = protocol if isinstance(protocol, Protocol) else read_protocol(protocol)
    rows = read_rows(Path(table)) if isinstance(table, str | Path) else list(table)
    base = Path(root) if root is not None else Path(table).parent if isinstance(table, str | Path) else Path()
    sets = split_rows(rows, chosen)
    if chosen.label not in rows[0]:
        raise DatasetError(f"the table has no column {chosen.label!r}", expected="the labels of the pictures")
    classes = {_text(row[chosen.label]) for row in rows}
    target = folder_space(classes, chosen.name) if space is None else recognise_folders(classes, space)[0]
    index = {key: i for i, key in enumerate(target.keys)} if space is None else recognise_folders(classes, space)[1]
    return {
        f"{chosen.name}.{which}": _dataset(
            f"{chosen.name}.{which}", chosen, [rows[i] for i in found], base, target, index
        )
        for which, found in sets.items()
        if found
    }


def _dataset(
    name: str, protocol: Protocol, rows: Sequence[Row], root: Path, space: LabelSpace, index: Mapping[str, int]
) -> FileDataset:
    """One picture a path; its rows give its labels."""
    column = next((c for c in PATH_COLUMNS if c in rows[0]), None)
    if column is None:
        raise DatasetError("the table does not say where the pictures are", expected=f"a column {PATH_COLUMNS[0]!r}")
    pictures: dict[str, list[Row]] = {}
    for row in rows:
        pictures.setdefault(_inside(str(row[column])), []).append(row)
    labels = [sorted({index[_text(row[protocol.label])] for row in group}) for group in pictures.values()]
    double = next((path for path, group in pictures.items() if len(group) > 1), None)
    if double is not None and not protocol.several_labels:
        raise DatasetError(f"the table lists {double} twice", expected="one row a picture, or several_labels = true")
    metadata: dict[str, list[Any]] = {
        factor: [_text(group[0][factor]) for group in pictures.values()] for factor in protocol.base
    }
    if protocol.several_labels:
        metadata["labels"] = [tuple(found) for found in labels]
    return FileDataset(name, space, root, list(pictures), [found[0] for found in labels], metadata=metadata)


def _inside(path: str) -> str:
    """A table may come from anyone: its paths stay below the root, on Windows too."""
    parts = path.replace("\\", "/").split("/")
    if not path or path.startswith(("/", "\\")) or ":" in parts[0] or ".." in parts:
        raise DatasetError("a path of the table leads out of its folder", found=path, expected="a path below it")
    return path


def multi_hot(dataset: Dataset) -> NDArray[np.int8]:
    """(images, classes) of 0 and 1 from the metadata column ``labels`` of a set of several labels an image."""
    if "labels" not in dataset.metadata:
        raise DatasetError(f"{dataset.name!r} has one label an image", expected="a set with several_labels = true")
    table = np.zeros((len(dataset), len(dataset.space)), np.int8)
    for i, labels in enumerate(dataset.metadata["labels"]):
        table[i, list(labels)] = 1
    return table
