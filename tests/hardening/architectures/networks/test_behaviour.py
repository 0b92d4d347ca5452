"""What every network promises, at miniature sizes."""

from __future__ import annotations

import math
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from shiftbench.errors import ShiftbenchError, UnknownNameError
from shiftbench.hardening.architectures.base import Normalised, architectures, build
from shiftbench.hardening.errors import ArchitectureError
from shiftbench.hardening.training_schemes import make_scheme

MINIATURES: dict[str, dict[str, Any]] = {
    "resnet-20": {"depth": 8, "width": 4},
    "resnet-56": {"depth": 14, "width": 4, "shortcut": "B"},
    "wrn-40-2": {"depth": 10, "width": 1},
    "wrn-16-4": {"depth": 16, "width": 1, "dropout": 0.3},
    "densenet-40": {"depth": 10, "width": 6, "bottleneck": True},
    "resnext-29": {"depth": 11, "cardinality": 2, "width": 4, "stem": 8},
    "shake-shake": {"depth": 8, "width": 8},
    "multiscale": {"depth": 4, "width": 3},
    "all-conv": {"depth": 5, "width": 8},
    "msdnet": {"exits": 3, "base": 2, "step": 1, "width": 4, "stem": 4, "factors": [1, 2]},
    "condensenet": {"stages": [2, 2], "growth": [4, 8]},
    "multigrid": {"blocks": [1, 2], "width": 8},
}
#: Every network without attention; with it, one network for each way of placing it.
WITH_ATTENTION = [
    *((name, "none") for name in MINIATURES),
    *(("resnet-20", "se"), ("resnet-20", "cbam"), ("densenet-40", "se"), ("multiscale", "cbam"), ("all-conv", "se")),
]


def miniature(name: str, attention: str = "none", classes: int = 5) -> nn.Module:
    torch.manual_seed(3)
    return build(name, classes=classes, attention=attention, **MINIATURES[name])


def pictures(count: int = 6, side: int = 32) -> Tensor:
    return torch.randn(count, 3, side, side, generator=torch.Generator().manual_seed(1))


def settled(network: nn.Module) -> nn.Module:
    """In eval mode, with running statistics of something else than nothing."""
    network.train()
    with torch.no_grad():
        network(pictures(8))
    return network.eval()


def loss_of(network: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """Of all exits, where there are several."""
    return make_scheme("standard")(network, [images], labels, torch.Generator()).loss


def test_every_network_has_a_miniature() -> None:
    assert set(MINIATURES) == set(architectures.names()) - {"timm", "own"}


@pytest.mark.parametrize(("name", "attention"), WITH_ATTENTION)
def test_a_gradient_reaches_every_parameter(name: str, attention: str) -> None:
    network = miniature(name, attention).train()
    loss_of(network, pictures(8), torch.arange(8) % 5).backward()  # type: ignore[no-untyped-call]
    still = [key for key, part in network.named_parameters() if part.grad is None or not part.grad.abs().sum() > 0]
    assert still == []


@pytest.mark.parametrize(("name", "attention"), WITH_ATTENTION)
def test_neighbours_in_a_batch_change_nothing_in_eval_mode(name: str, attention: str) -> None:
    network = settled(miniature(name, attention))
    images = pictures()
    with torch.inference_mode():
        together = network(images)
        alone = torch.cat([network(image[None]) for image in images])
        reversed_ = network(images.flip(0)).flip(0)
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(together, reversed_, rtol=1e-4, atol=1e-5)
    assert len(torch.unique(together[:, 0])) == len(images)


@pytest.mark.parametrize("name", MINIATURES)
def test_pictures_of_other_sizes_and_odd_sides(name: str) -> None:
    network = settled(miniature(name))
    for side in (32, 64, 40, 31):
        with torch.inference_mode():
            assert network(pictures(2, side)).shape == (2, 5)


@pytest.mark.parametrize(("name", "attention"), WITH_ATTENTION)
def test_channels_last_gives_the_same(name: str, attention: str) -> None:
    network = settled(miniature(name, attention))
    images = pictures()
    with torch.inference_mode():
        expected = network(images)
        turned = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        found = turned(images.contiguous(memory_format=torch.channels_last))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", MINIATURES)
def test_the_seed_decides_the_weights_and_they_travel(name: str) -> None:
    one = miniature(name, "se")
    two = miniature(name, "se")
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    torch.manual_seed(4)
    other = build(name, classes=5, attention="se", **MINIATURES[name])
    other.load_state_dict(one.state_dict())
    copy = pickle.loads(pickle.dumps(one))
    with torch.inference_mode():
        expected = one.eval()(pictures())
        assert torch.equal(other.eval()(pictures()), expected)
        assert torch.equal(copy.eval()(pictures()), expected)


@pytest.mark.parametrize("name", MINIATURES)
def test_it_learns_eight_pictures_by_heart(name: str) -> None:
    torch.manual_seed(3)
    options = MINIATURES[name] | ({"dropout": 0.0} if "dropout" in MINIATURES[name] or name == "all-conv" else {})
    network = build(name, classes=4, attention="se", **options)
    images = pictures(8)
    labels = torch.arange(8) % 4
    optimiser = torch.optim.Adam(network.parameters(), lr=0.01)
    losses = []
    for _ in range(30):
        loss = loss_of(network, images, labels)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


def test_filters_begin_with_hes_variance() -> None:
    network = build("resnet-20", classes=10, width=32)
    for part in network.modules():
        if isinstance(part, nn.Conv2d) and part.weight.numel() > 5000:
            fan = part.in_channels * part.kernel_size[0] * part.kernel_size[1]
            assert part.weight.std().item() == pytest.approx(math.sqrt(2 / fan), rel=0.05)
    wide = build("wrn-16-4", classes=10)
    for part in wide.modules():
        if isinstance(part, nn.Conv2d) and part.weight.numel() > 5000:
            fan = part.out_channels * part.kernel_size[0] * part.kernel_size[1]
            assert part.weight.std().item() == pytest.approx(math.sqrt(2 / fan), rel=0.05)


def test_pixels_are_normalised_inside() -> None:
    mean = (0.4, 0.5, 0.6)
    std = (0.2, 0.25, 0.3)
    network = settled(miniature("resnet-20"))
    pixels = torch.rand(2, 3, 32, 32)
    by_hand = torch.stack([(pixels[:, c] - mean[c]) / std[c] for c in range(3)], dim=1)
    with torch.inference_mode():
        torch.testing.assert_close(Normalised(network, mean, std)(pixels), network(by_hand))


#: The name, its options, what was found and what was expected.
WRONG: list[tuple[str, dict[str, Any], object, str]] = [
    ("resnet-20", {"depth": 21}, 21, "6n + 2"),
    ("resnet-20", {"depth": 2}, 2, "6n + 2"),
    ("resnet-20", {"depth": 20.0}, "20.0", "integer"),
    ("resnet-20", {"width": 0}, "0", "integer >= 1"),
    ("resnet-20", {"width": True}, "True", "integer"),
    ("resnet-20", {"shortcut": "C"}, "'C'", "A or B"),
    ("resnet-20", {"classes": 0}, "0", "integer >= 1"),
    ("resnet-20", {"attention": "transformer"}, "'transformer'", "cbam or none or se"),
    ("resnet-20", {"deepth": 20}, "deepth", "classes, depth, width, shortcut, attention"),
    ("wrn-40-2", {"depth": 42}, 42, "6n + 4"),
    ("wrn-40-2", {"dropout": 1.0}, "1.0", "number < 1.0"),
    ("densenet-40", {"bottleneck": True, "depth": 43}, 43, "6n + 4"),
    ("resnext-29", {"depth": 30}, 30, "9n + 2"),
    ("shake-shake", {"width": 1}, "1", "integer >= 2"),
    ("multiscale", {"depth": 1}, "1", "integer >= 2"),
    ("msdnet", {"exits": 3, "exit": 4}, 4, "0 to 3"),
    ("multigrid", {"merge": 3}, "merge = 3, 3 grids, 3 stages", "fewer merges"),
    ("condensenet", {"growth": [8, 16]}, "3 stages, growth [8, 16], 4 groups", "one growth per stage"),
    ("all-conv", {"batch_norm": "no"}, "'no'", "boolean"),
    ("all-conv", {"depth": 4}, 4, "2n + 3"),
    ("all-conv", {"dropout": "half"}, "'half'", "number"),
]


@pytest.mark.parametrize(("name", "options", "found", "expected"), WRONG)
def test_invalid_options_are_refused(name: str, options: dict[str, Any], found: object, expected: str) -> None:
    with pytest.raises(ArchitectureError) as caught:
        build(name, **{"classes": 10, **options})
    assert caught.value.found == found and str(caught.value.expected).startswith(expected)


def test_a_depth_that_does_not_fit_comes_with_the_nearest_ones() -> None:
    with pytest.raises(ArchitectureError) as caught:
        build("resnext-29", classes=10, depth=30)
    assert caught.value.hint == "depth = 29 or 38"


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="resnet-20"):
        build("resnet20", classes=10)
    assert issubclass(ArchitectureError, ShiftbenchError)
