"""The n-th call of one kind fails, or the process dies there: explained, continued, and no change.

The kinds are open, read, write, fsync, rename, unlink, mkdir, link and listing a folder.

Every n of every flow in the soak; three calls of each kind otherwise.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shiftbench.native.build import compiler
from tests.faults.flows import FLOWS

HERE = Path(__file__).parent
PARTS = 4


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    command = compiler()
    if sys.platform != "linux" or command is None:
        pytest.skip("fault injection needs Linux and a C compiler")
    library = tmp_path_factory.mktemp("shim") / "shim.so"
    options = ["-shared", "-fPIC", "-D_LARGEFILE64_SOURCE", "-o", str(library), str(HERE / "shim.c"), "-ldl"]
    subprocess.run([*command, *options], check=True)
    return library


#: The calls that every run of a flow makes: if none of a kind is seen, that kind is not tested, which is a failure.
KINDS_OF_FLOWS = {
    "evaluation": {"open", "read", "write", "sync", "replace", "make folder", "list"},
    "corrupt": {"open", "read", "write", "replace", "make folder", "list"},
    "import": {"open", "read", "write", "sync", "remove", "list"},
    "freeze": {"open", "read", "write", "sync", "remove", "list"},
    "training": {"open", "read", "write", "sync", "replace", "list"},
}


def drive(shim: Path, flow: str, folder: Path, how: str) -> dict[str, Any]:
    """What the driver reports; a run that went wrong is a failure."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.driver", flow, str(folder), how],
        cwd=HERE.parents[1],
        env={**os.environ, "LD_PRELOAD": str(shim)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert not report["wrong"], "\n\n".join(report["wrong"][:5]) + f"\n\n{len(report['wrong'])} of {report['tried']}"
    return report


def survive(shim: Path, flow: str, folder: Path, how: str) -> int:
    """How many faults happened; all were survived."""
    report = drive(shim, flow, folder, how)
    seen = {kind for kind, tried in report["tried"].items() if tried}
    assert seen >= KINDS_OF_FLOWS[flow], f"no call of these kinds was seen to fail: {KINDS_OF_FLOWS[flow] - seen}"
    total = sum(report["tried"].values())
    # Calls differ a little between runs, such as those of the garbage collector and of locks.
    assert len(report["missed"]) <= total / 20, report["missed"]
    return int(total)


@pytest.mark.reliability("injected faults")
@pytest.mark.parametrize("flow", ["evaluation", "corrupt", "import"])
def test_some_calls_fail(shim: Path, tmp_path: Path, flow: str, record_property: Callable[[str, object], None]) -> None:
    record_property("tries", survive(shim, flow, tmp_path, "some"))


@pytest.mark.soak
@pytest.mark.reliability("injected faults")
@pytest.mark.parametrize("part", [f"{i}/{PARTS}" for i in range(1, PARTS + 1)])
@pytest.mark.parametrize("flow", FLOWS)
def test_every_call_fails(
    shim: Path, tmp_path: Path, flow: str, part: str, record_property: Callable[[str, object], None]
) -> None:
    """In parts of some minutes each, so that they can be run apart."""
    record_property("tries", survive(shim, flow, tmp_path, part))


@pytest.mark.reliability("power cuts")
@pytest.mark.parametrize(
    "flow", ["corrupt", *(pytest.param(flow, marks=pytest.mark.soak) for flow in ("evaluation", "training"))]
)
def test_power_cuts(shim: Path, tmp_path: Path, flow: str, record_property: Callable[[str, object], None]) -> None:
    """What was written and not forced to the disk is lost: the same command makes it again."""
    report = drive(shim, flow, tmp_path, "power-cuts")
    assert report["lost"] > 0, "no write was lost"
    record_property("tries", report["tried"])
