"""Fuzz the kernels and the callers of the image decoders, sanitizers on: ``python -m tests.fuzz SECONDS``.

Needs clang and the package atheris (``pip install atheris``), which no other test needs. The kernels are compiled in a
copy of the package. Inputs that found new code are kept in ``.fuzz/``, and a later run begins with them.
"""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import shiftbench
from shiftbench.native.build import build
from tests.datasets.odd_pictures import cabinet
from tests.native.test_sanitizers import OVERRUN

ROOT = Path(__file__).parents[2]
CORPUS = ROOT / ".fuzz"
SANITIZERS = ("-fsanitize=address,undefined,fuzzer-no-link", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")


def write_seeds(folder: Path) -> None:
    """The odd images of the tests for the decoder, and an input for each of the other targets."""
    folder.mkdir(exist_ok=True)
    for number, picture in enumerate(cabinet()):
        if len(picture.data) < 100_000:
            (folder / f"seed-{number}").write_bytes(b"\0" + bytes([number % 6]) + picture.data)
    for target in range(1, 5):
        for choice in range(0, 100, 5):
            (folder / f"seed-{target}-{choice}").write_bytes(bytes([target, choice, 40, 33, *range(0, 256, 5)]))


def main(seconds: int) -> int:
    atheris = importlib.import_module("atheris")
    write_seeds(CORPUS)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="shiftbench-fuzz-") as root:
        package = Path(shiftbench.__file__).parent
        copy = shutil.copytree(package, Path(root, "shiftbench"), ignore=shutil.ignore_patterns("*.so", "__pycache__"))
        build(copy / "native", *SANITIZERS, command=["clang"])
        environment = {
            **os.environ,
            "PYTHONPATH": f"{root}{os.pathsep}{ROOT}",
            "LD_PRELOAD": f"{atheris.path()}/asan_with_fuzzer.so",
            "ASAN_OPTIONS": "detect_leaks=0,allocator_may_return_null=1",
        }
        overrun = subprocess.run(
            [sys.executable, "-c", OVERRUN], env=environment, capture_output=True, text=True, cwd=root
        )
        assert "AddressSanitizer" in overrun.stderr, f"an overrun of an array is not found: {overrun.stderr}"
        options = [f"-max_total_time={seconds}", "-max_len=65536", "-timeout=60", "-rss_limit_mb=6000"]
        words = [sys.executable, "-m", "tests.fuzz.images", *options, f"-artifact_prefix={CORPUS}/", str(CORPUS)]
        done = subprocess.run(words, env=environment, cwd=root, check=False)
    print(f"fuzzed for {time.monotonic() - began:.0f} seconds, exit code {done.returncode}")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
