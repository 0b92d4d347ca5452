"""Subsets: by class, by count, by sample, by index."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from shiftbench.datasets import Dataset, DecodedImage, from_arrays, of_classes, per_class, sample, take, with_classes
from shiftbench.datasets.subset import in_turns, proportional, rows_of
from shiftbench.datasets.subset import testbed_tenth as listed_tenth
from shiftbench.errors import DatasetError, LabelError, SettingError
from shiftbench.io.hashing import seeded_rank
from shiftbench.labels import label_space
from shiftbench.settings import Selection
from tests.datasets.makers import assert_conforms, class_folders, small_images
from tests.raised import raises


def cifar(count: int = 100) -> Dataset:
    return from_arrays(small_images(count), np.arange(count) % 10, space="cifar-10")


def test_by_class_and_relabelled(tmp_path: Path) -> None:
    from shiftbench.datasets import open_dataset

    keys = label_space("imagenet-a-200").keys
    class_folders(tmp_path, [keys[3], keys[7], "n01440764"])
    dataset = open_dataset(tmp_path)
    part = of_classes(dataset, label_space("imagenet-a-200"), name="val-on-imagenet-a-classes")
    assert len(part) == 4 and part.labels.tolist() == [3, 3, 7, 7]
    assert part.space.name == "imagenet-a-200" and part.name == "val-on-imagenet-a-classes"
    assert_conforms(part)
    with raises(LabelError, found="classes of 'imagenet-1k' such as n01440764", expected="classes such as airplane"):
        of_classes(dataset, label_space("cifar-10"))


def test_by_key_keeps_the_space() -> None:
    part = with_classes(cifar(), ["frog", "cat"])
    assert set(part.labels.tolist()) == {3, 6} and len(part) == 20 and part.space.name == "cifar-10"


def test_unlabelled_images_stay_unlabelled() -> None:
    dataset = from_arrays(small_images(4), np.array([-1, 0, 1, -1]), space="cifar-10")
    assert take(dataset, [0, 1]).labels.tolist() == [-1, 0]
    assert len(of_classes(dataset, label_space("cifar-10"))) == 2
    assert len(per_class(dataset, 5)) == 2


def test_per_class_and_sample() -> None:
    dataset = cifar()
    part = per_class(dataset, 3, seed=1)
    assert Counter(part.labels.tolist()) == dict.fromkeys(range(10), 3)
    assert list(part.ids) == sorted(part.ids)
    assert list(per_class(dataset, 3, seed=2).ids) != list(part.ids)
    assert len(per_class(dataset, 99)) == 100 and len(sample(dataset, 999)) == 100


@settings(max_examples=30, deadline=None)
@given(small=st.integers(0, 60), more=st.integers(0, 40), seed=st.integers(0, 2**63))
def test_samples_are_nested_and_repeatable(small: int, more: int, seed: int) -> None:
    dataset = cifar()
    first = sample(dataset, small, seed=seed)
    larger = sample(dataset, small + more, seed=seed)
    assert len(first) == small
    assert set(first.ids) <= set(larger.ids)
    assert list(sample(dataset, small, seed=seed).ids) == list(first.ids)


def test_a_sample_does_not_depend_on_the_order() -> None:
    dataset = cifar()
    backwards = take(dataset, list(range(99, -1, -1)))
    assert set(sample(dataset, 10, seed=4).ids) == set(sample(backwards, 10, seed=4).ids)


def test_this_sample_for_ever() -> None:
    assert list(sample(cifar(), 5, seed=0).ids) == GOLDEN


GOLDEN = ["00027", "00053", "00075", "00097", "00098"]


def test_repetition_gets_ids_of_its_own() -> None:
    part = take(cifar(), [5, 5, 2, 5])
    assert list(part.ids) == ["00005", "00005#2", "00002", "00005#3"]
    np.testing.assert_array_equal(part.read(0).pixels, part.read(3).pixels)
    assert_conforms(part)
    assert rows_of(cifar(), part.ids) == [5, 5, 2, 5]
    assert rows_of(part, ["00005#2", "00005#2#2", "elsewhere"]) == [1, 1, -1]  # of an id that looks like a copy


def test_the_10_percent_list_of_the_testbed(reference_data: Path) -> None:
    lists = json.loads((reference_data / "imagenet-testbed" / "metadata" / "subsample_lists.json").read_text())
    indices = next(v for v in lists.values() if len(v) == 5000)
    labels = np.arange(1000).repeat(50)
    validation = from_arrays(np.zeros((50_000, 1, 1, 3), dtype=np.uint8), labels)
    part = take(validation, indices, name="val_10percent")
    assert len(part) == 5000 == len(set(part.ids))
    assert len({image_id.split("#")[0] for image_id in part.ids}) == 4799
    assert Counter(part.labels.tolist()) == dict.fromkeys(range(1000), 5)


def test_indices_outside() -> None:
    with raises(DatasetError, found=100, expected="0 to 99"):
        take(cifar(), [100])
    with raises(DatasetError, found=-1, expected="0 to 99"):
        take(cifar(), [-1])


def test_fingerprint_is_of_the_content() -> None:
    dataset = cifar()
    whole = take(dataset, range(100))
    assert whole.fingerprint == dataset.fingerprint
    assert take(whole, [1, 2]).fingerprint == take(dataset, [1, 2]).fingerprint
    assert take(dataset, [2, 1]).fingerprint != take(dataset, [1, 2]).fingerprint


def test_metadata_follows() -> None:
    from shiftbench.datasets.arrays import ArrayDataset

    years = [1990 + i for i in range(4)]
    dataset = ArrayDataset("dated", label_space("cifar-10"), small_images(4), [0, 1, 2, 3], metadata={"year": years})
    assert take(dataset, [3, 0]).metadata == {"year": [1993, 1990]}


class Foreign(Dataset):
    """A third party's, with a fingerprint but no digests."""

    def __init__(self) -> None:
        self.name = "foreign"
        self.space = label_space("cifar-10")
        self.ids = ["a", "b"]
        self.labels = np.array([0, 1], dtype=np.int32)

    @property
    def fingerprint(self) -> str:
        return "0123456789abcdef"

    def read(self, index: int) -> DecodedImage:
        return DecodedImage(np.full((4, 4, 3), [10, 20][index], dtype=np.uint8))


def test_of_a_third_partys_data_set() -> None:
    part = take(Foreign(), [1])
    assert part.fingerprint != take(Foreign(), [0]).fingerprint
    assert_conforms(part)


def test_the_list_of_the_testbed(reference_data: Path) -> None:
    """Against the released list of positions in ImageNet's 50,000 validation images, class by class."""
    space = label_space("imagenet-1k")
    order = np.random.default_rng(0).permutation(50_000)
    labels = (np.arange(50_000) // 50)[order]
    ids = [f"{space.keys[i // 50]}/ILSVRC2012_val_{i:08}.JPEG" for i in order]
    whole = from_arrays(np.zeros((50_000, 1, 1, 3), np.uint8), labels, space=space)
    whole.ids = ids
    chosen = listed_tenth(whole)
    lists = json.loads((reference_data / "imagenet-testbed" / "metadata" / "subsample_lists.json").read_text())
    expected = [f"{space.keys[i // 50]}/ILSVRC2012_val_{i:08}.JPEG" for i in lists["idx_subsample_list_50k_10percent"]]
    assert chosen is not None and [name.partition("#")[0] for name in chosen.ids] == expected
    assert len(set(expected)) == 4799 and len(set(chosen.ids)) == 5000
    assert listed_tenth(take(whole, range(49_999))) is None
    assert Selection(subset="testbed-10percent").of(take(whole, range(100))).ids == ids[:100]
    with raises(SettingError, found="tenth", expected="testbed-10percent"):
        Selection(subset="tenth")


def unequal(sizes: list[int]) -> Dataset:
    """A dataset with this many images of each class."""
    labels = np.repeat(np.arange(len(sizes)), sizes)
    return from_arrays(small_images(len(labels)), labels, space="cifar-10")


@given(st.lists(st.integers(1, 40), min_size=2, max_size=10), st.integers(1, 60), st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_every_class_has_its_share_to_within_one_image(sizes: list[int], count: int, seed: int) -> None:
    dataset = unequal(sizes)
    count = min(count, len(dataset))
    drawn = np.bincount(proportional(dataset, count, seed=seed).labels, minlength=len(sizes))
    shares = np.array(sizes) / len(dataset)
    assert drawn.sum() == count
    # The share that is drawn of any class differs by less than one of its images from that of another.
    drawn_share = drawn / np.array(sizes)
    slack = 1 / np.array(sizes)
    assert ((drawn_share - slack)[:, None] <= (drawn_share + slack)[None] + 1e-12).all()
    assert (abs(drawn - count * shares) < 2 + len(sizes) * shares).all()


def test_all_images_are_equally_likely_whatever_the_size_of_their_class() -> None:
    dataset = unequal([1, 2, 3, 10, 44])
    drawn = np.zeros(len(dataset))
    position = {image_id: row for row, image_id in enumerate(dataset.ids)}
    draws = 1500
    for seed in range(draws):
        drawn[[position[image_id] for image_id in proportional(dataset, 15, seed=seed).ids]] += 1
    standard_error = np.sqrt(0.25 * 0.75 / draws)
    assert abs(drawn / draws - 0.25).max() < 5 * standard_error


@given(st.integers(1, 60), st.integers(0, 99))
@settings(max_examples=20, deadline=None)
def test_classes_of_one_size_take_turns(count: int, seed: int) -> None:
    dataset = cifar(60)
    ranks = [seeded_rank(seed, image_id) for image_id in dataset.ids]
    in_order = in_turns(ranks, dataset.labels.tolist())
    expected = [dataset.ids[row] for row in sorted(in_order[:count])]
    assert list(proportional(dataset, count, seed=seed).ids) == expected


def test_images_without_a_label_are_not_drawn() -> None:
    dataset = from_arrays(small_images(4), np.array([-1, 0, 1, -1]), space="cifar-10")
    assert proportional(dataset, 4).labels.tolist() == [0, 1]
