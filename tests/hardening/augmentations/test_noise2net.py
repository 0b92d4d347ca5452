"""Noise2Net: each image through a random network of its own, as a plain one computes it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch.nn import functional

from shiftbench.hardening.augmentations import mixing as module
from shiftbench.hardening.augmentations.base import make_batch_augmentation
from shiftbench.hardening.errors import AugmentationError

MEAN = torch.tensor(module.IMAGENET_MEAN)
STD = torch.tensor(module.IMAGENET_STD)


def pictures(count: int = 4, side: int = 12) -> torch.Tensor:
    return torch.rand(count, 3, side, side, generator=torch.Generator().manual_seed(7))


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_half_is_changed_and_labels_are_not() -> None:
    images = pictures(5)
    targets = torch.eye(5)
    before = images.clone()
    out, labels = make_batch_augmentation("noise2net")(images, targets, seeded())
    assert torch.equal(out[2:], images[2:]) and labels is targets
    assert all(not torch.allclose(out[i], images[i], atol=0.05) for i in range(2))
    assert out.min() >= 0 and out.max() <= 1 and torch.equal(images, before)
    assert torch.equal(out, make_batch_augmentation("noise2net")(images, targets, seeded())[0])
    assert not torch.equal(out, make_batch_augmentation("noise2net")(images, targets, seeded(1))[0])


def test_no_strength_is_no_change_and_more_is_more() -> None:
    images = pictures()
    targets = torch.eye(4)
    changes = []
    for strength in (0.0, 0.1, 0.4):
        out, _ = make_batch_augmentation("noise2net", strength=strength, share=1)(images, targets, seeded())
        changes.append(float((out - images).abs().mean()))
    assert changes[0] < 1e-6 < changes[1] < changes[2]


def test_pictures_do_not_see_each_other() -> None:
    images = pictures()
    targets = torch.eye(4)
    augment = make_batch_augmentation("noise2net", share=1)
    out, _ = augment(images, targets, seeded())
    other = images.clone()
    other[1:] = 1 - other[1:]
    assert torch.allclose(augment(other, targets, seeded())[0][0], out[0], atol=1e-6)


def test_each_picture_has_weights_of_its_own() -> None:
    same = pictures(1).expand(4, -1, -1, -1).contiguous()
    out, _ = make_batch_augmentation("noise2net", share=1)(same, torch.eye(4), seeded())
    assert not torch.allclose(out[0], out[1], atol=0.05)


def plain_block(x: torch.Tensor, which: int, count: int, drawn: Iterator[torch.Tensor]) -> torch.Tensor:
    """One block for one image, with the weights that belong to it, and batch normalisation in training mode."""

    def convolved(x: torch.Tensor, dilation: int = 1, bias: bool = False) -> torch.Tensor:
        weights = next(drawn)
        own = weights.view(count, -1, *weights.shape[1:])[which]
        offset = next(drawn).view(count, -1)[which] if bias else None
        out = functional.conv2d(x, own, offset, padding=(own.shape[-1] - 1) // 2 * dilation, dilation=dilation)
        return functional.batch_norm(out, None, None, training=True)

    pieces = functional.relu(convolved(x)).chunk(4, dim=1)
    done: list[torch.Tensor] = []
    for piece in pieces[:3]:
        mixed = piece + done[-1] if done else piece
        done.append(functional.relu(convolved(mixed, bias=True)))
    return convolved(torch.cat([*done, pieces[3]], dim=1))


def test_the_network_equals_a_plain_one_for_each_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    """The grouped convolution against one image at a time, with the weights that were drawn."""
    weights: list[torch.Tensor] = []
    draw = module._uniform

    def remembered(*arguments: object) -> torch.Tensor:
        weights.append(draw(*arguments))  # type: ignore[arg-type]
        return weights[-1]

    monkeypatch.setattr(module, "_uniform", remembered)
    monkeypatch.setattr(module, "DILATIONS", (1,))
    x = (pictures(3) - MEAN.view(1, 3, 1, 1)) / STD.view(1, 3, 1, 1)
    found = module._network(x, 0.5, 16, seeded(3))
    assert {tuple(w.shape[2:]) for w in weights if w.ndim == 4} == {(1, 1), (3, 3)}
    for which in range(3):
        drawn = iter(weights)
        expected = x[which : which + 1]
        for _ in range(4):
            expected = expected + 0.5 * plain_block(expected, which, 3, drawn)
        assert torch.allclose(found[which : which + 1], expected, atol=1e-4)
        assert next(drawn, None) is None


def test_weights_are_pytorchs_first_ones() -> None:
    """U(-b, b) with b = 1 / sqrt(fan in), the bound of an untouched nn.Conv2d."""
    layer = torch.nn.Conv2d(16, 64, 3)
    bound = float(layer.weight.detach().abs().max())
    drawn = module._uniform((4000,), 1 / (16 * 9) ** 0.5, torch.zeros(1), seeded())
    assert float(drawn.abs().max()) == pytest.approx(bound, rel=0.01)
    assert float(drawn.mean()) == pytest.approx(0, abs=0.003)


def test_small_and_empty_batches() -> None:
    augment = make_batch_augmentation("noise2net")
    one = pictures(1)
    assert torch.equal(augment(one, torch.eye(1), seeded())[0], one)  # half of one is none
    dot = make_batch_augmentation("noise2net", share=1)(torch.rand(2, 3, 1, 1), torch.eye(2), seeded())[0]
    assert torch.isfinite(dot).all()


@pytest.mark.parametrize(
    "options", [{"strength": -1}, {"share": 2}, {"hidden": 0}, {"mean": [0.5]}, {"std": [0, 1, 1]}, {"std": 0.2}]
)
def test_impossible_options_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(AugmentationError):
        make_batch_augmentation("noise2net", **options)
