"""The report's other sections: corruptions, calibration, failures, training, methods, warnings."""

from __future__ import annotations

import re

import numpy as np

from shiftbench.reports import formatting
from shiftbench.reports.page.sections import corruptions
from tests.browser.conftest import Open
from tests.browser.pages import page_of, small_results, whole_page
from tests.browser.reading import column
from tests.reports.page.making import part_of


def test_heat_map_leads_to_the_curve(open_page: Open) -> None:
    page = whole_page()
    tab = open_page(page, "view=corruptions")
    [family] = part_of(page, corruptions.SECTION)
    values = [cell[0] for row in family["rows"] for cell in row["ce"] if cell]
    shown = tab.locator(".heat-cell button").all_inner_texts()
    assert shown == [formatting.number(value, 1) for value in values]
    assert tab.locator(".heat tbody td.number").all_inner_texts()[0] == "61.2 [59.0, 64.0]"
    assert tab.locator(".heat .groups th").all_inner_texts() == ["noise", "weather", "digital"]
    # darker means more: the lightness falls with the error
    light = tab.locator(".heat-cell").evaluate_all(
        "cells => cells.map((c) => Number(c.style.backgroundColor.match(/oklch\\(([\\d.]+)/)[1]))"
    )
    assert list(np.argsort(values)) == list(np.argsort(light)[::-1])
    cell = tab.get_by_role("button", name=re.compile("^mine, pixelate"))
    cell.click()
    assert tab.get_by_role("heading", name="pixelate: accuracy over severity").is_visible()
    assert "corruption=pixelate" in tab.url
    assert tab.locator("figure .curve.faded").count() == 1 and cell.get_attribute("aria-pressed") == "true"
    tab.keyboard.press("ArrowUp")
    assert "a, pixelate" in str(tab.evaluate("document.activeElement.getAttribute('aria-label')"))
    assert "error" in tab.locator("#tooltip").inner_text()
    tab.keyboard.press("Enter")
    assert "model=a" in tab.url
    tab.locator('.heat th button[data-key="mce"]').click()
    assert tab.locator(".heat tbody th").all_inner_texts() == ["mine", "a"]


def test_severity_curves(open_page: Open) -> None:
    page = whole_page()
    tab = open_page(page, "view=corruptions")
    assert tab.locator(".multiple").count() == 3
    assert tab.locator(".multiple .curve").count() == 6
    chart = tab.locator("figure .chart").first
    chart.focus()
    tab.keyboard.press("End")
    tip = tab.locator("#tooltip").inner_text()
    cell = part_of(page, corruptions.SECTION)[0]["rows"][0]["accuracy"][0][2]
    assert cell and "severity 3" in tip
    assert formatting.number(cell[0], 1) in tip and formatting.interval(cell[1] or 0, cell[2] or 0, 1) in tip
    tab.get_by_role("button", name="mine", exact=True).click()
    assert tab.locator(".multiple .curve").count() == 3


def test_calibration(open_page: Open) -> None:
    tab = open_page(whole_page(), "view=calibration")
    assert column(tab, 3, "calibration") == ["6.1 [2.0, 11.0]"] * 2
    assert tab.locator(".multiple").count() == 2 and tab.locator(".multiple .dot").count() == 8
    diagram = tab.locator(".multiple .chart").first
    diagram.focus()
    tip = tab.locator("#tooltip").inner_text()
    assert "15.0" in tip and "10.0" in tip and "[0.3, 44.5]" in tip  # Clopper-Pearson of 1 in 10
    tab.get_by_role("combobox", name="Setting").fill("v2")
    tab.keyboard.press("Enter")
    assert column(tab, 5, "calibration") == [formatting.MISSING] * 2
    tab.get_by_role("button", name="mine", exact=True).click()
    assert tab.locator(".multiple").count() == 1


def test_failures_enlarge(open_page: Open) -> None:
    tab = open_page(whole_page(), "view=failures")
    assert tab.locator(".card").count() == 5
    first = tab.locator(".card").first.inner_text()
    assert all(text in first for text in ("wrong 0", "99.0 %", "jeep", "2 of 3"))
    assert tab.locator(".card").first.locator("img").count() == 2
    assert tab.locator(".card").nth(2).locator("img").count() == 1  # nothing shifted is at hand there
    assert re.match(r"a: 40 .* 5 ", tab.locator("#panel-failures [role=status]").inner_text())
    assert "Tags: texture 1." in tab.locator("#panel-failures [role=status]").inner_text()
    tab.locator(".card").nth(1).focus()
    tab.keyboard.press("Enter")
    dialog = tab.locator("dialog")
    assert dialog.is_visible() and "images/1.png" in dialog.inner_text()
    assert dialog.locator("img").first.evaluate("image => image.naturalWidth") == 24
    tab.keyboard.press("ArrowRight")
    assert "images/2.png" in dialog.inner_text()
    tab.keyboard.press("Escape")
    assert dialog.is_hidden() and "wrong 1" in str(tab.evaluate("document.activeElement.textContent"))
    tab.get_by_role("combobox", name="Model").fill("mine")
    tab.keyboard.press("Enter")
    assert tab.locator(".card").count() == 3


def test_training_methods_and_warnings(open_page: Open) -> None:
    page = whole_page()
    tab = open_page(page, "view=training")
    assert tab.locator("figure").count() == 2 and tab.locator("figure .curve").count() == 4
    assert "second" in tab.locator("#panel-training .legend").inner_text()
    tab.get_by_role("tab", name="Methods").click()
    assert tab.locator("#panel-methods h3").all_inner_texts() == ["Datasets"]
    assert tab.locator("#panel-methods li").all_inner_texts() == ["val: 1,000"]
    tab.get_by_role("tab", name="Warnings").click()
    assert tab.locator("#panel-warnings li").all_inner_texts() == page["warnings"]


def test_sections_without_data_do_not_appear(open_page: Open) -> None:
    tab = open_page(page_of(small_results()))
    assert tab.get_by_role("tab").all_inner_texts() == ["Robustness", "Results"]
    empty = open_page(page_of(None, "nothing yet"))
    assert empty.get_by_role("tab").count() == 0
    assert empty.locator("main .waiting").is_visible()
