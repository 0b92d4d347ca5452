"""The report light and dark, on paper and on a phone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.browser.conftest import PHONE, Open
from tests.browser.pages import SECTIONS, grid, setting, share, whole_page

if TYPE_CHECKING:
    from playwright.sync_api import Locator


#: The colours of a text and of what lies below it, as the screen shows them.
COLOURS = """node => {
    const ground = node.closest('.heat-cell') ?? document.body;
    const context = new OffscreenCanvas(1, 1).getContext('2d', {willReadFrequently: true});
    return [getComputedStyle(node).color, getComputedStyle(ground).backgroundColor].map((colour) => {
        context.fillStyle = colour;
        context.fillRect(0, 0, 1, 1);
        return [...context.getImageData(0, 0, 1, 1).data].slice(0, 3);
    });
}"""


def contrast(text: Locator) -> float:
    """Of a text against what lies below it, as WCAG defines it."""

    def luminance(colour: list[int]) -> float:
        channels = np.array(colour) / 255
        linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    dark, light = sorted(luminance(colour) for colour in text.evaluate(COLOURS))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("dark", [False, True])
def test_text_stands_out(open_page: Open, dark: bool) -> None:
    tab = open_page(whole_page(), dark=dark)
    background = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") is not dark
    for selector in ("h1", "#about dt", ".remarks", "td small", "#tabs button[aria-selected=false]"):
        assert contrast(tab.locator(selector).first) > 4.5, selector
    tab.get_by_role("tab", name="Corruptions").click()
    assert min(contrast(cell) for cell in tab.locator(".heat-cell button").all()) > 4.5


def test_theme_toggle(open_page: Open) -> None:
    tab = open_page(whole_page(), "view=corruptions")

    def look() -> tuple[str, str]:
        return (
            tab.evaluate("getComputedStyle(document.body).backgroundColor"),
            tab.locator(".heat-cell").first.evaluate("cell => cell.style.backgroundColor"),
        )

    system = look()
    tab.locator("#theme").click()
    assert look() == system and "light" in (tab.locator("#theme").get_attribute("aria-label") or "")
    tab.locator("#theme").click()
    assert all(a != b for a, b in zip(look(), system, strict=True))
    tab.reload()
    # Browsers store values in the background: a page that loads sooner shows the choice when it arrives.
    tab.locator("html[data-theme=dark]").wait_for(state="attached")
    assert look()[0] != system[0]


def test_open_pages_share_their_theme(open_page: Open) -> None:
    tab = open_page(whole_page())
    other = tab.context.new_page()
    other.goto(tab.url)
    tab.locator("#theme").click()
    tab.locator("#theme").click()
    other.locator("html[data-theme=dark]").wait_for(state="attached")
    assert "dark" in (other.locator("#theme").get_attribute("aria-label") or "")


def test_phone_needs_no_sideways_scrolling(open_page: Open) -> None:
    tab = open_page(whole_page(), size=PHONE, touch=True)
    for section in SECTIONS:
        tab.locator(f"#tab-{section}").tap()
        assert tab.evaluate("document.scrollingElement.scrollWidth <= innerWidth"), section
        box = tab.locator(f"#tab-{section}").bounding_box()
        assert box and box["x"] >= 0 and box["x"] + box["width"] <= PHONE[0] + 1, section


def test_phone_with_the_testbed(open_page: Open, testbed_page: bytes) -> None:
    tab = open_page(testbed_page, size=PHONE, touch=True)
    assert tab.evaluate("document.scrollingElement.scrollWidth <= innerWidth")
    mark = tab.locator('[data-model="efficientnet-l2-noisystudent"]')
    mark.scroll_into_view_if_needed()
    box = mark.bounding_box()
    assert box
    tab.touchscreen.tap(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    tip = tab.locator("#tooltip")
    assert "efficientnet-l2-noisystudent" in tip.inner_text()
    place = tip.bounding_box()
    assert place and place["x"] >= 0 and place["x"] + place["width"] <= PHONE[0]
    tab.get_by_role("tab", name="Results").click()
    assert tab.evaluate("document.scrollingElement.scrollWidth <= innerWidth")


def test_print_shows_everything(open_page: Open) -> None:
    page = whole_page()
    rows = {f"model {i}": [share(500 + i, 1000), share(400 + i, 1000)] for i in range(120)}
    page["sections"]["results"] = grid(rows, [setting("val"), setting("v2", "val")])
    tab = open_page(page, size=(794, 1123), dark=True)
    tab.emulate_media(media="print", color_scheme="dark")
    tab.locator("html.printing").wait_for(state="attached")
    for section in SECTIONS:
        assert tab.locator(f"#panel-{section}").is_visible()
    for hidden in ("#tabs", "#theme", ".controls", ".save", ".pager"):
        assert tab.locator(f"{hidden} >> visible=true").count() == 0
    assert tab.locator("#panel-results tbody tr").count() == 120
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert tab.evaluate("document.scrollingElement.scrollWidth <= innerWidth")
    assert tab.locator("figure .chart").count() >= 5
    tab.emulate_media(media="screen")
    tab.locator("html:not(.printing)").wait_for(state="attached")
    assert tab.locator("#panel-methods").is_hidden() and tab.locator("#panel-robustness tbody tr").count() == 50
