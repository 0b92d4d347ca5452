"""The record beside augmented pictures: how they were made, so that one folder never holds two kinds."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shiftbench.errors import StoreError
from shiftbench.hardening.augmentations.options import AugmentationError
from shiftbench.io.atomic import read_json, write_json
from shiftbench.io.locks import claim
from shiftbench.shifts.writing.record import WORKSHOP

RECORD = "shiftbench-augmentation.json"
FORMAT = 1
_ABOUT = "augmented copies of pictures; written by `shiftbench harden augment`, which continues it"


def begin(folder: Path, recipe: Mapping[str, Any]) -> None:
    """Write the record of a new folder, or check that of one that is continued. Shards may begin at once."""
    with claim(folder / WORKSHOP / "lock", wait=True):
        found = read_record(folder)
        if found is None:
            _write(folder, {"format": FORMAT, "about": _ABOUT, "recipe": dict(recipe), "skipped": []})
        else:
            check_recipe(folder, found["recipe"], recipe)


def note_skipped(folder: Path, skipped: Mapping[str, str], tried: Sequence[str]) -> None:
    """Pictures that could not be used; one that was tried again and could be is struck off."""
    with claim(folder / WORKSHOP / "lock", wait=True):
        content = read_record(folder) or {}
        before = {entry["id"]: entry["why"] for entry in content["skipped"]}
        settled = set(tried)
        now = {image_id: why for image_id, why in before.items() if image_id not in settled} | dict(skipped)
        if now != before:
            content["skipped"] = [{"id": image_id, "why": why} for image_id, why in sorted(now.items())]
            _write(folder, content)


def read_record(folder: Path) -> dict[str, Any] | None:
    """The content of a record, or None where there is none."""
    path = folder / RECORD
    if not path.exists():
        return None
    try:
        content = read_json(path)
        version, recipe, skipped = content["format"], content["recipe"], content["skipped"]
        if not isinstance(recipe, dict) or not isinstance(skipped, list):
            raise TypeError("recipe and skipped are of other kinds")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path} is not a record of augmented pictures", found=repr(error)) from error
    if version != FORMAT:
        raise StoreError(f"{path} is of another format", found=version, expected=FORMAT)
    return dict(content)


def check_recipe(folder: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse what would put two kinds of pictures into one folder, and say which word differs."""
    old, new = _flat(before), _flat(now)
    for key in {**old, **new}:
        if old.get(key) != new.get(key):
            raise StoreError(
                f"{folder} was begun with another {key}; one folder never holds both",
                found=json.dumps(old.get(key), ensure_ascii=False),
                expected=json.dumps(new.get(key), ensure_ascii=False),
                hint="write to another folder, or repeat the options that made this one",
            )


def _flat(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """The augmentation's own options beside the others, so that the one that differs can be named."""
    options = {f"option {key!r}": value for key, value in recipe.get("options", {}).items()}
    return {key: value for key, value in recipe.items() if key != "options"} | options


def described(option: str, value: Any) -> Any:
    """An option as JSON keeps it; a file or folder that it names counts by what is in it, not by its place."""
    if isinstance(value, (str, Path)) and Path(value).is_file():
        return {"file": _digest(Path(value).read_bytes())}
    if isinstance(value, (str, Path)) and Path(value).is_dir():
        files = sorted(path for path in Path(value).rglob("*") if path.is_file())
        return {"folder": listing([(str(file.relative_to(value)), file.stat().st_size) for file in files])}
    try:
        return json.loads(json.dumps(value))
    except TypeError as error:
        raise AugmentationError(
            f"the option {option!r} can't be written down, so the work could not be continued",
            found=f"an object of {type(value).__name__}",
            expected="a number, a word, a list, a file or a folder",
        ) from error


def listing(files: Sequence[tuple[str, int]]) -> str:
    """A digest of names and sizes: quick to take of a million pictures."""
    return _digest(json.dumps([list(entry) for entry in files]).encode())


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _write(folder: Path, content: Mapping[str, Any]) -> None:
    # By way of the workshop, so that a killed run leaves no half-written neighbour beside the record.
    draft = folder / WORKSHOP / RECORD
    write_json(draft, content)
    draft.replace(folder / RECORD)
