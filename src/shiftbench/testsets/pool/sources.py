"""Sources of images: datasets and folders of every supported kind, and plug-ins.

A plug-in is a function that yields offers, registered under a scheme::

    @image_sources.register("archive")
    def archive(target, project):
        \"\"\"Images of the archive by keyword: archive:KEYWORD.\"\"\"
        for item in search(target):
            yield Offer(item.id, item.download, class_key="cat", details={"author": item.author})

and used as ``shiftbench testset import pets archive:tabby``. ``item.download`` is only called for images that the
pool does not have yet.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shiftbench import Dataset, open_dataset
from shiftbench.datasets import Subset, of_classes
from shiftbench.extend.datasets import EXTENSIONS, EncodedDataset, FileDataset, bad_image, read_file
from shiftbench.extend.io import Location
from shiftbench.extend.registration import Registry
from shiftbench.testsets.errors import BlindnessError, WorkshopError
from shiftbench.testsets.pool.images import MAX_BYTES, as_png

if TYPE_CHECKING:
    from shiftbench.testsets.project import Project

#: Columns of the pool, and the names they are recognised by; other columns are stored unchanged.
COLUMNS = {
    "query": ("query", "search", "search_key"),
    "keyword": ("keyword", "subclass", "sub_class"),
    "date": ("date", "date_taken", "taken", "datetaken"),
    "licence": ("licence", "license"),
    "author": ("author", "owner", "owner_name", "photographer"),
    "url": ("url", "link", "page"),
    "source": ("source", "origin"),
}
#: Columns with model predictions are refused: the set must be sampled and reviewed blindly.
_PREDICTIONS = re.compile(
    r"pred(iction|icted|s)?|logits?|softmax|confidence|probabilit(y|ies)|probs?|top_?[15]|scores?"
)


@dataclass(frozen=True)
class Offer:
    """An image to import: its bytes, or a function that fetches them."""

    #: What identifies the image at its source.
    id: str
    data: bytes | Callable[[], bytes]
    #: None if the source does not state a class.
    class_key: str | None
    #: Metadata, by the names of ``COLUMNS`` or any other.
    details: Mapping[str, Any] = field(default_factory=dict)


#: ``function(target, project)`` yields offers; registered under the scheme of ``scheme:target``.
ImageSource = Callable[[str, "Project"], Iterator[Offer]]
image_sources: Registry[ImageSource] = Registry("image source", builtin=("shiftbench.testsets.pool.downloads",))


@dataclass(frozen=True)
class SourceImages:
    """What a source offers."""

    #: The source of the entries, unless the import names another.
    name: str
    offers: Iterator[Offer]
    #: Number of images, if known.
    count: int | None = None
    #: Whether an id always refers to the same image, so that known images need not be fetched.
    stable: bool = False


def open_source(project: Project, source: str | Path | Dataset, *, class_key: str | None = None) -> SourceImages:
    """Open a plug-in's target, a flat folder of one class, or any dataset (folder, manifest, shards, arrays, name).

    ``class_key``: the class of a flat folder, or of a plug-in's images that state none.
    """
    if class_key is not None:
        project.space.index(class_key)  # raises for an unknown class
    scheme, _, target = str(source).partition(":")
    if isinstance(source, str) and target and scheme in image_sources:
        offers = image_sources.get(scheme)(target, project)
        return SourceImages(source, _with_class(offers, class_key), stable=True)
    if class_key is not None:
        if isinstance(source, Dataset):
            raise WorkshopError("a dataset has its own classes", hint="omit the class")
        return _open_flat_folder(Path(source), class_key)
    dataset = open_dataset(source, space=None if isinstance(source, Dataset) else project.space)
    if dataset.space.keys != project.space.keys:
        dataset = of_classes(dataset, project.space)
    check_columns(dataset.metadata)
    return SourceImages(dataset.name, dataset_offers(dataset), len(dataset))


def _with_class(offers: Iterable[Offer], class_key: str | None) -> Iterator[Offer]:
    """The offers, of this class if they state none."""
    for offer in offers:
        yield offer if offer.class_key else replace(offer, class_key=class_key)


def _open_flat_folder(folder: Path, class_key: str) -> SourceImages:
    """All image files in and below a folder, as images of one class; hidden files are skipped."""
    if not folder.is_dir():
        raise WorkshopError(f"{folder} is not a folder", found="a file" if folder.exists() else "no such folder")
    visible_paths = [path for path in folder.rglob("*") if not path.name.startswith(".")]
    files = [path for path in visible_paths if path.suffix.lower() in EXTENSIONS]
    if not files:
        raise WorkshopError(f"no images in {folder}", expected=f"files in {' '.join(EXTENSIONS)}")

    def offers() -> Iterator[Offer]:
        for path in sorted(files):
            name = path.relative_to(folder).as_posix()
            yield Offer(name, partial(_read, path, name), class_key)

    return SourceImages(folder.resolve().name, offers(), len(files))


def check_columns(columns: Mapping[str, object]) -> None:
    """Refuse columns that look like model predictions."""
    for name in columns:
        if _PREDICTIONS.fullmatch(name.lower()):
            raise BlindnessError(
                "model predictions cannot be imported: sampling and review must be blind to them",
                found=f"column {name!r}",
                hint="remove the column, or rename it if it contains something else",
            )


def _read(path: Location, name: str) -> bytes:
    if path.is_file() and path.stat().st_size > MAX_BYTES:
        raise bad_image(name, f"the file is larger than {MAX_BYTES:,} bytes")
    return read_file(path, name)


def dataset_offers(dataset: Dataset) -> Iterator[Offer]:
    """All images of a dataset, with their class and metadata."""
    metadata = dataset.metadata
    for index, (image_id, label) in enumerate(zip(dataset.ids, dataset.labels.tolist(), strict=True)):
        key = dataset.space.keys[label] if label >= 0 else None
        details = {column: values[index] for column, values in metadata.items()}
        yield Offer(image_id, partial(image_bytes, dataset, index), key, details)


def image_bytes(dataset: Dataset, index: int) -> bytes:
    """The image's file, or a PNG of its pixels if it has none."""
    if isinstance(dataset, Subset):
        return image_bytes(dataset.base, int(dataset.indices[index]))
    if isinstance(dataset, FileDataset):
        return _read(dataset.root / dataset.paths[index], dataset.ids[index])
    if isinstance(dataset, EncodedDataset):
        return dataset._bytes(index)
    return as_png(dataset.read(index).pixels)


def day(value: object) -> date | None:
    """The day of a date in ISO or EXIF format, or in seconds since 1970; None if there is none."""
    text = str(value or "").strip()
    try:
        if text.isdigit() and len(text) > 8:
            return datetime.fromtimestamp(int(text), UTC).date()
        return date.fromisoformat(text[:10].replace(":", "-"))
    except (ValueError, OverflowError, OSError):
        return None


def clean(value: object) -> Any:
    """Values that every database can store: no NUL, no invalid Unicode, no NaN or infinity."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {clean(str(key)): clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean(item) for item in value]
    return str(value).encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "")


def known_details(details: Mapping[str, object]) -> tuple[dict[str, str | None], dict[str, object]]:
    """(columns of the pool, other columns). Empty values become None in the first and are left out of the second."""
    name_by_lower = {name.lower(): name for name in details}
    pool_columns: dict[str, str | None] = {}
    used_names = set()
    for column, aliases in COLUMNS.items():
        value = None
        for alias in aliases:
            if alias in name_by_lower:
                name = name_by_lower[alias]
                value = details[name]
                used_names.add(name)
                break
        pool_columns[column] = None if value in (None, "") else str(value)
    unused = {name: value for name, value in details.items() if name not in used_names}
    other_columns = {name: value for name, value in unused.items() if value not in (None, "")}
    return pool_columns, other_columns
