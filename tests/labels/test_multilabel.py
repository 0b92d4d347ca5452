"""Sets of labels, against plain loops."""

from __future__ import annotations

import numpy as np

from shiftbench.labels.space import LabelSpace, multi_hot, relabel_sets, single_labels

FINE = LabelSpace("fine", ("tabby", "lynx", "poodle", "ant"))
COARSE = LabelSpace("coarse", ("dog", "cat"), members=(("poodle",), ("tabby", "lynx")))


def test_random_sets_equal_plain_loops() -> None:
    rng = np.random.default_rng(0)
    sets = [tuple(np.flatnonzero(rng.random(7) < 0.3).tolist()) for _ in range(50)]
    hot = multi_hot(sets, 7)
    assert [[k in own for k in range(7)] for own in sets] == hot.tolist()
    assert single_labels(sets).tolist() == [own[0] if len(own) == 1 else -1 for own in sets]


def test_two_classes_that_become_one_are_one_label() -> None:
    sets = relabel_sets([(0, 1), (0, 2), (3,), ()], FINE, COARSE)
    assert sets == [(1,), (0, 1), (), ()]
    assert single_labels(sets).tolist() == [1, -1, -1, -1]


def test_no_images() -> None:
    assert multi_hot([], 3).shape == (0, 3) and single_labels([]).dtype == np.int32
