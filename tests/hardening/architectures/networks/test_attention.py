"""Both kinds of attention against loops over single numbers."""

from __future__ import annotations

import pytest
import torch

from shiftbench.hardening.architectures.base import (
    BlockAttention,
    ChannelGate,
    SqueezeExcitation,
    make_attention,
)


def by_loops(gate: ChannelGate, summary: torch.Tensor) -> torch.Tensor:
    """The two layers as matrices, for one image's channels."""
    hidden = (gate.squeeze.weight[:, :, 0, 0] @ summary).clamp(min=0)
    return gate.excite.weight[:, :, 0, 0] @ hidden


@pytest.fixture
def features() -> torch.Tensor:
    return torch.randn(3, 24, 9, 7, generator=torch.Generator().manual_seed(5))


def test_squeeze_and_excitation(features: torch.Tensor) -> None:
    module = SqueezeExcitation(24)
    found = module(features)
    for n, picture in enumerate(features):
        factors = 1 / (1 + torch.exp(-by_loops(module.gate, torch.stack([plane.mean() for plane in picture]))))
        for c in range(24):
            torch.testing.assert_close(found[n, c], picture[c] * factors[c])


def test_block_attention(features: torch.Tensor) -> None:
    module = BlockAttention(24)
    found = module(features)
    for n, picture in enumerate(features):
        means = torch.stack([plane.mean() for plane in picture])
        maxima = torch.stack([plane.max() for plane in picture])
        gated = picture * torch.sigmoid(by_loops(module.gate, means) + by_loops(module.gate, maxima))[:, None, None]
        padded = torch.zeros(2, 9 + 6, 7 + 6)
        padded[:, 3:-3, 3:-3] = torch.stack([gated.max(dim=0).values, gated.mean(dim=0)])
        for y in range(9):
            for x in range(7):
                logit = (padded[:, y : y + 7, x : x + 7] * module.place.weight[0]).sum()
                torch.testing.assert_close(found[n, :, y, x], gated[:, y, x] * torch.sigmoid(logit))


def test_none_is_the_identity(features: torch.Tensor) -> None:
    assert make_attention("none", 24)(features) is features


def test_the_squeeze_is_sixteenfold_but_never_below_eight() -> None:
    assert [ChannelGate(n).squeeze.out_channels for n in (8, 64, 128, 256)] == [8, 8, 8, 16]
