"""Augmented copies of images: a folder tree on disk, or an array in memory.

The generator of a copy belongs to (seed, image, copy). The bytes do not depend on workers, shards or interruptions.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import posixpath
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from msgspec import Meta

from shiftbench import Dataset, LabelSpace, Shard, ShiftbenchError
from shiftbench.errors import BadImageError, StoreError
from shiftbench.extend.datasets import FileDataset, bad_image, open_unlabelled
from shiftbench.extend.io import local
from shiftbench.extend.jobs import one_torch_thread
from shiftbench.extend.options import check_options, decode
from shiftbench.extend.outputs import (
    Encoding,
    OutputRecord,
    Tree,
    Variants,
    Written,
    check_destination,
    file_size,
    unique_names,
    write,
)
from shiftbench.extend.shifts import SEED_SCHEME
from shiftbench.extend.types import Pixels
from shiftbench.hardening.augmentations.base import image_augmentations, make_image_augmentation, stream
from shiftbench.hardening.errors import AugmentationError
from shiftbench.jobs import Executor

Copies = Annotated[int, Meta(ge=1, le=10_000)]
RECORD = "shiftbench-augmentation.json"
_ABOUT = "augmented copies of images; written by `shiftbench harden augment`, which continues it"
#: Training images are written with a finer quality than the 85 that corrupted images are published with.
JPEG_QUALITY = 95
#: Changes when the same options give other pixels.
VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Augmented(Written):
    """The outcome of ``augment_folder``."""

    source: Path
    augmentation: str
    options: dict[str, Any]
    copies: int
    shard: Shard
    #: Source images of this shard.
    images: int


def augment_folder(
    source: str | Path,
    destination: str | Path,
    name: str,
    *,
    options: Mapping[str, object] | None = None,
    copies: int = 1,
    shard: Shard | str | None = None,
    seed: int = 0,
    lossless: bool = False,
    workers: int | None = None,
    executor: Executor | None = None,
    progress: bool = False,
) -> Augmented:
    """Write ``copies`` augmentations of every image below ``source``, under the same names below ``destination``.

    Several copies get ``-1``, ``-2``, ... before the suffix. JPEG stays JPEG, everything else becomes PNG, as does
    everything with ``lossless``. Files that are not images are ignored.

    The same call continues one that was stopped at any moment; one with other options is refused. Shards of the same
    call may run at the same time, on several machines with one file system.
    """
    root = Path(source)
    target = Path(destination)
    work_shard = Shard.parse(shard)
    count = decode(copies, Copies, "the number of copies", AugmentationError)
    stated = dict(options or {})
    factory = image_augmentations.get(name)
    # The record keeps the options as the user stated them, over the defaults.
    recorded = {**check_options(stated, factory, f"the augmentation {name!r}", AugmentationError), **stated}
    check_destination(target, RECORD, root)
    images = images_below(root)
    check_links(images, target)
    files = names_of_copies(images.paths, count, lossless=lossless)
    recipe = _recipe(images, name, recorded, count, seed, lossless)
    augmented = AugmentedCopies(images, name, stated, count, seed)
    written = write(
        OutputRecord(target, RECORD, _ABOUT, recipe),
        partial(Tree, augmented, target, files),
        what="augmented images",
        shard=work_shard,
        workers=workers,
        executor=executor,
        progress=progress,
    )
    return Augmented(
        **vars(written),
        source=root,
        augmentation=name,
        options=recorded,
        copies=count,
        shard=work_shard,
        images=len(work_shard.of(range(len(images)))),
    )


class AugmentedCopies(Variants):
    """Copies of images, each with a random generator of its own."""

    def __init__(self, images: FileDataset, name: str, options: Mapping[str, object], copies: int, seed: int) -> None:
        self.source = images
        self.names = [str(copy) for copy in range(copies)]
        self._name = name
        self._options = options
        self._seed = seed
        self._augmentation = make_image_augmentation(name, **options)

    def __getstate__(self) -> dict[str, object]:
        """The state without the augmentation, which may be a closure: workers make their own."""
        return {key: value for key, value in vars(self).items() if key != "_augmentation"}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state)
        self._augmentation = make_image_augmentation(self._name, **self._options)

    def make(self, variant: int, pixels: Pixels, image_id: str) -> Pixels:
        try:
            with one_torch_thread():
                return self._augmentation(pixels, stream(self._seed, "augment", image_id, variant))
        except BadImageError:
            raise
        except ShiftbenchError as error:  # The augmentation cannot take this image.
            raise bad_image(image_id, str(error.found or error.message)) from error

    def encode(self, pixels: Pixels, file: str) -> bytes:
        return Encoding(lossless=file.lower().endswith(".png"), quality=JPEG_QUALITY)(pixels)


def images_below(root: str | Path) -> FileDataset:
    """Every image below a folder, whatever its folders mean. Links are followed, as in every dataset."""
    return open_unlabelled(root, space=LabelSpace("images", ("image",)))


def check_links(images: FileDataset, target: Path) -> None:
    """Raises if a link in the source leads into the destination, or a link in the destination leads out of it."""
    destination = target.resolve()
    for folder in sorted({str(PurePosixPath(path).parent) for path in images.paths}):
        came_from = (images.root / folder).resolve()
        goes_to = (target / folder).resolve()
        if came_from == destination or destination in came_from.parents:
            raise StoreError("a link in the source leads into the destination", found=images.root / folder)
        if goes_to != destination and destination not in goes_to.parents:
            raise StoreError(
                "a link in the destination leads out of it",
                found=f"{target / folder} -> {goes_to}",
                expected="plain folders",
            )


def names_of_copies(paths: Sequence[str], copies: int, *, lossless: bool = False) -> list[list[str]]:
    """The files of the copies of each image, below the destination.

    >>> names_of_copies(["cat/a.JPEG", "b.tif"], 1)
    [['cat/a.JPEG'], ['b.png']]
    >>> names_of_copies(["cat/a.JPEG"], 2)
    [['cat/a-1.JPEG', 'cat/a-2.JPEG']]
    """

    def renamed(path: str) -> str:
        keeps_jpeg = not lossless and path.lower().endswith((".jpg", ".jpeg"))
        if keeps_jpeg or path.lower().endswith(".png"):
            return path
        return Encoding(lossless=True).renamed(path)

    def numbered(name: PurePosixPath) -> list[str]:
        if copies == 1:
            return [str(name)]
        file_names = [f"{name.stem}-{number}{name.suffix}" for number in range(1, copies + 1)]
        return [str(name.with_name(file_name)) for file_name in file_names]

    return [numbered(PurePosixPath(name)) for name in unique_names(paths, renamed, same=str)]


def is_folder_of_copies(path: str | Path) -> bool:
    """Whether ``augment_folder`` wrote this folder."""
    return (Path(path) / RECORD).is_file()


def open_copies(folder: str | Path, originals: Dataset) -> FileDataset | None:
    """The augmented copies of these images in a folder that ``augment_folder`` wrote; None if it has none of them.

    A copy has the name of its original but not its annotations, so that it takes the labels of the original. The folder
    that was augmented may be the one that the ids of the originals begin in, or one below it: copies of ``train`` are
    found for originals ``train/image/1.jpg``.

    Raises:
        AugmentationError: Some of the originals have no copy.
    """
    record = OutputRecord(Path(folder), RECORD, _ABOUT, {}).read()
    if record is None:
        return None
    recipe = record["recipe"]
    available = set(images_below(folder).paths)
    unusable = {entry["id"] for entry in record["skipped"]}
    for prefix in _prefixes(originals.ids):
        paths = [image_id.removeprefix(prefix) for image_id in originals.ids]
        files = names_of_copies(paths, recipe["copies"], lossless=recipe["lossless"])
        if not available.isdisjoint(itertools.chain.from_iterable(files)):
            rows = [row for row, path in enumerate(paths) if path not in unusable]
            return _labelled_copies(Path(folder), originals, {row: files[row] for row in rows}, available)
    return None


def _prefixes(ids: Sequence[str]) -> list[str]:
    """The folders that all ids begin with, from the outermost one: "", "train/", "train/image/"."""
    common = posixpath.commonpath([posixpath.dirname(image_id) for image_id in ids])
    prefixes = [""]
    if common:
        for folder in common.split("/"):
            prefixes.append(f"{prefixes[-1]}{folder}/")
    return prefixes


def _labelled_copies(
    folder: Path, originals: Dataset, files: Mapping[int, Sequence[str]], available: Collection[str]
) -> FileDataset:
    """``files`` are the names of the copies of each original, by its row."""
    paths: list[str] = []
    rows: list[int] = []
    for row, copies in files.items():
        paths += copies
        rows += [row] * len(copies)
    missing = [path for path in paths if path not in available]
    if missing:
        raise AugmentationError(
            f"{folder} lacks {len(missing)} of {len(paths)} copies of the images of {originals.name!r}",
            found=f"no {missing[0]}",
            hint="the command `shiftbench harden augment` that made the folder continues it",
        )
    label_sets = None
    if originals.label_sets is not None:
        label_sets = [originals.label_sets[row] for row in rows]
    labels = originals.labels[rows].tolist()
    return FileDataset(folder.name, originals.space, folder, paths, labels, label_sets=label_sets)


def _recipe(
    images: FileDataset, name: str, options: Mapping[str, object], copies: int, seed: int, lossless: bool
) -> dict[str, object]:
    """All that decides the bytes. The source counts by its names and sizes, not by its location."""
    root = local(images.root)
    sizes = [(image_id, file_size(root / path)) for image_id, path in zip(images.ids, images.paths, strict=True)]
    return {
        "augmentation": name,
        "options": {key: _described(key, value) for key, value in options.items()},
        "copies": copies,
        "seed": seed,
        "lossless": lossless,
        "version": VERSION,
        "seed_scheme": SEED_SCHEME,
        "source": {"pictures": len(images), "listing": _digest(sizes)},
    }


def _described(option: str, value: object) -> object:
    """An option as JSON keeps it; a file or folder that it names counts by its content, not by its location."""
    if isinstance(value, (str, Path)) and Path(value).is_file():
        return {"file": _digest(Path(value).read_bytes())}
    if isinstance(value, (str, Path)) and Path(value).is_dir():
        files = sorted(path for path in Path(value).rglob("*") if path.is_file())
        sizes = [(file.relative_to(value).as_posix(), file.stat().st_size) for file in files]
        return {"folder": _digest(sizes)}
    try:
        return json.loads(json.dumps(value))
    except TypeError as error:
        raise AugmentationError(
            f"the option {option!r} can't be recorded, so the work could not be continued",
            found=f"an object of {type(value).__name__}",
            expected="a number, a string, a list, a file or a folder",
        ) from error


def _digest(content: bytes | Sequence[tuple[str, int]]) -> str:
    """A hash of a file's content, or of names and sizes, which is quick for a million images."""
    if isinstance(content, bytes):
        data = content
    else:
        data = json.dumps([list(entry) for entry in content]).encode()
    return hashlib.blake2b(data, digest_size=16).hexdigest()
