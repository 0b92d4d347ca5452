"""Folders whose name has a colon, which Arrow takes for the scheme of a URL if the path is relative."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import answer, output
from tests.faults.attempts import evaluating, start


def test_relative_folders_with_a_colon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run:1").mkdir()
    words = [str(word) for word in evaluating() if word != "--json"]
    words[words.index("-w") + 1] = "run:1/w"
    output(*words, "-q")
    output("store", "export", "run:1/all.parquet", "-w", "run:1/w")
    output("store", "verify", "-w", "run:1/w")
    tables = ("--format", "huggingface", "--labels", "folders", "-c", "contrast", "-s", "1", "--size", "32", "-q")
    output("corrupt", "data", "run:1/copies", *tables)
    (copies,) = sorted((tmp_path / "run:1" / "copies").rglob("*.parquet"))
    words[words.index("--data") + 1] = str(copies.relative_to(tmp_path))
    words[words.index("-w") + 1] = "run:1/again"
    assert {score["n"] for score in answer(*words)["scores"]} == {12}
