"""The one-pass design through the public API: what is evaluated, what is estimated, what a full run reuses."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import shiftbench as sb
from shiftbench.errors import SettingError
from shiftbench.reports.summary import summarise
from shiftbench.settings.base import Setting
from shiftbench.shifts.corruptions.api import Corruption
from shiftbench.store.workspace import Workspace
from tests.runs.helpers import COLOURS, brightest_channel, colour_folder

GRID: dict[str, Any] = {"corruptions": ("brightness", "contrast"), "severities": (1, 5), "labels": COLOURS}
ONE_PASS: dict[str, Any] = {**GRID, "design": "one-pass", "progress": False}


class Counting:
    """A model that counts the images it is asked for."""

    def __init__(self) -> None:
        self.images = 0

    def __call__(self, images: np.ndarray) -> np.ndarray:
        self.images += len(images)
        return brightest_channel(images)


def model(function: Any = brightest_channel) -> sb.Classifier:
    preprocessing = sb.Preprocessing(sb.Geometry(resize=36, crop=32))
    found = sb.load_classifier(function, labels=COLOURS, preprocessing=preprocessing, name="brightest")
    found.self_contained = True  # so that it is asked for the images of the data alone
    return found


def contents(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((root / "predictions").rglob("*.parquet"))}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return colour_folder(tmp_path_factory.mktemp("data") / "colours", per_class=8)


def test_each_image_is_evaluated_clean_and_once_more(data: Path, tmp_path: Path) -> None:
    counting = Counting()
    run = sb.evaluate(model(counting), "corruptions", data, tmp_path / "w", **ONE_PASS)
    grid = [f"colours-c.{name}.{severity}" for name in GRID["corruptions"] for severity in GRID["severities"]]
    assert run.settings == ["colours", *grid]
    assert counting.images == 2 * 24
    met = [image for setting in grid for image in run.predictions("brightest", setting).ids]
    assert sorted(met) == sorted(run.predictions("brightest", "colours").ids)


@pytest.mark.parametrize("passes", [1, 3])
def test_predictions_are_those_of_the_full_grid(data: Path, tmp_path: Path, passes: int) -> None:
    full = sb.evaluate(model(), "corruptions", data, tmp_path / "full", progress=False, **GRID)
    run = sb.evaluate(model(), "corruptions", data, tmp_path / "design", passes=passes, **ONE_PASS)
    for setting in run.settings[1:]:
        found = run.predictions("brightest", setting)
        whole = full.predictions("brightest", setting)
        assert len(found) == passes * 24 / 4
        rows = [whole.ids.index(image) for image in found.ids]
        assert rows == sorted(rows)
        assert (whole.top[rows] == found.top).all()
        assert (whole.confidence[rows] == found.confidence).all()


def test_workers_do_not_matter(data: Path, tmp_path: Path) -> None:
    runs = [sb.evaluate(model(), "corruptions", data, tmp_path / str(n), workers=n, **ONE_PASS) for n in (1, 4)]
    assert contents(Path(str(runs[0].workspace.root))) == contents(Path(str(runs[1].workspace.root)))


def test_a_full_run_reuses_what_a_design_made(data: Path, tmp_path: Path) -> None:
    sb.evaluate(model(), "corruptions", data, tmp_path / "alone", progress=False, **GRID)
    sb.evaluate(model(), "corruptions", data, tmp_path / "after", **ONE_PASS)
    counting = Counting()
    sb.evaluate(model(counting), "corruptions", data, tmp_path / "count", **ONE_PASS)
    counting.images = 0
    sb.evaluate(model(counting), "corruptions", data, tmp_path / "count", progress=False, **GRID)
    assert counting.images == 3 * 24
    sb.evaluate(model(), "corruptions", data, tmp_path / "after", progress=False, **GRID)
    alone = contents(tmp_path / "alone")
    after = contents(tmp_path / "after")
    assert {name: after[name] for name in alone} == alone


def test_more_passes_continue_fewer(data: Path, tmp_path: Path) -> None:
    counting = Counting()
    for passes in (1, 2):
        sb.evaluate(model(counting), "corruptions", data, tmp_path, passes=passes, **ONE_PASS)
    assert counting.images == 3 * 24
    sb.evaluate(model(counting), "corruptions", data, tmp_path, progress=False, **GRID)
    assert counting.images == 5 * 24, "no image meets a shift twice"


def test_more_images_continue_fewer(data: Path, tmp_path: Path) -> None:
    """Four images per class, then all, then the full grid: every prediction is made once, with the same bytes."""
    counting = Counting()
    some = sb.Selection(per_class=4)
    sb.evaluate(model(counting), "corruptions", data, tmp_path / "w", select=some, **ONE_PASS)
    assert counting.images == 2 * 12
    sb.evaluate(model(counting), "corruptions", data, tmp_path / "w", **ONE_PASS)
    assert counting.images == 2 * 24
    sb.evaluate(model(counting), "corruptions", data, tmp_path / "w", progress=False, **GRID)
    assert counting.images == 5 * 24
    sb.evaluate(model(), "corruptions", data, tmp_path / "alone", **ONE_PASS)
    sb.evaluate(model(), "corruptions", data, tmp_path / "grown", select=some, **ONE_PASS)
    sb.evaluate(model(), "corruptions", data, tmp_path / "grown", **ONE_PASS)
    alone = contents(tmp_path / "alone")
    grown = contents(tmp_path / "grown")
    assert {name: grown[name] for name in alone} == alone


def test_fewer_images_are_those_of_more(data: Path, tmp_path: Path) -> None:
    counting = Counting()
    some = sb.Selection(per_class=4)
    sb.evaluate(model(counting), "corruptions", data, tmp_path / "w", **ONE_PASS)
    sb.evaluate(model(counting), "corruptions", data, tmp_path / "w", select=some, **ONE_PASS)
    assert counting.images == 2 * 24
    for name, selections in (("alone", [some]), ("after", [None, some])):
        for select in selections:
            sb.evaluate(model(), "corruptions", data, tmp_path / name, select=select, **ONE_PASS)
    alone = contents(tmp_path / "alone")
    after = contents(tmp_path / "after")
    assert {name: after[name] for name in alone} == alone


def test_images_that_cannot_be_read_do_not_count(data: Path, tmp_path: Path) -> None:
    broken = shutil.copytree(data, tmp_path / "broken")
    (broken / "red" / "000.png").write_bytes(b"")
    with pytest.warns(sb.ResultWarning, match="can't be used"):
        run = sb.evaluate(model(), "corruptions", broken, tmp_path / "w", **ONE_PASS)
    assert {score["n"] for score in run.corruption_table().as_data()["scores"]} == {23}


def test_other_images_of_the_same_names_are_not_reused(data: Path, tmp_path: Path) -> None:
    other = shutil.copytree(data, tmp_path / data.name)
    for path in other.rglob("*.png"):
        Image.new("RGB", (40, 40)).save(path)
    counting = Counting()
    sb.evaluate(model(counting), "corruptions", other, tmp_path / "w", select=sb.Selection(per_class=4), **ONE_PASS)
    sb.evaluate(model(counting), "corruptions", data, tmp_path / "w", **ONE_PASS)
    assert counting.images == 2 * 12 + 2 * 24


def test_two_models_are_compared_on_the_same_assignment(data: Path, tmp_path: Path) -> None:
    """The estimate, its interval and its p from the predictions by hand: a paired t-test of 24 images in 4 strata."""
    other = sb.load_classifier(
        lambda images: brightest_channel(images) * [1, 0.2, 1],
        labels=COLOURS,
        name="other",
        preprocessing=sb.Preprocessing(sb.Geometry(resize=36, crop=32)),
    )
    run = sb.evaluate([model(), other], "corruptions", data, tmp_path, **ONE_PASS)
    [row] = run.compare("colours-c").as_data()["comparisons"]
    sides = [[run.predictions(name, setting) for setting in run.settings[1:]] for name in ("brightest", "other")]
    apart = [a.correct.astype(float) - b.correct for a, b in zip(*sides, strict=True)]
    assert row["difference"] == pytest.approx(np.mean([one.mean() for one in apart]))
    error = np.sqrt(sum(one.var(ddof=1) / len(one) for one in apart)) / 4
    assert (row["difference"] - row["low"]) / error == pytest.approx(2.086, abs=0.01), "t with 20 degrees of freedom"
    assert row["better"] == "brightest"
    [single] = run.compare("colours-c.contrast.5").as_data()["comparisons"]
    assert single["n"] == 6


def test_tables_mark_estimates(data: Path, tmp_path: Path) -> None:
    run = sb.evaluate(model(), "corruptions", data, tmp_path, **ONE_PASS)
    table = run.corruption_table()
    text = table.to_text(400)
    assert "~ estimate of the full grid's number from 48 forward passes" in text
    # What the interval is about, the narrower one of the full grid on these images, and the means by severity.
    assert "are for new images like these; the full grid on these images has a mean error in [" in text
    by_severity = re.search(r"mean error by severity 1: ([\d.]+) \[.*\], 5: ([\d.]+) \[", text)
    assert by_severity is not None
    [of_mean] = [score["value"] for score in table.as_data()["scores"] if "mean error" in str(score["metric"])]
    assert (float(by_severity[1]) + float(by_severity[2])) / 200 == pytest.approx(of_mean, abs=2e-3)
    scores = {(score["setting"], score["metric"]): score for score in table.as_data()["scores"]}
    assert "passes" not in scores["colours", "error"]
    assert scores["contrast", "error at 1,5"]["passes"] == 48
    assert "design one-pass" in scores["contrast", "error at 1,5"]["provenance"]
    assert "passes" in table.to_csv().splitlines()[0].split(",")
    frame = run.to_arrow().to_pylist()
    assert {row["passes"] for row in frame if row["severity"] is not None} == {6}
    assert {row["passes"] for row in frame if row["setting"] == "colours"} == {None}
    assert "6 forward passes" in run.table().to_text(200)


def test_single_settings_are_modelled_together(data: Path, tmp_path: Path) -> None:
    run = sb.evaluate(model(), "corruptions", data, tmp_path / "design", **ONE_PASS)
    table = run.corruption_table(modelled=True)
    assert "model-based" in table.to_text(400)
    scores = {score["setting"]: score for score in table.as_data()["scores"]}
    assert {score["metric"] for score in scores.values()} == {"modelled error"}
    assert {score["passes"] for score in scores.values()} == {48}
    names = {name.removeprefix("colours-c.") for name in scores}
    corruptions = set(GRID["corruptions"])
    severities = {f"severity {severity}" for severity in GRID["severities"]}
    settings = {f"{name}.{severity}" for name in corruptions for severity in GRID["severities"]}
    assert names == corruptions | severities | settings
    by_setting = [scores[f"colours-c.{name}"]["value"] for name in settings]
    by_corruption = [scores[f"colours-c.{name}"]["value"] for name in corruptions]
    assert np.mean(by_setting) == pytest.approx(np.mean(by_corruption))
    full = sb.evaluate(model(), "corruptions", data, tmp_path / "full", progress=False, **GRID)
    with pytest.raises(SettingError, match="needs no model of its settings"):
        full.corruption_table(modelled=True)


def test_report_and_figures_mark_estimates(data: Path, tmp_path: Path) -> None:
    run = sb.evaluate(model(), "corruptions", data, tmp_path / "w", **ONE_PASS)
    line = "each image met 1 of 4 shifts, 24 of 96 shifted forward passes per model"
    page = run.report(tmp_path / "report.html").read_text()
    assert page.count(line) >= 3
    assert "estimates from 48 forward passes" in page
    for figure in (run.plot.corruptions(), run.plot.heatmap(), run.plot.scatter()):
        assert line in str(figure.notes)
    assert "estimates from 48 forward passes" in summarise(run).to_text(200)


def test_the_full_grid_takes_the_place_of_estimates(data: Path, tmp_path: Path) -> None:
    sb.evaluate(model(), "corruptions", data, tmp_path, **ONE_PASS)
    some = {**GRID, "corruptions": ("brightness",)}
    sb.evaluate(model(), "corruptions", data, tmp_path, progress=False, **some)
    mixed = sb.Run.open(tmp_path)
    assert [len(mixed.predictions("brightest", setting)) for setting in mixed.settings] == [24, 24, 24, 6, 6]
    assert mixed.corruption_table().as_data()["scores"][1]["passes"] == 24 + 24 + 24 + 6 + 6
    sb.evaluate(model(), "corruptions", data, tmp_path, progress=False, **GRID)
    whole = sb.Run.open(tmp_path)
    assert [len(whole.predictions("brightest", setting)) for setting in whole.settings] == [24] * 5
    assert "passes" not in str(whole.corruption_table().as_data())


def test_settings_of_several_metrics_are_not_mixed(data: Path, tmp_path: Path) -> None:
    shifts = [Corruption(name, severity) for name in GRID["corruptions"] for severity in (1, 5)]
    settings = [Setting("colours", "colours")]
    for shift, metric in zip(shifts, ("top1", "top1", "top5", "top5"), strict=True):
        settings.append(Setting(f"own.{shift.name}", "colours", shift, metric=metric, reference="colours"))
    whole = {**ONE_PASS, "corruptions": (), "severities": (1, 2, 3, 4, 5)}
    run = sb.evaluate(model(), settings, {"colours": data}, tmp_path, **whole)
    assert [result.spec.metric for result in run.results] == ["top1", "top1", "top1", "top5", "top5"]
    assert [len(run.predictions("brightest", setting)) for setting in run.settings] == [24, 12, 12, 12, 12]


@pytest.mark.parametrize(
    ("suite", "options"),
    [
        ("clean", {}),
        ("perturbations", {"corruptions": ()}),
        ("corruptions", {"passes": 9}),
        ("corruptions", {"passes": 0}),
        ("corruptions", {"severities": (1, 2, 3, 4, 5), "corruptions": ()}),
    ],
)
def test_what_has_no_design_is_refused(data: Path, tmp_path: Path, suite: str, options: dict[str, Any]) -> None:
    with pytest.raises(SettingError):
        sb.evaluate(model(), suite, data, tmp_path, **{**ONE_PASS, **options})
    assert not list(Workspace(tmp_path).results())


def test_images_without_labels_are_refused_before_anything_is_computed(data: Path, tmp_path: Path) -> None:
    counting = Counting()
    with pytest.raises(SettingError) as error:
        sb.evaluate(model(counting), "corruptions", f"unlabelled:{data}/red", tmp_path, **ONE_PASS)
    assert "0 labelled images" in str(error.value.found) and not counting.images
