"""The heat map of correlations: every number, and grey where 0 is possible."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.collections import QuadMesh
from matplotlib.colors import to_hex

from shiftbench.reports.figures import correlations
from shiftbench.reports.figures.style import GREY
from shiftbench.studies import StudyError, correlate
from shiftbench.studies.fits import Correlation
from shiftbench.studies.study import ShiftCorrelation, Study
from shiftbench.studies.testbed import NATURAL, synthetic
from tests.reports.figures.looking import check


def pair(slope: float, n: int = 30) -> Correlation:
    rng = np.random.default_rng(n)
    x = rng.normal(size=n)
    return correlate(x, slope * x + rng.normal(size=n))


@pytest.mark.parametrize("rank", [False, True])
def test_cells(rank: bool) -> None:
    pairs = [
        ShiftCorrelation("noise", "v2", pair(3.0)),
        ShiftCorrelation("noise", "r", pair(-3.0)),
        ShiftCorrelation("blur", "v2", pair(0.0)),
        ShiftCorrelation("blur", "r", pair(1, 3)),
    ]
    figure = correlations(pairs, rank=rank)
    check(figure)
    [axes] = figure.axes
    shown = {(round(t.get_position()[1] - 0.5), round(t.get_position()[0] - 0.5)): t for t in axes.texts}
    for place, (_, _, one) in zip([(0, 0), (0, 1), (1, 0), (1, 1)], pairs, strict=True):
        value = one.spearman if rank else one.pearson
        assert shown[place].get_text() == f"{value:+.2f}"
        # Three models have no interval, so their correlation may be anything.
        assert (to_hex(str(shown[place].get_color())).upper() == GREY) == (place[0] == 1)
    [mesh] = [collection for collection in axes.collections if isinstance(collection, QuadMesh)]
    values = np.ma.masked_array(mesh.get_array()).reshape(2, 2)
    assert values.mask.tolist() == [[False, False], [True, True]]
    assert "grey: the 95 % interval holds 0" in figure.notes


def test_nothing_to_draw() -> None:
    with pytest.raises(StudyError, match="no correlations"):
        correlations([])


def test_every_measure_of_001_appendix_i(public: Study) -> None:
    """45 synthetic measures by 7 natural shifts fit on one column of a page; 0.24 and -0.05 in 001."""
    rows = synthetic(public.results)
    pairs = public.correlations(rows, NATURAL)
    figure = correlations(pairs)
    check(figure)
    assert figure.get_figheight() * 2.54 < 24 and len(rows) == 45
    [axes] = figure.axes
    cells = {(t.get_position()[1], t.get_position()[0]): t.get_text() for t in axes.texts}
    named = {(name, second): cells[rows.index(name) + 0.5, NATURAL.index(second) + 0.5] for name, second, _ in pairs}
    assert named["avg_corruptions", "imagenetv2"] == "+0.25"
    assert named["avg_pgd", "imagenetv2"] in ("-0.04", "-0.05")
