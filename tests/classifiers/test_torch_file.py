"""TorchScript and exported programs."""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from shiftbench.classifiers import load_classifier
from shiftbench.classifiers.check import check_classifier
from shiftbench.classifiers.weights import load_weights
from shiftbench.datasets.samples import sample_images
from shiftbench.errors import ClassifierError
from shiftbench.labels.space import LabelSpace
from tests.classifiers.networks import SMALL, Small

IMAGES = sample_images(5, (32, 32))


def expected() -> Any:
    with torch.inference_mode():
        return Small().eval()(torch.from_numpy(SMALL.normalisation(IMAGES))).numpy()


def save(module: Any, path: Path | str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        compiled: Any = torch.jit.script(module.eval()) if not isinstance(module, torch.jit.ScriptModule) else module
        compiled.save(str(path))


def trace(module: nn.Module) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return torch.jit.trace(module.eval(), torch.zeros(2, 3, 32, 32))  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("kind", ["scripted", "traced"])
def test_torchscript(tmp_path: Path, own_cache: Path, pets: LabelSpace, kind: str) -> None:
    save(Small() if kind == "scripted" else trace(Small()), tmp_path / "model.pt")
    engine: Any = "auto" if kind == "scripted" else "torch"
    classifier = load_classifier(tmp_path / "model.pt", labels=pets, preprocessing=SMALL, engine=engine, trust=True)
    assert classifier.name == "model"
    assert np.allclose(classifier.scores(IMAGES), expected(), atol=1e-5)
    if kind == "scripted":
        assert [check for check in check_classifier(classifier) if not check.ok] == []


def test_the_path_does_not_count(tmp_path: Path, own_cache: Path, pets: LabelSpace) -> None:
    save(Small(), tmp_path / "a.pt")
    (tmp_path / "b.pt").write_bytes((tmp_path / "a.pt").read_bytes())
    given = {"labels": pets, "preprocessing": SMALL, "engine": "torch", "trust": True}
    a, b = (load_classifier(tmp_path / name, **given) for name in ("a.pt", "b.pt"))  # type: ignore[arg-type]
    assert a.fingerprint == b.fingerprint


class Writer(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        torch.save(x, "sprung")
        return x.mean(dim=(2, 3))


def rewritten(path: str, change: Callable[[str, bytes], list[tuple[str, bytes]]]) -> None:
    """Write an archive again, with the members that ``change`` makes of each."""
    with zipfile.ZipFile(path) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w") as archive:
        warnings.simplefilter("ignore", UserWarning)  # about names that occur twice
        for name, data in members:
            for changed_name, changed_data in change(name, data):
                archive.writestr(changed_name, changed_data)


def spaced(name: str, data: bytes) -> list[tuple[str, bytes]]:
    return [(name, data.replace(b"torch.save(", b"torch .save("))]


def twice(name: str, data: bytes) -> list[tuple[str, bytes]]:
    if not name.endswith(".py"):
        return [(name, data)]
    return [(name, data), (name, data.replace(b"torch.save(", b"torch.relu("))]


def without_code_folder(name: str, data: bytes) -> list[tuple[str, bytes]]:
    return [(name.replace("/code/", "/CODE/"), data)]


def unchanged(name: str, data: bytes) -> list[tuple[str, bytes]]:
    return [(name, data)]


@pytest.mark.filterwarnings("ignore:'torch.load' received a zip file:UserWarning")
@pytest.mark.parametrize("change", [unchanged, spaced, twice, without_code_folder])
def test_torchscript_that_writes_files_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pets: LabelSpace, change: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    save(Writer(), "model.pt")
    rewritten("model.pt", change)
    with pytest.raises(ClassifierError):
        load_classifier("model.pt", labels=pets, preprocessing=SMALL)
    assert not Path("sprung").exists()


def test_harmless_torchscript_needs_trust_too(tmp_path: Path, pets: LabelSpace) -> None:
    save(Small(), tmp_path / "model.pt")
    with pytest.raises(ClassifierError) as caught:
        load_classifier(tmp_path / "model.pt", labels=pets, preprocessing=SMALL)
    assert "TorchScript" in str(caught.value.found)
    assert "trust=True" in str(caught.value.hint)
    assert "ONNX" in str(caught.value.hint)


def test_tensors_are_not_read_by_a_torch_that_may_run_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.save(Small().state_dict(), tmp_path / "weights.pth")
    monkeypatch.setattr(torch, "__version__", "2.5.1+cpu")
    with pytest.raises(ClassifierError) as caught:
        load_weights(tmp_path / "weights.pth")
    assert caught.value.found == "torch 2.5.1+cpu"
    assert set(load_weights(tmp_path / "weights.pth", trust=True)) == set(Small().state_dict())


@pytest.mark.parametrize("dynamic", [True, False])
def test_exported_programs_where_trusted(tmp_path: Path, own_cache: Path, pets: LabelSpace, dynamic: bool) -> None:
    shapes = ({0: torch.export.Dim("batch")},) if dynamic else None
    program = torch.export.export(Small().eval(), (torch.zeros(2, 3, 32, 32),), dynamic_shapes=shapes)
    torch.export.save(program, tmp_path / "model.pt2")
    with pytest.raises(ClassifierError, match="trust=True"):
        load_classifier(tmp_path / "model.pt2", labels=pets, preprocessing=SMALL)
    classifier = load_classifier(tmp_path / "model.pt2", labels=pets, preprocessing=SMALL, trust=True)
    assert np.allclose(classifier.scores(IMAGES), expected(), atol=1e-5)
    assert [check for check in check_classifier(classifier) if not check.ok] == []
