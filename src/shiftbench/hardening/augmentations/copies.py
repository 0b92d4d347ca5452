"""Augmented copies of images: a folder tree on disk, or an array in memory.

The generator of a copy belongs to (seed, image, copy). The bytes do not depend on workers, shards or interruptions.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from msgspec import Meta

from shiftbench.arrays import Pixels
from shiftbench.datasets.folder import open_unlabelled
from shiftbench.datasets.images import bad_image
from shiftbench.datasets.stored import FileDataset
from shiftbench.errors import BadImageError, ShiftbenchError, StoreError
from shiftbench.hardening.augmentations.base import image_augmentations, make_image_augmentation, stream
from shiftbench.hardening.errors import AugmentationError
from shiftbench.io.paths import local
from shiftbench.io.schema import check_options, decode
from shiftbench.jobs.base import Executor, Shard
from shiftbench.jobs.threads import one_torch_thread
from shiftbench.labels.space import LabelSpace
from shiftbench.outputs.encoding import Encoding, unique_names
from shiftbench.outputs.layouts import Tree, Variants, file_size
from shiftbench.outputs.record import OutputRecord, check_destination
from shiftbench.outputs.write import Written, write
from shiftbench.shifts.seeds import SEED_SCHEME

Copies = Annotated[int, Meta(ge=1, le=10_000)]
RECORD = "shiftbench-augmentation.json"
_ABOUT = "augmented copies of images; written by `shiftbench harden augment`, which continues it"
#: Training images: finer than the quality 85 that corrupted ones are published with.
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
    root, target, part = Path(source), Path(destination), Shard.parse(shard)
    count = decode(copies, Copies, "the number of copies", AugmentationError)
    given, factory = dict(options or {}), image_augmentations.get(name)
    # What the record keeps: the options as they were given, over the defaults.
    chosen = {**check_options(given, factory, f"the augmentation {name!r}", AugmentationError), **given}
    check_destination(target, RECORD, root)
    images = images_below(root)
    check_links(images, target)
    files = names_of_copies(images.paths, count, lossless=lossless)
    recipe = _recipe(images, name, chosen, count, seed, lossless)
    augmented = AugmentedCopies(images, name, given, count, seed)
    done = write(
        OutputRecord(target, RECORD, _ABOUT, recipe),
        partial(Tree, augmented, target, files),
        what="augmented images",
        shard=part,
        workers=workers,
        executor=executor,
        progress=progress,
    )
    own = len(part.of(range(len(images))))
    return Augmented(**vars(done), source=root, augmentation=name, options=chosen, copies=count, shard=part, images=own)


class AugmentedCopies(Variants):
    """Copies of images, each by a generator of its own."""

    def __init__(self, images: FileDataset, name: str, options: Mapping[str, object], copies: int, seed: int) -> None:
        self.source, self.names = images, [str(copy) for copy in range(copies)]
        self._made_by, self._seed = (name, options), seed
        self._augmentation = make_image_augmentation(name, **options)

    def __getstate__(self) -> dict[str, object]:
        """Without the augmentation, which may be a closure: workers make their own."""
        return {key: value for key, value in vars(self).items() if key != "_augmentation"}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state)
        name, options = self._made_by
        self._augmentation = make_image_augmentation(name, **options)

    def make(self, variant: int, pixels: Pixels, image_id: str) -> Pixels:
        try:
            with one_torch_thread():
                return self._augmentation(pixels, stream(self._seed, "augment", image_id, variant))
        except BadImageError:
            raise
        except ShiftbenchError as error:  # an image that the augmentation can't take
            raise bad_image(image_id, str(error.found or error.message)) from error

    def encode(self, pixels: Pixels, file: str) -> bytes:
        return Encoding(lossless=file.lower().endswith(".png"), quality=JPEG_QUALITY)(pixels)


def images_below(root: str | Path) -> FileDataset:
    """Every image below a folder, whatever its folders mean. Links are followed, as in every dataset."""
    return open_unlabelled(root, space=LabelSpace("images", ("image",)))


def check_links(images: FileDataset, target: Path) -> None:
    """Links may bring images into the source; none may lead the work out of the destination, or into itself."""
    inside = target.resolve()
    for folder in sorted({str(PurePosixPath(path).parent) for path in images.paths}):
        came_from, goes_to = (images.root / folder).resolve(), (target / folder).resolve()
        if came_from == inside or inside in came_from.parents:
            raise StoreError("a link in the source leads into the destination", found=images.root / folder)
        if goes_to != inside and inside not in goes_to.parents:
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
        jpeg = not lossless and path.lower().endswith((".jpg", ".jpeg"))
        return path if jpeg or path.lower().endswith(".png") else Encoding(lossless=True).renamed(path)

    names = [PurePosixPath(name) for name in unique_names(paths, renamed, same=str)]
    if copies == 1:
        return [[str(name)] for name in names]
    return [[str(name.with_name(f"{name.stem}-{i}{name.suffix}")) for i in range(1, copies + 1)] for name in names]


def _recipe(
    images: FileDataset, name: str, options: Mapping[str, object], copies: int, seed: int, lossless: bool
) -> dict[str, object]:
    """All that decides the bytes. The source counts by its names and sizes, not by where it is."""
    root = local(images.root)
    sizes = [(i, file_size(root / path)) for i, path in zip(images.ids, images.paths, strict=True)]
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
    """An option as JSON keeps it; a file or folder that it names counts by its content, not by where it is."""
    if isinstance(value, (str, Path)) and Path(value).is_file():
        return {"file": _digest(Path(value).read_bytes())}
    if isinstance(value, (str, Path)) and Path(value).is_dir():
        files = sorted(path for path in Path(value).rglob("*") if path.is_file())
        return {"folder": _digest([(file.relative_to(value).as_posix(), file.stat().st_size) for file in files])}
    try:
        return json.loads(json.dumps(value))
    except TypeError as error:
        raise AugmentationError(
            f"the option {option!r} can't be recorded, so the work could not be continued",
            found=f"an object of {type(value).__name__}",
            expected="a number, a string, a list, a file or a folder",
        ) from error


def _digest(content: bytes | Sequence[tuple[str, int]]) -> str:
    """Of a file's content, or of names and sizes: quick for a million images."""
    data = content if isinstance(content, bytes) else json.dumps([list(entry) for entry in content]).encode()
    return hashlib.blake2b(data, digest_size=16).hexdigest()
