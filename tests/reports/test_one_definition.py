"""One divisor for each family of corrupted settings and one line through its models, whichever command shows them."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit, logit

import shiftbench as sb
from shiftbench.datasets.corruption_names import BENCHMARK_CORRUPTIONS
from shiftbench.metrics.corruption import ALEXNET, published_baseline
from shiftbench.published.reproduce import reproduce, sources
from shiftbench.reports.accuracy_grids import ce_table, error_map, error_map_of_run, severity_grid
from shiftbench.reports.figures.mce import error_points, error_points_of_run
from shiftbench.reports.page.answer import line_of
from shiftbench.reports.page.sections.corruptions import CorruptionFamily
from shiftbench.reports.summary import summarise
from shiftbench.settings.base import Member
from shiftbench.studies.fits import Fit
from shiftbench.studies.results import Results, read_results
from tests.commands import answer
from tests.reports.page.making import grid_of, page_of
from tests.reports.recorded import record

#: ResNet-50's mCE in the testbed's own evaluation, computed from its table apart from this package.
RESNET50 = {"imagenet-c_on-disk": 76.5, "imagenet-c_in-memory": 74.0}


@pytest.fixture(scope="module")
def table(reference_data: Path) -> Results:
    return read_results(reference_data / "imagenet-testbed" / "results_204x213.csv")


@pytest.mark.parametrize("family", RESNET50)
def test_the_testbed_is_divided_by_its_own_alexnet(family: str, table: Results) -> None:
    grid = severity_grid(table, family=family, clean="val")
    baseline = published_baseline(family)
    alexnet = grid.accuracy[grid.models.index("alexnet")]
    for corruption, accuracies in zip(grid.corruptions, alexnet.tolist(), strict=True):
        errors = [baseline.errors[corruption][severity] for severity in grid.severities]
        assert errors == pytest.approx([1 - accuracy for accuracy in accuracies], abs=1e-6)
    assert baseline.clean_error() == pytest.approx(ALEXNET.clean_error())


@pytest.mark.parametrize("family", RESNET50)
def test_tables_reports_and_figures_give_the_same_number(family: str, table: Results) -> None:
    grid = severity_grid(table, family=family, clean="val")
    shown = {row["model"]: row["mean"] for row in ce_table(grid).rows}
    errors = error_map(grid)
    drawn = dict(zip(errors.models, errors.values[:, 0].tolist(), strict=True))
    points = error_points(grid)
    assert round(100 * shown["resnet50"], 1) == RESNET50[family]
    assert shown["alexnet"] == pytest.approx(1, abs=1e-6)
    assert drawn["resnet50"] == pytest.approx(shown["resnet50"])
    mce = next(iter(points.series.values()))
    assert mce.value[points.models.index("resnet50")] == pytest.approx(100 * shown["resnet50"])
    assert all("published" not in name and "testbed" in name for name in points.series)


def test_the_figure_of_a_workspace_has_accuracies_without_corruption(tmp_path: Path) -> None:
    record(tmp_path / "w", "val", 1000, 760)
    for severity in (1, 2, 3, 4, 5):
        name = f"imagenet-c.fog.{severity}"
        member = Member("imagenet-c", "fog", severity)
        record(tmp_path / "w", name, 1000, 700 - 50 * severity, reference="val", member=member, source="on-disk")
    points = error_points_of_run(sb.Run.open(tmp_path / "w"))
    assert points.x.value.tolist() == pytest.approx([76.0])


def test_models_of_one_fingerprint_have_their_own_scores(tmp_path: Path) -> None:
    """The recorded fingerprint is of the first six letters, as that of two functions may be of the same code."""
    for model, hits in (("resnet50", 760), ("resnet101", 780)):
        record(tmp_path / "w", "val", 1000, hits, model=model)
    run = sb.Run.open(tmp_path / "w")
    run.scores()
    scores = {model: score.value for model, _, score in run.scores()}
    assert scores == pytest.approx({"resnet50": 0.76, "resnet101": 0.78})


#: Accuracies of networks that the testbed has, in percent; the first eight are its standard models.
NETWORKS = {
    "alexnet": 56.0,
    "vgg11": 69.0,
    "vgg16": 72.0,
    "resnet18": 69.8,
    "resnet34": 73.4,
    "resnet50": 76.0,
    "resnet101": 77.4,
    "resnet152": 78.4,
    "resnet50_augmix": 77.6,
    "resnet50_with_greyscale_aws": 71.2,
}
STANDARD = list(NETWORKS)[:8]
IMAGES = 400


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten networks of the testbed on two settings of it; one of them under the corruptions of two families."""
    root = tmp_path_factory.mktemp("one") / "w"
    draws = np.random.default_rng(34)
    for model, percent in NETWORKS.items():
        hits = round(IMAGES * percent / 100)
        record(root, "val", IMAGES, hits, model=model)
        record(root, "greyscale", IMAGES, hits - int(draws.integers(30, 60)), model=model, reference="val")
    for family in ("imagenet-c", "imagenet-c_on-disk"):
        for name in BENCHMARK_CORRUPTIONS:
            for severity in range(1, 6):
                setting = f"imagenet-c.{name}.{severity}{family.removeprefix('imagenet-c')}"
                hits = round(IMAGES * float(draws.uniform(0.1, 0.7)))
                member = Member(family, name, float(severity))
                record(root, setting, IMAGES, hits, model="resnet50", reference="val", member=member, source="on-disk")
    return root


def own_errors(run: sb.Run, family: str) -> dict[str, list[float]]:
    """The errors of ResNet-50 by corruption and severity, read from the stored predictions themselves."""
    suffix = family.removeprefix("imagenet-c")
    errors: dict[str, list[float]] = {}
    for name in BENCHMARK_CORRUPTIONS:
        for severity in range(1, 6):
            predictions = run.predictions(setting=f"imagenet-c.{name}.{severity}{suffix}")
            errors.setdefault(name, []).append(1 - float((predictions.top[:, 0] == predictions.labels).mean()))
    return errors


@pytest.mark.parametrize("family", ["imagenet-c", "imagenet-c_on-disk"])
def test_the_mce_of_a_workspace_is_one_number(
    family: str, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables, figures, the report, the summary after eval and reproduce agree with a sum by hand in every digit."""
    run = sb.Run.open(workspace, ["resnet50"])
    errors = own_errors(run, family)
    alexnet = published_baseline(family)
    ratios = []
    for name, values in errors.items():
        ratios.append(sum(values) / sum(alexnet.errors[name][severity] for severity in range(1, 6)))
    by_hand = float(np.mean(ratios))

    shown: dict[str, float] = {}
    for score in answer("table", "-w", workspace, "--mce", "-c", "resnet50")["scores"]:
        if score["setting"] == family and score["metric"].startswith("mCE"):
            shown["table --mce"] = score["value"]
    shown["table --mce -r"] = mce_of_a_table(run, family, errors, tmp_path)
    points = error_points_of_run(run, family)
    shown["figure mce"] = next(iter(points.series.values())).value[0] / 100
    shown["figure heatmap"] = float(error_map_of_run(run, family).values[0, 0])
    [corruptions] = [entry for entry in summarise(run).models[0].corruptions if entry.family == family]
    assert corruptions.mce is not None
    shown["eval"] = corruptions.mce.value
    shown["report"] = mce_of_the_report(run, family)
    if family == "imagenet-c":  # the released files, as the papers print them
        shown["reproduce"] = reproduced_mce(workspace, tmp_path, monkeypatch)
    # A page keeps seven digits.
    report = shown.pop("report")
    assert report == pytest.approx(by_hand, abs=1e-7)
    assert shown == pytest.approx(dict.fromkeys(shown, by_hand), rel=1e-12)


def mce_of_a_table(run: sb.Run, family: str, errors: dict[str, list[float]], folder: Path) -> float:
    """From a table with the accuracies of the workspace."""
    suffix = family.removeprefix("imagenet-c")
    row = {"model": "resnet50", "val": run.scores("top1")[0].score.value}
    for name, values in errors.items():
        for severity, error in enumerate(values, start=1):
            row[f"imagenet-c.{name}.{severity}{suffix}"] = 1 - error
    with (folder / "results.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, row)
        writer.writeheader()
        writer.writerow(row)
    table = answer("table", "--mce", "-r", folder / "results.csv", "--family", family)
    return float(table["rows"][0]["mean"])


def mce_of_the_report(run: sb.Run, family: str) -> float:
    families: list[CorruptionFamily] = page_of(run)["sections"]["corruptions"]  # type: ignore[assignment]
    [entry] = [entry for entry in families if entry["prefix"] == family]
    mce = entry["rows"][0]["mce"]
    assert mce is not None
    return mce[0]


def reproduced_mce(workspace: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> float:
    monkeypatch.setattr(sources, "ALL_IMAGES", IMAGES)
    (folder / "map.csv").write_text("printed,model\nResNet-50,resnet50\n")
    for checked in reproduce(["002"], workspace=workspace, models=folder / "map.csv"):
        for row in checked.rows:
            if checked.claim.name == "002.predictions" and row.name == "ResNet-50, imagenet-c, mCE":
                assert row.found is not None
                return row.found.value
    raise AssertionError("002 prints ResNet-50's mCE")


def test_the_line_of_a_workspace_is_one_line(workspace: Path) -> None:
    """``study`` and the report draw it through the testbed's standard models, as least squares on logits does."""
    run = sb.Run.open(workspace)
    accuracy: dict[tuple[str, str], float] = {}
    for model, setting, score in run.scores("top1"):
        accuracy[model, setting] = score.value
    x = logit([accuracy[model, "val"] for model in STANDARD])
    y = logit([accuracy[model, "greyscale"] for model in STANDARD])
    by_hand = stats.linregress(x, y)

    fitted = answer("study", "fit", "-w", workspace, "--x", "val", "--y", "greyscale")
    effective = answer("study", "effective", "-w", workspace, "--x", "val", "--y", "greyscale")
    grid = grid_of(run)
    [shift] = [shift for shift in grid["shifts"] if shift["y"] == "greyscale"]
    drawn = line_of(grid, shift)
    assert isinstance(drawn, Fit)
    assert set(drawn.models) == set(fitted["baseline_models"]) == set(effective["baseline_models"]) == set(STANDARD)
    slopes = {"study fit": fitted["slope"], "study effective": effective["slope"], "report": drawn.slope}
    intercepts = {
        "study fit": fitted["intercept"],
        "study effective": effective["intercept"],
        "report": drawn.intercept,
    }
    assert slopes == pytest.approx(dict.fromkeys(slopes, by_hand.slope), rel=1e-6)
    assert intercepts == pytest.approx(dict.fromkeys(intercepts, by_hand.intercept), rel=1e-6)
    rho = {row["model"]: row["rho"] for row in effective["models"]}
    for model in NETWORKS:
        expected = float(expit(by_hand.slope * logit(accuracy[model, "val"]) + by_hand.intercept))
        assert rho[model] == pytest.approx(accuracy[model, "greyscale"] - expected, abs=1e-12)
