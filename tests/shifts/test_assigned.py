"""Which shift each image meets, and that it is shifted as by that shift alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shiftbench.errors import ShiftError
from shiftbench.io.hashing import seeded_rank
from shiftbench.shifts.assigned import Assigned, ShiftAssignment, assign
from shiftbench.shifts.base import NoShift, rebuild_shift
from shiftbench.shifts.corruptions import Corruption

counts = st.integers(2, 12)


def images(classes: int, per_class: int) -> tuple[list[str], np.ndarray]:
    return [f"{i}.png" for i in range(classes * per_class)], np.arange(classes * per_class, dtype=np.int32) % classes


@given(counts, counts, counts, st.integers(0, 99))
def test_shifts_and_classes_are_balanced(classes: int, per_class: int, shifts: int, seed: int) -> None:
    ids, labels = images(classes, per_class)
    places = assign(ids, labels, shifts, seed=seed)
    of_class = np.array([[np.sum((labels == c) & (places == s)) for s in range(shifts)] for c in range(classes)])
    assert (of_class.max(axis=1) - of_class.min(axis=1) <= 1).all()
    whole = np.bincount(places, minlength=shifts)
    assert whole.max() - whole.min() <= per_class + 1
    if classes % shifts == 0:
        assert whole.max() == whole.min()


@given(counts, counts, st.integers(0, 99), st.randoms())
def test_the_order_of_the_images_does_not_matter(classes: int, shifts: int, seed: int, random: object) -> None:
    ids, labels = images(classes, 5)
    order = list(range(len(ids)))
    random.shuffle(order)  # type: ignore[attr-defined]
    shuffled = assign([ids[i] for i in order], labels[order], shifts, seed=seed)
    assert (shuffled == assign(ids, labels, shifts, seed=seed)[order]).all()


@given(counts, counts, st.integers(1, 5), st.integers(0, 99))
def test_fewer_images_of_each_class_keep_their_shifts(classes: int, shifts: int, kept: int, seed: int) -> None:
    """The first images of each class, in the order in which ``per_class`` and ``balanced`` take them."""
    ids, labels = images(classes, 6)
    ranked = sorted(range(len(ids)), key=lambda row: seeded_rank(seed, ids[row]))
    first = sorted(row for label in range(classes) for row in [i for i in ranked if labels[i] == label][:kept])
    part = assign([ids[i] for i in first], labels[first], shifts, seed=seed)
    assert (part == assign(ids, labels, shifts, seed=seed)[first]).all()


@given(counts, counts, st.integers(0, 99))
def test_all_passes_together_are_the_full_grid(classes: int, shifts: int, seed: int) -> None:
    ids, labels = images(classes, 3)
    passes = np.stack([assign(ids, labels, shifts, seed=seed, turn=turn) for turn in range(shifts)], axis=1)
    assert (np.sort(passes, axis=1) == np.arange(shifts)).all()


def test_every_shift_is_as_likely_for_every_image() -> None:
    ids, labels = images(3, 4)
    seen = np.stack([assign(ids, labels, 5, seed=seed) for seed in range(2000)])
    shares = np.stack([(seen == shift).mean(axis=0) for shift in range(5)])
    assert abs(shares - 0.2).max() < 5 * np.sqrt(0.2 * 0.8 / 2000)


def test_pixels_are_those_of_the_shift_alone() -> None:
    ids, labels = images(3, 4)
    members = (Corruption("fog", 3), Corruption("gaussian_noise", 1), NoShift())
    shift = Assigned("data-c.one-pass", members, ShiftAssignment("one-pass", 0, 0)).for_images(ids, labels)
    pixels = np.random.default_rng(0).integers(0, 256, (len(ids), 32, 32, 3), dtype=np.uint8)
    batch = shift.batch(pixels, image_ids=ids, seed=5)
    for row, image_id in enumerate(ids):
        alone = shift.member_of(image_id)(pixels[row], image_id=image_id, seed=5)
        assert (batch[row] == alone).all()
        assert (shift(pixels[row], image_id=image_id, seed=5) == alone).all()


def test_a_rebuilt_shift_needs_the_images_of_its_run() -> None:
    ids, labels = images(3, 4)
    shift = Assigned("one", (NoShift(), Corruption("fog", 1)), ShiftAssignment("one-pass", 7, 0)).for_images(
        ids, labels
    )
    again = rebuild_shift(shift.record(), shift.describe()).for_images(ids, labels)
    assert isinstance(again, Assigned)
    assert again.assignment.places == shift.assignment.places
    with pytest.raises(ShiftError):
        rebuild_shift(shift.record()).for_images(ids[1:], labels[1:])
