"""The record file of a written data set: how it was made, and what may be added to it.

Everything that decides the bytes is in ``recipe`` and in the description of each corruption. A later run
continues or extends the set when these agree, and is refused when they do not: a tree of two seeds can't be told
from a tree of one by looking at its pictures.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from shiftbench.errors import StoreError
from shiftbench.io.atomic import read_json, write_json
from shiftbench.shifts.corruptions import Corruption

RECORD = "shiftbench-corruptions.json"
FORMAT = 1
#: A folder beside the record, hidden from data sets, where files grow; removed when the work is done.
WORKSHOP = ".writing"
#: What a description says about one severity only.
_OF_SEVERITY = ("severity", "parameters_224")


class Record:
    """The content of the record file, kept in step with it."""

    def __init__(self, folder: Path, content: dict[str, Any]) -> None:
        self.path = folder / RECORD
        self.content = content
        self._writing = threading.Lock()

    @classmethod
    def draft(cls, folder: Path, recipe: Mapping[str, Any], shifts: Sequence[Corruption]) -> Record:
        """The record of ``folder``, new or continued; refuses a set that was made in another way. Writes nothing."""
        recipe = _plain(recipe)
        found = read_record(folder)
        if found is None:
            content: dict[str, Any] = {"format": FORMAT, "about": _ABOUT, "recipe": recipe}
            content |= {"corruptions": {}, "skipped": []}
        else:
            content = found
            _check_recipe(folder, content["recipe"], recipe)
        record = cls(folder, content)
        for shift in shifts:
            record._enter(shift)
        unfinished = {*content.get("unfinished", ()), *(shift.name for shift in shifts)}
        content["unfinished"] = sorted(unfinished)
        content["software"] = _software(content.get("software", ()))
        return record

    def finish(self, shifts: Iterable[Corruption], skipped: Mapping[str, str]) -> None:
        """These are written, all but the pictures that could not be read."""
        with self._writing:
            done = {shift.name for shift in shifts}
            self.content["unfinished"] = [name for name in self.content["unfinished"] if name not in done]
            both = sorted({**self.skipped, **skipped}.items())
            self.content["skipped"] = [{"id": image_id, "why": why} for image_id, why in both]
        self.save()

    @property
    def skipped(self) -> dict[str, str]:
        return {entry["id"]: entry["why"] for entry in self.content["skipped"]}

    def save(self) -> None:
        with self._writing:
            # By way of the workshop, so that a killed run leaves no half-written neighbour beside the record.
            draft = self.path.parent / WORKSHOP / RECORD
            write_json(draft, self.content)
            draft.replace(self.path)

    def _enter(self, shift: Corruption) -> None:
        description = _plain(shift.describe())
        severity = f"{shift.severity:g}"
        common = {key: value for key, value in description.items() if key not in _OF_SEVERITY}
        entry = self.content["corruptions"].setdefault(shift.corruption, {**common, "severities": {}})
        before = {key: value for key, value in entry.items() if key != "severities"}
        if before != common:
            raise _refused(self.path.parent, f"another {shift.corruption}", before, common)
        entry["severities"][severity] = {"parameters_224": description.get("parameters_224")}


_ABOUT = "corrupted copies of a data set; written by `shiftbench corrupt`, which continues or extends it"


def read_record(folder: Path) -> dict[str, Any] | None:
    """The content of a record file, or None where there is none."""
    path = folder / RECORD
    if not path.exists():
        return None
    try:
        content = read_json(path)
        version = content["format"]
        if not isinstance(content["recipe"], dict) or not isinstance(content["corruptions"], dict):
            raise TypeError("recipe and corruptions are not objects")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path} is not a record of corrupted data", found=repr(error)) from error
    if version != FORMAT:
        raise StoreError(f"{path} is of another format", found=version, expected=FORMAT)
    return dict(content)


def _check_recipe(folder: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    for key in sorted({*before, *now}, key=list(now).index if set(before) == set(now) else str):
        old, new = before.get(key), now.get(key)
        if key == "source":
            # The name is where the source lay; its content is what counts.
            old, new = ({k: v for k, v in (part or {}).items() if k != "name"} for part in (old, new))
        if old != new:
            raise _refused(folder, _WORDS.get(key, key), old, new)


_WORDS = {
    "layout": "another layout",
    "seed": "another seed",
    "generator": "another version of the generator",
    "seed_scheme": "another scheme of seeds",
    "source": "another source",
    "geometry": "another resizing",
    "encoding": "another encoding",
    "severities": "other severities, and an array holds all of its own",
    "shard_size": "shards of another size",
}


def _refused(folder: Path, what: str, found: Any, expected: Any) -> StoreError:
    return StoreError(
        f"{folder} was written with {what}; one folder never holds both",
        found=_short(found),
        expected=_short(expected),
        hint="write to another folder, or repeat the options that made this one",
    )


def _short(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (dict, list)) else str(value)


def _software(before: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """Versions that wrote parts of this set. They are told, not compared: pixels follow the generator's version."""
    import cv2
    import PIL

    from shiftbench._version import __version__

    now = {"shiftbench": __version__, "pillow": PIL.__version__, "opencv": cv2.__version__}
    return [dict(entry) for entry in before] + ([now] if now not in before else [])


def _plain(value: Mapping[str, Any]) -> dict[str, Any]:
    """As JSON gives it back, so that it can be compared with what was read."""
    plain: dict[str, Any] = json.loads(json.dumps(value))
    return plain
