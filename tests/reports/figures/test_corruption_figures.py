"""Severity curves and the heat map of corruption errors, from tables of results and from real runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import shiftbench as sb
from shiftbench.datasets.corruption_names import BENCHMARK_CORRUPTIONS
from shiftbench.errors import UnknownNameError
from shiftbench.metrics.corruption import ALEXNET_CLEAN_ERROR, ALEXNET_ERRORS, Baseline, corruption_errors
from shiftbench.reports.accuracy_grids import ce_table, families_of_table
from shiftbench.reports.figures import corruptions, error_map, error_map_of_run, heatmap, severity_grid
from shiftbench.studies import Results, StudyError
from shiftbench.studies.study import Study
from tests.raised import raises
from tests.reports.figures.looking import check, check_svg, texts
from tests.runs.helpers import COLOURS, brightest_channel, colour_folder

MODELS = ("alexnet", "resnet50", "resnet50_augmix")


def grid_of(models: int = 3, corruptions_: tuple[str, ...] = ("fog", "gaussian_noise", "saturate")) -> Results:
    """Accuracies that fall with severity, in percent."""
    rng = np.random.default_rng(0)
    settings = ["mine", *(f"mine-c.{name}.{severity}" for name in corruptions_ for severity in (1, 3, 5))]
    start = rng.uniform(60, 90, models)[:, None]
    drop = np.array([0.0, *([5.0, 20.0, 40.0] * len(corruptions_))])
    values = start - drop * rng.uniform(0.8, 1.2, (models, len(settings)))
    names = tuple(f"net-{i}" for i in range(models))
    return Results(names, tuple(settings), values, "percent", {name: np.asarray(500.0) for name in settings})


def test_families_and_order() -> None:
    settings = [
        "val",
        "imagenet-c.fog.3",
        "imagenet-c.fog.5_on-disk",
        "mine",
        "mine-c.my_own.1",
        "mine-c.fog.1",
        "v2.1",
        "pgd.l2.eps0.5",
    ]
    assert list(families_of_table(settings)) == ["imagenet-c", "imagenet-c_on-disk", "mine-c"]
    grid = severity_grid(grid_of(), clean="mine")
    assert grid.corruptions == ("gaussian_noise", "fog", "saturate") and grid.severities == (1, 3, 5)
    table = grid_of()
    assert grid.accuracy[1, 1].tolist() == [table.of(f"mine-c.fog.{s}")["net-1"] / 100 for s in (1, 3, 5)]
    assert (grid.low < grid.accuracy).all() and (grid.accuracy < grid.high).all()


@pytest.mark.parametrize(("models", "width"), [(1, "single"), (3, "double"), (8, "single")])
def test_curves(models: int, width: str) -> None:
    grid = severity_grid(grid_of(models), clean="mine")
    figure = corruptions(grid, width=width)
    check(figure)
    assert [axes.get_title() for axes in figure.axes] == ["gaussian noise", "fog", "saturate"]
    x, y = np.asarray(figure.axes[1].lines[0].get_xydata()).T
    assert x.tolist() == [0, 1, 3, 5]
    assert grid.clean is not None
    assert y == pytest.approx(100 * np.append(grid.clean.value[0], grid.accuracy[0, 1]))
    assert len({(line.get_color(), str(line.get_marker())) for line in figure.axes[0].lines}) == models


def test_missing_severities_are_left_out_and_named() -> None:
    results = grid_of()
    values = results.values.copy()
    values[2, 2] = np.nan
    grid = severity_grid(replace(results, values=values))
    figure = corruptions(grid)
    check(figure)
    assert figure.notes == ("not drawn, a value is missing: net-2",)
    errors = error_map(grid)
    assert np.isnan(errors.values[2, [0, 2]]).all() and not np.isnan(errors.values[2, 1])
    cells = heatmap(errors)
    check(cells)
    check_svg(cells)
    assert "–" in texts(cells)


def test_bad_choices() -> None:
    with raises(StudyError, found=9):
        corruptions(severity_grid(grid_of(9)))
    with raises(StudyError, found="families mine-c"):
        severity_grid(grid_of(), family="other-c")
    two = Results(("a",), ("imagenet-c.fog.1", "cifar-10-c.fog.1"), np.array([[50.0, 60.0]]), "percent")
    with raises(StudyError, found="families imagenet-c, cifar-10-c"):
        severity_grid(two)
    with raises(UnknownNameError, name="net-7"):
        severity_grid(grid_of(), models=["net-7"])
    with raises(UnknownNameError, name="alexnet"):
        error_map(severity_grid(grid_of()), "alexnet")
    kinds = tuple(f"kind_{i}" for i in range(60))
    many = {"many": {(kind, severity): f"mine-c.{kind}.{severity}" for kind in kinds for severity in (1, 3, 5)}}
    with raises(StudyError, found="61 columns"):
        heatmap(error_map(severity_grid(grid_of(2, kinds), families=many)), width=5)


def test_errors_are_those_of_the_metric(public: Study) -> None:
    """The testbed's files divided by its own AlexNet, against the metric's arithmetic."""
    grid = severity_grid(public.results, family="imagenet-c_on-disk", models=MODELS)
    errors = error_map(grid, "alexnet")
    by_model = {
        name: {c: (1 - grid.accuracy[i, j]).tolist() for j, c in enumerate(grid.corruptions)}
        for i, name in enumerate(grid.models)
    }
    baseline = Baseline.from_errors("alexnet", by_model["alexnet"])
    for i, name in enumerate(grid.models):
        expected = corruption_errors(by_model[name], baseline=baseline)
        assert errors.values[i, 1:] == pytest.approx([expected[c] for c in grid.corruptions])
        assert errors.values[i, 0] == pytest.approx(np.mean([expected[c] for c in BENCHMARK_CORRUPTIONS]))
    assert errors.columns[0] == "mCE vs alexnet" and len(grid.corruptions) == 19
    figure = heatmap(errors)
    check(figure)
    order = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert order == ["resnet50_augmix", "resnet50", "alexnet"]
    assert texts(figure).count("100") == 20 and "mCE vs alexnet" in texts(figure)
    check(corruptions(severity_grid(public.results, family="imagenet-c_on-disk", models=MODELS, clean="val")))


def test_a_run_over_other_classes_has_plain_errors(tmp_path: Path) -> None:
    """Nothing to divide by; the clean error is no column, though it is called an error, too."""
    colour_folder(tmp_path / "pictures", per_class=6)
    classifier = sb.load_classifier(
        brightest_channel, name="bright", labels=COLOURS, preprocessing=sb.Preprocessing(sb.Geometry(36, 32))
    )
    run = sb.evaluate(
        [classifier],
        "corruptions",
        tmp_path / "pictures",
        tmp_path / "w",
        labels=COLOURS,
        corruptions=["contrast"],
        progress=False,
    )
    errors = error_map_of_run(run)
    assert errors.columns[1:] == ("contrast",) and errors.columns[0].startswith("mean error")
    assert errors.values[0, 0] == errors.values[0, 1]
    check(heatmap(errors, width="single"))


def test_corruption_errors_of_a_table() -> None:
    """Models whose errors are shares of AlexNet's: CE is that share, whoever divides."""
    places = [(c, s) for c in BENCHMARK_CORRUPTIONS for s in range(1, 6)]
    shares = {"alexnet": 1.0, "good": 0.5, "some": 0.8}
    clean = {name: 1 - share * ALEXNET_CLEAN_ERROR for name, share in shares.items()}
    values = [[clean[m], *(1 - share * ALEXNET_ERRORS[c][s - 1] for c, s in places)] for m, share in shares.items()]
    values[2][1] = np.nan
    settings = ("val", *(f"imagenet-c.{c}.{s}" for c, s in places))
    grid = severity_grid(Results(tuple(shares), settings, np.array(values), "fraction"), clean="val")
    for options in ({}, {"relative": True}, {"baseline": "alexnet"}, {"baseline": "alexnet", "relative": True}):
        table = ce_table(grid, **options)
        assert [row["model"] for row in table.rows] == ["good", "alexnet"]
        assert [row["mean"] for row in table.rows] == pytest.approx([0.5, 1.0])
        assert table.rows[0]["fog"] == pytest.approx(0.5)
        assert any("some" in note for note in table.notes)
        expected = "relative mCE" if options.get("relative") else "mCE"
        if "baseline" in options:
            expected += " vs alexnet"
        assert table.columns[1].heading == expected
    first = Results(tuple(shares), settings[1::5], np.array(values)[:, 1::5], "fraction")
    assert ce_table(severity_grid(first)).columns[1].heading == "mean CE at 1"
    with pytest.raises(StudyError, match="without corruption"):
        ce_table(replace(grid, clean=None), relative=True)
