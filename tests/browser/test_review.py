"""Review in a real browser: black-list, near-duplicate, the next revision, freezing; and the lead's pages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from shiftbench.testsets.freeze import require_frozen
from shiftbench.testsets.revisions import find_revision, sample, set_status
from shiftbench.testsets.sampling import make_sampling
from tests.browser.conftest import PHONE
from tests.browser.workshop import sitting, workshop
from tests.testsets.helpers import annotators, by_share, work
from tests.testsets.web.conftest import Site

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with workshop(tmp_path_factory.mktemp("review") / "pets", 24, 12, grid=20, annotators=3) as made:
        work(made.project, annotators(made.project, 3), by_share)
        yield made


def sampled(site: Site, name: str) -> None:
    sample(site.project, name, make_sampling("top-images", min_annotations=3), per_class=6)


def test_review_by_mouse_and_freeze(browser: Browser, site: Site) -> None:
    sampled(site, "mouse")
    with sitting(browser, site, "lead") as tab:
        tab.get_by_role("link", name="Review", exact=True).click()
        tab.get_by_role("link", name="mouse", exact=True).click()
        tab.get_by_role("link", name="cat", exact=True).click()
        assert tab.locator("#cards .card").count() == 6 and tab.locator(".card").count() == 12
        card = tab.locator("#cards .card").first
        card.locator("img").evaluate("image => image.decode()")
        card.get_by_role("textbox").fill("a <drawing>")
        card.locator("[data-key=b]").click()
        tab.locator("#cards .card.marked").wait_for()
        assert "a <drawing>" in tab.locator(".card.marked .mark").inner_text()
        tab.locator("#cards .card").nth(1).locator("[data-key=d]").click()
        tab.locator("#cards .card.marked").nth(1).wait_for()
        assert len(set_status(site.project, "mouse").to_remove) == 2
        for key in ("dog", "frog"):  # each time the next class that nobody has reviewed
            tab.locator("[data-key=f]").click()
            tab.wait_for_url(f"**/classes/{key}")
        tab.locator("[data-key=f]").click()
        tab.wait_for_url("**/review/sets/mouse#classes")
        tab.locator("#next").click()
        tab.locator("a[href$='/differences/1/2']").click()
        tab.locator(".card.marked").nth(1).wait_for()
        assert tab.locator(".card.marked").count() == 2 and "a <drawing>" in tab.locator("main").inner_text()
        tab.go_back()
        tab.locator("a[href$='/freeze']").click()
        tab.locator("input[name=confirm]").fill("mouse")
        for defect in tab.locator("input[name=allow]").all():
            defect.check()
        tab.locator("form[action$='/freeze'] button").click()
        tab.locator("[data-page=frozen]").wait_for()
        assert require_frozen(site.project, "mouse").fingerprint in tab.locator("main").inner_text()


def test_review_by_keys(browser: Browser, site: Site) -> None:
    from playwright.sync_api import expect

    sampled(site, "keys")
    with sitting(browser, site, "reviewer") as tab:
        tab.goto(f"{site.server.address}/review/sets/keys/classes/frog")
        press = tab.keyboard.press
        second = tab.locator("#cards .card").nth(1)
        press("ArrowRight")
        expect(second).to_be_focused()
        press("e")
        tab.keyboard.type("bd")  # letters of a note are no commands
        press("Escape")
        press("d")
        tab.locator("#cards .card.marked").wait_for()
        assert "bd" in tab.locator(".card.marked .mark").inner_text()
        expect(second).to_be_focused()  # as before the mark
        press("u")
        expect(tab.locator(".card.marked")).to_have_count(0)
        expect(second).to_be_focused()
        press("ArrowLeft")
        press("b")
        expect(tab.locator("#cards .card.marked")).to_be_focused()
        press("f")
        tab.wait_for_url("**/review/sets/keys/classes/cat")
        tab.goto(f"{site.server.address}/review/sets/keys")
        status = set_status(site.project, "keys")
        assert status.reviewed_classes == ("frog",) and list(status.to_remove.values()) == ["blacklist"]
        tab.locator("#next").click()
        tab.locator("a[href$='/differences/1/2']").wait_for()
        assert find_revision(site.project, "keys").number == 2


@pytest.mark.parametrize("size", [PHONE, (1280, 900)])
def test_the_leads_pages(browser: Browser, site: Site, size: tuple[int, int]) -> None:
    with sitting(browser, site, "lead", size=size) as tab:
        for path in ("/lead", "/lead/frequencies", "/lead/log", "/review", "/account"):
            tab.goto(f"{site.server.address}{path}")
            assert tab.evaluate("document.scrollingElement.scrollWidth <= innerWidth"), path
        tab.goto(f"{site.server.address}/lead")
        assert tab.locator("#annotators tbody tr").count() == 3
        row = tab.locator("#annotators tbody tr").first
        name = row.locator("th").inner_text()
        row.get_by_role("textbox").fill("too quick")
        row.locator("form[action$='/exclude'] button").click()
        row = tab.locator("#annotators tbody tr", has_text=name)
        assert "too quick" in row.inner_text()
        row.locator("form[action$='/readmit'] button").click()
        tab.locator("#annotators tbody tr", has_text=name).locator("form[action$='/exclude']").wait_for()
        tab.locator("#invitations input[name=name]").fill("Ms. New")
        tab.locator("#invite").click()
        assert "/join/" in tab.locator("input.link").input_value()
        tab.goto(f"{site.server.address}/lead/frequencies")
        assert tab.locator("svg rect.candidates").count() == 40
