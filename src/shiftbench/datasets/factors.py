"""Factor splits: a table of metadata and a protocol define one training set, one test set like it, and test sets
that differ from it in one factor each.

A protocol is a TOML file: see ``protocols/`` and `shiftbench data factors --help`. Each set is a dataset of its own,
``factors:PROTOCOL:TABLE/SET``, such as ``factors:deepfashion-remixed:DeepFashion2/train``.

An image may have several rows, one per object (``several_labels = true``): it belongs to a set if one of its rows
does, and its labels are those of these rows. Such sets are scored by mean average precision. DeepFashion Remixed is
made of DeepFashion2's annotation files, which are read as one table with one row per garment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from shiftbench.datasets.base import DataReport, Dataset, DatasetKind
from shiftbench.datasets.manifest import PATH_COLUMNS, SUFFIXES, leads_outside, read_rows
from shiftbench.datasets.stored import FileDataset
from shiftbench.errors import DatasetError, argument, listed, raising, shell_command
from shiftbench.grouping import by_key
from shiftbench.io.atomic import read_json
from shiftbench.io.parquet import read_parquet
from shiftbench.io.paths import Location, split_kind
from shiftbench.labels.catalogue import FOLDERS, label_space
from shiftbench.labels.guard import folder_space, recognise_folders
from shiftbench.labels.space import AskedSpace, LabelSpace, single_labels

Row = Mapping[str, Any]
#: Values of a factor. They are compared as text, the only type of a CSV file.
Texts = tuple[str, ...]
TRAIN = "train"
TEST = "test"
SHIFTED = "shifted"
#: A Parquet file of a few kilobytes can hold billions of equal rows.
_MAX_ROWS = 20_000_000


@dataclass(frozen=True)
class ProtocolParts:
    """Which rows are for training and testing, by the values of one column."""

    column: str
    train: Texts
    test: Texts
    shifted: Texts


@dataclass(frozen=True)
class Protocol:
    """How a table is split by factors: the keys of a protocol's TOML file."""

    name: str
    label: str
    base: dict[str, Texts]
    #: Set name to the one factor that differs and its values.
    shifts: dict[str, dict[str, Texts]]
    metric: str
    parts: ProtocolParts | None = None
    several_labels: bool = False
    #: The classes in order, or the name of a label space; empty for the classes of the table.
    classes: Texts | str = ()
    #: Set name to its number of images in the published dataset.
    published: dict[str, int] = field(default_factory=dict)

    @property
    def sets(self) -> tuple[str, ...]:
        return (TRAIN, TEST, *self.shifts)

    def conditions(self, which: str) -> dict[str, Texts]:
        """For each column of the protocol, the values that a row of this set may have."""
        if which not in self.sets:
            raise DatasetError(f"{self.name!r} has no set {which!r}", expected=", ".join(self.sets))
        conditions = {**self.base, **self.shifts.get(which, {})}
        if self.parts is not None:
            part = SHIFTED if which in self.shifts else which
            conditions[self.parts.column] = getattr(self.parts, part)
        return conditions

    def own_space(self, table_classes: Iterable[str]) -> LabelSpace:
        """The label space of the protocol's classes; if it names none, of the table's classes."""
        if isinstance(self.classes, str):
            return label_space(self.classes)
        if self.classes:
            return LabelSpace(self.name, self.classes)
        return folder_space(table_classes, self.name)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that decide in which set a row is."""
        if self.parts is None:
            return tuple(self.base)
        return (*self.base, self.parts.column)


def protocols() -> list[str]:
    """The names of the built-in protocols."""
    folder = resources.files("shiftbench.datasets").joinpath("protocols")
    file_names = [file.name for file in folder.iterdir()]
    return sorted(name.removesuffix(".toml") for name in file_names if name.endswith(".toml"))


def read_protocol(source: str | Path | Protocol) -> Protocol:
    """Read a built-in protocol by its name, or your own from a TOML file; a protocol is returned as it is."""
    if isinstance(source, Protocol):
        return source
    text = _protocol_text(source)
    from shiftbench.io.schema import decode, parse_toml  # late: most runs read no protocol

    title = f"the protocol {source}"
    document = parse_toml(text, title, DatasetError)
    for key in ("base", "shifts", "parts", "classes"):
        if isinstance(document.get(key), dict | list):
            document[key] = _texts(document[key], besides="column" if key == "parts" else "")
    metric = "mean_average_precision" if document.get("several_labels") is True else "top1"
    protocol = decode({"metric": metric, **document}, Protocol, title, DatasetError)
    _check_protocol(protocol, title)
    return protocol


def _protocol_text(source: str | Path) -> str:
    """The TOML text of a built-in protocol or of a file."""
    if str(source) in protocols():
        return resources.files("shiftbench.datasets").joinpath(f"protocols/{source}.toml").read_text("utf-8")
    try:
        return Path(source).read_text("utf-8")
    except OSError as error:
        expected = f"a TOML file, or one of {', '.join(protocols())}"
        raise DatasetError(f"unknown protocol {source}", expected=expected) from error


def _check_protocol(protocol: Protocol, title: str) -> None:
    """Raise a DatasetError for names that can't be told apart in paths, and for shifts of no or several factors."""
    if "/" in protocol.name:
        raise DatasetError(f"invalid name of {title}", found=protocol.name, expected="a name without a slash")
    for name, changed in protocol.shifts.items():
        if name in (TRAIN, TEST):
            raise DatasetError(f"invalid name of a shift in {title}", found=name, expected=f"not {TRAIN} or {TEST}")
        if len(changed) != 1 or not changed.keys() <= protocol.base.keys():
            raise DatasetError(
                f"the shift {name!r} of {title} must change one factor",
                found=", ".join(changed) or "none",
                expected=f"one of {', '.join(protocol.base)}",
            )


def _texts(values: Any, besides: str = "") -> Any:
    """Turn values of factors, one or several, into lists of texts; the values of the key ``besides`` stay as they are.

    Values of other types stay as they are, too: ``decode`` refuses them.
    """
    if isinstance(values, dict):
        return {key: value if key == besides else _texts(value) for key, value in values.items()}
    items = values if isinstance(values, list) else [values]
    if all(isinstance(item, str | int | float) for item in items):
        return [text_of(item) for item in items]
    return values


def text_of(value: Any) -> str:
    """The text by which values are compared: CSV has no other type, and tools write 2019 as 2019.0 beside gaps."""
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()


def split_rows(rows: Sequence[Row], protocol: Protocol) -> dict[str, list[int]]:
    """For each set of the protocol, the indices of the rows that fulfil its conditions."""
    if not rows:
        raise _lacking_columns("no rows", protocol)
    if any(column not in rows[0] for column in protocol.columns):
        raise _lacking_columns(f"columns {', '.join(rows[0])}", protocol)
    table = {}
    for column in protocol.columns:
        table[column] = [text_of(row.get(column)) for row in rows]
    sets = {}
    for which in protocol.sets:
        indices = list(range(len(rows)))
        for column, values in protocol.conditions(which).items():
            indices = [i for i in indices if table[column][i] in values]
        sets[which] = indices
    return sets


def _lacking_columns(found: str, protocol: Protocol) -> DatasetError:
    return DatasetError(
        f"the table lacks columns of the protocol {protocol.name!r}",
        found=found,
        expected=f"columns {', '.join(sorted(protocol.columns))}",
    )


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
    protocol = read_protocol(protocol)
    rows, folder = _rows_of(table)
    if root is not None:
        folder = Path(root)
    sets = split_rows(rows, protocol)
    target, index = _classes(rows, protocol, space)
    datasets = {}
    for which, indices in sets.items():
        if indices:
            set_rows = [rows[i] for i in indices]
            datasets[which] = _dataset(f"{protocol.name}/{which}", protocol, set_rows, folder, target, index)
    if TRAIN in datasets:
        training = set(datasets[TRAIN].paths)
        for which, dataset in datasets.items():
            if which != TRAIN:
                dataset.remarks = shared_images(which, set(dataset.paths), training)
    return {dataset.name: dataset for dataset in datasets.values()}


def _rows_of(table: str | Path | Sequence[Row]) -> tuple[Sequence[Row], Path]:
    """The rows of a table or of its file, and the folder that their paths are relative to."""
    if isinstance(table, str | Path):
        return read_table(table)
    return table, Path()


def open_factors(path: str | Path, *, space: AskedSpace = None, name: str | None = None) -> Dataset:
    """One set of a table that a protocol splits: ``factors:PROTOCOL:TABLE/SET``.

    The protocol is built in or a TOML file, the table a CSV, TSV, JSONL or Parquet file or DeepFashion2's folder, the
    set ``train``, ``test`` or one of the protocol's shifts.
    """
    source, set_path = split_kind(str(path))
    if not source:
        # The path has no second colon: it is the protocol alone.
        source = set_path
        set_path = ""
    protocol = read_protocol(source)
    table = Path(set_path).parent
    which = Path(set_path).name
    if not set_path or which not in protocol.sets:
        raise DatasetError(
            f"factors:{path} names no set of {protocol.name!r}",
            found=which or "no table",
            expected=f"factors:{source}:TABLE/SET, where SET is one of {', '.join(protocol.sets)}",
        )
    dataset = open_splits(table, protocol, space=space).get(f"{protocol.name}/{which}")
    if dataset is None:
        raise DatasetError(
            f"{table} has no image for {protocol.name}/{which}", hint=shell_command("data", "factors", table, source)
        )
    dataset.name = name or dataset.name
    return dataset


#: Never guessed from a path: the protocol has to be named.
KIND = DatasetKind(lambda path: None, open_factors)


def shared_images(which: str, images: set[str], training: set[str]) -> list[str]:
    """A remark on a set that has images of the training set, as it is not independent of it; empty if it has none."""
    shared = len(images & training)
    if not shared:
        return []
    return [f"{shared:,} of the {len(images):,} images of {which} are also in training"]


def _classes(rows: Sequence[Row], protocol: Protocol, space: AskedSpace) -> tuple[LabelSpace, Mapping[str, int]]:
    """The label space of a table, and the index of each value in the column of classes."""
    if protocol.label not in rows[0]:
        raise DatasetError(
            f"the table has no column {protocol.label!r}",
            found=f"columns {', '.join(rows[0])}",
            expected="the classes of the images",
        )
    values = [text_of(row.get(protocol.label)) for row in rows]
    if "" in values:
        empty = values.index("") + 1
        raise DatasetError(f"row {empty} of the table has no class", expected=f"a value in {protocol.label!r}")
    classes = set(values)
    protocol_space = protocol.own_space(classes)
    unknown = sorted(classes - set(protocol_space.keys))
    if unknown:
        raise DatasetError(
            f"the table has classes that are not in the protocol {protocol.name!r}",
            found=listed(unknown),
            expected=listed(protocol_space.keys, len(protocol_space)),
        )
    if space is not None and space != FOLDERS:
        return recognise_folders(classes, space)
    return protocol_space, {key: i for i, key in enumerate(protocol_space.keys)}


def _dataset(
    name: str, protocol: Protocol, rows: Sequence[Row], root: Path, space: LabelSpace, index: Mapping[str, int]
) -> FileDataset:
    """Open one set: an image per path, with the classes of all its rows as labels.

    Where the rows of an image differ in a column of metadata, its value there is all their values, joined by "+".
    """
    path_column = column_of_paths(rows[0])
    images = by_key((inside(str(row[path_column])), row) for row in rows)
    if not protocol.several_labels:
        _check_one_row_per_image(images)
    label_sets = []
    for image_rows in images.values():
        labels = {index[text_of(row[protocol.label])] for row in image_rows}
        label_sets.append(tuple(sorted(labels)))
    metadata = {}
    for column in rows[0]:
        if column not in (path_column, protocol.label):
            metadata[column] = [_joined_values(image_rows, column) for image_rows in images.values()]
    return FileDataset(
        name,
        space,
        root,
        list(images),
        single_labels(label_sets).tolist(),
        label_sets=label_sets if protocol.several_labels else None,
        metadata=metadata,
    )


def _check_one_row_per_image(images: Mapping[str, Sequence[Row]]) -> None:
    for path, image_rows in images.items():
        if len(image_rows) > 1:
            raise DatasetError(f"the table lists {path} twice", expected="one row per image, or several_labels = true")


def _joined_values(rows: Sequence[Row], column: str) -> str:
    return "+".join(sorted({text_of(row.get(column)) for row in rows}))


def read_table(source: str | Path) -> tuple[Sequence[Row], Path]:
    """The rows, and the folder that their paths are relative to."""
    path = Path(source)
    if is_deepfashion2(path):
        return deepfashion2_rows(path), path
    if path.suffix.lower() == ".parquet" and path.is_file():
        return _parquet_rows(path), path.parent
    if path.suffix.lower() in SUFFIXES and path.is_file():
        return read_rows(path), path.parent
    if path.is_dir():
        found = "a folder"
    elif path.exists():
        found = "a file of another kind"
    else:
        found = "nothing of that name"
    raise DatasetError(
        f"{path} is not a table of images and factors",
        found=found,
        expected=f"a file that ends in {', '.join(SUFFIXES)} or .parquet, or DeepFashion2's folder",
    )


def column_of_paths(row: Row) -> str:
    """The column of a table that holds the paths of the images; a DatasetError is raised if there is none."""
    for column in PATH_COLUMNS:
        if column in row:
            return column
    raise DatasetError(
        "the table has no column of image paths",
        found=f"columns {', '.join(row)}",
        expected=f"a column {PATH_COLUMNS[0]!r}",
    )


def inside(path: str) -> str:
    """Return a path, or raise a DatasetError if it points outside the root: tables may be untrusted."""
    if not path or leads_outside(path):
        raise DatasetError("a path in the table points outside its folder", found=path, expected="a path below it")
    return path


def _parquet_rows(path: Path) -> list[Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with raising(DatasetError, f"the table {path} can't be read", OSError, pa.ArrowException):
        file = pq.ParquetFile(path.absolute())
        count = file.metadata.num_rows
        if count > _MAX_ROWS:
            raise DatasetError(f"{path} is too long", found=f"{count:,} rows", expected=f"up to {_MAX_ROWS:,}")
        # Nested and binary columns are not factors; images inside the table are not read.
        factor_columns = []
        for column in file.schema_arrow:
            kind = column.type
            if not (pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
                factor_columns.append(column.name)
        rows: list[Row] = read_parquet(path, factor_columns).to_pylist()
    return rows


#: Released splits of DeepFashion2, with the number of annotated images of each.
_DEEPFASHION2_SPLITS = {"train": 191_961, "validation": 32_153}


def is_deepfashion2(path: Location) -> bool:
    return any((path / split / "annos").is_dir() for split in _DEEPFASHION2_SPLITS)


def _recognise_deepfashion2(path: Location) -> str | None:
    if is_deepfashion2(path):
        return "annotation files beside images"
    return None


def open_deepfashion2(path: str | Path, *, space: AskedSpace = None, name: str | None = None) -> Dataset:
    """DeepFashion2, which is split into datasets by the suite deepfashion-remixed.

    Always raises a DatasetError, which names the splits that can be opened.
    """
    raise DatasetError(
        f"{path} is DeepFashion2, which is evaluated in the splits of DeepFashion Remixed",
        hint=f"{argument('suite', 'deepfashion-remixed')} with {argument('data', {'deepfashion-remixed': str(path)})}, "
        f"or one split: {argument('data', f'factors:deepfashion-remixed:{path}/train')}",
    )


def check_deepfashion2(path: Location) -> DataReport:
    """Report what is missing: both splits are needed, and every annotation file needs its image."""
    role = "deepfashion-remixed"
    report = DataReport(str(path), "DeepFashion2", "annotation files beside images", role, suite=role)
    report.images_expected = sum(_DEEPFASHION2_SPLITS.values())
    report.classes_expected = 13
    report.space = "deepfashion2-13"
    report.home = "GitHub, switchablenorms/DeepFashion2, which gives the password of the archives on request"
    for split, expected in _DEEPFASHION2_SPLITS.items():
        annotated = {file.stem for file in (path / split / "annos").glob("*.json")}
        present = {file.stem for file in (path / split / "image").glob("*.jpg")}
        report.images += len(annotated & present)
        without_image = sorted(annotated - present)
        if without_image:
            report.missing.append(
                f"the images of {len(without_image):,} annotations of {split}: {listed(without_image, 3)}"
            )
        if len(annotated) < expected:
            report.missing.append(f"{expected - len(annotated):,} of {expected:,} annotation files of {split}")
    report.notes.append(f"{shell_command('data', 'factors', path, role)} shows how many images are in each split")
    return report


DEEPFASHION2 = DatasetKind(_recognise_deepfashion2, open_deepfashion2, check_deepfashion2)


def deepfashion2_rows(root: str | Path) -> list[Row]:
    """Read DeepFashion2's annotation files as rows for ``open_splits(rows, "deepfashion-remixed", root=root)``.

    The columns are path, part, category, and the factors scale, occlusion, viewpoint and zoom_in with values 1 to 3.
    """
    rows: list[Row] = []
    for split in _DEEPFASHION2_SPLITS:
        for file in sorted((Path(root) / split / "annos").glob("*.json")):
            try:
                rows += _annotation_rows(file, split)
            except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
                found = f"{type(error).__name__}: {error}"
                raise DatasetError(f"{file} is not a valid annotation of DeepFashion2", found=found) from error
    if not rows:
        raise DatasetError(
            f"{root} has no annotations of DeepFashion2", expected="train/annos/*.json or validation/annos/*.json"
        )
    return rows


def _annotation_rows(file: Path, split: str) -> list[Row]:
    """One row for each garment in an annotation file."""
    categories = label_space("deepfashion2-13").keys
    rows: list[Row] = []
    with raising(DatasetError, f"{file} can't be read", OSError, ValueError):
        annotations = read_json(file)
    for key, garment in annotations.items():
        if not key.startswith("item"):
            continue
        number = int(garment["category_id"])
        if not 1 <= number <= len(categories):
            raise ValueError(f"category_id {number} is not one of 1 to {len(categories)}")
        row: dict[str, Any] = {
            "path": f"{split}/image/{file.stem}.jpg",
            "part": split,
            "category": categories[number - 1],
        }
        for factor in ("scale", "occlusion", "viewpoint", "zoom_in"):
            row[factor] = int(garment[factor])
        rows.append(row)
    return rows


# How a protocol splits a table: the size of every set, what is missing and what is left over

#: Use of a value that is in no set.
NOWHERE = "in no set"


@dataclass(frozen=True)
class SetSize:
    name: str
    #: The conditions of the set in words, such as "year 2018".
    what: str
    rows: int
    images: int
    classes: int


@dataclass(frozen=True)
class ValueCount:
    factor: str
    value: str
    rows: int
    used: str


@dataclass(frozen=True)
class FactorAudit:
    protocol: str
    rows: int
    images: int
    sets: list[SetSize]
    values: list[ValueCount]
    #: Rows that are in no set: why, and how many.
    left_over: dict[str, int]
    missing: list[str]
    notes: list[str]
    #: For every row the sets it falls into; more than one only where the protocol's own values overlap.
    sets_of_rows: list[tuple[str, ...]]

    @property
    def ok(self) -> bool:
        return not self.missing

    def as_dict(self) -> dict[str, Any]:
        fields = {key: value for key, value in asdict(self).items() if key != "sets_of_rows"}
        return {**fields, "ok": self.ok}


def audit_factors(
    table: str | Path | Sequence[Row], protocol: str | Path | Protocol, *, root: Path | None = None
) -> FactorAudit:
    """Apply a protocol to a table; images must exist, but are not opened."""
    protocol = read_protocol(protocol)
    rows, folder = _rows_of(table)
    if root is not None:
        folder = root
    sets = split_rows(rows, protocol)
    path_column = column_of_paths(rows[0])
    paths = [inside(str(row[path_column])) for row in rows]
    row_classes = [text_of(row.get(protocol.label)) for row in rows]
    images = {}
    classes = {}
    sizes = []
    sets_of_rows: list[tuple[str, ...]] = [()] * len(rows)
    for which, indices in sets.items():
        images[which] = {paths[i] for i in indices}
        classes[which] = {row_classes[i] for i in indices}
        conditions = _conditions_text(protocol, which)
        sizes.append(SetSize(which, conditions, len(indices), len(images[which]), len(classes[which])))
        for i in indices:
            sets_of_rows[i] += (which,)
    values = _value_counts(rows, protocol)
    unused_rows = [row for row, names in zip(rows, sets_of_rows, strict=True) if not names]
    missing = [f"no row for {which}" for which, indices in sets.items() if not indices]
    missing += _missing_classes(protocol, set(row_classes))
    missing += _missing_images(folder, paths)
    return FactorAudit(
        protocol=protocol.name,
        rows=len(rows),
        images=len(set(paths)),
        sets=sizes,
        values=values,
        left_over=_left_over(unused_rows, protocol, values),
        missing=missing,
        notes=_notes(protocol, images, classes),
        sets_of_rows=sets_of_rows,
    )


def _conditions_text(protocol: Protocol, which: str) -> str:
    """A set in words: what distinguishes a shift, or the conditions of training and test."""
    conditions = protocol.shifts.get(which, protocol.base)
    return ", ".join(f"{factor} {' or '.join(values)}" for factor, values in conditions.items())


def _missing_classes(protocol: Protocol, table_classes: set[str]) -> list[str]:
    unknown = sorted(table_classes - set(protocol.own_space(table_classes).keys))
    if not unknown:
        return []
    return [f"{len(unknown)} classes of the table are not in the protocol: {listed(unknown)}"]


def _missing_images(folder: Path, paths: Sequence[str]) -> list[str]:
    unique_paths = list(dict.fromkeys(paths))
    absent = [path for path in unique_paths if not (folder / path).is_file()]
    if not absent:
        return []
    return [f"{len(absent):,} of {len(unique_paths):,} images, such as {absent[0]}"]


def _value_counts(rows: Sequence[Row], protocol: Protocol) -> list[ValueCount]:
    """How often each value of a factor occurs, and which sets use it; values that no row has are included."""
    value_counts = []
    for column in protocol.columns:
        counts = Counter(text_of(row.get(column)) for row in rows)
        values = set(counts)
        for which in protocol.sets:
            values.update(protocol.conditions(which)[column])
        for value in sorted(values):
            used = ", ".join(_uses(protocol, column, value)) or NOWHERE
            value_counts.append(ValueCount(column, value, counts[value], used))
    return value_counts


def _uses(protocol: Protocol, column: str, value: str) -> list[str]:
    """The parts or sets of a protocol that use a value of a column."""
    parts = protocol.parts
    if parts is not None and column == parts.column:
        return [part for part in (TRAIN, TEST, SHIFTED) if value in getattr(parts, part)]
    if value in protocol.base[column]:
        return ["training and test"]
    return [which for which, changed in protocol.shifts.items() if value in changed.get(column, ())]


def _left_over(rows: Sequence[Row], protocol: Protocol, values: Sequence[ValueCount]) -> dict[str, int]:
    """Why rows are in no set, and how many rows have this reason; the most frequent reason comes first."""
    used = {(value.factor, value.value) for value in values if value.used != NOWHERE}
    reasons = Counter(_reason(row, protocol, used) for row in rows)
    return dict(sorted(reasons.items(), key=lambda item: -item[1]))


def _reason(row: Row, protocol: Protocol, used: set[tuple[str, str]]) -> str:
    """Why a row is in no set; ``used`` are the pairs of a column and a value that any set uses."""
    for column in protocol.columns:
        if (column, text_of(row.get(column))) not in used:
            return f"{column} {text_of(row.get(column)) or '(empty)'}: used in no set"
    changed = [factor for factor, values in protocol.base.items() if text_of(row[factor]) not in values]
    if len(changed) > 1:
        return f"differ in {' and '.join(changed)}: only one factor may differ"
    part = protocol.parts.column if protocol.parts else ""
    return f"{part} {text_of(row.get(part))}: not with these values"


def _notes(protocol: Protocol, images: Mapping[str, set[str]], classes: Mapping[str, set[str]]) -> list[str]:
    """Notes on sets that share images with training, on sets without some classes, and on the published sizes."""
    notes = []
    for which in protocol.sets[1:]:
        notes += shared_images(which, images[which], images[TRAIN])
    if images[TRAIN] & images[TEST]:
        notes.append("separate the rows of training and test in [parts]: scores on training images are too high")
    for which, set_classes in classes.items():
        absent = sorted(classes[TRAIN] - set_classes)
        if set_classes and absent:
            notes.append(
                f"{which} lacks {len(absent)} of the {len(classes[TRAIN])} classes of training, such as {absent[0]}"
            )
    sizes = [f"{which} {size:,}" for which, size in protocol.published.items()]
    if sizes:
        notes.append(f"images in the published dataset: {', '.join(sizes)}")
    return notes
