"""Kernels in C: declarations and code agree, arguments are checked, and every compiled version gives the same bytes."""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from shiftbench.native import kernel
from shiftbench.native.build import FOLDER, build, libraries, sources
from shiftbench.native.loops import fill_uniform, to_unit, weighted_sum

DIGEST = """
import hashlib, sys, numpy
from shiftbench import native
from shiftbench.shifts.corruptions.api import corrupt
from shiftbench.shifts.corruptions.catalogue import corruptions
wanted = dict(list(native.libraries().items())[: int(sys.argv[1])])
native.libraries = lambda: wanted
image = numpy.random.default_rng(0).integers(0, 256, (40, 56, 3), numpy.uint8)
digest = hashlib.sha256()
for name in corruptions():
    digest.update(corrupt(image, name, severity=3, image_id="a").tobytes())
print(native._library()._name, digest.hexdigest())
"""


def test_every_version_gives_the_same_pixels() -> None:
    """The one for any processor, and those for newer ones as far as this processor can run them."""
    lines = []
    for count in range(1, len(libraries()) + 1):
        done = subprocess.run([sys.executable, "-c", DIGEST, str(count)], capture_output=True, text=True, check=True)
        lines.append(done.stdout.split())
    assert len({name for name, _ in lines}) > 1 or len(libraries()) == 1
    assert len({digest for _, digest in lines}) == 1


def test_every_kernel_in_c_has_a_declaration() -> None:
    written = {name for path in sources() for name in re.findall(r"^KERNEL\((\w+)\)", path.read_text(), re.MULTILINE)}
    declared = {
        name.lstrip("_")
        for path in FOLDER.parent.rglob("*.py")
        for name in re.findall(r"^@kernel\ndef (\w+)\(", path.read_text(), re.MULTILINE)
    }
    # Those of two types of numbers are written by a macro.
    assert written <= declared
    assert len(declared) > 25


def test_arguments_are_checked() -> None:
    levels, values = np.arange(4, dtype=np.uint8), np.empty(4, np.float32)
    with pytest.raises(TypeError, match="to_unit: image must be"):
        to_unit(levels.astype(np.int8), values)
    with pytest.raises(ValueError, match="contiguous"):
        to_unit(levels, np.empty(8, np.float32)[::2])
    with pytest.raises(TypeError):
        to_unit(levels, 3)  # type: ignore[arg-type]
    with pytest.raises(IndexError):
        to_unit(levels)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        weighted_sum(levels, levels, 0, 0, "a", 1.0, levels)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="image must be"):
        to_unit(np.zeros((1, 1, 1, 4), np.uint8), values)


def test_read_only_and_empty_arrays_are_fine() -> None:
    levels, values = np.array([0, 255], np.uint8), np.empty(2, np.float32)
    levels.flags.writeable = False
    to_unit(levels, values)
    assert values.tolist() == [0.0, 1.0]
    fill_uniform(np.empty(0), np.uint64(1), np.uint64(2), np.uint64(3))


def test_unknown_kernels_are_errors() -> None:
    @kernel
    def no_such_kernel(x: int) -> None:
        """Written nowhere."""

    with pytest.raises(AttributeError):
        no_such_kernel(1)


def test_threads_that_compile_at_once_leave_whole_libraries(tmp_path: Path) -> None:
    """With one name for the compiler's output, one thread put in its place what another was still writing."""
    with ThreadPoolExecutor(2) as pool:
        for (made,) in pool.map(lambda _: build(tmp_path, "-O0", machine="any"), range(2)):
            assert made == tmp_path / "kernels.so"
    assert [path.name for path in tmp_path.iterdir()] == ["kernels.so"]
    assert ctypes.CDLL(str(tmp_path / "kernels.so")).processor_version() >= 0
