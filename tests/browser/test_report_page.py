"""The report's scatter and tables in a real browser: the numbers are Python's, and every control does its work."""

from __future__ import annotations

import csv
import io
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from shiftbench.reports import formatting
from shiftbench.studies import Fit, PiecewiseFit, effective_robustness
from shiftbench.studies.robustness import EffectiveRobustness, sentence
from shiftbench.studies.study import Study
from shiftbench.studies.testbed import SHIFTS
from tests.browser.conftest import Open
from tests.browser.pages import SECTIONS, page_of, small_results, whole_page
from tests.browser.reading import column, floats, hover


def shift_address(name: str) -> str:
    return f"x={SHIFTS[name].x}&y={SHIFTS[name].y}"


def effective(study: Study, name: str, scale: str = "logit") -> EffectiveRobustness:
    shift = SHIFTS[name]
    return study.effective(shift.x, shift.y, min_x=shift.min_x, pivot=shift.pivot, scale=scale)


LINES = [
    ("imagenetv2", "logit"),
    ("imagenetv2", "probit"),
    ("imagenetv2", "linear"),
    ("objectnet", "logit"),
    ("pgd", "probit"),
]


def test_line_is_that_of_the_studies(open_page: Open, testbed_page: bytes, study: Study) -> None:
    tab = open_page(testbed_page)
    for name, scale in LINES:
        tab.evaluate("address => { location.hash = address; }", f"{shift_address(name)}&scale={scale}")
        tab.get_by_text(f"{scale} scale").wait_for()
        line = effective(study, name, scale).line
        assert isinstance(line, Fit) and line.slope_interval is not None and line.intercept_interval is not None
        fit = tab.locator(".fit")
        whole = 100.0 if scale == "linear" else 1.0
        shown = {key: floats(fit.get_attribute(f"data-{key}")) for key in ("slope", "intercept", "r2", "n")}
        assert shown["slope"] == pytest.approx([line.slope], rel=1e-5)
        assert shown["intercept"] == pytest.approx([line.intercept / whole], abs=1e-5)
        assert shown["r2"] == pytest.approx([line.r2], abs=1e-6)
        assert shown["n"] == [line.n]
        assert floats(fit.get_attribute("data-slope-interval")) == pytest.approx(list(line.slope_interval), abs=2e-5)
        ends = [end / whole for end in line.intercept_interval]
        assert floats(fit.get_attribute("data-intercept-interval")) == pytest.approx(ends, abs=2e-5)


def test_line_as_published_with_students_interval(open_page: Open, testbed_page: bytes) -> None:
    words = open_page(testbed_page).locator(".fit-words").inner_text()
    assert "logit scale, 78 baseline models" in words
    assert re.search(r"slope\s+0\.9217 \[0\.909\d, 0\.934\d\]", words)
    assert re.search(r"intercept\s+-0\.4947", words) and re.search(r"r²\s+0\.9965", words)


def test_two_lines_around_a_pivot(open_page: Open, testbed_page: bytes, study: Study) -> None:
    line = effective(study, "imagenet-a").line
    assert isinstance(line, PiecewiseFit)
    tab = open_page(testbed_page, shift_address("imagenet-a"))
    assert "Two lines, pivot 91.86 %" in tab.locator(".fit-words").inner_text()
    for side, part in (("below", line.below), ("above", line.above)):
        fit = tab.locator(f'.fit[data-side="{side}"]')
        assert floats(fit.get_attribute("data-slope")) == pytest.approx([part.slope], rel=1e-4)
        assert fit.get_attribute("data-n") == str(part.n)
    notes = tab.locator(".notes").inner_text()
    assert "on the pivot and in neither fit: 1 model (resnet50)" in notes
    # ResNet-50 has 0 % there by construction: at the edge, with a mark, and named.
    assert "edge" in (tab.locator('[data-model="resnet50"]').get_attribute("class") or "")
    assert "logit: 1 model (resnet50)" in notes


def test_robustness_of_every_model(open_page: Open, testbed_page: bytes, study: Study) -> None:
    """rho with its interval, sorted by it, over all pages of the table."""
    result = effective(study, "imagenetv2")
    expected = sorted(result.rows, key=lambda row: -row.rho)
    tab = open_page(testbed_page)
    seen: list[tuple[str, str]] = []
    for _ in range(5):
        seen += list(zip(column(tab, 1), column(tab, 5), strict=True))
        if len(seen) < len(expected):
            tab.get_by_role("button", name="next").click()
    assert [name for name, _ in seen] == [row.model for row in expected]
    shown = np.array([[float(number) for number in re.findall(r"[+-]?[\d.]+", text)] for _, text in seen])
    # The payload is rounded, so that a last digit may differ now and then.
    assert shown == pytest.approx(np.array([[row.rho, row.low, row.high] for row in expected]), abs=0.0101)
    assert re.fullmatch(r"\+\d+\.\d\d \[[+-]\d+\.\d\d, \+\d+\.\d\d\]", seen[0][1])


def test_hover_shows_the_numbers(open_page: Open, testbed_page: bytes, study: Study) -> None:
    tab = open_page(testbed_page)
    tip = hover(tab, "efficientnet-l2-noisystudent").inner_text()
    row = effective(study, "imagenetv2")["efficientnet-l2-noisystudent"]
    for value in (row.x, row.y, row.expected):
        assert f"{value:.2f}" in tip
    assert f"{row.rho:+.2f}" in tip and f"[{row.low:+.2f}, {row.high:+.2f}]" in tip
    assert (
        "n\u00a0=\u00a050,000" in tip and "n\u00a0=\u00a010,000" in tip and "More data" in tip and "extrapolated" in tip
    )
    tab.mouse.move(5, 5)
    assert tab.locator("#tooltip").is_hidden()
    # and relative robustness, where the base model is known
    tau = next(row for row in study.relative(SHIFTS["imagenetv2"].y).rows if row.model == "resnet50_swsl")
    tip = hover(tab, "resnet50_swsl").inner_text()
    assert "τ, over resnet50" in tip
    assert f"{tau.tau:+.2f}" in tip and f"[{tau.low:+.2f}, {tau.high:+.2f}]" in tip


def test_own_models_get_a_sentence(open_page: Open) -> None:
    results = small_results()
    tab = open_page(page_of(results))
    x, y = ([row[i][0] for row in results["estimates"] if row[i]] for i in (0, 1))  # type: ignore[index]
    n = np.array([1000.0] * 9 + [114.0])
    result = effective_robustness(
        x,
        y,
        models=[model["name"] for model in results["models"]],
        baseline=[model["fitted"] for model in results["models"]],
        n_x=n,
        n_y=n,
        unit="fraction",
    )
    [text] = tab.locator(".own-models li").all_inner_texts()
    # The page fits the axes that a reader chooses by itself, without the range of ordinary models.
    assert sentence(result, "mine").startswith(text) and text.endswith("]")
    assert tab.locator(".point-label").all_text_contents() == ["mine"]


def test_axes_and_scale_change_ticks_and_line(open_page: Open, testbed_page: bytes) -> None:
    tab = open_page(testbed_page)

    def state() -> tuple[list[str], str | None]:
        return tab.locator(".chart .tick").all_text_contents(), tab.locator(".fit").get_attribute("data-slope")

    seen = [state()]
    tab.get_by_role("radio", name="linear").check()
    seen.append(state())
    tab.get_by_role("radio", name="probit").check()
    seen.append(state())
    tab.get_by_role("combobox", name="y axis").fill("sketch")
    tab.keyboard.press("Enter")
    seen.append(state())
    assert "imagenet-sketch against val" in tab.locator("h2").first.inner_text()
    assert len({str(one) for one in seen}) == len(seen)
    linear = [float(text) for text in seen[1][0]]
    steps = np.diff(linear[: linear.index(max(linear[:8]))])
    assert np.allclose(steps, steps[0])
    tab.get_by_role("combobox", name="Shift").fill("objectnet")
    tab.keyboard.press("Enter")
    assert tab.get_by_role("combobox", name="x axis").input_value() == SHIFTS["objectnet"].x
    assert "scale=probit" in tab.url and "objectnet-1.0-beta" in tab.url


def test_search_highlights_and_filters(open_page: Open, testbed_page: bytes, study: Study) -> None:
    tab = open_page(testbed_page)
    tab.get_by_role("combobox", name="Find a model").fill("bit-m r50")
    expected = {name for name in study.results.models if "bit-m" in name.lower() and "r50" in name.lower()}
    assert len(expected) > 1
    matched = tab.locator(".marker.matched")
    assert {one.get_attribute("data-model") for one in matched.all()} == expected
    assert (
        tab.locator(".marker.faded").count() > 100
        and tab.locator(".markers .marker:not(.faded, .matched)").count() == 0
    )
    assert set(column(tab, 1)) == expected
    assert set(tab.locator(".point-label").all_text_contents()) == expected
    assert tab.get_by_role("option").count() == len(expected)
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("Enter")
    assert matched.count() == 1 and "q=BiT-M" in tab.url
    tab.get_by_role("combobox", name="Find a model").fill("")
    assert tab.locator(".marker.faded").count() == 0


def test_brush_zooms_and_everything_brings_it_back(open_page: Open, testbed_page: bytes) -> None:
    tab = open_page(testbed_page)
    everything = tab.locator(".marker").count()
    whole = tab.locator(".chart .tick").all_text_contents()

    def zoom() -> None:
        box = tab.locator(".chart").bounding_box()
        assert box
        tab.mouse.move(box["x"] + 300, box["y"] + 120)
        tab.mouse.down()
        tab.mouse.move(box["x"] + 560, box["y"] + 330, steps=4)
        assert tab.locator(".brush").is_visible()
        tab.mouse.up()
        assert 0 < tab.locator(".marker").count() < everything
        assert tab.locator(".chart .tick").all_text_contents() != whole

    reset = tab.get_by_role("button", name="Reset zoom")
    assert reset.is_hidden()
    ways: list[Callable[[], object]] = [
        reset.click,
        partial(tab.keyboard.press, "Escape"),
        tab.locator(".chart").dblclick,
    ]
    for bring_back in ways:
        zoom()
        assert reset.is_visible()
        bring_back()
        assert tab.locator(".marker").count() == everything and reset.is_hidden()
        assert tab.locator(".chart .tick").all_text_contents() == whole


def test_legend_hides_a_category_but_not_from_the_line(open_page: Open, testbed_page: bytes) -> None:
    tab = open_page(testbed_page)
    slope = tab.locator(".fit").get_attribute("data-slope")
    button = tab.get_by_role("button", name="Standard training (80)")
    before = tab.locator(".marker.slot-0").count()
    button.focus()
    tab.keyboard.press("Space")
    assert tab.locator(".marker.slot-0").count() == before - 80  # the swatch stays
    assert button.get_attribute("aria-pressed") == "false"
    assert tab.locator(".fit").get_attribute("data-slope") == slope
    assert tab.evaluate("document.activeElement.dataset.value") == "standard"
    tab.keyboard.press("Space")
    assert tab.locator(".marker.slot-0").count() == before


def test_models_below_the_threshold_are_shown_on_demand(open_page: Open, testbed_page: bytes) -> None:
    tab = open_page(testbed_page)
    few = tab.locator(".marker[data-model]").count()
    assert "below 55 % on x" in tab.locator(".notes").inner_text()
    tab.get_by_label("also models below 55 %").check()
    assert tab.locator(".marker[data-model]").count() == few + 9
    assert tab.locator(".fit").get_attribute("data-n") == "78"


def test_sorting_as_python_sorts(open_page: Open, testbed_page: bytes, study: Study) -> None:
    """Both ways; what is missing comes last."""
    tab = open_page(testbed_page, "view=results&settings=val&settings=imagenet-a")
    names = list(study.results.models)

    def expected(heading: str, down: bool) -> list[str]:
        if heading == "model":
            return sorted(names, key=str.casefold, reverse=down)
        values = study.results.of(heading)
        sign = -1 if down else 1
        return sorted(names, key=lambda name: (name not in values, sign * values.get(name, 0)))

    for heading in ("val", "imagenet-a", "model"):
        button = tab.locator(f'#panel-results th button[data-key="{heading}"]')
        ways = ("ascending", "descending")
        for direction in ways if heading == "model" else reversed(ways):  # names from A, numbers from the best
            button.click()
            assert button.locator("xpath=..").get_attribute("aria-sort") == direction
            assert column(tab, 1, "results") == expected(heading, direction == "descending")[:50]


def test_results_have_the_digits_of_the_terminal(open_page: Open, testbed_page: bytes, study: Study) -> None:
    tab = open_page(testbed_page, "view=results&settings=imagenet-a&q=alexnet")
    value = study.results.of("imagenet-a")["alexnet"]
    first = column(tab, 2, "results")[0]
    assert first.startswith(formatting.number(value, 2, ""))
    assert re.fullmatch(r"\d\.\d\d \[\d\.\d\d, \d\.\d\d\]", first)


def test_choosing_settings(open_page: Open, testbed_page: bytes) -> None:
    tab = open_page(testbed_page, "view=results")
    tab.get_by_text("Settings: 8 of 252").click()
    tab.get_by_label("Filter Settings").fill("sketch")
    tab.get_by_label("imagenet-sketch").check()
    assert tab.locator("#panel-results thead th").count() == 10
    assert tab.locator("#panel-results details").get_attribute("open") is not None
    tab.get_by_label("Filter Settings").fill("")
    tab.get_by_role("button", name="all listed").click()
    # All of it: 252 settings, a page of models.
    assert tab.locator("#panel-results thead th").count() == 253
    assert tab.locator("#panel-results tbody tr").count() == 20
    tab.locator('th button[data-key="val"]').click()
    assert column(tab, 1, "results")[0] == "efficientnet-l2-noisystudent"


def test_the_address_holds_the_view(open_page: Open, testbed_page: bytes) -> None:
    tab = open_page(testbed_page, f"{shift_address('objectnet')}&scale=linear&q=alexnet")
    assert tab.get_by_role("combobox", name="y axis").input_value() == "objectnet-1.0-beta"
    assert tab.get_by_role("radio", name="linear").is_checked()
    assert tab.locator(".marker.matched").count() >= 1
    tab.get_by_role("tab", name="Results").click()
    assert "view=results" in tab.url and "scale=linear" in tab.url
    tab.go_back()
    assert tab.locator("#panel-robustness").is_visible() and tab.locator("#panel-results").is_hidden()
    tab.reload()
    assert tab.get_by_role("combobox", name="y axis").input_value() == "objectnet-1.0-beta"
    # Nonsense in the address is no reason to fail.
    tab.evaluate("location.hash = 'x=nowhere&y=%3Cb%3E&scale=cubic&view=&hide=none&sort.robustness=nothing'")
    assert tab.get_by_role("combobox", name="x axis").input_value() == "val"


def test_keyboard_alone(open_page: Open) -> None:
    tab = open_page(whole_page())
    press = tab.keyboard.press

    def focused(script: str) -> object:
        return tab.evaluate(f"document.activeElement.{script}")

    press("Tab")
    assert focused("id") == "skip"
    press("Enter")
    assert focused("id") == "sections"
    tab.locator("#theme").focus()
    press("Tab")
    assert focused("id") == "tab-robustness"
    for section in SECTIONS[1:]:
        press("ArrowRight")
        assert focused("id") == f"tab-{section}"
        assert tab.locator(f"#panel-{section}").is_visible()
    press("ArrowRight")
    assert focused("id") == "tab-robustness"
    # into the plot: from the controls onwards
    for _ in range(30):
        press("Tab")
        if focused("getAttribute('aria-roledescription')") == "scatter plot":
            break
    tip = tab.locator("#tooltip")
    assert tip.is_visible() and tip.locator("strong").inner_text() == "a"
    visited = []
    for _ in range(7):
        press("ArrowRight")
        visited.append(tip.locator("strong").inner_text())
    assert visited == ["b", "c", "d", "mine", "e", "data", "f"]
    assert "f: 79.80 %, 69.00 %" in tab.locator("#announcer").inner_text()
    press("ArrowUp")
    assert tip.locator("strong").inner_text() == "mine"
    press("+")
    assert tab.get_by_role("button", name="Reset zoom").is_visible()
    assert tip.locator("strong").inner_text() == "mine"
    press("Escape")
    assert tab.get_by_role("button", name="Reset zoom").is_hidden()
    header = tab.locator('#panel-robustness th button[data-key="x"]')
    header.focus()
    press("Enter")
    assert column(tab, 1)[0] == "h" and focused("dataset.key") == "x"
    press("Enter")
    assert column(tab, 1)[0] == "a"


def test_saving_the_chart_and_the_table(open_page: Open) -> None:
    results = small_results()
    tab = open_page(page_of(results))
    with tab.expect_download() as chart:
        tab.get_by_role("button", name="Save scatter as SVG").click()
    assert chart.value.suggested_filename == "scatter.svg"
    root = ElementTree.fromstring(Path(chart.value.path()).read_text(encoding="utf-8"))
    texts = [node.text for node in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "val (top1, %)" in texts and "mine" in texts
    fills = {node.get("fill") for node in root.iter("{http://www.w3.org/2000/svg}path")}
    assert "rgb(0, 114, 178)" in fills  # styles travel with the file
    with tab.expect_download() as table:
        tab.get_by_role("button", name="Save robustness as CSV").click()
    rows = list(csv.DictReader(io.StringIO(Path(table.value.path()).read_text(encoding="utf-8"))))
    assert [row["model"] for row in rows] == column(tab, 1)
    mine = next(row for row in rows if row["model"] == "mine")
    assert float(mine["x"]) == 86 / 114 and float(mine["rho"]) == pytest.approx(float(mine["y"]) - float(mine["line"]))
