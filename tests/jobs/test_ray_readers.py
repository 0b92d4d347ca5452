"""Readers on a real Ray cluster: pictures made ready once for all workers of a machine; the bytes of a local run."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shiftbench.api import IncompleteRunError
from shiftbench.jobs.ray_executor import RayError, RayExecutor, Resources
from shiftbench.settings.base import Setting
from shiftbench.shifts.base import NoShift
from tests.commands import call
from tests.runs.helpers import Broken, colour_folder
from tests.runs.kill_target import slow_channel
from tests.runs.test_compute import BOTH, Noted
from tests.runs.test_evaluate import run_small, stored

ray = pytest.importorskip("ray")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    made: Any = Cluster(initialize_head=True, head_node_args={"num_cpus": 3, "include_dashboard": False})
    yield made
    made.shutdown()


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = colour_folder(tmp_path_factory.mktemp("data") / "pictures", per_class=40)
    (folder / "blue" / "003.png").write_bytes(b"\x89PNG broken")
    return folder


def test_one_reader_feeds_classifiers_of_different_needs(cluster: Any, pictures: Path, tmp_path: Path) -> None:
    data = Noted(pictures, tmp_path / "notes")
    needs = {"bright": Resources(cpus=0.5), "dark": Resources(cpus=0.25)}
    executor = RayExecutor(cluster.address, workers=1, resources=needs, reader_cpus=2)
    with pytest.warns(UserWarning):
        run = run_small(data, tmp_path / "ray", functions=BOTH, executor=executor)
        run_small(pictures, tmp_path / "local", functions=BOTH)
    assert stored(tmp_path / "ray") == stored(tmp_path / "local")
    assert len(data.readers()) == 1, "the workers themselves read nothing"
    assert set(data.reads()) == set(range(120)) and sum(data.reads().values()) < 2 * 120
    assert [problem["id"] for problem in run.problems()] == ["blue/003.png"]


@pytest.mark.soak  # without Ray in test_pictures
def test_what_a_reader_can_not_do_is_told(cluster: Any, pictures: Path, tmp_path: Path) -> None:
    suite = [Setting("broken", "data", Broken()), Setting("clean", "data", NoShift())]
    executor = RayExecutor(cluster.address, reader_cpus=1)
    with pytest.raises(IncompleteRunError, match=r"shift 'broken' failed.*a leak in the roof") as caught:
        run_small(pictures, tmp_path / "w", suite=suite, executor=executor)
    assert [result.setting for result in caught.value.run.results] == ["clean"]


@pytest.mark.soak
def test_a_reader_killed_with_nine(cluster: Any, pictures: Path, tmp_path: Path) -> None:
    data = Noted(pictures, tmp_path / "notes")

    def kill_the_reader() -> None:
        until = time.monotonic() + 300
        while time.monotonic() < until and not (data.notes.exists() and len(data.readers()) > 0):
            time.sleep(0.01)
        os.kill(next(iter(data.readers())), signal.SIGKILL)

    killer = threading.Thread(target=kill_the_reader)
    killer.start()
    executor = RayExecutor(cluster.address, workers=1, reader_cpus=1)
    run_small(data, tmp_path / "ray", functions={"slow": slow_channel}, executor=executor)
    killer.join()
    run_small(pictures, tmp_path / "local", functions={"slow": slow_channel})
    assert stored(tmp_path / "ray") == stored(tmp_path / "local")
    assert len(data.readers()) == 2, "another took its place"


def test_no_room_for_a_reader(cluster: Any, pictures: Path, tmp_path: Path) -> None:
    with pytest.raises(RayError, match="can hold a reader") as caught:
        run_small(pictures, tmp_path / "w", executor=RayExecutor(cluster.address, reader_cpus=3))
    assert "reader_cpus=..." in str(caught.value.hint)


@pytest.mark.soak
def test_resources_by_classifier_on_the_command_line(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real networks; what the amounts say is seen by asking for more than there is."""
    defaults = RayExecutor.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "patience", 60)

    def evaluate(workspace: str, *options: str) -> Any:
        models = ["demo:squeezenet1_1", "demo:efficientnet-lite0"]
        return call("eval", *models, "--data", "demo", "--sample", "12", "-q", "-w", tmp_path / workspace, *options)

    with_ray = ["--executor", "ray", "--address", cluster.address]
    refused = evaluate("w", *with_ray, "--resources", "eff*=gpus:1")
    assert isinstance(refused.exception, RayError) and refused.exception.expected == "1 CPUs, 1 GPUs on one machine"
    wrong = evaluate("w", *with_ray, "--resources", "eff*=tpus:1")
    assert isinstance(wrong.exception, RayError) and wrong.exception.found == "tpus:1"
    assert evaluate("w", *with_ray, "--resources", "gpus:1").exit_code == 2
    assert evaluate("w", "--resources", "eff*=gpus:1").exit_code == 2
    monkeypatch.undo()
    done = evaluate("ray", *with_ray, "--resources", "eff*=cpus:2,memory:0.5", "--reader-cpus", "1")
    assert done.exit_code == 0, done.output + str(done.exception)
    assert evaluate("threads").exit_code == 0
    assert stored(tmp_path / "ray") == stored(tmp_path / "threads") and len(stored(tmp_path / "ray")) == 2
