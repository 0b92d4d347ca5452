"""WebDataset shards: tar files whose members ``key.jpg``, ``key.cls`` make up a sample.

The headers are scanned once; images are then read at their offsets, in any order and by any number of
threads. Nothing is extracted, so a member's name never becomes a path. Shards in an object store are copied to the
cache, once on each machine that reads them.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from shiftbench.datasets.base import DatasetKind, counted_remarks, entry_names
from shiftbench.datasets.images import bad_image
from shiftbench.datasets.stored import EncodedDataset
from shiftbench.errors import DatasetError, listed, raising
from shiftbench.grouping import repeated
from shiftbench.io.atomic import parse_json
from shiftbench.io.cache import local_copy
from shiftbench.io.paths import Location, place
from shiftbench.labels.guard import recognise_folders
from shiftbench.labels.space import AskedSpace, LabelSpace

IMAGE_ENDINGS = ("jpg", "jpeg", "png", "webp", "ppm", "pgm", "bmp", "tif", "tiff", "img")
LABEL_ENDINGS = ("cls", "label", "class", "target")
JSON_FIELDS = ("label", "cls", "class", "target", "class_id", "wnid")
#: The file name up to the first dot is the key, the rest is the extension.
_MEMBER = re.compile(r"((?:.*/)?[^/.]+)\.([^/]+)")
_RANGE = re.compile(r"(\d+)\.\.(\d+)")


class Extent(NamedTuple):
    """The bytes of a member in its shard."""

    offset: int
    size: int


#: The members of a sample, by their endings.
Members = dict[str, Extent]


class ShardSample(NamedTuple):
    """A sample with an image: where its image is, and what its other members say about it."""

    key: str
    shard: int
    image: Extent
    label: str | None
    metadata: dict[str, object]


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
    ) -> None:
        self.name = name
        self.space = space
        self.shards = list(shards)
        self.ids = list(ids)
        self.labels = np.asarray(labels, dtype=np.int32)
        self._images = np.asarray(images, dtype=np.int64).reshape(-1, 3)
        self.metadata = dict(metadata)

    def _bytes(self, index: int) -> bytes:
        number, offset, size = self._images[index].tolist()
        shard = self.shards[number]
        try:
            with local_copy(shard).open("rb") as file:
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
    scan = _Scan(image, label)
    for number, shard in enumerate(map(local_copy, shards)):
        scan.add(number, shard)
    samples = scan.samples
    endings = f"members with the endings {', '.join(sorted(scan.endings)) or 'none'}"
    if not samples:
        raise DatasetError(
            f"no images in {len(shards)} shards",
            found=endings,
            expected=f"members with the ending {image or ', '.join(IMAGE_ENDINGS[:4])}",
        )
    classes = {sample.label for sample in samples if sample.label is not None}
    if not classes:
        raise DatasetError(f"no labels in {len(shards)} shards", found=endings, expected=".cls or .json with a label")
    target, index = recognise_folders(classes, space)
    name = name or shards[0].parent.resolve().name
    ids = _unique_ids(samples, shards)
    labels = [-1 if sample.label is None else index[sample.label] for sample in samples]
    members = [(sample.shard, *sample.image) for sample in samples]
    dataset = WebDataset(name, target, shards, ids, labels, members, _metadata_columns(samples))
    incomplete = [shard.name for shard in shards if not _has_end(shard)]
    remarks = {
        "samples are ignored, which have no image": scan.without_image,
        "samples have several images, of which one is used": scan.with_several_images,
        "shards lack the end of an archive and may be cut short": incomplete,
    }
    dataset.remarks = counted_remarks(remarks)
    return dataset


class _Scan:
    """Collects the samples of shards, one shard after another.

    Args:
        image: Ending of the images; any of ``IMAGE_ENDINGS`` if None.
        label: Ending or JSON field of the labels; any of the usual ones if None.
    """

    def __init__(self, image: str | None, label: str | None) -> None:
        self.label = label
        self.image_endings = (image.lstrip("."),) if image else IMAGE_ENDINGS
        self.samples: list[ShardSample] = []
        #: All endings of members, for an error that says what the shards hold.
        self.endings: set[str] = set()
        #: Keys of the samples that have no image, or more than one.
        self.without_image: list[str] = []
        self.with_several_images: list[str] = []

    def add(self, number: int, shard: Path) -> None:
        with shard.open("rb") as file:
            for key, members in _scan(shard):
                self.endings.update(members)
                images = [members[ending] for ending in self.image_endings if ending in members]
                if not images:
                    self.without_image.append(key)
                    continue
                if len(images) > 1:
                    self.with_several_images.append(key)
                label, metadata = _record(file, key, members, self.label)
                self.samples.append(ShardSample(key, number, images[0], label, metadata))


def _unique_ids(samples: Sequence[ShardSample], shards: Sequence[Location]) -> list[str]:
    """The keys of the samples; a key that occurs in several shards is preceded by the name of its shard."""
    shared_keys = set(repeated(sample.key for sample in samples))
    ids = []
    for sample in samples:
        if sample.key in shared_keys:
            ids.append(f"{shards[sample.shard].stem}/{sample.key}")
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


def _has_end(shard: Location) -> bool:
    """Whether an archive ends with a block of zeros; one that was cut between two members does not."""
    path = local_copy(shard)
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
