"""How DeepAugment distorts what flows through EDSR: right after its head, and within its body.

One of each list is drawn for a picture; each list ends in "none", as published.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn.functional import gelu, relu

from shiftbench.hardening.augmentations.deepaugment.drawing import Draw, Table, share

HeadDistortion = Callable[[Tensor, Draw], Tensor]
BodyDistortion = Callable[[nn.Sequential, Tensor, Draw], Tensor]

head_signals: Table[HeadDistortion] = Table()
body_signals: Table[BodyDistortion] = Table()


@head_signals.add("swap-channels")
def swap_channels(x: Tensor, draw: Draw) -> Tensor:
    """Five random pairs of channels swapped. As published, one of each pair is overwritten by the other."""
    order = list(range(x.shape[1]))
    for _ in range(share(5, 64, len(order))):
        first, second = (int(i) for i in draw.generator.integers(len(order), size=2))
        if draw.published:
            order[first] = order[second]
        else:
            order[first], order[second] = order[second], order[first]
    return x[:, order]


@head_signals.add("zero-elements")
def zero_elements(x: Tensor, draw: Draw) -> Tensor:
    """Each number zeroed with probability 0.05."""
    return x * (draw.uniform(x) >= 0.05)


@head_signals.add("negate-elements")
def negate_elements(x: Tensor, draw: Draw) -> Tensor:
    """Each number negated with probability 0.025."""
    return x * ((draw.uniform(x) >= 0.025) * 2 - 1)


@head_signals.add("none")
def leave_head(x: Tensor, draw: Draw) -> Tensor:
    """Left as it is."""
    return x


@body_signals.add("negate-midway")
def negate_midway(body: nn.Sequential, x: Tensor, draw: Draw) -> Tensor:
    """Negated after five of the sixteen blocks."""
    return _midway(body, x, lambda features: -features)


@body_signals.add("activate-midway")
def activate_midway(body: nn.Sequential, x: Tensor, draw: Draw) -> Tensor:
    """ReLU (one time in three) or GELU after five of the sixteen blocks."""
    return _midway(body, x, relu if draw.happens(1 / 3) else gelu)


@body_signals.add("flip-midway")
def flip_midway(body: nn.Sequential, x: Tensor, draw: Draw) -> Tensor:
    """The channels reversed, and the picture upside down (one time in three) or left to right, after five blocks."""
    axes = (1, 2) if draw.happens(1 / 3) else (1, 3)
    return _midway(body, x, lambda features: features.flip(axes))


@body_signals.add("skip-blocks")
def skip_blocks(body: nn.Sequential, x: Tensor, draw: Draw) -> Tensor:
    """Three of the blocks after the second left out.

    As published, each block is fed the body's input, so that only the last one that is not left out counts.
    """
    later = len(body) - 2
    skipped = {2 + i for i in draw.several(share(3, 15, later), later)}
    kept = [part for index, part in enumerate(body) if index not in skipped]
    if draw.published:
        return kept[-1](x)  # type: ignore[no-any-return]
    for part in kept:
        x = part(x)
    return x


@body_signals.add("none")
def leave_body(body: nn.Sequential, x: Tensor, draw: Draw) -> Tensor:
    """Left as it is."""
    return body(x)  # type: ignore[no-any-return]


def _midway(body: nn.Sequential, x: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
    cut = share(5, 16, len(body) - 1)
    return body[cut:](change(body[:cut](x)))  # type: ignore[no-any-return]
