"""What a reader learns without scrolling: the data, the dates, the accuracy and its assumptions, and the answer."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import shiftbench as sb
from shiftbench.labels.space import LabelSpace
from shiftbench.reports.page.answer import _grid_distances, _is_above
from shiftbench.reports.page.payload import Answer, Page
from shiftbench.reports.page.published import Published
from shiftbench.reports.page.sections import results, summary
from shiftbench.reports.summary import LEAST_CLASS_IMAGES, summarise, worst_class
from shiftbench.studies.fits import FEW_MODELS
from tests.reports.page.making import page_of, part_of, run_colours
from tests.reports.recorded import record
from tests.runs.helpers import COLOURS, brightest_channel

V2 = "imagenetv2-matched-frequency-format-val"
#: Ten classes, so that no published model is comparable.
SPACE = "cifar-10"


def answer_of(page: Page) -> Answer:
    assert page["answer"] is not None
    return page["answer"]


def test_data_dates_and_versions(run: sb.Run, pictures: Path) -> None:
    about = page_of(run, failures=0)["about"]
    assert about["datasets"] == [{"name": "pictures", "images": 36, "path": str(pictures)}]
    assert about["settings"] == 10 and about["versions"] == [sb.__version__]
    now = f"{datetime.now(UTC):%Y-%m-%d %H:%M}"
    assert about["first_result"] <= about["last_result"] <= about["written"] <= now
    assert about["first_result"] > "2026"


def test_converted_and_skipped_images_are_counted(tmp_path: Path) -> None:
    for colour, pixel in (("red", (250, 0, 0, 255)), ("green", (0, 250, 0, 255)), ("blue", (0, 0, 250, 255))):
        folder = tmp_path / "data" / colour
        folder.mkdir(parents=True)
        Image.new("RGBA", (40, 40), pixel).save(folder / "alpha.png")
    (tmp_path / "data" / "red" / "broken.png").write_bytes(b"no image")
    run = run_colours(tmp_path / "data", tmp_path / "w", suite="clean")
    about = page_of(run, failures=0)["about"]
    assert (about["converted"], about["skipped"]) == (3, 1)


def test_images_are_counted_once_whatever_the_order_of_their_classes(tmp_path: Path) -> None:
    """A second visit states the classes, and the first one stays in the workspace: these are the same images."""
    for colour in COLOURS.names:
        folder = tmp_path / "data" / colour
        folder.mkdir(parents=True)
        Image.new("RGBA", (40, 40), (250, 0, 0, 100)).save(folder / "alpha.png")
    for number, labels in enumerate((list(COLOURS.names), list(COLOURS.names[::-1]))):
        model = sb.load_classifier(brightest_channel, labels=labels, name=f"model-{number}")
        run_colours(tmp_path / "data", tmp_path / "w", chosen=model, suite="clean", labels=labels)
    run = sb.Run.open(tmp_path / "w")
    assert len({result.spec.dataset.fingerprint for result in run.results}) == 2
    about = page_of(run, failures=0)["about"]
    assert about["datasets"] == [{"name": "data", "images": 3, "path": str(tmp_path / "data")}]
    assert about["converted"] == 3
    [warning] = [warning for warning in run.warnings() if warning.code == "unstated-decoding"]
    # Nothing but what was met is asked for.
    assert "alpha dropped: 3" in str(warning) and "alpha=white" in str(warning) and "exif" not in str(warning)


def test_assumed_preprocessing_stands_beside_the_accuracy(pictures: Path, tmp_path: Path) -> None:
    model = sb.load_classifier(brightest_channel, labels=COLOURS, name="light")
    page = page_of(run_colours(pictures, tmp_path / "w", chosen=model, suite="clean"), failures=0)
    [entry] = part_of(page, summary.SECTION)["models"]
    assert entry["assumed"]
    assert any(note.startswith("†") for note in part_of(page, summary.SECTION)["notes"])
    assert "preprocessing of light" in answer_of(page)["next"]


def test_accuracy_alone_is_no_answer(plain_run: sb.Run) -> None:
    answer = answer_of(page_of(plain_run, failures=0))
    assert "nothing is known about robustness" in answer["verdict"]
    assert answer["worst"] == "" and "corruption" in answer["next"]


def test_one_model_under_corruption(run: sb.Run) -> None:
    one = run.select(["unsure"])
    answer = answer_of(page_of(one, failures=0))
    assert "one model alone cannot show it" in answer["verdict"] and f"{FEW_MODELS} models" in answer["evidence"]
    [family] = summarise(one).models[0].corruptions
    assert family.worst[0][0].replace("_", " ") in answer["worst"] and "second model" in answer["next"]


def test_two_models_of_different_accuracy(tmp_path: Path) -> None:
    """The more accurate model is better under shift, too: that may be just accuracy."""
    for model, clean, shifted in (("weak", 500, 300), ("strong", 900, 800)):
        record(tmp_path / "w", "clean", 1000, clean, model=model, space=SPACE)
        record(tmp_path / "w", "shifted", 1000, shifted, model=model, space=SPACE, reference="clean")
    answer = answer_of(page_of(sb.Run.open(tmp_path / "w"), failures=0))
    assert "2 models cannot show it" in answer["verdict"]
    assert "strong is 50.0 points" in answer["evidence"] and f"{FEW_MODELS} models" in answer["evidence"]


def test_two_models_of_the_same_accuracy(tmp_path: Path) -> None:
    for model, shifted in (("weak", 300), ("robust", 800)):
        record(tmp_path / "w", "clean", 1000, 900, model=model, space=SPACE)
        record(tmp_path / "w", "shifted", 1000, shifted, model=model, space=SPACE, reference="clean")
    answer = answer_of(page_of(sb.Run.open(tmp_path / "w"), failures=0))
    assert "more robust on shifted than a model of similar accuracy" in answer["verdict"]
    assert "robust is 50.0 points" in answer["evidence"]


def test_models_without_a_shift_in_common(tmp_path: Path) -> None:
    for model, setting in (("a", "first"), ("b", "second")):
        record(tmp_path / "w", "clean", 1000, 900, model=model, space=SPACE)
        record(tmp_path / "w", setting, 1000, 700, model=model, space=SPACE, reference="clean")
    assert "cannot be compared" in answer_of(page_of(sb.Run.open(tmp_path / "w"), failures=0))["verdict"]


def test_models_of_an_earlier_visit_do_not_hide_the_comparison(tmp_path: Path) -> None:
    for model in ("first try", "a", "b"):
        record(tmp_path / "w", "clean", 1000, 900, model=model, space=SPACE)
    record(tmp_path / "w", "shifted", 1000, 500, model="a", space=SPACE, reference="clean")
    run = sb.Run.open(tmp_path / "w")
    alone = answer_of(page_of(run, failures=0))
    assert "one model alone" in alone["verdict"] and "2 of 3 models were not evaluated on it" in alone["evidence"]
    record(tmp_path / "w", "shifted", 1000, 700, model="b", space=SPACE, reference="clean")
    both = answer_of(page_of(sb.Run.open(tmp_path / "w"), failures=0))
    assert "more robust on shifted than a model of similar accuracy" in both["verdict"]
    assert "b is 20.0 points" in both["evidence"] and "1 of 3 models were not evaluated on it" in both["evidence"]


@pytest.mark.parametrize("n", [FEW_MODELS - 1, FEW_MODELS])
def test_a_line_needs_enough_models(tmp_path: Path, n: int) -> None:
    for i in range(n):
        record(tmp_path / "w", "clean", 1000, 500 + 50 * i, model=f"m{i}", space=SPACE)
        record(tmp_path / "w", "shifted", 1000, 300 + 55 * i, model=f"m{i}", space=SPACE, reference="clean")
    page = page_of(sb.Run.open(tmp_path / "w"), failures=0)
    answer = answer_of(page)
    assert part_of(page, results.SECTION)["least_line_models"] == FEW_MODELS
    assert (f"the line of the other {n - 1} models" in answer["evidence"]) is (n >= FEW_MODELS)
    assert (f"a line needs {FEW_MODELS} models" in answer["evidence"]) is (n < FEW_MODELS)


def test_a_robust_model_is_found_among_own_models(tmp_path: Path) -> None:
    """The line of all of them is drawn towards it, and its own distance widens their scatter."""
    for i in range(10):
        gain = 300 if i == 4 else 0
        record(tmp_path / "w", "clean", 1000, 500 + 40 * i, model=f"m{i}", space=SPACE)
        record(tmp_path / "w", "shifted", 1000, 300 + 44 * i + gain, model=f"m{i}", space=SPACE, reference="clean")
    answer = answer_of(page_of(sb.Run.open(tmp_path / "w"), failures=0))
    assert answer["verdict"] == "1 of 10 models is more robust on shifted than accuracy explains"
    assert "m4 is" in answer["evidence"] and "beyond ordinary models" in answer["evidence"]


def test_models_that_scatter_are_rarely_called_robust(tmp_path: Path) -> None:
    """Any of 10 models of one line is called robust in about 2.5 % of studies, however many there are to look at."""
    n = 10
    images = 1000
    for i in range(n):
        record(tmp_path / "w", "clean", images, 500 + 40 * i, model=f"m{i}", space=SPACE)
        record(tmp_path / "w", "shifted", images, 300 + 44 * i, model=f"m{i}", space=SPACE, reference="clean")
    grid = part_of(page_of(sb.Run.open(tmp_path / "w"), failures=0), results.SECTION)
    columns = [setting["name"] for setting in grid["settings"]]
    draws = np.random.default_rng(0)
    alarms = 0
    for _ in range(25):
        accuracy = np.linspace(0.5, 0.9, n)
        shifted = 0.3 + 0.9 * (accuracy - 0.5) + draws.normal(0, 0.03, n)
        for row, by_setting in zip(
            grid["estimates"], zip(accuracy.tolist(), shifted.tolist(), strict=True), strict=True
        ):
            for setting, share in zip(("clean", "shifted"), by_setting, strict=True):
                observed = float(draws.binomial(images, share)) / images
                half = 1.96 * (observed * (1 - observed) / images) ** 0.5
                row[columns.index(setting)] = (observed, observed - half, observed + half, images)
        alarms += any(_is_above(distance.effective) for distance in _grid_distances(grid))
    assert alarms <= 3


def test_one_model_among_published_ones(tmp_path: Path) -> None:
    record(tmp_path / "w", "val", 50_000, 38_500)
    record(tmp_path / "w", V2, 10_000, 6_600, reference="val")
    run = sb.Run.open(tmp_path / "w")
    [placed] = run.baselines()
    answer = answer_of(page_of(run, failures=0))
    assert answer["evidence"] == f"mine is {placed.sentence}"
    assert placed.effective is not None
    just_accuracy = placed.effective.low <= 0 <= placed.effective.high
    assert answer["verdict"].startswith("just accuracy") is just_accuracy


def test_own_model_on_a_published_table(testbed: Published, tmp_path: Path) -> None:
    record(tmp_path / "w", "val", 50_000, 38_500)
    record(tmp_path / "w", V2, 10_000, 7_400, reference="val")
    answer = answer_of(page_of(sb.Run.open(tmp_path / "w"), testbed, failures=0))
    assert "more robust" in answer["verdict"] and "the line of 78 published models" in answer["evidence"]


def test_a_published_table_alone(testbed: Published) -> None:
    page = page_of(None, testbed)
    answer = answer_of(page)
    assert "among 204 published models" in answer["verdict"] and "78 models" in answer["evidence"]
    assert page["about"]["published"] == testbed.name and page["about"]["settings"] == 252
    assert page["about"]["datasets"] == [] and page["about"]["last_result"] == ""


def test_a_warning_comes_before_any_other_step(pictures: Path, tmp_path: Path) -> None:
    from tests.runs.helpers import darkest_channel

    dark = sb.load_classifier(darkest_channel, labels=COLOURS, name="dark")
    page = page_of(run_colours(pictures, tmp_path / "w", chosen=dark, suite="clean"), failures=0)
    assert "warning" in answer_of(page)["next"]


def test_small_classes_are_not_ranked(tmp_path: Path) -> None:
    """One class has a few images, all of them wrong; the worst of the large ones is named."""
    large = 3 * LEAST_CLASS_IMAGES
    names = ("first", "second", "small")
    space = LabelSpace("three", names)
    record(tmp_path / "w", "own", 3 * large, 3 * large, space=space)
    run = sb.Run.open(tmp_path / "w")
    predictions = run.predictions()
    small = np.flatnonzero(predictions.labels == 2)
    predictions.labels[small[LEAST_CLASS_IMAGES - 1 :]] = 0
    predictions.top[small, 0] = 1
    worst = worst_class(predictions, 0.95)
    assert worst is not None and worst.name == "first" and worst.n >= LEAST_CLASS_IMAGES


def test_results_open_with_means_per_corruption(run: sb.Run) -> None:
    page = page_of(run, failures=0)
    settings = part_of(page, results.SECTION)["settings"]
    first = [setting["name"] for setting in settings if not setting["detail"]]
    corruptions = ["gaussian_noise", "frost", "contrast"]
    assert first == ["pictures", "pictures-c", *(f"pictures-c.{name}" for name in corruptions)]
    grid = part_of(page, results.SECTION)
    names = [setting["name"] for setting in settings]
    for row in grid["estimates"]:
        by_severity = [row[names.index(f"pictures-c.frost.{severity}")] for severity in (1, 3, 5)]
        mean = row[names.index("pictures-c.frost")]
        assert mean is not None
        assert mean[0] == pytest.approx(np.mean([value[0] for value in by_severity if value]), abs=1e-6)
    # Single severities and means of one corruption are no axes to begin with.
    assert [shift["y"] for shift in grid["shifts"]] == ["pictures-c"]


def test_many_models_stay_short(tmp_path: Path) -> None:
    """Notes do not name every model, and no model brings images or confusions."""
    for i in range(30):
        record(tmp_path / "w", "val", 500, 300 + i, model=f"m{i}")
        record(tmp_path / "w", V2, 500, 200 + i, model=f"m{i}", reference="val")
    page = page_of(sb.Run.open(tmp_path / "w"), failures=0)
    models = part_of(page, summary.SECTION)["models"]
    assert len(models) == 30 and not any(model["confusions"] or model["worst"] for model in models)
    notes = part_of(page, results.SECTION)["notes"]
    assert len(notes) < 10 and any("and 27 more" in note for note in notes)


def test_the_worst_corruption_of_several_models_is_their_average(run: sb.Run) -> None:
    means: dict[str, list[float]] = {}
    for scores in (model.corruptions[0].worst for model in summarise(run).models):
        for corruption, score in scores:
            means.setdefault(corruption, []).append(score.value)
    lowest = min(means, key=lambda corruption: float(np.mean(means[corruption])))
    worst = answer_of(page_of(run, failures=0))["worst"]
    assert lowest.replace("_", " ") in worst and worst.endswith("on average")
