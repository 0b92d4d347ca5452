"""The tree shows the architecture: a room imports only from rooms before it on the line."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import shiftbench

ROOT = Path(shiftbench.__file__).parent
#: In an order that the line allows; the store knows nothing but label spaces, so that all others may write files.
ROOMS = (
    "labels",
    "store",
    "datasets",
    "classifiers",
    "shifts",
    "settings",
    "metrics",
    "runs",
    "studies",
    "published",
    "reports",
    "testsets",
    "hardening",
    "cli",
)


def test_every_room_is_on_the_line() -> None:
    assert {path.name for path in ROOT.iterdir() if (path / "__init__.py").exists()} == set(ROOMS)


def test_rooms_import_only_what_comes_before_them() -> None:
    wrong = sorted(
        f"{path.relative_to(ROOT)} imports {room}"
        for path, own, room in _imports()
        if ROOMS.index(room) > ROOMS.index(own)
    )
    assert wrong == []


def _imports() -> Iterator[tuple[Path, str, str]]:
    """(file, its room, the room that it imports when it is loaded)."""
    for path in sorted(ROOT.rglob("*.py")):
        own = path.relative_to(ROOT).parts[0]
        if own not in ROOMS:
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("shiftbench."):
                room = str(node.module).split(".")[1]
                if room in ROOMS:
                    yield path, own, room
