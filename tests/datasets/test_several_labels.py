"""Data sets whose images have several labels, and parts of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from shiftbench.datasets.stored import FileDataset
from shiftbench.datasets.subset import of_classes, per_class, take, with_classes
from shiftbench.labels.space import LabelSets, LabelSpace, single_labels
from tests.datasets.makers import assert_conforms, png

ANIMALS = LabelSpace("animals", ("ant", "bee", "cat"))
SETS: list[tuple[int, ...]] = [(0,), (0, 1), (2,), (1, 2)]


@pytest.fixture
def pictures(tmp_path: Path) -> FileDataset:
    return make(tmp_path, SETS)


def make(root: Path, sets: LabelSets | None) -> FileDataset:
    names = [f"{i}.png" for i in range(len(SETS))]
    for i, name in enumerate(names):
        (root / name).write_bytes(png(i))
    return FileDataset("zoo", ANIMALS, root, names, single_labels(SETS).tolist(), label_sets=sets)


def test_it_conforms(pictures: FileDataset) -> None:
    assert_conforms(pictures)


def test_other_labels_of_the_same_pictures_are_another_data_set(tmp_path: Path) -> None:
    """Both have no one label: only the sets tell them apart."""
    one = make(tmp_path, SETS)
    other = make(tmp_path, [(0,), (0, 2), (2,), (1, 2)])
    none = make(tmp_path, None)
    assert len({one.fingerprint, other.fingerprint, none.fingerprint}) == 3
    assert make(tmp_path, SETS).fingerprint == one.fingerprint


def test_parts_keep_all_labels(pictures: FileDataset) -> None:
    assert take(pictures, [3, 0]).label_sets == [(1, 2), (0,)]
    assert with_classes(pictures, ["bee"]).ids == ["1.png", "3.png"]
    chosen = of_classes(pictures, LabelSpace("some", ("cat", "bee")))
    assert chosen.ids == ["1.png", "2.png", "3.png"]
    assert chosen.label_sets == [(1,), (0,), (0, 1)] and chosen.labels.tolist() == [1, 0, -1]


def test_so_many_of_each_class_counts_every_label(pictures: FileDataset) -> None:
    chosen = per_class(pictures, 1)
    assert chosen.label_sets is not None
    assert {label for own in chosen.label_sets for label in own} == {0, 1, 2}
    assert per_class(pictures, 2).ids == pictures.ids
