"""Corrupted copies written by executors: the same files as from the threads of one process."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shiftbench.datasets.catalogue import open_dataset
from shiftbench.errors import StoreError
from shiftbench.jobs.base import Executor, Failure, Job, Problem
from shiftbench.jobs.executors import ProcessExecutor, ThreadExecutor
from shiftbench.jobs.progress import Advance
from shiftbench.outputs.record import WORKSHOP
from shiftbench.shifts.corruptions.api import Corruption
from shiftbench.shifts.write import FORMATS, RECORD, write_corruptions
from tests.commands import output
from tests.outputs.helpers import bytes_below, cifar_like, picture_folder

SMALL: dict[str, Any] = {"names": "fog,gaussian_noise", "severities": (1, 3), "size": 32}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    made = picture_folder(tmp_path / "pictures")
    (made / "cat" / "bad.jpg").write_text("<html>")
    return made


@pytest.fixture(autouse=True)
def small_items(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shiftbench.outputs.write._ITEM_IMAGES", 8)


@pytest.mark.parametrize(
    ("executor", "format"),
    [
        (ThreadExecutor(3), "tree"),
        (ThreadExecutor(3), "shards"),
        (ProcessExecutor(2), "arrays"),
        pytest.param(ProcessExecutor(2), "tree", marks=pytest.mark.soak),
        pytest.param(ProcessExecutor(2), "shards", marks=pytest.mark.soak),
    ],
)
def test_the_files_of_an_executor_are_those_of_one_process(
    executor: Executor, format: Any, source: Path, tmp_path: Path
) -> None:
    options = {**SMALL, "format": format, "shard_size": 3, "labels": "folders"}
    plain = write_corruptions(source, tmp_path / "plain", **options)
    spread_out = write_corruptions(source, tmp_path / "spread", executor=executor, **options)
    assert bytes_below(tmp_path / "spread") == bytes_below(tmp_path / "plain")
    assert spread_out.skipped == plain.skipped and list(plain.skipped) == ["cat/bad.jpg"]
    assert (spread_out.written, spread_out.already) == (plain.written, 0) == (40, 0)


@pytest.mark.parametrize("format", FORMATS)
def test_jobs_that_share_the_work_write_the_files_of_one(format: Any, source: Path, tmp_path: Path) -> None:
    options = {**SMALL, "format": format, "shard_size": 3, "labels": "folders"}
    whole = write_corruptions(source, tmp_path / "whole", **options)
    first, second = (write_corruptions(source, tmp_path / "c", shard=shard, **options) for shard in ("2/3", "3/3"))
    assert "fog.1" in json.loads((tmp_path / "c" / RECORD).read_text())["unfinished"]
    last = write_corruptions(source, tmp_path / "c", shard="1/3", **options)
    assert first.written + second.written + last.written == whole.written
    assert first.already == second.already == last.already == 0
    assert bytes_below(tmp_path / "c") == bytes_below(tmp_path / "whole")


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

    def run(self, job: Job[Any], items: Any, advance: Advance) -> list[Failure]:
        job.compute(items[0], advance, wait=True)
        return [Failure(item, Problem(str(item), "no more")) for item in items[1:]]


def test_what_failed_is_told_and_can_be_continued(source: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="blocks failed") as caught:
        write_corruptions(source, tmp_path / "c", executor=Failing(), **SMALL)
    assert "no more" in str(caught.value.found) and "resumes" in str(caught.value.hint)
    assert json.loads((tmp_path / "c" / RECORD).read_text())["unfinished"]
    rest = write_corruptions(source, tmp_path / "c", **SMALL)
    assert 0 < rest.written < 40 and rest.written + rest.already == 40


@pytest.mark.parametrize("engines", [(Failing(), None), (None, ThreadExecutor(2))])
def test_arrays_are_continued_by_whatever_engine(
    engines: tuple[Executor | None, Executor | None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = cifar_like(tmp_path / "a")
    options: dict[str, Any] = {"names": "fog,shot_noise", "labels": "cifar-10", "workers": 1}
    write_corruptions(images, tmp_path / "whole", **options)
    calls = []
    batch = Corruption.batch

    def failing(self: Corruption, pixels: Any, **rest: Any) -> Any:
        calls.append(self.name)
        if engines[0] is None and len(calls) > 17:
            raise MemoryError
        return batch(self, pixels, **rest)

    monkeypatch.setattr(Corruption, "batch", failing)
    with pytest.raises((StoreError, MemoryError)):
        write_corruptions(images, tmp_path / "c", executor=engines[0], **options)
    monkeypatch.setattr(Corruption, "batch", batch)
    assert not list((tmp_path / "c").glob("fog*"))
    rest = write_corruptions(images, tmp_path / "c", executor=engines[1], **options)
    # the first piece of three images, all shifts; where the machine was full, half of the second, too
    assert (rest.already, rest.written) == ((30, 370) if engines[0] else (45, 355))
    assert bytes_below(tmp_path / "c") == bytes_below(tmp_path / "whole")


def test_pictures_are_surveyed_once_for_all_workers(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once to know how long the arrays are, once to be corrupted, whatever the number of items and of attempts."""
    reads: Counter[str] = Counter()
    dataset = open_dataset(source, space="folders")
    read = type(dataset).read

    def counted(self: Any, index: int) -> Any:
        reads[self.ids[index]] += 1
        return read(self, index)

    monkeypatch.setattr(type(dataset), "read", counted)
    options = {**SMALL, "format": "arrays"}
    with pytest.raises(StoreError, match="blocks failed"):
        write_corruptions(dataset, tmp_path / "c", executor=Failing(), **options)
    done = write_corruptions(dataset, tmp_path / "c", executor=ThreadExecutor(2), **options)
    assert list(done.skipped) == ["cat/bad.jpg"]
    assert reads.pop("cat/bad.jpg") == 1
    assert len(reads) == 10 and set(reads.values()) == {2}


@pytest.mark.parametrize("damage", [lambda content: content[:-1], lambda content: bytes(len(content))])
def test_a_damaged_piece_is_made_anew(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    images = cifar_like(tmp_path / "a")
    options: dict[str, Any] = {"names": "fog", "labels": "cifar-10"}
    write_corruptions(images, tmp_path / "whole", **options)
    with pytest.raises(StoreError, match="blocks failed"):
        write_corruptions(images, tmp_path / "c", executor=Failing(), **options)
    (piece,) = (tmp_path / "c" / WORKSHOP).rglob("000000.npy")
    piece.write_bytes(damage(piece.read_bytes()))
    again = write_corruptions(images, tmp_path / "c", executor=ThreadExecutor(2), **options)
    assert (again.already, again.written) == (0, 200)
    assert bytes_below(tmp_path / "c") == bytes_below(tmp_path / "whole")


def test_items_are_of_similar_size_whatever_the_layout(source: Path, tmp_path: Path) -> None:
    class Counting(ThreadExecutor):
        def run(self, job: Job[Any], items: Any, advance: Advance) -> list[Failure]:
            self.items = len(items)
            return super().run(job, items, advance)

    for format, expected in (("tree", 6), ("shards", 6), ("arrays", 5)):
        executor = Counting(1)
        options = {**SMALL, "format": format, "shard_size": 2, "labels": "folders"}
        write_corruptions(source, tmp_path / format, executor=executor, **options)
        assert executor.items == expected, format


@pytest.mark.soak
def test_a_ray_cluster_by_option(source: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    words = ["-c", "fog", "-s", "1", "--size", "32", "-f", "arrays", "--labels", "folders", "--json"]
    words += ["--executor", "ray", "--workers", "2"]
    done = output("corrupt", source, tmp_path / "c", *words)
    assert json.loads(done)["written"] == 10
    options: dict[str, Any] = {"names": "fog", "severities": (1,), "size": 32, "format": "arrays", "labels": "folders"}
    write_corruptions(source, tmp_path / "plain", **options)
    assert bytes_below(tmp_path / "c") == bytes_below(tmp_path / "plain")
