"""Pictures made ready by several threads, or by another than the worker: the same bytes, each picture read once."""

from __future__ import annotations

import itertools
import os
import pickle
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import shiftbench as sb
from shiftbench.api import IncompleteRunError
from shiftbench.arrays import Pixels
from shiftbench.datasets.base import Dataset, DecodedImage
from shiftbench.jobs.base import Block, Executor, Failure, Job, Problem
from shiftbench.jobs.executors import ThreadExecutor
from shiftbench.jobs.progress import Advance
from shiftbench.labels.space import Scores
from shiftbench.runs.compute import ImageMaker, ImageRequest, Ready
from shiftbench.runs.plan import work_items
from shiftbench.settings.base import Setting
from shiftbench.shifts.base import NoShift
from shiftbench.shifts.corruptions.api import Corruption
from tests.runs.helpers import COLOURS, Broken, brightest_channel, colour_folder, darkest_channel
from tests.runs.test_evaluate import SMALL, as_classifier, run_small, stored

BOTH = {"bright": brightest_channel, "dark": darkest_channel}


class Noted(Dataset):
    """Leaves a note of every picture that is read, and by which process."""

    def __init__(self, pictures: Path, notes: Path) -> None:
        self.base = sb.open_dataset(pictures, space=COLOURS)
        self.notes = notes
        self.name = self.base.name
        self.space = COLOURS
        self.ids = self.base.ids
        self.labels = self.base.labels

    @property
    def fingerprint(self) -> str:
        return self.base.fingerprint

    def read(self, index: int) -> DecodedImage:
        with self.notes.open("a") as file:
            file.write(f"{index} {os.getpid()}\n")
        return self.base.read(index)

    def reads(self) -> Counter[int]:
        return Counter(int(line.split()[0]) for line in self.notes.read_text().splitlines())

    def readers(self) -> set[int]:
        return {int(line.split()[1]) for line in self.notes.read_text().splitlines()}


class OnThreads(Executor):
    """One worker, whose items use several threads."""

    def __init__(self, threads: int) -> None:
        self.threads = threads

    def run(self, job: Job[Any], items: Sequence[Any], advance: Advance) -> list[Failure]:
        return ThreadExecutor(1).run(job.threaded(self.threads), items, advance)


class Fed(Executor):
    """Two crews of workers at the same blocks, with one reader for both."""

    def run(self, job: Job[Any], items: Sequence[Any], advance: Advance) -> list[Failure]:
        reader = job.reader(2)
        assert reader is not None
        fed = job.with_reader(pickle.loads(pickle.dumps(reader)))
        parts = fed.divided(items, lambda name: name)
        assert len(parts) == 2
        failures: list[Failure] = []
        for item in items:
            for part, own in parts.values():
                assert item in own
                failures += ThreadExecutor(1).run(part, [item], advance)
        return failures


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = colour_folder(tmp_path_factory.mktemp("data") / "pictures", per_class=40)
    (folder / "blue" / "003.png").write_bytes(b"\x89PNG broken")
    return folder


@pytest.fixture(scope="module")
def local(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    workspace = tmp_path_factory.mktemp("local")
    with pytest.warns(UserWarning):
        run_small(pictures, workspace, functions=BOTH)
    return stored(workspace)


@pytest.mark.parametrize("executor", [OnThreads(3), OnThreads(50), Fed()])
def test_the_bytes_of_a_plain_run(executor: Executor, pictures: Path, local: dict[str, bytes], tmp_path: Path) -> None:
    data = Noted(pictures, tmp_path / "notes")
    with pytest.warns(UserWarning):
        run = run_small(data, tmp_path / "w", functions=BOTH, executor=executor)
    assert stored(tmp_path / "w") == local
    assert data.reads() == dict.fromkeys(range(120), 1)
    assert [problem["id"] for problem in run.problems()] == ["blue/003.png"]


@pytest.mark.parametrize("executor", [OnThreads(3), Fed()])
def test_a_shift_that_fails_is_named_and_the_rest_is_there(executor: Executor, pictures: Path, tmp_path: Path) -> None:
    suite = [Setting("broken", "data", Broken()), Setting("clean", "data", NoShift())]
    with pytest.raises(IncompleteRunError, match=r"shift 'broken' failed.*a leak in the roof") as caught:
        run_small(pictures, tmp_path / "w", functions=BOTH, suite=suite, executor=executor)
    assert [result.setting for result in caught.value.run.results] == ["clean", "clean"]


def test_a_block_is_remembered_for_others_and_forgotten_in_time(pictures: Path, tmp_path: Path) -> None:
    data = Noted(pictures, tmp_path / "notes")
    maker = ImageMaker({"data": data}, 0, remembered=4)
    blocks = [Block(start, start + 10, "data") for start in range(0, 60, 10)]
    noise = ImageRequest(SMALL.geometry, Corruption("gaussian_noise", 3))
    first = list(maker(blocks[0], [noise]))
    again = list(maker(blocks[0], [noise]))
    assert isinstance(first[0], Ready) and isinstance(again[0], Ready)
    assert (first[0].images == again[0].images).all()  # type: ignore[union-attr]
    assert set(data.reads().values()) == {1}
    for block in blocks[1:]:
        assert not any(isinstance(one, Problem) for one in maker(block, [noise]))
    list(maker(blocks[0], [noise]))
    assert {data.reads()[index] for index in range(10)} == {2}, "it had made room for later ones"


def test_another_geometry_of_a_known_block_is_read_for(pictures: Path, tmp_path: Path) -> None:
    data = Noted(pictures, tmp_path / "notes")
    maker = ImageMaker({"data": data}, 0, remembered=4)
    block = Block(0, 5, "data")
    larger = sb.Geometry(resize=40, crop=38)
    list(maker(block, [ImageRequest(SMALL.geometry, None)]))
    made = list(maker(block, [ImageRequest(larger, None), ImageRequest(SMALL.geometry, None)]))
    assert [ready.images[0].shape for ready in made if isinstance(ready, Ready)] == [(38, 38, 3), (32, 32, 3)]
    list(maker(block, [ImageRequest(SMALL.geometry, None), ImageRequest(larger, None)]))
    assert set(data.reads().values()) == {2}


@pytest.mark.parametrize("threads", [1, 3])
def test_a_batch_that_shrinks_on_the_way_loses_no_image(pictures: Path, tmp_path: Path, threads: int) -> None:
    """As when memory runs out: the classifier answers all it was given, and wants less from then on."""
    shrinking = as_classifier(brightest_channel, "bright")
    plain = shrinking.scores

    def scores(images: Pixels) -> Scores:
        shrinking.batch_size = max(1, shrinking.batch_size // 2)
        return plain(images)

    shrinking.batch_size = 8
    shrinking.scores = scores  # type: ignore[method-assign]
    run = sb.evaluate(shrinking, "clean", pictures, tmp_path / "w", labels=COLOURS, executor=OnThreads(threads))
    assert run.predictions().valid.sum() == 119 and next(iter(run.scores("top1")))[2].value == 1.0
    assert shrinking.batch_size == 1


class Losing(ThreadExecutor):
    """One block is removed before the blocks are joined, as those of a model that has changed are."""

    def run(self, job: Job[Any], items: Sequence[Any], advance: Advance) -> list[Failure]:
        failures = super().run(job, items, advance)
        workspace, planned = job.context.workspace, job.context.results[0]  # type: ignore[attr-defined]
        workspace.block_path(planned.result, items[0]).unlink()
        return failures


def test_a_block_that_is_no_longer_stored_is_not_joined_from_memory(pictures: Path, tmp_path: Path) -> None:
    with pytest.raises(IncompleteRunError, match="withdrawn"):
        run_small(pictures, tmp_path / "w", executor=Losing(2))
    assert len(stored(tmp_path / "w")) == 4
    run_small(pictures, tmp_path / "w")
    run_small(pictures, tmp_path / "other")
    assert stored(tmp_path / "w") == stored(tmp_path / "other")


def test_threads_without_a_block_of_their_own_help_with_the_last_one(tmp_path: Path) -> None:
    """Three blocks of five settings for two threads: the last four predictions are made two at a time."""
    data = colour_folder(tmp_path / "pictures", per_class=15)
    assert len(work_items("pictures", sb.open_dataset(data, space=COLOURS))) == 3
    calls = itertools.count(1)
    together = threading.Barrier(2)
    third_begun = threading.Event()
    classifier = as_classifier(brightest_channel, "bright")
    classifier.self_contained = True
    plain = classifier.scores

    def scores(images: Pixels) -> Scores:
        call = next(calls)
        if call <= 8 or 12 <= call <= 15:
            together.wait(30)
        if call == 10:  # the last one of the second block to end
            assert third_begun.wait(30)
        if call == 11:
            third_begun.set()
        return plain(images)

    options: dict[str, Any] = {"corruptions": ("fog", "contrast"), "severities": (1, 5), "labels": COLOURS}
    sb.evaluate(classifier, "corruptions", data, tmp_path / "one", workers=1, **options)
    classifier.scores = scores  # type: ignore[method-assign]
    sb.evaluate(classifier, "corruptions", data, tmp_path / "two", workers=2, **options)
    assert next(calls) == 3 * 5 + 1
    assert stored(tmp_path / "two") == stored(tmp_path / "one")


def test_a_failure_in_a_helping_thread_is_one_of_the_block(tmp_path: Path) -> None:
    data = colour_folder(tmp_path / "pictures", per_class=15)

    def model(images: Pixels) -> Scores:
        raise RuntimeError(f"no answer from {threading.current_thread().name}")

    with pytest.raises(IncompleteRunError) as caught:
        run_small(data, tmp_path / "w", functions={"bright": model}, workers=2)
    assert all("no answer" in str(failure) for failure in caught.value.failures)
