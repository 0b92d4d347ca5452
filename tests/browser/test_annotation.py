"""Annotation in a real browser: by mouse, by keys, by thumb, and without any script."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import select

from shiftbench.testsets.database.tables import Assignment, Selection
from tests.browser.conftest import PHONE
from tests.browser.workshop import WICKED, sitting, wait_until, workshop
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
        return row.state, len(session.scalars(select(Selection).where(Selection.assignment_id == row.id)).all())


def all_pictures_seen(tab: Tab) -> bool:
    wait_until(tab, "[...document.images].every((i) => i.complete)")
    return bool(tab.evaluate("[...document.images].every((image) => image.naturalWidth > 0)"))


def test_by_mouse(browser: Browser, site: Site) -> None:
    with sitting(browser, site, "annotator") as tab:
        task = task_of(tab)
        assert tab.locator(".tile").count() == 48 and all_pictures_seen(tab)
        for place in (0, 5, 17, 20):
            tab.locator(".tile").nth(place).click()
        tab.locator(".tile").nth(5).click()
        assert tab.locator("#count").inner_text() == "3 selected"
        tab.get_by_role("button", name="Review and submit").click()
        tab.locator("h1", has_text="You selected 3 of 48").wait_for()
        assert all_pictures_seen(tab)
        tab.locator(".tile").nth(1).click()
        tab.get_by_role("button", name="Back to all pictures").click()
        assert tab.locator(".tile :checked").count() == 2
        tab.get_by_role("button", name="Review and submit").click()
        tab.get_by_role("button", name="Submit", exact=True).click()
        tab.wait_for_url("**/task")
        assert "thank you" in tab.locator(".progress").inner_text()
        assert stored(site, task) == ("submitted", 2)


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
        assert tab.evaluate("document.activeElement.ariaLabel") == "Picture 1"
        chosen = tab.locator(".tile input").evaluate_all("all => all.flatMap((one, i) => one.checked ? [i] : [])")
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
        tab.locator("h1", has_text="None of the").wait_for()
        tab.locator("#submit").press("Enter")
        tab.wait_for_url("**/task")
        assert stored(site, task) == ("submitted", 0)


def test_checkboxes_for_everybody(browser: Browser, site: Site) -> None:
    with sitting(browser, site, "annotator") as tab:
        first = tab.get_by_role("checkbox", name="Picture 1", exact=True)
        assert not first.is_checked()
        first.check()
        assert first.is_checked() and tab.locator("#count").inner_text() == "1 selected"


def test_on_a_phone(browser: Browser, site: Site) -> None:
    with sitting(browser, site, "annotator", size=PHONE, touch=True) as tab:
        assert tab.evaluate("document.scrollingElement.scrollWidth <= innerWidth")
        boxes = [tab.locator(".tile").nth(i).bounding_box() for i in range(4)]
        assert len({round(box["y"]) for box in boxes[:3] if box}) == 1 and boxes[3] and boxes[0]
        assert boxes[3]["y"] > boxes[0]["y"] and min(box["width"] for box in boxes if box) > 100
        tab.locator(".tile").nth(2).tap()
        assert tab.locator("#count").inner_text() == "1 selected"
        for name in ("Review and submit", "None of these"):
            box = tab.get_by_role("button", name=name).bounding_box()
            assert box and box["height"] >= 44 and box["x"] >= 0 and box["x"] + box["width"] <= PHONE[0]
        tab.get_by_role("button", name="Review and submit").tap()
        tab.locator("h1", has_text="You selected 1 of").wait_for()
        assert tab.evaluate("document.scrollingElement.scrollWidth <= innerWidth")


def test_without_script(browser: Browser, site: Site) -> None:
    with sitting(browser, site, "annotator", script=False) as tab:
        task = task_of(tab)
        assert "minutes" in tab.locator("#clock").inner_text()
        tab.locator(".tile").nth(3).click()
        tab.get_by_role("button", name="Review and submit").click()
        tab.get_by_role("button", name="Submit", exact=True).click()
        tab.wait_for_url("**/task")
        assert stored(site, task) == ("submitted", 1)


def test_the_clock_is_wound_up_while_somebody_is_active(browser: Browser, site: Site) -> None:
    with sitting(browser, site, "annotator") as tab:
        assert tab.locator("#clock").inner_text().startswith("Time left: ")
        tab.evaluate("renewed = 0; ends = Date.now() + 30000; 0")
        with tab.expect_response("**/renew") as answered:
            tab.mouse.click(5, 5)
        assert answered.value.status == 200
        wait_until(tab, "ends > Date.now() + 3000000")


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
