"""The kernels compiled with checks of every memory access and of undefined behaviour, under the tests that use them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import shiftbench
from shiftbench.native.build import build

ROOT = Path(__file__).parents[2]
TESTS = (
    "native/test_kernels.py",
    "native/test_jpeg.py",
    "shifts/test_edges.py",
    "shifts/test_parity.py",
    "shifts/test_properties.py",
    "shifts/test_image_kinds.py",
    "testsets/near_duplicates",
)
OVERRUN = """
import numpy as np
from shiftbench.native.jpeg import jpeg_file, quantisation
jpeg_file(np.full((64, 64, 3), 9, np.uint8), *quantisation(90), np.empty(64, np.uint8), np.zeros(1, np.int64))
"""


@pytest.mark.soak
def test_no_kernel_leaves_its_arrays(tmp_path: Path) -> None:
    if sys.platform != "linux" or shutil.which("gcc") is None:
        pytest.skip("the sanitizers are those of gcc on Linux")
    found = [
        subprocess.run(
            ["gcc", f"-print-file-name={name}.so"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in ("libasan", "libubsan", "libstdc++")
    ]
    if not all(Path(name).is_absolute() for name in found):
        pytest.skip("gcc has no sanitizers here")
    package = Path(shiftbench.__file__).parent
    copy = shutil.copytree(package, tmp_path / "src/shiftbench", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("CC", "gcc")
        build(copy / "native", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")
    environment = {
        **os.environ,
        "PYTHONPATH": str(tmp_path / "src"),
        "LD_PRELOAD": " ".join(found),
        "PYTHONMALLOC": "malloc",
        "ASAN_OPTIONS": "detect_leaks=0",
    }

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-X", "faulthandler", *arguments],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
        )

    assert "AddressSanitizer" in run("-c", OVERRUN).stderr, "it would find one"
    done = run("-m", "pytest", "-q", "-x", "-m", "not soak", *(f"tests/{name}" for name in TESTS))
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
