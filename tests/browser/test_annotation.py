"""Annotation in a real browser: by mouse, by keys, by thumb, and without any script."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import select

from shiftbench.testsets.database import Assignment, SelectedSlot
from tests.browser.conftest import PHONE
from tests.browser.workshop import WICKED, sitting, workshop
from tests.testsets.web.conftest import Site

if TYPE_CHECKING:
    from playwright.sync_api import Browser
    from playwright.sync_api import Page as Tab


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with workshop(tmp_path_factory.mktemp("workshop") / "pets") as made:
        yield made


def task_of(tab: Tab) -> str:
    return (tab.locator("#answer").get_attribute("action") or "").split("/")[2]


def stored(site: Site, task: str) -> tuple[str, int]:
    with site.project.reading() as session:
        row = session.scalars(select(Assignment).where(Assignment.token == task)).one()
        return row.state, len(session.scalars(select(SelectedSlot).where(SelectedSlot.assignment_id == row.id)).all())


def all_pictures_seen(tab: Tab) -> bool:
    tab.wait_for_load_state("load")
    return bool(tab.evaluate("[...document.querySelectorAll('.tile img')].every((image) => image.naturalWidth > 0)"))


def test_by_mouse(browser: Browser, site: Site) -> None:
    with sitting(browser, site, "annotator") as tab:
        task = task_of(tab)
        assert tab.locator(".tile").count() == 48 and all_pictures_seen(tab)
        for place in (0, 5, 17, 20):
            tab.locator(".tile").nth(place).click()
        tab.locator(".tile").nth(5).click()
        assert tab.locator("#count").inner_text().startswith("3")
        tab.locator("#review").click()
        tab.locator("[data-page=check]").wait_for()
        assert tab.locator(".tile :checked").count() == 3
        assert all_pictures_seen(tab)
        tab.locator(".tile").nth(1).click()
        tab.locator("#back").click()
        tab.locator("[data-page=task]").wait_for()
        assert tab.locator(".tile :checked").count() == 2
        tab.locator("#review").click()
        tab.locator("#submit").click()
        tab.wait_for_url("**/task")
        assert stored(site, task) == ("submitted", 2)


def test_one_menu_at_a_time(browser: Browser, site: Site) -> None:
    with sitting(browser, site, "annotator") as tab:
        for place in (3, 4):
            tab.locator(".tile summary").nth(place).click()
            assert tab.locator(".tile details[open]").count() == 1
        tab.locator(".tile").nth(20).click()
        assert tab.locator(".tile details[open]").count() == 0 and tab.locator(".tile > label :checked").count() == 1


def test_by_keys(browser: Browser, site: Site) -> None:
    with sitting(browser, site, "annotator") as tab:
        task = task_of(tab)
        press = tab.keyboard.press
        press("ArrowRight")  # to the first
        press("Space")
        press("ArrowRight")
        press("Enter")
        press("ArrowDown")
        press("Space")
        press("ArrowLeft")
        press("ArrowUp")
        assert tab.evaluate("document.activeElement.ariaLabel") == "Image 1"
        tiles = tab.locator(".tile > label input")
        chosen = tiles.evaluate_all("all => all.flatMap((one, i) => one.checked ? [i] : [])")
        assert chosen == [0, 1, 9]  # eight in a row
        focus = tab.locator(".tile").first.evaluate("tile => getComputedStyle(tile).outlineStyle")
        assert focus == "solid"  # seen
        press("r")
        tab.locator("#submit").wait_for()
        tab.locator("#submit").press("Enter")
        tab.wait_for_url("**/task")
        assert stored(site, task) == ("submitted", 3)
        task = task_of(tab)
        press("n")
        tab.locator("[data-page=check]").wait_for()
        tab.locator("#submit").press("Enter")
        tab.wait_for_url("**/task")
        assert stored(site, task) == ("submitted", 0)


def test_checkboxes_for_everybody(browser: Browser, site: Site) -> None:
    with sitting(browser, site, "annotator") as tab:
        first = tab.get_by_role("checkbox", name="Image 1", exact=True)
        assert not first.is_checked()
        first.check()
        assert first.is_checked() and tab.locator("#count").inner_text().startswith("1")


def test_on_a_phone(browser: Browser, site: Site) -> None:
    with sitting(browser, site, "annotator", size=PHONE, touch=True) as tab:
        assert tab.evaluate("document.scrollingElement.scrollWidth <= innerWidth")
        boxes = [tab.locator(".tile").nth(i).bounding_box() for i in range(4)]
        assert len({round(box["y"]) for box in boxes[:3] if box}) == 1 and boxes[3] and boxes[0]
        assert boxes[3]["y"] > boxes[0]["y"] and min(box["width"] for box in boxes if box) > 100
        tab.locator(".tile").nth(2).tap()
        assert tab.locator("#count").inner_text().startswith("1")
        for button in ("#review", "#none"):
            box = tab.locator(button).bounding_box()
            assert box and box["height"] >= 44 and box["x"] >= 0 and box["x"] + box["width"] <= PHONE[0]
        tab.locator("#review").tap()
        tab.locator("[data-page=check]").wait_for()
        # A page is wider than the phone until its viewport and style sheet apply. `wait_for_function` is not allowed
        # here: it evaluates a string in the page, which the page's security policy forbids.
        for _ in range(100):
            if fits := tab.evaluate("document.scrollingElement.scrollWidth <= innerWidth"):
                break
            tab.wait_for_timeout(50)
        assert fits


def test_without_script(browser: Browser, site: Site) -> None:
    with sitting(browser, site, "annotator", script=False) as tab:
        task = task_of(tab)
        assert "60" in tab.locator("#clock").inner_text()
        tab.locator(".tile").nth(3).click()
        tab.locator("#review").click()
        tab.locator("#submit").click()
        tab.wait_for_url("**/task")
        assert stored(site, task) == ("submitted", 1)


def test_the_clock_is_wound_up_while_somebody_is_active(browser: Browser, site: Site) -> None:
    with sitting(browser, site, "annotator") as tab:
        from playwright.sync_api import expect

        remaining = re.compile(r"(59|60):\d\d")
        expect(tab.locator("#clock")).to_have_text(remaining)
        tab.evaluate("renewed = 0; ends = Date.now() + 30000; 0")
        with tab.expect_response("**/renew") as answered:
            tab.mouse.click(5, 5)
        assert answered.value.status == 200
        expect(tab.locator("#clock")).to_have_text(remaining)


def test_script_in_a_class_name_is_text(browser: Browser, site: Site) -> None:
    """Seen as written, run by nobody; the browser's console stays empty."""
    with sitting(browser, site, "annotator") as tab:
        for _ in range(6):
            if tab.locator("h1 em").inner_text() == WICKED:
                break
            tab.locator("#none").click()
            tab.locator("#submit").click()
            tab.wait_for_url("**/task")
        assert tab.locator("h1 em").inner_text() == WICKED
        assert tab.locator("h1 em *").count() == 0 and "<b>more</b>" in tab.locator(".definition").inner_text()
