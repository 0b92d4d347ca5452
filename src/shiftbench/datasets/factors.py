"""Factor splits: a table of metadata and a protocol define one training set, one test set like it, and test sets
that differ from it in one factor each.

A protocol is a TOML file (see ``protocols/`` beside this one)::

    name = "shops"            # what the sets are called: shops/train, shops/test, shops/year-2018, ...
    label = "business"        # the label column
    metric = "error"          # default: top1
    classes = ["bakery", ...] # in order, or a label space; default: those of the table, sorted
    [parts]                   # which rows are for training and testing; default: all for both
    column = "part"
    train = ["train"]
    test = ["test"]
    shifted = ["test"]
    [base]                    # the factors, and their values in training and in the test set like it
    country = ["US", "CA"]
    year = [2019]
    [shifts.year-2018]        # one factor, and its other values
    year = [2018]
    [published]               # optional: images in each set of the published dataset, for `data factors`
    train = 200000

Each set is a dataset of its own, ``factors:PROTOCOL:TABLE/SET``, such as
``factors:deepfashion-remixed:DeepFashion2/train``.

An image may have several rows, one per object (``several_labels = true``): it belongs to a set if one of its rows
does, and its labels are those of these rows. Such sets are scored by mean average precision.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from shiftbench.datasets.base import Dataset
from shiftbench.datasets.deepfashion2 import deepfashion2_rows, is_deepfashion2
from shiftbench.datasets.files import FileDataset
from shiftbench.datasets.kind import DatasetKind
from shiftbench.datasets.manifest import PATH_COLUMNS, SUFFIXES, read_rows
from shiftbench.errors import DatasetError, listed
from shiftbench.labels.catalogue import FOLDERS, label_space
from shiftbench.labels.guard import folder_space, recognise_folders
from shiftbench.labels.space import AskedSpace, LabelSpace, single_labels

Values = Mapping[str, tuple[str, ...]]
TRAIN, TEST, SHIFTED = "train", "test", "shifted"


@dataclass(frozen=True)
class Protocol:
    """How a table is split by factors. Values are compared as text, the only type of a CSV file."""

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
    #: In order, or the name of a label space; empty for the classes of the table.
    classes: tuple[str, ...] | str = ()
    #: Set name to its number of images in the published dataset.
    published: Mapping[str, int] = field(default_factory=dict)

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
            wanted[self.part_column] = self.parts[SHIFTED if which in self.shifts else which]
        return wanted

    def own_space(self, found: Iterable[str]) -> LabelSpace:
        """The protocol's classes, else those that were found."""
        if isinstance(self.classes, str):
            return label_space(self.classes)
        return LabelSpace(self.name, self.classes) if self.classes else folder_space(found, self.name)

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that the table must have besides paths and labels."""
        return (*self.base, *([self.part_column] if self.part_column else []))


def protocols() -> list[str]:
    """Names of the built-in protocols.

    >>> protocols()
    ['deepfashion-remixed', 'streetview-storefronts']
    """
    folder = resources.files("shiftbench.datasets").joinpath("protocols")
    return sorted(file.name.removesuffix(".toml") for file in folder.iterdir() if file.name.endswith(".toml"))


def read_protocol(source: str | Path | Protocol) -> Protocol:
    """Read a built-in protocol by its name, or your own from a TOML file; a protocol is returned as it is."""
    if isinstance(source, Protocol):
        return source
    if str(source) in protocols():
        text = resources.files("shiftbench.datasets").joinpath(f"protocols/{source}.toml").read_text("utf-8")
    else:
        try:
            text = Path(source).read_text("utf-8")
        except OSError as error:
            known = f"a TOML file, or one of {', '.join(protocols())}"
            raise DatasetError(f"unknown protocol {source}", expected=known) from error
    from shiftbench.io.schema import decode, parse_toml  # late: most runs read no protocol

    what = f"the protocol {source}"
    document = decode(parse_toml(text, what, DatasetError), _Document, what, DatasetError)
    return document.protocol(what)


Value = str | int | float | bool
Choice = Value | list[Value]


@dataclass(frozen=True)
class _Parts:
    column: str
    train: Choice
    test: Choice
    shifted: Choice


@dataclass(frozen=True)
class _Document:
    """A protocol as its TOML file has it."""

    name: str
    label: str
    base: dict[str, Choice]
    shifts: dict[str, dict[str, Choice]]
    parts: _Parts | None = None
    several_labels: bool = False
    metric: str | None = None
    classes: list[Value] | str = field(default_factory=list)
    published: dict[str, int] = field(default_factory=dict)

    def protocol(self, what: str) -> Protocol:
        if "/" in self.name:
            raise DatasetError(f"invalid name of {what}", found=self.name, expected="a name without a slash")
        parts = self.parts
        return Protocol(
            self.name,
            self.label,
            {factor: _texts(values) for factor, values in self.base.items()},
            {name: self._shift(name, changed, what) for name, changed in self.shifts.items()},
            parts.column if parts else None,
            {part: _texts(getattr(parts, part)) for part in (TRAIN, TEST, SHIFTED)} if parts else {},
            self.several_labels,
            self.metric or ("mean_average_precision" if self.several_labels else "top1"),
            self.classes if isinstance(self.classes, str) else _texts(self.classes),
            self.published,
        )

    def _shift(self, name: str, changed: Mapping[str, Choice], what: str) -> tuple[str, tuple[str, ...]]:
        if name in (TRAIN, TEST):
            raise DatasetError(f"invalid name of a shift in {what}", found=name, expected=f"not {TRAIN} or {TEST}")
        if len(changed) != 1 or not changed.keys() <= self.base.keys():
            raise DatasetError(
                f"the shift {name!r} of {what} must change one factor",
                found=", ".join(changed) or "none",
                expected=f"one of {', '.join(self.base)}",
            )
        [(factor, values)] = changed.items()
        return factor, _texts(values)


def _texts(values: Choice) -> tuple[str, ...]:
    return tuple(text_of(value) for value in (values if isinstance(values, list) else [values]))


def split_rows(rows: Sequence[Row], protocol: Protocol) -> dict[str, list[int]]:
    """The rows of each set.

    >>> shops = [{"country": "US", "year": y, "camera": "new", "part": "test"} for y in (2019, 2018)]
    >>> split_rows(shops, read_protocol("streetview-storefronts"))["year-2018"]
    [1]
    """
    lacking = [column for column in protocol.columns if rows and column not in rows[0]]
    if lacking or not rows:
        raise DatasetError(
            f"the table lacks columns of the protocol {protocol.name!r}",
            found=f"columns {', '.join(rows[0])}" if rows else "no rows",
            expected=f"columns {', '.join(sorted(protocol.columns))}",
        )
    table = {column: [text_of(row.get(column)) for row in rows] for column in protocol.columns}
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
    space: AskedSpace = None,
) -> dict[str, Dataset]:
    """Open the datasets of a protocol, named ``<protocol>/<set>``; sets without an image are left out.

    ``table`` is a CSV, TSV, JSONL or Parquet file with a column ``path``, a folder of DeepFashion2, or rows; paths
    are relative to ``root``, else to the table's folder. Without a ``space`` the classes are the protocol's, else
    those of the whole table, sorted. All further columns become metadata, for scores by group.
    """
    chosen = read_protocol(protocol)
    rows, folder = read_table(table) if isinstance(table, str | Path) else (table, Path())
    sets = split_rows(rows, chosen)
    target, index = _classes(rows, chosen, space)
    made = {f"{chosen.name}/{which}": [rows[i] for i in found] for which, found in sets.items() if found}
    base = folder if root is None else Path(root)
    datasets = {name: _dataset(name, chosen, found, base, target, index) for name, found in made.items()}
    training = datasets.get(f"{chosen.name}/{TRAIN}")
    for which in (TEST, *chosen.shifts):
        dataset = datasets.get(f"{chosen.name}/{which}")
        if dataset is not None and training is not None:
            dataset.remarks = shared_images(which, set(dataset.paths), set(training.paths))
    return dict(datasets)


def open_factors(path: str | Path, *, space: AskedSpace = None, name: str | None = None) -> Dataset:
    """One set of a table that a protocol splits: ``factors:PROTOCOL:TABLE/SET``.

    The protocol is built in or a TOML file, the table a CSV, TSV, JSONL or Parquet file or DeepFashion2's folder, the
    set ``train``, ``test`` or one of the protocol's shifts.
    """
    protocol, _, rest = str(path).partition(":")
    chosen = read_protocol(protocol)
    table, which = Path(rest).parent, Path(rest).name
    if not rest or which not in chosen.sets:
        raise DatasetError(
            f"factors:{path} names no set of {chosen.name!r}",
            found=which or "no table",
            expected=f"factors:{protocol}:TABLE/SET, where SET is one of {', '.join(chosen.sets)}",
        )
    opened = open_splits(table, chosen, space=space).get(f"{chosen.name}/{which}")
    if opened is None:
        raise DatasetError(
            f"{table} has no image for {chosen.name}/{which}", hint=f"shiftbench data factors {table} {protocol}"
        )
    opened.name = name or opened.name
    return opened


#: Never guessed from a path: the protocol has to be named.
KIND = DatasetKind(lambda path: None, open_factors)


def shared_images(which: str, images: set[str], training: set[str]) -> list[str]:
    """What to report of a set that has images of the training set, where it is not independent of it."""
    shared = len(images & training)
    if not shared:
        return []
    return [f"{shared:,} of the {len(images):,} images of {which} are also in training"]


def _classes(rows: Sequence[Row], protocol: Protocol, space: AskedSpace) -> tuple[LabelSpace, Mapping[str, int]]:
    if protocol.label not in rows[0]:
        raise DatasetError(
            f"the table has no column {protocol.label!r}",
            found=f"columns {', '.join(rows[0])}",
            expected="the classes of the images",
        )
    found = {text_of(row.get(protocol.label)) for row in rows}
    if "" in found:
        empty = next(i for i, row in enumerate(rows, start=1) if not text_of(row.get(protocol.label)))
        raise DatasetError(f"row {empty} of the table has no class", expected=f"a value in {protocol.label!r}")
    own = protocol.own_space(found)
    unknown = sorted(found - set(own.keys))
    if unknown:
        raise DatasetError(
            f"the table has classes that are not in the protocol {protocol.name!r}",
            found=listed(unknown),
            expected=listed(own.keys, len(own)),
        )
    if space is not None and space != FOLDERS:
        return recognise_folders(found, space)
    return own, {key: i for i, key in enumerate(own.keys)}


def _dataset(
    name: str, protocol: Protocol, rows: Sequence[Row], root: Path, space: LabelSpace, index: Mapping[str, int]
) -> FileDataset:
    """One image per path; its rows give its labels."""
    column = column_of_paths(rows[0])
    images: dict[str, list[Row]] = {}
    for row in rows:
        images.setdefault(inside(str(row[column])), []).append(row)
    double = next((path for path, group in images.items() if len(group) > 1), None)
    if double is not None and not protocol.several_labels:
        raise DatasetError(f"the table lists {double} twice", expected="one row per image, or several_labels = true")
    labels = [tuple(sorted({index[text_of(row[protocol.label])] for row in group})) for group in images.values()]
    further = [key for key in rows[0] if key not in (column, protocol.label)]
    return FileDataset(
        name,
        space,
        root,
        list(images),
        single_labels(labels).tolist(),
        label_sets=labels if protocol.several_labels else None,
        metadata={key: [_together(group, key) for group in images.values()] for key in further},
    )


def _together(rows: Sequence[Row], column: str) -> str:
    """The value of an image; if its rows differ, all of their values."""
    return "+".join(sorted({text_of(row.get(column)) for row in rows}))


Row = Mapping[str, Any]
#: A Parquet file of a few kilobytes can hold billions of equal rows.
_MOST_ROWS = 20_000_000


def read_table(source: str | Path) -> tuple[Sequence[Row], Path]:
    """The rows, and the folder that their paths are relative to."""
    path = Path(source)
    if is_deepfashion2(path):
        return deepfashion2_rows(path), path
    if path.suffix.lower() == ".parquet" and path.is_file():
        return _parquet_rows(path), path.parent
    if path.suffix.lower() in SUFFIXES and path.is_file():
        return read_rows(path), path.parent
    found = "a folder" if path.is_dir() else "a file of another kind" if path.exists() else "nothing of that name"
    raise DatasetError(
        f"{path} is not a table of images and factors",
        found=found,
        expected=f"a file that ends in {', '.join(SUFFIXES)} or .parquet, or DeepFashion2's folder",
    )


def column_of_paths(row: Row) -> str:
    """The column of image paths."""
    for column in PATH_COLUMNS:
        if column in row:
            return column
    raise DatasetError(
        "the table has no column of image paths",
        found=f"columns {', '.join(row)}",
        expected=f"a column {PATH_COLUMNS[0]!r}",
    )


def inside(path: str) -> str:
    """A table may come from anyone: its paths stay below the root, on Windows too."""
    parts = path.replace("\\", "/").split("/")
    if not path or path.startswith(("/", "\\")) or ":" in parts[0] or ".." in parts or "\0" in path:
        raise DatasetError("a path in the table points outside its folder", found=path, expected="a path below it")
    return path


def text_of(value: Any) -> str:
    """The text by which values are compared: CSV has no other type, and tools write 2019 as 2019.0 beside gaps.

    >>> text_of(2019.0), text_of(" US "), text_of(None)
    ('2019', 'US', '')
    """
    if value is None:
        return ""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value).strip()


def _parquet_rows(path: Path) -> list[Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
        count = file.metadata.num_rows
        if count > _MOST_ROWS:
            raise DatasetError(f"{path} is too long", found=f"{count:,} rows", expected=f"up to {_MOST_ROWS:,}")
        # Nested and binary columns are not factors; images inside the table are not read.
        plain = [field.name for field in file.schema_arrow if not _is_bulky(field.type)]
        rows: list[Row] = file.read(columns=plain).to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise DatasetError(f"the table {path} can't be read", found=error) from error
    return rows


def _is_bulky(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind))
