"""The live page: fed while a run goes on, without losing what its reader chose."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from shiftbench.reports.page.payload import Page
from shiftbench.reports.page.report_data import empty_page
from shiftbench.reports.page.sections import failures
from shiftbench.reports.page.write import live_html, page_json
from tests.browser.conftest import NON_NUMBERS
from tests.browser.pages import model, share, whole_page
from tests.reports.page.making import part_of, results_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Route
    from playwright.sync_api import Page as Tab

ADDRESS = "http://viewer.test"


class Server:
    """Answers as the viewer does: the page, and its payload with an ETag."""

    def __init__(self) -> None:
        self.page: Page = empty_page("waiting", {"results_done": 0, "results_total": None, "text": "waiting for a run"})
        self.tag = 1
        self.broken = False
        self.answers: list[int] = []

    def put(self, page: Page) -> None:
        self.page = page
        self.tag = self.tag + 1

    def __call__(self, route: Route) -> None:
        if route.request.url == f"{ADDRESS}/":
            route.fulfill(body=live_html("live").decode(), content_type="text/html")
        elif route.request.url != f"{ADDRESS}/payload.json" or self.broken:
            self.answers.append(0)
            route.abort()
        else:
            tag = f'"{self.tag}"'
            same = route.request.headers.get("if-none-match") == tag
            self.answers.append(304 if same else 200)
            body = "" if same else page_json(self.page)
            route.fulfill(status=self.answers[-1], body=body, headers={"ETag": tag, "Content-Type": "application/json"})


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def tab(browser: Browser, server: Server) -> Iterator[Tab]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.route("**/*", server)
    opened = context.new_page()
    opened.set_default_timeout(60_000)
    errors: list[str] = []
    opened.on("pageerror", lambda error: errors.append(str(error)))
    opened.clock.install()
    opened.goto(f"{ADDRESS}/")
    yield opened
    assert errors == [] and opened.evaluate(NON_NUMBERS) == []
    context.close()


def next_poll(tab: Tab, server: Server, seconds: float = 2.1) -> None:
    before = len(server.answers)
    tab.clock.run_for(int(seconds * 1000))
    while len(server.answers) == before:
        tab.wait_for_timeout(20)


def test_waits_for_a_run_and_then_fills(tab: Tab, server: Server) -> None:
    tab.get_by_text("waiting for a run").wait_for()
    assert tab.get_by_role("tab").count() == 0
    page = whole_page()
    page["progress"] = {"results_done": 3, "results_total": 12, "text": "3 of 12 results"}
    server.put(page)
    next_poll(tab, server)
    tab.get_by_role("tab", name="Robustness").wait_for()
    assert tab.locator("progress").get_attribute("max") == "12"
    assert tab.locator(".marker[data-model]").count() == 10
    assert tab.title() == page["title"]


def test_nothing_new_is_not_sent_again(tab: Tab, server: Server) -> None:
    server.put(whole_page())
    next_poll(tab, server)
    tab.get_by_role("tab", name="Robustness").wait_for()
    tab.evaluate("document.querySelector('.chart').dataset.seen = 'yes'")
    for _ in range(3):
        next_poll(tab, server)
    assert server.answers[-3:] == [304, 304, 304]
    assert tab.locator(".chart[data-seen=yes]").count() == 1  # and nothing was drawn anew


def test_choices_survive_new_results(tab: Tab, server: Server) -> None:
    server.put(whole_page())
    next_poll(tab, server)
    tab.get_by_role("radio", name="probit").check()
    tab.locator('#panel-robustness th button[data-key="x"]').click()
    tab.locator(".chart").focus()
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("+")
    zoomed = tab.locator(".chart .tick").all_text_contents()
    search = tab.get_by_label("Find a model in the table")
    search.click()
    search.press_sequentially("m")
    tab.evaluate("scrollTo(0, 200)")

    page = whole_page()
    results_of(page)["models"].append(model("more of mine", "", own=True, fitted=False))
    results_of(page)["estimates"].append([share(650, 1000), share(560, 1000)])
    server.put(page)
    next_poll(tab, server)
    tab.get_by_text("2 of 11 models match").wait_for()

    assert tab.get_by_role("radio", name="probit").is_checked()
    assert tab.locator('#panel-robustness th[aria-sort="descending"] button').get_attribute("data-key") == "x"
    assert tab.locator(".chart .tick").all_text_contents() == zoomed
    assert tab.evaluate("document.activeElement.getAttribute('aria-label')") == "Find a model in the table"
    search.press_sequentially("ine")  # the cursor is where it was
    assert search.input_value() == "mine"
    assert tab.locator("#panel-robustness tbody th").all_inner_texts() == ["mine", "more of mine"]
    assert tab.evaluate("scrollY") == 200


def test_nothing_is_redrawn_under_the_readers_hands(tab: Tab, server: Server) -> None:
    server.put(whole_page())
    next_poll(tab, server)
    tab.get_by_role("tab", name="Failures").click()
    tab.locator(".card").first.click()
    asked = len(server.answers)
    server.put(empty_page("gone"))
    tab.clock.run_for(10_000)
    assert tab.locator("dialog").is_visible() and len(server.answers) == asked
    tab.keyboard.press("Escape")
    next_poll(tab, server)
    tab.locator("main .waiting").wait_for()


def test_a_viewer_that_went_away(tab: Tab, server: Server) -> None:
    server.put(whole_page())
    next_poll(tab, server)
    tab.get_by_role("tab", name="Robustness").wait_for()
    server.broken = True
    next_poll(tab, server)
    tab.locator(".notice.lost").wait_for()
    assert tab.locator(".marker[data-model]").count() == 10  # what was read stays
    server.broken = False
    next_poll(tab, server, seconds=6.1)
    tab.locator(".notice.lost").wait_for(state="detached")


def test_a_tag_that_was_not_saved(tab: Tab, server: Server) -> None:
    page = whole_page()
    part_of(page, failures.SECTION)["tagging"] = "tags"  # which the server above never answers
    server.put(page)
    next_poll(tab, server)
    tab.get_by_role("tab", name="Failures").click()
    tab.locator(".card").nth(1).click()
    tab.get_by_label("New tag").fill("texture")
    tab.get_by_role("button", name="Add tag").click()
    tab.get_by_role("alert").get_by_text("not saved").wait_for()
    assert tab.get_by_role("button", name="Remove tag texture").count() == 0
