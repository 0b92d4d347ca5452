"""Files that are there whole or not at all."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any


def write_atomically(path: Path, write: Callable[[Path], None], *, durable: bool = True) -> None:
    """Call ``write`` with a temporary neighbour of ``path``, then rename it into place.

    A reader, and a run that starts again after ``kill -9``, sees the old file, the new one or none; two
    writers do not disturb each other, because each has its own neighbour. ``durable`` waits for the disk, so
    that even a power cut leaves a whole file; what carries its own digest and can be made anew need not.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        write(temporary)
        if durable:
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any) -> None:
    text = json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    write_atomically(path, lambda temporary: _write_text(temporary, text))


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
