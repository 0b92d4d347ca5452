"""A full or closed disk: a clear word at once, nothing lost, nothing doubled, and the same call continues."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shiftbench.runs.ray_engine import RayExecutor
from shiftbench.store.atomic import UnwritableError, write_json
from shiftbench.store.locks import claim
from tests.runs.helpers import colour_folder
from tests.runs.test_evaluate import run_small, stored


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return colour_folder(tmp_path_factory.mktemp("data") / "pictures")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 64 kB: less than the run's shards and predictions."""
    place = tmp_path / "disk"
    place.mkdir()
    if os.geteuid() != 0 or subprocess.run(mount(place, "size=64k"), capture_output=True).returncode != 0:
        pytest.skip("a file system can't be mounted here")
    yield place
    # Lazily: the traceback of a failed write holds its file open until it is forgotten.
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def mount(place: Path, options: str) -> list[str]:
    return ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]


def executor(engine: str) -> Any:
    return RayExecutor(workers=2) if engine == "ray" else engine


@pytest.mark.parametrize("engine", ["threads", "processes", pytest.param("ray", marks=pytest.mark.soak)])
def test_a_full_disk(pictures: Path, disk: Path, tmp_path: Path, engine: str) -> None:
    with pytest.raises(UnwritableError, match="No space left on device") as caught:
        run_small(pictures, disk / "w", engine=executor(engine), workers=2)
    assert "what is done is kept" in str(caught.value)
    kept = list((disk / "w" / "shards").rglob("[0-9]*.parquet"))
    assert kept, "what was done is there"
    assert not list(disk.rglob(".*.tmp")), "and no half file"
    subprocess.run(mount(disk, "remount,size=4m"), check=True)
    run_small(pictures, disk / "w", engine=executor(engine), workers=2)
    run_small(pictures, tmp_path / "whole")
    assert stored(disk / "w") == stored(tmp_path / "whole")


def test_a_disk_that_is_read_only(pictures: Path, disk: Path) -> None:
    subprocess.run(mount(disk, "remount,size=4m"), check=True)
    run_small(pictures, disk / "w", suite="clean")
    before = stored(disk / "w")
    subprocess.run(mount(disk, "remount,ro"), check=True)
    assert len(run_small(pictures, disk / "w", suite="clean").cells) == 1, "what is complete needs no writing"
    with pytest.raises(UnwritableError, match="Read-only file system"):
        run_small(pictures, disk / "w")
    assert stored(disk / "w") == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(UnwritableError, match="Permission denied"):
        write_json(tmp_path / "new" / "a.json", {})


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    with claim(tmp_path / "a.lock", wait=False) as mine:
        assert mine
