"""Sinks besides those of the core: a file of JSON lines, and Trackio."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, cast

from shiftbench.extend.errors import required

_DEFAULT_FILE = "shiftbench-metrics.jsonl"


class JsonLinesSink:
    """Appends one line per step to a file: ``{"step": 3, "metrics": {...}}``.

    A line is on the disk when ``log`` returns. Numbers that JSON does not have (nan, inf) are null.

    Args:
        target: The file; default: ``shiftbench-metrics.jsonl``.
    """

    def __init__(self, target: str = "") -> None:
        self.path = Path(target or _DEFAULT_FILE)
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        values: dict[str, float | None] = {}
        for name, value in metrics.items():
            number = float(value)
            values[name] = number if math.isfinite(number) else None
        line = json.dumps({"step": int(step), "metrics": values}, ensure_ascii=False, allow_nan=False)
        with self.path.open("a+b") as stream:
            if stream.tell() and not self._ends_with_a_line():
                # A process that was killed while it wrote left half a line, which must not spoil the next.
                stream.write(b"\n")
            stream.write(line.encode() + b"\n")
            stream.flush()
            os.fsync(stream.fileno())

    def _ends_with_a_line(self) -> bool:
        with self.path.open("rb") as stream:
            stream.seek(-1, os.SEEK_END)
            return stream.read(1) == b"\n"

    def close(self) -> None:
        """Do nothing: no file stays open between two calls."""


class _TrackioRun(Protocol):
    def log(self, metrics: dict[str, object], step: int | None = None) -> None: ...
    def finish(self) -> None: ...


class _Trackio(Protocol):
    def init(self, *, project: str) -> _TrackioRun: ...


class TrackioSink:
    """Logs to a new run of a project of Trackio, in its local database.

    Args:
        project: Name of the project; default: ``shiftbench``.
    """

    def __init__(self, project: str = "") -> None:
        library = cast("_Trackio", required("trackio", "trackio", "logging to Trackio"))
        self._run: _TrackioRun | None = library.init(project=project or "shiftbench")

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        if self._run is not None:
            self._run.log({name: float(value) for name, value in metrics.items()}, step=step)

    def close(self) -> None:
        if self._run is not None:
            self._run.finish()
            self._run = None
