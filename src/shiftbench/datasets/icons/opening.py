"""Open Icons-50: rebuilt or original, a folder or the npy file, whole or one part of a protocol.

A part is named below the set, as if it were a file of it: ``icons/style.train``, ``icons/style-apple.test``. So a suite
can say which part a setting is evaluated on.
"""

from __future__ import annotations

import re
from pathlib import Path

from shiftbench.datasets.base import Dataset
from shiftbench.datasets.icons import original
from shiftbench.datasets.icons.protocols import PARTS, split_icons
from shiftbench.datasets.icons.record import RECORD, TABLE
from shiftbench.datasets.manifest import open_manifest
from shiftbench.errors import DatasetError
from shiftbench.labels.catalogue import label_space
from shiftbench.labels.space import LabelSpace

_PART = re.compile(rf"(?P<protocol>(?:style|subtype|version)[a-z0-9-]*)\.(?P<part>{'|'.join(PARTS)})")
#: So many of the 50 class folders tell Icons-50 from a folder that has a class "hat" and a class "flag".
_ENOUGH_CLASSES = 25


def seen_icons(path: Path) -> str | None:
    """What a path is, if it is Icons-50 or a part of it."""
    match = _PART.fullmatch(path.name)
    if match is not None and not path.exists():
        return f"{match['protocol']}.{match['part']} of Icons-50" if _seen_set(path.parent) else None
    return _seen_set(path)


def _seen_set(path: Path) -> str | None:
    if path.is_file():
        return "Icons-50 in one file" if path.name.lower() == "icons-50.npy" else None
    if not path.is_dir():
        return None
    if (path / RECORD).is_file() and (path / TABLE).is_file():
        return "Icons-50, rebuilt from registry packages"
    present = [key for key in label_space("icons-50").keys if (path / key).is_dir()]
    if len(present) < _ENOUGH_CLASSES:
        return None
    named = (original.FILE_NAME.fullmatch(file.name) for key in present[:3] for file in (path / key).iterdir())
    return "Icons-50" if any(named) else None


def open_icons(path: str | Path, *, space: LabelSpace | str | None = None, name: str | None = None) -> Dataset:
    """A set of icons, or a part of it, with style, rendition and subtype of each icon as metadata."""
    place = Path(path)
    _check_space(space)
    match = _PART.fullmatch(place.name)
    if match is not None and not place.exists():
        split = split_icons(_open_set(place.parent, None), match["protocol"])
        part = split.part(match["part"])
        part.name = name or part.name
        return part
    return _open_set(place, name)


def _open_set(place: Path, name: str | None) -> Dataset:
    if place.is_file():
        return original.open_npy(place, name=name)
    if (place / TABLE).is_file():
        return open_manifest(place / TABLE, space="icons-50", label="class", name=name or place.resolve().name)
    return original.open_folder(place, name=name)


def _check_space(space: LabelSpace | str | None) -> None:
    """The files say which classes they have; another space is an error, not a wish."""
    asked = label_space(space) if isinstance(space, str) else space
    if asked is not None and asked.keys != label_space("icons-50").keys:
        raise DatasetError("these are the classes of Icons-50", found=f"the label space {asked.name!r}")
