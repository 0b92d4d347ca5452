"""Corrupted copies written by executors: the same files as from the threads of one process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from shiftbench.cli.app import app
from shiftbench.errors import StoreError
from shiftbench.jobs import Executor, Failure, Job, Report, Trouble
from shiftbench.runs.executors import ProcessExecutor, ThreadExecutor
from shiftbench.shifts.writing import spread, write_corruptions
from shiftbench.shifts.writing.record import RECORD
from tests.shifts.writing.helpers import bytes_below, cifar_like, picture_folder

SMALL: dict[str, Any] = {"names": "fog,gaussian_noise", "severities": (1, 3), "size": 32}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    made = picture_folder(tmp_path / "pictures")
    (made / "cat" / "bad.jpg").write_text("<html>")
    return made


@pytest.fixture(autouse=True)
def small_items(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spread, "_PICTURES", 8)


@pytest.mark.parametrize("format", ["tree", "shards"])
@pytest.mark.parametrize("executor", [ThreadExecutor(3), ProcessExecutor(2)], ids=["threads", "processes"])
def test_the_files_of_an_executor_are_those_of_one_process(
    executor: Executor, format: Any, source: Path, tmp_path: Path
) -> None:
    options = {**SMALL, "format": format, "shard_size": 3, "labels": "folders"}
    plain = write_corruptions(source, tmp_path / "plain", **options)
    spread_out = write_corruptions(source, tmp_path / "spread", executor=executor, **options)
    assert bytes_below(tmp_path / "spread") == bytes_below(tmp_path / "plain")
    assert spread_out.skipped == plain.skipped and list(plain.skipped) == ["cat/bad.jpg"]
    assert (spread_out.written, spread_out.already) == (plain.written, 0) == (40, 0)


def test_it_continues_what_another_engine_began(source: Path, tmp_path: Path) -> None:
    write_corruptions(source, tmp_path / "c", **SMALL)
    whole = bytes_below(tmp_path / "c")
    for path in sorted((tmp_path / "c" / "fog").rglob("*.jpg"))[::2]:
        path.unlink()
    again = write_corruptions(source, tmp_path / "c", executor=ThreadExecutor(2), **SMALL)
    assert 0 < again.written < 40 and again.written + again.already == 40
    assert bytes_below(tmp_path / "c") == whole


class Failing(Executor):
    """Computes the first item and gives up the others."""

    def run(self, job: Job[Any], items: Any, report: Report) -> list[Failure]:
        job.compute(items[0], report, wait=True)
        return [Failure(item, Trouble(str(item), "no more")) for item in items[1:]]


def test_what_failed_is_told_and_can_be_continued(source: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="could not be written") as caught:
        write_corruptions(source, tmp_path / "c", executor=Failing(), **SMALL)
    assert "no more" in str(caught.value.found) and "continues" in str(caught.value.hint)
    assert json.loads((tmp_path / "c" / RECORD).read_text())["unfinished"]
    rest = write_corruptions(source, tmp_path / "c", **SMALL)
    assert 0 < rest.written < 40 and rest.written + rest.already == 40


def test_arrays_are_written_by_one_machine(tmp_path: Path) -> None:
    images = cifar_like(tmp_path / "a")
    with pytest.raises(StoreError, match="one machine"):
        write_corruptions(images, tmp_path / "c", names="fog", labels="cifar-10", executor=ThreadExecutor(2))


@pytest.mark.slow
def test_a_ray_cluster_by_option(source: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    words = ["corrupt", str(source), str(tmp_path / "c"), "-c", "fog", "-s", "1", "--size", "32", "--json"]
    done = CliRunner().invoke(app, [*words, "--engine", "ray", "--workers", "2"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["written"] == 10
    write_corruptions(source, tmp_path / "plain", names="fog", severities=(1,), size=32)
    assert bytes_below(tmp_path / "c") == bytes_below(tmp_path / "plain")
