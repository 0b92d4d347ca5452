"""Where pictures come from: data sets and folders of every known kind, and fetch plug-ins.

A plug-in is a function that yields offers, registered under a scheme::

    @picture_sources.register("archive")
    def archive(target, project):
        \"\"\"Pictures of the archive by keyword: archive:KEYWORD.\"\"\"
        for item in search(target):
            yield Offer(item.id, item.download, class_key="cat", details={"author": item.author})

and used as ``shiftbench testset import pets archive:tabby``. ``item.download`` is called only for pictures that
the pool does not have yet.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shiftbench.datasets.base import Dataset
from shiftbench.datasets.catalogue import open_dataset
from shiftbench.datasets.encoded import EncodedDataset
from shiftbench.datasets.files import FileDataset
from shiftbench.datasets.folder import EXTENSIONS
from shiftbench.datasets.images import bad_image, read_file
from shiftbench.datasets.subset import Subset, of_classes
from shiftbench.registry import Registry
from shiftbench.testsets.errors import BlindnessError, WorkshopError
from shiftbench.testsets.pool.images import MAX_BYTES, as_png

if TYPE_CHECKING:
    from shiftbench.testsets.project import Project

#: Columns that the pool knows, by the names they come under; all others are kept as they are.
COLUMNS = {
    "query": ("query", "search", "search_key"),
    "keyword": ("keyword", "subclass", "sub_class"),
    "date": ("date", "date_taken", "taken", "datetaken"),
    "licence": ("licence", "license"),
    "author": ("author", "owner", "owner_name", "photographer"),
    "url": ("url", "link", "page"),
    "source": ("source", "origin"),
}
#: Names of columns that hold what a model said. A pool that knew it could not be sampled blindly.
_PREDICTIONS = re.compile(
    r"pred(iction|icted|s)?|logits?|softmax|confidence|probabilit(y|ies)|probs?|top_?[15]|scores?"
)


@dataclass(frozen=True)
class Offer:
    """A picture that may enter the pool: its bytes, or a function that fetches them."""

    id: str
    data: bytes | Callable[[], bytes]
    class_key: str | None
    #: By the names of ``COLUMNS`` or any other.
    details: Mapping[str, Any] = field(default_factory=dict)


#: ``function(target, project)`` yields offers; the part of ``scheme:target`` before the colon names it.
PictureSource = Callable[[str, "Project"], Iterator[Offer]]
picture_sources: Registry[PictureSource] = Registry("picture source", builtin=())


@dataclass(frozen=True)
class Supply:
    """The offers of one source, under its name."""

    name: str
    offers: Iterator[Offer]
    #: How many, where it is known.
    count: int | None = None
    #: Whether an id of the source always means the same picture, so that it need not be fetched to be known.
    stable: bool = False


def open_supply(project: Project, source: str | Path | Dataset, *, class_key: str | None = None) -> Supply:
    """A plug-in's scheme, a flat folder of one class, or any data set (folder, manifest, shards, arrays, named)."""
    if class_key is not None:
        project.space.index(class_key)  # a clear error for a class that is not there
    scheme, _, target = str(source).partition(":")
    if isinstance(source, str) and target and scheme in picture_sources:
        return Supply(source, picture_sources.get(scheme)(target, project), stable=True)
    if class_key is not None:
        if isinstance(source, Dataset):
            raise WorkshopError("a data set has classes of its own", hint="leave the class out")
        return _flat_folder(Path(source), class_key)
    dataset = open_dataset(source, space=None if isinstance(source, Dataset) else project.space)
    if dataset.space.keys != project.space.keys:
        dataset = of_classes(dataset, project.space)
    check_columns(dataset.metadata)
    return Supply(dataset.name, dataset_offers(dataset), len(dataset))


def check_columns(columns: Mapping[str, Any]) -> None:
    """Refuse what looks like the predictions of a model: the set must be made blind to them."""
    for name in columns:
        if _PREDICTIONS.fullmatch(name.lower()):
            raise BlindnessError(
                "the pool takes no predictions of models: who samples and reviews must not know them",
                found=f"a column {name!r}",
                hint="remove the column, or rename it if it is something else",
            )


def _flat_folder(folder: Path, class_key: str) -> Supply:
    if not folder.is_dir():
        raise WorkshopError(f"{folder} is not a folder", found="a file" if folder.exists() else "nothing there")
    files = sorted(p for p in folder.rglob("*") if p.suffix.lower() in EXTENSIONS and not p.name.startswith("."))
    if not files:
        raise WorkshopError(f"there are no pictures in {folder}", expected=f"files in {' '.join(EXTENSIONS)}")
    offers = (_file_offer(path, str(path.relative_to(folder)), class_key, {}) for path in files)
    return Supply(folder.resolve().name, offers, len(files))


def _file_offer(path: Path, name: str, class_key: str | None, details: Mapping[str, Any]) -> Offer:
    return Offer(name, lambda: _read(path, name), class_key, details)


def _read(path: Path, name: str) -> bytes:
    if path.is_file() and path.stat().st_size > MAX_BYTES:
        raise bad_image(name, f"the file is larger than {MAX_BYTES:,} bytes")
    return read_file(path, name)


def dataset_offers(dataset: Dataset) -> Iterator[Offer]:
    """All pictures of a data set with what it knows about each."""
    metadata = dataset.metadata
    for index, (image_id, label) in enumerate(zip(dataset.ids, dataset.labels.tolist(), strict=True)):
        key = dataset.space.keys[label] if label >= 0 else None
        details = {column: values[index] for column, values in metadata.items()}
        yield Offer(image_id, _Bytes(dataset, index), key, details)


@dataclass(frozen=True)
class _Bytes:
    """The picture's own file where it has one, else a PNG of its pixels."""

    dataset: Dataset
    index: int

    def __call__(self) -> bytes:
        dataset, index = self.dataset, self.index
        if isinstance(dataset, Subset):
            return _Bytes(dataset.base, int(dataset.indices[index]))()
        if isinstance(dataset, FileDataset):
            return _read(dataset.root / dataset.paths[index], dataset.ids[index])
        if isinstance(dataset, EncodedDataset):
            return dataset._bytes(index)
        return as_png(dataset.read(index).pixels)


def clean(value: Any) -> Any:
    """Values as every database can keep them: no NUL, no broken Unicode, no number that JSON lacks.

    >>> clean({"author": "a\\0b", "views": float("nan"), "tags": ["x"], "when": Path("p")})
    {'author': 'ab', 'views': 'nan', 'tags': ['x'], 'when': 'p'}
    """
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {clean(str(key)): clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean(item) for item in value]
    return str(value).encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "")


def known_details(details: Mapping[str, Any]) -> tuple[dict[str, str | None], dict[str, Any]]:
    """(the pool's own columns, all others).

    >>> known_details({"license": "CC0", "camera": "X100"})[1]
    {'camera': 'X100'}
    """
    lowered = {name.lower(): name for name in details}
    used, known = set(), {}
    for column, names in COLUMNS.items():
        name = next((lowered[name] for name in names if name in lowered), None)
        value = None if name is None else details[name]
        known[column] = None if value in (None, "") else str(value)
        used.add(name)
    return known, {name: value for name, value in details.items() if name not in used and value not in (None, "")}
