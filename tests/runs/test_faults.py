"""A full or closed disk: a clear word at once, nothing lost, nothing doubled, and the same call continues."""

from __future__ import annotations

import errno
import fcntl
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shiftbench.io.atomic import read_json, write_json
from shiftbench.io.locks import file_lock
from shiftbench.io.paths import UnwritableError
from shiftbench.jobs.ray_executor import RayExecutor
from tests.runs.helpers import colour_folder
from tests.runs.test_evaluate import run_small, stored

pytestmark = pytest.mark.reliability("injected faults")


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
        run_small(pictures, disk / "w", executor=executor(engine), workers=2)
    assert "finished work is kept" in str(caught.value)
    kept = list((disk / "w" / "shards").rglob("[0-9]*.parquet"))
    assert kept, "what was done is there"
    assert not list(disk.rglob(".*.tmp")), "and no half file"
    subprocess.run(mount(disk, "remount,size=4m"), check=True)
    run_small(pictures, disk / "w", workers=2)
    run_small(pictures, tmp_path / "whole")
    assert stored(disk / "w") == stored(tmp_path / "whole")


def test_a_disk_that_is_read_only(pictures: Path, disk: Path) -> None:
    subprocess.run(mount(disk, "remount,size=4m"), check=True)
    run_small(pictures, disk / "w", suite="clean")
    before = stored(disk / "w")
    subprocess.run(mount(disk, "remount,ro"), check=True)
    assert len(run_small(pictures, disk / "w", suite="clean").results) == 1, "what is complete needs no writing"
    with pytest.raises(UnwritableError, match="Read-only file system"):
        run_small(pictures, disk / "w")
    assert stored(disk / "w") == before


_NOBODY = 65_534


def _write_as_nobody(folder: Path, answers: Any) -> None:
    """Root may write everywhere, so it becomes somebody else, for good: a process of its own."""
    if os.geteuid() == 0:
        os.setgid(_NOBODY)
        os.setuid(_NOBODY)
    answers.put(read_json(folder / "old.json"))
    for name in ("new/a.json", "old.json"):
        try:
            write_json(folder / name, {})
        except UnwritableError as error:
            answers.put(str(error))


def test_a_folder_without_permission() -> None:
    spawn = multiprocessing.get_context("spawn")
    answers = spawn.Queue()
    # Not below pytest's own folder, which nobody else may even enter.
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        write_json(folder / "old.json", 1)
        if os.geteuid() == 0:
            os.chown(folder, _NOBODY, _NOBODY)
        folder.chmod(0o500)
        process = spawn.Process(target=_write_as_nobody, args=(folder, answers))
        process.start()
        process.join(300)
        assert process.exitcode == 0
        assert answers.get(timeout=120) == 1, "what is there can be read"
        for _ in range(2):
            error = answers.get(timeout=120)
            assert "can't be written" in error and "Permission denied" in error
        folder.chmod(0o700)
        assert [path.name for path in folder.iterdir()] == ["old.json"] and read_json(folder / "old.json") == 1


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    with file_lock(tmp_path / "a.lock", wait=False) as mine:
        assert mine


def test_a_script_without_a_main_guard_ends_with_a_word(tmp_path: Path) -> None:
    """Its worker processes run the script again, and die of it before they have read what they shall do."""
    colour_folder(tmp_path / "data", per_class=2)
    script = tmp_path / "script.py"
    script.write_text(
        "import shiftbench as sb\n"
        "from tests.runs.helpers import COLOURS, brightest_channel\n"
        "model = sb.load_classifier(brightest_channel, labels=COLOURS, name='c')\n"
        "model.ballast = b'x' * 200_000\n"  # more than a pipe holds
        f"sb.evaluate(model, 'clean', {str(tmp_path / 'data')!r}, {str(tmp_path / 'w')!r}, labels=COLOURS,"
        " executor='processes', workers=2, progress=False)\n"
    )
    done = subprocess.run(
        [sys.executable, script],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": "."},
    )
    assert done.returncode != 0
    assert "a script that does not begin under" in done.stderr  # Python may add a remark about its semaphores
