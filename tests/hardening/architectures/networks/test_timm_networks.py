"""Networks of timm."""

from __future__ import annotations

import pytest

from shiftbench.errors import UnknownNameError
from shiftbench.hardening.architectures.base import build
from shiftbench.hardening.errors import ArchitectureError

MODEL = "test_resnet.r160_in1k"


def test_resnet_50_is_the_default_and_has_its_published_size() -> None:
    network = build("timm", classes=1000)
    assert sum(part.numel() for part in network.parameters()) == 25_557_032


def test_what_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="resnet50"):
        build("timm", classes=3, model="resnet5o")
    with pytest.raises(ArchitectureError, match=r"architecture\.options") as caught:
        build("timm", classes=3, model=MODEL, options={"nonsense": 1})
    assert "nonsense" in str(caught.value.found)
