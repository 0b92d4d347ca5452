"""The testbed's published numbers (001) from its public table."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import linregress

from shiftbench.published.tables import PublishedValue, published
from shiftbench.studies import Fit, PiecewiseFit, Results
from shiftbench.studies.scales import logit
from shiftbench.studies.study import Study
from shiftbench.studies.testbed import NATURAL, SHIFTS, corruption_means, default_sizes, synthetic, with_aggregates

V2 = "imagenetv2-matched-frequency-format-val"


def test_imagenetv2_line_is_the_published_one(testbed: Study) -> None:
    line = testbed.fit("val", V2, min_x=55)
    assert isinstance(line, Fit) and line.n == 78
    assert (round(line.slope, 4), round(line.intercept, 4), round(line.r2, 4)) == (0.9217, -0.4947, 0.9965)
    assert line.slope_interval is not None
    assert [round(end, 3) for end in line.slope_interval] == [0.907, 0.934]


@pytest.mark.parametrize("setting", [row.setting for row in published("001", metric="r2")])
def test_r2_as_stated(testbed: Study, setting: str) -> None:
    shift = next(shift for shift in SHIFTS.values() if shift.y == setting)
    line = testbed.fit(shift.x, shift.y, min_x=shift.min_x, resamples=0)
    [stated] = published("001", metric="r2", setting=setting)
    assert isinstance(line, Fit) and stated.agrees(line.r2)


@pytest.mark.parametrize(
    "row",
    [row for row in published("001", metric="rho") if not row.model.startswith("(")],
    ids=lambda row: f"{row.model}-{row.setting}",
)
def test_effective_robustness_as_stated(testbed: Study, row: PublishedValue) -> None:
    shift = next(shift for shift in SHIFTS.values() if shift.y == row.setting)
    rho = testbed.effective(shift.x, shift.y, min_x=shift.min_x, resamples=0).rho[row.model]
    assert row.agrees(rho / 100)


def test_adversarially_robust_models_as_stated(testbed: Study) -> None:
    """On ImageNet-Vid-Robust, mean rho over all of them, mean tau over the ResNet-50s that the plot shows.

    For YTBB-Robust 001 states 4.9 and -0.7 where the released table gives 4.7 and, over the same choice, -2.1.
    """
    assert testbed.models is not None
    robust = [m for m, info in testbed.models.items() if info.extra["category_detail"] == "LP_ADV"]
    x, y = "imagenet-vid-robust_pm0", "imagenet-vid-robust_pm10"
    rho, tau, shown = testbed.effective(x, y, resamples=0).rho, testbed.relative(y).tau, testbed.results.of(x)
    assert np.mean([rho[m] for m in robust]) == pytest.approx(6.7, abs=0.05)
    resnets = [tau[m] for m in robust if m.startswith("resnet50") and shown[m] >= 49]
    assert np.mean(resnets) == pytest.approx(-8.5, abs=0.05)


def test_imagenet_r_as_stated(testbed: Study) -> None:
    rho = testbed.effective("val-on-imagenet-r-classes", "imagenet-r", min_x=75, resamples=0).rho
    assert max(rho.values()) == pytest.approx(29.1, abs=0.05)
    assert rho["efficientnet-b8-advprop-autoaug"] == pytest.approx(7.5, abs=0.05)
    assert testbed.results.of("imagenet-r")["efficientnet-b8-advprop-autoaug"] == pytest.approx(57.8, abs=0.05)


def test_corruptions_predict_v2_weakly_as_stated(testbed: Study) -> None:
    found = testbed.correlate(testbed.shift("corruptions"), testbed.shift("imagenetv2"))
    [stated] = published("001", setting=f"avg_corruptions x {V2}")
    assert found.n == 120 and stated.agrees(found.pearson)
    assert found.pearson_interval is not None and found.pearson_interval.low < found.pearson
    attacks = testbed.correlate(testbed.shift("pgd"), testbed.shift("imagenetv2"))
    # -0.05 in the paper; -0.04 from the table released later.
    assert attacks.pearson == pytest.approx(-0.05, abs=0.015)


def test_imagenet_a_has_its_knee_at_resnet50(testbed: Study) -> None:
    shift = testbed.shift("imagenet-a")
    knee = testbed.fit(shift.x, shift.y, min_x=shift.min_x, pivot=shift.pivot, resamples=0)
    assert isinstance(knee, PiecewiseFit) and round(knee.pivot, 2) == 91.86 and "resnet50" in knee.notes[0]
    x, y = testbed.results.column(shift.x), testbed.results.column(shift.y)
    for side, line in ((x < knee.pivot, knee.below), (x > knee.pivot, knee.above)):
        chosen = testbed.baseline & side & (x >= 75)
        expected = linregress(logit(x[chosen] / 100), logit(y[chosen] / 100))
        assert (line.slope, line.intercept) == pytest.approx((expected.slope, expected.intercept))
    plain = testbed.fit(shift.x, shift.y, resamples=0)
    assert any("resnet50" in note for note in plain.notes)


def test_aggregates(testbed_results: Results) -> None:
    means = corruption_means(testbed_results)
    assert len(means) == 37
    parts = [*means.values(), testbed_results.column("stylized_imagenet"), testbed_results.column("greyscale")]
    every = with_aggregates(testbed_results)
    assert every.column("avg_corruptions") == pytest.approx(np.mean(parts, axis=0), nan_ok=True)
    fog = [testbed_results.column(f"imagenet-c.fog.{s}_on-disk") for s in range(1, 6)]
    assert every.column("fog_on-disk") == pytest.approx(np.mean(fog, axis=0), nan_ok=True)
    attacks = [testbed_results.column(s) for s in testbed_results.settings if s.startswith("pgd.")]
    assert len(attacks) == 4 and every.column("avg_pgd") == pytest.approx(np.mean(attacks, axis=0), nan_ok=True)


def test_every_column_fits_or_says_why(testbed: Study) -> None:
    """No nan that goes unnoticed, over the whole grid."""
    for setting in testbed.results.settings:
        if setting == "val":
            continue
        result = testbed.effective("val", setting, resamples=0)
        assert isinstance(result.line, Fit)
        assert np.isfinite([result.line.slope, result.line.intercept, result.line.r2, *result.rho.values()]).all()
        lost = int((testbed.baseline & np.isnan(testbed.results.column(setting))).sum())
        assert result.line.n + lost == 78 - (setting == "imagenet-a")
        assert bool(result.line.notes) == (result.line.n < 78)


def test_every_synthetic_measure_against_every_natural_one(testbed: Study) -> None:
    """Appendix I's table: Lp robustness goes with consistency, no measure goes with everything."""
    measures = synthetic(testbed.results)
    assert len(measures) == 37 + 4 + 4
    found = {(a, b): one for a, b, one in testbed.correlations(measures, NATURAL)}
    assert len(found) == len(measures) * 7
    direct = testbed.correlate(testbed.shift("corruptions"), testbed.shift("objectnet"))
    assert found["avg_corruptions", "objectnet"].pearson == direct.pearson
    means = {b: np.mean([found[a, b].pearson for a in measures if a.startswith("pgd.")]) for b in NATURAL}
    assert min(means["vid-pm10"], means["ytbb-pm10"]) > max(means["imagenetv2"], means["objectnet"])
    assert all(min(found[a, b].pearson for b in NATURAL) < 0.5 for a in measures)


def test_aggregates_and_sizes_need_the_whole_testbed(testbed_results: Results) -> None:
    part = Results(("a",), ("val", "greyscale"), np.array([[70.0, 60.0]]), "percent")
    assert with_aggregates(part) is part and default_sizes(part).sizes == {}
    fog = {f"imagenet-c.fog.{s}_on-disk": np.array([float(s)]) for s in range(1, 6)}
    assert with_aggregates(part.with_columns(fog)).of("fog_on-disk") == {"a": 3.0}
    assert "avg_corruptions" not in with_aggregates(part.with_columns(fog)).settings
    sizes = {name: float(n) for name, n in default_sizes(testbed_results).sizes.items()}
    assert (sizes["val"], sizes["imagenet-sketch"], sizes["imagenet-a"]) == (50_000, 50_889, 7_500)
