"""Compiles the C files beside this one into a shared library.

Run by the build hook when a wheel or an editable install is made, and by a source checkout whose library is missing or
older than its sources. It imports nothing of shiftbench, so that the build hook can load it by its path.

The library has no Python in it: one wheel per platform serves every Python version, and no headers are needed. Any C
compiler will do; where there is none, the build hook asks for the package ziglang, which is one.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import threading
from pathlib import Path

FOLDER = Path(__file__).parent
#: The library is compiled once for every processor and again for newer ones; the first can tell which one to load.
VERSIONS: dict[str, tuple[str, ...]] = {
    "kernels.so": (),
    "kernels-avx2.so": ("-mavx2",),
    "kernels-avx512.so": ("-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl", "-mprefer-vector-width=256"),
}

#: Floating-point operations stay as written: not fused, not re-ordered. The two math flags only drop error numbers and
#: exception flags, which nobody reads, so that loops vectorise; values are the same.
FLAGS = (
    "-std=gnu11", "-O3", "-g0", "-fPIC", "-shared", "-fvisibility=hidden", "-fwrapv",
    "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math",
)  # fmt: skip


def sources() -> list[Path]:
    """The C files and their header; none in an installed wheel, which has the library only."""
    return sorted(FOLDER.glob("*.[ch]"))


def compiler() -> list[str] | None:
    """The command of a C compiler: ``CC``, one on the path, or ziglang's; None if there is none."""
    if os.environ.get("CC"):
        return os.environ["CC"].split()
    for name in ("cc", "gcc", "clang"):
        if shutil.which(name):
            return [name]
    return [sys.executable, "-m", "ziglang", "cc"] if importlib.util.find_spec("ziglang") else None


def libraries(machine: str | None = None) -> dict[str, tuple[str, ...]]:
    """The files for a machine (by default this one) and the options that each is compiled with."""
    x86 = (machine or platform.machine()).lower() in ("x86_64", "amd64")
    return {name: options for name, options in VERSIONS.items() if x86 or not options}


def build(folder: Path = FOLDER, *options: str, machine: str | None = None) -> list[Path]:
    """Compile the libraries into a folder; ``options`` are added to the compiler's.

    Several processes and threads may do so at once: each file is put in its place when it is whole.

    Raises:
        RuntimeError: There is no compiler, or it failed.
    """
    command = compiler()
    if command is None:
        raise RuntimeError("no C compiler found: install gcc or clang, or `pip install ziglang`")
    files = [str(path) for path in sources() if path.suffix == ".c"]
    started = {}
    for name, version in libraries(machine).items():
        part = folder / f".{name}.{os.getpid()}.{threading.get_ident()}"
        whole = [*command, *FLAGS, *options, *version, *files, "-lm", "-o", str(part)]
        process = subprocess.Popen(whole, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        started[folder / name] = part, process
    messages = [process.communicate()[1] for _, process in started.values()]
    if any(process.returncode for _, process in started.values()):
        raise RuntimeError("\n".join([f"{' '.join(command)} failed:", *messages]))
    for target, (part, _) in started.items():
        part.replace(target)
    return list(started)
