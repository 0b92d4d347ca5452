"""The software and the machine that a result was made with, as far as they can change its scores."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterable
from functools import cache
from importlib import metadata
from pathlib import Path

import msgspec

from shiftbench._version import __version__

#: Distribution to module: libraries on the way from an image file to a score.
_CORE = {"numpy": "numpy", "pillow": "PIL", "opencv-python-headless": "cv2", "scipy": "scipy"}
_ENGINES = {
    "onnxruntime": "onnxruntime",
    "torch": "torch",
    "torchvision": "torchvision",
    "timm": "timm",
    "transformers": "transformers",
    "scikit-learn": "sklearn",
    "tensorflow": "tensorflow",
    "jax": "jax",
}


class Software(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Versions, Python, and the machine."""

    #: Version of this package, and of the libraries that a run loaded or can load.
    versions: dict[str, str] = {}
    python: str = ""
    platform: str = ""
    cpu: str = ""
    #: Vector instructions in use: sums are rounded in another order with others.
    cpu_features: list[str] = []

    @classmethod
    def present(cls) -> Software:
        """Those of this process. Engines count if they are loaded; the core's libraries may be loaded by workers."""
        loaded = {name: module for name, module in _ENGINES.items() if module in sys.modules}
        found = {name: _version(name, module) for name, module in {**_CORE, **loaded}.items()}
        return cls(
            versions={"shiftbench": __version__, **{name: version for name, version in found.items() if version}},
            python=platform.python_version(),
            platform=platform.platform(),
            cpu=_cpu(),
            cpu_features=_features(),
        )


def _version(distribution: str, module: str) -> str:
    loaded = getattr(sys.modules.get(module), "__version__", "")
    return str(loaded) if loaded else _installed(distribution)


@cache
def _installed(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


@cache
def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()


def _features() -> list[str]:
    import numpy as np

    umath = getattr(getattr(np, "_core", None), "_multiarray_umath", None)
    found: dict[str, bool] = getattr(umath, "__cpu_features__", {})
    return sorted(name for name, there in found.items() if there)


def mixed_versions(software: Iterable[Software]) -> dict[str, list[str]]:
    """What differs between results in a way that can change scores: library to its versions; "CPU features" too.

    A library that only some loaded is no difference: models of one table may need different engines.
    """
    seen: dict[str, dict[str, None]] = {}
    for one in software:
        for name, version in one.versions.items():
            seen.setdefault(name, {})[version] = None
        if one.cpu_features:
            seen.setdefault("CPU features", {})[" ".join(one.cpu_features)] = None
    return {name: list(versions) for name, versions in seen.items() if len(versions) > 1}
