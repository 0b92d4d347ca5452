"""The n-th open, write, fsync, rename or unlink fails, or the process dies there: explained, continued, and no change.

Every n of every flow in the soak; three calls of each kind otherwise.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

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


def survive(shim: Path, flow: str, folder: Path, how: str) -> int:
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.driver", flow, str(folder), how],
        cwd=HERE.parents[1], env={**os.environ, "LD_PRELOAD": str(shim)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout
    found = json.loads(done.stdout.splitlines()[-1])
    assert not found["wrong"], "\n\n".join(found["wrong"][:5]) + f"\n\n{len(found['wrong'])} of {found['tried']}"
    assert found["tried"] >= 5, "the shim saw the calls"
    return int(found["tried"])


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
