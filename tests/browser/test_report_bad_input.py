"""Grids with holes, impossible places, too few models, and names that want to be markup."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from shiftbench.errors import visible
from tests.browser.conftest import DESK, PHONE, Open
from tests.browser.pages import Row, grid, model, page_of, setting, share
from tests.browser.reading import column, hover

pytestmark = pytest.mark.reliability("page attacks")


def test_hostile_names(open_page: Open) -> None:
    """Markup, quotes, formulas, other scripts, changes of direction, and a very long name stay names."""
    long = "x" * 200
    names = [
        "</script><script>alert(1)</script>",
        '"onload="alert(2)" <img src=x onerror=alert(3)>',
        "=HYPERLINK(1)",
        "{{payload}} ${1+1} &amp;",
        "модель 模型 \u202egnp.exe",
        long,
    ]
    rows = {name: [share(500 + 40 * i, 1000), share(300 + 50 * i, 1000)] for i, name in enumerate(names)}
    results = grid(rows, [setting("<b>val</b>"), setting("'v2'", "<b>val</b>")])
    results["models"] = [model(name, "<i>kind</i>", own=i > 3) for i, name in enumerate(names)]
    results["notes"] = ["<u>note</u>"]
    page = page_of(results, "<title>&\"'")
    page["sections"]["methods"] = [{"heading": "<h1>", "paragraphs": ["<script>x</script>"]}]
    page["warnings"] = [f"<b>{long}</b>"]
    dialogs: list[str] = []
    for size in (DESK, PHONE):
        tab = open_page(page, size=size)
        tab.on("dialog", lambda dialog: dialogs.append(dialog.message))
        assert tab.title() == "<title>&\"'"
        assert set(column(tab, 1)) == set(map(visible, names))
        assert tab.evaluate("document.scrollingElement.scrollWidth <= innerWidth")
        tab.get_by_role("tab", name="Results").click()
        assert tab.locator("#panel-results thead th").all_inner_texts()[1:] == ["<b>val</b>", "'v2'"]
        tab.get_by_role("tab", name="Methods").click()
        tab.get_by_role("tab", name="Warnings").click()
        assert tab.evaluate("document.scrollingElement.scrollWidth <= innerWidth")
        assert tab.locator("main u, main i, main script, main img").count() == 0 and not dialogs
    with tab.expect_download() as table:
        tab.get_by_role("tab", name="Robustness").click()
        tab.get_by_role("button", name="Save robustness as CSV").click()
    saved = list(csv.DictReader(io.StringIO(Path(table.value.path()).read_text(encoding="utf-8"))))
    assert {row["model"] for row in saved} == {"'=HYPERLINK(1)", *map(visible, names)} - {"=HYPERLINK(1)"}


def test_missing_cells(open_page: Open) -> None:
    rows: dict[str, Row] = {f"m{i}": [share(500 + 50 * i, 1000), share(400 + 55 * i, 1000)] for i in range(8)}
    rows |= {"no y": [share(700, 1000), None], "no x": [None, share(500, 1000)], "nothing": [None, None]}
    tab = open_page(page_of(grid(rows, [setting("val"), setting("v2", "val"), setting("empty")])))
    assert tab.locator(".marker[data-model]").count() == 8 and tab.locator(".fit").get_attribute("data-n") == "8"
    assert "3 models (no y, no x, nothing)" in tab.locator(".notes").inner_text()
    tab.get_by_role("combobox", name="y axis").fill("empty")
    tab.keyboard.press("Enter")
    assert "at least 8 models with both numbers, found 0" in tab.locator(".fit-words").inner_text()
    tab.get_by_role("tab", name="Results").click()
    tab.locator('th button[data-key="v2"]').click()
    assert column(tab, 1, "results")[-2:] == ["no y", "nothing"]


@pytest.mark.parametrize(("scale", "edges"), [("logit", 3), ("probit", 3), ("linear", 0)])
def test_nothing_and_everything_right(open_page: Open, scale: str, edges: int) -> None:
    rows: dict[str, Row] = {f"m{i}": [share(500 + 50 * i, 1000), share(400 + 55 * i, 1000)] for i in range(8)}
    rows |= {
        "zero": [share(600, 1000), share(0, 1000)],
        "all": [share(1000, 1000), share(990, 1000)],
        "both": [share(0, 1000), share(1000, 1000)],
    }
    tab = open_page(page_of(grid(rows, [setting("val"), setting("v2", "val")])), f"scale={scale}")
    assert tab.locator(".marker[data-model]").count() == 11
    assert tab.locator(".marker.edge").count() == edges
    notes = tab.locator(".notes").inner_text()
    assert (f"{scale}: 3 models (zero, all, both)" in notes) is (edges > 0)
    if edges:
        assert tab.locator(".fit").get_attribute("data-n") == "8"
        # at the foot of the plot, pointing down; its numbers are there all the same
        assert "rotate(180)" in (tab.locator('[data-model="zero"]').get_attribute("transform") or "")
        assert "0.00" in hover(tab, "zero").inner_text()


@pytest.mark.parametrize("n", [2, 7])
def test_too_few_models_for_a_line(open_page: Open, n: int) -> None:
    rows = {f"m{i}": [share(70 + i, 100), share(50 + i, 100)] for i in range(n)}
    tab = open_page(page_of(grid(rows, [setting("val"), setting("v2", "val")])))
    assert f"at least 8 models with both numbers, found {n}" in tab.locator(".fit-words").inner_text()
    assert tab.locator(".marker[data-model]").count() == n and tab.locator(".fit-line, .fit-band").count() == 0
    assert column(tab, 5) == [""] * n


def test_one_model_in_one_setting(open_page: Open) -> None:
    tab = open_page(page_of(grid({"one": [share(70, 100)]}, [setting("val")])))
    assert [tab.get_attribute("id") for tab in tab.get_by_role("tab").all()] == ["tab-results"]
    assert "70" in tab.locator("#panel-results").inner_text()


def test_numbers_that_are_no_shares(open_page: Open) -> None:
    """A loss has no logit: the axes are linear, and the page says so."""
    rows: dict[str, Row] = {f"m{i}": [share(500 + 50 * i, 1000), (2.5 - 0.3 * i, None, None, None)] for i in range(5)}
    settings = [setting("val"), setting("loss", "val", metric="nll", unit="")]
    tab = open_page(page_of(grid(rows, settings)))
    assert tab.get_by_role("radio", name="logit").is_disabled() and tab.get_by_role("radio", name="linear").is_checked()
    assert "both axes are linear: nll" in tab.locator(".notes").inner_text()
    assert "1.300" in hover(tab, "m4").inner_text()


def test_a_page_of_another_format(open_page: Open) -> None:
    page = page_of(None)
    page["format"] = 99
    assert "expected format 1, found format 99" in open_page(page).locator("#notices").inner_text()


def test_labels_do_not_cover_each_other(open_page: Open) -> None:
    rows = {f"my model number {i}": [share(700 + i, 1000), share(600 + 2 * i, 1000)] for i in range(8)}
    results = grid(rows, [setting("val"), setting("v2", "val")])
    results["models"] = [model(name, "", own=True) for name in rows]
    tab = open_page(page_of(results))
    boxes = [label.bounding_box() for label in tab.locator(".point-label").all()]
    assert len(boxes) == 8

    # Boxes of text are a little taller than its letters.
    corners = [(b["x"], b["y"] + 1, b["x"] + b["width"], b["y"] + b["height"] - 1) for b in boxes if b]
    for i, (left, top, right, bottom) in enumerate(corners):
        for other in corners[:i]:
            assert right <= other[0] or other[2] <= left or bottom <= other[1] or other[3] <= top
