"""A real Ray cluster of two nodes on this machine: the same files as a local run, whoever dies on the way."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import shiftbench as sb
from shiftbench.api import IncompleteRunError
from shiftbench.jobs import ray_executor
from shiftbench.jobs.base import TRIES
from shiftbench.jobs.ray_executor import RayError, RayExecutor, Resources
from tests import processes
from tests.commands import output
from tests.runs.helpers import COLOURS, brightest_channel, colour_folder, darkest_channel
from tests.runs.kill_target import evaluate_slowly
from tests.runs.test_evaluate import as_classifier, run_small, stored
from tests.runs.test_kill import files, shards
from tests.runs.test_troubles import ThrowsOn

ray = pytest.importorskip("ray")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    made: Any = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    made.add_node(num_cpus=1)
    yield made
    made.shutdown()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cluster is looked at often: seconds of waiting for nothing are no test."""
    monkeypatch.setattr(ray_executor, "_POLL_SECONDS", 0.2)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return colour_folder(tmp_path_factory.mktemp("data") / "pictures", per_class=40)


class Signed:
    """A classifier that leaves a note where it ran."""

    self_contained = True  # no probe, which would run in the driver

    def __init__(self, notes: Path) -> None:
        self.notes = notes
        notes.mkdir(parents=True, exist_ok=True)

    def __call__(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        (self.notes / f"{ray.get_runtime_context().get_node_id()}-{os.getpid()}").touch()
        return brightest_channel(images)


class KillsItsWorkerOnce:
    self_contained = True  # no probe, which would kill the driver

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __call__(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        if not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return brightest_channel(images)


def places(notes: Path) -> set[tuple[str, str]]:
    """(node, process)."""
    return {tuple(path.name.split("-")) for path in notes.iterdir()}  # type: ignore[misc]


def by_hand(run: sb.Run) -> list[tuple[str, list[list[int]], list[float]]]:
    """What was predicted, without the classifier's name and fingerprint."""
    found = [(result.setting, run.predictions(result.classifier, result.setting)) for result in run.results]
    return [(setting, own.top.tolist(), own.confidence.tolist()) for setting, own in found]


def test_two_nodes_give_the_bytes_of_a_local_run(cluster: Any, pictures: Path, tmp_path: Path) -> None:
    functions = {"signed": Signed(tmp_path / "notes"), "dark": darkest_channel}
    with pytest.warns(UserWarning):
        run_small(pictures, tmp_path / "ray", functions=functions, executor=RayExecutor(cluster.address))
    used = places(tmp_path / "notes")
    assert len({node for node, _ in used}) == 2, "both nodes worked"
    assert len(used) == 2, "and each kept one warm worker"
    functions = {"dark": darkest_channel}
    with pytest.warns(UserWarning):
        run_small(pictures, tmp_path / "local", functions=functions)
    assert {name: data for name, data in stored(tmp_path / "ray").items() if name.startswith("dark/")} == stored(
        tmp_path / "local"
    )


@pytest.mark.soak
def test_the_command_with_a_real_network(cluster: Any, tmp_path: Path) -> None:
    """SqueezeNet on photographs under corruptions: the bytes of threads, through the command line."""

    def evaluate(workspace: Path, *options: str) -> None:
        what = ["demo:squeezenet1_1", "--suite", "corruptions", "--data", "demo", "--sample", "24", "-q"]
        chosen = ["--corruption", "gaussian_noise,fog", "--severity", "3", "-w", str(workspace)]
        output("eval", *what, *chosen, *options)

    evaluate(tmp_path / "ray", "--executor", "ray", "--address", cluster.address, "--cpus", "1", "--memory", "0.5")
    evaluate(tmp_path / "threads", "--executor", "threads", "-j", "2")
    assert stored(tmp_path / "ray") == stored(tmp_path / "threads")
    assert len(stored(tmp_path / "ray")) == 3


def test_a_poisoned_picture_and_a_classifier_that_throws(cluster: Any, tmp_path: Path) -> None:
    data = colour_folder(tmp_path / "pictures", per_class=20)
    (data / "blue" / "003.png").write_bytes(b"\x89PNG broken")
    geometry = as_classifier(brightest_channel, "any").preprocessing.geometry
    poison = geometry(sb.open_dataset(data, space=COLOURS).read(20).pixels)
    functions: dict[str, Any] = {"dark": darkest_channel, "bad": ThrowsOn(poison, tmp_path / "log")}
    with pytest.raises(IncompleteRunError, match=r"'bad' failed on 15 images.*bottom of the sea") as caught:
        run_small(data, tmp_path / "ray", functions=functions, suite="clean", executor=RayExecutor(cluster.address))
    assert (tmp_path / "log").read_text() == "x" * TRIES
    assert [result.classifier for result in caught.value.run.results] == ["dark"]
    assert [problem["id"] for problem in caught.value.run.problems()] == ["blue/003.png"]
    with pytest.warns(UserWarning):
        run_small(data, tmp_path / "local", functions={"dark": darkest_channel}, suite="clean")
    assert stored(tmp_path / "ray") == stored(tmp_path / "local")


def test_a_worker_killed_with_nine(cluster: Any, pictures: Path, tmp_path: Path) -> None:
    functions = {"mortal": KillsItsWorkerOnce(tmp_path / "mark")}
    run = run_small(pictures, tmp_path / "ray", functions=functions, executor=RayExecutor(cluster.address))
    assert (tmp_path / "mark").exists()
    assert by_hand(run) == by_hand(run_small(pictures, tmp_path / "local"))


def test_classifiers_of_the_same_needs_share_workers(cluster: Any, pictures: Path, tmp_path: Path) -> None:
    functions = {name: Signed(tmp_path / name) for name in ("small-a", "small-b", "large")}
    needs = {"large": Resources(cpus=0.5), "small-*": Resources(cpus=0.25)}
    executor = RayExecutor(cluster.address, workers=1, resources=needs)
    run = run_small(pictures, tmp_path / "ray", functions=functions, suite="clean", executor=executor)
    assert len(run.results) == 3
    assert places(tmp_path / "small-a") == places(tmp_path / "small-b")
    assert places(tmp_path / "large").isdisjoint(places(tmp_path / "small-a"))


def test_more_than_any_machine_has_is_refused(cluster: Any, pictures: Path, tmp_path: Path) -> None:
    executor = RayExecutor(cluster.address, resources=Resources(cpus=2), patience=0)
    with pytest.raises(RayError, match="no machine of the cluster can hold") as caught:
        run_small(pictures, tmp_path / "ray", executor=executor)
    assert caught.value.expected == "2 CPUs, 0 GPUs on one machine"


@pytest.mark.soak
def test_a_model_that_no_machine_can_hold_is_not_waited_for_for_ever(
    cluster: Any, pictures: Path, tmp_path: Path
) -> None:
    functions = {name: Signed(tmp_path / name) for name in ("small", "large")}
    needs = {"large": Resources(cpus=2), "small": Resources(cpus=0.5)}
    executor = RayExecutor(cluster.address, resources=needs, patience=30)
    with pytest.raises(RayError, match="no machine of the cluster can hold") as caught:
        run_small(pictures, tmp_path / "ray", functions=functions, suite="clean", executor=executor)
    assert caught.value.expected == "2 CPUs, 0 GPUs on one machine"
    assert places(tmp_path / "small"), "the other one was computed"


@pytest.mark.parametrize("address", ["127.0.0.1:1", "127.0.0.1:port"])
def test_a_cluster_that_is_not_there_is_said_at_once(pictures: Path, tmp_path: Path, address: str) -> None:
    with pytest.raises(RayError, match="can't be reached") as caught:
        run_small(pictures, tmp_path / "ray", executor=RayExecutor(address))
    assert caught.value.hint is not None and "ray start --head" in caught.value.hint


def test_a_driver_killed_with_nine_and_started_again(cluster: Any, tmp_path: Path) -> None:
    data = colour_folder(tmp_path / "pictures", per_class=30)
    whole = tmp_path / "whole"
    broken = tmp_path / "broken"
    evaluate_slowly(whole, data, 2)
    driver = processes.start(evaluate_slowly, broken, data, 2, cluster.address)
    wait_until(lambda: shards(broken) >= 3 or not driver.is_alive())
    assert driver.is_alive(), "it must be killed in the middle"
    driver.kill()
    driver.join()
    assert files(broken) != files(whole)
    again = processes.start(evaluate_slowly, broken, data, 2, cluster.address)
    again.join(600)
    assert again.exitcode == 0
    assert files(broken) == files(whole) and shards(broken) == 0


class NeedsTwoMachines(Signed):
    """Goes on, slowly, once a second machine is at work."""

    def __call__(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        scores = super().__call__(images)
        wait_until(lambda: len(places(self.notes)) >= 2)
        time.sleep(0.1)
        return scores


def test_machines_that_join_and_leave_during_a_run(cluster: Any, pictures: Path, tmp_path: Path) -> None:
    """No machine has room at first; two join, each gets work, and the first of them leaves again."""
    workspace = tmp_path / "ray"
    notes = tmp_path / "notes"
    functions = {"slow": NeedsTwoMachines(notes)}
    executor = RayExecutor(cluster.address, resources=Resources(cpus=2), patience=90)
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(run_small, pictures, workspace, functions=functions, executor=executor)
        machines = []
        for count in (1, 2):
            machines.append(cluster.add_node(num_cpus=2))
            wait_until(lambda count=count: run.done() or len(places(notes)) == count)  # type: ignore[misc]
        left = 40 - shards(workspace)
        cluster.remove_node(machines[0], allow_graceful=False)
    assert left > 0, "it must leave in the middle: 8 blocks of 5 settings"
    assert by_hand(run.result()) == by_hand(run_small(pictures, tmp_path / "local"))


def wait_until(true: Callable[[], bool], seconds: float = 300) -> None:
    limit = time.monotonic() + seconds
    while not true() and time.monotonic() < limit:
        time.sleep(0.02)
    assert true()
