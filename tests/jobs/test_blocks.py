"""Work on every picture is done once, survives what interrupts it, and does not depend on how it is divided."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from shiftbench.arrays import Pixels
from shiftbench.datasets.arrays import ArrayDataset
from shiftbench.datasets.base import DecodedImage
from shiftbench.datasets.images import bad_image
from shiftbench.datasets.subset import Subset, take
from shiftbench.errors import StoreError
from shiftbench.jobs.base import Executor, Failure, Job
from shiftbench.jobs.blocks import Computation, ComputeOptions, Numbers, PerImage, kept_rows, per_image
from shiftbench.jobs.executors import ProcessExecutor, ThreadExecutor
from shiftbench.jobs.progress import Advance
from shiftbench.labels.space import LabelSpace


@pytest.fixture(scope="module")
def images() -> ArrayDataset:
    pixels = np.random.default_rng(0).integers(0, 256, (80, 8, 8, 3), np.uint8)
    return ArrayDataset("noise", LabelSpace("two", ("a", "b")), pixels, np.arange(80) % 2)


class Counting:
    """The mean colour; remembers what it was asked for."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.seen: list[int] = []
        self.stop_after = stop_after

    def __call__(self, pictures: Sequence[Pixels], indices: NDArray[np.int64]) -> NDArray[np.float64]:
        if self.stop_after is not None and len(self.seen) >= self.stop_after:
            raise KeyboardInterrupt
        self.seen += indices.tolist()
        return np.array([picture.mean(axis=(0, 1)) for picture in pictures]).reshape(-1, 3)


class Damaged(Subset):
    """Every seventh picture can't be read."""

    def read(self, index: int) -> DecodedImage:
        if index % 7 == 3:
            raise bad_image(self.ids[index], "the file is empty")
        return super().read(index)


def mean_colours(dataset: ArrayDataset, indices: Sequence[int]) -> NDArray[np.float64]:
    return np.array([dataset.array[i].mean(axis=(0, 1)) for i in indices])


def run(
    dataset: Subset,
    compute: Counting,
    *,
    folder: Path | None = None,
    size: int = 256,
    workers: int | None = None,
    executor: Executor | None = None,
) -> PerImage:
    options = ComputeOptions(folder, workers, executor)
    return per_image(dataset, [Computation(compute, "mean colour")], options, what="colours", size=size)[0]


@pytest.mark.parametrize(("size", "workers"), [(1, 3), (7, 2), (100, 1)])
def test_rows_are_those_of_a_plain_loop(images: ArrayDataset, size: int, workers: int) -> None:
    found = run(take(images, range(50)), Counting(), size=size, workers=workers)
    np.testing.assert_array_equal(found.rows, mean_colours(images, range(50)))
    assert found.readable.all()


def test_pictures_that_can_not_be_read_are_named_and_leave_gaps(images: ArrayDataset, tmp_path: Path) -> None:
    dataset = Damaged(images, list(range(30)))
    for folder in (None, tmp_path):
        for _ in range(2):  # the second time from the folder
            found = run(dataset, Counting(), size=8, folder=folder)
            assert found.problems == dict.fromkeys((3, 10, 17, 24), "the file is empty")
            good = np.flatnonzero(found.readable)
            np.testing.assert_array_equal(found.rows[good], mean_colours(images, good.tolist()))
            assert not found.rows[~found.readable].any()


def test_a_block_without_any_readable_picture(images: ArrayDataset) -> None:
    found = run(Damaged(images, list(range(12))), Counting(), size=1)
    assert sorted(found.problems) == [3, 10] and found.rows.shape == (12, 3)


def test_interrupted_work_continues_and_complete_work_is_kept(images: ArrayDataset, tmp_path: Path) -> None:
    dataset = take(images, range(60))
    first = Counting(stop_after=30)
    with pytest.raises(KeyboardInterrupt):
        run(dataset, first, size=10, workers=1, folder=tmp_path)
    second = Counting()
    found = run(dataset, second, size=10, workers=1, folder=tmp_path)
    assert sorted(first.seen + second.seen) == list(range(60)), "nothing twice, nothing left out"
    third = Counting()
    again = run(dataset, third, size=10, folder=tmp_path)
    assert third.seen == []
    np.testing.assert_array_equal(found.rows, again.rows)
    np.testing.assert_array_equal(found.rows, mean_colours(images, range(60)))


def test_a_torn_shard_is_computed_anew(images: ArrayDataset, tmp_path: Path) -> None:
    dataset = take(images, range(40))
    with pytest.raises(KeyboardInterrupt):
        run(dataset, Counting(stop_after=20), size=10, workers=1, folder=tmp_path)
    torn = sorted(tmp_path.glob("*/*.npz"))[0]
    torn.write_bytes(torn.read_bytes()[:-40])
    compute = Counting()
    found = run(dataset, compute, size=10, workers=1, folder=tmp_path)
    assert set(range(10)) <= set(compute.seen)
    np.testing.assert_array_equal(found.rows, mean_colours(images, range(40)))


def test_other_pictures_or_another_computation_share_nothing(images: ArrayDataset, tmp_path: Path) -> None:
    run(take(images, range(20)), Counting(), folder=tmp_path)
    other = Counting()
    run(take(images, range(1, 21)), other, folder=tmp_path)
    assert len(other.seen) == 20
    renamed = Counting()
    per_image(
        take(images, range(20)), [Computation(renamed, "something else")], ComputeOptions(tmp_path), what="colours"
    )
    assert len(renamed.seen) == 20


def test_several_computations_read_each_picture_once(images: ArrayDataset, tmp_path: Path) -> None:
    class Watched(Subset):
        reads = 0

        def read(self, index: int) -> DecodedImage:
            Watched.reads += 1
            return super().read(index)

    dataset = Watched(images, list(range(20)))
    computations = [Computation(Counting(), name) for name in ("a", "b", "c")]
    found = per_image(dataset, computations, ComputeOptions(tmp_path), what="three", size=6)
    assert Watched.reads == 20
    assert all(np.array_equal(one.rows, found[0].rows) for one in found)


@pytest.mark.parametrize("executor", [ThreadExecutor(2), ProcessExecutor(2)], ids=["threads", "processes"])
def test_an_executor_computes_the_same_rows(images: ArrayDataset, executor: Executor, tmp_path: Path) -> None:
    some = Damaged(take(images, range(50)), range(50))
    here = run(some, Counting(), size=16)
    there = run(some, Counting(), size=16, folder=tmp_path, executor=executor)
    assert np.array_equal(here.rows, there.rows) and here.problems == there.problems and here.problems
    nothing = Counting(stop_after=0)  # all is kept: what is asked again computes nothing
    assert np.array_equal(run(some, nothing, size=16, folder=tmp_path, executor=executor).rows, here.rows)


def test_an_executor_needs_a_folder_and_its_failures_are_told(images: ArrayDataset, tmp_path: Path) -> None:
    def broken(pictures: Sequence[Pixels], indices: NDArray[np.int64]) -> NDArray[np.float64]:
        raise ValueError("no such layer")

    one = [Computation(broken, "broken")]
    with pytest.raises(StoreError, match="needs a folder"):
        per_image(images, one, ComputeOptions(executor=ThreadExecutor(1)), what="x")
    with pytest.raises(StoreError, match="blocks failed") as caught:
        per_image(take(images, range(4)), one, ComputeOptions(tmp_path, executor=ThreadExecutor(1)), what="x")
    assert "no such layer" in str(caught.value.found)


def halves(pictures: Sequence[Pixels], indices: NDArray[np.int64]) -> NDArray[np.float64]:
    assert not pictures
    return indices[:, None] / 2


@pytest.mark.parametrize(
    "executor", [None, ThreadExecutor(2), ProcessExecutor(2)], ids=["here", "threads", "processes"]
)
def test_numbers_are_computed_like_pictures(executor: Executor | None, tmp_path: Path) -> None:
    work = [Computation(halves, "halves")]
    (found,) = per_image(Numbers("n", 100), work, ComputeOptions(tmp_path, executor=executor), what="x", size=20)
    np.testing.assert_array_equal(found.rows, np.arange(100)[:, None] / 2)
    assert found.file is not None and not list(tmp_path.glob("*/"))
    (again,) = per_image(Numbers("m", 100), work, ComputeOptions(tmp_path), what="x", size=20)
    assert again.fingerprint != found.fingerprint


class Unwanted(Executor):
    def run(self, job: Job[Any], items: Any, advance: Advance) -> list[Failure]:
        raise AssertionError("nobody is asked")


def test_a_few_blocks_of_numbers_are_computed_here(tmp_path: Path) -> None:
    work = [Computation(halves, "halves")]
    (found,) = per_image(Numbers("n", 120), work, ComputeOptions(tmp_path, executor=Unwanted()), what="x", size=30)
    assert found.rows[-1] == 59.5


def test_rows_that_are_kept_travel_as_the_name_of_their_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.default_rng(0).integers(0, 256, (1000, 50), np.uint8)
    monkeypatch.chdir(tmp_path)
    kept = kept_rows(rows, Path("kept"))
    written = pickle.dumps(kept)
    assert len(written) < 2000
    monkeypatch.chdir("/")  # a worker stands in a folder of its own
    back = pickle.loads(written)
    assert isinstance(back.rows, np.memmap) and back.readable.all() and back.fingerprint == kept.fingerprint
    np.testing.assert_array_equal(back.rows, rows)
    in_memory = pickle.loads(pickle.dumps(PerImage(rows, {3: "no picture"})))
    np.testing.assert_array_equal(in_memory.rows, rows)
    assert not in_memory.readable[3]


def test_an_empty_set(images: ArrayDataset, tmp_path: Path) -> None:
    for folder in (None, tmp_path):
        assert run(take(images, []), Counting(), folder=folder).rows.shape == (0, 3)
