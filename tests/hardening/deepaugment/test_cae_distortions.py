"""Each distortion of the auto-encoder's weights and of its code does what its name says."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import gelu

from shiftbench.hardening.augmentations.deepaugment.cae import LAYERS, CompressiveAutoencoder
from shiftbench.hardening.augmentations.deepaugment.distortions import (
    AFTER_BITS,
    PUBLISHED,
    Draw,
    cae_codes,
    cae_weights,
)
from tests.hardening.deepaugment.distorting import distorted

MIDDLE = set(range(8, 14))
PLACES = {
    "flip-filters": set(range(11, 16)),
    "negate-filters": MIDDLE,
    "zero-filters": MIDDLE,
    "negative-gelu": set(range(10, 14)),
    "amplify": MIDDLE,
    "random-mask": MIDDLE,
    "rotate": MIDDLE,
    "negate-a-fifth": MIDDLE,
    "largest-tap": MIDDLE,
}


def layers(changed: list[str]) -> set[int]:
    return {LAYERS.index(name.rsplit(".", 1)[0]) for name in changed}


def filter_axis(name: str) -> int:
    return 1 if name == "d_up_conv_1.3.weight" else 0


def test_the_21_layers_are_the_networks_in_order(cae: CompressiveAutoencoder) -> None:
    weights = [name for name in cae.state_dict() if name.endswith("weight")]
    assert [f"{layer}.weight" for layer in LAYERS] == weights
    assert len(LAYERS) == 21
    assert list(cae_weights) == list(PLACES)
    assert PUBLISHED == 8


@pytest.mark.parametrize("name", PLACES)
def test_layers_in_the_middle_are_distorted(name: str, small_cae: CompressiveAutoencoder) -> None:
    seen: set[int] = set()
    for seed in range(30):
        _, _, changed = distorted(small_cae, cae_weights[name], seed)
        assert len(layers(changed)) == (2 if name in ("flip-filters", "amplify") else 1)
        seen |= layers(changed)
    assert seen == PLACES[name]


@pytest.mark.parametrize("name", PLACES)
def test_small_networks_and_published_slips_too(name: str, small_cae: CompressiveAutoencoder) -> None:
    for seed in range(6):
        for published in (False, True):
            _, after, _ = distorted(small_cae, cae_weights[name], seed, published)
            assert all(weight.isfinite().all() for weight in after.values())


def test_two_layers_are_flipped_and_one_as_published(cae: CompressiveAutoencoder) -> None:
    for published, count in ((False, 2), (True, 1)):
        before, after, changed = distorted(cae, cae_weights["flip-filters"], 1, published)
        assert len(layers(changed)) == count
        for name in changed:
            assert torch.equal(after[name], before[name].flip(0))


@pytest.mark.parametrize(("name", "count"), [("negate-filters", 12), ("zero-filters", 25), ("negative-gelu", 25)])
def test_so_many_filters_are_changed(name: str, count: int, cae: CompressiveAutoencoder) -> None:
    changes: dict[str, Callable[[Tensor], Tensor]] = {
        "negate-filters": torch.neg,
        "zero-filters": torch.zeros_like,
        "negative-gelu": lambda w: -gelu(w),
    }
    for seed in range(8):
        before, after, changed = distorted(cae, cae_weights[name], seed)
        [weight] = [one for one in changed if one.endswith("weight")]
        axis = filter_axis(weight)
        old = before[weight].movedim(axis, 0)
        new = after[weight].movedim(axis, 0)
        differing = [k for k in range(len(old)) if not torch.equal(old[k], new[k])]
        assert len(differing) == count
        for k in differing:
            assert torch.allclose(new[k], changes[name](old[k]), atol=1e-7)
        bias = weight.replace("weight", "bias")
        assert [k for k in range(len(old)) if before[bias][k] != after[bias][k]] == differing


def test_published_negation_turns_back_what_is_drawn_twice(cae: CompressiveAutoencoder) -> None:
    counts = []
    for seed in range(40):
        before, after, changed = distorted(cae, cae_weights["negate-filters"], seed, published=True)
        if "e_conv_3.0.weight" in changed:
            counts.append(sum(not torch.equal(after[changed[0]][k], before[changed[0]][k]) for k in range(32)))
    assert counts
    # an even number of the 12 draws cancels: what is left is even or odd as 12 is
    assert all(count % 2 == 0 for count in counts)
    assert min(counts) < 12


def test_the_published_code_takes_inputs_for_filters_in_the_transposed_layer(cae: CompressiveAutoencoder) -> None:
    name = "d_up_conv_1.3.weight"
    for published, axis in ((False, 1), (True, 0)):
        for seed in range(40):
            before, after, changed = distorted(cae, cae_weights["negate-a-fifth"], seed, published)
            if changed == [name]:
                negated = [
                    torch.equal(after[name].select(axis, k), -before[name].select(axis, k))
                    for k in range(before[name].shape[axis])
                ]
                untouched = [
                    torch.equal(after[name].select(axis, k), before[name].select(axis, k))
                    for k in range(before[name].shape[axis])
                ]
                assert sum(negated) + sum(untouched) == len(negated)
                assert 0 < sum(negated) <= len(negated) // 5
                break
        else:
            pytest.fail("never drawn")


def test_amplified_weights_stay_within_their_bounds(cae: CompressiveAutoencoder) -> None:
    for seed in range(8):
        before, after, changed = distorted(cae, cae_weights["amplify"], seed)
        for name in changed:
            ratio = after[name] / before[name]
            assert float(ratio.min()) > 0.999
            assert float(ratio.max()) < 9.001


def test_masks_are_of_zeros_or_of_signs(cae: CompressiveAutoencoder) -> None:
    seen = set()
    for seed in range(8):
        before, after, [changed] = distorted(cae, cae_weights["random-mask"], seed)
        factors = (after[changed] / before[changed]).round()
        seen.add(tuple(sorted(set(factors.flatten().tolist()))))
        assert float((factors == 1).float().mean()) == pytest.approx(0.5, abs=0.03)
    assert seen == {(0.0, 1.0), (-1.0, 1.0)}


def test_rotated_kernels_and_largest_taps(cae: CompressiveAutoencoder) -> None:
    before, after, [changed] = distorted(cae, cae_weights["rotate"])
    assert any(np.array_equal(np.rot90(before[changed].numpy(), k, (2, 3)), after[changed].numpy()) for k in (1, 2, 3))
    before, after, [changed] = distorted(cae, cae_weights["largest-tap"])
    assert ((after[changed] != 0).flatten(2).sum(dim=2) == 1).all()
    assert torch.equal(after[changed].flatten(2).sum(dim=2), before[changed].flatten(2).amax(dim=2))


# The code


def code(side: int = 8) -> Tensor:
    return torch.rand(1, 32, side, side, generator=torch.Generator().manual_seed(0)) * 2 - 1


def apply(name: str, numbers: Tensor, seed: int = 0, published: bool = False) -> Tensor:
    before = numbers.clone()
    out = cae_codes[name](numbers, Draw(np.random.default_rng(seed), published))
    assert torch.equal(numbers, before)
    assert out.shape == numbers.shape
    return out


def test_there_are_nine_and_the_first_acts_on_bits() -> None:
    assert len(cae_codes) == 9
    assert next(iter(cae_codes)) == AFTER_BITS
    bits = (code() > 0).float()
    scaled = apply(AFTER_BITS, bits)
    assert torch.equal(scaled[bits == 0], bits[bits == 0])
    assert 3 <= float(scaled[bits == 1].min()) <= float(scaled[bits == 1].max()) <= 7


@pytest.mark.parametrize(("name", "factor", "share"), [("zero-positions", 0, 0.2), ("negate-positions", -1, 0.1)])
def test_whole_places_are_changed(name: str, factor: int, share: float) -> None:
    numbers = code(side=64)
    out = apply(name, numbers)
    hit = (out != numbers).all(dim=1)
    assert torch.equal(hit, (out != numbers).any(dim=1))
    assert float(hit.float().mean()) == pytest.approx(share, rel=0.1)
    expected = torch.where(hit.unsqueeze(1), factor * numbers, numbers)
    assert torch.equal(out, expected)


def test_only_the_first_ten_channels_are_permuted() -> None:
    numbers = code()
    out = apply("permute-channels", numbers)
    assert torch.equal(out[:, 10:], numbers[:, 10:])
    order = [next(c for c in range(10) if torch.equal(out[0, k], numbers[0, c])) for k in range(10)]
    assert sorted(order) == list(range(10))
    assert order != list(range(10))


def flips(old: Tensor, new: Tensor) -> list[tuple[int, ...]]:
    return [axes for axes in ((0,), (1,), (0, 1)) if torch.equal(old.flip(axes), new)]


def test_five_channels_or_all_are_flipped_alike() -> None:
    numbers = code()
    for name, count in (("flip-some-channels", 5), ("flip-channels", 32)):
        axes_seen = set()
        for seed in range(20):
            out = apply(name, numbers, seed)
            changed = [k for k in range(32) if not torch.equal(out[0, k], numbers[0, k])]
            assert len(changed) == count
            [axes] = {tuple(flips(numbers[0, k], out[0, k])) for k in changed}
            axes_seen.add(axes)
        assert len(axes_seen) == 3


def test_the_published_flip_turns_some_back() -> None:
    numbers = code()
    counts = [
        sum(not torch.equal(apply("flip-some-channels", numbers, seed, True)[0, k], numbers[0, k]) for k in range(32))
        for seed in range(25)
    ]
    assert set(counts) <= {1, 3, 5}
    assert 3 in counts


def test_the_noisy_convolution_is_near_the_identity() -> None:
    impulse = torch.zeros(1, 32, 7, 7)
    impulse[0, 4, 3, 3] = 1
    out = apply("noisy-convolution", impulse)
    out[0, 4, 3, 3] -= 1
    assert float(out.abs().max()) <= 0.1 + 1e-6
    assert float(out[0, :, 2:5, 2:5].abs().min()) > 0
    assert float(out[0, :, :2].abs().max()) == 0


def test_extra_taps_add_moved_channels() -> None:
    numbers = code()
    out = apply("extra-taps", numbers)
    padded = torch.nn.functional.pad(numbers, (1, 1, 1, 1))
    added = 0
    for k in range(32):
        rest = out[0, k] - numbers[0, k]
        if rest.abs().max() < 1e-6:
            continue
        added += 1
        windows = [padded[0, c, y : y + 8, x : x + 8] for c in range(32) for y in range(3) for x in range(3)]
        assert any(torch.allclose(rest, window, atol=1e-5) for window in windows)
    assert 8 <= added <= 24


def test_shifted_channels_are_windows_of_themselves() -> None:
    numbers = code()
    out = apply("shift", numbers)
    padded = torch.nn.functional.pad(numbers, (1, 1, 1, 1))
    moves = []
    for k in range(32):
        found = [
            (y, x)
            for y in range(3)
            for x in range(3)
            if torch.allclose(out[0, k], padded[0, k, y : y + 8, x : x + 8], atol=1e-6)
        ]
        assert len(found) == 1
        moves.append(found[0])
    changes = sum(one != other for one, other in pairwise(moves))
    assert changes <= 14  # a new direction with probability 0.2 in each of 31 steps
