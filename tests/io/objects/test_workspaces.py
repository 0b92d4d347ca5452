"""A workspace in a bucket: the bytes of one on a disk, whatever engine, however often killed, however many drivers."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shiftbench as sb
from shiftbench.api import IncompleteRunError
from shiftbench.errors import StoreError
from shiftbench.io.paths import Location, place, relative
from shiftbench.jobs.ray_executor import RayExecutor
from shiftbench.store.export import export_table
from shiftbench.store.maintenance import compact, file_count, verify, workspace_stats
from shiftbench.store.prediction_files import PredictionBlock, write_block
from shiftbench.store.spec import ResultSpec
from shiftbench.store.workspace import Result, Workspace
from tests.io.objects.server import Bucket
from tests.runs.helpers import brightest_channel, colour_folder, darkest_channel
from tests.runs.kill_target import evaluate_slowly
from tests.runs.test_evaluate import run_small, stored

_ASIDE = ("locks", "catalogue", "runs/")
FUNCTIONS: dict[str, Any] = {"bright": brightest_channel, "dark": darkest_channel}


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = colour_folder(tmp_path_factory.mktemp("data") / "pictures")
    (data / "green" / "004.png").write_bytes(b"no picture")
    return data


@pytest.fixture(scope="module")
def on_disk(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("disk") / "w"
    with pytest.warns(UserWarning):
        run_small(pictures, root, functions=FUNCTIONS)
    return root


def contents(root: Path) -> dict[str, bytes]:
    """All files of a workspace except locks, the catalogue, records of runs, and where the images came from."""
    files = {str(path.relative_to(root)): path for path in root.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in files.items() if _is_content(name)}


def in_bucket(bucket: Bucket, folder: str) -> dict[str, bytes]:
    return {name: data for name, data in bucket.files(folder).items() if _is_content(name)}


def _is_content(name: str) -> bool:
    return not name.startswith(_ASIDE) and not name.endswith("source.json")


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    "engine",
    ["threads", pytest.param("processes", marks=pytest.mark.soak), pytest.param("ray", marks=pytest.mark.soak)],
)
def test_data_and_results_by_url_are_those_of_the_disk(
    pictures: Path, on_disk: Path, bucket: Bucket, engine: str
) -> None:
    url = bucket.put_folder(pictures, "pictures")
    chosen: Any = RayExecutor(workers=2) if engine == "ray" else engine
    run_small(url, place(f"{bucket.url}/w"), functions=FUNCTIONS, executor=chosen, workers=2)
    assert in_bucket(bucket, "w") == contents(on_disk), "every byte, of predictions and of records"
    assert not [key for key in bucket.listed("w/shards") if key.endswith(".parquet")]
    run = sb.Run.open(f"{bucket.url}/w")
    local = sb.Run.open(on_disk)
    assert run.summary()["scores"] == local.summary()["scores"] and run.problems() == local.problems()
    before = len(bucket.server.requests())
    run_small(url, place(f"{bucket.url}/w"), functions=FUNCTIONS)
    put = [line for line in bucket.server.requests()[before:] if line.startswith("PUT")]
    assert not [line for line in put if "catalogue" not in line and "/runs/" not in line]


@pytest.fixture
def copied(on_disk: Path, bucket: Bucket) -> Workspace:
    """The workspace of the disk, put into a bucket by another tool."""
    return Workspace(bucket.put_folder(on_disk, "copy"), create=False)


def test_upkeep_says_the_same_as_on_the_disk(on_disk: Path, copied: Workspace, bucket: Bucket, tmp_path: Path) -> None:
    local = Workspace(on_disk)
    assert workspace_stats(copied) == workspace_stats(local) and file_count(copied) == file_count(local) == 20
    assert list(copied.results()) == list(local.results())
    assert list(copied.results(["dark"])) == list(local.results(["dark"]))
    assert [result.setting for result in copied.results(["dark", "none"], ["pictures"])] == ["pictures"]
    assert list(verify(copied)) == []
    export_table(local, tmp_path / "all.csv", local.results(), top_k=3)
    assert export_table(copied, f"{bucket.url}/all.csv", copied.results(), top_k=3) == 600
    assert place(f"{bucket.url}/all.csv").read_bytes() == (tmp_path / "all.csv").read_bytes()


@pytest.mark.soak
def test_damage_is_found_and_computed_anew(copied: Workspace, bucket: Bucket, pictures: Path, on_disk: Path) -> None:
    names = sorted(name for name in bucket.files("copy") if name.startswith("predictions/bright"))
    whole = bucket.files("copy")
    bucket.put(f"copy/{names[0]}", whole[names[0]][:-100])
    bucket.put(f"copy/{names[1]}", whole[names[2]])
    assert {damage.file for damage in verify(copied)} == set(names[:2])
    run_small(pictures, copied.root)
    assert in_bucket(bucket, "copy") == contents(on_disk)


@pytest.mark.soak
def test_a_run_in_shares_is_joined_by_the_last(pictures: Path, bucket: Bucket, tmp_path: Path) -> None:
    where = place(f"{bucket.url}/w")
    first = run_small(pictures, where, shard="1/2")
    assert not first.results and workspace_stats(Workspace(where)).unfinished_results == 5
    run_small(pictures, where, shard="2/2")
    run_small(pictures, tmp_path / "whole")
    assert in_bucket(bucket, "w") == contents(tmp_path / "whole")


def test_compaction_joins_what_a_killed_run_left(
    pictures: Path, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shiftbench.runs.execute._complete", lambda *_: False)  # killed before it joins
    with pytest.raises(IncompleteRunError):
        run_small(pictures, place(f"{bucket.url}/w"))
    monkeypatch.undo()
    bucket.put("w/predictions/.x.tmp", b"")  # copied from a disk where somebody was killed
    workspace = Workspace(f"{bucket.url}/w")
    done = compact(workspace)
    assert (done.joined, done.removed_locks, done.catalogued) == (5, 0, 5)
    run_small(pictures, tmp_path / "whole")
    assert {name: data for name, data in in_bucket(bucket, "w").items() if not name.endswith(".tmp")} == contents(
        tmp_path / "whole"
    )
    assert [key for key in bucket.listed("w/shards") if key.endswith(".parquet")] == []
    assert compact(workspace).joined == 0


@pytest.mark.parametrize("count", [200, pytest.param(2100, marks=pytest.mark.soak)])
def test_many_results_are_listed_in_a_few_requests(bucket: Bucket, tmp_path: Path, count: int) -> None:
    """The server tells a thousand names at a time."""
    workspace = Workspace(f"{bucket.url}/w")
    results = [
        Result(f"model-{i // 40}", f"setting-{i % 40}", ResultSpec(images=1, others={"i": i})) for i in range(count)
    ]
    block = PredictionBlock(np.zeros((1, 1), np.int32), np.zeros(1, np.float32))
    local = Workspace(tmp_path / "w")
    for result in results:
        write_block(local.predictions_path(result), block, result.spec, "x")
    local.write_catalogue()
    client = bucket.server.client()

    def copy(path: Location) -> None:
        client.put_object(Bucket=bucket.name, Key=f"w/{relative(path, local.root)}", Body=path.read_bytes())

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(copy, [local.root / "catalogue.parquet", *(local.root / "predictions").rglob("*.parquet")]))
    before = len(bucket.server.requests())
    assert list(workspace.results()) == list(local.results())
    assert len(bucket.server.requests()) - before <= 6
    before = len(bucket.server.requests())
    assert workspace_stats(workspace).bytes == workspace_stats(local).bytes
    assert len(bucket.server.requests()) - before <= 12


def test_a_missing_workspace_is_not_made_by_readers(bucket: Bucket) -> None:
    with pytest.raises(StoreError, match="is not a workspace"):
        Workspace(f"{bucket.url}/no", create=False)
    assert bucket.listed() == []


def test_a_folder_with_other_things_is_not_touched(bucket: Bucket) -> None:
    bucket.put("w/thesis.tex", b"")
    with pytest.raises(StoreError, match="not empty"):
        Workspace(f"{bucket.url}/w")
    assert bucket.listed() == ["w/thesis.tex"]


def test_a_folder_that_a_console_made_is_empty(bucket: Bucket) -> None:
    """Such tools put an empty object whose name ends in a slash."""
    bucket.put("w/", b"")
    assert list(Workspace(f"{bucket.url}/w").results()) == []
    assert bucket.listed() == ["w/", "w/workspace.json"]


def start(workspace: str, data: str, workers: int, engine: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.runs.kill_target", workspace, data, str(workers), engine]
    return subprocess.Popen(command, cwd=Path(__file__).parents[3])


def blocks(bucket: Bucket) -> int:
    return sum(key.endswith(".parquet") for key in bucket.listed("w/shards/"))


@pytest.mark.soak
def test_killed_and_continued_by_two_drivers_at_once_gives_the_same_bytes(bucket: Bucket, tmp_path: Path) -> None:
    data = colour_folder(tmp_path / "pictures", per_class=30)
    url = bucket.put_folder(data, "pictures")
    killed = start(f"{bucket.url}/w", url, 2, "threads")
    limit = time.monotonic() + 300
    while blocks(bucket) < 5 and killed.poll() is None and time.monotonic() < limit:
        time.sleep(0.01)
    killed.send_signal(signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL and blocks(bucket) >= 5
    assert not bucket.listed("w/predictions/"), "it was killed in the middle"
    drivers = [start(f"{bucket.url}/w", url, 2, "threads") for _ in range(2)]
    assert [driver.wait(600) for driver in drivers] == [0, 0]
    evaluate_slowly(tmp_path / "w", data)
    found = {
        name.removeprefix("predictions/"): data for name, data in bucket.files("w").items() if "predictions" in name
    }
    assert found == stored(tmp_path / "w") and len(found) == 7
    assert blocks(bucket) == 0
    assert list(verify(Workspace(f"{bucket.url}/w"))) == []
