"""``launch slurm`` on a real Slurm of one node, on loopback: ``apt-get install slurm-wlm``."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.test_jobs import _MODEL, arguments
from tests.commands import call
from tests.runs.test_evaluate import stored

__all__ = ["arguments"]

_CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
AuthType=auth/none
CredType=cred/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES State=UP
"""

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(shutil.which("slurmctld") is None, reason="needs Slurm (Debian package slurm-wlm)"),
    pytest.mark.skipif(os.geteuid() != 0, reason="slurmd needs root"),
]


def slurm(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=60).stdout


def wait_for(condition: str, *words: str, seconds: float = 300) -> None:
    """Wait until the output of a command of Slurm contains a text, or is empty if the text is."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        output = slurm(*words)
        if condition in output and (condition or not output.strip()):
            return
        time.sleep(0.5)
    raise AssertionError(f"{words}: {output}")


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "slurm"
    (folder / "state").mkdir(parents=True)
    (folder / "spool").mkdir()
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    file = folder / "slurm.conf"
    file.write_text(_CONFIGURATION.format(host=socket.gethostname().partition(".")[0], folder=folder, ports=ports))
    monkeypatch.setenv("SLURM_CONF", str(file))
    daemons = [subprocess.Popen([program, "-D", "-f", file]) for program in ("slurmctld", "slurmd")]
    try:
        wait_for("idle", "sinfo", "--noheader")
        yield folder
    finally:
        for daemon in reversed(daemons):
            daemon.send_signal(signal.SIGTERM)
            daemon.wait(60)


def test_an_array_with_a_requeued_task_leaves_the_files_of_one_run(
    arguments: list[str], cluster: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(_MODEL.format(pause=0.5))
    words = [*arguments, "--suite", "corruptions", "--severity", "3"]
    submitted = call("launch", "slurm", "--jobs", 3, "--option", "cpus-per-task=1", "--submit", "--", *words, "-w", "w")
    assert submitted.exit_code == 0, submitted.output
    wait_for("R", "squeue", "--noheader", "--array", "--format=%t", "--jobs=1_1")
    slurm("scontrol", "requeue", "1_1")
    wait_for("", "squeue", "--noheader", seconds=600)
    assert "REQUEUE" in Path("shiftbench-1_1.log").read_text()
    assert call("eval", *words, "-w", "here", "-q").exit_code == 0
    assert stored(tmp_path / "w") == stored(tmp_path / "here") != {}
