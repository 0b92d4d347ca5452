"""Networks of timm: random weights, given ones, and a head for other classes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from shiftbench.errors import ClassifierError, UnknownNameError
from shiftbench.hardening.architectures.base import build
from shiftbench.hardening.errors import ArchitectureError

safetensors = pytest.importorskip("safetensors.torch")


MODEL = "test_resnet.r160_in1k"


@pytest.fixture(scope="module")
def network() -> nn.Module:
    torch.manual_seed(0)
    return build("timm", classes=7, model=MODEL)


def test_resnet_50_is_the_default_and_has_its_published_size() -> None:
    network = build("timm", classes=1000)
    assert sum(part.numel() for part in network.parameters()) == 25_557_032


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_weights_from_a_file(network: nn.Module, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"weights{suffix}"
    if suffix == ".pth":
        torch.save({"state_dict": network.state_dict()}, path)
    else:
        safetensors.save_file(network.state_dict(), path)
    again = build("timm", classes=7, model=MODEL, weights=str(path))
    assert all(torch.equal(a, b) for a, b in zip(network.parameters(), again.parameters(), strict=True))


def test_a_head_of_other_classes_is_new_and_the_rest_is_kept(network: nn.Module, tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    safetensors.save_file(network.state_dict(), path)
    again = build("timm", classes=3, model=MODEL, weights=str(path)).eval()
    ours, theirs = network.state_dict(), again.state_dict()
    differing = {key for key in ours if ours[key].shape != theirs[key].shape or not torch.equal(ours[key], theirs[key])}
    assert differing == {"fc.weight", "fc.bias"}
    assert again(torch.zeros(1, 3, 64, 64)).shape == (1, 3)


def test_what_is_refused(network: nn.Module, tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="resnet50"):
        build("timm", classes=3, model="resnet5o")
    with pytest.raises(ArchitectureError, match="exclude each other"):
        build("timm", classes=3, model=MODEL, pretrained=True, weights="a.pth")
    with pytest.raises(ArchitectureError, match=r"architecture\.options") as caught:
        build("timm", classes=3, model=MODEL, options={"nonsense": 1})
    assert "nonsense" in str(caught.value.found)
    with pytest.raises(ClassifierError, match="file not found"):
        build("timm", classes=3, model=MODEL, weights=str(tmp_path / "absent.pth"))
    torch.save(network, tmp_path / "pickled.pth")
    with pytest.raises(ClassifierError, match="can run code"):
        build("timm", classes=7, model=MODEL, weights=str(tmp_path / "pickled.pth"))
    torch.save(build("resnet-20", classes=7).state_dict(), tmp_path / "other.pth")
    with pytest.raises(ClassifierError, match="do not fit"):
        build("timm", classes=7, model=MODEL, weights=str(tmp_path / "other.pth"))
