"""TorchScript and exported programs."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from shiftbench.classifiers import load_classifier
from shiftbench.classifiers.check import check_classifier
from shiftbench.classifiers.samples import sample_images
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
    classifier = load_classifier(tmp_path / "model.pt", labels=pets, preprocessing=SMALL, engine=engine)
    assert classifier.name == "model"
    assert np.allclose(classifier.scores(IMAGES), expected(), atol=1e-5)
    if kind == "scripted":
        assert [check for check in check_classifier(classifier) if not check.ok] == []


def test_the_path_does_not_count(tmp_path: Path, own_cache: Path, pets: LabelSpace) -> None:
    save(Small(), tmp_path / "a.pt")
    (tmp_path / "b.pt").write_bytes((tmp_path / "a.pt").read_bytes())
    given = {"labels": pets, "preprocessing": SMALL, "engine": "torch"}
    a, b = (load_classifier(tmp_path / name, **given) for name in ("a.pt", "b.pt"))  # type: ignore[arg-type]
    assert a.fingerprint == b.fingerprint


class Writer(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        torch.save(x, "sprung")
        return x.mean(dim=(2, 3))


def test_torchscript_that_writes_files_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pets: LabelSpace
) -> None:
    monkeypatch.chdir(tmp_path)
    save(Writer(), "model.pt")
    with pytest.raises(ClassifierError, match=r"torch\.save"):
        load_classifier("model.pt", labels=pets, preprocessing=SMALL)
    assert not Path("sprung").exists()


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
