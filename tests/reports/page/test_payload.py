"""Corruptions, calibration and methods of the page, against tables, other libraries and the specs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.stats import beta
from sklearn.calibration import calibration_curve

import shiftbench as sb
from shiftbench.reports.page.payload import FORMAT, Page, estimate
from shiftbench.reports.page.published import Published
from shiftbench.reports.page.sections import calibration, corruptions, failures, methods
from shiftbench.reports.page.write import page_json
from shiftbench.reports.summary import summarise
from tests.reports.page.making import SMALL, accuracies, number, page_of, part_of, results_of, run_colours
from tests.runs.helpers import COLOURS, brightest_channel, darkest_channel

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def page(run: sb.Run) -> Page:
    return page_of(run, failures=2)


def test_numbers_that_do_not_exist_are_null() -> None:
    nan = float("nan")
    inf = float("inf")
    assert estimate(nan, 0, 1, 5) is None and estimate(inf) is None
    assert estimate(0.5, nan, 1.0, 10) == (0.5, None, None, 10)
    assert estimate(0.5, 0.4, 0.6, nan) == (
        0.5,
        0.4,
        0.6,
        None,
    )


def test_the_page_says_what_it_is(page: Page) -> None:
    assert (page["format"], page["version"], page["progress"]) == (FORMAT, sb.__version__, None)
    assert "NaN" not in page_json(page) and "Infinity" not in page_json(page)


def test_corruptions_without_imagenets_classes_are_not_divided(run: sb.Run, page: Page) -> None:
    [family] = part_of(page, corruptions.SECTION)
    assert (family["prefix"], family["severities"], family["baseline"]) == ("pictures-c", [1, 3, 5], "")
    assert family["corruptions"] == ["gaussian_noise", "frost", "contrast"]
    assert family["groups"] == ["noise", "weather", "digital"]
    rows = {row["model"]: row for row in family["rows"]}
    for row in rows.values():
        errors = [[1 - one[0] for one in by_severity if one] for by_severity in accuracies(page, family, row)]
        assert [one[0] for one in row["ce"] if one] == pytest.approx(np.mean(errors, axis=1).tolist(), abs=1e-5)
        assert row["mce"] is not None and row["mce"][0] == pytest.approx(np.mean(errors), abs=1e-5)
        assert row["relative_mce"] is None
    clean = number(results_of(page), "bright", family["clean"])
    assert list(clean) == [1.0, pytest.approx(0.025 ** (1 / 36), abs=1e-5), 1.0, 36]


def test_corruption_errors_over_imagenets_classes_are_alexnets(tmp_path: Path) -> None:
    """The same numbers as ``shiftbench table --mce``."""
    from shiftbench.datasets.subset import take

    photographs = take(sb.open_dataset("demo"), [0, 40, 95, 113])
    run = run_colours(
        {"demo": photographs},
        tmp_path / "w",
        chosen="demo:squeezenet1_1",
        suite="demo",
        corruptions=("fog", "snow"),
        severities=(5,),
        labels=None,
    )
    [family] = part_of(page_of(run, failures=0), corruptions.SECTION)
    assert family["baseline"] == "AlexNet (published)" and family["corruptions"] == ["snow", "fog"]
    table = {row["setting"]: row["value"] for row in run.corruption_table().rows}
    [row] = family["rows"]
    for name, ce in zip(family["corruptions"], row["ce"], strict=True):
        assert ce is not None and ce[0] == pytest.approx(table[name], abs=1e-6)
    assert any("not comparable with mCE" in note for note in family["notes"])


def test_an_incomplete_grid_keeps_its_accuracies(pictures: Path, tmp_path: Path) -> None:
    bright = sb.load_classifier(brightest_channel, labels=COLOURS, preprocessing=SMALL, name="bright")
    run_colours(pictures, tmp_path / "w", chosen=bright, corruptions=("contrast",), severities=(1, 5))
    run_colours(pictures, tmp_path / "w", chosen=bright, corruptions=("gaussian_noise",), severities=(5,))
    page = page_of(sb.Run.open(tmp_path / "w"), failures=0)
    [family] = part_of(page, corruptions.SECTION)
    [row] = family["rows"]
    shown = accuracies(page, family, row)
    assert row["mce"] is None and shown[0][0] is None and shown[0][1] is not None
    assert any("has no mean over pictures-c" in note and "gaussian_noise.1" in note for note in family["notes"])
    # Without a mean to look at, every setting is offered against its reference.
    assert "pictures-c.contrast.5" in [shift["y"] for shift in results_of(page)["shifts"]]


def test_means_over_other_corruptions_share_no_column(pictures: Path, tmp_path: Path) -> None:
    for name, scores, kinds in (
        ("whole", brightest_channel, ("contrast", "fog")),
        ("part", darkest_channel, ("contrast",)),
    ):
        model = sb.load_classifier(scores, labels=COLOURS, preprocessing=SMALL, name=name)
        run_colours(pictures, tmp_path / "w", chosen=model, corruptions=kinds, severities=(5,))
    page = page_of(sb.Run.open(tmp_path / "w"), failures=0)
    [family] = part_of(page, corruptions.SECTION)
    rows = {row["model"]: row for row in family["rows"]}
    assert rows["whole"]["mce"] is not None and rows["part"]["mce"] is None
    assert [one is None for one in rows["part"]["ce"]] == [name != "contrast" for name in family["corruptions"]]
    assert any(note.startswith("part has no mean") and "fog" in note for note in family["notes"])


def test_images_without_labels_are_no_axis(pictures: Path, tmp_path: Path) -> None:
    images = np.zeros((3, 40, 40, 3), np.uint8)
    for i, image in enumerate(images):
        (tmp_path / "more").mkdir(exist_ok=True)
        Image.fromarray(image + i).save(tmp_path / "more" / f"{i}.png")
    model = sb.load_classifier(brightest_channel, labels=COLOURS, preprocessing=SMALL, name="bright")
    for data in (pictures, f"unlabelled:{tmp_path}/more"):
        run = sb.evaluate(model, "clean", data, tmp_path / "w", labels=COLOURS, progress=False)
    assert "detect" in summarise(run).next_commands[-1]
    results = results_of(page_of(sb.Run.open(tmp_path / "w"), failures=0))
    assert [setting["name"] for setting in results["settings"]] == ["pictures"]
    assert any("more" in note for note in results["notes"])


def test_fractional_severities_are_no_family(pictures: Path, tmp_path: Path) -> None:
    run = run_colours(pictures, tmp_path / "w", corruptions=("contrast",), severities=(2.5,))
    page = page_of(run, failures=0)
    assert corruptions.SECTION.of(page) is None
    assert "pictures-c.contrast.2.5" in [entry["name"] for entry in results_of(page)["settings"]]


def test_calibration_of_plain_settings_and_of_two_severities(page: Page) -> None:
    shown = {one["setting"] for one in part_of(page, calibration.SECTION)}
    corrupted = {f"pictures-c.{c}.{s}" for c in ("gaussian_noise", "contrast", "frost") for s in (3, 5)}
    assert shown == {"pictures", *corrupted}


def test_reliability_bins_against_scikit_learn(run: sb.Run, page: Page) -> None:
    entries = [one for one in part_of(page, calibration.SECTION) if one["model"] == "unsure"]
    for entry in entries:
        p = run.predictions("unsure", entry["setting"])
        accuracy, confidence = calibration_curve(p.correct, p.confidence, n_bins=15)
        assert [bar.accuracy for bar in entry["bins"]] == pytest.approx(accuracy.tolist(), abs=1e-6)
        assert [bar.confidence for bar in entry["bins"]] == pytest.approx(confidence.tolist(), abs=1e-4)
        assert sum(bar.n for bar in entry["bins"]) == entry["n"] == 36
        for bar in entry["bins"]:
            k = round(bar.accuracy * bar.n)
            high = beta.ppf(0.975, k + 1, bar.n - k) if k < bar.n else 1.0
            assert bar.high == pytest.approx(high, abs=1e-4)
        gaps = [bar.n * abs(bar.confidence - bar.accuracy) for bar in entry["bins"]]
        assert entry["ece"] is not None and entry["ece"][0] == pytest.approx(sum(gaps) / 36, abs=1e-4)


def test_response_curves_end_at_the_accuracy(run: sb.Run, page: Page) -> None:
    for entry in part_of(page, calibration.SECTION):
        p = run.predictions(entry["model"], entry["setting"])
        rate, accuracy = entry["curve"][-1]
        assert rate == 1.0 and accuracy == pytest.approx(float(p.correct.mean()), abs=1e-4)
        assert len(entry["curve"]) <= 60 and entry["aurra"] is not None
        best = p.correct[np.argmax(p.confidence)]
        assert entry["curve"][0][1] in (0.0, 1.0) and (np.ptp(p.confidence) == 0 or entry["curve"][0][1] == float(best))


def test_predictions_without_confidence_have_no_calibration(pictures: Path, tmp_path: Path) -> None:
    data = sb.open_dataset(pictures, space=COLOURS)
    (tmp_path / "made.csv").write_text("id,prediction\n" + "".join(f"{i},red\n" for i in data.ids))
    recorded = sb.load_classifier(str(tmp_path / "made.csv"), labels=COLOURS)
    page = page_of(run_colours(pictures, tmp_path / "w", chosen=recorded, suite="clean"), failures=2)
    assert calibration.SECTION.of(page) is None
    [mistakes] = part_of(page, failures.SECTION)["lists"]
    assert mistakes["total"] == 24 and mistakes["images"][0]["confidence"] is None


def text_of(page: Page) -> str:
    entries = part_of(page, methods.SECTION)
    parts = [part for entry in entries for part in (entry["heading"], *entry["paragraphs"], *entry.get("items", []))]
    return "\n".join(parts)


def test_methods_say_what_the_specs_say(run: sb.Run, page: Page) -> None:
    text = text_of(page)
    spec = run.results[0].spec
    assert spec.dataset.fingerprint in text and "36 images, labelled in colours (3 classes)" in text
    assert "short side to 36 pixels (bilinear), centre crop of 32 pixels" in text
    assert "short side to 30 pixels (bicubic), centre crop of 28 pixels" in text
    assert spec.classifier.fingerprint in text and "generator version 1" in text and "seed 0" in text
    assert "frost images: procedural v1" in text and "top1: 95 % intervals, clopper-pearson" in text
    assert "not divided" in text and "slope and intercept are Student's" in text
    assert f"predictions by shiftbench {sb.__version__}" in text
    without_numbers = text.replace(str(run.workspace.root), "").replace("1/255", "")
    assert not [line for line in without_numbers.splitlines() if "/" in line]  # no places on a disk


def test_methods_of_a_published_table(testbed: Published) -> None:
    text = text_of(page_of(None, testbed))
    assert "204 models, 252 settings, read in percent" in text and "'standard'" in text
    # The two standard models that the testbed's line leaves out, and the controls that its correlations do.
    assert "except resnet50_aws_baseline and resnet50_imagenet_100percent_batch64_original_images" in text
    assert "8 controls of low accuracy" in text and "imagenetv2 55 %" in text
    assert "Datasets" not in text and "predictions by" not in text


def test_signs_of_wrong_labels_are_warnings(pictures: Path, tmp_path: Path) -> None:
    from tests.runs.helpers import darkest_channel

    dark = sb.load_classifier(darkest_channel, labels=COLOURS, preprocessing=SMALL, name="dark")
    page = page_of(run_colours(pictures, tmp_path / "w", chosen=dark, suite="clean"), failures=0)
    assert any("dark on pictures" in warning for warning in page["warnings"])


def test_the_types_of_the_scripts_are_current() -> None:
    subprocess.run([sys.executable, ROOT / "scripts" / "payload_types.py", "--check"], check=True)
