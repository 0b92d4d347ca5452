"""Every kind of shift is made again from its record, and from what version 0.1 stored of it."""

from __future__ import annotations

import json

import numpy as np
import pytest

from shiftbench.arrays import Pixels
from shiftbench.errors import ShiftError
from shiftbench.shifts.attacks.attack import ATTACKS, fgsm
from shiftbench.shifts.attacks.autoattack import AutoAttack
from shiftbench.shifts.base import NoShift, Shift, rebuild_shift, shift_kinds
from shiftbench.shifts.compose import Greyscale, ThenJpeg
from shiftbench.shifts.corruptions.api import Corruption
from shiftbench.shifts.corruptions.catalogue import corruptions
from shiftbench.shifts.perturbations import frames_of
from tests.raised import raises

SHIFTS: list[Shift] = [
    NoShift(),
    Greyscale(),
    *(Corruption(name, severity) for name in corruptions("all") for severity in (1, 2.5)),
    Corruption("frost", 3, {"frost_textures": "procedural"}),
    Corruption("glass_blur", 2, {"true_swap": True}),
    ThenJpeg(Corruption("fog", 3)),
    *frames_of("rotate")[5:7],
    *ATTACKS.values(),
    fgsm("mine", "l2", 0.3),
    AutoAttack("auto", "linf", 0.01),
]


@pytest.mark.parametrize("shift", SHIFTS, ids=lambda shift: shift.name)
def test_a_shift_is_made_again(shift: Shift) -> None:
    record, description = (json.loads(json.dumps(value)) for value in (shift.record(), shift.describe()))
    assert rebuild_shift(record, description) == shift
    assert rebuild_shift(description, description).describe() == shift.describe()
    assert record["shift"] in shift_kinds and shift.kind == description["shift"]


def test_other_jpeg_qualities_need_a_record() -> None:
    shift = ThenJpeg(Corruption("fog", 3), 60)
    assert rebuild_shift(shift.record(), shift.describe()) == shift
    with raises(ShiftError, found="another then"):
        rebuild_shift(shift.describe(), shift.describe())


def test_another_generator_or_an_unknown_kind_gives_no_pixels() -> None:
    fog = Corruption("fog", 3).describe()
    frost = Corruption("frost", 3, {"frost_textures": "procedural"}).describe()
    for about, change in ((fog, {"generator": "0"}), (frost, {"frost": {"textures": "procedural v0"}})):
        with pytest.raises(ShiftError, match=f"another {next(iter(change))}"):
            rebuild_shift(about, {**about, **change})
    with pytest.raises(ShiftError, match="no shift of kind"):
        rebuild_shift({"shift": "unheard of"})


def test_a_new_kind_is_one_class_and_one_builder(monkeypatch: pytest.MonkeyPatch) -> None:
    class Negative(Shift):
        name = "negative"

        def __call__(self, image: Pixels, *, image_id: str, seed: int) -> Pixels:
            return np.asarray(255 - image)

        def describe(self) -> dict[str, str]:
            return {"shift": "negative"}

    monkeypatch.setitem(shift_kinds._items, "negative", lambda record: Negative())
    assert rebuild_shift(Negative().record(), Negative().describe()).name == "negative"
