"""An object store on a host of its own, whose network is cut in the middle of a run."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import boto3
import pytest

from tests import processes
from tests.hosts import Host, host
from tests.io.objects.server import credentials
from tests.runs.helpers import colour_folder
from tests.runs.kill_target import evaluate_slowly

#: Longer than the ten seconds that a client of the store waits for a connection.
CUT_SECONDS = 12
BUCKET = "far-away"
PORT = 5000


@pytest.mark.soak
@pytest.mark.reliability("kills")
def test_a_run_whose_store_is_cut_off_ends_with_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = colour_folder(tmp_path / "pictures", per_class=40)
    local = tmp_path / "local"
    evaluate_slowly(local, data, 1)
    expected = {str(path.relative_to(local)): path.read_bytes() for path in local.glob("predictions/**/*.parquet")}
    with host() as there:
        server = [sys.executable, "-m", "moto.server", "-H", there.address, "-p", str(PORT)]
        with there.running(server, tmp_path / "server.log", PORT):
            stored = results_after_a_cut(there, data, monkeypatch)
        assert there.packets.lost > 0
    assert stored == expected


def results_after_a_cut(there: Host, data: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """The predictions in the store, after a run that was cut off and repeated until it ended well."""
    environment = dict(credentials(f"http://{there.address}:{PORT}"))
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    client = boto3.client("s3", endpoint_url=f"http://{there.address}:{PORT}")
    client.create_bucket(Bucket=BUCKET)

    def names() -> list[str]:
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix="w/")
        return [entry["Key"] for page in pages for entry in page.get("Contents", [])]

    runs = 0
    was_cut = False
    exit_code: int | None = None
    while exit_code != 0:
        assert runs < 10, "the same command does not finish"
        run = processes.start(evaluate_slowly_at, environment, f"s3://{BUCKET}/w", data)
        runs += 1
        limit = time.monotonic() + 300
        while not was_cut and run.is_alive() and time.monotonic() < limit:
            if any("/shards/" in name or "/predictions/" in name for name in names()):
                there.cut()
                time.sleep(CUT_SECONDS)
                there.mend()
                was_cut = True
        run.join()
        exit_code = run.exitcode
    assert was_cut, "the run ended before its store was cut off"
    results = [name for name in names() if name.startswith("w/predictions/") and name.endswith(".parquet")]
    return {name.removeprefix("w/"): client.get_object(Bucket=BUCKET, Key=name)["Body"].read() for name in results}


def evaluate_slowly_at(environment: dict[str, str], workspace: str, data: Path) -> None:
    """The same run in a process that knows the store by its environment."""
    os.environ.update(environment)
    evaluate_slowly(workspace, data, 2)
