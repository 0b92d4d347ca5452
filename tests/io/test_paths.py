"""Patterns of files below a folder that may come from a stranger."""

from __future__ import annotations

from pathlib import Path

import pytest

from shiftbench.io.paths import LinkedFolderError, glob_unlinked


def test_patterns_find_what_pathlib_finds(tmp_path: Path) -> None:
    for name in ("a/x/1.parquet", "a/y/2.parquet", "b/x/.hidden.parquet", "b/x/note.txt", "b/file", "c.d/x/3.parquet"):
        path = tmp_path / "predictions" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "predictions" / "a" / "x" / "broken.parquet").symlink_to(tmp_path / "nowhere")
    for pattern in (
        "predictions/*/*/*.parquet",
        "predictions/b/*/*",
        "*",
        "predictions/*/x/1.parquet",
        "none/*",
        "p?e*/a",
    ):
        assert list(glob_unlinked(tmp_path, pattern)) == sorted(tmp_path.glob(pattern)), pattern


def test_patterns_lead_through_no_link(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "x").mkdir(parents=True)
    root = tmp_path / "root"
    (root / "predictions").mkdir(parents=True)
    (root / "predictions" / "linked").symlink_to(elsewhere)
    assert list(glob_unlinked(root, "predictions/*/*/*")) == []
    (elsewhere / "x" / "1.parquet").touch()
    with pytest.raises(LinkedFolderError):
        list(glob_unlinked(root, "predictions/*/*/*"))
