"""Factor splits: a table of metadata and a protocol define one training set, one test set like it, and test sets
that differ from it in one factor each.

A protocol is a TOML file: see ``protocols/`` and `shiftbench data factors --help`. Each set is a dataset of its own,
``factors:PROTOCOL:TABLE/SET``, such as ``factors:deepfashion-remixed:DeepFashion2/train``.

An image may have several rows, one per object (``several_labels = true``): it belongs to a set if one of its rows
does, and its labels are those of these rows. Such sets are scored by mean average precision. DeepFashion Remixed is
made of DeepFashion2's annotation files, which are read as one table with one row per garment.
"""

from __future__ import annotations

import json
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
from shiftbench.io.paths import Location, split_kind
from shiftbench.labels.catalogue import FOLDERS, label_space
from shiftbench.labels.guard import folder_space, recognise_folders
from shiftbench.labels.space import AskedSpace, LabelSpace, single_labels

Row = Mapping[str, Any]
#: Values of a factor. They are compared as text, the only type of a CSV file.
Texts = tuple[str, ...]
TRAIN, TEST, SHIFTED = "train", "test", "shifted"
#: A Parquet file of a few kilobytes can hold billions of equal rows.
_MOST_ROWS = 20_000_000


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
    #: In order, or the name of a label space; empty for the classes of the table.
    classes: Texts | str = ()
    #: Set name to its number of images in the published dataset.
    published: dict[str, int] = field(default_factory=dict)

    @property
    def sets(self) -> tuple[str, ...]:
        return (TRAIN, TEST, *self.shifts)

    def conditions(self, which: str) -> dict[str, Texts]:
        """Column to the values that a row of this set may have."""
        if which not in self.sets:
            raise DatasetError(f"{self.name!r} has no set {which!r}", expected=", ".join(self.sets))
        wanted = {**self.base, **self.shifts.get(which, {})}
        if self.parts is not None:
            wanted[self.parts.column] = getattr(self.parts, SHIFTED if which in self.shifts else which)
        return wanted

    def own_space(self, found: Iterable[str]) -> LabelSpace:
        """The protocol's classes, else those that were found."""
        if isinstance(self.classes, str):
            return label_space(self.classes)
        return LabelSpace(self.name, self.classes) if self.classes else folder_space(found, self.name)

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.base, *([self.parts.column] if self.parts else []))


def protocols() -> list[str]:
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
    document = parse_toml(text, what, DatasetError)
    for key in ("base", "shifts", "parts", "classes"):
        if isinstance(document.get(key), dict | list):
            document[key] = _texts(document[key], besides="column" if key == "parts" else "")
    metric = "mean_average_precision" if document.get("several_labels") is True else "top1"
    protocol = decode({"metric": metric, **document}, Protocol, what, DatasetError)
    if "/" in protocol.name:
        raise DatasetError(f"invalid name of {what}", found=protocol.name, expected="a name without a slash")
    for name, changed in protocol.shifts.items():
        if name in (TRAIN, TEST):
            raise DatasetError(f"invalid name of a shift in {what}", found=name, expected=f"not {TRAIN} or {TEST}")
        if len(changed) != 1 or not changed.keys() <= protocol.base.keys():
            raise DatasetError(
                f"the shift {name!r} of {what} must change one factor",
                found=", ".join(changed) or "none",
                expected=f"one of {', '.join(protocol.base)}",
            )
    return protocol


def _texts(values: Any, besides: str = "") -> Any:
    """Values of factors, one or several, as lists of texts; what can't be one is left for ``decode`` to refuse."""
    if isinstance(values, dict):
        return {key: below if key == besides else _texts(below) for key, below in values.items()}
    several = values if isinstance(values, list) else [values]
    return [text_of(one) for one in several] if all(isinstance(one, str | int | float) for one in several) else values


def text_of(value: Any) -> str:
    """The text by which values are compared: CSV has no other type, and tools write 2019 as 2019.0 beside gaps."""
    if value is None:
        return ""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value).strip()


def split_rows(rows: Sequence[Row], protocol: Protocol) -> dict[str, list[int]]:
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
    base = folder if root is None else Path(root)
    datasets = {
        which: _dataset(f"{chosen.name}/{which}", chosen, [rows[i] for i in found], base, target, index)
        for which, found in sets.items()
        if found
    }
    if TRAIN in datasets:
        training = set(datasets[TRAIN].paths)
        for which, dataset in datasets.items():
            dataset.remarks = shared_images(which, set(dataset.paths), training) if which != TRAIN else ()
    return {dataset.name: dataset for dataset in datasets.values()}


def open_factors(path: str | Path, *, space: AskedSpace = None, name: str | None = None) -> Dataset:
    """One set of a table that a protocol splits: ``factors:PROTOCOL:TABLE/SET``.

    The protocol is built in or a TOML file, the table a CSV, TSV, JSONL or Parquet file or DeepFashion2's folder, the
    set ``train``, ``test`` or one of the protocol's shifts.
    """
    protocol, rest = split_kind(str(path))
    if not protocol:
        protocol, rest = rest, ""
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
            f"{table} has no image for {chosen.name}/{which}", hint=shell_command("data", "factors", table, protocol)
        )
    opened.name = name or opened.name
    return opened


#: Never guessed from a path: the protocol has to be named.
KIND = DatasetKind(lambda path: None, open_factors)


def shared_images(which: str, images: set[str], training: set[str]) -> list[str]:
    """What to report of a set that has images of the training set, where it is not independent of it."""
    shared = len(images & training)
    return [f"{shared:,} of the {len(images):,} images of {which} are also in training"] if shared else []


def _classes(rows: Sequence[Row], protocol: Protocol, space: AskedSpace) -> tuple[LabelSpace, Mapping[str, int]]:
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
    found = set(values)
    own = protocol.own_space(found)
    if unknown := sorted(found - set(own.keys)):
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
    """One image per path; its rows give its labels, and all their values where they differ."""
    column = column_of_paths(rows[0])
    images = by_key((inside(str(row[column])), row) for row in rows)
    double = next((path for path, group in images.items() if len(group) > 1), None)
    if double is not None and not protocol.several_labels:
        raise DatasetError(f"the table lists {double} twice", expected="one row per image, or several_labels = true")
    labels = [tuple(sorted({index[text_of(row[protocol.label])] for row in group})) for group in images.values()]
    metadata = {
        key: ["+".join(sorted({text_of(row.get(key)) for row in group})) for group in images.values()]
        for key in rows[0]
        if key not in (column, protocol.label)
    }
    sets, single = labels if protocol.several_labels else None, single_labels(labels).tolist()
    return FileDataset(name, space, root, list(images), single, label_sets=sets, metadata=metadata)


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
    for column in PATH_COLUMNS:
        if column in row:
            return column
    raise DatasetError(
        "the table has no column of image paths",
        found=f"columns {', '.join(row)}",
        expected=f"a column {PATH_COLUMNS[0]!r}",
    )


def inside(path: str) -> str:
    """Refuse paths that point outside the root: tables may be untrusted."""
    if not path or leads_outside(path):
        raise DatasetError("a path in the table points outside its folder", found=path, expected="a path below it")
    return path


def _parquet_rows(path: Path) -> list[Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with raising(DatasetError, f"the table {path} can't be read", OSError, pa.ArrowException):
        file = pq.ParquetFile(path)
        count = file.metadata.num_rows
        if count > _MOST_ROWS:
            raise DatasetError(f"{path} is too long", found=f"{count:,} rows", expected=f"up to {_MOST_ROWS:,}")
        # Nested and binary columns are not factors; images inside the table are not read.
        bulky = (pa.types.is_nested, pa.types.is_binary, pa.types.is_large_binary)
        plain = [column.name for column in file.schema_arrow if not any(test(column.type) for test in bulky)]
        rows: list[Row] = file.read(columns=plain).to_pylist()
    return rows


#: Annotated images of the released parts of DeepFashion2.
_PARTS = {"train": 191_961, "validation": 32_153}


def is_deepfashion2(path: Location) -> bool:
    return any((path / part / "annos").is_dir() for part in _PARTS)


def open_deepfashion2(path: str | Path, *, space: AskedSpace = None, name: str | None = None) -> Dataset:
    """DeepFashion2, which is split into datasets by the suite deepfashion-remixed."""
    raise DatasetError(
        f"{path} is DeepFashion2, which is evaluated in the splits of DeepFashion Remixed",
        hint=f"{argument('suite', 'deepfashion-remixed')} with {argument('data', {'deepfashion-remixed': str(path)})}, "
        f"or one split: {argument('data', f'factors:deepfashion-remixed:{path}/train')}",
    )


def check_deepfashion2(path: Location) -> DataReport:
    """Every annotation file needs its image, and both parts are needed."""
    role = "deepfashion-remixed"
    report = DataReport(str(path), "DeepFashion2", "annotation files beside images", role, suite=role)
    report.images_expected, report.classes_expected, report.space = sum(_PARTS.values()), 13, "deepfashion2-13"
    report.home = "GitHub, switchablenorms/DeepFashion2, which gives the password of the archives on request"
    for part, expected in _PARTS.items():
        annotated = {file.stem for file in (path / part / "annos").glob("*.json")}
        present = {file.stem for file in (path / part / "image").glob("*.jpg")}
        report.images += len(annotated & present)
        if without := sorted(annotated - present):
            report.missing.append(f"the images of {len(without):,} annotations of {part}: {listed(without, 3)}")
        if len(annotated) < expected:
            report.missing.append(f"{expected - len(annotated):,} of {expected:,} annotation files of {part}")
    report.notes.append(f"{shell_command('data', 'factors', path, role)} shows how many images are in each split")
    return report


DEEPFASHION2 = DatasetKind(
    lambda path: "annotation files beside images" if is_deepfashion2(path) else None,
    open_deepfashion2,
    check_deepfashion2,
)


def deepfashion2_rows(root: str | Path) -> list[Row]:
    """``<root>/{train,validation}/annos/*.json`` to rows for ``open_splits(rows, "deepfashion-remixed", root=root)``.

    Columns: path, part, category, and the factors scale, occlusion, viewpoint and zoom_in with values 1 to 3.
    """
    categories = label_space("deepfashion2-13").keys
    rows: list[Row] = []
    for part in _PARTS:
        for file in sorted((Path(root) / part / "annos").glob("*.json")):
            try:
                annotation = json.loads(file.read_text("utf-8"))
                for item in (value for key, value in annotation.items() if key.startswith("item")):
                    number = int(item["category_id"])
                    if not 1 <= number <= len(categories):
                        raise ValueError(f"category_id {number} is not one of 1 to {len(categories)}")
                    factors = {factor: int(item[factor]) for factor in ("scale", "occlusion", "viewpoint", "zoom_in")}
                    image = {"path": f"{part}/image/{file.stem}.jpg", "part": part, "category": categories[number - 1]}
                    rows.append({**image, **factors})
            except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
                found = f"{type(error).__name__}: {error}"
                raise DatasetError(f"{file} is not a valid annotation of DeepFashion2", found=found) from error
    if not rows:
        raise DatasetError(
            f"{root} has no annotations of DeepFashion2", expected="train/annos/*.json or validation/annos/*.json"
        )
    return rows


# How a protocol splits a table: the size of every set, what is missing and what is left over

#: Use of a value that is in no set.
NOWHERE = "in no set"


@dataclass(frozen=True)
class SetSize:
    name: str
    #: In words: "year 2018; else as training".
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
    chosen = read_protocol(protocol)
    rows, folder = read_table(table) if isinstance(table, str | Path) else (table, Path())
    sets = split_rows(rows, chosen)
    column = column_of_paths(rows[0])
    paths = [inside(str(row[column])) for row in rows]
    images = {which: {paths[i] for i in found} for which, found in sets.items()}
    classes = {which: {text_of(rows[i].get(chosen.label)) for i in found} for which, found in sets.items()}
    of_rows: list[tuple[str, ...]] = [()] * len(rows)
    for which, found in sets.items():
        for i in found:
            of_rows[i] += (which,)
    values = _values(rows, chosen)
    used = {(one.factor, one.value) for one in values if one.used != NOWHERE}
    reasons = Counter(_reason(row, chosen, used) for row, names in zip(rows, of_rows, strict=True) if not names)
    missing = [f"no row for {which}" for which, found in sets.items() if not found]
    own = {text_of(row.get(chosen.label)) for row in rows}
    if unknown := sorted(own - set(chosen.own_space(own).keys)):
        missing.append(f"{len(unknown)} classes of the table are not in the protocol: {listed(unknown)}")
    base = folder if root is None else root
    if lost := [path for path in dict.fromkeys(paths) if not (base / path).is_file()]:
        missing.append(f"{len(lost):,} of {len(set(paths)):,} images, such as {lost[0]}")
    sizes = []
    for which, found in sets.items():
        conditions = chosen.shifts.get(which, chosen.base)
        what = ", ".join(f"{factor} {' or '.join(wanted)}" for factor, wanted in conditions.items())
        sizes.append(SetSize(which, what, len(found), len(images[which]), len(classes[which])))
    left_over = dict(sorted(reasons.items(), key=lambda item: -item[1]))
    notes = _notes(chosen, images, classes)
    return FactorAudit(chosen.name, len(rows), len(set(paths)), sizes, values, left_over, missing, notes, of_rows)


def _values(rows: Sequence[Row], protocol: Protocol) -> list[ValueCount]:
    out = []
    parts = protocol.parts
    for column in protocol.columns:
        counts = Counter(text_of(row.get(column)) for row in rows)
        asked = {value for which in protocol.sets for value in protocol.conditions(which)[column]}
        for value in sorted({*counts, *asked}):
            if parts is not None and column == parts.column:
                used = [part for part in (TRAIN, TEST, SHIFTED) if value in getattr(parts, part)]
            elif value in protocol.base[column]:
                used = ["training and test"]
            else:
                used = [set_ for set_, changed in protocol.shifts.items() if value in changed.get(column, ())]
            out.append(ValueCount(column, value, counts[value], ", ".join(used) or NOWHERE))
    return out


def _reason(row: Row, protocol: Protocol, used: set[tuple[str, str]]) -> str:
    for column in protocol.columns:
        if (column, text_of(row.get(column))) not in used:
            return f"{column} {text_of(row.get(column)) or '(empty)'}: used in no set"
    changed = [factor for factor, values in protocol.base.items() if text_of(row[factor]) not in values]
    if len(changed) > 1:
        return f"differ in {' and '.join(changed)}: only one factor may differ"
    part = protocol.parts.column if protocol.parts else ""
    return f"{part} {text_of(row.get(part))}: not with these values"


def _notes(protocol: Protocol, images: Mapping[str, set[str]], classes: Mapping[str, set[str]]) -> list[str]:
    notes = [note for which in protocol.sets[1:] for note in shared_images(which, images[which], images[TRAIN])]
    if images[TRAIN] & images[TEST]:
        notes.append("separate the rows of training and test in [parts]: scores on training images are too high")
    for which, found in classes.items():
        lost = sorted(classes[TRAIN] - found)
        if found and lost:
            notes.append(
                f"{which} lacks {len(lost)} of the {len(classes[TRAIN])} classes of training, such as {lost[0]}"
            )
    sizes = [f"{which} {size:,}" for which, size in protocol.published.items()]
    return [*notes, f"images in the published dataset: {', '.join(sizes)}"] if sizes else notes
