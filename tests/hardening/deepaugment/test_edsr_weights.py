"""Each distortion of EDSR's weights does what its name says, on the blocks that the published code chooses from."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from shiftbench.hardening.augmentations.deepaugment.distortions import Draw, edsr_weights
from shiftbench.hardening.augmentations.deepaugment.edsr import EDSR
from tests.hardening.deepaugment.distorting import block_and_convolution, distorted

NAMES = list(edsr_weights)
#: For the distortions of one block: the blocks of the published code, and which convolutions change.
PLACES = {
    "flip-filters": ({0, 3, 6, 9}, {0, 2}),
    "negate-convolution": ({1, 4, 7}, {0}),
    "zero-convolution": ({0, 3, 6, 9}, {0}),
    "negative-gelu": ({0, 3, 6, 9}, {0, 2}),
    "laplacian": ({0, 3, 6, 9}, {0}),
    "laplacian-with-diagonals": ({0, 3, 6, 9}, {0}),
    "amplify": ({0, 3, 6, 9}, {2}),
    "mirror-and-negate": ({0, 3, 6, 9}, {0, 2}),
    "shift-kernels": ({1, 5, 9}, {0}),
    "convolve-with-noise": ({0, 3, 6, 9}, {0}),
    "convolve-with-dirichlet": ({1, 5, 9}, {2}),
    "add-noise": (set(range(15)), {2}),
}
#: For those of five convolutions: which may change.
SEVERAL = {"rotate": {0, 2}, "random-signs": {0}, "random-zeros": {0}, "negate-filters": {0}, "largest-tap": {0, 2}}


def test_there_are_17() -> None:
    assert len(NAMES) == len(set(NAMES)) == 17
    assert set(NAMES) == set(PLACES) | set(SEVERAL)


@pytest.mark.parametrize("name", PLACES)
def test_one_block_is_distorted(name: str, thin_edsr: EDSR) -> None:
    blocks, convolutions = PLACES[name]
    seen = set()
    for seed in range(25):
        _, _, changed = distorted(thin_edsr, edsr_weights[name], seed)
        places = {block_and_convolution(one) for one in changed}
        assert {convolution for _, convolution in places} == convolutions
        assert len({block for block, _ in places}) == 1
        seen |= {block for block, _ in places}
    assert seen <= blocks
    assert seen == blocks or name == "add-noise"


@pytest.mark.parametrize("name", SEVERAL)
@pytest.mark.parametrize("published", [False, True])
def test_five_convolutions_are_distorted_and_fewer_if_published(name: str, published: bool, thin_edsr: EDSR) -> None:
    counts = []
    for seed in range(12):
        _, _, changed = distorted(thin_edsr, edsr_weights[name], seed, published)
        places = {block_and_convolution(one) for one in changed}
        assert {convolution for _, convolution in places} <= SEVERAL[name]
        assert all(block < 15 for block, _ in places)
        assert all(one.endswith(".weight") for one in changed)
        counts.append(len(places))
    assert max(counts) == 5
    assert (min(counts) < 5) == published


@pytest.mark.parametrize("name", NAMES)
def test_the_same_generator_distorts_alike_and_small_networks_too(name: str, small_edsr: EDSR) -> None:
    for published in (False, True):
        _, first, _ = distorted(small_edsr, edsr_weights[name], 7, published)
        _, again, _ = distorted(small_edsr, edsr_weights[name], 7, published)
        assert all(torch.equal(first[key], again[key]) for key in first)
        assert all(weight.isfinite().all() for weight in first.values())


@pytest.mark.parametrize("name", ["flip-filters", "negate-convolution", "mirror-and-negate"])
def test_twice_gives_the_original(name: str, edsr: EDSR) -> None:
    weights = dict(edsr.state_dict())
    for _ in range(2):
        edsr_weights[name](weights, Draw(np.random.default_rng(4)))
    assert all(torch.equal(weights[key], own) for key, own in edsr.state_dict().items())


def only(changed: list[str], ending: str) -> str:
    [name] = [one for one in changed if one.endswith(ending)]
    return name


def test_filters_are_flipped_with_their_biases(edsr: EDSR) -> None:
    before, after, changed = distorted(edsr, edsr_weights["flip-filters"])
    for name in changed:
        for number in range(64):
            assert torch.equal(after[name][number], before[name][63 - number])
    assert sum(name.endswith("bias") for name in changed) == 2


def test_a_zeroed_convolution_lets_the_residual_through(edsr: EDSR) -> None:
    _, after, changed = distorted(edsr, edsr_weights["zero-convolution"])
    block = block_and_convolution(changed[0])[0]
    x = torch.rand(1, 64, 5, 5, generator=torch.Generator().manual_seed(0))
    own = {
        name.removeprefix(f"body.{block}."): weight
        for name, weight in after.items()
        if name.startswith(f"body.{block}.")
    }
    out = torch.func.functional_call(edsr.body[block], own, (x,))
    constant = after[f"body.{block}.body.2.bias"].view(1, -1, 1, 1)
    assert torch.allclose(out, x + constant, atol=1e-6)


def test_negative_gelu_by_hand(edsr: EDSR) -> None:
    before, after, changed = distorted(edsr, edsr_weights["negative-gelu"])
    for name in changed:
        for place in [(0, 0, 0, 0), (13, 40, 2, 1), (63, 63, 2, 2)]:
            w = float(before[name][place])
            assert float(after[name][place]) == pytest.approx(-w * 0.5 * (1 + math.erf(w / math.sqrt(2))), abs=1e-6)


@pytest.mark.parametrize(
    ("name", "kernel"),
    [
        ("laplacian", [[0, 1, 0], [1, -4, 1], [0, 1, 0]]),
        ("laplacian-with-diagonals", [[-1, -1, -1], [-1, 8, -1], [-1, -1, -1]]),
    ],
)
def test_laplacians_multiply_tap_by_tap(name: str, kernel: list[list[int]], edsr: EDSR) -> None:
    before, after, [changed] = distorted(edsr, edsr_weights[name])
    expected = before[changed].numpy() * np.asarray(kernel, np.float32)
    np.testing.assert_array_equal(after[changed].numpy(), expected)


def test_amplifying_stays_within_its_bounds(edsr: EDSR) -> None:
    largest = []
    for seed in range(12):
        before, after, [changed] = distorted(edsr, edsr_weights["amplify"], seed)
        ratio = after[changed] / before[changed]
        assert ratio.min() > 0.999
        largest.append(float(ratio.max()))
    assert max(largest) < 5.001
    # u is drawn once for all weights: the ends of the ranges differ from seed to seed
    assert max(largest) - min(largest) > 1


def brute_convolution(images: Tensor, kernels: Tensor) -> Tensor:
    """3x3 cross-correlation with a border of zeros, in loops."""
    count, inputs, height, width = images.shape
    out = torch.zeros(count, len(kernels), height, width)
    for n in range(count):
        for k in range(len(kernels)):
            for y in range(height):
                for x in range(width):
                    for dy in range(3):
                        for dx in range(3):
                            row = y + dy - 1
                            column = x + dx - 1
                            if 0 <= row < height and 0 <= column < width:
                                out[n, k, y, x] += sum(
                                    images[n, c, row, column] * kernels[k, c, dy, dx] for c in range(inputs)
                                )
    return out


def test_shifted_kernels_hold_the_old_taps_moved(edsr: EDSR) -> None:
    before, after, [changed] = distorted(edsr, edsr_weights["shift-kernels"])
    moves = set()
    for channel in range(64):
        old = before[changed][:, channel]
        new = after[changed][:, channel]
        found = [
            (dy, dx, sign)
            for dy in (-1, 0, 1)
            for dx in (-1, 0, 1)
            for sign in (1, -1)
            if torch.equal(sign * moved(old, dy, dx), new)
        ]
        assert len(found) == 1
        moves.add(found[0])
    assert len(moves) > 10


def moved(kernels: Tensor, dy: int, dx: int) -> Tensor:
    out = torch.zeros_like(kernels)
    for y in range(3):
        for x in range(3):
            if 0 <= y + dy < 3 and 0 <= x + dx < 3:
                out[:, y, x] = kernels[:, y + dy, x + dx]
    return out


def test_the_published_shift_gives_every_channel_the_same_sum(edsr: EDSR) -> None:
    before, after, [changed] = distorted(edsr, edsr_weights["shift-kernels"], published=True)
    weight = after[changed]
    assert torch.allclose(weight, weight[:, :1].expand_as(weight), atol=1e-6)
    _, fixed, _ = distorted(edsr, edsr_weights["shift-kernels"])
    assert torch.allclose(weight[:, 0], fixed[changed].sum(dim=1), atol=1e-5)
    assert not torch.equal(before[changed], weight)


@pytest.mark.parametrize("name", ["convolve-with-noise", "convolve-with-dirichlet"])
def test_convolutions_of_weights_against_loops(name: str) -> None:
    torch.manual_seed(0)
    tiny = EDSR(scale=2, blocks=2, features=4).requires_grad_(False)
    before, after, [changed] = distorted(tiny, edsr_weights[name], 3)
    again = np.random.default_rng(3)
    again.integers(1)  # the choice of the block: of the published ones two are left, or one
    if name == "convolve-with-noise":
        noise = again.random((4, 4, 3, 3), dtype=np.float32)
        kernels = torch.from_numpy((2 * noise * np.float32(again.random()) - 1) / 6)
        assert float(kernels.min()) >= -1 / 6 - 1e-6
    else:
        kernels = torch.from_numpy(again.dirichlet([0.1] * 9, (4, 4))).float().view(4, 4, 3, 3)
        assert torch.allclose(kernels.sum(dim=(2, 3)), torch.ones(4, 4))
    assert torch.allclose(after[changed], brute_convolution(before[changed], kernels), atol=1e-5)


def test_added_noise_is_uniform_on_one_unit(edsr: EDSR) -> None:
    before, after, [changed] = distorted(edsr, edsr_weights["add-noise"])
    noise = (after[changed] - before[changed]).flatten()
    assert -0.5 <= float(noise.min()) < -0.499
    assert 0.499 < float(noise.max()) <= 0.5
    assert float(noise.std()) == pytest.approx(math.sqrt(1 / 12), rel=0.01)


def test_rotated_convolutions_are_turns_of_the_old_ones(edsr: EDSR) -> None:
    seen = set()
    for seed in range(6):
        before, after, changed = distorted(edsr, edsr_weights["rotate"], seed)
        for name in changed:
            old = before[name].numpy()
            new = after[name].numpy()
            for axes in ((2, 3), (0, 1)):
                seen |= {(axes, k) for k in (1, 2, 3) if np.array_equal(np.rot90(old, k, axes), new)}
            np.testing.assert_array_equal(np.sort(old, axis=None), np.sort(new, axis=None))
    assert len(seen) == 6


def test_random_signs_and_zeros_hit_half_of_the_weights(edsr: EDSR) -> None:
    for name, factors in (("random-signs", {-1.0, 1.0}), ("random-zeros", {0.0, 1.0})):
        before, after, changed = distorted(edsr, edsr_weights[name])
        ratio = after[changed[0]] / before[changed[0]]
        assert set(ratio.flatten().tolist()) == factors
        assert float((ratio == 1).float().mean()) == pytest.approx(0.5, abs=0.02)


def test_half_of_the_filters_are_negated_and_fewer_as_published(edsr: EDSR) -> None:
    def negated(published: bool, seed: int) -> int:
        before, after, changed = distorted(edsr, edsr_weights["negate-filters"], seed, published)
        counts = [sum(torch.equal(after[n][k], -before[n][k]) for k in range(64)) for n in changed]
        return min(counts)

    assert {negated(False, seed) for seed in range(4)} == {32}
    # 32 draws with replacement hit 64 (1 - (63/64)^32) = 25.3 filters
    assert np.mean([negated(True, seed) for seed in range(8)]) == pytest.approx(25.3, abs=3)


def test_only_the_largest_tap_is_left(edsr: EDSR) -> None:
    before, after, changed = distorted(edsr, edsr_weights["largest-tap"])
    for name in changed:
        old = before[name].numpy().reshape(-1, 9)
        new = after[name].numpy().reshape(-1, 9)
        assert ((new != 0).sum(axis=1) == 1).all()
        np.testing.assert_array_equal(new.sum(axis=1), old.max(axis=1))
        np.testing.assert_array_equal(new.argmax(axis=1)[old.max(axis=1) > 0], old.argmax(axis=1)[old.max(axis=1) > 0])
