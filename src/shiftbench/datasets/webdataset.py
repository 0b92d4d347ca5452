"""WebDataset shards: tar files whose members ``key.jpg``, ``key.cls`` make up a sample.

The headers are scanned once; images are then read at their offsets, in any order and by any number of
threads. Nothing is extracted, so a member's name never becomes a path. Shards in an object store are copied to the
cache, once on each machine that reads them.
"""

from __future__ import annotations

import re
import tarfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from shiftbench.datasets.base import DatasetKind, entry_names
from shiftbench.datasets.images import bad_image
from shiftbench.datasets.stored import EncodedDataset
from shiftbench.errors import DatasetError, listed, raising
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


class WebDataset(EncodedDataset):
    def __init__(
        self,
        name: str,
        space: LabelSpace,
        shards: Sequence[Location],
        ids: Sequence[str],
        labels: Sequence[int],
        places: Sequence[tuple[int, int, int]],
        metadata: Mapping[str, Sequence[object]],
    ) -> None:
        self.name, self.space, self.shards, self.ids = name, space, list(shards), list(ids)
        self.labels = np.asarray(labels, dtype=np.int32)
        self._places = np.asarray(places, dtype=np.int64).reshape(-1, 3)
        self.metadata = dict(metadata)

    def _bytes(self, index: int) -> bytes:
        shard, offset, size = self._places[index].tolist()
        try:
            with local_copy(self.shards[shard]).open("rb") as file:
                data = _slice(file, offset, size)
        except OSError as error:
            raise bad_image(self.ids[index], f"the shard can't be read ({error})") from error
        if len(data) != size:
            raise bad_image(self.ids[index], f"the shard {self.shards[shard].name} ends inside it")
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
    samples: list[tuple[str, str | None, tuple[int, int, int], dict[str, object]]] = []
    endings: set[str] = set()
    without, several = list[str](), list[str]()
    for number, shard in enumerate(map(local_copy, shards)):
        with shard.open("rb") as file:
            for key, members in _scan(shard):
                endings.update(members)
                wanted = (image.lstrip("."),) if image else IMAGE_ENDINGS
                if found := [one for one in wanted if one in members]:
                    value, extra = _record(file, key, members, label)
                    samples.append((key, value, (number, *members[found[0]]), extra))
                    several += [key] * (len(found) > 1)
                else:
                    without.append(key)
    seen = f"members with the endings {', '.join(sorted(endings)) or 'none'}"
    if not samples:
        raise DatasetError(
            f"no images in {len(shards)} shards",
            found=seen,
            expected=f"members with the ending {image or ', '.join(IMAGE_ENDINGS[:4])}",
        )
    keys, values, places, extras = zip(*samples, strict=True)
    if not any(value is not None for value in values):
        raise DatasetError(f"no labels in {len(shards)} shards", found=seen, expected=".cls or .json with a label")
    target, index = recognise_folders({value for value in values if value is not None}, space)
    counts: Counter[str] = Counter(keys)
    ids = [
        key if counts[key] == 1 else f"{shards[number].stem}/{key}"
        for key, (number, _, _) in zip(keys, places, strict=True)
    ]
    if twice := [one for one, count in Counter(ids).items() if count > 1]:
        message = f"{len(twice)} samples occur more than once in a shard"
        raise DatasetError(message, found=listed(twice), hint="write the shard again; members were added to it later")
    labels = [-1 if value is None else index[value] for value in values]
    columns = sorted({column for extra in extras for column in extra})
    metadata = {column: [extra.get(column) for extra in extras] for column in columns}
    dataset = WebDataset(name or shards[0].parent.resolve().name, target, shards, ids, labels, places, metadata)
    remarks = {
        "samples are ignored, which have no image": without,
        "samples have several images, of which one is used": several,
        "shards lack the end of an archive and may be cut short": [s.name for s in shards if not _has_end(s)],
    }
    dataset.remarks = [f"{len(names)} {what}, such as {names[0]}" for what, names in remarks.items() if names]
    return dataset


def recognise_shards(path: Location) -> str | None:
    if path.suffix == ".tar" and ("{" in path.name or path.is_file()):
        return "a pattern of tar shards" if "{" in path.name else "a tar shard"
    count = sum(name.endswith(".tar") for name in entry_names(path))
    return f"{count} tar shards" if count else None


KIND = DatasetKind(recognise_shards, open_webdataset, by_url=True)


def find_shards(path: str | Location) -> list[Location]:
    """The tar files that a path or pattern names, in order."""
    whole = place(str(path))
    shards: list[Location] = [place(one) for one in expand_braces(str(path))]
    if whole.is_dir():
        shards = sorted(whole.glob("*.tar"))
    missing = [p for p in shards if not p.is_file()]
    if missing or not shards:
        raise DatasetError(
            f"{len(missing)} of {len(shards)} shards are missing",
            found=f"no {missing[0]}" if missing else "no .tar file",
        )
    packed = [p for p in shards if p.suffix != ".tar"]
    if packed:
        raise DatasetError(
            "compressed shards have no random access", found=packed[0].name, expected=".tar", hint="decompress them"
        )
    return shards


def expand_braces(pattern: str) -> list[str]:
    """``s-{08..10}.tar`` and ``{a,b}/s.tar``, as a shell does it."""
    match = re.search(r"\{([^{}]*)\}", pattern)
    if match is None:
        return [pattern]
    inside = _RANGE.fullmatch(match[1])
    if inside:
        low, high = int(inside[1]), int(inside[2])
        width = len(inside[1]) if inside[1].startswith("0") else 0
        step = 1 if high >= low else -1
        choices = [f"{i:0{width}d}" for i in range(low, high + step, step)]
    else:
        choices = match[1].split(",")
    head, tail = pattern[: match.start()], pattern[match.end() :]
    return [head + choice + rest for choice in choices for rest in expand_braces(tail)]


#: Ending to (offset, size).
_Members = dict[str, tuple[int, int]]


def _scan(shard: Path) -> Iterator[tuple[str, _Members]]:
    """Samples of a shard: neighbouring members with the same key."""
    current, members = "", _Members()
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
            current, members[ending] = key, (member.offset_data, member.size)
    if members:
        yield current, members


def _has_end(shard: Location) -> bool:
    """Blocks of zeros end every archive; one that was cut between two members lacks them."""
    path = local_copy(shard)
    with path.open("rb") as file:
        return not any(_slice(file, max(0, path.stat().st_size - 512), 512))


def _record(file: BinaryIO, key: str, members: _Members, label: str | None) -> tuple[str | None, dict[str, object]]:
    fields: dict[str, object] = {}
    if "json" in members:
        with raising(DatasetError, f"{key}.json is not JSON", ValueError):
            loaded = parse_json(_slice(file, *members["json"]))
        fields = loaded if isinstance(loaded, dict) else {}
    for ending in LABEL_ENDINGS if label is None else (label,):
        if ending in members:
            return _slice(file, *members[ending]).decode("utf-8", "replace").strip() or None, fields
    for name in JSON_FIELDS if label is None else (label,):
        value = fields.get(name)
        if isinstance(value, (int, str)) and not isinstance(value, bool):
            return str(value), {k: v for k, v in fields.items() if k != name}
    return None, fields


def _slice(file: BinaryIO, offset: int, size: int) -> bytes:
    file.seek(offset)
    return file.read(size)
