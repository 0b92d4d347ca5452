"""Conformance checks for sinks: what a training relies on, for authors to run."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from shiftbench.conformance import CheckResult, require, requirement
from shiftbench.integrations.sinks import Sink, find_sink

#: Reads back what a sink has kept: a step and its metrics, in the order in which they were logged.
ReadBack = Callable[[], Sequence[tuple[int, Mapping[str, float]]]]
#: Stands for a key or password in the environment, which a sink may use but not write down.
_SECRET = "conformance-secret-5f2c"
_SECRET_VARIABLES = ("WANDB_API_KEY", "MLFLOW_TRACKING_TOKEN", "AWS_SECRET_ACCESS_KEY")
#: Names that a monitor logs: with a slash, a space, a percent sign and a letter that is not ASCII.
_METRICS = {"shiftbench/photos-c/top1": 0.5, "val/worst group %": 0.25, "café/top1": 1.0}


def check_sink(
    make: str | Callable[[], Sink], *, read: ReadBack | None = None, folder: str | Path | None = None
) -> list[CheckResult]:
    """Run every check on a sink; a failing one explains itself, and none stops the others.

    Several sinks are made, one after the other, and log a few steps; use a folder or project for the purpose.

    Args:
        make: Makes the sink, always for the same target; or its spec, such as ``"tensorboard:runs"``.
        read: Reads back what was logged to this target; without it, order and durability can't be verified.
        folder: Where the sink writes its files, which are then searched for secrets.
    """
    results: list[CheckResult] = []

    def new_sink() -> Sink:
        return find_sink(make) if isinstance(make, str) else make()

    sink: Sink | None = None
    with requirement("can be made, with log and close", results) as notes:
        sink = new_sink()
        lacking = [name for name in ("log", "close") if not callable(getattr(sink, name, None))]
        require(not lacking, "the sink lacks methods", found=", ".join(lacking), expected="log and close")
        notes.append(type(sink).__name__)
    if not results[-1].ok or sink is None:
        return results
    _check_logging(sink, read, results)
    _check_closing(sink, new_sink, read, results)
    _check_secrets(new_sink, folder, results)
    return results


def _check_logging(sink: Sink, read: ReadBack | None, results: list[CheckResult]) -> None:
    with requirement("takes every name and number", results):
        sink.log(_METRICS, 0)
        sink.log({"count": 3, "numpy": np.float64(0.5), "undefined": float("nan")}, 1)
        sink.log({}, 2)
    with requirement("the metrics are left as they are", results):
        metrics = dict(_METRICS)
        sink.log(metrics, 3)
        require(metrics == _METRICS, "log() changed the mapping that it was given", found=metrics)
    with requirement("goes on after a failure", results):
        # Refusing what is not a number is right, as is leaving it out.
        with suppress(Exception):
            sink.log({"not a number": object()}, 4)  # type: ignore[dict-item]
        sink.log({"after": 1.0}, 5)
    if read is None:
        return
    with requirement("keeps the events in order, before it is closed", results) as notes:
        reused = {"reused": 0.0}
        for step in (6, 7, 8):
            reused["reused"] = float(step)
            sink.log(reused, step)
        reused["reused"] = -1.0
        kept = [(step, dict(metrics)) for step, metrics in read() if "reused" in metrics]
        expected = [(step, {"reused": float(step)}) for step in (6, 7, 8)]
        hint = "write and flush in log(): training may be killed at any time; keep a copy of the mapping"
        require(kept == expected, "what was logged cannot be read", found=kept, expected=expected, hint=hint)
        notes.append(f"{len(kept)} steps read back")


def _check_closing(sink: Sink, new_sink: Callable[[], Sink], read: ReadBack | None, results: list[CheckResult]) -> None:
    with requirement("can be closed twice", results):
        sink.close()
        sink.close()
    with requirement("a second sink for the same target goes on", results):
        second = new_sink()
        second.log({"resumed": 2.0}, 9)
        second.close()
        if read is not None:
            steps = [step for step, metrics in read() if "reused" in metrics or "resumed" in metrics]
            hint = "append to what is there: a training that is resumed makes its sink again"
            require(steps == [6, 7, 8, 9], "earlier steps are lost", found=steps, expected=[6, 7, 8, 9], hint=hint)


def _check_secrets(new_sink: Callable[[], Sink], folder: str | Path | None, results: list[CheckResult]) -> None:
    """Check that keys of the environment are neither shown nor written."""
    with requirement("shows and writes no secret", results) as notes:
        before = {name: os.environ.get(name) for name in _SECRET_VARIABLES}
        try:
            os.environ.update(dict.fromkeys(_SECRET_VARIABLES, _SECRET))
            sink = new_sink()
            sink.log({"secret": 1.0}, 10)
            shown = f"{sink!r} {vars(sink) if hasattr(sink, '__dict__') else ''}"
            sink.close()
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value
        hint = "leave keys to the library that needs them"
        require(_SECRET not in shown, "the sink shows a key of the environment", found=type(sink).__name__, hint=hint)
        files = [path for path in Path(folder).rglob("*") if path.is_file()] if folder is not None else []
        leaking = [path.name for path in files if _SECRET.encode() in path.read_bytes()]
        require(not leaking, "a key of the environment is in a file", found=", ".join(leaking[:4]), hint=hint)
        notes.append(f"{len(files)} files searched")
