"""Planted duplicates among real pictures come back; other pictures stay away; the queue says why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.planted import EDITS, Planted, measure_recall
from numpy.typing import NDArray
from PIL import Image

import shiftbench as sb
from shiftbench.datasets.arrays import ArrayDataset, from_arrays
from shiftbench.datasets.base import Dataset
from shiftbench.datasets.catalogue import open_named
from shiftbench.datasets.folder import open_folder
from shiftbench.datasets.subset import take
from shiftbench.errors import ShiftbenchError, StoreError, UnknownNameError
from shiftbench.jobs.base import Executor, Failure, Job, Problem
from shiftbench.jobs.executors import ProcessExecutor, ThreadExecutor
from shiftbench.jobs.progress import Advance
from shiftbench.testsets.near_duplicates import find, find_near_duplicates
from shiftbench.testsets.near_duplicates.search import ExactIndex
from tests.raised import raises

#: What 004 counts as a near-duplicate.
SAME_PICTURE = tuple(edit for edit in EDITS if edit not in ("mirror", "rotate-10"))


def test_edited_photographs_come_back_and_no_other_pair(photographs: Dataset) -> None:
    recall, false_pairs = measure_recall(take(photographs, range(0, 114, 3)), sources=8)
    assert {edit: recall[edit] for edit in SAME_PICTURE} == dict.fromkeys(SAME_PICTURE, 1.0)
    assert recall["rotate-10"] >= 0.75 and recall["mirror"] < 0.5 and false_pairs == 0


def test_tiny_pictures_are_harder_and_a_classifier_helps(cifar: ArrayDataset) -> None:
    """Three pixels of 32 move the neighbours away in pixels, not in what a network sees."""
    references = take(cifar, range(1000))
    plain, _ = measure_recall(references, sources=20, edits=("copy", "jpeg-50", "darker", "crop-90", "shift-3"))
    assert [plain[edit] for edit in ("copy", "jpeg-50", "darker")] == [1.0] * 3
    assert plain["crop-90"] >= 0.9
    seeing, _ = measure_recall(
        references, sources=20, edits=("shift-3",), by=("pixels", "pixels-normalised", "demo:resnet8-cifar10")
    )
    assert seeing["shift-3"] >= max(0.95, plain["shift-3"])


def test_mirror_images_only_where_asked_for(photographs: Dataset) -> None:
    some = take(photographs, range(20))
    planted = Planted(take(photographs, range(5)), ["mirror"])
    with_flips = find_near_duplicates(planted, [some], within=False, flips=True)
    assert [pair.mirrored for pair in with_flips.pairs] == [True] * 5
    assert {pair.candidate.removeprefix("mirror/") for pair in with_flips.pairs} == set(some.ids[:5])
    assert all(pair.values["pixels"] == 0 for pair in with_flips.pairs)
    assert len(find_near_duplicates(planted, [some], within=False).pairs) < 5


def test_within_a_set_each_pair_once_and_none_with_itself(small_pictures: NDArray[np.uint8]) -> None:
    images = small_pictures[:120].copy()
    images[50] = images[10]
    images[70] = np.clip(images[20].astype(int) + 6, 0, 255)
    dataset = from_arrays(images, [0] * 120, space="cifar-10", name="pool")
    queue = find_near_duplicates(dataset)
    assert [(pair.candidate_index, pair.reference_index) for pair in queue.pairs[:2]] == [(10, 50), (20, 70)]
    first = queue.pairs[0]
    assert first.suspicion == 1.0 and first.values["pixels"] == 0 and first.values["ssim"] == pytest.approx(1)
    assert set(first.reasons) == {"pixels", "pixels-normalised", "ssim", "aligned"}
    assert queue.suspects[:2] == [dataset.ids[10], dataset.ids[20]]


def test_values_are_those_of_the_pictures_and_decide_the_queue(small_pictures: NDArray[np.uint8]) -> None:
    """Brute force over all pairs of a small set: everything beyond a threshold, and nothing else."""
    from shiftbench.testsets.near_duplicates.similarity import aligned_correlation, ssim

    images = small_pictures[:40]
    dataset = from_arrays(images, [0] * 40, space="cifar-10", name="pool")
    limits = {"pixels": 50.0, "pixels-normalised": 0.5, "ssim": 0.3, "aligned": 0.45}
    queue = find_near_duplicates(dataset, k=39, thresholds=limits)
    expected = {}
    for i in range(40):
        for j in range(i + 1, 40):
            a = images[i : i + 1]
            b = images[j : j + 1]
            pixels = float(np.sqrt(((a.astype(float) - b) ** 2).mean()))
            alike = float(ssim(a, b)[0])
            aligned = float(aligned_correlation(a, b)[0])
            if pixels <= 50 or alike >= 0.3 or aligned >= 0.45:
                expected[i, j] = (pixels, alike, aligned)
    queued = {(p.candidate_index, p.reference_index): p for p in queue.pairs}
    by_normalised = {key for key, pair in queued.items() if pair.reasons == ("pixels-normalised",)}
    assert queued.keys() - by_normalised == expected.keys() and expected
    for key, values in expected.items():
        pair = queued[key]
        assert [pair.values[name] for name in ("pixels", "ssim", "aligned")] == pytest.approx(values)
    assert [p.suspicion for p in queue.pairs] == sorted((p.suspicion for p in queue.pairs), reverse=True)


def test_ssim_is_a_search_of_its_own_among_near_classes(small_pictures: NDArray[np.uint8]) -> None:
    from shiftbench.testsets.near_duplicates.similarity import ssim

    labels = np.arange(60) % 10
    pool = from_arrays(small_pictures[:20], labels[:20], space="cifar-10", name="pool")
    train = from_arrays(small_pictures[20:60], labels[20:60], space="cifar-10", name="train")
    near = {key: [pool.space.keys[(i + 1) % 10]] for i, key in enumerate(pool.space.keys)}
    limits = {"ssim": 1e-6, "aligned": 0.999}
    queue = find_near_duplicates(pool, [train], within=False, by=("ssim",), k=3, near=near, thresholds=limits)
    expected = set()
    for i in range(20):
        near_images = [j for j in range(40) if labels[20 + j] in (labels[i], (labels[i] + 1) % 10)]
        first = np.broadcast_to(small_pictures[i], (len(near_images), 32, 32, 3))
        values = ssim(first, small_pictures[20:60][near_images])
        best = np.argsort(-values, kind="stable")[:3]
        expected |= {(i, near_images[j]) for j in best.tolist() if values[j] >= 1e-6}
    assert {(pair.candidate_index, pair.reference_index) for pair in queue.pairs} == expected and expected


def test_several_reference_sets_are_told_apart(small_pictures: NDArray[np.uint8]) -> None:
    pool, train, test = (
        from_arrays(small_pictures[low:high], [0] * (high - low), space="cifar-10", name=name)
        for name, low, high in (("pool", 0, 60), ("train", 55, 120), ("test", 0, 2))
    )
    queue = find_near_duplicates(pool, [train, test], within=False)
    exact = {(p.target, p.candidate_index, p.reference_index) for p in queue.pairs if p.values["pixels"] == 0}
    assert exact == {("train", 55 + i, i) for i in range(5)} | {("test", 0, 0), ("test", 1, 1)}


def test_the_same_search_gives_the_same_queue(small_pictures: NDArray[np.uint8], tmp_path: Path) -> None:
    dataset = from_arrays(small_pictures[:80], [0] * 80, space="cifar-10", name="pool")
    loose = {"aligned": 0.4}
    first = find_near_duplicates(dataset, thresholds=loose, workers=1)
    for workers in (2, 3):  # the second time from the folder
        again = find_near_duplicates(dataset, thresholds=loose, workers=workers, folder=tmp_path)
        assert again.to_json() == first.to_json() and again.pairs


class Watched(Executor):
    """Lets another one work, and remembers at what; with ``most``, gives up whatever comes after so many items."""

    def __init__(self, other: Executor, most: int | None = None) -> None:
        self.other = other
        self.most = most
        self.seen = list[str]()

    def run(self, job: Job[Any], items: Any, advance: Advance) -> list[Failure]:
        rest = [] if self.most is None else items[max(0, self.most - len(self.seen)) :]
        done = items[: len(items) - len(rest)]
        self.seen += map(str, done)
        return self.other.run(job, done, advance) + [Failure(item, Problem(str(item), "no more")) for item in rest]


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in (("QUERIES", 5), ("REFERENCES", 4), ("_BLOCK_SIZE", 20)):
        monkeypatch.setattr(find, name, size)


@pytest.fixture
def search(photographs: Dataset, tmp_path: Path) -> dict[str, Any]:
    """Real photographs, some of them twice, some broken, against others; mirrored, too."""
    for name, indices in (("pool", [*range(24), 3, 5]), ("train", range(2, 42, 2))):
        target = tmp_path / name / "things"
        target.mkdir(parents=True)
        for i, index in enumerate(indices):
            Image.fromarray(photographs.read(index).pixels).resize((90, 70)).save(target / f"{i:02}.png")
        (target / "07.png").write_bytes(b"no picture")
    pool, train = (open_folder(tmp_path / name, space="folders") for name in ("pool", "train"))
    return {"candidates": pool, "references": [train], "flips": True, "thresholds": {"aligned": 0.4, "pixels": 60.0}}


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(
    ("executor", "fewer"),
    [(ThreadExecutor(2), {}), (ProcessExecutor(2), {"within": False, "flips": False})],  # processes take long to start
    ids=["threads", "processes"],
)
def test_an_executor_finds_the_same_pairs(
    executor: Executor, fewer: dict[str, Any], search: dict[str, Any], tmp_path: Path
) -> None:
    search |= fewer
    local = find_near_duplicates(**search)
    watched = Watched(executor)
    remote = find_near_duplicates(**search, folder=tmp_path / "kept", executor=watched)
    assert remote.to_json() == local.to_json()
    assert len(local.pairs) > 8 and len(local.unreadable) == 2
    assert {pair.mirrored for pair in local.pairs} == {False, search["flips"]}
    kinds = {text.split("'")[1].split()[0] for text in watched.seen}
    assert kinds == {"describing", "preparing", "neighbours", "pairs"}, "all of the work was done there"


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("second", [None, ThreadExecutor(2)], ids=["here", "there"])
def test_a_search_continues_where_it_stopped_and_is_kept(
    second: Executor | None, search: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    nearest = ExactIndex.nearest

    def counted(self: ExactIndex, queries: Any, *rest: Any) -> Any:
        asked.append(len(queries))
        return nearest(self, queries, *rest)

    monkeypatch.setattr(ExactIndex, "nearest", counted)
    local = find_near_duplicates(**search)
    in_one_go = sum(asked)
    asked.clear()
    with pytest.raises(StoreError, match="blocks failed"):
        # one block describes the pool and one its mirror images, seven prepare it; then one of the search
        find_near_duplicates(**search, folder=tmp_path / "kept", executor=Watched(ThreadExecutor(1), most=10))
    begun = sum(asked)
    asked.clear()
    again = find_near_duplicates(**search, folder=tmp_path / "kept", executor=second)
    assert again.to_json() == local.to_json()
    assert 0 < begun < in_one_go == begun + sum(asked), "nothing is searched twice"
    asked.clear()
    changed = {**search, "thresholds": {"aligned": 0.5}}
    assert find_near_duplicates(**changed, folder=tmp_path / "kept", executor=second).to_json() == (
        find_near_duplicates(**changed, folder=tmp_path / "kept").to_json()
    )
    assert not asked, "other thresholds need no other search"


@pytest.mark.soak
@pytest.mark.usefixtures("small_blocks")
def test_a_ray_cluster_finds_the_same_pairs(search: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("ray")
    from shiftbench.jobs.ray_executor import RayExecutor

    watched = Watched(RayExecutor(workers=2))
    search |= {"within": False, "flips": False, "by": ("pixels", "demo:squeezenet1_1")}
    remote = find_near_duplicates(**search, folder=tmp_path / "kept", executor=watched)
    assert remote.to_json() == find_near_duplicates(**search).to_json() and remote.pairs
    assert any("neighbours" in text for text in watched.seen) and any("pairs" in text for text in watched.seen)


def test_broken_pictures_are_named_and_the_search_goes_on(photographs: Dataset, tmp_path: Path) -> None:
    for i in range(6):
        target = tmp_path / "pool" / "things" / f"{i}.png"
        target.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(photographs.read(i % 5).pixels).resize((200, 150)).save(target)
    (tmp_path / "pool" / "things" / "0-broken.png").write_bytes(b"no picture")  # the first, before all others
    queue = find_near_duplicates(open_folder(tmp_path / "pool", space="folders"))
    assert [(p.candidate, p.reference) for p in queue.pairs] == [("things/0.png", "things/5.png")]
    assert [(entry[0], entry[1]) for entry in queue.unreadable] == [("pool", "things/0-broken.png")]
    assert "unreadable" in queue.to_text(100)


def test_the_queue_as_text_and_as_data(small_pictures: NDArray[np.uint8]) -> None:
    images = np.concatenate([small_pictures[:40], small_pictures[:35]])
    queue = find_near_duplicates(from_arrays(images, [0] * 75, space="cifar-10", name="pool"))
    assert len(queue.pairs) >= 35
    assert "first 30 of" in queue.to_text(120) and "flips" in queue.to_text(120)
    assert queue.to_csv().count("\n") == len(queue.pairs) + 1
    data = json.loads(queue.to_json())
    assert data["pairs"][0]["values"].keys() == {"pixels", "pixels-normalised", "ssim", "aligned"}
    assert data["thresholds"]["aligned"] == 0.7
    assert queue.to_latex() and queue.to_markdown()


def test_nothing_to_find(cifar: ArrayDataset) -> None:
    empty = take(cifar, [], name="empty")
    single = take(cifar, [0], name="one")
    assert find_near_duplicates(empty, [single]).pairs == [] == find_near_duplicates(single, [empty]).pairs


def test_bad_wishes(small_pictures: NDArray[np.uint8]) -> None:
    pool = from_arrays(small_pictures[:5], [0] * 5, space="cifar-10", name="pool")
    with pytest.raises(ShiftbenchError, match="nothing to compare"):
        find_near_duplicates(pool, within=False)
    with pytest.raises(ShiftbenchError, match="unknown metric"):
        find_near_duplicates(pool, thresholds={"features": 0.1})
    with pytest.raises(ShiftbenchError, match="invalid threshold"):
        find_near_duplicates(pool, thresholds={"ssim": 1.5})
    with pytest.raises(ShiftbenchError, match="no descriptors"):
        find_near_duplicates(pool, by=())
    with raises(ShiftbenchError, found="pool"):
        find_near_duplicates(pool, [take(pool, [0])])
    with raises(ShiftbenchError, found="pixels"):
        find_near_duplicates(pool, by=("pixels", "pixels"))
    with pytest.raises(UnknownNameError, match="crop-99"):
        measure_recall(pool, edits=("crop-99",))


@pytest.mark.soak
def test_near_duplicates_of_cifar_10_itself(cifar: ArrayDataset) -> None:
    """004 looked at ten neighbours of every test image by eye and found about 800 near-duplicates in train."""
    classifier = sb.load_classifier("demo:resnet8-cifar10")
    by = ("pixels", "pixels-normalised", classifier)
    queue = find_near_duplicates(cifar, [open_named("cifar-10-train")], within=False, by=by)
    assert 700 <= len(queue.suspects) <= 1000
