"""pyproject.toml: extras that name others name existing ones, since pip and hatchling refuse to install otherwise."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

PROJECT = tomllib.loads(Path(__file__).parents[1].joinpath("pyproject.toml").read_text(encoding="utf-8"))["project"]


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
