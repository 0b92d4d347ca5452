"""The grid of the page: from tables, from workspaces, and from both on the same axes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import beta

import shiftbench as sb
from shiftbench.errors import ShiftbenchError
from shiftbench.reports.page.published import Published
from shiftbench.reports.page.report_data import ReportData, ReportOptions
from shiftbench.reports.page.sections import calibration, corruptions
from shiftbench.reports.page.thumbnails import FileAlbum
from shiftbench.studies.fits import PiecewiseFit
from shiftbench.studies.results import read_results, results_from_scores
from shiftbench.studies.study import Study
from tests.raised import raises
from tests.reports.page.making import SMALL, grid_of, number, page_of, part_of, read_published, results_of, run_colours
from tests.reports.recorded import record
from tests.runs.helpers import COLOURS, brightest_channel

V2 = "imagenetv2-matched-frequency-format-val"


def table(folder: Path, text: str, models: str = "") -> Published:
    (folder / "results.csv").write_text(text)
    if models:
        (folder / "models.csv").write_text(models)
    return read_published(folder)


def test_percent_and_fractions_give_the_same_grid(tmp_path: Path) -> None:
    percent = tmp_path / "percent"
    fraction = tmp_path / "fraction"
    percent.mkdir()
    fraction.mkdir()
    of_percent = grid_of(None, table(percent, "model,val,v2\na,76.1,63.3\nb,56.5,44\n"))
    of_fraction = grid_of(None, table(fraction, "model,val,v2\na,0.761,0.633\nb,0.565,0.44\n"))
    assert of_percent["estimates"] == of_fraction["estimates"]
    assert number(of_percent, "a", "v2") == [0.633, None, None, None]
    assert "percent: read as percent" in of_percent["notes"]
    assert "fraction: read as fractions" in of_fraction["notes"]


def test_percent_against_fraction_in_one_table_is_refused(tmp_path: Path) -> None:
    with raises(ShiftbenchError, found="above 1: val; within [0, 1]: v2"):
        table(tmp_path, "model,val,v2\na,76.1,0.633\nb,56.5,0.44\n")


def test_missing_cells_are_null_and_counted(tmp_path: Path) -> None:
    results = grid_of(None, table(tmp_path, "model,val,v2\na,76.1,\nb,56.5,44\nc,,n/a\n"))
    assert number(results, "a", "v2") is None and number(results, "c", "val") is None
    assert any("3 of 6 results" in note for note in results["notes"])


def test_accuracies_of_0_and_100_stay_what_they_are(tmp_path: Path) -> None:
    """They have no logit; the page must get them as they are and never as infinity."""
    results = grid_of(None, table(tmp_path, "model,val,v2\na,100,0\nb,56.5,44\n"))
    assert number(results, "a", "val")[0] == 1.0 and number(results, "a", "v2")[0] == 0.0


def test_duplicate_models(tmp_path: Path) -> None:
    same = grid_of(None, table(tmp_path, "model,val\na,76.1\na,76.1\nb,50\n"))
    assert [model["name"] for model in same["models"]] == ["a", "b"]
    assert any("repeated rows" in note for note in same["notes"])
    with raises(ShiftbenchError, found="'a', the second in line 3"):
        table(tmp_path, "model,val\na,76.1\na,75\n")


def test_two_models_and_no_reference(tmp_path: Path) -> None:
    results = grid_of(None, table(tmp_path, "model,one,two\na,76.1,60\nb,50,40\n"))
    assert results["shifts"] == [] and all(entry["reference"] is None for entry in results["settings"])
    assert any("choose the two axes" in note for note in results["notes"])
    assert all(model["fitted"] for model in results["models"]) and results["baseline"] == ""


def test_a_baseline_that_no_model_has_draws_no_line(tmp_path: Path) -> None:
    published = table(tmp_path, "model,val,v2\na,76.1,60\nb,50,40\n", "model,category\na,robust\nb,robust\n")
    results = grid_of(None, published)
    assert not any(model["fitted"] for model in results["models"])
    assert any("no line is drawn" in note for note in results["notes"])


def test_a_folder_must_say_which_table_is_meant(tmp_path: Path) -> None:
    with pytest.raises(ShiftbenchError, match="table of results"):
        read_published(tmp_path)
    for name in ("results_a.csv", "results_b.csv"):
        (tmp_path / name).write_text("model,val\na,50\n")
    with pytest.raises(ShiftbenchError, match="--models FILE"):
        read_published(tmp_path)


def test_timm_tables_in_a_folder(reference_data: Path) -> None:
    published = read_published(reference_data / "timm_results")
    results = grid_of(None, published)
    assert len(results["models"]) > 500 and "imagenet-a" in [entry["name"] for entry in results["settings"]]


def test_the_testbed(testbed: Published, reference_data: Path) -> None:
    """The numbers of the file itself, exact intervals, and the shifts that the paper plots."""
    results = grid_of(None, testbed)
    raw = read_results(reference_data / "imagenet-testbed" / "results_204x213.csv")
    assert len(results["models"]) == 204 and len(results["settings"]) == 213 + 39
    for model in raw.models[::17]:
        for setting in raw.settings[::23]:
            value = raw.of(setting).get(model)
            cell = number(results, model, setting)
            assert cell is None if value is None else cell[0] == pytest.approx(value / 100, abs=5e-7)
    value, low, high, n = number(results, "resnet50", V2)
    assert n == 10_000
    assert low == pytest.approx(beta.ppf(0.025, value * n, n - value * n + 1), abs=1e-5)
    assert high == pytest.approx(beta.ppf(0.975, value * n + 1, n - value * n), abs=1e-5)
    assert sum(model["fitted"] for model in results["models"]) == 78
    shifts = {shift["name"]: shift for shift in results["shifts"]}
    assert len(shifts) == 11 and shifts["imagenetv2"] == {
        "name": "imagenetv2",
        "x": "val",
        "y": V2,
        "min_x": 0.55,
        "pivot": None,
        "scale": None,
    }
    knee = testbed.study.fit("val-on-imagenet-a-classes", "imagenet-a", min_x=75, pivot="auto", resamples=0)
    assert isinstance(knee, PiecewiseFit) and shifts["imagenet-a"]["pivot"] == pytest.approx(knee.pivot / 100)
    # The pivot's own model is in neither fit: the page must find it by equal numbers.
    assert number(results, "resnet50", "val-on-imagenet-a-classes")[0] == shifts["imagenet-a"]["pivot"]
    references = {entry["name"]: entry["reference"] for entry in results["settings"]}
    assert references[V2] == "val" and references["avg_corruptions"] == "val" and references["val"] is None
    assert references["imagenet-vid-robust_pm10"] == "imagenet-vid-robust_pm0"


def test_a_workspace_alone(run: sb.Run) -> None:
    """The grid's numbers are those of the table command, and every family has its mean."""
    results = grid_of(run)
    for classifier, setting, score in run.scores():
        value, low, high, n = number(results, classifier, setting)
        assert (value, n) == (pytest.approx(score.value, abs=1e-6), 36)
        assert (low, high) == (pytest.approx(score.low, abs=1e-5), pytest.approx(score.high, abs=1e-5))
    corrupted = [name for name in run.settings if name != "pictures"]
    mean = np.mean([number(results, "unsure", name)[0] for name in corrupted])
    assert number(results, "unsure", "pictures-c")[0] == pytest.approx(mean, abs=1e-5)
    assert results["shifts"] == [
        {"name": "pictures-c", "x": "pictures", "y": "pictures-c", "min_x": None, "pivot": None, "scale": None}
    ]
    assert all(model["own"] and model["fitted"] for model in results["models"])
    references = {entry["name"]: entry["reference"] for entry in results["settings"]}
    assert references["pictures-c.frost.3"] == "pictures" and references["pictures"] is None


def test_own_models_on_published_axes(plain_run: sb.Run, tmp_path: Path) -> None:
    """A shared setting is one column; a classifier that both know is told apart."""
    published = table(tmp_path, "model,pictures,elsewhere\nbright,90,80\nother,70,60\n")
    page = page_of(plain_run, published, failures=2)
    results = results_of(page)
    assert [entry["name"] for entry in results["settings"]].count("pictures") == 1
    assert number(results, "bright", "pictures")[0] == 0.9
    assert (
        number(results, "bright (own)", "pictures")[0] == 1.0 and number(results, "bright (own)", "elsewhere") is None
    )
    own = {model["name"]: (model["own"], model["fitted"]) for model in results["models"]}
    assert own == {
        "bright": (False, True),
        "other": (False, True),
        "bright (own)": (True, False),
        "unsure": (True, False),
    }
    assert any("marked (own): bright" in note for note in results["notes"])
    assert {one["model"] for one in part_of(page, calibration.SECTION)} == {"bright (own)", "unsure"}


def test_a_folder_called_val_is_not_imagenet(pictures: Path, tmp_path: Path, testbed: Published) -> None:
    """Three colours in a folder of that name must not stand on the testbed's axis."""
    (tmp_path / "val").symlink_to(pictures)
    run = run_colours(tmp_path / "val", tmp_path / "w", suite="clean")
    results = grid_of(run, testbed)
    assert number(results, "bright", "val") is None and number(results, "bright", "val (own)")[0] == 1.0
    assert any(note.startswith("val: ") and "imagenet-1k" in note for note in results["notes"])


def test_only_all_of_imagenet_val_shares_the_testbeds_axis(tmp_path: Path, testbed: Published) -> None:
    """Results on 20 images and on all 50,000 of one model: the latter share the column, as does a folder's name."""
    for images in (20, 50_000):
        record(tmp_path / "w", "imagenet-val", images, images // 2, model="resnet50")
    results = grid_of(sb.Run.open(tmp_path / "w"), testbed)
    assert number(results, "resnet50 (own)", "val")[3] == 50_000 and number(results, "resnet50", "val")[3] == 50_000
    [apart] = [entry["name"] for entry in results["settings"] if entry["name"].startswith("imagenet-val")]
    assert apart.endswith("(own)") and number(results, "resnet50 (own)", apart)[3] == 20
    assert number(results, "resnet50", apart) is None
    assert any(note.startswith("val: ") and "on 20 images, not 50,000" in note for note in results["notes"])


def test_tables_with_other_numbers_of_images_are_kept_apart(plain_run: sb.Run, tmp_path: Path) -> None:
    published = table(tmp_path, "model,setting,value,n\nother,pictures,70,5000\n")
    results = grid_of(plain_run, published)
    assert number(results, "bright", "pictures") is None and number(results, "bright", "pictures (own)")[0] == 1.0


def test_the_page_opens_on_a_shift_that_own_models_have(tmp_path: Path, testbed: Published) -> None:
    for setting, images in (("val", 50_000), ("imagenet-sketch", 50_889)):
        record(tmp_path / "w", setting, images, images // 2, reference=None if setting == "val" else "val")
    first = grid_of(sb.Run.open(tmp_path / "w"), testbed)["shifts"][0]
    assert (first["x"], first["y"]) == ("val", "imagenet-sketch")
    assert grid_of(None, testbed)["shifts"][0]["name"] == "imagenetv2"


def test_the_page_opens_on_a_shift_that_published_models_have_too(tmp_path: Path, testbed: Published) -> None:
    """Attacked photographs are in this workspace alone; greyscale has a column with the models of both."""
    for setting, images in (("val", 50_000), ("aardvarks", 400), ("greyscale", 50_000)):
        reference = None if setting == "val" else "val"
        record(tmp_path / "w", setting, images, images // 2, reference=reference, made_by="testbed")
    shifts = [shift["name"] for shift in grid_of(sb.Run.open(tmp_path / "w"), testbed)["shifts"]]
    assert shifts[:2] == ["greyscale", "aardvarks"] and len(shifts) == 13


def test_published_grids_have_a_corruptions_tab(testbed: Published) -> None:
    data = ReportData(None, testbed, ReportOptions(), FileAlbum())
    families = corruptions.corruption_families(data)
    family = next(one for one in families if one["prefix"].startswith("imagenet-c_on-disk"))
    results = testbed.study.results
    row = next(one for one in family["rows"] if one["model"] == "resnet50")
    at = family["corruptions"].index("fog")
    errors: dict[str, float] = {}
    for model in ("resnet50", "alexnet"):
        errors[model] = float(np.mean([100 - results.of(name)[model] for name in family["settings"][at]]))
    cell = row["ce"][at]
    assert cell is not None and cell[0] == pytest.approx(errors["resnet50"] / errors["alexnet"], abs=1e-6)
    assert row["accuracy"] == [] and family["clean"] == "val" and len(family["rows"]) > 150
    means = {one["prefix"].split()[0]: one["mean"] for one in families}  # in memory, there is no glass_blur
    assert means["imagenet-c_in-memory"] == "mean CE over 14 types vs the testbed's AlexNet"
    assert means["imagenet-c_on-disk"] == "mCE vs the testbed's AlexNet"


def test_two_provenances_of_one_setting_are_two_columns(pictures: Path, tmp_path: Path) -> None:
    only = {"corruptions": ("gaussian_noise",), "severities": (5,)}
    for seed in (0, 1):
        run_colours(pictures, tmp_path / "w", seed=seed, **only)
    results = grid_of(sb.Run.open(tmp_path / "w"))
    names = [entry["name"] for entry in results["settings"]]
    assert {"pictures-c.gaussian_noise.5 (a)", "pictures-c.gaussian_noise.5 (b)"} <= set(names)
    assert "pictures-c" not in names  # no mean over two seeds


def test_categories_of_own_classifiers(plain_run: sb.Run, tmp_path: Path) -> None:
    from shiftbench.studies.models import read_models

    file = tmp_path / "models.csv"
    file.write_text("model,category,base_model\nbright,standard,\nunsure,robustness_intervention,bright\n")
    results = grid_of(plain_run, models=read_models(file))
    found = {model["name"]: model for model in results["models"]}
    assert found["bright"]["fitted"] and not found["unsure"]["fitted"]
    assert found["unsure"]["base_model"] == "bright" and results["baseline"] == "standard"


def test_flips_stand_for_the_frames_of_sequences(pictures: Path, tmp_path: Path) -> None:
    only = sb.load_classifier(brightest_channel, labels=COLOURS, preprocessing=SMALL, name="bright")
    run = run_colours(pictures, tmp_path / "w", chosen=only, suite="perturbations", corruptions=("brightness",))
    names = [entry["name"] for entry in grid_of(run)["settings"]]
    assert any(name.startswith("pictures-p.brightness: flip") for name in names)
    assert not any("frame" in name for name in names)


def test_the_line_goes_through_the_models_of_the_study(tmp_path: Path) -> None:
    """Models and settings of the testbed are known to the report as they are to a study of the same workspace."""
    accuracies = {"alexnet": 0.56, "resnet18": 0.7, "vgg16": 0.72, "resnet50": 0.76, "resnet152": 0.78}
    accuracies |= {"resnet50_with_greyscale_aws": 0.63, "resnet50_augmix": 0.775, "resnet50_aws_baseline": 0.761}
    settings = ("val", "greyscale", "imagenet-sketch", "stylized_imagenet", "imagenetv2-matched-frequency")
    for rank, setting in enumerate(settings):
        for model, accuracy in accuracies.items():
            reference = None if setting == "val" else "val"
            record(tmp_path / "w", setting, 100, round(100 * accuracy) - 5 * rank, model=model, reference=reference)
    run = sb.Run.open(tmp_path / "w")
    study = Study(results_from_scores(run.scores("top1")))
    on_line = {name for name, is_fitted in zip(study.results.models, study.baseline, strict=True) if is_fitted}
    models = {model["name"]: model for model in grid_of(run)["models"] if model["own"]}
    assert {name for name, model in models.items() if model["fitted"]} == on_line
    assert on_line == {"alexnet", "resnet18", "vgg16", "resnet50", "resnet152"}
    assert models["resnet50_augmix"]["category"] == "robustness_intervention"
