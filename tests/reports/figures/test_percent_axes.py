"""Ticks for any range on any scale, and the edges."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shiftbench.reports.figures.axes import PercentAxis, percent_text
from shiftbench.studies.base import get_scale

ACCURACIES = st.lists(st.floats(0, 1), min_size=1, max_size=20)


@settings(deadline=None, max_examples=60)
@given(values=ACCURACIES, scale=st.sampled_from(["logit", "probit", "linear"]), most=st.integers(4, 12))
def test_any_accuracies_get_an_axis(values: list[float], scale: str, most: int) -> None:
    axis = PercentAxis.around(get_scale(scale), np.array(values))
    assert np.isfinite([axis.low, axis.high]).all() and axis.low < axis.high
    places = axis.place(np.array(values))
    assert ((places >= axis.low) & (places <= axis.high)).all()
    ticks = axis.scale.forward(axis.ticks(most))
    assert ((ticks >= axis.low - 1e-9) & (ticks <= axis.high + 1e-9)).all() and len(ticks) <= most + 1
    assert all(b - a >= (axis.high - axis.low) / (most + 1) for a, b in itertools.pairwise(ticks))


@pytest.mark.parametrize(
    ("scale", "low", "high", "shown"),
    [
        ("logit", 0.55, 0.88, ["55", "60", "65", "70", "75", "80", "85"]),
        ("logit", 0.95, 0.997, ["95", "98", "99", "99.5"]),
        ("probit", 0.01, 0.9, ["1", "5", "10", "30", "50", "70", "90"]),
        ("linear", 0.0, 1.0, ["0", "10", "20", "30", "40", "50", "60", "70", "80", "90", "100"]),
        ("linear", 0.901, 0.934, ["90", "90.5", "91", "91.5", "92", "92.5", "93", "93.5"]),
    ],
)
def test_ticks_are_round(scale: str, low: float, high: float, shown: list[str]) -> None:
    axis = PercentAxis.around(get_scale(scale), np.array([low, high]))
    assert [percent_text(fraction) for fraction in axis.ticks(12)] == shown


def test_edges_and_thresholds() -> None:
    axis = PercentAxis.around(get_scale("logit"), np.array([0.0, 0.4, 0.6, 1.0]))
    assert axis.place(np.array([0.0, 1.0])).tolist() == [axis.low, axis.high]
    assert axis.place(np.array([0.5])) == pytest.approx([0.0])
    begun = PercentAxis.around(get_scale("logit"), np.array([0.7, 0.9]), least=0.55)
    assert begun.low < get_scale("logit").forward(np.array([0.55]))[0]
    none = PercentAxis.around(get_scale("probit"), np.array([0.0, 1.0]))
    assert none.low < 0 < none.high
    assert percent_text(-0.0) == "0" and percent_text(0.1 + 0.2) == "30"
