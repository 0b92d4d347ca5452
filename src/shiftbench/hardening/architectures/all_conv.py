"""All-CNN-C (Springenberg et al. 2015): convolutions alone, strided ones instead of pooling.

The published network has no batch norm and diverges at the learning rates of the others; with one after each layer, as
in AugMix's experiments, one recipe fits all. ``batch_norm=False`` is the published one.
"""

from __future__ import annotations

from torch import Tensor, nn

from shiftbench.hardening.architectures.base import architectures
from shiftbench.hardening.architectures.layers import Attention, Dropout, blocks_of, initialise, make_attention
from shiftbench.io.schema import Count


@architectures.register("all-conv")
class AllConv(nn.Module):
    """2n + 3 layers: twice n of 3x3, the last of them strided; then one of 3x3 and two of 1x1.

    ``width``: channels of the first n layers, 96 in the paper; all later ones have twice as many.
    """

    def __init__(
        self,
        *,
        classes: Count,
        depth: Count = 9,
        width: Count = 96,
        dropout: Dropout = 0.5,
        batch_norm: bool = True,
        attention: Attention = "none",
    ) -> None:
        super().__init__()
        each = blocks_of("all-conv", depth, layers=2, around=3)
        parts: list[nn.Module] = []
        inputs = 3
        for outputs in (width, 2 * width):
            for number in range(each):
                parts += _layer(inputs, outputs, 3, 2 if number == each - 1 else 1, batch_norm)
                inputs = outputs
            parts += [make_attention(attention, outputs), nn.Dropout(dropout)]
        parts += _layer(inputs, inputs, 3, 1, batch_norm)
        parts += _layer(inputs, inputs, 1, 1, batch_norm)
        self.features = nn.Sequential(*parts)
        self.scores = nn.Conv2d(inputs, classes, 1)
        initialise(self, "fan_in")

    def forward(self, x: Tensor) -> Tensor:
        places: Tensor = self.scores(self.features(x))
        return places.mean(dim=(2, 3))


def _layer(inputs: int, outputs: int, size: int, stride: int, batch_norm: bool) -> list[nn.Module]:
    layer = nn.Conv2d(inputs, outputs, size, stride=stride, padding=size // 2, bias=not batch_norm)
    return [layer, *([nn.BatchNorm2d(outputs)] if batch_norm else []), nn.ReLU()]
