"""A Ray cluster whose second machine is a host of its own, cut off in the middle of a run: the same bytes."""

from __future__ import annotations

import importlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests import processes
from tests.hosts import Host, host
from tests.runs.helpers import colour_folder
from tests.runs.kill_target import evaluate_slowly
from tests.runs.test_kill import files, shards

pytest.importorskip("ray")

PORT = 6399
#: Longer than the head waits for a machine that does not answer, with the limits below.
CUT_SECONDS = 25
LIMITS = '{"health_check_period_ms": 1000, "health_check_timeout_ms": 2000, "health_check_failure_threshold": 4}'


def _node(*options: str) -> list[str]:
    small = ("--num-cpus=1", "--object-store-memory=100000000", "--block")
    return [str(Path(sys.executable).with_name("ray")), "start", *small, *options]


@contextmanager
def head(there: Host, log: Path) -> Iterator[str]:
    """The address of a cluster's head on this machine."""
    address = f"{there.here}:{PORT}"
    options = ("--head", f"--node-ip-address={there.here}", f"--port={PORT}", "--include-dashboard=false")
    with log.open("wb") as output:
        server = subprocess.Popen([*_node(*options), f"--system-config={LIMITS}"], stdout=output, stderr=output)
    try:
        yield address
    finally:
        server.terminate()
        server.wait(60)


def machines(address: str) -> int:
    """How many machines a cluster has."""
    raylet: Any = importlib.import_module("ray._raylet")
    try:
        nodes = raylet.GcsClient(address=address).get_all_node_info(timeout=5)
    except Exception:  # The head is still starting.
        return 0
    return sum(node.state == 0 for node in nodes.values())


def wait_until(condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.2)


@pytest.mark.soak
@pytest.mark.reliability("kills")
def test_a_machine_that_is_cut_off(tmp_path: Path) -> None:
    """Its work is given to the other machine, or the same command ends it."""
    data = colour_folder(tmp_path / "pictures", per_class=40)
    evaluate_slowly(tmp_path / "local", data, 1)
    workspace = tmp_path / "w"
    with host() as there, head(there, tmp_path / "head.log") as address:
        wait_until(lambda: machines(address) == 1)
        second = _node(f"--address={address}", f"--node-ip-address={there.address}")
        with there.running(second, tmp_path / "second.log"):
            wait_until(lambda: machines(address) == 2)
            run = processes.start(evaluate_slowly, workspace, data, 2, address)
            wait_until(lambda: shards(workspace) > 0 or not run.is_alive())
            assert run.is_alive(), "it must be cut off in the middle"
            there.cut()
            time.sleep(CUT_SECONDS)
            there.mend()
            run.join(300)
            runs = 1
            while run.exitcode != 0:
                assert runs < 5 and not run.is_alive(), "the same command does not finish"
                run = processes.start(evaluate_slowly, workspace, data, 2, address)
                run.join(300)
                runs += 1
        assert there.packets.lost > 0
    assert files(workspace) == files(tmp_path / "local")
    assert shards(workspace) == 0
