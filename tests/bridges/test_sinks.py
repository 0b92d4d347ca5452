"""JSON lines and Trackio: what is logged can be read back, also after a process was killed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import shiftbench as sb
from shiftbench.conformance import assert_conforms
from shiftbench.integrations import find_sink, sinks


def lines(file: Path) -> list[tuple[int, dict[str, float]]]:
    """The steps of a file; half a line is no step."""
    steps = []
    for line in file.read_text(encoding="utf-8").splitlines():
        if line.endswith("}}"):
            entry = json.loads(line)
            steps.append((entry["step"], entry["metrics"]))
    return steps


def test_json_lines_conform_and_continue_after_half_a_line(tmp_path: Path) -> None:
    file = tmp_path / "new folder" / "metrics.jsonl"
    assert_conforms(sb.check_sink(f"jsonl:{file}", read=lambda: lines(file), folder=tmp_path))
    assert {"jsonl", "trackio"} <= set(sinks.names())
    with file.open("a") as stream:
        stream.write('{"step": 11, "met')
    find_sink(f"jsonl:{file}").log({"val/top1": float("nan"), "café": 0.25}, 12)
    assert lines(file)[-1] == (12, {"val/top1": None, "café": 0.25})
    assert lines(file)[0] == (0, {"shiftbench/photos-c/top1": 0.5, "val/worst group %": 0.25, "café/top1": 1.0})


def test_trackio_keeps_what_is_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path))
    pytest.importorskip("trackio")
    sink = find_sink("trackio:robustness")
    sink.log({"shiftbench/photos-c/top1": 0.5}, 3)
    sink.log({"shiftbench/photos-c/top1": 0.75}, 4)
    sink.close()
    sink.close()
    import trackio
    from trackio.sqlite_storage import SQLiteStorage

    (run,) = trackio.Api().runs("robustness")
    logs = SQLiteStorage.get_logs("robustness", run.name)
    assert {entry["step"]: entry["shiftbench/photos-c/top1"] for entry in logs} == {3: 0.5, 4: 0.75}
