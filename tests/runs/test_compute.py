"""Pictures made ready by several threads, or by another than the worker: the same bytes, each picture read once."""

from __future__ import annotations

import os
import pickle
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
from shiftbench.runs.compute import ImageMaker, Ready, Wanted
from shiftbench.settings.base import Setting
from shiftbench.shifts.base import NoShift
from shiftbench.shifts.corruptions import Corruption
from tests.runs.helpers import COLOURS, Broken, brightest_channel, colour_folder, darkest_channel
from tests.runs.test_evaluate import SMALL, as_classifier, run_small, stored

BOTH = {"bright": brightest_channel, "dark": darkest_channel}


class Noted(Dataset):
    """Leaves a note of every picture that is read, and by which process."""

    def __init__(self, pictures: Path, notes: Path) -> None:
        self.base, self.notes = sb.open_dataset(pictures, space=COLOURS), notes
        self.name, self.space, self.ids, self.labels = self.base.name, COLOURS, self.base.ids, self.base.labels

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
    noise = Wanted(SMALL.geometry, Corruption("gaussian_noise", 3))
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
    block, larger = Block(0, 5, "data"), sb.Geometry(resize=40, crop=38)
    list(maker(block, [Wanted(SMALL.geometry, None)]))
    made = list(maker(block, [Wanted(larger, None), Wanted(SMALL.geometry, None)]))
    assert [ready.images[0].shape for ready in made if isinstance(ready, Ready)] == [(38, 38, 3), (32, 32, 3)]
    list(maker(block, [Wanted(SMALL.geometry, None), Wanted(larger, None)]))
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
