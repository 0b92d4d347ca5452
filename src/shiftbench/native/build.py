"""Compiles the C files beside this one into shared libraries.

Run by the build hook when a wheel or an editable install is made, and by a source checkout whose library is missing or
older than its sources. It imports nothing of shiftbench, so that the build hook can load it by its path.

The libraries have no Python in them: one wheel per platform serves every Python version, and no headers are needed. On
Linux and macOS any C compiler will do; where there is none, the build hook asks for the package ziglang, which is one.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
#: The library is compiled once for every processor and again for newer ones; the first can tell which one to load.
VERSIONS: dict[str, tuple[str, ...]] = {
    "kernels": (),
    "kernels-avx2": ("-mavx2",),
    "kernels-avx512": ("-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl", "-mprefer-vector-width=256"),
}
#: Floating-point operations stay as written: not fused, not re-ordered. The two math flags only drop error numbers and
#: exception flags, which nobody reads, so that loops vectorise; values are the same.
FLAGS = (
    "-std=gnu11",
    "-O3",
    "-g0",
    "-shared",
    "-fvisibility=hidden",
    "-fwrapv",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
)


@dataclass(frozen=True)
class Target:
    """A platform to compile for, with the names that Python's ``platform`` module gives it."""

    system: str
    machine: str
    #: The name of the platform as ziglang takes it; by default it compiles for the machine that it runs on.
    zig: str = ""

    @classmethod
    def here(cls) -> Target:
        """This machine."""
        return cls(platform.system(), platform.machine())

    def libraries(self) -> dict[str, tuple[str, ...]]:
        """The names of the files, and the options that each is compiled with."""
        suffix = ".dll" if self.system == "Windows" else ".so"
        is_x86 = self.machine.lower() in ("x86_64", "amd64")
        return {name + suffix: options for name, options in VERSIONS.items() if is_x86 or not options}

    def options(self) -> list[str]:
        """The options of the compiler that depend on the platform."""
        options = []
        if self.system != "Windows":  # where all code can be moved anyway
            options.append("-fPIC")
        if self.zig:
            options += ["-target", self.zig]
        return options


def sources() -> list[Path]:
    """The C files and their header; none in an installed wheel, which has the library only."""
    return sorted(FOLDER.glob("*.[ch]"))


def compiler() -> list[str] | None:
    """The command of a C compiler: ``CC``, one on the path, or ziglang's; None if there is none.

    Of the compilers on Windows only ziglang's is taken: gcc does not align vectors on the stack there, and others need
    other options.
    """
    if os.environ.get("CC"):
        return os.environ["CC"].split()
    if platform.system() != "Windows":
        for name in ("cc", "gcc", "clang"):
            if shutil.which(name):
                return [name]
    return zig_compiler() if importlib.util.find_spec("ziglang") else None


def zig_compiler() -> list[str]:
    """The command of ziglang's C compiler; unasked, it would use all that the processor at hand can do."""
    return [sys.executable, "-m", "ziglang", "cc", "-mcpu=baseline"]


def build(
    folder: Path = FOLDER,
    *options: str,
    target: Target | None = None,
    command: list[str] | None = None,
) -> list[Path]:
    """Compile the libraries into a folder.

    Several processes and threads may do so at once: each file is put in its place when it is whole.

    Args:
        folder: Where the libraries go.
        options: Further options of the compiler.
        target: The platform to compile for; by default this machine.
        command: The compiler; by default that of ``compiler``.

    Raises:
        RuntimeError: There is no compiler, or it failed.
    """
    target = target or Target.here()
    command = command or compiler()
    if command is None:
        raise RuntimeError("no C compiler found: install gcc or clang, or `pip install ziglang`")
    code = [str(path) for path in sources() if path.suffix == ".c"]
    compilations = []
    # Compilers for Windows write more than the library.
    with tempfile.TemporaryDirectory(prefix=".kernels-", dir=folder) as drafts:
        for name, version_options in target.libraries().items():
            draft = Path(drafts, name)
            words = [*command, *FLAGS, *target.options(), *options, *version_options, *code, "-lm", "-o", str(draft)]
            process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            compilations.append(process)
        messages = [process.communicate()[1] for process in compilations]
        if any(process.returncode for process in compilations):
            raise RuntimeError("\n".join([f"{' '.join(command)} failed:", *messages]))
        for name in target.libraries():
            Path(drafts, name).replace(folder / name)
    return [folder / name for name in target.libraries()]
