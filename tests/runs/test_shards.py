"""Job arrays: n jobs, in any order or at once, leave the files of one run; the last one joins them."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import shiftbench as sb
from shiftbench.api import IncompleteRunError, SharedRun
from shiftbench.errors import SettingError
from shiftbench.io.locks import file_lock
from shiftbench.jobs.base import Block, Shard
from shiftbench.runs import plan
from tests.commands import call
from tests.runs.helpers import COLOURS, brightest_channel, colour_folder
from tests.runs.kill_target import evaluate_slowly
from tests.runs.test_evaluate import as_classifier, run_small, stored
from tests.runs.test_kill import files


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return colour_folder(tmp_path_factory.mktemp("data") / "pictures", per_class=50)


@pytest.fixture(scope="module")
def expected(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    root = tmp_path_factory.mktemp("one")
    run_small(pictures, root)
    return stored(root)


@pytest.mark.parametrize("of", [1, 2, 3, 8, 11])
def test_jobs_in_any_order_leave_the_files_of_one_run(
    pictures: Path, tmp_path: Path, expected: dict[str, bytes], of: int
) -> None:
    jobs = list(range(1, of + 1))
    random.Random(of).shuffle(jobs)
    for job in jobs:
        assert stored(tmp_path / "w") == {}, "nothing is joined before its last block is there"
        run = run_small(pictures, tmp_path / "w", shard=f"{job}/{of}")
        assert isinstance(run, SharedRun) and run.complete == (job == jobs[-1])
    assert stored(tmp_path / "w") == expected
    assert not list((tmp_path / "w" / "shards").rglob("*.parquet"))
    assert isinstance(run, SharedRun) and len(run.results) == 5 and "all 16 blocks are done" in run.word


def test_a_job_computes_its_own_blocks_and_says_so(pictures: Path, tmp_path: Path) -> None:
    run = run_small(pictures, tmp_path / "w", shard="2/4")
    assert isinstance(run, SharedRun) and run.results == []
    assert run.word == "job 2 of 4: my 4 of 16 blocks are done; 12 are for other jobs"
    blocks = sorted({int(path.stem) for path in (tmp_path / "w" / "shards").rglob("*.parquet")})
    starts = [i * 150 // 16 for i in range(16)]
    assert blocks == starts[1::4]


def test_a_job_takes_over_what_others_have_not_begun(
    pictures: Path, tmp_path: Path, expected: dict[str, bytes]
) -> None:
    workspace = sb.Workspace(tmp_path / "w")
    dataset = sb.open_dataset(pictures, space=COLOURS)
    claimed = workspace.lock_path(f"{dataset.name}-{dataset.fingerprint[:16]}-{Block(0, 1).name}")
    with file_lock(claimed, wait=False):
        run = run_small(pictures, workspace.root, shard="2/4", rebalance=True)
        assert isinstance(run, SharedRun) and run.word.endswith("1 are for other jobs"), "job 1 is at the first block"
    run_small(pictures, workspace.root, shard="1/4", rebalance=True)
    assert stored(workspace.root) == expected


@pytest.mark.parametrize("first", [1, 8])
def test_another_number_of_workers_uses_the_blocks_that_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    """Blocks of 64 images, or parts of 32, of a run that was stopped; the next one cuts them otherwise."""
    data = colour_folder(tmp_path / "pictures", per_class=171, size=8)
    (data / "red" / "170.png").unlink()  # 512 images: a part of 33 would be two calls, which other threads may separate
    (data / "red" / "000.png").write_bytes(b"broken")
    monkeypatch.setattr(plan, "_BLOCKS_OF_A_SMALL_DATASET", 8)
    calls: list[int] = []
    broken: list[bool] = []

    turn = threading.Lock()

    def counting(images: NDArray[np.uint8]) -> NDArray[np.float32]:
        with turn:  # the first 200 images always pass, however many threads count at once
            calls.append(len(images))
            stopped = broken and sum(calls) > 200
        if stopped:
            raise ValueError("stopped")
        return brightest_channel(images)

    model = as_classifier(counting, "m")  # once: the state of the function is a part of the model

    def run(workspace: Path, workers: int) -> sb.Run:
        return sb.evaluate(model, "clean", data, workspace, labels=COLOURS, progress=False, workers=workers)

    whole = run(tmp_path / "whole", first)
    broken.append(True)
    calls.clear()
    with pytest.raises(IncompleteRunError):
        run(tmp_path / "w", first)
    names = {path.stem for path in (tmp_path / "w" / "shards").rglob("*.parquet")}
    assert names and all(("-" in name) == (first == 8) for name in names)
    broken.clear()
    calls.clear()
    again = run(tmp_path / "w", 9 - first)
    assert 0 < sum(calls) < 512 and stored(tmp_path / "w") == stored(tmp_path / "whole")
    assert again.problems() == whole.problems() and len(whole.problems()) == 1


def test_a_run_without_shares_finishes_what_jobs_left(
    pictures: Path, tmp_path: Path, expected: dict[str, bytes]
) -> None:
    run_small(pictures, tmp_path / "w", shard="1/3")
    run = run_small(pictures, tmp_path / "w")
    assert len(run.results) == 5 and stored(tmp_path / "w") == expected


@pytest.mark.slow
def test_jobs_at_once_in_processes_of_their_own(tmp_path: Path) -> None:
    data = colour_folder(tmp_path / "pictures", per_class=30)
    evaluate_slowly(tmp_path / "one", data)
    command = [sys.executable, "-m", "tests.runs.kill_target", str(tmp_path / "many"), str(data), "1", "threads"]
    jobs = [subprocess.Popen([*command, f"{job}/2"], cwd=Path(__file__).parents[2]) for job in (1, 2)]
    assert [job.wait(600) for job in jobs] == [0, 0]
    assert files(tmp_path / "many") == files(tmp_path / "one")


@pytest.mark.parametrize("of", [1, 2, 5, 40])
def test_every_block_belongs_to_one_job(of: int) -> None:
    items = [Block(i, i + 1, "any") for i in range(33)]
    parts = [Shard(job, of).of(items) for job in range(1, of + 1)]
    assert sorted((item for part in parts for item in part), key=lambda item: item.start) == items
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize("text", ["0/3", "4/3", "3", "a/b", "1/0", "-1/3", "1/3/5", ""])
def test_what_is_no_share_is_refused(text: str, pictures: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="counted from one"):
        run_small(pictures, tmp_path / "w", shard=text)


def test_the_command_says_what_is_for_others(tmp_path: Path) -> None:
    # Folders stand in the order of their names: blue, green, red.
    scores = "images.mean(axis=(1, 2)).astype(np.float32)[:, ::-1]"
    (tmp_path / "model.py").write_text(f"import numpy as np\n\ndef make():\n    return lambda images: {scores}\n")
    data = colour_folder(tmp_path / "pictures", per_class=8)
    options = ["--data", str(data), "--labels", "folders", "-w", str(tmp_path / "w"), "--trust", "-q"]

    def job(share: str) -> Any:
        return call("eval", f"{tmp_path / 'model.py'}:make", *options, "--shard", share)

    first = job("1/2")
    second = job("2/2")
    assert first.exit_code == second.exit_code == 0, (first.output, second.output)
    assert "job 1 of 2: my 1 of 2 blocks are done; 1 are for other jobs" in first.stderr
    assert "job 2 of 2: all 2 blocks are done" in second.stderr
    assert "100.0" in second.stdout and "100.0" not in first.stdout
    assert len(sb.Run.open(tmp_path / "w").results) == 1
