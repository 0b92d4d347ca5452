"""What all conformance checks share."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

from shiftbench.conformance import CheckResult, assert_conforms, changed_generators, require, requirement
from shiftbench.errors import MissingExtraError, ShiftError


def test_a_failure_says_what_was_found_and_does_not_stop_the_next() -> None:
    results: list[CheckResult] = []
    with requirement("holds", results) as notes:
        notes += ["first", "second"]
    with requirement("fails", results):
        require(False, "wrong", found=1, expected=2, hint="add one")
    with requirement("raises one of our errors", results):
        raise ShiftError("bad", found=3, expected=4, hint="help")
    with requirement("raises any error", results):
        raise ZeroDivisionError("by zero")
    assert results == [
        CheckResult("holds", True, "first, second"),
        CheckResult("fails", False, "wrong", 1, 2, "add one"),
        CheckResult("raises one of our errors", False, "bad", 3, 4, "help"),
        CheckResult("raises any error", False, "ZeroDivisionError: by zero"),
    ]
    assert results[1].as_dict() == {
        "check": "fails",
        "ok": False,
        "message": "wrong",
        "found": "1",
        "expected": "2",
        "hint": "add one",
    }


def test_a_stop_by_the_user_is_not_a_failure() -> None:
    with pytest.raises(KeyboardInterrupt), requirement("is interrupted", []):
        raise KeyboardInterrupt


def test_a_missing_extra_is_not_a_failure() -> None:
    with pytest.raises(MissingExtraError), requirement("needs a library", []):
        raise MissingExtraError("torch", "torch", "this")


def test_assert_conforms_names_what_is_not_met_and_nothing_else() -> None:
    good = CheckResult("is good", True, "")
    assert_conforms([good])
    with pytest.raises(AssertionError) as raised:
        assert_conforms([good, CheckResult("is fast", False, "too slow", found="9 s", hint="hurry")])
    text = str(raised.value)
    assert "1 of 2" in text and "is fast: too slow" in text and "9 s" in text and "hurry" in text
    assert "is good" not in text


def _seed_torch() -> None:
    import torch

    torch.manual_seed(0)


@pytest.mark.parametrize(
    ("function", "libraries"),
    [
        (random.random, ["Python"]),
        (lambda: random.seed(3), ["Python"]),
        (lambda: np.random.seed(3), ["NumPy"]),  # noqa: NPY002
        (lambda: np.random.default_rng(3).random(), []),
        (_seed_torch, ["torch"]),
    ],
)
def test_every_call_that_draws_or_seeds_is_noticed(function: Callable[[], object], libraries: list[str]) -> None:
    pytest.importorskip("torch")
    for _ in range(2):  # the second call finds the generators as the first has left them
        assert changed_generators(function) == libraries


def test_the_generators_are_left_as_they_were() -> None:
    random.seed(5)
    expected = random.Random(5).random()
    changed_generators(lambda: random.seed(0))
    assert random.random() == expected
