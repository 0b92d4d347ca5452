"""Weights are loaded without running code; what would run some is refused."""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from shiftbench.classifiers import load_classifier
from shiftbench.classifiers.weights import fill, load_weights
from shiftbench.errors import ClassifierError, MissingExtraError
from shiftbench.labels.space import LabelSpace
from tests.classifiers.networks import SMALL, Small
from tests.raised import raises


class Trap:
    """Unpickling this makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.path}",)


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("suffix", [".pt", ".pth", ".pkl", ".bin", ".joblib", ".ts", ".pt2"])
@pytest.mark.parametrize("writer", ["pickle", "torch", "torch inside"])
def test_malicious_files_are_refused(tmp_path: Path, suffix: str, writer: str) -> None:
    sprung = tmp_path / "sprung"
    path = tmp_path / f"model{suffix}"
    if writer == "pickle":
        path.write_bytes(pickle.dumps(Trap(sprung)))
    else:
        content = Trap(sprung) if writer == "torch" else {"state_dict": Small().state_dict(), "extra": Trap(sprung)}
        torch.save(content, path)
    with pytest.raises(ClassifierError, match="trust=True") as caught:
        load_classifier(str(path))
    assert "not loaded" in str(caught.value)
    assert not sprung.exists()


@pytest.mark.parametrize("zoo", ["timm:resnet18@", "torchvision:resnet18?checkpoint="])
def test_malicious_checkpoints_of_zoos_are_refused(tmp_path: Path, zoo: str) -> None:
    sprung = tmp_path / "sprung"
    torch.save({"model": Trap(sprung)}, tmp_path / "weights.pth")
    with pytest.raises(ClassifierError, match="trust=True"):
        load_classifier(f"{zoo}{tmp_path / 'weights.pth'}")
    assert not sprung.exists()


def test_the_trap_works(tmp_path: Path) -> None:
    """Else the tests above would prove nothing."""
    torch.save(Trap(tmp_path / "sprung"), tmp_path / "model.pt")
    with pytest.raises(ClassifierError, match="without the model"):
        load_classifier(str(tmp_path / "model.pt"), trust=True)
    assert (tmp_path / "sprung").exists()


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_bare_weights_ask_for_their_model(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"weights{suffix}"
    if suffix == ".pth":
        torch.save(Small().state_dict(), path)
    else:
        pytest.importorskip("safetensors.torch").save_file(Small().state_dict(), path)
    assert set(load_weights(path)) == set(Small().state_dict())
    with pytest.raises(ClassifierError, match="timm:resnet50@weights"):
        load_classifier(str(path))


def test_pickled_modules_where_trusted(tmp_path: Path, own_cache: Path, pets: LabelSpace) -> None:
    path = tmp_path / "model.pt"
    torch.save(Small(), path)
    with pytest.raises(ClassifierError, match="trust=True"):
        load_classifier(str(path), labels=pets, preprocessing=SMALL)
    assert load_classifier(str(path), labels=pets, preprocessing=SMALL, trust=True).name == "model"


@pytest.mark.parametrize(
    "wrap",
    [
        lambda state: state,
        lambda state: {"state_dict": state, "epoch": 3},
        lambda state: {"model": {f"module.{key}": value for key, value in state.items()}},
        lambda state: {"state_dict": {f"module._orig_mod.{key}": value for key, value in state.items()}},
        lambda state: {"state_dict": {f"model.{key}": value for key, value in state.items()}},
    ],
)
def test_checkpoints_as_training_scripts_write_them(tmp_path: Path, wrap: Any) -> None:
    torch.save(wrap(Small(seed=3).state_dict()), tmp_path / "w.pth")
    module = Small(seed=4)
    fill(module, load_weights(tmp_path / "w.pth"), "w.pth")
    assert torch.equal(module.head.weight, Small(seed=3).head.weight)


def test_weights_of_another_model(tmp_path: Path) -> None:
    with pytest.raises(ClassifierError, match="do not fit Small"):
        fill(Small(classes=5), Small(classes=3).state_dict(), "w.pth")
    torch.save({"epoch": 3}, tmp_path / "w.pth")
    with raises(ClassifierError, found="epoch"):
        load_weights(tmp_path / "w.pth")
    (tmp_path / "torn.pth").write_bytes(b"PK\x03\x04 torn")
    with pytest.raises(ClassifierError):
        load_weights(tmp_path / "torn.pth")
    with pytest.raises(ClassifierError, match="file not found"):
        load_weights(tmp_path / "missing.pth")


@pytest.mark.parametrize("kind", ["state dict", "script", "program"])
def test_without_torch_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    path = tmp_path / "model.pt"
    if kind == "state dict":
        torch.save(Small().state_dict(), path)
    elif kind == "script":
        torch.jit.save(torch.jit.script(Small().eval()), str(path))
    else:
        torch.export.save(torch.export.export(Small().eval(), (torch.zeros(1, 3, 32, 32),)), path)
    monkeypatch.setitem(sys.modules, "torch", None)  # as if it were not installed
    with pytest.raises(MissingExtraError) as caught:
        load_classifier(str(path), trust=True)
    assert "shiftbench[torch]" in str(caught.value.hint)
