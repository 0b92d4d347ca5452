"""A monitor in a training on two ranks: rank 0 evaluates, every rank gets the metrics, and no rank waits forever."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from pathlib import Path
from typing import Any

import pytest

import shiftbench as sb
from tests import processes
from tests.integrations import rank_target

#: Seconds until a training that hangs is killed; long, since other tests may hold the cores.
TIME_LIMIT = 480
#: Per epoch: 24 images in three settings.
EVALUATED_IMAGES = 24 * 3

pytestmark = pytest.mark.slow


def two_ranks(form: str, settings: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
    """What each rank of a training reports, in the order of the ranks."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    ranks = []
    for rank in ("0", "1"):
        environment = {**shared, "RANK": rank, "LOCAL_RANK": rank}
        ranks.append(processes.start(rank_target.run, form, settings, folder, environment))
    deadline = time.monotonic() + TIME_LIMIT
    for process in ranks:
        process.join(max(0.0, deadline - time.monotonic()))
    still_running = [process for process in ranks if process.exitcode is None]
    for process in still_running:
        # The process prints where its threads are.
        assert process.pid is not None
        os.kill(process.pid, signal.SIGUSR1)
        time.sleep(1)
        process.kill()
        process.join()
    assert not still_running, f"{len(still_running)} of 2 ranks did not end"
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in (0, 1)]


@pytest.mark.parametrize("form", ["plain", "accelerate"])
def test_every_rank_of_a_loop_gets_what_rank_0_has_computed(
    form: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    first, second = two_ranks(form, settings, tmp_path)
    assert first["metrics"] == second["metrics"]
    assert len(first["metrics"]) == rank_target.EPOCHS
    assert first["metrics"][-1] == last_metrics(settings)
    assert first["evaluated_images"] >= rank_target.EPOCHS * EVALUATED_IMAGES
    assert second["evaluated_images"] == 0
    assert first["steps"] == [0, 1]
    assert second["steps"] == []


def last_metrics(settings: dict[str, Any]) -> dict[str, float]:
    """The metrics of the last epoch, by the results in the workspace."""
    name = f"net-epoch{rank_target.EPOCHS - 1}"
    run = sb.Run.open(settings["workspace"])
    results = [result for result in run.results if result.classifier == name]
    return sb.Run(run.workspace, results).metrics()


def test_lightning_saves_the_best_checkpoint_of_a_monitor(settings: dict[str, Any], tmp_path: Path) -> None:
    first, second = two_ranks("lightning", settings, tmp_path)
    assert first["metrics"] == second["metrics"]
    assert first["metrics"]["shiftbench/photos-c/top1"] == pytest.approx(last_metrics(settings)["photos-c/top1"])
    assert first["checkpoint"] == second["checkpoint"]
    assert Path(first["checkpoint"]).is_file()
    assert first["steps"] == [0, 1]
    assert second["steps"] == []


def test_every_rank_of_the_trainer_of_transformers_has_the_metrics(settings: dict[str, Any], tmp_path: Path) -> None:
    first, second = two_ranks("trainer", settings, tmp_path)
    assert first["metrics"] == second["metrics"]
    assert [round(entry["epoch"]) for entry in first["metrics"]] == [1, 2]
    assert first["steps"] == [1, 2]
    assert second["steps"] == []


def test_a_loop_may_call_the_monitor_on_rank_0_alone(settings: dict[str, Any], tmp_path: Path) -> None:
    first, second = two_ranks("plain-on-rank-0-alone", settings, tmp_path)
    assert first["metrics"][-1] == last_metrics(settings)
    assert second["metrics"] == []


@pytest.mark.parametrize("form", ["plain-that-fails", "plain-that-crashes"])
def test_a_failure_of_the_first_call_ends_all_ranks(form: str, settings: dict[str, Any], tmp_path: Path) -> None:
    first, second = two_ranks(form, settings, tmp_path)
    assert "error" in first
    assert second["error"] == "ShiftbenchError"
    assert first["text"].splitlines()[0] in second["text"]


def test_a_later_failure_ends_no_rank(settings: dict[str, Any], tmp_path: Path) -> None:
    first, second = two_ranks("plain-that-fails-later", settings, tmp_path)
    assert first["metrics"] == second["metrics"]
    assert [bool(metrics) for metrics in first["metrics"]] == [True, False, True]


def test_only_rank_0_opens_sinks(settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tensorboard")
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        sb.Monitor(**settings, sinks=[f"tensorboard:{tmp_path / rank}"]).close()
    assert (tmp_path / "0").exists()
    assert not (tmp_path / "1").exists()
