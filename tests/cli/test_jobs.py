"""Runs without a terminal, and job arrays: the scripts' tasks are run here, one after the other and killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import shiftbench as sb
from shiftbench.jobs.detached import DetachedJob, detached_jobs, find_job, follow, start_job
from tests.commands import answer, call, output
from tests.runs.helpers import colour_folder
from tests.runs.test_evaluate import stored

_MODEL = """
import time
import numpy as np

def make():
    return lambda images: time.sleep({pause}) or images.mean(axis=(1, 2)).astype(np.float32)[:, ::-1]
"""


@pytest.fixture
def arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Of ``eval``, with a model whose classes are the folders in their order."""
    monkeypatch.setenv("SHIFTBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    (tmp_path / "model.py").write_text(_MODEL.format(pause=0))
    data = colour_folder(tmp_path / "pictures", per_class=8)
    return [f"{tmp_path / 'model.py'}:make", "--data", str(data), "--labels", "folders", "--trust"]


def test_a_detached_run_is_listed_shown_and_leaves_the_same_files(arguments: list[str], tmp_path: Path) -> None:
    started = call("eval", *arguments, "-w", tmp_path / "w", "--detach")
    (job,) = detached_jobs()
    assert started.exit_code == 0 and job.id in started.stdout, started.output
    shown = call("jobs", "attach", job.id[:-1])
    assert shown.exit_code == 0 and "100.0" in shown.stdout, shown.output
    listed = answer("jobs", "list")
    assert [(one["id"], one["status"], one["exit_code"]) for one in listed] == [(job.id, "done", 0)]
    assert "--detach" not in listed[0]["command"] and job.id in call("jobs", "list").stdout
    assert call("eval", *arguments, "-w", tmp_path / "here", "-q").exit_code == 0
    assert stored(tmp_path / "w") == stored(tmp_path / "here") != {}
    assert not list((tmp_path / "cache" / "jobs").glob("*.lock"))


def test_a_job_is_cancelled_or_lost_and_the_same_command_resumes(arguments: list[str], tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(_MODEL.format(pause=600))
    assert call("eval", *arguments, "-w", tmp_path / "w", "--detach").exit_code == 0
    (job,) = detached_jobs()
    assert job.status == "running"
    assert call("jobs", "cancel").exit_code == 0 and find_job(job.id).status == "cancelled"
    assert call("jobs", "attach").exit_code == 130
    assert DetachedJob(id="19990101", arguments=[], folder="", started="", process=1).status == "lost"
    unknown = call("jobs", "attach", "nothing")
    assert unknown.exit_code == 1 and job.id in str(unknown.exception)
    terminated = start_job(["eval", *arguments, "-w", str(tmp_path / "w")])
    os.killpg(terminated.process, signal.SIGTERM)  # at any moment, also while Python starts
    list(follow(terminated))
    assert find_job(terminated.id).status == "cancelled"


@pytest.mark.parametrize("system", ["slurm", "k8s"])
def test_the_tasks_of_an_array_leave_the_files_of_one_run(arguments: list[str], tmp_path: Path, system: str) -> None:
    file = tmp_path / "array"
    jobs = 2
    more = ["--option", "gpus=1"] if system == "slurm" else ["--image", "any", "--claim", "shared:/shared"]
    words = ["launch", system, "--jobs", jobs, "-o", file, *more, "--", *arguments, "-w", tmp_path / "w"]
    output(*words)
    if system == "slurm":
        assert "#SBATCH --requeue" in file.read_text() and "#SBATCH --gpus=1" in file.read_text()
        task = ["bash", str(file)]
        variable = "SLURM_ARRAY_TASK_ID"
        first = 1
    else:
        pod = json.loads(file.read_text())["spec"]["template"]["spec"]
        assert pod["volumes"][0]["persistentVolumeClaim"] == {"claimName": "shared"}
        task = pod["containers"][0]["command"]
        variable = "JOB_COMPLETION_INDEX"
        first = 0
    # The first task of Slurm is run twice, as after a requeue, and takes over what the second has not begun.
    for number in (*[first] * (2 if system == "slurm" else 1), first + 1):
        done = subprocess.run(task, env={**os.environ, variable: str(number)}, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert len(sb.Run.open(tmp_path / "w").results) == 1
    assert call("eval", *arguments, "-w", tmp_path / "here", "-q").exit_code == 0
    assert stored(tmp_path / "w") == stored(tmp_path / "here")


def test_what_can_not_be_launched_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["launch", "slurm", "--jobs", 2, "-o", tmp_path / "array"]
    assert "--shard can't be launched" in str(call(*words, "--", "m.onnx", "--shard", "1/2").exception)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "sbatch is not installed" in str(call(*words, "--submit", "--", "m.onnx").exception)
    (tmp_path / "sbatch").write_text("#!/bin/sh\necho Submitted batch job 7 $1\n")
    (tmp_path / "sbatch").chmod(0o755)
    done = json.loads(output(*words, "--submit", "--json", "--", "m.onnx"))
    assert done["submitted"] and done["answer"].startswith("Submitted batch job 7")


def test_credentials_reach_the_job_and_nothing_else(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signed URL as a model: the job fails to reach it, which shows that the job knows it."""
    model = "https://localhost:1/model.onnx?X-Amz-Signature=SECRET"
    started = call("eval", model, *arguments[1:], "-w", tmp_path / "w", "--detach")
    assert started.exit_code == 0, started.output
    [job] = detached_jobs()
    log = "".join(follow(job))
    assert "localhost:1/model.onnx" in log, "the job knows the address"
    shown = started.output + log + call("jobs", "list").output + call("jobs", "list", "--json").output
    assert "localhost:1/model.onnx?***" in shown
    assert "SECRET" not in shown
    for path in (tmp_path / "cache" / "jobs").iterdir():
        assert "SECRET" not in path.read_text()
        assert path.stat().st_mode & 0o077 == 0, path


def test_records_of_earlier_versions_are_listed_without_credentials() -> None:
    words = ["eval", "https://me:SECRET@host/m.onnx?token=SECRET", "--token", "SECRET", "--api-token=SECRET"]
    job = DetachedJob(id="1", arguments=words, folder="", started="", process=1)
    assert job.command == "shiftbench eval 'https://***@host/m.onnx?***' --token '***' '--api-token=***'"


@pytest.mark.parametrize("words", [["slurm"], ["k8s", "--image", "x"]])
def test_scripts_can_be_read_by_their_owner_alone(tmp_path: Path, words: list[str]) -> None:
    script = tmp_path / "script"
    output("launch", *words, "--jobs", "2", "-o", script, "--", "https://host/m.onnx?token=SECRET", "--data", "d")
    assert "SECRET" in script.read_text(), "the tasks need it"
    assert script.stat().st_mode & 0o077 == 0
