"""What pip and hatchling need to build and install the package."""

from __future__ import annotations

import importlib
import importlib.util
import platform
import re
import shutil
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads(ROOT.joinpath("pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_extras_that_name_others_name_existing_ones() -> None:
    extras: dict[str, list[str]] = PROJECT["optional-dependencies"]
    named = {
        name
        for requirements in extras.values()
        for requirement in requirements
        for group in re.findall(r"^shiftbench\[(.*)\]$", requirement)
        for name in group.split(",")
    }
    assert named <= set(extras)


def test_the_core_and_the_demo_need_no_framework() -> None:
    extras = PROJECT["optional-dependencies"]
    wanted = [*PROJECT["dependencies"], *extras["demo"], *extras["onnx"]]
    names = {re.split(r"[<>=\[]", one)[0] for one in wanted}
    assert not names & {"torch", "numba", "onnx", "onnxscript", "efficientnet-lite-pytorch"}


def test_every_wheel_of_a_release_is_loaded_on_its_platform() -> None:
    workflow = ROOT.joinpath(".github", "workflows", "release.yml").read_text(encoding="utf-8")
    [built] = re.findall(r"for platform in (.*); do", workflow)
    assert sorted(built.split()) == sorted(re.findall(r"wheel: (\w+)", workflow))
    assert sorted(built.split()) == sorted(build_hook().TARGETS)


def build_hook() -> ModuleType:
    pytest.importorskip("hatchling", reason="only pip installs it, where it builds the package")
    specification = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def hook(tmp_path: Path) -> Any:
    module = build_hook()
    application = importlib.import_module("hatchling.bridge.app").Application()
    return module.KernelsHook(str(ROOT), {}, None, None, str(tmp_path), "wheel", application)


@pytest.mark.parametrize("system", ["Linux", "Darwin", "Windows"])
def test_a_compiler_is_fetched_where_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: str
) -> None:
    without_compiler(monkeypatch)
    monkeypatch.setattr(platform, "system", lambda: system)
    [requirement] = hook(tmp_path).dependencies()
    assert requirement.startswith("ziglang")


def test_an_installation_that_cannot_compile_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The package registry has no compiler for this system: pip would only say that it does not find ziglang."""
    without_compiler(monkeypatch)
    monkeypatch.setattr(platform, "system", lambda: "SunOS")
    with pytest.raises(SystemExit):
        hook(tmp_path).dependencies()
    captured = capsys.readouterr()
    assert "SunOS" in captured.out + captured.err and "install gcc or clang" in captured.out + captured.err


def without_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.delenv("SHIFTBENCH_PLATFORM", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setitem(sys.modules, "ziglang", None)
