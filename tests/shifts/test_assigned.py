"""Which shift each image meets, and that it is shifted as by that shift alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shiftbench.datasets.arrays import ArrayDataset
from shiftbench.datasets.subset import proportional
from shiftbench.errors import ShiftError
from shiftbench.io.hashing import seeded_rank
from shiftbench.labels.space import LabelSpace
from shiftbench.shifts.assigned import Assigned, ShiftAssignment, assign
from shiftbench.shifts.base import NoShift, rebuild_shift
from shiftbench.shifts.corruptions.api import Corruption

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
    # Every class comes first: over all classes the shifts are balanced nearly, with 3 in about one of 2,000 cases.
    assert whole.max() - whole.min() <= 3


@pytest.mark.parametrize(("images_", "classes", "shifts"), [(160, 10, 75), (114, 90, 45), (300, 3, 75), (2000, 40, 90)])
def test_classes_of_all_sizes_are_spread_evenly(images_: int, classes: int, shifts: int) -> None:
    rng = np.random.default_rng(images_)
    labels = rng.choice(classes, images_, p=rng.dirichlet(np.ones(classes))).astype(np.int32)
    places = assign([str(i) for i in range(images_)], labels, shifts, seed=1)
    whole = np.bincount(places, minlength=shifts)
    assert whole.max() - whole.min() <= 2
    of_class = np.stack([np.bincount(places[labels == c], minlength=shifts) for c in range(classes)])
    assert (of_class.max(axis=1) - of_class.min(axis=1) <= 1).all()


@given(counts, counts, st.integers(0, 99), st.randoms())
def test_the_order_of_the_images_does_not_matter(classes: int, shifts: int, seed: int, random: object) -> None:
    ids, labels = images(classes, 5)
    order = list(range(len(ids)))
    random.shuffle(order)  # type: ignore[attr-defined]
    shuffled = assign([ids[i] for i in order], labels[order], shifts, seed=seed)
    assert (shuffled == assign(ids, labels, shifts, seed=seed)[order]).all()


@given(counts, counts, st.integers(1, 5), st.integers(0, 99))
def test_fewer_images_of_each_class_keep_their_shifts(classes: int, shifts: int, kept: int, seed: int) -> None:
    """The first images of each class, in the order in which ``per_class`` takes them."""
    ids, labels = images(classes, 6)
    ranked = sorted(range(len(ids)), key=lambda row: seeded_rank(seed, ids[row]))
    first = sorted(row for label in range(classes) for row in [i for i in ranked if labels[i] == label][:kept])
    part = assign([ids[i] for i in first], labels[first], shifts, seed=seed)
    assert (part == assign(ids, labels, shifts, seed=seed)[first]).all()


@pytest.mark.parametrize("count", [7, 23, 50])
def test_a_part_of_the_images_is_a_part_of_the_design_if_classes_have_one_size(count: int) -> None:
    labels = np.random.default_rng(0).permutation(np.arange(60, dtype=np.int32) % 4)
    ids = [f"{i}.png" for i in range(60)]
    pixels = np.zeros((60, 4, 4, 3), np.uint8)
    whole = ArrayDataset("four", LabelSpace("four", tuple("abcd")), pixels, labels, ids=ids)
    part = proportional(whole, count, seed=3)
    everywhere = dict(zip(ids, assign(ids, labels, 9, seed=3).tolist(), strict=True))
    assert assign(part.ids, part.labels, 9, seed=3).tolist() == [everywhere[one] for one in part.ids]


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
        alone = shift.members[shift.assignment.places[image_id]](pixels[row], image_id=image_id, seed=5)
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
