"""Self-attention that any block can carry: what matters among the channels (SE), and where it lies (CBAM).

Squeeze-and-Excitation: Hu et al. 2018. Convolutional Block Attention Module: Woo et al. 2018. Both squeeze the
channels 16-fold, here to no fewer than eight: a sixteenth of the 16 channels of a small network would be one number,
and so few rectified numbers are often zero for every picture, which leaves a gate that can't learn.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from shiftbench.hardening.architectures.checks import check_choice

KINDS = ("none", "se", "cbam")
REDUCTION = 16
FEWEST = 8


def attention(kind: str, channels: int) -> nn.Module:
    """The module to put behind features of so many channels; the identity for "none"."""
    check_choice("attention", kind, KINDS)
    if kind == "se":
        return SqueezeExcitation(channels)
    return BlockAttention(channels) if kind == "cbam" else nn.Identity()


class ChannelGate(nn.Module):
    """Two layers without biases, as 1x1 convolutions, from (N, C, 1, 1) to as many logits."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        hidden = max(channels // REDUCTION, FEWEST)
        self.squeeze = nn.Conv2d(channels, hidden, 1, bias=False)
        self.excite = nn.Conv2d(hidden, channels, 1, bias=False)

    def forward(self, summary: Tensor) -> Tensor:
        logits: Tensor = self.excite(torch.relu(self.squeeze(summary)))
        return logits


class SqueezeExcitation(nn.Module):
    """Each channel times a factor in (0, 1) that the means of all channels decide."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gate = ChannelGate(channels)

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(self.gate(x.mean(dim=(2, 3), keepdim=True)))


class BlockAttention(nn.Module):
    """Channels first, by their means and maxima through one gate; then places, by a 7x7 filter over both."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gate = ChannelGate(channels)
        self.place = nn.Conv2d(2, 1, 7, padding=3, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        means, maxima = x.mean(dim=(2, 3), keepdim=True), x.amax(dim=(2, 3), keepdim=True)
        x = x * torch.sigmoid(self.gate(means) + self.gate(maxima))
        summary = torch.cat([x.amax(dim=1, keepdim=True), x.mean(dim=1, keepdim=True)], dim=1)
        return x * torch.sigmoid(self.place(summary))
