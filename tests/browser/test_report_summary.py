"""The summary in a browser: the first tab, its matrix, and the published models behind one own model."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, cast

import pytest

import shiftbench as sb
from shiftbench.reports.page.payload import Page
from tests.browser.conftest import DESK, PHONE, Open
from tests.browser.pages import Row, grid, setting, share
from tests.browser.pages import page_of as payload
from tests.reports.page.making import page_of, run_colours
from tests.reports.recorded import record
from tests.runs.helpers import colour_folder

V2 = "imagenetv2-matched-frequency-format-val"


@pytest.fixture(scope="module")
def corrupted(tmp_path_factory: pytest.TempPathFactory) -> Page:
    root = tmp_path_factory.mktemp("summary")
    return page_of(run_colours(colour_folder(root / "pictures", per_class=12), root / "w"))


@pytest.mark.parametrize("size", [DESK, PHONE])
def test_the_page_opens_on_the_summary(open_page: Open, corrupted: Page, size: tuple[int, int]) -> None:
    tab = open_page(corrupted, size=size)
    panel = tab.locator("#panel-summary")
    assert panel.is_visible() and panel.locator(".tile").count() >= 4
    assert panel.locator(".worst-one").count() == 3 and panel.locator(".worst-one img").count() > 0
    tab.locator('.confusion td[data-label="red"][data-as="red"]').hover()
    assert "of 12 images" in tab.locator("#tooltip").inner_text()
    assert not tab.evaluate("document.documentElement.scrollWidth > innerWidth")


def test_another_model_and_its_worst_corruption(open_page: Open, corrupted: Page) -> None:
    tab = open_page(corrupted)
    assert "[" in tab.locator(".overview td").first.inner_text()  # the interval
    tab.locator(".overview button", has_text="unsure").click()
    assert tab.locator("#panel-summary h2", has_text="unsure").count() == 1
    tab.locator(".worst-one button").first.click()
    assert tab.locator("#panel-corruptions").is_visible()


@pytest.mark.parametrize("size", [DESK, PHONE])
def test_the_first_screen_says_what_was_measured(open_page: Open, corrupted: Page, size: tuple[int, int]) -> None:
    tab = open_page(corrupted, size=size)
    about = tab.locator("#about").inner_text()
    facts = corrupted["about"]
    assert "36 images of pictures" in about and "pictures)" in about  # and the end of the path
    assert f"{facts['last_result']} UTC" in about and f"{facts['written']} UTC, shiftbench {sb.__version__}" in about
    answer = tab.locator("#answer")
    box = answer.bounding_box()
    assert corrupted["answer"] is not None and corrupted["answer"]["evidence"] in answer.inner_text()
    assert box is not None and box["y"] + box["height"] < size[1]
    tab.locator("#tab-results").click()
    assert answer.is_visible() is (size == DESK)  # other tabs have little room on a phone


def test_values_are_whole_on_a_phone(open_page: Open, corrupted: Page) -> None:
    tab = open_page(corrupted, size=PHONE)
    for row in tab.locator(".overview tbody tr").all():
        for cell in row.locator("td").all()[:2]:  # accuracy, and under corruption
            box = cell.bounding_box()
            assert "%" in cell.inner_text() and box is not None and box["x"] + box["width"] <= PHONE[0]
    # What is the same for all models stands once, below the table.
    assert "severity" not in tab.locator(".overview tbody").inner_text()
    assert tab.locator(".overview .remarks").inner_text().count("3 corruptions at severity 1, 3, 5") == 1


def test_the_images_of_each_accuracy_are_named_where_they_differ(open_page: Open, tmp_path: Path) -> None:
    for number, setting_name in enumerate(["day", "day", "night"]):
        record(tmp_path / "w", setting_name, 300, 200, model=f"model-{number}", space="cifar-10")
        if number:
            overview = open_page(page_of(sb.Run.open(tmp_path / "w"), failures=0)).locator(".overview")
            in_rows = overview.locator("tbody").inner_text().count("(n = 300)")
            in_caption = overview.locator(".remarks").inner_text().count("on day (n = 300)")
            assert (in_rows, in_caption) == ((0, 1) if number == 1 else (3, 0))


def test_other_images_of_one_dataset_are_told_apart(open_page: Open, tmp_path: Path) -> None:
    for model, dataset in (("first", "day"), ("second", "other day")):
        record(tmp_path / "w", "photos", 300, 200, model=model, dataset=dataset, space="cifar-10")
    overview = open_page(page_of(sb.Run.open(tmp_path / "w"), failures=0)).locator(".overview")
    assert "other day (300 images)" in overview.locator("tbody").inner_text()
    assert "without shift" not in overview.locator(".remarks").inner_text()


def test_assumed_and_converted_stand_on_the_first_screen(open_page: Open, corrupted: Page) -> None:
    page = copy.deepcopy(corrupted)
    summary = cast(dict[str, Any], page["sections"]["summary"])
    summary["models"][0]["assumed"] = ["mean", "std"]
    page["about"] |= {"converted": 161, "skipped": 2}
    tab = open_page(page)
    first, second = tab.locator(".overview tbody tr").all()
    assert "preprocessing assumed" in first.inner_text() and "assumed" not in second.inner_text()
    assert "preprocessing assumed: mean, std" in tab.locator(".tile", has_text="Accuracy").inner_text()
    assert "161 converted, 2 skipped" in tab.locator("#about").inner_text()
    tab.locator("#about button").click()
    assert tab.locator("#panel-warnings").is_visible() or tab.locator("#tab-warnings").count() == 0


def test_bold_is_what_its_legend_says(open_page: Open) -> None:
    """All intervals of the first setting overlap; in the second, one model is clearly worse."""
    rows: dict[str, Row] = {
        "a": [share(70, 100), share(60, 100)],
        "b": [share(72, 100), share(62, 100)],
        "c": [share(75, 100), share(10, 100)],
    }
    tab = open_page(payload(grid(rows, [setting("val"), setting("v2", "val")])), "view=results")
    for column, bold in ((2, {"a", "b", "c"}), (3, {"a", "b"})):
        cells = tab.locator(f"#panel-results tbody tr:has(:nth-child({column}) b) th").all_inner_texts()
        assert set(cells) == bold
    assert "bold: best, or interval overlaps" in tab.locator("#panel-results .notes").inner_text()


def test_many_models_are_searched(open_page: Open, tmp_path: Path) -> None:
    for i in range(60):
        record(tmp_path / "w", "own", 100, 30 + i, model=f"model-{i}", space="cifar-10", confidence=float("nan"))
    tab = open_page(page_of(sb.Run.open(tmp_path / "w")))
    assert tab.locator(".overview tbody tr").count() == 50
    tab.locator(".overview input[type=search]").fill("model-5")
    tab.locator(".overview [role=status]", has_text="11 of 60 models").wait_for()
    assert tab.locator(".overview tbody tr").count() == 11
    assert tab.evaluate("document.scrollingElement.scrollHeight") < 4000


def test_what_all_models_share_stands_once(open_page: Open, corrupted: Page, tmp_path: Path) -> None:
    """With 200 models, why they cannot be compared with published ones was repeated in 200 rows."""
    for i in range(3):
        record(tmp_path / "w", V2, 100, 30 + i, model=f"model-{i}")
    tab = open_page(page_of(sb.Run.open(tmp_path / "w")))
    reason = "has 100 images here, 10,000 in the publication"
    assert reason not in tab.locator(".overview table").inner_text()
    assert tab.locator(".overview .remarks").inner_text().count(reason) == 1
    # The reason stays with each model, and a column whose reasons differ stays in the table.
    assert reason in tab.locator("#panel-summary .tiles").inner_text()
    record(tmp_path / "w", "own", 100, 30, model="another", space="cifar-10")
    tab = open_page(page_of(sb.Run.open(tmp_path / "w")))
    assert tab.locator(".overview table").inner_text().count(reason) == 3
    # So do the origins of the images of the worst corruptions.
    tab = open_page(corrupted)
    panel = tab.locator("#panel-summary")
    assert panel.inner_text().count("pictures-c, severity") == 1


def test_one_model_among_the_published(open_page: Open, tmp_path: Path) -> None:
    for name, images, hits in (("val", 50_000, 38_500), (V2, 10_000, 6_600)):
        reference = None if name == "val" else "val"
        # Without confidences there is no calibration to compute.
        record(tmp_path / "w", name, images, hits, reference=reference, confidence=float("nan"))
    run = sb.Run.open(tmp_path / "w")
    [placed] = run.baselines()
    tab = open_page(page_of(run), "view=robustness", size=PHONE)
    words = tab.locator(".own-models").inner_text()
    assert f"lies {placed.distance} the line" in words
    label, plot = (tab.locator(f".chart {part}").last.bounding_box() for part in (".axis-label", ".axis"))
    assert label is not None and plot is not None
    assert label["y"] >= plot["y"] - 20 and label["y"] + label["height"] <= plot["y"] + plot["height"] + 20


def test_one_model_without_any_has_no_scatter(open_page: Open, tmp_path: Path) -> None:
    record(tmp_path / "w", "own", 100, 70, space="cifar-10")
    tab = open_page(page_of(sb.Run.open(tmp_path / "w")))
    assert tab.locator("#tab-robustness").count() == 0 and tab.locator("#panel-summary").is_visible()


def test_marks_follow_a_model_through_all_sections(open_page: Open, corrupted: Page) -> None:
    page = copy.deepcopy(corrupted)
    results, summary = (cast(dict[str, Any], page["sections"][name]) for name in ("results", "summary"))
    marked = next(model for model in results["models"] if model["name"] == "unsure")
    marked["assumed"], marked["training_images"] = ["mean", "std"], ["3 of train"]
    summary["warnings"] = ["unsure: labels look permuted"]
    tab = open_page(page)
    # The warning names its model; it does not stand among the numbers of another.
    assert tab.locator("#panel-summary > *").first.inner_text() == "unsure: labels look permuted"
    assert tab.locator(".overview th button", has_text="unsure").inner_text() == "unsure†‡"
    for view in ("robustness", "results", "corruptions", "calibration"):
        tab.locator(f"#tab-{view}").click()
        cells = tab.locator(f"#panel-{view} :is(td, th):visible", has_text="unsure")
        assert cells.first.inner_text().startswith("unsure†‡"), view
        others = tab.locator(f"#panel-{view} :is(td, th):visible", has_not_text="unsure").all_inner_texts()
        assert not any("†" in text for text in others), view
    tab.locator("#tab-failures").click()
    tab.get_by_role("combobox", name="Model").fill("unsure")
    tab.keyboard.press("Enter")
    assert tab.locator("#panel-failures [role=status]").inner_text().startswith("unsure†‡: ")
