"""WebDataset shards: tar files whose members ``key.jpg``, ``key.cls`` make up a sample.

The headers are scanned once, and what they say is kept in the cache; images are then read at their offsets, in any
order and by any number of threads. Nothing is extracted, so a member's name never becomes a path. A shard in an object
store is fetched once, for the scan, which also hashes its images; after that each image is a request for its bytes, and
no copy of the shard stays on the machine.
"""

from __future__ import annotations

import re
import shutil
import tarfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from shiftbench.datasets.base import DatasetKind, counted_remarks, entry_names
from shiftbench.datasets.images import bad_image
from shiftbench.datasets.stored import SETTLED_NS, EncodedDataset, digest_bytes
from shiftbench.errors import DatasetError, listed, raising
from shiftbench.grouping import repeated
from shiftbench.io.atomic import parse_json, write_bytes
from shiftbench.io.cache import cache_folder, mark_used, trim_cache
from shiftbench.io.hashing import digest
from shiftbench.io.paths import Location, UnwritableError, is_object, place
from shiftbench.jobs.threads import on_threads
from shiftbench.labels.guard import recognise_folders
from shiftbench.labels.space import AskedSpace, LabelSpace

IMAGE_ENDINGS = ("jpg", "jpeg", "png", "webp", "ppm", "pgm", "bmp", "tif", "tiff", "img")
LABEL_ENDINGS = ("cls", "label", "class", "target")
JSON_FIELDS = ("label", "cls", "class", "target", "class_id", "wnid")
#: The file name up to the first dot is the key, the rest is the extension.
_MEMBER = re.compile(r"((?:.*/)?[^/.]+)\.([^/]+)")
_RANGE = re.compile(r"(\d+)\.\.(\d+)")
#: Part of the name of a kept index; another number after each change of what an index holds.
_INDEX_VERSION = 2
#: Objects that are fetched and scanned at a time; each takes the space of a shard on the disk meanwhile.
_FETCHED_AT_ONCE = 4


class Extent(NamedTuple):
    """The bytes of a member in its shard."""

    offset: int
    size: int


#: The members of a sample, by their endings.
Members = dict[str, Extent]


class ShardSample(NamedTuple):
    """A sample with an image: where its image is, and what its other members say about it."""

    key: str
    image: Extent
    label: str | None
    metadata: dict[str, object]
    #: Of the image; empty in shards on a disk, whose images are hashed when somebody asks.
    digest: bytes = b""


class ShardIndex(msgspec.Struct, frozen=True):
    """What a scan of a shard found."""

    samples: list[ShardSample]
    #: All endings of members, for an error that says what the shards hold.
    endings: list[str]
    #: Keys of the samples that have no image, or more than one.
    without_image: list[str]
    with_several_images: list[str]
    #: Whether the archive has an end.
    complete: bool


class WebDataset(EncodedDataset):
    """Images inside tar files; ``images`` gives for each image the number of its shard, the offset and the size."""

    def __init__(
        self,
        name: str,
        space: LabelSpace,
        shards: Sequence[Location],
        ids: Sequence[str],
        labels: Sequence[int],
        images: Sequence[tuple[int, int, int]],
        metadata: Mapping[str, Sequence[object]],
        digests: Sequence[bytes] = (),
        index_files: Sequence[Path] = (),
    ) -> None:
        self.name = name
        self.space = space
        self.shards = list(shards)
        self.ids = list(ids)
        self.labels = np.asarray(labels, dtype=np.int32)
        self._images = np.asarray(images, dtype=np.int64).reshape(-1, 3)
        self.metadata = dict(metadata)
        #: The digests of all images, (images, bytes), if the scan has hashed them.
        self._scanned_digests: NDArray[np.uint8] | None = None
        if digests:
            self._scanned_digests = np.frombuffer(b"".join(digests), np.uint8).reshape(len(digests), -1)
        #: What the cache keeps about the shards.
        self._index_files = list(index_files)

    def _hash(self, indices: Sequence[int]) -> list[bytes]:
        if self._scanned_digests is None:
            return super()._hash(indices)
        return [self._scanned_digests[index].tobytes() for index in indices]

    def _forget_digests(self, indices: Sequence[int]) -> None:
        for file in self._index_files:
            with suppress(OSError):
                file.unlink(missing_ok=True)

    def _bytes(self, index: int) -> bytes:
        number, offset, size = self._images[index].tolist()
        shard = self.shards[number]
        try:
            if is_object(shard):
                data = shard.read_range(offset, size)
            else:
                with shard.open("rb") as file:
                    data = _slice(file, Extent(offset, size))
        except OSError as error:
            raise bad_image(self.ids[index], f"the shard can't be read ({error})") from error
        if len(data) != size:
            raise bad_image(self.ids[index], f"the shard {shard.name} ends inside it")
        return data


def open_webdataset(
    path: str | Location,
    *,
    space: AskedSpace = None,
    name: str | None = None,
    image: str | None = None,
    label: str | None = None,
) -> WebDataset:
    """WebDataset shards: a tar file, a folder of them, or a pattern such as shard-{000..010}.tar.

    The image is the member with an image extension, or with the extension ``image``. The label is
    ``key.cls``, or the field ``label`` of ``key.json``; a sample without one has the label -1.
    """
    shards = find_shards(path)
    scanner = _Scanner(image, label)
    threads = _FETCHED_AT_ONCE if is_object(shards[0]) else 1
    indexes = on_threads(scanner.index, shards, threads)
    samples: list[ShardSample] = []
    members: list[tuple[int, int, int]] = []
    for number, index in enumerate(indexes):
        samples += index.samples
        members += [(number, *sample.image) for sample in index.samples]
    endings: set[str] = set()
    for index in indexes:
        endings.update(index.endings)
    found = f"members with the endings {', '.join(sorted(endings)) or 'none'}"
    if not samples:
        raise DatasetError(
            f"no images in {len(shards)} shards",
            found=found,
            expected=f"members with the ending {image or ', '.join(IMAGE_ENDINGS[:4])}",
        )
    classes = {sample.label for sample in samples if sample.label is not None}
    if not classes:
        raise DatasetError(f"no labels in {len(shards)} shards", found=found, expected=".cls or .json with a label")
    target, class_numbers = recognise_folders(classes, space)
    dataset = WebDataset(
        name or shards[0].parent.resolve().name,
        target,
        shards,
        _unique_ids(samples, members, shards),
        [-1 if sample.label is None else class_numbers[sample.label] for sample in samples],
        members,
        _metadata_columns(samples),
        [sample.digest for sample in samples] if all(sample.digest for sample in samples) else (),
        scanner.index_files,
    )
    dataset.remarks = counted_remarks(_remarks(shards, indexes))
    return dataset


def _remarks(shards: Sequence[Location], indexes: Sequence[ShardIndex]) -> dict[str, list[str]]:
    """What is odd about the shards, with the names of samples or shards."""
    without_image: list[str] = []
    with_several_images: list[str] = []
    incomplete: list[str] = []
    for shard, index in zip(shards, indexes, strict=True):
        without_image += index.without_image
        with_several_images += index.with_several_images
        if not index.complete:
            incomplete.append(shard.name)
    return {
        "samples are ignored, which have no image": without_image,
        "samples have several images, of which one is used": with_several_images,
        "shards lack the end of an archive and may be cut short": incomplete,
    }


class _Scanner:
    """Scans shards, or takes from the cache what an earlier scan found.

    Args:
        image: Ending of the images; any of ``IMAGE_ENDINGS`` if None.
        label: Ending or JSON field of the labels; any of the usual ones if None.
    """

    def __init__(self, image: str | None, label: str | None) -> None:
        self.image = image
        self.label = label
        self.image_endings = (image.lstrip("."),) if image else IMAGE_ENDINGS
        #: The files of the cache that were read or written.
        self.index_files: list[Path] = []

    def index(self, shard: Location) -> ShardIndex:
        """What a shard holds, from the cache if it has not changed since it was scanned."""
        file = self._index_file(shard)
        if file is not None:
            self.index_files.append(file)
            with suppress(OSError, msgspec.MsgspecError):  # A missing or damaged file is written anew.
                checksum, _, content = file.read_bytes().partition(b"\n")
                # A flipped bit may give a label that is as valid as the right one.
                if checksum == digest_bytes(content).hex().encode():
                    mark_used(file)
                    return msgspec.json.decode(content, type=ShardIndex)
        with _on_disk(shard) as path:
            index = self._scanned(path, hashed=is_object(shard))
        if file is not None:
            with suppress(OSError, UnwritableError):  # A cache that cannot be written only costs time.
                content = msgspec.json.encode(index)
                write_bytes(file, digest_bytes(content).hex().encode() + b"\n" + content)
        return index

    def _index_file(self, shard: Location) -> Path | None:
        """Where the index of a shard is kept; None if the shard may change without another stamp, or without cache."""
        if is_object(shard):
            location = str(shard)
            state = shard.stat()
            stamp = (state.st_size, state.st_mtime_ns, 0)
        else:
            location = str(shard.resolve())
            status = shard.stat()
            stamp = (status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        if time.time_ns() - max(stamp[1:]) <= SETTLED_NS:
            return None
        try:
            folder = cache_folder("shards")
        except OSError:  # The home folder is read-only.
            return None
        key = digest("shard", _INDEX_VERSION, location, list(stamp), self.image or "", self.label or "")
        return folder / f"{key}.json"

    def _scanned(self, shard: Path, *, hashed: bool) -> ShardIndex:
        samples: list[ShardSample] = []
        endings: set[str] = set()
        without_image: list[str] = []
        with_several_images: list[str] = []
        with shard.open("rb") as file:
            for key, members in _scan(shard):
                endings.update(members)
                images = [members[ending] for ending in self.image_endings if ending in members]
                if not images:
                    without_image.append(key)
                    continue
                if len(images) > 1:
                    with_several_images.append(key)
                label, metadata = _record(file, key, members, self.label)
                image_digest = digest_bytes(_slice(file, images[0])) if hashed else b""
                samples.append(ShardSample(key, images[0], label, metadata, image_digest))
        return ShardIndex(samples, sorted(endings), without_image, with_several_images, _has_end(shard))


@contextmanager
def _on_disk(shard: Location) -> Iterator[Path]:
    """The shard itself or, for one in an object store, a copy that is removed again."""
    if not is_object(shard):
        yield shard
        return
    trim_cache()
    with TemporaryDirectory(dir=cache_folder("shards")) as folder:
        copy = Path(folder) / shard.name
        with shard.open("rb") as source, copy.open("wb") as target:
            shutil.copyfileobj(source, target, 1 << 22)
        yield copy


def _unique_ids(
    samples: Sequence[ShardSample], members: Sequence[tuple[int, int, int]], shards: Sequence[Location]
) -> list[str]:
    """The keys of the samples; a key that occurs in several shards is preceded by the name of its shard."""
    shared_keys = set(repeated(sample.key for sample in samples))
    ids = []
    for sample, (shard, _, _) in zip(samples, members, strict=True):
        if sample.key in shared_keys:
            ids.append(f"{shards[shard].stem}/{sample.key}")
        else:
            ids.append(sample.key)
    shared_ids = repeated(ids)
    if shared_ids:
        raise DatasetError(
            f"{len(shared_ids)} samples occur more than once in a shard",
            found=listed(shared_ids),
            hint="write the shard again; members were added to it later",
        )
    return ids


def _metadata_columns(samples: Sequence[ShardSample]) -> dict[str, list[object]]:
    """One column for every JSON field of any sample, with None where a sample lacks it."""
    names: set[str] = set()
    for sample in samples:
        names.update(sample.metadata)
    columns = {}
    for name in sorted(names):
        columns[name] = [sample.metadata.get(name) for sample in samples]
    return columns


def recognise_shards(path: Location) -> str | None:
    if path.suffix == ".tar" and "{" in path.name:
        return "a pattern of tar shards"
    if path.suffix == ".tar" and path.is_file():
        return "a tar shard"
    count = sum(name.endswith(".tar") for name in entry_names(path))
    if count:
        return f"{count} tar shards"
    return None


KIND = DatasetKind(recognise_shards, open_webdataset, by_url=True)


def find_shards(path: str | Location) -> list[Location]:
    """The tar files that a path or pattern names, in order."""
    folder = place(str(path))
    shards: list[Location]
    if folder.is_dir():
        shards = sorted(folder.glob("*.tar"))
    else:
        shards = [place(name) for name in expand_braces(str(path))]
    missing = [shard for shard in shards if not shard.is_file()]
    if missing or not shards:
        raise DatasetError(
            f"{len(missing)} of {len(shards)} shards are missing",
            found=f"no {missing[0]}" if missing else "no .tar file",
        )
    packed = [shard for shard in shards if shard.suffix != ".tar"]
    if packed:
        raise DatasetError(
            "compressed shards have no random access", found=packed[0].name, expected=".tar", hint="decompress them"
        )
    return shards


def expand_braces(pattern: str) -> list[str]:
    """Expand patterns such as ``s-{08..10}.tar`` and ``{a,b}/s.tar`` as a shell does it."""
    braces = re.search(r"\{([^{}]*)\}", pattern)
    if braces is None:
        return [pattern]
    head = pattern[: braces.start()]
    tails = expand_braces(pattern[braces.end() :])
    expanded = []
    for choice in _brace_choices(braces[1]):
        expanded += [head + choice + tail for tail in tails]
    return expanded


def _brace_choices(content: str) -> list[str]:
    """The texts that the content of a pair of braces stands for: ``08..10`` or ``a,b``."""
    limits = _RANGE.fullmatch(content)
    if limits is None:
        return content.split(",")
    first = int(limits[1])
    last = int(limits[2])
    width = len(limits[1]) if limits[1].startswith("0") else 0
    step = 1 if last >= first else -1
    return [f"{i:0{width}d}" for i in range(first, last + step, step)]


def _scan(shard: Path) -> Iterator[tuple[str, Members]]:
    """The samples of a shard: each is a key with its members, which are neighbours in the archive."""
    current = ""
    members: Members = {}
    with (
        raising(DatasetError, f"the shard {shard} is damaged", tarfile.TarError, OSError, EOFError),
        tarfile.open(shard, "r:") as archive,
    ):
        for member in archive:
            archive.members = []  # type: ignore[attr-defined]  # or it keeps every header in memory
            match = _MEMBER.fullmatch(member.name)
            if not member.isreg() or match is None:
                continue
            key = match[1].lstrip("/")
            ending = match[2].lower()
            if members and (current != key or ending in members):
                yield current, members
                members = {}
            current = key
            members[ending] = Extent(member.offset_data, member.size)
    if members:
        yield current, members


def _has_end(path: Path) -> bool:
    """Whether an archive ends with a block of zeros; one that was cut between two members does not."""
    last_block = Extent(max(0, path.stat().st_size - 512), 512)
    with path.open("rb") as file:
        return not any(_slice(file, last_block))


def _record(file: BinaryIO, key: str, members: Members, label: str | None) -> tuple[str | None, dict[str, object]]:
    """The label of a sample, None if it has none, and the other fields of its JSON member."""
    fields: dict[str, object] = {}
    if "json" in members:
        with raising(DatasetError, f"{key}.json is not JSON", ValueError):
            document = parse_json(_slice(file, members["json"]))
        if isinstance(document, dict):
            fields = document
    for ending in LABEL_ENDINGS if label is None else (label,):
        if ending in members:
            text = _slice(file, members[ending]).decode("utf-8", "replace").strip()
            return text or None, fields
    for name in JSON_FIELDS if label is None else (label,):
        value = fields.get(name)
        if isinstance(value, (int, str)) and not isinstance(value, bool):
            del fields[name]
            return str(value), fields
    return None, fields


def _slice(file: BinaryIO, extent: Extent) -> bytes:
    file.seek(extent.offset)
    return file.read(extent.size)
