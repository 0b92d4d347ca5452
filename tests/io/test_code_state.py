"""The fingerprint of a model made of Python code covers what the code uses."""

from __future__ import annotations

import functools
import importlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from shiftbench.classifiers import load_classifier
from shiftbench.io.code_state import code_state, is_own

IMAGES = np.zeros((2, 8, 8, 3), np.uint8)


def fingerprint(model: object) -> str:
    return load_classifier(model, labels=["a", "b"], preprocessing={"size": 8}, name="m").fingerprint


def closure(weights: Any) -> Callable[[Any], Any]:
    return lambda images: images.reshape(len(images), -1)[:, :2] @ weights


def linear(images: Any, weights: Any = None) -> Any:
    return images.reshape(len(images), -1)[:, :2] @ weights


class Scaled:
    def __init__(self, weights: Any) -> None:
        self.weights, self.calls = weights, 0

    def __call__(self, images: Any) -> Any:
        self.calls += 1
        return linear(images, self.weights)

    def method(self, images: Any) -> Any:
        return self(images)


def nested(weights: Any) -> Callable[[Any], Any]:
    inner = closure(weights)

    def outer(images: Any) -> Any:
        return inner(images)

    return outer


class Net(nn.Module):
    def __init__(self, k: Any) -> None:
        super().__init__()
        self.k = k
        self.last = nn.Linear(3, 2)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.fill_(0.5)

    def forward(self, x: Tensor) -> Any:
        return self.last(x.mean((2, 3))) * self.k


def hooked(k: float) -> nn.Module:
    net = Net(1.0)
    net.last.register_forward_hook(lambda module, inputs, output: output * k)
    return net


def unsaved(k: float) -> nn.Module:
    net = Net(1.0)
    net.register_buffer("k2", torch.tensor(k), persistent=False)
    return net


MAKERS: dict[str, Callable[[Any], object]] = {
    "closure": closure,
    "nested closure": nested,
    "partial": lambda weights: functools.partial(linear, weights=weights),
    "callable object": Scaled,
    "bound method": lambda weights: Scaled(weights).method,
    "container in a closure": lambda weights: closure(np.array({"w": [weights]}["w"][0])),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_functions_of_equal_code_and_other_weights_differ(make: Callable[[Any], object]) -> None:
    one, same, other = (fingerprint(make(np.eye(2) * k)) for k in (1, 1, 2))
    assert one == same != other


@pytest.mark.parametrize("make", [Net, hooked, unsaved])
def test_torch_modules_of_equal_weights_and_other_attributes_differ(make: Callable[[float], nn.Module]) -> None:
    one, same, other = (fingerprint(make(k)) for k in (1.0, 1.0, -1.0))
    assert one == same != other


def test_global_names_count(monkeypatch: pytest.MonkeyPatch) -> None:
    def scaled(images: Any) -> Any:
        return linear(images, WEIGHTS)

    before = fingerprint(scaled)
    assert before == fingerprint(scaled)
    monkeypatch.setitem(globals(), "WEIGHTS", WEIGHTS * 2)
    assert fingerprint(scaled) != before


WEIGHTS = np.eye(2)


def test_two_lambdas_on_one_line_differ() -> None:
    left, right = (lambda images: images[:, 0, 0, :2] * 1.0), (lambda images: images[:, 0, 0, 1:] * 1.0)
    assert fingerprint(left) != fingerprint(right)


def test_a_function_of_its_arguments_alone_keeps_the_fingerprint_of_earlier_versions() -> None:
    def plain(images: Any) -> Any:
        return np.stack([images.mean(axis=(1, 2, 3)), images.std(axis=(1, 2, 3))], axis=1)

    assert code_state(plain) == {}


def test_what_calls_change_is_not_another_model() -> None:
    counting = Scaled(np.eye(2))
    first = load_classifier(counting, labels=["a", "b"], preprocessing={"size": 8}, name="m")
    before = first.fingerprint
    first.scores(IMAGES)
    first.scores(IMAGES)
    assert counting.calls == 2 and first.fingerprint == before == fingerprint(counting)
    counting.weights = np.eye(2) * 3
    assert fingerprint(counting) != before


def test_objects_that_can_not_be_hashed_or_refer_to_themselves() -> None:
    class Odd:
        def __init__(self) -> None:
            self.me, self.stream, self.answers = self, sys.stderr, iter(range(3))

        def __call__(self, images: Any) -> Any:
            return np.zeros((len(images), 2))

    assert fingerprint(Odd()) == fingerprint(Odd())


HELPED = """
import numpy as np, helper
def classifier():
    return lambda images: helper.score(images) @ np.load("{folder}/w.npy")
"""
HELPER = "def score(images):\n    return images.reshape(len(images), -1)[:, :2] * {factor}\n"
SHOW = "import sys; from shiftbench.classifiers import load_classifier; " + (
    "print(load_classifier(sys.argv[1], labels=['a', 'b'], preprocessing={'size': 8}).fingerprint)"
)


def test_helper_modules_of_a_file_count_in_any_process(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(HELPED.format(folder=tmp_path))
    found = []
    for factor in (1, 1, 2):
        (tmp_path / "helper.py").write_text(HELPER.format(factor=factor))
        asked = [sys.executable, "-W", "ignore", "-c", SHOW, str(tmp_path / "model.py")]
        environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{':'.join(sys.path)}"}
        found.append(subprocess.run(asked, env=environment, capture_output=True, text=True, check=True).stdout)
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize(
    ("folder", "own"),
    [
        ("site-packages", (False, False)),
        ("dist-packages", (False, False)),
        ("target", (False, True)),
        ("project", (True, True)),
    ],
)
def test_libraries_outside_the_environment_are_not_own_code(
    folder: str, own: tuple[bool, bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of `pip install --user`, of Debian, of a path: torch would be walked for minutes, and its place would count."""
    monkeypatch.syspath_prepend(tmp_path / folder)
    for name, expected in zip(("gadgets", "mine"), own, strict=True):
        package = tmp_path / folder / name
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("")
        (package / "part.py").write_text("")
        if folder == "target" and name == "gadgets":
            (tmp_path / folder / "gadgets-1.0.dist-info").mkdir()
            (tmp_path / folder / "gadgets-1.0.dist-info" / "RECORD").write_text("gadgets/__init__.py,,\n")
        importlib.import_module(f"{name}.part")
        found = [is_own(name), is_own(f"{name}.part")]
        for module in (name, f"{name}.part"):
            sys.modules.pop(module)
        assert found == [expected, expected]
    assert not is_own("json") and not is_own("numpy")
