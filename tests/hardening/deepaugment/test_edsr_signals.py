"""Each distortion of what flows through EDSR does what its name says; the published slips are there on request."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from shiftbench.hardening.augmentations.deepaugment.distortions import Draw, body_signals, head_signals
from shiftbench.hardening.augmentations.deepaugment.edsr import EDSR


def features(channels: int = 64, side: int = 6) -> Tensor:
    return torch.randn(1, channels, side, side, generator=torch.Generator().manual_seed(0))


def test_the_lists_are_the_published_ones() -> None:
    assert list(head_signals) == ["swap-channels", "zero-elements", "negate-elements", "none"]
    assert list(body_signals) == [
        "negate-midway",
        "activate-midway",
        "flip-midway",
        "skip-blocks",
        "none",
    ]


def test_swapped_channels_are_a_permutation() -> None:
    x = features()
    for seed in range(10):
        out = head_signals["swap-channels"](x, Draw(np.random.default_rng(seed)))
        order = [int(np.argmax([torch.equal(out[0, k], x[0, c]) for c in range(64)])) for k in range(64)]
        assert sorted(order) == list(range(64))
        assert 1 <= sum(k != c for k, c in enumerate(order)) <= 10


def test_the_published_swap_copies_as_views_do() -> None:
    x = features()
    expected = x.clone()
    pairs = np.random.default_rng(5)
    for _ in range(5):
        first, second = pairs.integers(64, size=2)
        expected[:, first], expected[:, second] = expected[:, second], expected[:, first]
    out = head_signals["swap-channels"](x, Draw(np.random.default_rng(5), published=True))
    assert torch.equal(out, expected)
    assert len(torch.unique(out[0, :, 0, 0])) < 64


@pytest.mark.parametrize(("name", "factor", "share"), [("zero-elements", 0, 0.05), ("negate-elements", -1, 0.025)])
def test_a_share_of_the_numbers_is_changed(name: str, factor: int, share: float) -> None:
    x = features(side=40)
    out = head_signals[name](x, Draw(np.random.default_rng(0)))
    changed = out != x
    assert torch.equal(out[changed], factor * x[changed])
    assert float(changed.float().mean()) == pytest.approx(share, rel=0.05)


def run(body: nn.Sequential, x: Tensor, parts: range) -> Tensor:
    for index in parts:
        x = body[index](x)
    return x


def test_midway_is_after_five_blocks(edsr: EDSR) -> None:
    x = features()
    half = run(edsr.body, x, range(5))
    negated = body_signals["negate-midway"](edsr.body, x, Draw(np.random.default_rng(0)))
    assert torch.allclose(negated, run(edsr.body, -half, range(5, 17)), atol=1e-5)
    for name, choices in {
        "activate-midway": [torch.relu(half), nn.functional.gelu(half)],
        "flip-midway": [half.flip(1, 2), half.flip(1, 3)],
    }.items():
        outs = [run(edsr.body, choice, range(5, 17)) for choice in choices]
        hits = np.zeros(2)
        for seed in range(60):
            out = body_signals[name](edsr.body, x, Draw(np.random.default_rng(seed)))
            hits += [torch.allclose(out, other, atol=1e-5) for other in outs]
        assert hits.sum() == 60
        assert 10 <= hits[0] <= 30  # one in three


def test_skipping_leaves_three_blocks_out(edsr: EDSR) -> None:
    calls: list[int] = []
    body = nn.Sequential(*(Recorder(index, calls) for index in range(17)))
    for seed in range(5):
        calls.clear()
        out = body_signals["skip-blocks"](body, torch.zeros(1), Draw(np.random.default_rng(seed)))
        skipped = set(range(17)) - set(calls)
        assert len(skipped) == 3
        assert min(skipped) >= 2
        assert calls == sorted(calls)
        assert float(out) == sum(calls)
    # published: the last kept part sees the body's input, and its output is all that counts
    calls.clear()
    out = body_signals["skip-blocks"](body, torch.zeros(1), Draw(np.random.default_rng(0), published=True))
    assert float(out) == calls[-1] >= 13


class Recorder(nn.Module):
    """Adds its number, and notes that it was called."""

    def __init__(self, number: int, calls: list[int]) -> None:
        super().__init__()
        self.number = number
        self.calls = calls

    def forward(self, x: Tensor) -> Tensor:
        self.calls.append(self.number)
        return x + self.number


def test_none_is_the_plain_network(edsr: EDSR) -> None:
    x = features()
    draw = Draw(np.random.default_rng(0))
    assert head_signals["none"](x, draw) is x
    assert torch.equal(body_signals["none"](edsr.body, x, draw), edsr.body(x))
