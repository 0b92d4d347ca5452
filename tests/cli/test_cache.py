"""The cache is listed, cleared, and kept within its limit."""

from __future__ import annotations

import os
import re
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest

from shiftbench.errors import StoreError
from shiftbench.io import cache as cache_module
from shiftbench.io.cache import cache_entries, cache_folder, cached_array, trim_cache, unpacked
from tests.commands import answer, call, output

DAY = 86_400


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SHIFTBENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def put(kind: str, name: str, size: int, days: float) -> Path:
    """A file of the cache that was last used some days ago."""
    path = cache_folder(kind) / name
    path.write_bytes(bytes(size))
    moment = time.time() - days * DAY
    os.utime(path, (moment, moment))
    return path


def test_the_list_names_kind_size_and_last_use() -> None:
    put("arrays", "a.npy", 3000, 2)
    put("onnx", "b.onnx", 5000, 0)
    put("arrays", "a.lock", 10, 0)
    put("jobs", "job.json", 10, 90)
    listing = answer("cache", "list")
    assert [(entry["kind"], entry["name"], entry["bytes"]) for entry in listing["entries"]] == [
        ("onnx", "b.onnx", 5000),
        ("arrays", "a.npy", 3000),
    ]
    assert listing["bytes"] == 8000
    assert "arrays/a.npy" in output("cache", "list")


def test_clear_asks_and_spares_what_is_newer(cache: Path) -> None:
    old = put("arrays", "old.npy", 3000, 40)
    new = put("arrays", "new.npy", 3000, 3)
    job = put("jobs", "job.json", 10, 90)
    assert isinstance(call("cache", "clear").exception, StoreError)
    assert call("cache", "clear", text="n\n").exit_code == 1
    assert old.exists()
    cleared = answer("cache", "clear", "--older-than", "30", "--yes")
    assert [entry["name"] for entry in cleared["removed"]] == ["old.npy"]
    assert (old.exists(), new.exists()) == (False, True)
    output("cache", "clear", text="y\n")
    assert not new.exists()
    assert answer("cache", "clear")["removed"] == []
    assert job.exists(), "records of jobs are no cache"


def test_clear_removes_links_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("mine")
    (cache_folder("archives") / "link").symlink_to(tmp_path / "mine", target_is_directory=True)
    output("cache", "clear", "--yes")
    assert (tmp_path / "mine" / "file").read_text() == "mine"
    assert cache_entries() == []


def test_the_least_recently_used_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHIFTBENCH_CACHE_LIMIT", "0.000004")
    oldest = put("arrays", "1.npy", 3000, 9)
    older = put("onnx", "2.onnx", 3000, 5)
    recent = put("arrays", "3.npy", 3000, 0.5)
    trim_cache()
    assert (oldest.exists(), older.exists(), recent.exists()) == (False, False, True)
    monkeypatch.setenv("SHIFTBENCH_CACHE_LIMIT", "0")
    trim_cache()
    assert recent.exists(), "a run may be using it"


def test_what_is_used_again_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a/1.txt", "text")
    content = unpacked(tmp_path / "a.zip")
    [entry] = cache_entries()
    for path in [entry.path, *entry.path.rglob("*")]:
        os.utime(path, (0, 0))
    assert unpacked(tmp_path / "a.zip") == content
    [entry] = cache_entries()
    monkeypatch.setenv("SHIFTBENCH_CACHE_LIMIT", "0")
    trim_cache()
    assert content.is_dir()


def test_a_limit_that_is_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHIFTBENCH_CACHE_LIMIT", "much")
    with pytest.raises(StoreError) as caught:
        trim_cache()
    assert caught.value.found == "much"


def test_every_kind_of_the_source_is_listed() -> None:
    """A folder that the list leaves out is never cleared, and has no limit. Records of jobs and locks are no cache."""
    source = Path(cache_module.__file__).parents[1]
    kinds: set[str] = set()
    for file in source.rglob("*.py"):
        for words in re.findall(r"cache_folder\(((?:[\"'][\w-]+[\"'](?:, )?)+)", file.read_text(encoding="utf-8")):
            kinds.add("/".join(re.findall(r"[\w-]+", words)))
    assert kinds - {"jobs", "hardening/gpus"} == set(cache_module._KINDS)


def test_a_cached_array_with_a_flipped_bit_is_made_again(cache: Path) -> None:
    values = np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32)
    path = cache_folder("texts") / "a.npz"
    makings = 0

    def make() -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        nonlocal makings
        makings += 1
        return values

    for _ in range(2):
        assert cached_array(path, make).tobytes() == values.tobytes()
    assert makings == 1
    content = path.read_bytes()
    for bit in range(0, len(content) * 8, 5):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        assert cached_array(path, make).tobytes() == values.tobytes()
    assert makings > 100
    for damaged in (b"", content[:-30], bytes(len(content)), b"\x93NUMPY"):
        path.write_bytes(damaged)
        assert cached_array(path, make).tobytes() == values.tobytes()
        assert path.read_bytes() == content
