"""What makes each family itself."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from shiftbench.hardening.architectures.base import build
from shiftbench.hardening.architectures.dense import DenseLayer, LearnedGroups, MultiscaleNet, ScaleLayer
from shiftbench.hardening.architectures.residual import (
    BasicBlock,
    GridLayer,
    GroupedBottleneck,
    Mixing,
    PaddedIdentity,
    PreactivatedBlock,
    Shake,
    ShakeBlock,
    ShiftedShortcut,
    mix,
)


def numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(9))


def silence(block: nn.Module) -> nn.Module:
    """All filters of the branch at zero."""
    for part in block.modules():
        if isinstance(part, nn.Conv2d):
            nn.init.zeros_(part.weight)
    return block.eval()


def shapes_of(parts: nn.Sequential, network: nn.Module) -> list[tuple[int, int]]:
    """(channels, side) behind each part, for an image of 32 pixels."""
    seen: list[tuple[int, int]] = []
    for part in parts:
        part.register_forward_hook(lambda _module, _inputs, output: seen.append((output.shape[1], output.shape[3])))
    with torch.inference_mode():
        network.eval()(numbers(1, 3, 32, 32))
    return seen


@pytest.mark.parametrize(
    ("name", "blocks", "channels"),
    [
        ("resnet-20", 3, (16, 32, 64)),
        ("wrn-16-4", 2, (64, 128, 256)),
        ("resnext-29", 3, (256, 512, 1024)),
        ("shake-shake", 4, (32, 64, 128)),
    ],
)
def test_stages_halve_the_picture_and_double_the_channels(
    name: str, blocks: int, channels: tuple[int, int, int]
) -> None:
    network = build(name, classes=10)
    assert isinstance(network.stages, nn.Sequential)
    expected = [shape for shape in zip(channels, (32, 16, 8), strict=True) for _ in range(blocks)]
    assert shapes_of(network.stages, network) == expected


@pytest.mark.parametrize(("name", "last"), [("densenet-40", (448, 8)), ("all-conv", (192, 8))])
def test_features_end_at_eight_pixels(name: str, last: tuple[int, int]) -> None:
    network = build(name, classes=10)
    assert isinstance(network.features, nn.Sequential)
    assert shapes_of(network.features, network)[-1] == last


def test_resnet_20_multiplies_as_often_as_its_table_says() -> None:
    """Filters of one layer times the places it looks at, and the linear layer."""
    stem = 32**2 * 432
    first = 32**2 * 6 * 2304
    second = 16**2 * (4608 + 5 * 9216)
    third = 8**2 * (18432 + 5 * 36864)
    with FlopCounterMode(display=False) as counter:
        build("resnet-20", classes=10)(numbers(1, 3, 32, 32))
    assert counter.get_total_flops() == 2 * (stem + first + second + third + 640)


def test_a_wide_blocks_shortcut_begins_behind_the_rectifier() -> None:
    block = PreactivatedBlock(4, 6, 2, dropout=0, attention="none").eval()
    assert block.shortcut is not None
    nn.init.zeros_(block.conv2.weight)
    x = numbers(2, 4, 6, 6)
    active = torch.relu(x / (1 + block.norm1.eps) ** 0.5)
    torch.testing.assert_close(block(x), block.shortcut(active))


def test_option_a_takes_every_second_pixel_and_adds_zeros() -> None:
    x = numbers(2, 3, 6, 6)
    y = PaddedIdentity(2, stride=2)(x)
    assert y.shape == (2, 5, 3, 3)
    assert torch.equal(y[:, :3], x[:, :, ::2, ::2]) and not y[:, 3:].any()


@pytest.mark.parametrize(
    "block",
    [
        PreactivatedBlock(8, 8, 1, dropout=0, attention="se"),
        ShakeBlock(8, 8, 1, mixing="image", attention="none"),
    ],
)
def test_a_silent_block_is_the_identity(block: nn.Module) -> None:
    x = numbers(2, 8, 5, 5)
    torch.testing.assert_close(silence(block)(x), x)


@pytest.mark.parametrize(
    "block",
    [
        BasicBlock(8, 8, 1, kind="A", attention="cbam"),
        GroupedBottleneck(8, 8, 1, middle=4, groups=2, attention="none"),
    ],
)
def test_blocks_with_a_last_rectifier_keep_what_is_positive(block: nn.Module) -> None:
    x = numbers(2, 8, 5, 5)
    torch.testing.assert_close(silence(block)(x), x.clamp(min=0))


def test_groups_do_not_see_each_other() -> None:
    block = GroupedBottleneck(8, 8, 1, middle=8, groups=4, attention="none").eval()
    x = numbers(1, 8, 5, 5)
    changed = x.clone()
    changed[:, :2] += 1  # the first group's
    moved = (block.conv2(changed) - block.conv2(x)).abs().sum(dim=(0, 2, 3)) > 1e-6
    assert moved.tolist() == [True, True] + 6 * [False]


def test_dense_layers_keep_what_they_read() -> None:
    x = numbers(2, 10, 6, 6)
    y = DenseLayer(nn.Conv2d(10, 4, 3, padding=1), nn.ReLU())(x)
    assert y.shape == (2, 14, 6, 6) and torch.equal(y[:, :10], x)


def test_all_scales_live_until_the_end() -> None:
    network = MultiscaleNet(classes=5, depth=5, width=4, scales=3, attention="none").eval()
    seen: list[list[torch.Size]] = []
    for layer in network.layers:
        layer.register_forward_hook(lambda _module, _inputs, output: seen.append([x.shape for x in output]))
    network(numbers(1, 3, 32, 32))
    assert [[shape[-1] for shape in shapes] for shapes in seen] == 4 * [[32, 16, 8]]
    assert [shape[1] for shape in seen[-1]] == [4 * 2 + 4 * 4, 8 * 2 + 4 * 8, 16 * 2 + 4 * 16]
    assert network.linear.in_features == sum(shape[1] for shape in seen[-1])


def test_a_scale_hears_of_itself_and_of_the_finer_one_only() -> None:
    layer = ScaleLayer([8, 16, 32], [4, 8, 16], [4, 4, 4], "none").eval()
    scales = [numbers(1, 8, 16, 16), numbers(1, 16, 8, 8), numbers(1, 32, 4, 4)]
    before = layer(scales)
    hears = []
    for changed in range(3):
        after = layer([x + 1 if n == changed else x for n, x in enumerate(scales)])
        new = [(a - b)[:, n:].abs().max().item() > 1e-6 for a, b, n in zip(after, before, (8, 16, 32), strict=True)]
        hears.append(new)
    assert hears == [[True, True, False], [False, True, True], [False, False, True]]


def test_all_conv_has_no_pool_and_no_linear_layer() -> None:
    network = build("all-conv", classes=10)
    assert {type(part) for part in network.features.children()} == {  # type: ignore[union-attr]
        nn.Conv2d,
        nn.BatchNorm2d,
        nn.ReLU,
        nn.Dropout,
        nn.Identity,
    }


def test_shaking_goes_forwards_by_alpha_and_backwards_by_beta() -> None:
    a, b = (numbers(3, 2, 4, 4).requires_grad_() for _ in range(2))
    alpha = torch.rand(3, 1, 1, 1)
    beta = torch.rand(3, 1, 1, 1)
    weights = numbers(3, 2, 4, 4)
    mixed = Shake.apply(a, b, alpha, beta)  # type: ignore[no-untyped-call]
    (mixed * weights).sum().backward()
    torch.testing.assert_close(mixed, alpha * a + (1 - alpha) * b)
    assert a.grad is not None and b.grad is not None
    torch.testing.assert_close(a.grad, beta * weights)
    torch.testing.assert_close(b.grad, (1 - beta) * weights)


@pytest.mark.parametrize(("mixing", "chances"), [("image", 64), ("batch", 1), ("even", 1)])
def test_one_chance_for_each_image_or_for_the_batch(mixing: Mixing, chances: int) -> None:
    torch.manual_seed(0)
    mixed = mix(torch.ones(64, 2, 3, 3), torch.zeros(64, 2, 3, 3), mixing)
    assert len(set(mixed.flatten().tolist())) == chances
    assert (mixed == mixed[:, :1, :1, :1]).all() and ((mixed >= 0) & (mixed < 1)).all()
    if mixing == "image":
        assert mixed.mean().item() == pytest.approx(0.5, abs=0.15) and mixed.std().item() > 0.2
    if mixing == "even":
        assert (mixed == 0.5).all()


def test_shaking_stops_in_eval_mode_and_follows_the_seed() -> None:
    torch.manual_seed(1)
    network = build("shake-shake", classes=5, depth=8, width=4)
    x = numbers(4, 3, 32, 32)

    def logits(seed: int) -> Tensor:
        torch.manual_seed(seed)
        with torch.no_grad():
            found: Tensor = network(x)
        return found

    network.train()
    assert torch.equal(logits(2), logits(2)) and not torch.allclose(logits(2), logits(3))
    network.eval()
    assert torch.equal(logits(2), logits(3))
    block = ShakeBlock(6, 6, 1, mixing="image", attention="none").eval()
    y = numbers(2, 6, 5, 5)
    torch.testing.assert_close(block(y), y + 0.5 * block.branch1(y) + 0.5 * block.branch2(y))


def test_the_shortcut_of_shake_shake_reads_two_grids() -> None:
    module = ShiftedShortcut(1, 2, stride=2).eval()
    nn.init.ones_(module.conv1.weight)
    nn.init.ones_(module.conv2.weight)
    x = torch.arange(16.0).reshape(1, 1, 4, 4)
    y = module(x) * (1 + module.norm.eps) ** 0.5
    torch.testing.assert_close(y[0, 0], x[0, 0, ::2, ::2])
    torch.testing.assert_close(y[0, 1], x[0, 0, 1::2, 1::2])


def test_msdnet_drops_its_finest_scale_and_answers_at_every_exit() -> None:
    """CIFAR's network of the paper: 16 layers, a scale less after 6 and after 12 of them."""
    network = build("msdnet", classes=5, width=2, stem=4)
    seen = list[list[int]]()
    for layer in network.layers:  # type: ignore[union-attr]
        layer.register_forward_hook(lambda _module, _inputs, output: seen.append([x.shape[-1] for x in output]))
    x = numbers(2, 3, 32, 32)
    assert network.train()(x).shape == (7, 2, 5)
    assert seen == 6 * [[32, 16, 8]] + 6 * [[16, 8]] + 4 * [[8]]
    early = build("msdnet", classes=5, width=2, stem=4, exit=2).eval()
    early.load_state_dict(network.state_dict())
    stacked: list[Tensor] = []
    for one in network.exits.values():  # type: ignore[operator]
        one.register_forward_hook(lambda _module, _inputs, output: stacked.append(output))
    seen.clear()
    assert torch.equal(network.eval()(x), stacked[-1]) and len(stacked) == 7
    assert torch.equal(early(x), stacked[1])


def test_condensed_groups_lose_their_weakest_inputs_in_the_first_half() -> None:
    layer = LearnedGroups(8, 8, groups=4, condense=4, lasso=1e-5)
    x = numbers(2, 8, 3, 3).abs() + 0.1
    weights = layer.conv.weight.detach()[:, :, 0, 0].abs()
    kept = []
    for done in (0.0, 0.16, 0.17, 0.34, 0.5, 1.0):
        layer.progress(done)
        kept.append(int(layer.mask[0].sum()))
    assert kept == [8, 8, 6, 4, 2, 2]
    for group in range(4):
        strongest = weights[group::4].sum(dim=0).argsort()[-2:].sort().values
        assert torch.equal(layer.mask[group].flatten().nonzero().flatten(), strongest)
    used = torch.autograd.functional.jacobian(layer.eval(), x)[:, :, 0, 0].abs().sum(dim=(0, 2, 4, 5))  # type: ignore[no-untyped-call]
    assert torch.equal(used > 0, layer.mask[:, :, 0, 0])
    assert float(layer.penalty()) == 0, "the last inputs are dropped"


def test_the_group_lasso_is_that_of_the_authors_until_the_last_stage() -> None:
    layer = LearnedGroups(8, 8, groups=4, condense=4, lasso=1e-5)
    layer.progress(0.34)
    by_hand = sum(layer.conv.weight[g::4, i].norm() for g in range(4) for i in range(8) if layer.mask[g, i])
    dropped = int((~layer.mask[:4]).sum())
    assert dropped == 16
    penalty = layer.penalty()
    assert float(penalty.detach()) == pytest.approx(1e-5 * (float(by_hand) + dropped * 1e-3), rel=1e-4)
    assert penalty.requires_grad
    layer.progress(0.49)
    assert float(layer.penalty().detach()) > 0
    layer.progress(0.5)
    assert float(layer.penalty()) == 0
    without = LearnedGroups(8, 8, groups=4, condense=4, lasso=0.0)
    assert float(without.penalty()) == 0


def test_a_grid_hears_of_its_neighbours_only() -> None:
    layer = GridLayer([8, 4, 2], [8, 4, 2]).eval()
    grids = [numbers(1, 8, 16, 16), numbers(1, 4, 8, 8), numbers(1, 2, 4, 4)]
    before = layer(grids)
    for changed in range(3):
        after = layer([x + 1 if n == changed else x for n, x in enumerate(grids)])
        moved = [not torch.allclose(a, b) for a, b in zip(after, before, strict=True)]
        assert moved == [abs(grid - changed) <= 1 for grid in range(3)]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("msdnet", {"exits": 2, "base": 4, "step": 4, "width": 4, "factors": [1, 2, 4, 4], "stem": 8}),
        ("condensenet", {"stages": [1, 1, 1, 1, 1], "growth": [4, 4, 4, 8, 8]}),
        ("multigrid", {"blocks": [1, 1, 1, 1], "width": 8, "merge": 2}),
    ],
)
def test_networks_for_imagenet_take_its_images(name: str, options: dict[str, Any]) -> None:
    network = build(name, classes=5, imagenet=True, **options).eval()
    with torch.inference_mode():
        assert network(numbers(1, 3, 224, 224)).shape == (1, 5)
