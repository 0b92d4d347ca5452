"""Compiles the kernels when a wheel or an editable install is made (see src/shiftbench/native/build.py).

A wheel is for the platform that it is made on, or for the one of ``TARGETS`` that the environment variable
``SHIFTBENCH_PLATFORM`` names; ziglang compiles for all of them on any machine.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import sys
import sysconfig
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

#: The platforms of releases: tag of the wheel, system and machine, and the name that ziglang gives them.
TARGETS = {
    "manylinux_2_17_x86_64": ("Linux", "x86_64", "x86_64-linux-gnu.2.17"),
    "manylinux_2_17_aarch64": ("Linux", "aarch64", "aarch64-linux-gnu.2.17"),
    "macosx_11_0_arm64": ("Darwin", "arm64", "aarch64-macos.11.0"),
    "macosx_11_0_x86_64": ("Darwin", "x86_64", "x86_64-macos.11.0"),
    "win_amd64": ("Windows", "AMD64", "x86_64-windows-gnu"),
}
#: The systems that ziglang has packages for.
SYSTEMS_OF_ZIGLANG = ("Linux", "Darwin", "Windows")


class KernelsHook(BuildHookInterface):  # type: ignore[misc]
    """Found by hatchling, which loads this file."""

    def dependencies(self) -> list[str]:
        """A compiler from the package registry, where there is no other."""
        if not release_platform(self.app) and _builder(self.root).compiler() is not None:
            return []
        if platform.system() not in SYSTEMS_OF_ZIGLANG:
            self.app.abort(
                f"shiftbench has no wheel for {platform.system()} on {platform.machine()}, and no C compiler was found "
                "to build it from source: install gcc or clang, or name a compiler in the environment variable CC"
            )
        return ["ziglang>=0.13"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        builder = _builder(self.root)
        if version == "editable":
            builder.build()
            return
        tag = release_platform(self.app)
        folder = Path(tempfile.mkdtemp())
        if tag:
            target = builder.Target(*TARGETS[tag])
            libraries = builder.build(folder, target=target, command=builder.zig_compiler())
        else:
            tag = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            libraries = builder.build(folder)
        for path in libraries:
            build_data["force_include"][str(path)] = f"shiftbench/native/{path.name}"
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{tag}"


def release_platform(app: Any) -> str:
    """The platform that the environment names; empty for the one at hand."""
    name = os.environ.get("SHIFTBENCH_PLATFORM", "")
    if name and name not in TARGETS:
        app.abort(f"SHIFTBENCH_PLATFORM is {name!r}; expected one of {', '.join(TARGETS)}")
    return name


def _builder(root: str) -> ModuleType:
    """The module that compiles, without its package, whose dependencies need not be installed."""
    path = Path(root, "src", "shiftbench", "native", "build.py")
    specification = importlib.util.spec_from_file_location("kernels_build", path)
    assert specification and specification.loader
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module  # where dataclasses look for it
    specification.loader.exec_module(module)
    return module
