"""The interface of paths over a real S3 server, against pathlib on a copy of the same tree and against boto3."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from shiftbench.errors import StoreError
from shiftbench.io.atomic import read_json, write_atomically, write_json
from shiftbench.io.locks import file_lock
from shiftbench.io.paths import is_object, place, remove_tree
from tests.io.objects.server import Bucket
from tests.raised import raises

TREE = {
    "a.txt": b"one",
    "b/c.json": b"{}",
    "b/.hidden.tmp": b"",
    "b/d/e/1.parquet": b"12345",
    "b/d/e/10.parquet": b"1",
    "b/d/f/2.parquet": b"123",
    "b d/é+%20.txt": b"odd name",
}
QUESTIONS = ["", "b", "b/d", "b/d/e", "a.txt", "b d", "b d/é+%20.txt", "nothing", "b/nothing", "a"]
PATTERNS = ["*", "*.txt", "b/*", "*/*.json", "b/d/*/*.parquet", "b/d/e/1.parquet", "*/d/*/[0-9]*.parquet", "x/*", "b*"]


@pytest.fixture(params=["as it is", "as listed"])
def pair(request: pytest.FixtureRequest, bucket: Bucket, tmp_path: Path) -> tuple[Path, Any]:
    """The same tree on the disk and in a bucket."""
    for name, data in TREE.items():
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    there: Any = place(bucket.put_folder(tmp_path / "tree", "deep/tree"))
    return tmp_path / "tree", there.as_listed_now() if request.param == "as listed" else there


def relative(paths: Any, root: Any) -> list[str]:
    return [str(path.relative_to(root)) for path in paths]


def test_questions_have_the_answers_of_pathlib(pair: tuple[Path, Any]) -> None:
    here, there = pair
    for name in QUESTIONS:
        mine = there / name if name else there
        theirs = here / name
        kinds = (mine.exists(), mine.is_file(), mine.is_dir())
        assert kinds == (theirs.exists(), theirs.is_file(), theirs.is_dir()), name
        if theirs.is_dir():
            assert relative(mine.iterdir(), there) == sorted(relative(theirs.iterdir(), here)), name
        if theirs.is_file():
            assert mine.stat().st_size == theirs.stat().st_size and mine.read_bytes() == theirs.read_bytes()
            assert abs(mine.stat().st_mtime - theirs.stat().st_mtime) < 600
    with pytest.raises(FileNotFoundError):
        (there / "nothing").stat()
    with pytest.raises(FileNotFoundError):
        (there / "nothing").read_bytes()


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_find_what_pathlib_finds(pair: tuple[Path, Any], pattern: str) -> None:
    here, there = pair
    assert relative(there.glob(pattern), there) == relative(sorted(here.glob(pattern)), here)
    if "/" not in pattern:
        assert relative(there.rglob(pattern), there) == relative(sorted(here.rglob(pattern)), here)


def test_names_are_taken_apart_as_by_pathlib(pair: tuple[Path, Any]) -> None:
    here, there = pair
    for name in ("b/d/e/1.parquet", "b d/é+%20.txt"):
        mine = there / name
        theirs = here / name
        assert (mine.name, mine.stem, mine.suffix) == (theirs.name, theirs.stem, theirs.suffix)
        assert mine.parts[-2:] == theirs.parts[-2:]
        assert relative([mine.parent, mine.with_name("x"), mine.with_suffix(".y")], there) == relative(
            [theirs.parent, theirs.with_name("x"), theirs.with_suffix(".y")], here
        )
        assert relative(mine.parents[:2], there) == relative(theirs.parents[:2], here)


def test_a_path_is_its_url(bucket: Bucket) -> None:
    path = place(f"{bucket.url}/a/b/")
    assert str(path) == f"{bucket.url}/a/b" and path == place(bucket.url) / "a" / "b"
    assert len({path, place(f"{bucket.url}/a/b"), path / "c"}) == 2
    assert pickle.loads(pickle.dumps(path)) == path and is_object(path) and not is_object(Path("a"))
    with pytest.raises(TypeError):
        os.fspath(path)  # type: ignore[call-overload]


def test_what_another_machine_writes_is_seen_at_once(bucket: Bucket) -> None:
    folder = place(f"{bucket.url}/w")
    for number in range(3):
        assert len(list(folder.glob("*.json"))) == len(list(folder.rglob("*"))) == number
        assert not (folder / f"{number}.json").exists()
        bucket.put(f"w/{number}.json", b"1")
        assert (folder / f"{number}.json").is_file() and folder.is_dir()


def test_files_are_written_replaced_and_removed(bucket: Bucket) -> None:
    path = place(f"{bucket.url}/w/a.json")
    write_json(path, {"ä": 1})
    assert read_json(path) == {"ä": 1} and bucket.listed() == ["w/a.json"], "one object, and no temporary one"
    write_json(path, 2)
    assert read_json(path) == 2
    path.unlink()
    path.unlink(missing_ok=True)
    with pytest.raises(FileNotFoundError):
        path.unlink()
    bucket.put("w/x/1/2", b"")
    bucket.put("w/xy", b"")
    remove_tree(place(f"{bucket.url}/w/x"))
    remove_tree(place(f"{bucket.url}/w/x"))
    assert [key for key in bucket.listed() if not key.endswith("/")] == ["w/xy"]


def test_a_large_file_is_read_in_parts(bucket: Bucket) -> None:
    data = os.urandom(12_000_000)
    path = place(f"{bucket.url}/large.bin")

    def write(temporary: Path) -> None:
        temporary.write_bytes(data)

    write_atomically(path, write)
    with path.open("rb") as file:
        file.seek(11_000_000)
        assert file.read(1000) == data[11_000_000:11_001_000]
        assert file.seek(-5, os.SEEK_END) == len(data) - 5
        assert file.read() == data[-5:] and file.read(1) == b""
    ranges = [line for line in bucket.server.requests() if line == f"GET /{bucket.name}/large.bin"]
    assert len(ranges) == 2 and path.read_bytes() == data


def test_a_failed_write_leaves_the_old_object(bucket: Bucket) -> None:
    path = place(f"{bucket.url}/a.json")
    write_json(path, 1)

    def fail(temporary: Path) -> None:
        temporary.write_text("half")
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        write_atomically(path, fail)
    assert read_json(path) == 1 and bucket.listed() == ["a.json"]


def test_every_claim_succeeds(bucket: Bucket) -> None:
    lock = place(f"{bucket.url}/locks/a.lock")
    with file_lock(lock, wait=True) as first, file_lock(lock, wait=False) as second:
        assert first and second
    assert bucket.listed() == []


@pytest.mark.parametrize(
    "url", ["s3://", "s3:///key", "s3://b//x", "s3://b/../x", "http://host/x", "s3://b/x?token=t0ken", "ftp://b/x"]
)
def test_what_is_no_place_is_refused(url: str) -> None:
    with pytest.raises(StoreError) as caught:
        place(url)
    assert "t0ken" not in str(caught.value)


def test_a_password_in_a_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(StoreError) as caught:
        place("s3://me:hunter2@bucket/x")
    assert caught.value.expected == "s3://BUCKET/FOLDER"
    assert "hunter2" not in str(caught.value) and "me:" not in str(caught.value)


def test_a_url_that_was_made_a_path_is_told() -> None:
    with raises(StoreError, found="s3:/bucket/x"):
        place(Path("s3://bucket/x"))


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/etc/passwd"])
def test_a_name_can_not_lead_out(bucket: Bucket, name: str) -> None:
    with pytest.raises(StoreError) as caught:
        place(f"{bucket.url}/a") / name
    assert caught.value.found == name


@pytest.mark.parametrize("key", ["d/../../etc/passwd", "d/./x.png", "d//x.png"])
def test_keys_that_are_no_paths_are_refused(bucket: Bucket, key: str) -> None:
    bucket.put("d/red/1.png", b"1")
    bucket.put(key, b"1")
    folder: Any = place(f"{bucket.url}/d")
    with pytest.raises(StoreError):
        folder.as_listed_now()
    assert relative(folder.rglob("*"), folder) == ["red", "red/1.png"], "and not listed by others"
