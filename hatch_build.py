"""Compiles the kernels when a wheel or an editable install is made (see src/shiftbench/native/build.py).

A wheel is for the platform that it is made on, or for the one of ``TARGETS`` that the environment variable
``SHIFTBENCH_PLATFORM`` names; ziglang compiles for all of them on any machine.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import sysconfig
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

#: The platforms of releases: tag of the wheel, target of ziglang, and machine.
TARGETS = {
    "manylinux_2_17_x86_64": ("x86_64-linux-gnu.2.17", "x86_64"),
    "manylinux_2_17_aarch64": ("aarch64-linux-gnu.2.17", "aarch64"),
    "macosx_11_0_arm64": ("aarch64-macos.11.0", "arm64"),
    "macosx_11_0_x86_64": ("x86_64-macos.11.0", "x86_64"),
}


class KernelsHook(BuildHookInterface):  # type: ignore[misc]
    """Found by hatchling, which loads this file."""

    def dependencies(self) -> list[str]:
        """A compiler from the package registry, where there is no other."""
        chosen = os.environ.get("SHIFTBENCH_PLATFORM")
        return ["ziglang>=0.13"] if chosen or _builder(self.root).compiler() is None else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        builder = _builder(self.root)
        if version == "editable":
            builder.build()
            return
        chosen = os.environ.get("SHIFTBENCH_PLATFORM")
        folder = Path(tempfile.mkdtemp())
        if chosen:
            os.environ["CC"] = f"{sys.executable} -m ziglang cc"
            target, machine = TARGETS[chosen]
            built = builder.build(folder, "-target", target, machine=machine)
        else:
            built = builder.build(folder)
        build_data["force_include"].update({str(path): f"shiftbench/native/{path.name}" for path in built})
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{chosen or sysconfig.get_platform().replace('-', '_').replace('.', '_')}"


def _builder(root: str) -> ModuleType:
    path = Path(root, "src", "shiftbench", "native", "build.py")
    specification = importlib.util.spec_from_file_location("kernels_build", path)
    assert specification and specification.loader
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module
